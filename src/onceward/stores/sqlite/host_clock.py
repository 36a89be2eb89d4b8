"""The clock of a SQLite file: time since this host's boot, plus an offset that the file keeps.

Every process on the host reads the same clock, and setting the wall clock changes nothing: no
sleeper wakes early, no lease of a living process looks ended to another that started later
(RULINGS 10, F07). The first process after a boot takes the offset from the wall clock.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from pathlib import Path

from onceward.core.model import Millis

_log = logging.getLogger("onceward.clock")

DIFFERENCE_MS = 2_000
"""How far the wall clock may lie from the file's before somebody should hear of it."""

TABLE = "create table if not exists onceward_clock (boot_id text not null primary key, offset_ms integer not null)"
REMEMBER = "insert into onceward_clock (boot_id, offset_ms) values (?, ?) on conflict do nothing"
RECALL = "select offset_ms from onceward_clock where boot_id = ?"


@dataclass(frozen=True)
class HostClock:
    """What a host can say of time.

    Attributes:
        boot_id: differs after each boot; empty where the host cannot tell.
    """

    boot_id: str

    @staticmethod
    def here() -> HostClock:
        """Give this host's clock."""
        try:
            return HostClock(Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip())
        except OSError:
            return HostClock("")

    def since_boot_ms(self) -> Millis:
        """Give the milliseconds since the boot, time asleep included."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000

    def compare(self, file_ms: Millis, wall_ms: Millis, path: str) -> None:
        """Report a wall clock that was set since the boot."""
        difference = wall_ms - file_ms
        if abs(difference) > DIFFERENCE_MS:
            _log.warning(
                "the wall clock is %+.1f s from the clock of %s, it was set since this host booted; "
                "sleeps and leases keep the file's clock until the next boot",
                difference / 1000,
                path,
            )
