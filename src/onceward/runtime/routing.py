"""Which runs an event starts here, decided anew when other processes register workflows meanwhile.

What must stay true: an event that is accepted after a registration was stored has its runs by that
registration too, whoever accepts it. So each batch says after how many registrations it was decided,
and the store refuses it when there were more (docs/adr/0030).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import msgspec

from onceward.core import errors
from onceward.core.model import DeliveryRow, EventRow, NewRun, RunRow
from onceward.core.ports import Accept, Batch, Routed
from onceward.runtime.judging import Reading, judged

if TYPE_CHECKING:
    from onceward.runtime.worker import Worker


class Routing:
    """The decisions of one worker on what events start."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def accept(
        self,
        event: EventRow,
        deliveries: Sequence[DeliveryRow] = (),
        *,
        parent: RunRow | None = None,
        version: int | None = None,
        by_run: str | None = None,
        by_fence: int | None = None,
    ) -> Accept:
        """Give the commit of an event with a new run of every workflow that subscribed to it.

        Args:
            event: as it will be stored.
            deliveries: that brought it.
            parent: the run that emits it.
            version: what its source says that it is.
            by_run: the run whose fence guards it.
            by_fence: that fence.
        """
        runs = self.runs_for(event, parent=parent, version=version)
        routed = Routed(self._worker.routes.registrations, parent, version)
        return Accept(event, runs, list(deliveries), by_run, by_fence, routed)

    def runs_for(
        self, event: EventRow, *, parent: RunRow | None = None, version: int | None = None
    ) -> list[NewRun]:
        """Give a new run for every workflow that subscribed to such an event.

        Args:
            event: as it will be stored.
            parent: the run that emits it.
            version: what its source says that it is.
        """
        worker, now, found = self._worker, event.received_at, []
        is_left = parent is not None or worker.rush.is_on()  # for whoever is free to claim
        reading: Reading | None = None  # one for all routes that have rules
        for route in worker.routes.match(event.source, event.type):
            deadline_at = None if route.deadline_ms is None else now + route.deadline_ms
            if parent is None:
                run = NewRun(worker.ids.run_id(), route.workflow, now, deadline_at)
            else:
                run = NewRun(
                    worker.ids.run_id(),
                    route.workflow,
                    now,
                    deadline_at,
                    parent_run_id=parent.run_id,
                    parent_generation=parent.generation,
                    depth=parent.depth + 1,
                )
            if not route.rules.is_empty:
                reading = reading or Reading(event, worker.settings.namespace, version)
                run = judged(run, event, route.rules, reading)
            found.append(run if is_left else worker.claiming.placed(run, route))
        return found

    async def learn(self) -> None:
        """Read which workflows are registered, and tell who goes by it."""
        worker = self._worker
        # The number first: what is registered between the two is read, and only not known to be.
        registrations = await worker.read(worker.store.registrations)
        rows = await worker.read(worker.store.workflows)
        worker.routes.learn(rows, registrations)
        worker.pruning.learn(rows)

    def settle(self, batch: Batch) -> int | None:
        """Decide by what is known now what was decided by less; give by how many registrations.

        None where the batch has nothing that is decided by triggers.
        """
        known, is_routed = self._worker.routes.registrations, False
        for accept in _accepts_of(batch):
            if accept.routed is not None:
                is_routed = True
                if accept.routed.registrations != known:
                    self._decide_anew(accept, accept.routed)
        return known if is_routed else None

    def _decide_anew(self, accept: Accept, routed: Routed) -> None:
        worker, earlier = self._worker, {run.workflow: run for run in accept.runs}
        found = self.runs_for(accept.event, parent=routed.parent, version=routed.version)
        worker.claiming.unreserve(found)
        accept.runs = [self._as_before(run, earlier.get(run.workflow)) for run in found]
        accept.routed = msgspec.structs.replace(routed, registrations=worker.routes.registrations)

    def _as_before(self, run: NewRun, earlier: NewRun | None) -> NewRun:
        """Give a run the id and the slot that were meant for it; whoever waits for the accept knows of no other."""
        if earlier is None:
            return msgspec.structs.replace(run, is_claimed=False)
        may_begin = run.hold_reason is None and self._worker.routes.of(run.workflow).rules.may_begin_at_once
        return msgspec.structs.replace(
            run, run_id=earlier.run_id, is_claimed=earlier.is_claimed and may_begin
        )

    def moved(self, again: Callable[[], None]) -> None:
        """Hear that a batch was refused for what was registered meanwhile; learn that, then call *again*."""
        self._worker.spawn(self._learn(again))

    async def _learn(self, again: Callable[[], None]) -> None:
        # What is wrong with a store that cannot be asked, the commit finds out, and says so.
        with contextlib.suppress(errors.StoreError):
            await self._worker.insist(self.learn)
        again()


def _accepts_of(batch: Batch) -> Iterator[Accept]:
    return chain(batch.accepts, *(advance.accepts for advance in batch.advances))
