"""Which runs become this process's own, and when: its slots, and the claims that ride along with commits.

A slot is promised before it is filled: to the run of an event that is about to be accepted, since start is
claim, and to each run that a claim may bring. What is promised and not taken is given back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from onceward.core.model import NewRun
from onceward.core.ports import Claim, Claimed
from onceward.core.takeover import SUSPECT_FROM
from onceward.runtime.routes import Route

if TYPE_CHECKING:
    from onceward.runtime.worker import Worker

KEPT_SHARE = 4
"""One slot of so many is kept for what is due while runs are known to wait: in an overload that lasts, the
runs of new deliveries would take every slot, and what waits in the queue none."""

CLAIM_MAX = 100
"""Runs claimed by one batch; more would make everyone else's commit wait."""


class Claiming:
    """The slots of one worker.

    Args:
        worker: whose runs fill them.

    Attributes:
        has_backlog: something may be due.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._kept = -(-worker.settings.concurrency // KEPT_SHARE)
        self._ending = 0  # runs in memory whose code is over
        self._reserved = 0  # slots promised to accepts and claims that are on their way
        self._is_claiming = False
        self._claim_limit = self._claim_reserved = 0  # of the claim that is under way
        self.has_backlog = self._has_news = True
        self._is_behind = False  # something is known to be due, or to wait for a slot

    def free(self) -> int:
        """Give the free slots; a run whose end is on its way to the store needs none any more."""
        worker = self._worker
        return worker.settings.concurrency - len(worker.executions) + self._ending - self._reserved

    def ending(self) -> None:
        """Hear that a run handed its end over, so that the claim of the next shares its commit."""
        self._ending += 1

    def left(self, is_ending: bool) -> None:
        """Hear that a run left memory, and whether it had handed its end over."""
        self._ending -= is_ending

    # --- start is claim --------------------------------------------------------------------------

    def placed(self, run: NewRun, route: Route) -> NewRun:
        """Give a run that is about to be accepted as ours, where a slot is free."""
        is_claimed = run.hold_reason is None and self._reserve(route)
        return msgspec.structs.replace(run, is_claimed=True) if is_claimed else run

    def _reserve(self, route: Route) -> bool:
        worker = self._worker
        if not route.rules.may_begin_at_once:
            return False
        if worker.is_draining or route.workflow not in worker.workflows or not worker.process_id:
            return False
        free = self.free()
        if free <= 0:
            self._is_behind = True  # this one will wait
            return False
        if free <= self._kept and (self._is_behind or worker.rush.is_on()):
            return False
        self._reserved += 1
        return True

    def unreserve(self, runs: Sequence[NewRun]) -> None:
        """Take back the slots that were promised to runs."""
        for run in runs:
            self._reserved -= run.is_claimed

    # --- claims ----------------------------------------------------------------------------------

    def claim_due(self) -> None:
        """Claim what is due now, as soon as a slot is free."""
        self.has_backlog = self._has_news = True
        if not self._worker.rush.is_claim_planned and self.free() > 0:
            self._worker.committer.claim()

    def claims(self) -> list[Claim]:
        """Give the claims that ride along with the next batch."""
        worker = self._worker
        if self._is_claiming or worker.is_draining or not self.has_backlog or not worker.names:
            return []
        free = min(self.free(), CLAIM_MAX)
        if free <= 0 or not (free := worker.rush.claims_max(free)):
            return []
        now, claims = worker.now_ms(), []
        if worker.suspects.ask():
            claims.append(Claim(1, worker.names, now, suspects=True))
        self._claim_limit = free - len(claims)
        if self._claim_limit:
            claims.append(Claim(self._claim_limit, worker.names, now))
        self._is_claiming, self._has_news = True, False
        self._reserved += free
        self._claim_reserved = free
        return claims

    def answered(self, claimed: list[Claimed] | None) -> None:
        """Hear what became of the claims: the runs, or None when the store did not answer."""
        worker = self._worker
        self._is_claiming = False
        self._reserved -= self._claim_reserved
        self._claim_reserved = 0
        worker.suspects.answered(
            next((row.run for row in claimed or () if row.run.crashes >= SUSPECT_FROM), None)
        )
        if claimed is None:
            self.has_backlog = False  # the next look tells
            worker.looking.claimed(took_some=False, is_last=True)
            return
        # A claim that got all it asked for left some; one for a suspect alone asked for no others.
        others = sum(row.run.crashes < SUSPECT_FROM for row in claimed)
        self._is_behind = others >= self._claim_limit
        # What became due since it was made, it may have missed. A rush ends with a claim that finds nothing
        # more, or its time would be on the account of the next.
        self.has_backlog = self._is_behind or self._has_news or worker.rush.is_on()
        if not self.has_backlog:
            worker.rush.caught_up()
        worker.looking.claimed(took_some=bool(claimed), is_last=not self.has_backlog)
        if self.has_backlog:
            worker.loop.call_soon(worker.committer.claim)

    def keep(self, runs: int) -> None:
        """Promise slots to runs that were claimed and whose records are read now."""
        self._reserved += runs

    def kept(self, runs: int) -> None:
        """Hear that their records are read: from now on they fill their slots, or give them back."""
        self._reserved -= runs

    @property
    def expected(self) -> int:
        """Give how many runs have a slot and are not in memory yet."""
        return self._reserved
