"""Where the store of a test is: an SQLite file of its own, or a schema of its own in a PostgreSQL database.

Both are empty at the beginning of each variant at the cost of a few statements: the file is a copy of one
that was migrated once, the schema is migrated once and its rows are deleted.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from onceward.core.errors import ConfigError
from onceward.core.model import Millis
from onceward.core.ports import Store
from onceward.core.store_url import PostgresUrl, parse
from onceward.stores.sqlite.store import SqliteStore

if TYPE_CHECKING:
    from onceward.stores.postgres.session import Session

MEMORY = "/dev/shm"  # noqa: S108 - a folder of random name is made in it
"""A file system in memory, where there is one: nothing of a test need reach a disk."""

SCHEMA = "onceward_test_"
"""How the schemas of tests begin; the rest is drawn."""

INSTANCE = "test"
"""The name by which the next life is known as the same process, so that it takes its runs back at once."""


class Home(Protocol):
    """Where the store of a test is.

    Attributes:
        url: as the app's settings name it.
        instance: by which a life is known on it; None where its death is seen otherwise.
    """

    url: str
    instance: str | None

    def empty(self) -> None:
        """Be as new, for a variant."""
        ...

    def open(self, now_ms: Callable[[], Millis]) -> Store:
        """Give the store to one life."""
        ...

    def end(self, store: Store) -> None:
        """Take it back from a life that is over, as the kernel does it from a process."""
        ...


class SqliteHome:
    """A file.

    Args:
        folder: an empty one.
        namespace: of the app.
    """

    instance: str | None = None

    def __init__(self, folder: Path, namespace: str) -> None:
        self._folder = folder
        self._namespace = namespace
        self._path = folder / "0" / "onceward.db"
        self._count = 0
        self.url = f"sqlite:///{self._path}"

    def empty(self) -> None:
        """Be as new: in a folder of another name, since connections of the test may be open to the old file."""
        shutil.rmtree(self._path.parent, ignore_errors=True)
        self._count += 1
        self._path = self._folder / str(self._count) / "onceward.db"
        self._path.parent.mkdir()
        self._path.write_bytes(_fresh())
        self.url = f"sqlite:///{self._path}"

    def open(self, now_ms: Callable[[], Millis]) -> Store:
        """Give the store to one life."""
        store = SqliteStore(str(self._path), namespace=self._namespace, now_ms=now_ms)
        store.open(migrate=True)
        writer = store._connections._writer
        assert writer is not None
        writer.execute("pragma synchronous = off")  # a process dies here, the machine does not
        return store

    def end(self, store: Store) -> None:
        """Free its locks, and leave their files there."""
        assert isinstance(store, SqliteStore)
        locks = store._connections.locks
        if locks is not None:
            for descriptor in locks._held.values():
                os.close(descriptor)
            locks._held.clear()
        store.close()


class PostgresHome:
    """A schema of random name in a database, which is dropped at the end.

    All lives share one connection each for reading and writing, since a new one takes longer than
    most lives; a life that is over is kept from it.

    Args:
        url: of the database.
        namespace: of the app.
    """

    instance: str | None = INSTANCE

    def __init__(self, url: PostgresUrl, namespace: str) -> None:
        from onceward.stores.postgres.store import PostgresStore

        self._schema = SCHEMA + uuid.uuid4().hex[:12]
        self.url = PostgresUrl(url.dsn, self._schema).dsn
        self.url += f"{'&' if '?' in self.url else '?'}schema={self._schema}"
        draws = random.Random(0)  # noqa: S311 - jitter
        self._store = PostgresStore(
            url.dsn,
            namespace=namespace,
            schema=self._schema,
            notify=False,
            monotonic_ms=lambda: time.monotonic() * 1000,
            draw=draws.random,
            sleep=time.sleep,
        )

    def make(self) -> None:
        """Make the schema and its tables."""
        self._store.open(migrate=True)

    def drop(self) -> None:
        """Drop them."""
        with contextlib.closing(self._store):
            self._do(f"drop schema if exists {self._schema} cascade")

    def empty(self) -> None:
        """Be as new: rows are deleted, since a table that is truncated is a new file."""
        self._cut_off()
        tables = self._do(
            "select tablename from pg_tables "  # noqa: S608 - our own name
            f"where schemaname = '{self._schema}' and tablename <> 'migration' order by 1"
        )
        deletes = [f"{name}_ as (delete from {self._schema}.{name})" for (name,) in tables]  # noqa: S608 - likewise
        self._do(f"with {', '.join(deletes)} select 1")

    def open(self, now_ms: Callable[[], Millis]) -> Store:  # noqa: ARG002 - the worker has the time
        """Give the store to one life."""
        return self._store

    def end(self, store: Store) -> None:  # noqa: ARG002 - it is kept
        """End what transactions of the app's left open."""
        self._cut_off()

    def _cut_off(self) -> None:
        """End the connections that have locks on our tables: transactions of a life that is over."""
        self._do(
            "select pg_terminate_backend(pid) from pg_stat_activity "  # noqa: S608 - our own name
            "where pid <> pg_backend_pid() and backend_type = 'client backend' and pid in (select l.pid from pg_locks l "
            f"join pg_class c on c.oid = l.relation where c.relnamespace = '{self._schema}'::regnamespace)"
        )

    def _do(self, sql: str) -> list[tuple[Any, ...]]:
        from onceward.stores.postgres.statements import statement

        def work(session: Session) -> list[tuple[Any, ...]]:
            return session.execute((statement("test_home", sql), []))

        return self._store._control_link.run(work)


@contextlib.contextmanager
def home_for(store: str | None, namespace: str) -> Iterator[Home]:
    """Give where the store of a test is, while the test lasts.

    Args:
        store: the URL of a PostgreSQL database; None for an SQLite file.
        namespace: of the app.

    Raises:
        ConfigError: the URL is no PostgreSQL database's.
        StoreUnavailable: it cannot be reached.
    """
    if store is None:
        is_there = os.path.isdir(MEMORY) and os.access(MEMORY, os.W_OK | os.X_OK)
        with tempfile.TemporaryDirectory(prefix="onceward-", dir=MEMORY if is_there else None) as path:
            yield SqliteHome(Path(path), namespace)
        return
    url = parse(store)
    if not isinstance(url, PostgresUrl):
        raise ConfigError(
            f"A test was given the store {url.show()}.",
            means="A file would be left as the test makes it; each test on SQLite has a new one of its own.",
            todo="Leave store= out for SQLite, or give the URL of a PostgreSQL database.",
        )
    home = PostgresHome(url, namespace)
    home.make()
    try:
        yield home
    finally:
        home.drop()


_image: list[bytes] = []


def _fresh() -> bytes:
    """Give the bytes of a migrated database; made once."""
    if not _image:
        import sqlite3

        connection = sqlite3.connect(":memory:", isolation_level=None)
        store = SqliteStore(":memory:", namespace="default", now_ms=lambda: 0, connection=connection)
        store.open(migrate=True)
        _image.append(connection.serialize())
        connection.close()
    return _image[0]
