"""Runs whose holder was lost: who goes on, who is held, and what the attempt's record says."""

from __future__ import annotations

from typing import Any

import pytest

from onceward.core.model import RunRow
from onceward.core.states import RunState
from onceward.core.takeover import ALONE_FROM, CRASH_LIMIT, SUSPECT_FROM, LostRun, lost_run, lost_runs

NOW = 1_750_000_000_000


def run_row(run_id: str = "run_1", crashes: int = 0, **more: Any) -> RunRow:
    values: dict[str, Any] = {"state": RunState.RUNNING, "attempt": 3, "started_at": NOW - 9, **more}
    return RunRow(run_id, "buy", "start/buy", run_id, NOW - 10, crashes=crashes, generation=2, **values)


def lost(run: RunRow, limit: int | None = CRASH_LIMIT, **more: Any) -> LostRun:
    return lost_run(run, NOW, process_id="prc_1", crash_limit=limit, **more)


def test_a_run_goes_on_with_the_next_attempt_and_the_lost_one_is_on_record() -> None:
    found = lost(run_row())

    assert (found.state, found.attempt, found.crashes) == (RunState.QUEUED, 4, 1)
    assert (found.reason, found.problem_at) == (None, None)
    log = found.log
    assert (log.generation, log.attempt, log.started_at, log.ended_at) == (2, 3, NOW - 9, NOW)
    assert (log.outcome, log.process_id) == ("lost", "prc_1")


def test_a_run_that_loses_one_holder_after_the_other_is_held_at_the_limit() -> None:
    last, held = (lost(run_row(crashes=crashes)) for crashes in (CRASH_LIMIT - 2, CRASH_LIMIT - 1))

    assert (last.state, last.attempt) == (RunState.QUEUED, 4)
    assert (held.state, held.attempt, held.crashes, held.problem_at) == (RunState.HELD, 3, CRASH_LIMIT, NOW)
    assert (
        held.reason == f"poison: its process was lost {CRASH_LIMIT} times in a row without a new checkpoint"
    )
    assert lost(run_row(crashes=99), None).state is RunState.QUEUED


def test_the_fourth_loss_in_a_row_holds_a_run_as_the_page_of_words_says() -> None:
    states = [lost(run_row(crashes=crashes)).state for crashes in (2, 3)]

    assert states == [RunState.QUEUED, RunState.HELD]
    assert 0 < SUSPECT_FROM < ALONE_FROM < CRASH_LIMIT, "it is tried alone before it is held"


def test_in_company_it_takes_twice_as_many() -> None:
    def state(crashes: int) -> RunState:
        return lost(run_row(crashes=crashes), is_alone=False).state

    assert state(2 * CRASH_LIMIT - 2) is RunState.QUEUED
    assert state(2 * CRASH_LIMIT - 1) is RunState.HELD


def test_a_run_that_is_being_cancelled_is_never_held() -> None:
    found = lost(run_row(crashes=99, state=RunState.CANCELLING))

    assert (found.state, found.attempt, found.reason) == (RunState.CANCELLING, 4, None)


@pytest.mark.parametrize(
    ("crashes", "held"),
    [
        ([3, 0, 0], [True, False, False]),
        ([3, 1], [False, False]),
        ([3, 3], [False, False]),
        ([7, 7], [True] * 2),
    ],
)
def test_who_was_suspected_beside_others_is_not_held_as_soon(crashes: list[int], held: list[bool]) -> None:
    runs = [run_row(f"run_{number}", count) for number, count in enumerate(crashes)]

    found = lost_runs(runs, NOW, process_id="prc_1", crash_limit=CRASH_LIMIT)

    assert [one.state is RunState.HELD for one in found] == held
