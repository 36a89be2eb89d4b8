"""Deliveries first: while they come faster than this process can also run what they start, runs wait.

A sender gives up a delivery within seconds, and a run has time. So in a rush the runs of new deliveries
are stored and left in the queue, for another process or for later, and of what is due a few are claimed
now and then, the oldest first, so that sleepers and retries are not forgotten. A rush is when many
deliveries are under way at once *and* this process is busy: slow steps or a slow disk are none,
since runs would not hold up deliveries then. It may last for `RUSH_S_MAX`; after that runs have their
turn until the queue is empty, so what has piled up stays a matter of seconds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onceward.runtime.worker import Worker

_log = logging.getLogger("onceward.worker")

UNDER_WAY_MIN = 16
"""Deliveries that wait for their commit at once."""

BUSY_MIN = 0.5
"""Of one core: what the process used of it; the rest goes into waiting for commits, of which there are many."""

FULL_MIN = 0.9
"""Of one core: there is hardly a moment in which this process waits for anything."""

WINDOW_S = 0.02
"""Over which the CPU is looked at."""

HOLD_S = 0.05
"""How long a rush goes on after the last sign of it, and how often runs are claimed in one."""

CLAIM_MAX = 4
"""Runs that are claimed by one claim in a rush."""

AFTER_CLAIM_MAX = 16
"""Behind one, while deliveries come: sixty at once would hold them up, and bring the next."""

RUSH_S_MAX = 8.0
"""Since it began; what starts in so long is run in some six seconds."""


class Rush:
    """Watches the deliveries of one worker.

    Args:
        worker: whose claims are put off.
        cpu_s: the CPU time that this process has used, in seconds.

    Attributes:
        is_claim_planned: a claim that was put off follows by itself.
    """

    def __init__(self, worker: Worker, cpu_s: Callable[[], float]) -> None:
        self._worker = worker
        self._cpu_s = cpu_s
        self._under_way = 0
        self._share = 0.0  # of a core, what this process used of it lately
        self._looked_at = self._looked_cpu = 0.0
        self._until = 0.0  # when the rush is over, if nothing renews it
        self._began_at: float | None = None  # of the one that is on, or was and is not made up for
        self._claimed_at = 0.0
        self.is_claim_planned = False

    def came(self, is_delivery: bool) -> None:
        """Hear that something is to be stored, perhaps a delivery."""
        if not is_delivery:
            return
        self._under_way += 1
        now = self._worker.elapsed_s()
        if now - self._looked_at >= WINDOW_S:
            self._look(now)
        if self._share > BUSY_MIN and self._under_way >= UNDER_WAY_MIN:
            if self._began_at is None:
                self._began_at = now
                _log.info("a rush of deliveries: for %d s at most their runs wait in the queue", RUSH_S_MAX)
            if now - self._began_at < RUSH_S_MAX:
                self._until = now + HOLD_S

    def _look(self, now: float) -> None:
        cpu, since = self._cpu_s(), now - self._looked_at
        # What was used over a long time says nothing about now.
        self._share = (cpu - self._looked_cpu) / since if since < 5 * WINDOW_S else 0.0
        self._looked_at, self._looked_cpu = now, cpu

    def went(self, is_delivery: bool) -> None:
        """Hear that it is stored, or refused."""
        self._under_way -= is_delivery

    def is_core_full(self) -> bool:
        """Say whether this process had as much to do as a core can, when deliveries were last looked at."""
        return self._share > FULL_MIN

    def is_on(self) -> bool:
        """Say whether the runs of new deliveries are to wait."""
        return self._until > 0 and self._worker.elapsed_s() < self._until

    def claims_max(self, free: int) -> int:
        """Give how many of the *free* slots may be claimed for now; where none, another claim follows."""
        if not self._until:
            return free
        now = self._worker.elapsed_s()
        if now >= self._until:
            is_just_over = self._began_at is not None and self._under_way > 0
            return min(free, AFTER_CLAIM_MAX) if is_just_over else free
        if now - self._claimed_at >= HOLD_S:
            self._claimed_at = now
            return min(free, CLAIM_MAX)
        if not self.is_claim_planned:
            self.is_claim_planned = True
            self._worker.loop.call_later(HOLD_S, self._claim, context=self._worker.context)
        return 0

    def _claim(self) -> None:
        self.is_claim_planned = False
        self._worker.committer.claim()

    def caught_up(self) -> None:
        """Hear that nothing is due that is not claimed: what waited has had its turn."""
        if not self.is_on():
            self._began_at = None
