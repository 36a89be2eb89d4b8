"""A fresh store for every round of every side."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Fresh:
    """An empty store and a directory for whatever else the round writes."""

    url: str
    directory: str


class SqliteFiles:
    """Gives files in a temporary directory."""

    server_pid: int | None = None

    @contextlib.contextmanager
    def fresh(self, name: str) -> Iterator[Fresh]:
        """Lend an empty file."""
        with _directory() as directory:
            yield Fresh(f"sqlite:///{directory}/{name}.db", str(directory))

    def describe(self) -> dict[str, str]:
        """Say what the round's store is."""
        import sqlite3

        return {"store": f"SQLite {sqlite3.sqlite_version}"}


class PostgresDatabases:
    """Gives databases of one server.

    Args:
        url: a database of the server, whose user may create others.
        server_pid: the server, if it runs on this machine, to count its CPU and memory.
    """

    def __init__(self, url: str, server_pid: int | None) -> None:
        self._url = url
        self.server_pid = server_pid

    @contextlib.contextmanager
    def fresh(self, name: str) -> Iterator[Fresh]:
        """Lend an empty database."""
        database = f"onceward_bench_{name}"
        base, _, _ = self._url.rpartition("/")
        self._execute(f'drop database if exists "{database}" with (force)', f'create database "{database}"')
        self._checkpoint()
        try:
            with _directory() as directory:
                yield Fresh(f"{base}/{database}", str(directory))
        finally:
            self._execute(f'drop database if exists "{database}" with (force)')

    def _checkpoint(self) -> None:
        """Write the last round's pages now, where the user may: they are not this round's cost."""
        import psycopg

        with contextlib.suppress(psycopg.errors.InsufficientPrivilege):
            self._execute("checkpoint")

    def _execute(self, *statements: str) -> None:
        import psycopg

        with psycopg.connect(self._url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def describe(self) -> dict[str, str]:
        """Say what the server is and how durable it is."""
        import psycopg

        found = {}
        with psycopg.connect(self._url) as connection:
            for name in (
                "server_version",
                "fsync",
                "synchronous_commit",
                "full_page_writes",
                "shared_buffers",
            ):
                row = connection.execute(f"show {name}".encode()).fetchone()
                found[name] = "" if row is None else str(row[0])
        return {"store": f"PostgreSQL {found.pop('server_version').split(' ')[0]}", **found}


@contextlib.contextmanager
def open_databases(store: str, url: str | None) -> Iterator[SqliteFiles | PostgresDatabases]:
    """Lend what gives fresh stores; a PostgreSQL of our own where no URL is given.

    Args:
        store: ``sqlite`` or ``postgres``.
        url: a database of a PostgreSQL server to use instead.

    Raises:
        ConfigError: this machine has no PostgreSQL.
    """
    if store == "sqlite":
        yield SqliteFiles()
    elif url is not None:
        yield PostgresDatabases(url, None)
    else:
        from onceward.testing.servers import PostgresServer

        with PostgresServer(durable=True) as server:
            yield PostgresDatabases(server.dsn(), server.pid)


@contextlib.contextmanager
def _directory() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="onceward-bench-"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
