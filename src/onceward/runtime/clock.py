"""Time and randomness of a real process.

Time is monotonic time plus the measured offset to the store's clock, never the raw wall clock: a
host whose clock is set cannot wake sleepers early or hand out a lease twice (RULINGS 10). A server's
clock that is set is followed: a process that kept the old time and one that starts with the new one
would each take the other's lease for ended, again and again.
"""

from __future__ import annotations

import functools
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


monotonic_ns: Callable[[], int] = functools.partial(time.clock_gettime_ns, _NEVER_SET)
"""Gives a clock of the host that never jumps, in nanoseconds; time that the host slept counts."""


class StoreClock:
    """The store's time as this process knows it.

    Args:
        reference: the store's own clock.
        monotonic: a clock that never jumps, in nanoseconds.
        follows: whether every process asks one server for that; else a jump is this host's own affair.
    """

    def __init__(
        self,
        reference: Callable[[], Millis] = wall_ms,
        monotonic: Callable[[], int] = monotonic_ns,
        *,
        follows: bool = False,
    ) -> None:
        self._follows = follows
        self._monotonic = monotonic
        self._reference = reference
        self._offset = reference() - monotonic() // 1_000_000

    def now_ms(self) -> Millis:
        """Give the store's time in Unix milliseconds."""
        return self._monotonic() // 1_000_000 + self._offset

    def refresh(self) -> bool:
        """Look at the store's clock again; small drift is followed. Say whether a jump was."""
        drift = self._reference() - self.now_ms()
        is_jump = abs(drift) > JUMP_MS
        if is_jump:
            _log.warning(
                "the store's clock moved by %+.1f s against this host's monotonic clock; sleeps and leases %s",
                drift / 1000,
                "go by it from now on" if self._follows else "keep the old time until this process restarts",
            )
        if self._follows or not is_jump:
            self._offset += drift
        return is_jump and self._follows
