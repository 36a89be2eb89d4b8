"""Stores that older releases left behind go on with today's code, on both databases, and no saved step runs again.

A new release adds a file of its own, with its workflows and stories beside it; none is ever edited.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from onceward.stores.migrate import NAMES
from onceward.testing import check_invariants
from tests.engine.running import open_store
from tests.stores.histories.going_on import go_on, saved
from tests.stores.histories.keeping import HERE, Kept, put_up, read
from tests.stores.histories.stories_0_1_0 import STORIES, UNSAID
from tests.stores.histories.works_0_1_0 import TABLE

FILES = {"0.1.0.jsonl": "c1510827bc456580754e9403a79a20efcf2220f1c73e366dee0107431dc73f5a"}
"""Every file there is, by what it holds: one that differs was edited."""


@pytest.fixture(scope="module")
def left() -> Kept:
    return read(HERE / "0.1.0.jsonl")


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database without a store, of each kind in turn."""
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_dsn"))
    return f"sqlite:///{tmp_path / 'left.db'}"


def test_every_run_goes_on_to_the_end_that_is_noted(left: Kept, empty: str, tmp_path: Path) -> None:
    put_up(left, empty, (TABLE,))

    ending = go_on(left, empty, tmp_path)

    assert ending.repeated == []
    assert ending.violations == []
    assert ending.ends == left.ends


def test_the_ends_are_those_that_the_stories_tell(left: Kept) -> None:
    told = {story.name: (story.ends, story.output) for story in STORIES}
    noted = {
        name: (end["state"], UNSAID if told[name][1] is UNSAID else end["output"])
        for name, end in left.ends.items()
    }

    assert noted == told
    assert len(STORIES) == len(told) >= 50


def test_what_was_left_is_sound(left: Kept, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'left.db'}"
    put_up(left, url, (TABLE,))

    with open_store(url) as store:
        assert [str(violation) for violation in check_invariants(store)] == []


def test_runs_stand_at_every_kind_of_point(left: Kept) -> None:
    states = {row["state"] for row in left.tables["run"]}
    steps = {(row["kind"], row["state"]) for row in left.tables["step"]}

    assert states == {
        *("queued", "running", "sleeping", "waiting", "backoff", "cancelling", "held"),
        *("completed", "failed", "cancelled"),
    }
    assert {
        *(("run", "done"), ("run", "open"), ("run", "failed"), ("sleep", "open"), ("sleep", "cancelled")),
        *(("wait", "open"), ("wait", "done"), ("promise", "open"), ("promise", "done"), ("call", "open")),
        *(("start", "done"), ("emit", "done"), ("transaction", "done"), ("undo", "open"), ("undo", "done")),
    } <= steps
    assert all(left.tables[table] for table in ("outbox", "offer", "waiter", "holder", "version", "delivery"))


def test_a_saved_step_that_runs_again_is_found(left: Kept, tmp_path: Path) -> None:
    name = "after two steps"
    (run_id,) = [row["run_id"] for row in left.tables["run"] if row["event_id"] == name]
    tables = {
        table: [row for row in rows if row.get("run_id", run_id) == run_id]
        for table, rows in left.tables.items()
    }
    broken = replace(left, tables=tables | {"step": [row for row in tables["step"] if row["name"] != "a"]})
    url = f"sqlite:///{tmp_path / 'left.db'}"
    put_up(broken, url, (TABLE,))

    ending = go_on(left, url, tmp_path, [story for story in STORIES if story.name == name])

    assert (run_id, 1, "a") in saved(left)
    assert ending.repeated == [f"a of {run_id}"]
    assert ending.ends[name] != left.ends[name]


def test_no_file_is_edited() -> None:
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in HERE.glob("*.jsonl")}

    assert found == FILES


def test_the_newest_file_has_every_migration(left: Kept) -> None:
    """A release with a migration more brings a file more."""
    assert [row["name"] for row in left.tables["migration"]] == list(NAMES)
