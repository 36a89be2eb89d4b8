"""Fixtures of the lifecycle: a store of each kind, real processes on it, coroutines as tests."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from onceward.testing.servers import PostgresAddress, unique_name
from tests.lifecycle.procs import ForkServer, Nursery

SETTINGS = {"lease": "2s", "poll": "50ms", "linger": "50ms"}
"""Settings of every process in these tests, unless one says otherwise."""


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run tests that are coroutines in an event loop of their own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    server = ForkServer()
    yield server
    server.close()


@pytest.fixture(scope="session")
def shared_database(postgres_server: PostgresAddress) -> Iterator[str]:
    """The URL of a database in which each test has a schema of its own."""
    name = unique_name()
    yield postgres_server.create_database(name)
    postgres_server.drop_database(name)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty store, of each kind in turn."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'shop.db'}"
        return
    database, schema = request.getfixturevalue("shared_database"), unique_name()
    yield f"{database}{'&' if '?' in database else '?'}schema={schema}"
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f'drop schema if exists "{schema}" cascade'.encode())


@pytest.fixture
def nursery(fork_server: ForkServer, store: str, tmp_path: Path) -> Iterator[Nursery]:
    with Nursery(fork_server, store, tmp_path, dict(SETTINGS)) as nursery:
        yield nursery
