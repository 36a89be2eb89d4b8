"""What a process counts while it works: whole numbers in memory, which `/metrics` shows.

Counting is an addition at the end of a run, at a failed try, at a delivery and at a batch, never at a
step that succeeds. Whoever counts is in the app's event loop, and so is whoever reads. What one counter tells
apart is bounded, whatever it is given.
"""

from __future__ import annotations

from bisect import bisect_left

SERIES_MAX = 1_000
"""Combinations of labels that one counter tells apart."""

OTHER = "other"
"""Stands for every label of what is beyond that."""

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper ends of the classes of `Histogram`: a commit takes from one to some hundred milliseconds."""


class Counter:
    """Counts by labels.

    Attributes:
        values: how often each combination was counted.
    """

    __slots__ = ("values",)

    def __init__(self) -> None:
        self.values: dict[tuple[str, ...], int] = {}

    def add(self, *labels: str) -> None:
        """Count once; what is new beyond `SERIES_MAX` counts as `OTHER`."""
        values = self.values
        if labels not in values and len(values) >= SERIES_MAX:
            labels = (OTHER,) * len(labels)
        values[labels] = values.get(labels, 0) + 1


class Histogram:
    """Counts lengths of time by class.

    Attributes:
        counts: how many fell into each class of `SECONDS`, and the last above all of them.
        total: all lengths together, in seconds.
    """

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(SECONDS) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        """Count a length of time; it belongs to the first class that it does not exceed."""
        self.counts[bisect_left(SECONDS, seconds)] += 1
        self.total += seconds


class Counters:
    """What one process counted since it opened the app.

    Attributes:
        runs: by workflow, and the state in which this process left a run: completed, failed,
            cancelled or held.
        deliveries: by source, empty for a name that is none, and outcome: accepted, duplicate,
            unparsed or refused.
        tries_failed: failed tries of steps by workflow, and what follows: ``again`` or ``failed``.
        notices: by what became of a try to send one: ``told``, ``failed``, ``given_up``.
        batches: how long commits took, from when they were sent to when they were known to be durable.
    """

    __slots__ = ("batches", "deliveries", "notices", "runs", "tries_failed")

    def __init__(self) -> None:
        self.runs = Counter()
        self.deliveries = Counter()
        self.tries_failed = Counter()
        self.notices = Counter()
        self.batches = Histogram()
