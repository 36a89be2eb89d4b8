"""Runs with keys in simulated worlds: every promise is kept, and there is something to keep."""

from __future__ import annotations

import functools
import os
from collections import Counter

from onceward.testing import simulate
from onceward.testing.simulation.world import World

LOOKED_AT = 12
"""Worlds whose runs are looked at."""

SEEDS = 400 if os.environ.get("ONCEWARD_TEST_TIER") == "campaign" else 25


@functools.cache
def _first_worlds() -> list[World]:
    worlds = [World(seed, is_keyed=True) for seed in range(LOOKED_AT)]
    for world in worlds:
        world.run()
    return worlds


def test_every_promise_is_kept_about_keys() -> None:
    worlds: list[World | simulate.Outcome] = [*_first_worlds()]
    worlds += [simulate.run_seed(seed, is_keyed=True) for seed in range(LOOKED_AT, SEEDS)]

    assert [world.violations[0] for world in worlds if world.violations] == []
    assert min(world.operations for world in worlds) >= 200


def test_keys_are_taken_and_given_on_in_these_worlds() -> None:
    told: Counter[str] = Counter()
    for world in _first_worlds():
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
