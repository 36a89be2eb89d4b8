"""Who killed the process: whom a death is laid at the door of."""

from __future__ import annotations

from onceward.core.model import RunRow
from onceward.core.states import RunState
from onceward.core.takeover import COMPANY_FACTOR, CRASH_LIMIT, SUSPECT_FROM, lost_runs


def run(name: str, crashes: int, state: RunState = RunState.RUNNING) -> RunRow:
    return RunRow(
        name, "w", "start/w", name, created_at=0, state=state, crashes=crashes, fence=1, started_at=0
    )


def lose(*runs: RunRow) -> list[RunState]:
    return [lost.state for lost in lost_runs(runs, 1, process_id="p", crash_limit=CRASH_LIMIT)]


def test_a_run_that_dies_alone_is_held_at_the_limit() -> None:
    assert lose(run("killer", CRASH_LIMIT - 1)) == [RunState.HELD]
    assert lose(run("killer", CRASH_LIMIT - 2)) == [RunState.QUEUED]


def test_neighbours_that_lost_nobody_before_do_not_save_a_killer() -> None:
    found = lose(run("killer", CRASH_LIMIT - 1), run("fresh", 0), run("other", 0))

    assert found == [RunState.HELD, RunState.QUEUED, RunState.QUEUED]


def test_a_slow_innocent_run_is_not_held_for_a_killer_that_comes_again() -> None:
    """The killer died beside it before: at its next visit the death is not the innocent's alone."""
    killer, innocent = run("killer", 0), run("innocent", CRASH_LIMIT - 2)
    for _ in range(2):
        for one, lost in zip(
            (killer, innocent),
            lost_runs([killer, innocent], 1, process_id="p", crash_limit=CRASH_LIMIT),
            strict=True,
        ):
            assert lost.state is RunState.QUEUED
            one.crashes = lost.crashes
    assert killer.crashes >= SUSPECT_FROM


def test_even_in_company_there_is_an_end() -> None:
    worst = COMPANY_FACTOR * CRASH_LIMIT - 1

    assert lose(run("a", worst), run("b", worst - 1)) == [RunState.HELD, RunState.QUEUED]


def test_a_run_that_is_being_cancelled_is_never_held() -> None:
    assert lose(run("a", 99, RunState.CANCELLING)) == [RunState.CANCELLING]
