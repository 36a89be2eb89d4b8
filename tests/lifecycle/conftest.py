"""Fixtures of the lifecycle: a store of each kind, real processes on it, coroutines as tests."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lifecycle.procs import ForkServer, Nursery
from tests.recycled import migrated_file

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


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty store, of each kind in turn."""
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_store"))
    return migrated_file(tmp_path / "shop.db")


@pytest.fixture
def nursery(fork_server: ForkServer, store: str, tmp_path: Path) -> Iterator[Nursery]:
    with Nursery(fork_server, store, tmp_path, dict(SETTINGS)) as nursery:
        yield nursery
