"""Where the database is, and the links that keep a session with it.

A ``Link`` is the place of one session: who uses it waits for its lock, gets a new session after the
old one broke, and has passing faults tried again, with bounds and jitter. Nothing connects before
it is needed, and nothing that was opened is used over a fork.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import psycopg
from psycopg import conninfo

from onceward.core import errors
from onceward.stores.postgres.errors import BREAKING, PASSING, Fault, fault_of, translated
from onceward.stores.postgres.session import Session
from onceward.stores.postgres.statements import Statement, statement

T = TypeVar("T")

TRIES_MAX = 9
"""How often work is tried on passing faults, if its time is not up before."""

PAUSE_SECONDS_FIRST, PAUSE_SECONDS_MAX = 0.02, 1.0
"""The longest first pause between tries, doubled each time up to the cap; what is drawn is a share."""

CONNECT_SECONDS = 5
REPLY_MS_MIN = 5_000
VERSION_MIN = 150000

_abandoned: list[Session] = []
"""Sessions that came over a fork: closing them, or letting them go, could end the parent's."""


class Database:
    """How to connect, and for how long to try; shared by the links of one store.

    Args:
        dsn: libpq's URL or key-value text.
        lease_ms: bounds every wait, so that nothing outlasts a lease.
        pooler: whether one is in between; None finds out.
        monotonic_ms: a clock that only grows.
        draw: gives numbers in [0, 1), for jitter.
        sleep: waits for some seconds.

    Raises:
        ConfigError: the DSN cannot be read.
    """

    def __init__(
        self,
        dsn: str,
        *,
        lease_ms: int,
        pooler: bool | None,
        monotonic_ms: Callable[[], float],
        draw: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self.options = connection_options(dsn, lease_ms)
        self.address = address_of(self.options)
        self.has_pooler = pooler
        self.is_closed = False
        self.server_version = 0
        self._lease_ms = lease_ms
        self.monotonic_ms = monotonic_ms
        self._draw = draw
        self._sleep = sleep
        self._pid: int | None = None

    @property
    def is_forked(self) -> bool:
        """Whether something was opened before the fork that made this process."""
        return self._pid is not None and self._pid != os.getpid()

    def forget_fork(self) -> None:
        """Begin anew in a child process, without the parent's connections."""
        self._pid = None

    def check_usable(self) -> None:
        """Refuse a store that is closed or came over a fork.

        Raises:
            StoreForked: it was opened in the parent process.
            StoreUnavailable: it is closed.
        """
        if self.is_forked:
            raise errors.StoreForked(
                f"The store {self.address} was opened by process {self._pid} and is used by its child {os.getpid()}.",
                means="Two processes on one connection would read each other's replies.",
                todo="Open the app after the fork: leave it to the web server's start-up, or call open() in the child.",
            )
        if self.is_closed:
            raise errors.StoreUnavailable(
                f"The store {self.address} is closed.", means="Nothing was written.", todo="Open it again."
            )

    def connect(self, *, is_hot: bool) -> Session:
        """Open a session whose plans and waits are pinned.

        Args:
            is_hot: for the same few statements again and again: they are planned once.
        """
        self._pid = os.getpid()
        connection = self.connect_bare()
        try:
            has_pooler = bool(self.has_pooler)
            pinned = pins(self._lease_ms, self.server_version, is_hot=is_hot, is_local=has_pooler)
            if not has_pooler:
                connection.execute(pinned.sql)
            return Session(
                connection,
                pins=pinned if has_pooler else None,
                prepares=is_hot and not has_pooler,
                reply_ms=max(REPLY_MS_MIN, self._lease_ms),
            )
        except BaseException:
            connection.close()
            raise

    def connect_bare(self) -> psycopg.Connection[Any]:
        """Open a connection of the driver's own kind, and look at what is on its other end."""
        connection = psycopg.connect(autocommit=True, **self.options)
        try:
            self._look_at(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _look_at(self, connection: psycopg.Connection[Any]) -> None:
        version = connection.info.server_version
        encoding = connection.info.parameter_status("server_encoding")
        if version < VERSION_MIN or encoding != "UTF8":
            raise errors.ConfigError(
                f"The database {self.address} is PostgreSQL {version // 10000} with encoding {encoding}.",
                means="Onceward needs PostgreSQL 15 or newer and a database with encoding UTF8.",
                todo="Use another server, or create the database with ENCODING 'UTF8'.",
            )
        self.server_version = version
        if self.has_pooler is None:
            # A pooler makes up the process number that a client is given at its start.
            row = connection.execute("select pg_backend_pid()").fetchone()
            self.has_pooler = row is None or row[0] != connection.info.backend_pid

    def pauses(self) -> Iterator[float | None]:
        """Give the seconds to wait after each failed try; None after the last."""
        until_ms = self.monotonic_ms() + self._lease_ms
        longest = PAUSE_SECONDS_FIRST
        for _ in range(TRIES_MAX - 1):
            seconds = longest * self._draw()
            is_over = self.is_closed or self.monotonic_ms() + seconds * 1000 > until_ms
            yield None if is_over else seconds
            longest = min(longest * 2, PAUSE_SECONDS_MAX)
        yield None

    def pause(self, seconds: float) -> None:
        """Wait between two tries."""
        self._sleep(seconds)


class Link:
    """The place of one session, for one user at a time.

    Args:
        database: where to connect.
        is_hot: for the same few statements again and again.
    """

    def __init__(self, database: Database, *, is_hot: bool = False) -> None:
        self._database = database
        self._is_hot = is_hot
        self._lock = threading.Lock()
        self._session: Session | None = None

    def run(self, work: Callable[[Session], T]) -> T:
        """Do *work* on the session, again on a passing fault.

        Raises:
            StoreUnavailable: the fault did not pass in time, or trying again is no use.
            StoreError: the database refuses the work.
        """
        self._database.check_usable()
        with self._lock:
            for pause in self._database.pauses():
                try:
                    return work(self._usable_session())
                except psycopg.Error as error:
                    fault = fault_of(error)
                    self._drop_if(fault in BREAKING)
                    if pause is None or fault not in PASSING:
                        raise translated(error, self._database.address) from error
                    if fault is Fault.UNPREPARED:
                        self._database.has_pooler = True
                except BaseException:
                    self._drop_if(False)
                    raise
                self._database.pause(pause)
        raise AssertionError("the last pause is None")

    def borrow(self) -> Session | None:
        """Give the session at once, to be given back by `give_back`; None if that would take time.

        Any thread may give it back.
        """
        if self._database.is_closed or self._database.is_forked or not self._lock.acquire(blocking=False):
            return None
        session = self._session
        if session is None or not session.is_usable or not session.is_free():
            self._lock.release()
            return None
        return session

    def give_back(self) -> None:
        """End a loan; a session that is not as it was is replaced before its next use."""
        self._lock.release()

    def _usable_session(self) -> Session:
        self._drop_if(False)
        if self._session is None:
            self._database.check_usable()  # once more, since it may have been closed while we waited
            self._session = self._database.connect(is_hot=self._is_hot)
        return self._session

    def _drop_if(self, is_broken: bool) -> None:
        session = self._session
        if session is not None and (is_broken or not session.is_usable):
            self._session = None
            session.close()

    @property
    def backend_pid(self) -> int | None:
        """The server's process, or None while there is none or a pooler hides it."""
        session = self._session
        return None if session is None or self._database.has_pooler else session.backend_pid

    def close(self) -> None:
        """Close the session; waits for whoever uses it, but not for ever."""
        is_free = self._lock.acquire(timeout=REPLY_MS_MIN / 1000)
        try:
            session, self._session = self._session, None
            if session is not None:
                session.close()
        finally:
            if is_free:
                self._lock.release()

    def abandon(self) -> None:
        """Forget a session that belongs to the parent process, without touching it or its lock."""
        if self._session is not None:
            _abandoned.append(self._session)
            self._session = None


def connection_options(dsn: str, lease_ms: int) -> dict[str, Any]:
    """Give libpq's options for *dsn*; what it leaves open is bounded by the lease.

    Raises:
        ConfigError: it cannot be read. Its text is not repeated, since it may hold a password.
    """
    try:
        options = conninfo.conninfo_to_dict(dsn)
    except psycopg.Error:
        raise errors.ConfigError(
            "The store's URL cannot be read as a PostgreSQL address.",
            means="The store cannot be opened.",
            todo="Write postgresql://user:password@host:5432/database, with special characters %-encoded.",
        ) from None
    defaults: dict[str, Any] = {
        "connect_timeout": CONNECT_SECONDS,
        "client_encoding": "utf8",
        "fallback_application_name": "onceward",
        "keepalives_idle": 5,
        "keepalives_interval": 2,
        "keepalives_count": 3,
        "tcp_user_timeout": max(lease_ms, 1000),
    }
    return {**defaults, **options}


def address_of(options: Mapping[str, Any]) -> str:
    """Give the address for people: never the password."""
    user = f"{options['user']}@" if options.get("user") else ""
    host = options.get("host") or options.get("hostaddr") or "localhost"
    port = f":{options['port']}" if options.get("port") else ""
    return f"postgresql://{user}{host}{port}/{options.get('dbname', '')}"


def pins(lease_ms: int, server_version: int, *, is_hot: bool, is_local: bool) -> Statement:
    """Give the statement that pins plans and bounds waits, for a session or a transaction.

    Every statement of ours has its index, and rows are looked up one by one in it; other plans
    only seem better, to a planner whose statistics are young. Half a lease is longer than any
    sound batch, and short enough that a stopped process holds nothing when its lease is out
    (RULINGS 2).
    """
    half_ms = max(lease_ms // 2, 1)  # 0 would mean for ever
    settings = {
        "enable_seqscan": "off",
        "enable_hashjoin": "off",
        "enable_mergejoin": "off",
        "enable_bitmapscan": "off",
        "enable_material": "off",
        "enable_memoize": "off",
        "jit": "off",  # what is disabled counts as so costly that it would set in
        "lock_timeout": f"{half_ms}ms",
        "idle_in_transaction_session_timeout": f"{half_ms}ms",
    }
    if is_hot:
        settings["plan_cache_mode"] = "force_generic_plan"
    if server_version >= 170000:
        settings["transaction_timeout"] = f"{lease_ms}ms"
    scope = "true" if is_local else "false"
    calls = ", ".join(f"set_config('{name}', '{value}', {scope})" for name, value in settings.items())
    return statement("pins", f"select {calls}")
