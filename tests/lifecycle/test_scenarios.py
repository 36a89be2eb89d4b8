"""The stories of the crash tests end as they must when nothing goes wrong."""

from __future__ import annotations

import json

import pytest

from tests.lifecycle.procs import Nursery
from tests.lifecycle.scenarios import SCENARIOS


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_story_ends_well_when_nothing_goes_wrong(nursery: Nursery, name: str) -> None:
    passes = nursery.home / "passes"
    first = nursery.fork(name, passes=passes)
    assert first.wait() == 0, nursery.logs()
    print(name, json.loads(passes.read_text()))
