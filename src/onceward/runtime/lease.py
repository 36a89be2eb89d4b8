"""The lease of a process as its worker sees it: until when it may begin something, and judge others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from onceward.core.model import Millis
from onceward.core.settings import Settings

HELD_UP = 5 / 8
"""The share of a lease between two renewals from which something held them up: two beats missed. It
takes a fault of three quarters of a lease to end the lease of another that lives."""


class Leased:
    """The part of a worker that watches its lease, which the heartbeat renews."""

    settings: Settings
    now_ms: Callable[[], Millis]
    is_closing: bool
    lease_until: Millis
    _renewed_at: Millis
    _judges_from: Millis
    _lease_renewed: asyncio.Event

    def renewed(self, lease_until: Millis) -> None:
        """Hear from the heartbeat that the lease was renewed."""
        now = self.now_ms()
        if now - self._renewed_at > self.settings.lease_ms * HELD_UP:
            self._judges_from = now + self.settings.lease_ms // 2
        self._renewed_at, self.lease_until = now, lease_until
        self._lease_renewed.set()

    def clock_was_set(self) -> None:
        """Hear that the store's clock was set: the leases of others are still of the time before."""
        self._renewed_at = self.now_ms()
        self._judges_from = self._renewed_at + self.settings.lease_ms

    def may_judge(self) -> bool:
        """Say whether the ended lease of another process means anything now.

        What held our renewals up (the store was away, a stranger kept the file locked) held theirs
        up too. They get two beats to catch up; otherwise whoever looks first when the store is back
        would take the runs of every living process over, and charge each of them with a crash.
        """
        return self._judges_from <= self.now_ms() <= self._renewed_at + self.settings.lease_ms * HELD_UP

    def has_lease(self) -> bool:
        """Say whether the lease stands for long enough to begin something."""
        return self.now_ms() <= self.lease_until - self.settings.lease_ms // 10

    async def may_start_steps(self) -> None:
        """Return while the lease stands; wait for its renewal when it nearly ends (F04)."""
        while not self.has_lease() and not self.is_closing:
            self._lease_renewed.clear()
            await self._lease_renewed.wait()
