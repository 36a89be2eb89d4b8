"""When the next batch is made: when the code has had its turn, or sooner.

After a commit all the code that waited for it runs, and what it saves gathers in one batch. If the
store works by itself meanwhile (a server does, a thread of ours does not), half of the runs can be
under way there while the code of the other half runs here. That costs twice as many commits, so it is
done only where the code takes long compared with a commit: under load, never for a lone run or a slow
disk.

Deliveries do not come by themselves when a commit is over: their senders have to hear of it first. Where
the store does not work by itself and the process has a core's worth of work, a batch waits for those that
the next rounds of the loop bring. There is nothing to win by being early then, and each batch costs as
much as several deliveries.
"""

from __future__ import annotations

from collections.abc import Callable

SPLIT_SHARE = 0.2
"""Of a commit's time: the code must take at least that long."""

GATHER_MIN = 8
"""Events that the last batch took in, from which on the next is worth waiting for."""

GATHER_MAX = 64
"""Events that are enough for a batch: what it costs by itself is a thirtieth by then."""

LATE_SHARE = 0.5
"""Of a commit's time: so long the store is left idle while a batch gathers, then it gets what is there."""


class Pace:
    """Watches how long commits take, and how long the code after them.

    Args:
        elapsed_s: a clock that only grows, in seconds.
        is_core_full: says whether this process has as much to do as a core can.
    """

    def __init__(self, elapsed_s: Callable[[], float], is_core_full: Callable[[], bool]) -> None:
        self._elapsed_s = elapsed_s
        self._is_core_full = is_core_full
        self._over_at = 0.0
        self._took = 0.0
        self._reaction = 0.0
        self._overlaps = False
        self._taken = 0  # events that the last batch took in
        self._seen = 0  # of those that wait for the next one

    def over(self, sent_at: float, *, overlaps: bool) -> None:
        """Hear that a commit that was sent at *sent_at* is over, and whether the store works by itself."""
        self._over_at = self._elapsed_s()
        self._took = self._over_at - sent_at
        self._overlaps = overlaps

    def reacted(self) -> None:
        """Hear that the code that waited for it has had its turn."""
        self._reaction = self._elapsed_s() - self._over_at

    def is_split(self) -> bool:
        """Say whether what gathered during a commit goes at once, before the code that it wakes runs."""
        return self._overlaps and self._reaction > SPLIT_SHARE * self._took

    def is_gathering(self, waiting: int) -> bool:
        """Say whether the next batch, for which so many events wait, is left to the next round of the loop."""
        if self._taken < GATHER_MIN or self._overlaps or not self._is_core_full():
            return False
        seen, self._seen = self._seen, waiting
        return seen < waiting < GATHER_MAX

    def took(self, taken: int) -> None:
        """Hear that a batch is made, and how many events it takes in."""
        self._taken, self._seen = taken, 0

    def is_late(self) -> bool:
        """Say whether the store has been idle for so long that it gets what has gathered by now."""
        return self._overlaps and self._elapsed_s() - self._over_at > LATE_SHARE * self._took
