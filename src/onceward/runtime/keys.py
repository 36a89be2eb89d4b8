"""What keys ask of a worker beside accepting: cancel who is replaced, look who holds a child's key.

The store knows that a run is to make room; cancelling it is an operator's action like any other, made
by whoever looks first, and made again while it is not done.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from onceward.authoring.workflow import Workflow
from onceward.core import errors, ids
from onceward.core.looks import RunLook
from onceward.core.model import EventRow, NewRun, RunRow
from onceward.core.ports import Accepted
from onceward.core.states import TERMINAL, RunState, StepState
from onceward.runtime.judging import Reading, as_seen, judged

if TYPE_CHECKING:
    from onceward.runtime.worker import Worker

WAITS_MAX = 1_000
"""Runs that are followed to see whether one would wait for itself."""

_log = logging.getLogger("onceward.worker")


class Keys:
    """The keys that one worker has to do with."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def keyed(self, run: NewRun, event: EventRow, workflow: Workflow[..., Any]) -> NewRun:
        """Give a run that is started, not triggered, with its key, if its workflow has one."""
        rules = workflow.policies.rules
        if rules.key is None:
            return run
        return judged(run, event, rules, Reading(as_seen(event, workflow), self._worker.settings.namespace))

    async def make_room(self, run_ids: tuple[str, ...]) -> None:
        """Cancel runs for whose keys newer ones wait; what fails is found again by the next look."""
        await asyncio.gather(*(self._replace(run_id) for run_id in run_ids))

    async def _replace(self, run_id: str) -> None:
        """Cancel one, and let its audit name the run that it makes room for."""
        worker, store, newer = self._worker, self._worker.store, None
        run: RunRow | None = await worker.read(store.run, run_id)
        if run is not None and run.key is not None:
            look = RunLook(workflow=run.workflow, key=run.key, state=RunState.QUEUED, limit=1)
            newer = next(iter((await worker.read(store.look_for_runs, look)).run_ids), None)
        await worker.steer_child(run_id, "cancel", "key", newer and f"replaced by run {newer}")

    async def redelivered(self, accepted: Accepted) -> None:
        """Retry the failed runs of an event that came again, where their workflows say so.

        The delivery is answered well whatever comes of it: its event is stored.
        """
        worker = self._worker
        for name, run_id in accepted.runs.items():
            if not worker.routes.of(name).rules.retries_on_redelivery:
                continue
            try:
                run: RunRow | None = await worker.read(worker.store.run, run_id)
                if run is not None and run.state is RunState.FAILED:
                    await worker.steer_child(run_id, "retry", "redelivery")
            except errors.OncewardError as error:
                _log.warning("run %s was redelivered and not retried: %s", run_id, error)

    async def cycle_of(self, run: RunRow, workflow: str, key: str) -> errors.KeyCycle | None:
        """Give the error of a call for a key that the caller holds, or a run that waits for the caller."""
        holder = await self._read("holder", workflow, key)
        return None if holder is None else await self.cycle(run, workflow, key, holder)

    async def cycle(self, run: RunRow, workflow: str, key: str, holder: str) -> errors.KeyCycle | None:
        """Give the error of a run that would wait for a holder which waits for it, or None if it does not.

        Followed from the holder: the runs that it calls, those that it waits for in place of such a run,
        and the holder of the key for which it is in line.
        """
        seen: set[str] = set()
        todo = [holder]
        while todo and run.run_id not in seen and len(seen) < WAITS_MAX:
            asked = [run_id for run_id in dict.fromkeys(todo) if run_id not in seen]
            seen.update(asked)
            rows = await self._read("states", asked)
            todo = [
                waited_for
                for row in rows.values()
                if row.state not in TERMINAL
                for waited_for in await self._waited_for(row)
            ]
        if run.run_id not in seen:
            return None
        return errors.KeyCycle(
            f"Run {run.run_id} calls {workflow!r} with the key {key!r}, which run {holder} holds.",
            means="That run waits for the end of this one: both would wait for ever.",
            todo="Start it detached with ctx.step.start, or give it another key.",
        )

    async def _waited_for(self, run: RunRow) -> list[str]:
        """Give the runs for whose ends a run waits."""
        if run.state is RunState.QUEUED and run.key is not None:
            holder = await self._read("holder", run.workflow, run.key)
            return [] if holder in (None, run.run_id) else [holder]
        found = []
        for row in await self._read("steps", run.run_id):
            if row.kind != "call" or row.state is not StepState.OPEN:
                continue
            event_id = ids.composed(run.generation, *row.key, ids.START)
            skipped = await self._read("skipped", f"run/{run.run_id}", event_id)
            found += [one.holder_run_id for one in skipped if one.holder_run_id is not None]
            if not skipped and row.child_run_id is not None:
                found.append(row.child_run_id)
        return found

    async def _read(self, name: str, *args: Any) -> Any:
        return await self._worker.insist(self._worker.read, getattr(self._worker.store, name), *args)
