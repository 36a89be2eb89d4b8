"""Who killed the process: which runs are tried beside which, and whom a death is laid at the door of."""

from __future__ import annotations

import pytest

from onceward.core.model import RunRow
from onceward.core.states import RunState
from onceward.core.takeover import ALONE_FROM, COMPANY_FACTOR, CRASH_LIMIT, SUSPECT_FROM, lost_runs
from onceward.runtime.suspects import GAP_S, Suspects


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


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_suspects_begin_one_after_the_other_with_a_gap(clock: Clock) -> None:
    suspects = Suspects(clock)
    assert suspects.ask()
    assert not suspects.ask()  # one is on its way
    suspects.answered(run("a", SUSPECT_FROM))
    suspects.want()
    assert not suspects.ask()

    clock.now += GAP_S

    assert suspects.ask()


def test_a_checkpoint_makes_way_for_the_next_at_once(clock: Clock) -> None:
    suspects = Suspects(clock)
    suspects.ask()
    suspects.answered(run("a", SUSPECT_FROM))

    assert suspects.over("a")
    assert not suspects.over("a")
    assert suspects.ask()


def test_a_strong_suspect_is_tried_with_no_other(clock: Clock) -> None:
    suspects, strong = Suspects(clock), run("strong", ALONE_FROM)
    suspects.ask()
    suspects.answered(run("weak", SUSPECT_FROM))
    clock.now += GAP_S
    suspects.want()
    suspects.ask()
    suspects.answered(strong)
    assert suspects.must_wait(strong)

    suspects.over("weak")

    assert not suspects.must_wait(strong)
    clock.now += 10 * GAP_S
    assert not suspects.ask()


def test_a_claim_that_brings_none_is_over(clock: Clock) -> None:
    suspects = Suspects(clock)
    suspects.ask()
    suspects.answered(None)
    assert not suspects.ask()  # until the next look

    suspects.want()

    assert suspects.ask()
