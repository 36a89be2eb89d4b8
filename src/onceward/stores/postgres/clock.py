"""The server's time, without asking it each time.

Leases and due times are compared by processes on many hosts, so all of them use the clock of the
one server: this host's monotonic clock plus an offset that each heartbeat measures (RULINGS 10).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from onceward.core.model import Millis

SAMPLES = 8
"""How many measurements count. Few, so that a drift of 100 parts in a million stays below a millisecond
or two; some, so that one slow reply among them does no harm."""

SET_MS = 1_000
"""A difference between two measurements, beyond what their round trips explain, that no drift makes."""


class ServerClock:
    """Keeps the offset between this host's monotonic clock and the server's.

    Args:
        monotonic_ms: a clock that only grows.
    """

    def __init__(self, monotonic_ms: Callable[[], float]) -> None:
        self._monotonic_ms = monotonic_ms
        self._samples: deque[tuple[float, float]] = deque(maxlen=SAMPLES)  # round trip, offset
        self._offset_ms: float | None = None

    @property
    def is_set(self) -> bool:
        """Whether the server was asked at least once."""
        return self._offset_ms is not None

    def measure(self, ask: Callable[[], float]) -> None:
        """Ask the server for its time.

        Args:
            ask: one round trip that gives the server's time in Unix milliseconds.
        """
        sent = self._monotonic_ms()
        server_ms = ask()
        received = self._monotonic_ms()
        # Half the round trip is the most that the reply can be off; the quickest one is off least.
        trip, offset = received - sent, server_ms - (sent + received) / 2
        if self._samples and abs(offset - self._samples[-1][1]) > SET_MS + (trip + self._samples[-1][0]) / 2:
            self._samples.clear()  # the server's clock was set: what was measured before is of another
        self._samples.append((trip, offset))
        self._offset_ms = min(self._samples)[1]

    def now_ms(self) -> Millis:
        """Give the server's time; it must have been measured."""
        assert self._offset_ms is not None, "measure the clock first"
        return int(self._monotonic_ms() + self._offset_ms)
