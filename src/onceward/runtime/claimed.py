"""What a claim gives: rows of runs that are this process's own from here on."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from onceward.core.model import EventRow, Millis, NewRun, RunRow
from onceward.core.ports import RunMove
from onceward.core.states import RunState
from onceward.runtime.committer import PendingAdvance

if TYPE_CHECKING:
    from onceward.runtime.worker import Worker

_log = logging.getLogger("onceward.worker")


def claimed_row(run: NewRun, event: EventRow) -> RunRow:
    """Give the row of a run that was written as ours, without reading it back."""
    return RunRow(
        run_id=run.run_id,
        workflow=run.workflow,
        source=event.source,
        event_id=event.id,
        created_at=run.created_at,
        state=RunState.RUNNING,
        fence=1,
        started_at=run.created_at,
        deadline_at=run.deadline_at,
        replay_id=run.replay_id,
        parent_run_id=run.parent_run_id,
        parent_generation=run.parent_generation,
        is_called=run.is_called,
        depth=run.depth,
        input=run.input,
        is_stale=run.is_stale,
        key=run.key,
    )


def is_fresh(run: RunRow) -> bool:
    """Say whether a claimed run was never claimed before, so that it has no history."""
    return run.fence == 1 and run.attempt == 1 and run.generation == 1 and run.replay_of is None


def held_move(run: RunRow, now: Millis, reason: str) -> RunMove:
    """Give the move that holds a claimed run without having run its code."""
    return RunMove(
        state=RunState.HELD,
        generation=run.generation,
        attempt=run.attempt,
        failures=run.failures,
        crashes=run.crashes,
        deadline_at=run.deadline_at,
        started_at=run.started_at,
        reason=reason,
        problem_at=now,
        now=now,
    )


def hold_unreadable(worker: Worker, run: RunRow) -> None:
    """Hold a run whose records cannot be read: damaged rows must not stop the others (F27)."""
    pending = PendingAdvance(run.run_id, run.generation, run.fence, worker.loop)
    pending.advance.move = held_move(run, worker.now_ms(), "damaged: its saved steps cannot be read")
    worker.committer.add(pending)
    _log.error(
        "run %s of %s is held: its saved steps cannot be read",
        run.run_id,
        run.workflow,
        extra={"run_id": run.run_id, "workflow": run.workflow},
    )
