"""Keys: what becomes of a run whose key may be held, and of a key whose holder has ended."""

from __future__ import annotations

from typing import Any

import pytest

from onceward.core.claims import Fate, Freed, Holder, fate_of, freed
from onceward.core.model import NewRun
from onceward.core.states import RunState

NOW = 1_750_000_000_000
HOUR = 3_600_000


def new_run(once: str | None, clash: str) -> NewRun:
    window_ms = HOUR if once == "window" else None
    return NewRun("run_2", "buy", NOW, key="k", once=once, window_ms=window_ms, clash=clash)


def holder(state: RunState | None, *, claimed_at: int = NOW - 1, **more: Any) -> Holder:
    return Holder("run_1", claimed_at, None, state, **{"once": "ever", "window_ms": None, **more})


@pytest.mark.parametrize(
    ("once", "clash", "running", "ended"),
    [
        ("ever", "return", Fate.RETURNED, Fate.RETURNED),
        (None, "return", Fate.RETURNED, Fate.RETURNED),
        ("ever", "reject", Fate.REJECTED, Fate.REJECTED),
        ("active", "return", Fate.RETURNED, Fate.CLAIM),
        ("active", "reject", Fate.REJECTED, Fate.CLAIM),
        ("active", "queue", Fate.WAIT, Fate.CLAIM),
        ("active", "replace", Fate.WAIT, Fate.CLAIM),
        ("window", "return", Fate.RETURNED, Fate.RETURNED),
        ("window", "queue", Fate.SLOT, Fate.SLOT),
        ("window", "replace", Fate.WAIT, Fate.CLAIM),
    ],
)
def test_what_becomes_of_a_run_whose_key_another_has(
    once: str | None, clash: str, running: Fate, ended: Fate
) -> None:
    run = new_run(once, clash)

    assert fate_of(run, holder(RunState.RUNNING)) is fate_of(run, holder(RunState.HELD)) is running
    assert fate_of(run, holder(RunState.COMPLETED)) is fate_of(run, holder(RunState.CANCELLED)) is ended


@pytest.mark.parametrize("clash", ["return", "reject", "queue", "replace"])
def test_a_key_is_claimed_where_nobody_has_it_or_who_had_it_is_gone(clash: str) -> None:
    for once in ("ever", "active", "window"):
        assert fate_of(new_run(once, clash), None) is Fate.CLAIM
        assert fate_of(new_run(once, clash), holder(None)) is Fate.CLAIM


def test_a_window_ends_when_it_has_passed_and_not_before() -> None:
    run = new_run("window", "return")

    assert fate_of(run, holder(RunState.RUNNING, claimed_at=NOW - HOUR)) is Fate.CLAIM
    assert fate_of(run, holder(RunState.COMPLETED, claimed_at=NOW - HOUR + 1)) is Fate.RETURNED
    assert fate_of(new_run("ever", "return"), holder(RunState.RUNNING, claimed_at=0)) is Fate.RETURNED


def test_a_key_is_given_back_by_who_was_cancelled_and_by_an_active_one_always() -> None:
    ends = (RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED)

    assert [freed("active", state) for state in ends] == [Freed.RELEASED] * 3
    assert [freed("ever", state) for state in ends] == [Freed.KEPT, Freed.KEPT, Freed.RELEASED]
    assert [freed("window", state) for state in ends] == [Freed.KEPT, Freed.KEPT, Freed.GIVEN_BACK]


def test_only_a_run_that_is_over_or_gone_has_ended() -> None:
    over = {RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED}

    assert {state for state in RunState if holder(state).has_ended} == over
    assert holder(None).has_ended
