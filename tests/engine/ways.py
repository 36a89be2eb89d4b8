"""The ways to a database that a user may have: each driver, with a function that inserts one row by it."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import aiosqlite
import asyncpg
import psycopg
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import sessionmaker

from onceward.core.store_url import PostgresUrl, parse


def file_of(url: str) -> str:
    return url.removeprefix("sqlite:///")


def plain_dsn(url: str) -> str:
    parsed = parse(url)
    assert isinstance(parsed, PostgresUrl)
    return parsed.dsn


def _alchemy(scheme: str) -> Callable[[str], str]:
    return lambda url: f"{scheme}://{plain_dsn(url).split('://', 1)[1]}"


# --- the functions -------------------------------------------------------------------------------


def by_sqlite(connection: sqlite3.Connection, thing: str) -> int:
    connection.execute("insert into thing values (?)", (thing,))
    (count,) = connection.execute("select count(*) from thing").fetchone()
    return int(count)


async def by_aiosqlite(connection: aiosqlite.Connection, thing: str) -> int:
    await connection.execute("insert into thing values (?)", (thing,))
    async with connection.execute("select count(*) from thing") as cursor:
        row = await cursor.fetchone()
    assert row is not None
    return int(row[0])


def by_psycopg(connection: psycopg.Connection[Any], thing: str) -> int:
    connection.execute("insert into thing values (%s)", (thing,))
    row = connection.execute("select count(*) from thing").fetchone()
    assert row is not None
    return int(row[0])


async def by_async_psycopg(connection: psycopg.AsyncConnection[Any], thing: str) -> int:
    await connection.execute("insert into thing values (%s)", (thing,))
    row = await (await connection.execute("select count(*) from thing")).fetchone()
    assert row is not None
    return int(row[0])


async def by_asyncpg(connection: Any, thing: str) -> int:
    await connection.execute("insert into thing values ($1)", thing)
    return int(await connection.fetchval("select count(*) from thing"))


def by_sqlalchemy(connection: Any, thing: str) -> int:
    connection.execute(sa.text("insert into thing values (:thing)"), {"thing": thing})
    return int(connection.execute(sa.text("select count(*) from thing")).scalar_one())


async def by_async_sqlalchemy(connection: Any, thing: str) -> int:
    await connection.execute(sa.text("insert into thing values (:thing)"), {"thing": thing})
    return int((await connection.execute(sa.text("select count(*) from thing"))).scalar_one())


# --- how a connection is had ---------------------------------------------------------------------


@dataclass(frozen=True)
class Way:
    """One way.

    Attributes:
        name: of the driver, and what gives its connections.
        kind: of the store.
        insert: inserts a row into ``thing`` and gives how many there are.
        connect: gives what `App.transactions` takes, of a store's URL.
    """

    name: str
    kind: str
    insert: Callable[..., Any]
    connect: Callable[[str], Any]

    def __str__(self) -> str:
        return self.name


@contextlib.contextmanager
def _pooled(dsn: str) -> Iterator[Any]:
    """Lend a connection of a pool; the pool lives for as long."""
    from psycopg_pool import ConnectionPool

    with ConnectionPool(dsn, min_size=1, max_size=1) as pool, pool.connection() as connection:
        yield connection


def _engine(url: str) -> sa.Engine:
    return sa.create_engine(url, poolclass=sa.NullPool)


def _async_engine(url: str) -> Any:
    return create_async_engine(url, poolclass=sa.NullPool)


_TO_PSYCOPG, _TO_ASYNCPG = _alchemy("postgresql+psycopg"), _alchemy("postgresql+asyncpg")


def _aiosqlite(url: str) -> Any:
    async def connect() -> aiosqlite.Connection:
        return await aiosqlite.connect(file_of(url))

    return connect


WAYS = (
    Way("sqlite3", "sqlite", by_sqlite, lambda url: lambda: sqlite3.connect(file_of(url))),
    Way(
        "sqlite3-autocommit",
        "sqlite",
        by_sqlite,
        lambda url: lambda: sqlite3.connect(file_of(url), isolation_level=None),
    ),
    Way("aiosqlite", "sqlite", by_aiosqlite, _aiosqlite),
    Way(
        "aiosqlite-unopened",
        "sqlite",
        by_aiosqlite,
        lambda url: lambda: aiosqlite.connect(file_of(url)),
    ),
    Way("sqlalchemy-sqlite", "sqlite", by_sqlalchemy, lambda url: _engine(f"sqlite:///{file_of(url)}")),
    Way(
        "sqlalchemy-session-sqlite",
        "sqlite",
        by_sqlalchemy,
        lambda url: sessionmaker(_engine(f"sqlite:///{file_of(url)}")),
    ),
    Way(
        "sqlalchemy-aiosqlite",
        "sqlite",
        by_async_sqlalchemy,
        lambda url: _async_engine(f"sqlite+aiosqlite:///{file_of(url)}"),
    ),
    Way(
        "sqlalchemy-session-aiosqlite",
        "sqlite",
        by_async_sqlalchemy,
        lambda url: async_sessionmaker(_async_engine(f"sqlite+aiosqlite:///{file_of(url)}")),
    ),
    Way("psycopg", "postgres", by_psycopg, lambda url: lambda: psycopg.connect(plain_dsn(url))),
    Way(
        "psycopg-autocommit",
        "postgres",
        by_psycopg,
        lambda url: lambda: psycopg.connect(plain_dsn(url), autocommit=True),
    ),
    Way("psycopg-pool", "postgres", by_psycopg, lambda url: lambda: _pooled(plain_dsn(url))),
    Way(
        "async-psycopg",
        "postgres",
        by_async_psycopg,
        lambda url: lambda: psycopg.AsyncConnection.connect(plain_dsn(url)),
    ),
    Way("asyncpg", "postgres", by_asyncpg, lambda url: lambda: asyncpg.connect(plain_dsn(url))),
    Way("sqlalchemy-psycopg", "postgres", by_sqlalchemy, lambda url: _engine(_TO_PSYCOPG(url))),
    Way(
        "sqlalchemy-session-psycopg",
        "postgres",
        by_sqlalchemy,
        lambda url: sessionmaker(_engine(_TO_PSYCOPG(url))),
    ),
    Way("sqlalchemy-asyncpg", "postgres", by_async_sqlalchemy, lambda url: _async_engine(_TO_ASYNCPG(url))),
    Way(
        "sqlalchemy-session-asyncpg",
        "postgres",
        by_async_sqlalchemy,
        lambda url: async_sessionmaker(_async_engine(_TO_ASYNCPG(url))),
    ),
)
"""Every driver, and every kind of thing that gives its connections."""


# --- looking from outside ------------------------------------------------------------------------


def outside(url: str, statement: str) -> list[tuple[Any, ...]]:
    """Run a statement on a connection of its own and give its rows."""
    if url.startswith("sqlite"):
        with contextlib.closing(sqlite3.connect(file_of(url), timeout=20)) as connection, connection:
            return connection.execute(statement).fetchall()
    with psycopg.connect(plain_dsn(url), autocommit=True) as postgres:
        cursor = postgres.execute(statement.encode())
        return [] if cursor.description is None else cursor.fetchall()


def make_table(url: str) -> None:
    outside(url, "create table if not exists thing (name text not null)")


def things(url: str) -> list[str]:
    return sorted(name for (name,) in outside(url, "select name from thing"))
