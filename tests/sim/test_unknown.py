"""Steps of unknown outcome in simulated worlds: none takes effect twice, and what is undone is undone whole."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from onceward.testing import simulate
from onceward.testing.planted import DOUBTFUL_BUGS
from onceward.testing.simulation.world import World

SEEDS = 400 if os.environ.get("ONCEWARD_TEST_TIER") == "campaign" else 25

FOUND_WITHIN = 60
"""Seeds in which a planted bug must show."""


def test_every_promise_is_kept_about_unknown_outcomes() -> None:
    outcomes = [simulate.run_seed(seed, is_doubtful=True) for seed in range(SEEDS)]

    assert [outcome.violations[0] for outcome in outcomes if outcome.violations] == []
    assert min(outcome.operations for outcome in outcomes) >= 200


@pytest.mark.parametrize("name", DOUBTFUL_BUGS)
def test_a_planted_bug_is_found(name: str) -> None:
    first = DOUBTFUL_BUGS[name].first_seed
    seeds = range(first, first + FOUND_WITHIN)
    found = next((seed for seed in seeds if simulate.run_seed(seed, bug=name).violations), None)

    assert found is not None, DOUBTFUL_BUGS[name].sentence


def test_there_is_something_to_ask_and_to_undo_in_these_worlds() -> None:
    told: Counter[str] = Counter()
    for seed in range(16):
        world = World(seed, is_doubtful=True)
        world.run()
        for rows in world.mirror.runs.values():
            told[f"{rows.run['workflow']} {rows.run['state']}"] += 1
            told["answered"] += any('"step"' in str(row["detail"]) for row in rows.audit)
            told["undone"] += any(row["name"].endswith("(undo)") for row in rows.step)

    assert told["asked completed"] > 5, told
    assert told["checked completed"] > 5, told
    assert told["saga completed"] > 5, told
    assert told["answered"] > 5, told
    assert told["undone"] > 10, told
