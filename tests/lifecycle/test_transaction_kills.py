"""A process is killed around the commit of a transactional step: there is one row, whatever the driver."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from onceward.testing.invariants import check_invariants
from tests import starts
from tests.engine.running import open_store
from tests.engine.ways import WAYS, make_table, things

ROOT = Path(__file__).parents[2]
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
        return f"sqlite:///{tmp_path / 'store.db'}", name
    return str(request.getfixturevalue("postgres_dsn")), name


def play(url: str, way: str, kind: str, failpoint: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    if failpoint:
        environment["ONCEWARD_FAILPOINT"] = failpoint
    return starts.run(
        "-m", "tests.lifecycle.transacting", url, way, kind, cwd=ROOT, env=environment, timeout=WITHIN_S
    )


def rows_after_a_kill(url: str, way: str, kind: str, failpoint: str) -> list[str]:
    """Kill the first process there, let a second one end the run, and give the rows."""
    make_table(url)
    first = play(url, way, kind, f"{failpoint}:kill")
    assert first.returncode == -signal.SIGKILL, first.stderr
    second = play(url, way, kind)
    assert second.returncode == 0, second.stderr
    with open_store(url) as store:
        assert [str(violation) for violation in check_invariants(store)] == []
    return things(url)


@pytest.mark.parametrize("failpoint", ["transaction.before_commit", "transaction.after_commit"])
def test_a_kill_around_the_commit_leaves_one_row(place: tuple[str, str], failpoint: str) -> None:
    assert rows_after_a_kill(*place, "transaction", failpoint) == ["kept"]


@pytest.mark.parametrize("way", ["sqlite3", "psycopg"])
def test_an_ordinary_step_would_leave_two(request: pytest.FixtureRequest, tmp_path: Path, way: str) -> None:
    """The twin of the last test, which shows that it can fail."""
    if way == "sqlite3":
        url = f"sqlite:///{tmp_path / 'store.db'}"
    else:
        url = str(request.getfixturevalue("postgres_dsn"))

    assert rows_after_a_kill(url, way, "run", "step.after_body") == ["kept", "kept"]
