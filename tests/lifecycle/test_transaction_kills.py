"""A process is killed around the commit of a transactional step: there is one row, whatever the driver."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from onceward.testing.invariants import check_invariants
from tests.engine.running import open_store
from tests.engine.ways import WAYS, make_table, things
from tests.lifecycle.procs import Child, ForkServer
from tests.recycled import migrated_file

WITHIN_S = 60

DRIVERS = {
    "sqlite": ["sqlite3", "aiosqlite", "sqlalchemy-sqlite", "sqlalchemy-session-aiosqlite", "django"],
    "postgres": [
        *("psycopg", "async-psycopg", "asyncpg", "sqlalchemy-session-psycopg", "sqlalchemy-asyncpg"),
        "django",
    ],
}
assert {name for names in DRIVERS.values() for name in names} - {"django"} <= {way.name for way in WAYS}


@pytest.fixture(params=[f"{store}-{name}" for store, names in DRIVERS.items() for name in names], ids=str)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """A store's URL, and the way to it."""
    store, _, name = request.param.partition("-")
    if store == "sqlite":
        return migrated_file(tmp_path / "store.db"), name
    return str(request.getfixturevalue("postgres_store")), name


@pytest.fixture(scope="module")
def drivers() -> Iterator[ForkServer]:
    """A fork server that has every driver."""
    server = ForkServer("tests.lifecycle.transacting", "django.db")
    yield server
    server.close()


def rows_after_a_kill(
    drivers: ForkServer, home: Path, url: str, way: str, kind: str, failpoint: str
) -> list[str]:
    """Kill the first process there, let a second one end the run, and give the rows."""

    def play(failpoint: str = "") -> Child:
        play = "tests.lifecycle.transacting:main"
        return drivers.call(play, url, way, kind, log=home / "log", failpoint=failpoint)

    make_table(url)
    first = play(f"{failpoint}:kill")
    assert first.wait(WITHIN_S) == -signal.SIGKILL, first.text()
    second = play()
    assert second.wait(WITHIN_S) == 0, second.text()
    with open_store(url) as store:
        assert [str(violation) for violation in check_invariants(store)] == []
    return things(url)


@pytest.mark.parametrize("failpoint", ["transaction.before_commit", "transaction.after_commit"])
def test_a_kill_around_the_commit_leaves_one_row(
    drivers: ForkServer, tmp_path: Path, place: tuple[str, str], failpoint: str
) -> None:
    assert rows_after_a_kill(drivers, tmp_path, *place, "transaction", failpoint) == ["kept"]


@pytest.mark.parametrize("way", ["sqlite3", "psycopg"])
def test_an_ordinary_step_would_leave_two(
    request: pytest.FixtureRequest, drivers: ForkServer, tmp_path: Path, way: str
) -> None:
    """The twin of the last test, which shows that it can fail."""
    if way == "sqlite3":
        url = migrated_file(tmp_path / "store.db")
    else:
        url = str(request.getfixturevalue("postgres_store"))

    assert rows_after_a_kill(drivers, tmp_path, url, way, "run", "step.after_body") == ["kept", "kept"]
