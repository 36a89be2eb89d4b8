"""A process that is killed within a migration leaves the old schema, and the next one goes through (I30)."""

from __future__ import annotations

import itertools
import signal
from pathlib import Path

import pytest

from onceward.core.errors import SchemaOutdated
from tests.lifecycle.checks import check, looking_at
from tests.lifecycle.procs import Nursery

STATEMENTS_MIN = 15


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database without a store, of each kind in turn."""
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_dsn"))
    return f"sqlite:///{tmp_path / 'shop.db'}"


def test_a_kill_behind_each_statement(nursery: Nursery) -> None:
    for number in itertools.count(1):
        code = nursery.fork("steps", failpoint=f"migrate.statement:kill:{number}").wait()
        if code == 0:
            break
        assert code == -signal.SIGKILL, nursery.logs()
        assert_there_is_no_schema(nursery)

    assert number > STATEMENTS_MIN
    check(nursery.store, nursery.ledger, kills=0, width=0)


def test_a_kill_before_the_commit(nursery: Nursery) -> None:
    assert nursery.fork("steps", failpoint="migrate.before_commit:kill").wait() == -signal.SIGKILL
    assert_there_is_no_schema(nursery)

    assert nursery.fork("steps").wait() == 0, nursery.logs()

    check(nursery.store, nursery.ledger, kills=0, width=0)


def assert_there_is_no_schema(nursery: Nursery) -> None:
    with pytest.raises(SchemaOutdated), looking_at(nursery.store):
        pass
