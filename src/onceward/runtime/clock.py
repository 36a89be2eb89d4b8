"""Time and randomness of a real process.

Time is monotonic time plus the measured offset to the store's clock, never the raw wall clock: a
host whose clock is set cannot wake sleepers early or hand out a lease twice (RULINGS 10).
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable

from onceward.core.model import Millis

_log = logging.getLogger("onceward.clock")

_NEVER_SET = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

JUMP_MS = 2_000
"""A difference between two looks at the store's clock that counts as a jump."""


class SystemEntropy:
    """Randomness of the operating system."""

    def random_bytes(self, count: int) -> bytes:
        """Give *count* random bytes."""
        return os.urandom(count)


def wall_ms() -> Millis:
    """Give the host's wall clock in Unix milliseconds."""
    return time.time_ns() // 1_000_000


def monotonic_ms() -> Millis:
    """Give a clock of the host that never jumps, in milliseconds; time that the host slept counts."""
    return time.clock_gettime_ns(_NEVER_SET) // 1_000_000


class StoreClock:
    """The store's time as this process knows it.

    Args:
        monotonic: a clock that never jumps, in milliseconds.
        reference: the store's own clock.
    """

    def __init__(
        self, reference: Callable[[], Millis] = wall_ms, monotonic: Callable[[], Millis] = monotonic_ms
    ) -> None:
        self._monotonic = monotonic
        self._reference = reference
        self._offset = reference() - monotonic()

    def now_ms(self) -> Millis:
        """Give the store's time in Unix milliseconds."""
        return self._monotonic() + self._offset

    def refresh(self) -> None:
        """Look at the store's clock again; small drift is followed, a jump is reported and not followed."""
        drift = self._reference() - self._monotonic() - self._offset
        if abs(drift) > JUMP_MS:
            _log.warning(
                "the store's clock moved by %+.1f s against this host's monotonic clock; sleeps and leases "
                "keep the old time until this process restarts",
                drift / 1000,
            )
            return
        self._offset += drift
