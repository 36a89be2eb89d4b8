"""Time and randomness that a test decides."""

from __future__ import annotations

import random
from collections.abc import Callable

from onceward.core.model import Millis

EPOCH_MS: Millis = 1_700_000_000_000
"""Where virtual time begins: in 2023, so that ids and dates look like real ones."""


class FakeClock:
    """A clock that goes with a source of virtual seconds and can be set wrong.

    Args:
        seconds: where time comes from, e.g. a loop's ``time``; without it the clock stands still
            until `advance` is called.
        offset_ms: how wrong this clock is.
    """

    def __init__(self, seconds: Callable[[], float] = lambda: 0.0, offset_ms: Millis = 0) -> None:
        self._seconds = seconds
        self.offset_ms = offset_ms

    def now_ms(self) -> Millis:
        """Give the time in Unix milliseconds."""
        return EPOCH_MS + int(self._seconds() * 1000) + self.offset_ms

    def advance(self, ms: Millis) -> None:
        """Move this clock, in either direction."""
        self.offset_ms += ms


class SeededEntropy:
    """Randomness that a seed decides.

    Args:
        seed: the same seed gives the same bytes.
    """

    def __init__(self, seed: int | str) -> None:
        self._random = random.Random(f"entropy {seed}")  # noqa: S311 - repeatable is what it must be

    def random_bytes(self, count: int) -> bytes:
        """Give the next *count* bytes."""
        return self._random.randbytes(count)
