"""Runs that wait for events in simulated worlds: every promise is kept, and there is something to keep."""

from __future__ import annotations

import functools
import os
from collections import Counter

from onceward.testing import simulate
from onceward.testing.simulation.world import World

LOOKED_AT = 6
"""Worlds whose runs are looked at."""

SEEDS = 400 if os.environ.get("ONCEWARD_TEST_TIER") == "campaign" else 25


@functools.cache
def _first_worlds() -> list[World]:
    worlds = [World(seed, is_waiting=True) for seed in range(LOOKED_AT)]
    for world in worlds:
        world.run()
    return worlds


def test_every_promise_is_kept_about_waits() -> None:
    worlds: list[World | simulate.Outcome] = [*_first_worlds()]
    worlds += [simulate.run_seed(seed, is_waiting=True) for seed in range(LOOKED_AT, SEEDS)]

    assert [world.violations[0] for world in worlds if world.violations] == []
    assert min(world.operations for world in worlds) >= 200


def test_runs_wait_and_are_told_in_these_worlds() -> None:
    told: Counter[str] = Counter()
    for world in _first_worlds():
        for rows in world.mirror.runs.values():
            told[f"{rows.run['workflow']} {rows.run['state']}"] += 1
            for step in rows.step:
                if step["kind"] == "wait":
                    told[f"wait {step['state']}"] += 1

    assert told["waiter completed"] > 20, told
    assert told["waiter cancelled"] > 2, told
    assert told["wait done"] > 60, told
