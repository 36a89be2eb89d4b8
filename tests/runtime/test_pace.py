"""When a batch is made: pure decisions on a clock that the test moves."""

from __future__ import annotations

import pytest

from onceward.runtime.pace import GATHER_MAX, GATHER_MIN, LATE_SHARE, SPLIT_SHARE, Pace


class _Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def _after(
    took: float, reaction: float, *, overlaps: bool = True, is_core_full: bool = True
) -> tuple[Pace, _Clock]:
    clock = _Clock()
    pace = Pace(clock, lambda: is_core_full)
    sent_at = clock.now
    clock.now += took
    pace.over(sent_at, overlaps=overlaps)
    clock.now += reaction
    pace.reacted()
    return pace, clock


@pytest.mark.parametrize(
    ("share", "is_split"), [(0.0, False), (SPLIT_SHARE / 2, False), (SPLIT_SHARE * 2, True)]
)
def test_what_gathered_goes_at_once_only_where_the_code_takes_long(share: float, is_split: bool) -> None:
    pace, _ = _after(took=0.002, reaction=share * 0.002)
    assert pace.is_split() is is_split


def test_a_store_that_is_idle_for_long_gets_what_is_there() -> None:
    pace, clock = _after(took=0.002, reaction=0.0)
    assert not pace.is_late()
    clock.now += LATE_SHARE * 0.002 * 1.5
    assert pace.is_late()


def test_a_store_that_works_in_a_thread_of_ours_gets_whole_batches() -> None:
    pace, clock = _after(took=0.002, reaction=0.004, overlaps=False)
    clock.now += 1
    assert not pace.is_split()
    assert not pace.is_late()


def test_a_new_pace_splits_nothing() -> None:
    pace = Pace(_Clock(), lambda: True)
    assert not pace.is_split()
    assert not pace.is_late()
    assert not pace.is_gathering(GATHER_MIN)


def _rounds(pace: Pace, waiting: list[int]) -> int:
    """Give for how many rounds of the loop a batch is put off, with so many events waiting in each."""
    return next(number for number, events in enumerate(waiting) if not pace.is_gathering(events))


def test_a_busy_process_waits_for_deliveries_while_each_round_brings_some() -> None:
    pace, _ = _after(took=0.002, reaction=0.0, overlaps=False)
    pace.took(GATHER_MIN)
    assert _rounds(pace, [3, 9, 20, 20]) == 3
    pace.took(20)
    assert _rounds(pace, [5, 5]) == 1, "each batch counts anew"
    pace.took(5)
    assert _rounds(pace, [40]) == 0, "so few at a time bring nothing"


def test_a_batch_waits_for_no_more_deliveries_than_pay() -> None:
    pace, _ = _after(took=0.002, reaction=0.0, overlaps=False)
    pace.took(GATHER_MAX)
    assert _rounds(pace, [*range(GATHER_MAX - 9, GATHER_MAX + 1)]) == 9


@pytest.mark.parametrize(("overlaps", "is_core_full"), [(True, True), (False, False)])
def test_no_batch_waits_where_the_store_or_the_process_would_be_idle(
    overlaps: bool, is_core_full: bool
) -> None:
    pace, _ = _after(took=0.002, reaction=0.0, overlaps=overlaps, is_core_full=is_core_full)
    pace.took(GATHER_MAX)
    assert _rounds(pace, [30, 40]) == 0
