"""Lock files beside a SQLite file: a free one means that its process is dead (RULINGS 8).

They are files of their own: opening the database file a second time would drop SQLite's own
locks when it is closed again, as POSIX has it. The kernel frees a lock when its process ends,
however it ends, so a restart on the same host need not wait for any lease.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path

CHECKPOINT = "checkpoint"
"""The lock whose holder is the one process that checkpoints; often held, so tried for once."""

TRIES_MAX = 50
"""How often a lock is tried for: a look at it from another process holds it for an instant."""

PAUSE_SECONDS = 0.001
"""Between two tries; the other process may have been put aside in the middle of its look."""


class LockFiles:
    """The locks of one process in the folder of one database.

    Args:
        folder: made when the first lock is taken.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[str, int] = {}

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.lock"

    def hold(self, name: str) -> bool:
        """Take a lock, if it is free; True while this process has it.

        Raises:
            OSError: the folder or the file cannot be made.
        """
        if name in self._held:
            if self._is_at(self._held[name], name):
                return True
            # Whoever took this process over removed the file; a lock that none can see is none.
            os.close(self._held.pop(name))
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for _ in range(TRIES_MAX):
            descriptor = os.open(self._path(name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            if _lock(descriptor) and self._is_at(descriptor, name):
                self._held[name] = descriptor
                return True
            os.close(descriptor)
            if name == CHECKPOINT:
                return False
            time.sleep(PAUSE_SECONDS)
        return False

    def _is_at(self, descriptor: int, name: str) -> bool:
        try:
            there = os.stat(self._path(name))
        except OSError:
            return False
        return os.path.samestat(os.fstat(descriptor), there)

    def is_free(self, name: str) -> bool:
        """Say whether a lock file exists that nobody holds.

        A missing file says nothing: the holder may be on another host, or not have made it yet.
        """
        if name in self._held:
            return False
        try:
            descriptor = os.open(self._path(name), os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            return _lock(descriptor)
        finally:
            os.close(descriptor)

    def release(self, name: str) -> None:
        """Give a lock up and remove its file."""
        descriptor = self._held.pop(name, None)
        if descriptor is not None:
            self.forget(name)
            os.close(descriptor)

    def release_all(self) -> None:
        """Give every lock up."""
        for name in list(self._held):
            self.release(name)

    def forget(self, name: str) -> None:
        """Remove the file of a process that is gone."""
        if name != CHECKPOINT:
            with contextlib.suppress(OSError):
                self._path(name).unlink()


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
