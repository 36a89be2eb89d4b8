"""Runs that wait for events in simulated worlds: every promise is kept, and there is something to keep."""

from __future__ import annotations

import os
from collections import Counter

from onceward.testing import simulate
from onceward.testing.simulation.world import World

SEEDS = 400 if os.environ.get("ONCEWARD_TEST_TIER") == "campaign" else 25


def test_every_promise_is_kept_about_waits() -> None:
    outcomes = [simulate.run_seed(seed, is_waiting=True) for seed in range(SEEDS)]

    assert [outcome.violations[0] for outcome in outcomes if outcome.violations] == []
    assert min(outcome.operations for outcome in outcomes) >= 200


def test_runs_wait_and_are_told_in_these_worlds() -> None:
    told: Counter[str] = Counter()
    for seed in range(6):
        world = World(seed, is_waiting=True)
        world.run()
        for rows in world.mirror.runs.values():
            told[f"{rows.run['workflow']} {rows.run['state']}"] += 1
            for step in rows.step:
                if step["kind"] == "wait":
                    told[f"wait {step['state']}"] += 1

    assert told["waiter completed"] > 20, told
    assert told["waiter cancelled"] > 2, told
    assert told["wait done"] > 60, told
