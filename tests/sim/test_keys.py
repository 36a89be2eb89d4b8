"""Runs with keys in simulated worlds: every promise is kept, and there is something to keep."""

from __future__ import annotations

import os
from collections import Counter

from onceward.testing import simulate
from onceward.testing.simulation.world import World

SEEDS = 400 if os.environ.get("ONCEWARD_TEST_TIER") == "campaign" else 25


def test_every_promise_is_kept_about_keys() -> None:
    outcomes = [simulate.run_seed(seed, is_keyed=True) for seed in range(SEEDS)]

    assert [outcome.violations[0] for outcome in outcomes if outcome.violations] == []
    assert min(outcome.operations for outcome in outcomes) >= 200


def test_keys_are_taken_and_given_on_in_these_worlds() -> None:
    told: Counter[str] = Counter()
    for seed in range(12):
        world = World(seed, is_keyed=True)
        world.run()
        for rows in world.mirror.runs.values():
            run = rows.run
            told[f"{run['workflow']} {run['state']}"] += 1
            told["displaced"] += str(run["reason"]).startswith("displaced")
            given = [step["child_run_id"] for step in rows.step if step["kind"] == "call"]
            theirs = [world.mirror.runs[name].run for name in given if name in world.mirror.runs]
            told["joined"] += sum(one["parent_run_id"] != run["run_id"] for one in theirs)

    assert told["turn completed"] > 20, told
    assert told["newest completed"] > 5, told
    assert told["newest cancelled"] > 5, told
    assert told["displaced"] > 0, told
    assert told["joined"] > 10, told
    assert told["shares completed"] > 10, told
