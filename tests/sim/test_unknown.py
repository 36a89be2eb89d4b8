"""Steps of unknown outcome in simulated worlds: none takes effect twice, and what is undone is undone whole."""

from __future__ import annotations

import functools
import os
from collections import Counter

import pytest

from onceward.testing import simulate
from onceward.testing.planted import DOUBTFUL_BUGS
from onceward.testing.simulation.world import World

LOOKED_AT = 16
"""Worlds whose runs are looked at."""

SEEDS = 400 if os.environ.get("ONCEWARD_TEST_TIER") == "campaign" else 25

FOUND_WITHIN = 60
"""Seeds in which a planted bug must show."""


@functools.cache
def _first_worlds() -> list[World]:
    worlds = [World(seed, is_doubtful=True) for seed in range(LOOKED_AT)]
    for world in worlds:
        world.run()
    return worlds


def test_every_promise_is_kept_about_unknown_outcomes() -> None:
    worlds: list[World | simulate.Outcome] = [*_first_worlds()]
    worlds += [simulate.run_seed(seed, is_doubtful=True) for seed in range(LOOKED_AT, SEEDS)]

    assert [world.violations[0] for world in worlds if world.violations] == []
    assert min(world.operations for world in worlds) >= 200


@pytest.mark.parametrize("name", DOUBTFUL_BUGS)
def test_a_planted_bug_is_found(name: str) -> None:
    first = DOUBTFUL_BUGS[name].first_seed
    seeds = range(first, first + FOUND_WITHIN)
    found = next((seed for seed in seeds if simulate.run_seed(seed, bug=name).violations), None)

    assert found is not None, DOUBTFUL_BUGS[name].sentence


def test_there_is_something_to_ask_and_to_undo_in_these_worlds() -> None:
    told: Counter[str] = Counter()
    for world in _first_worlds():
        for rows in world.mirror.runs.values():
            told[f"{rows.run['workflow']} {rows.run['state']}"] += 1
            told["answered"] += any('"step"' in str(row["detail"]) for row in rows.audit)
            told["undone"] += any(row["name"].endswith("(undo)") for row in rows.step)

    assert told["asked completed"] > 5, told
    assert told["checked completed"] > 5, told
    assert told["saga completed"] > 5, told
    assert told["answered"] > 5, told
    assert told["undone"] > 10, told
