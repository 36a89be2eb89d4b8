"""What keys ask of a worker beside accepting: cancel who is replaced, look who holds a child's key.

The store knows that a run is to make room; cancelling it is an operator's action like any other, made
by whoever looks first, and made again while it is not done.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from onceward.authoring.workflow import Workflow
from onceward.core import errors
from onceward.core.model import EventRow, NewRun, RunRow
from onceward.core.ports import Accepted
from onceward.core.states import RunState
from onceward.runtime.judging import Reading, as_seen, judged

if TYPE_CHECKING:
    from onceward.runtime.worker import Worker

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
        await asyncio.gather(*(self._worker.steer_child(run_id, "cancel", "key") for run_id in run_ids))

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

    async def check_cycle(self, run: RunRow, workflow: str, key: str) -> None:
        """Refuse the call of a run whose key the caller holds, or a run that waits for the caller.

        Raises:
            KeyCycle: it does.
        """
        worker = self._worker
        holder = await worker.insist(worker.read, worker.store.holder, workflow, key)
        ancestor: RunRow | None = run
        while holder is not None and ancestor is not None:
            if ancestor.run_id == holder:
                raise errors.KeyCycle(
                    f"Run {run.run_id} calls {workflow!r} with the key {key!r}, which run {holder} holds.",
                    means="That run waits for the end of this one: both would wait for ever.",
                    todo="Start it detached with ctx.step.start, or give it another key.",
                )
            is_called = ancestor.is_called and ancestor.parent_run_id is not None
            ancestor = (
                await worker.insist(worker.read, worker.store.run, ancestor.parent_run_id)
                if is_called
                else None
            )
