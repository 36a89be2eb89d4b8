"""What a process counts, and that it is bounded."""

from __future__ import annotations

from onceward.core.counters import SECONDS, SERIES_MAX, Counter, Counters, Histogram


def test_a_counter_tells_labels_apart_up_to_a_bound() -> None:
    counter = Counter()
    for number in range(SERIES_MAX):
        counter.add("buy", str(number))
    counter.add("buy", "0")
    counter.add("buy", "one too many")
    counter.add("buy", "two too many")

    assert len(counter.values) == 1_000 + 1
    assert counter.values["buy", "0"] == 2
    assert counter.values["buy", "999"] == 1
    assert counter.values["other", "other"] == 2


def test_the_classes_are_those_that_boards_draw() -> None:
    milliseconds = [1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000]

    assert [round(seconds * 1_000, 3) for seconds in SECONDS] == milliseconds


def test_a_length_belongs_to_the_first_class_that_it_does_not_exceed() -> None:
    lengths = Histogram()
    for seconds in (0.0, 0.001, 0.0011, SECONDS[-1], SECONDS[-1] + 0.5):
        lengths.add(seconds)

    assert lengths.counts == [2, 1, *[0] * (len(SECONDS) - 3), 1, 1]
    assert lengths.total == 0.0 + 0.001 + 0.0011 + 10.0 + 10.5


def test_a_process_has_counted_nothing_when_it_opens_the_app() -> None:
    counters = Counters()

    for one in (counters.runs, counters.deliveries, counters.tries_failed, counters.notices):
        assert one.values == {}
    assert (sum(counters.batches.counts), counters.batches.total) == (0, 0.0)
    counters.tries_failed.add("buy", "again")
    assert counters.runs.values == {}
