"""How a cancellation reaches the code of a run: once, in every pending step at the same moment.

It is saved as the outcome of each step that it hits, so that a later go at the run raises it at
the same places; clean-up steps in ``except`` and ``finally`` run after it (RULINGS 22).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import msgspec

from onceward.core import errors
from onceward.core.model import StepKey
from onceward.core.states import StepState

if TYPE_CHECKING:
    from onceward.runtime.execution import Execution

_log = logging.getLogger("onceward.run")


class Cancel(msgspec.Struct, eq=False):
    """The cancellation of one run.

    Attributes:
        is_on: the run is being cancelled.
        is_delivered: its code was told, in this go or an earlier one.
        waits: steps that wait to be told.
    """

    is_on: bool
    is_delivered: bool
    waits: list[tuple[StepKey, str, asyncio.Future[None]]] = []

    @property
    def is_due(self) -> bool:
        """Say whether the next step without an outcome is where the code is told."""
        return self.is_on and not self.is_delivered

    async def raise_here(self, execution: Execution, key: StepKey, kind: str) -> None:
        """Wait until the code is quiet, then raise the cancellation in every pending step at once."""
        future: asyncio.Future[None] = execution.loop.create_future()
        self.waits.append((key, kind, future))
        execution.recall.look_when_quiet()
        await future

    async def deliver(self, execution: Execution) -> None:
        """Save the cancellation as the outcome of the steps that wait for it, then raise it in them."""
        # Those that the code cut off meanwhile are saved as such.
        waits, self.waits = [wait for wait in self.waits if not wait[2].done()], []
        now = execution.worker.now_ms()
        for key, kind, _ in waits:
            record = execution.recall.record(key)
            if record is not None and record.child_run_id is not None:
                await execution.worker.children.cancel(record.child_run_id)
            execution.save(execution.row(key, kind, StepState.CANCELLED, now, record=record))
        try:
            await execution.durable()
        except (errors.Suspended, errors.LeaseLost):
            return
        except Exception:  # noqa: BLE001 - whatever it is, the run must not hang on it
            # The record cannot be stored; the code is told all the same, so that the run ends.
            _log.exception("run %s: its cancellation could not be saved", execution.run_id)
        told = [future for _, _, future in waits if not future.done()]
        for future in told:
            future.set_exception(errors.RunCancelled("the run is being cancelled"))
        # Where a time-out or a sibling cut every one of them off meanwhile, the next step is told.
        self.is_delivered = self.is_delivered or bool(told)
