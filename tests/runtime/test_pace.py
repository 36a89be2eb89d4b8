"""When a batch is made: pure decisions on a clock that the test moves."""

from __future__ import annotations

import pytest

from onceward.runtime.pace import LATE_SHARE, SPLIT_SHARE, Pace


class _Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def _after(took: float, reaction: float, *, overlaps: bool = True) -> tuple[Pace, _Clock]:
    clock = _Clock()
    pace = Pace(clock)
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
    pace = Pace(_Clock())
    assert not pace.is_split()
    assert not pace.is_late()
