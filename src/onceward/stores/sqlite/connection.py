"""The two connections of one process to one SQLite file: their locks, their faults, their ends.

One connection writes and one reads, each behind a lock, so that threads share them. What goes
wrong in the driver leaves here as one of our errors; a connection that met a failed write or sync
is closed and made anew, never trusted again (F15).
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

from onceward.core import errors
from onceward.stores.sqlite.lockfiles import CHECKPOINT, LockFiles

BUSY_TIMEOUT_MS = 10_000
"""How long a statement waits for another process's write before the store counts as busy."""

BUSY_PART_MS = 250
"""How long one wait for the write lock takes. It is waited for in parts, because SQLite does not give
a wait up when it is asked to, and a process that stops has no ten seconds for each of its threads."""

WAL_TRIES_MAX = 1_000
WAL_PAUSE_SECONDS = 0.01
"""How often, and how far apart, a new file is put into WAL mode while others do the same."""

WAL_PAGES_MAX = 16_000
"""Pages after which the checkpointing process copies the log into the file (64 MB)."""

_TRANSIENT = (
    "SQLITE_BUSY",
    "SQLITE_LOCKED",
    "SQLITE_FULL",
    "SQLITE_IOERR",
    "SQLITE_READONLY",
    "SQLITE_CANTOPEN",
    "SQLITE_PROTOCOL",
)
_DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB")
_UNTRUSTED = ("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_CANTOPEN")
"""After these a connection is made anew: a write or sync failed half way, or the file changed its
mode under it, which the connection does not notice when it is mended."""

_open: weakref.WeakSet[Connections] = weakref.WeakSet()
_inherited: list[Connections] = []
"""Connections that were open when this process was forked off. Closing them would harm the parent,
so they are kept. SQLite keeps its own notes of the locks that a process holds on a file; a child
inherits the notes and not the locks, so a connection that it made anew would wait for a lock that
nobody holds, or believe in one that it does not have."""


def _inherit() -> None:
    mine = os.getpid()
    _inherited.extend(one for one in _open if one._pid != mine and one not in _inherited)  # noqa: SLF001


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_inherit)


def name_of(error: sqlite3.Error) -> str:
    """Give the name of SQLite's code, such as ``SQLITE_BUSY``."""
    return getattr(error, "sqlite_errorname", "") or type(error).__name__


class Connections:
    """Opens, lends and closes the connections of one store.

    Args:
        path: the file, or ``:memory:``.
        shared: an open in-memory database that several stores use.
        lock: what those stores take turns by; needed when they run in threads.
    """

    def __init__(
        self, path: str, *, shared: sqlite3.Connection | None = None, lock: threading.RLock | None = None
    ) -> None:
        self.path = path
        self.is_memory = path == ":memory:"
        self._shared = shared
        self._shared_lock = lock
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._is_open = False
        self._is_closing = False
        self._busy_ms = BUSY_TIMEOUT_MS
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        # Device and number of the file that is open; None while none is.
        self._opened: tuple[int, int] | None = None
        self._write_lock = self._shared_lock or threading.RLock()
        # In memory both are one connection: a reader must not see an open transaction's rows.
        self._read_lock = self._write_lock if self.is_memory else threading.RLock()
        self.locks = None if self.is_memory else LockFiles(Path(f"{self.path}-onceward"))

    # --- open and close ------------------------------------------------------------------------

    def open(self, prepare: Callable[[sqlite3.Connection], None]) -> None:
        """Connect, then let *prepare* check the schema; if it raises, nothing stays open."""
        _inherit()  # uWSGI forks its workers without Python's hooks
        if self._pid != os.getpid() and self not in _inherited:
            self._start()  # made before the fork, and never open then
        self._refuse_after_fork()
        for other in _inherited:
            if not self.is_memory and other.file == self.file:
                other._refuse_after_fork()  # noqa: SLF001 - another of this class
        with self._write_lock:
            self._is_closing = False
            try:
                with self.mapped():
                    if self._writer is None:
                        self._writer = self._connect()
                    _open.add(self)
                    prepare(self._writer)
            except BaseException:
                self.close()
                raise
            self._is_open = True

    def close(self) -> None:
        """Close both connections and free the lock files; what is committed stays.

        Whoever waits for another program's write lock is turned away soon.
        """
        if self._pid != os.getpid():
            return  # they are the parent's
        self._is_closing = True
        with self._write_lock, self._read_lock:
            self._is_open = False
            for connection in (self._reader, self._writer):
                self._discard(connection)
            self._reader = self._writer = self._opened = None
            _open.discard(self)
            if self.locks is not None:
                self.locks.release_all()

    def _discard(self, connection: sqlite3.Connection | None) -> None:
        if connection is not None and connection is not self._shared:
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    def _connect(self) -> sqlite3.Connection:
        if self._shared is not None:
            return self._shared
        self._refuse_lost_file()  # a new one would be made in its place
        self._refuse_missing_folder()
        self._refuse_read_only()
        connection = self._plain(cached_statements=256)
        try:
            self._keep_private()
            self._switch_to_wal(connection)
            connection.execute("pragma synchronous = full")
            connection.execute("pragma wal_autocheckpoint = 0")
            connection.execute("pragma foreign_keys = off")
            if not self.is_memory and connection.execute("pragma journal_mode").fetchone()[0] != "wal":
                raise errors.StoreUnavailable(
                    f"The file {self.path} cannot be put into WAL mode.",
                    means="Readers would block the writer, and a commit would cost several syncs.",
                    todo="Keep the file on a local disk, not on a network file system.",
                )
            self.checkpoint_if_ours(connection)
            self._opened = self._file_at_path()
        except BaseException:
            self._discard(connection)
            raise
        return connection

    def _switch_to_wal(self, connection: sqlite3.Connection) -> None:
        # SQLite does not always wait for another process's lock here, whatever its timeout: of
        # several that open a new file at once, some are turned away at once.
        connection.execute("pragma busy_timeout = 0")
        for left in reversed(range(WAL_TRIES_MAX)):
            try:
                connection.execute("pragma journal_mode = wal")
                break
            except sqlite3.OperationalError as error:
                if not name_of(error).startswith("SQLITE_BUSY") or not left:  # ..._RECOVERY, too
                    raise
            time.sleep(WAL_PAUSE_SECONDS)
        connection.execute(f"pragma busy_timeout = {BUSY_PART_MS}")

    def _plain(self, *, cached_statements: int) -> sqlite3.Connection:
        return sqlite3.connect(
            self.path,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=cached_statements,
            timeout=BUSY_TIMEOUT_MS / 1000,
        )

    def _refuse_missing_folder(self) -> None:
        # SQLite says no more than that it is unable to open the file.
        if self.is_memory:
            return
        folder = os.path.dirname(os.path.abspath(self.path))
        if not os.path.isdir(folder):
            raise errors.StoreUnavailable(
                f"The folder {folder} of the store {self.path} does not exist.",
                means="SQLite makes the file and not its folder; nothing was stored.",
                todo="Make the folder, or name another: three slashes before a relative path, four before an absolute.",
            )
        if os.path.isdir(self.path):
            raise errors.StoreUnavailable(
                f"The store {self.path} is a folder.",
                means="SQLite keeps everything in one file; nothing was stored.",
                todo=f"Name a file in it, e.g. sqlite:///{self.path.rstrip('/')}/onceward.db.",
            )

    def _file_at_path(self) -> tuple[int, int] | None:
        if self.is_memory:
            return None
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino

    def _refuse_lost_file(self) -> None:
        # SQLite goes on with a file that was deleted, and what it commits there is gone at its end.
        if self._opened is not None and self._file_at_path() != self._opened:
            raise errors.StoreUnavailable(
                f"The file {self.path} was deleted, moved or replaced while it was open.",
                means="What was written there would be lost; nothing was accepted or saved.",
                todo="Put the file back with its -wal file beside it, or stop this process and start it again.",
            )

    def _refuse_read_only(self) -> None:
        # SQLite would open it to be read and leave a log with the same mode behind, which then
        # stands in the way when the file may be written again.
        if self.is_memory:
            return
        folder = os.path.dirname(os.path.abspath(self.path))
        if os.path.exists(self.path) and not os.access(self.path, os.W_OK):
            what = f"The file {self.path} is read-only for this user."
        elif not os.access(folder, os.W_OK | os.X_OK):
            what = f"The folder {folder} of the store {self.path} is read-only for this user."
        else:
            return
        raise errors.StoreUnavailable(
            what,
            means="Nothing can be accepted or saved; nothing was changed.",
            todo="Give this user write access to the file and its folder.",
        )

    def _keep_private(self) -> None:
        """Take the file from everybody else; SQLite gives its log the same mode when it makes it (F49)."""
        if self.is_memory or os.name != "posix":
            return
        mode = os.stat(self.path).st_mode
        if mode & 0o007:
            with contextlib.suppress(PermissionError):  # shared on purpose by another owner
                os.chmod(self.path, mode & 0o770)

    # --- lock files ----------------------------------------------------------------------------

    def hold(self, name: str) -> bool:
        """Take a lock file; True while this process has it, and for a database in memory."""
        if self.locks is None:
            return True
        try:
            return self.locks.hold(name)
        except OSError as error:
            raise errors.StoreUnavailable(
                f"The lock file of {name!r} beside {self.path} cannot be made ({error}).",
                means="Other processes could not see whether this one lives; nothing was written.",
                todo="Give this user write access to the folder, and free some space.",
            ) from error

    def is_free(self, name: str) -> bool:
        """Say whether a lock file exists that nobody holds."""
        return self.locks is not None and self.locks.is_free(name)

    def checkpoint_if_ours(self, connection: sqlite3.Connection) -> None:
        """Let this connection checkpoint if no other process does (SQLite's WAL-reset fault)."""
        if self.locks is not None and self.hold(CHECKPOINT):
            connection.execute(f"pragma wal_autocheckpoint = {WAL_PAGES_MAX}")

    # --- lending -------------------------------------------------------------------------------

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Lend the writer in one transaction that holds the write lock from its start."""
        self._refuse_after_fork()
        with self._write_lock, self.mapped():
            self._refuse_closed()
            if self._writer is None:
                self._writer = self._connect()
            connection = self._writer
            try:
                self.begin(connection)
                yield connection
                self._refuse_lost_file()
                connection.execute("commit")
            except BaseException as error:
                self._undo(connection)
                if not self._is_trusted_after(error):
                    self._discard(connection)
                    self._writer = None
                raise

    def begin(self, connection: sqlite3.Connection) -> None:
        """Begin a transaction that holds the write lock; wait for it while this store is not closed."""
        until = time.monotonic() + self._busy_ms / 1000
        while True:
            try:
                connection.execute("begin immediate")
            except sqlite3.OperationalError as error:
                is_over = self._is_closing or time.monotonic() >= until
                if is_over or not name_of(error).startswith("SQLITE_BUSY"):
                    raise
            else:
                return

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Keep this process's other writers away while another connection writes the file."""
        self._refuse_after_fork()
        with self._write_lock:
            self._refuse_closed()
            yield

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Lend the reader; what it sees is committed."""
        self._refuse_after_fork()
        with self._read_lock, self.mapped():
            self._refuse_closed()
            try:
                if self.is_memory:
                    assert self._writer is not None
                    yield self._writer
                    return
                self._refuse_lost_file()
                if self._reader is None:
                    self._reader = self._plain(cached_statements=64)
                    self._reader.execute("pragma query_only = on")
                    self._reader.execute("pragma wal_autocheckpoint = 0")
                yield self._reader
            except BaseException as error:
                if not self._is_trusted_after(error):
                    self._discard(self._reader)
                    self._reader = None
                raise

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """Lend the reader for several reads that see one state of the file."""
        with self.reading() as connection:
            if connection.in_transaction:
                yield connection
                return
            connection.execute("begin")
            try:
                yield connection
            finally:
                self._undo(connection)

    def _undo(self, connection: sqlite3.Connection) -> None:
        # The first error tells what happened; a rollback that fails as well adds nothing, and
        # SQLite has ended the transaction by itself after the worst ones.
        with contextlib.suppress(sqlite3.Error):
            if connection.in_transaction:
                connection.execute("rollback")

    def _is_trusted_after(self, error: BaseException) -> bool:
        if self.is_memory or not isinstance(error, sqlite3.Error):
            return True
        return not name_of(error).startswith(_UNTRUSTED)

    def _refuse_closed(self) -> None:
        if not self._is_open:
            raise errors.StoreError(
                f"The store {self.path} is not open.",
                means="It was closed, or opening it failed; nothing was read or written.",
                todo="Call open() first.",
            )

    def _refuse_after_fork(self) -> None:
        if self._pid != os.getpid():
            raise errors.StoreForked(
                f"The store {self.path} was opened by process {self._pid} and is used by its child {os.getpid()}.",
                means="A SQLite file that is open over a fork would be corrupted, also by opening it anew.",
                todo="Open the app after the fork and not before: leave it to the web server's start-up, or call "
                "open() in the child only.",
            )

    @property
    def file(self) -> str:
        """Give the file's one true path."""
        return os.path.realpath(self.path)

    # --- errors --------------------------------------------------------------------------------

    @contextlib.contextmanager
    def mapped(self) -> Iterator[None]:
        """Turn the driver's errors into ours."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._translated(error) from error
        except (OverflowError, UnicodeEncodeError) as error:
            raise errors.NotStorable(
                f"SQLite cannot hold a value ({type(error).__name__}: {error}).",
                means="Nothing of this commit was written.",
                todo="Keep integers within 64 bits and text free of lone surrogates.",
            ) from error

    def _translated(self, error: sqlite3.Error) -> errors.OncewardError:
        name = name_of(error)
        if name.startswith(_DAMAGED):
            return errors.StoreDamaged(
                f"The file {self.path} is not a healthy SQLite database ({name}: {error}).",
                means="Nothing was written.",
                todo="Is it the right file? If so, restore a backup, or recover it with the sqlite3 command's .recover.",
            )
        if name.startswith(_TRANSIENT):
            return errors.StoreUnavailable(
                f"The file {self.path} cannot be used now ({name}: {error}).",
                means="Nothing that was under way was written.",
                todo="Check free space, permissions and other programs that hold the file. A process that starts ends "
                "with this; one that runs tries again.",
            )
        return errors.StoreError(
            f"SQLite refused a statement ({name}: {error}).", means="Nothing was written."
        )
