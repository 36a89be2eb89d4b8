"""When the next batch is made: when the code has had its turn, or sooner.

After a commit all the code that waited for it runs, and what it saves gathers in one batch. If the
store works by itself meanwhile (a server does, a thread of ours does not), half of the runs can be
under way there while the code of the other half runs here. That costs twice as many commits, so it is
done only where the code takes long compared with a commit: under load, never for a lone run or a slow
disk.
"""

from __future__ import annotations

from collections.abc import Callable

SPLIT_SHARE = 0.2
"""Of a commit's time: the code must take at least that long."""

LATE_SHARE = 0.5
"""Of a commit's time: so long the store is left idle while a batch gathers, then it gets what is there."""


class Pace:
    """Watches how long commits take, and how long the code after them.

    Args:
        elapsed_s: a clock that only grows, in seconds.
    """

    def __init__(self, elapsed_s: Callable[[], float]) -> None:
        self._elapsed_s = elapsed_s
        self._over_at = 0.0
        self._took = 0.0
        self._reaction = 0.0
        self._overlaps = False

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

    def is_late(self) -> bool:
        """Say whether the store has been idle for so long that it gets what has gathered by now."""
        return self._overlaps and self._elapsed_s() - self._over_at > LATE_SHARE * self._took
