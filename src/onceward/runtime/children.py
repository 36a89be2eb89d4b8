"""Called runs and their parents within one process: who hears of whose end, and who steers whom.

A child that ends here tells its parent in memory; one that ends elsewhere sets a flag in the
parent's queue row, which the next look sees. Only what ended before the parent was claimed says
nothing any more, so a parent that is loaded looks at its children once.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from onceward.core import errors
from onceward.core.model import RunRow
from onceward.core.ports import RunMove
from onceward.core.states import TERMINAL

if TYPE_CHECKING:
    from onceward.runtime.execution import Execution
    from onceward.runtime.worker import Worker


class Children:
    """The called runs of one worker's runs."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._watchers: set[Execution] = set()
        self._joined: dict[str, list[Execution]] = {}  # by the run that they wait for and did not make

    def made(self, parent: Execution) -> None:
        """Hear that a run is about to start a child; look for it when it is durable."""
        pending = parent.operation().future
        pending.add_done_callback(lambda _: self._worker.claiming.claim_due())

    def joined(self, parent: Execution, run_id: str) -> None:
        """Hear that a run waits for one that it did not make: another that holds the key of its own."""
        self._joined.setdefault(run_id, []).append(parent)

    def left(self, parent: Execution, run_id: str) -> None:
        """Hear that it does not wait any more."""
        waiting = self._joined.get(run_id, [])
        if parent in waiting:
            waiting.remove(parent)
        if not waiting:
            self._joined.pop(run_id, None)

    def ended(self, run: RunRow) -> None:
        """Tell runs that wait for one that they did not make that it has ended here."""
        for parent in list(self._joined.get(run.run_id, ())):
            parent.child_ended(run)

    def steered(self, run_id: str, move: RunMove) -> None:
        """Hear that an operator changed a run: if that ended it, look for those who wait for its end."""
        worker = self._worker
        parents = list(dict.fromkeys(self._joined.get(run_id, ()))) if move.state in TERMINAL else []
        if move.wakes_run_id is not None:
            parent = worker.executions.get(move.wakes_run_id)
            if parent is not None:
                parents.append(parent)
            else:
                worker.claiming.claim_due()
        if parents:
            worker.spawn(self.look(parents))

    def watch(self, parent: Execution) -> None:
        """Make sure that *parent* hears of children that may have ended before it was claimed."""
        if parent not in self._watchers:
            # One look for all the calls that one parent makes at once.
            self._watchers.add(parent)
            self._worker.spawn(self._look_soon(parent))

    async def _look_soon(self, parent: Execution) -> None:
        await asyncio.sleep(0)
        self._watchers.discard(parent)
        await self.look([parent])

    async def look(self, parents: list[Execution]) -> None:
        """Tell parents of called runs that have ended."""
        worker = self._worker
        wanted = [(run_id, parent) for parent in parents for run_id in parent.open_children()]
        if not wanted:
            return
        # Nobody says a second time that a child has ended, so a look that fails must be made again.
        asked = list(dict.fromkeys(run_id for run_id, _ in wanted))
        rows = await worker.insist(worker.read, worker.store.states, asked)
        for run_id, parent in wanted:
            row = rows.get(run_id)
            if row is not None and row.state in TERMINAL:
                parent.child_ended(row)
            parent.child_seen(run_id)

    async def retry(self, run_id: str) -> None:
        """Retry a called run together with its parent."""
        await self._worker.insist(self._worker.steer_child, run_id, "retry")

    async def cancel(self, run_id: str) -> None:
        """Cancel a called run together with its parent."""
        await self._worker.insist(self._worker.steer_child, run_id, "cancel")

    async def cancel_older(self, run: RunRow) -> None:
        """Cancel what older generations called and did not finish (RULINGS 21)."""
        worker = self._worker
        for child in await worker.insist(worker.read, worker.store.children, run.run_id):
            if child.is_called and child.parent_generation != run.generation and child.state not in TERMINAL:
                await self.cancel(child.run_id)


async def no_steering(
    run_id: str,
    verb: str,
    actor: str = "parent",  # noqa: ARG001
    why: str | None = None,  # noqa: ARG001
) -> None:
    """Refuse: the app says how its runs are steered."""
    raise errors.ConfigError(f"{verb} of run {run_id} needs an app.")
