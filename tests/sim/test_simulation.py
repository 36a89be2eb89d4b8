"""The deterministic simulation keeps every promise over two thousand seeds, and can see when not."""

from __future__ import annotations

import functools
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from onceward.testing import simulate
from onceward.testing.planted import BUGS
from onceward.testing.simulation import faults
from onceward.testing.simulation.world import World, fresh_database, take_back

SEEDS = 2_000
PART = 50
"""Seeds in one test, so that several processes share them."""

FOUND_WITHIN = 600
"""Seeds in which a planted bug must show."""

BROKEN_ONCE = {
    7_302_160: "a refused commit was hidden by an earlier one that was durable",
    7_302_171: "a run that was claimed again had the operation of its old claim in the same batch",
}
"""Seeds in which a promise was broken until it was mended."""

SOURCE = Path(simulate.__file__).parents[2]


@functools.cache
def _first_part() -> list[simulate.Outcome]:
    return simulate.run_seeds(range(PART))


@pytest.mark.parametrize("first", range(0, SEEDS, PART))
def test_every_promise_is_kept(first: int) -> None:
    outcomes = simulate.run_seeds(range(first, first + PART)) if first else _first_part()

    broken = [outcome.violations[0] for outcome in outcomes if outcome.violations]
    assert broken == [], f"see it again with: make sim SEEDS=1 FROM={broken[0].split()[1]}"
    assert min(outcome.operations for outcome in outcomes) >= 200


@pytest.mark.parametrize("seed", BROKEN_ONCE)
def test_a_fault_that_was_mended_does_not_come_back(seed: int) -> None:
    assert simulate.run_seed(seed).violations == [], BROKEN_ONCE[seed]


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name: str) -> None:
    first = BUGS[name].first_seed
    seeds = range(first, first + FOUND_WITHIN)
    found = next((seed for seed in seeds if simulate.run_seed(seed, bug=name).violations), None)

    assert found is not None, BUGS[name].sentence


def test_the_same_seed_is_the_same_world_in_every_process() -> None:
    seeds = (11, 12, 13)
    here = [simulate.run_seed(seed).trace_hash for seed in seeds]

    assert [simulate.run_seed(seed).trace_hash for seed in seeds] == here
    code = (
        "from onceward.testing import simulate\n"
        f"print([simulate.run_seed(seed).trace_hash for seed in {seeds}])"
    )
    for salt in ("1", "2"):
        there = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": salt, "PYTHONPATH": str(SOURCE)},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        assert there.stdout.strip() == str(here)
    assert len(set(here)) == len(seeds)


def test_every_kind_of_fault_happens_and_a_seed_mixes_a_dozen() -> None:
    outcomes = _first_part()

    kinds = [sum(count > 0 for count in outcome.faults.values()) for outcome in outcomes]
    assert {kind for outcome in outcomes for kind, count in outcome.faults.items() if count} == set(
        faults.KINDS
    )
    assert sorted(kinds)[len(kinds) // 2] >= 12
    passed = {name for outcome in outcomes for name in outcome.failpoints}
    assert passed >= set(faults.FAILPOINTS)


def test_a_world_begins_in_the_emptied_database_of_one_before() -> None:
    new = fresh_database()
    schema = new.serialize()
    take_back(new)
    world = World(5)
    world.run()
    assert world.mirror.runs

    again = fresh_database()
    assert again is world.connection
    tables = [name for (name,) in again.execute("select name from sqlite_master where type = 'table'")]
    rows = {name: again.execute(f"select count(*) from {name}").fetchone()[0] for name in tables}
    assert {name for name, count in rows.items() if count} <= {"onceward_migration"}
    untouched = sqlite3.connect(":memory:")
    untouched.deserialize(schema)
    assert "\n".join(again.iterdump()) == "\n".join(untouched.iterdump())
    take_back(again)


def test_a_database_with_a_planted_bug_is_not_used_again() -> None:
    world = World(0, bug=BUGS["no-unique"])
    world.run()

    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        world.connection.execute("select 1")


def test_a_trace_is_kept_when_it_is_asked_for() -> None:
    silent, told = simulate.run_seed(5), simulate.run_seed(5, keep_trace=True)

    assert silent.trace == []
    assert len(told.trace) > told.operations
    assert silent.trace_hash == told.trace_hash


def test_the_command_line_ends_with_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate.main(["--seeds", "3", "--from", "20", "--jobs", "1"]) == 0

    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (told["seeds"], told["violations"], told["bug"]) == (3, 0, None)


def test_the_command_line_says_how_to_see_a_broken_seed_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate.main(["--seeds", "4", "--jobs", "1", "--bug", "no-guard"]) == 1

    lines = capsys.readouterr().out.splitlines()
    summary = json.loads(lines[-1])
    seed = summary["first"]
    assert lines[0].startswith(f"seed {seed} operation ")
    assert f"make sim SEEDS=1 FROM={seed} BUG=no-guard" in lines[1]
    assert summary["violations"] >= 1


def test_a_bug_that_is_not_found_has_an_exit_code_of_its_own() -> None:
    assert simulate.main(["--seeds", "0", "--jobs", "1", "--bug", "no-guard"]) == 2
