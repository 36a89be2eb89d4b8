"""Who is told of an event: after it is stored, whoever stored it looks for waits, and tells their runs.

What must stay true: a wait that was open when the event became visible is looked at once more after
that. A process that dies in between owes that look to others: whoever takes its runs over looks for
it (docs/adr/0015).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from onceward.core import awaiting, errors
from onceward.core.awaiting import Seen
from onceward.core.model import EventRow, Millis, Offer, ProcessRow, StepRow, WaitRow, WorkflowRow
from onceward.core.ports import Batch, BatchResult, EventFilter
from onceward.core.states import StepState
from onceward.runtime.threads import call_on
from onceward.runtime.waiting import LATE_MS

if TYPE_CHECKING:
    from onceward.runtime.worker import Worker

_log = logging.getLogger("onceward.worker")

PAGE = 500
"""Events that a repair looks at with one query."""


class Matching:
    """The looks for waits of one worker."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._owed_since: Millis | None = None
        self._loaded: dict[str, list[EventRow]] = {}  # what runs were told of that are about to begin

    def arrived(self, batch: Batch, result: BatchResult) -> None:
        """Hear that a batch is committed, and which waits may be for what it stored."""
        if result.waits:
            self._worker.spawn(self._tell(awaiting.stored_events(batch, result), result.waits))

    async def _tell(self, events: Sequence[EventRow], waits: Sequence[WaitRow]) -> None:
        worker = self._worker
        offers: list[Offer] = await worker.insist(worker.read, self._offer, events, waits)
        by_key = {awaiting.key_of(event): event for event in events}
        told: dict[str, list[EventRow]] = {}
        for offer in offers:
            told.setdefault(offer.run_id, []).append(by_key[offer.source, offer.event_id])
        for run_id, found in told.items():
            execution = worker.executions.get(run_id)
            if execution is not None:
                execution.waits.offered(found)
        if told:
            worker.claiming.claim_due()

    def _offer(self, events: Sequence[EventRow], waits: Sequence[WaitRow]) -> list[Offer]:
        """Store which runs are to be told of which events, and wake them; blocks."""
        worker = self._worker
        offers: dict[Offer, None] = {}
        for event in events:
            seen = Seen(event, worker.settings.namespace)
            for wait in waits:
                if seen.fits(wait):
                    offers[Offer(wait.run_id, event.source, event.id)] = None
        if offers:
            worker.store.offer(list(offers), worker.now_ms())
        return list(offers)

    def look(self, run_ids: Sequence[str]) -> None:
        """Let runs in memory look that something woke in another process."""
        for run_id in run_ids:
            execution = self._worker.executions.get(run_id)
            if execution is not None:
                execution.waits.look_again()

    async def histories(self, run_ids: Sequence[str]) -> dict[str, list[StepRow]]:
        """Read the records of runs that come to memory, and what those that wait were told of: two queries."""
        worker = self._worker
        histories: dict[str, list[StepRow]] = await worker.insist(
            worker.read, worker.store.histories, run_ids
        )
        waiting = [
            run_id
            for run_id, history in histories.items()
            if any(row.kind == "wait" and row.state is StepState.OPEN for row in history)
        ]
        if waiting:
            # Of runs that did not begin in the end nothing is kept.
            kept = {run_id: events for run_id, events in self._loaded.items() if run_id in worker.arriving}
            self._loaded = kept | await worker.insist(worker.read, worker.store.offers, waiting)
        return histories

    def told(self, run_id: str) -> list[EventRow]:
        """Give what a run that begins was told of."""
        return self._loaded.pop(run_id, [])

    # --- what the dead left ----------------------------------------------------------------------

    @property
    def is_owed(self) -> bool:
        """Say whether looks of dead processes are still to be made."""
        return self._owed_since is not None

    def owe(self, leased_until: Millis | None) -> None:
        """Hear that a process died whose last look may not have been made.

        Args:
            leased_until: of the one that died first, where it is known.
        """
        worker = self._worker
        died_after = worker.now_ms() if leased_until is None else leased_until
        since = died_after - worker.settings.lease_ms - LATE_MS
        self._owed_since = since if self._owed_since is None else min(since, self._owed_since)

    def join(self, process: ProcessRow, workflows: Sequence[WorkflowRow]) -> None:
        """Register a process; one of the same instance, which it evicts, may owe looks; blocks."""
        store = self._worker.store
        if process.instance is not None:
            for row in store.processes():
                if row.instance == process.instance and row.process_id != process.process_id:
                    self.owe(row.lease_until)
        store.join(process, workflows)

    def pay(self) -> None:
        """Make those looks; blocks. What fails is tried again at the next look."""
        store, since = self._worker.store, self._owed_since
        if since is None:
            return
        before: tuple[Millis, str, str] | None = None
        try:
            while True:
                page = store.events(EventFilter(before=before, limit=PAGE))
                events = [event for event in page if event.received_at >= since]
                waits = store.waits_for(awaiting.places_of(events))
                if waits and self._offer(events, waits):
                    call_on(self._worker.loop, self._worker.hint)
                if len(events) < PAGE:
                    break
                before = awaiting.in_order(events[-1])
        except errors.StoreError:
            _log.warning("what a dead process stored could not be looked at for waits; the next look does")
            return
        self._owed_since = None
