"""Steps side by side, killed at each boundary: nothing finished runs again, races end as they did."""

from __future__ import annotations

import functools
import json
from typing import Any

import pytest

from tests.attack.site import Site
from tests.helpers import eventually

EXPECTED = {
    "gathers": [f"two {i}" for i in range(5)],
    "groups": "part 0 part 1 part 2 part 3",
    "races": "fast after fast",
    "timeouts": "first late late",
    "completed_order": ["s3", "s2", "s1", "s0"],
    "plain": ["x 0", "x 1", "x 2", "y", "no", "z"],
    "retried_in_branches": [0, 1, 2, 3],
}


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("place", ["step.after_body", "save.after_commit", "step.before_body"])
@pytest.mark.parametrize("nth", [1, 2, 4])
def test_killed_between_branches(site: Site, name: str, place: str, nth: int) -> None:
    desk = site.desk("branches")
    run = desk.app.sync.start(getattr(desk, name))
    saved: dict[str, int] = {}
    for failpoint in (f"{place}:kill:{nth}", f"{place}:kill:{nth + 1}"):
        worker = site.spawn("-m", "onceward", "worker", "branches:app", failpoint=failpoint)
        eventually(functools.partial(_is_over, worker, run), 40)
        counts = site.counts()
        for step in run.steps():
            if step.kind == "run" and step.state == "done":
                label = f"start {json.loads(step.output)}"
                saved.setdefault(label, counts[label])
    if run.state() != "completed":
        site.worker("branches:app")

    assert run.result("30s") == EXPECTED[name], site.notes()
    counts = site.counts()
    assert saved == {label: counts[label] for label in saved}
    assert max(counts.values()) <= 3, counts
    site.check(desk.app)


def _is_over(worker: Any, run: Any) -> bool:
    return not worker.is_alive() or run.state() in ("completed", "failed", "held")
