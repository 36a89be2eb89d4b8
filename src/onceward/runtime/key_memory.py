"""Keys that their receiver may have forgotten: what they protected is not sent again blindly.

A step with ``key_memory=`` saves that it began before its body does. A try that is not known to have
ended, and that comes again when the receiver no longer remembers the key, could take effect twice:
the run is held instead, and goes on when a person answers "retry".

What must stay true: the record that asks and the hold are one commit, so that a crash between them
is not taken for an answer.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from onceward.authoring.options import StepOptions
from onceward.core import errors
from onceward.core.model import Millis, StepKey, StepRow
from onceward.core.ports import RunFilter
from onceward.core.states import StepState
from onceward.runtime.records import json_text

if TYPE_CHECKING:
    from onceward.runtime.execution import Execution

FORGOTTEN = "KeyForgotten"
"""The type of the error in the record of a step about which a person was asked."""

RUNS_MAX = 100
"""Runs about the same that are looked through for earlier uses of a key, the newest."""


async def begin(execution: Execution, key: StepKey, options: StepOptions, record: StepRow | None) -> Millis:
    """Give when a step's key was first handed out, after saving that it is now if it was not before.

    Raises:
        Suspended: that is longer ago than the receiver remembers; the run is held.
    """
    now, tries = execution.worker.now_ms(), 0 if record is None else record.tries
    if record is not None and _is_answered(execution, record):
        since = now
    elif record is not None:
        since = record.started_at
    else:
        since = await _earlier_use(execution, key, options) or now
    check(execution, key, options, since, tries)
    if record is None or since == now:
        execution.save(
            execution.row(key, "run", StepState.OPEN, since, tries=tries, recorded=options.recorded)
        )
    return since


def check(execution: Execution, key: StepKey, options: StepOptions, since: Millis, tries: int) -> None:
    """Hold the run if a key that was first handed out at *since* may be forgotten by now.

    Raises:
        Suspended: it is held.
    """
    memory_ms = options.key_memory_ms
    if memory_ms is None or execution.worker.now_ms() - since <= memory_ms:
        return
    at = datetime.fromtimestamp(since / 1000, UTC).isoformat(timespec="seconds")
    reason = (
        f"the key of step {str(key)!r} may be forgotten: it was first handed out at {at}, and whoever got "
        f"it remembers it for {memory_ms / 3_600_000:g} h; look whether the step took effect"
    )
    error = json_text({"type": FORGOTTEN, "message": reason})
    execution.hold_record = execution.row(
        key, "run", StepState.OPEN, since, tries=tries, error=error, recorded=options.recorded
    )
    execution.hold_reason = reason
    execution.stop("hold")
    raise errors.Suspended("the run is held")


def _is_answered(execution: Execution, record: StepRow) -> bool:
    """Say whether a person was asked about this record and let the run go on, which is a new attempt."""
    if record.error is None or execution.attempt <= record.attempt:
        return False
    return msgspec.json.decode(record.error).get("type") == FORGOTTEN  # type: ignore[no-any-return]


async def _earlier_use(execution: Execution, key: StepKey, options: StepOptions) -> Millis | None:
    """Give when the same key was handed out before, if it was.

    By an older generation of the run, or another run of what its keys are made of: the run's own key,
    or its event.
    """
    run, worker = execution.run, execution.worker
    if options.key_scope != "business":
        return None
    if run.key is not None:
        where = RunFilter(workflow=run.workflow, key=run.key, limit=RUNS_MAX)
    elif run.generation == 1 and not run.replay_id:
        return None
    else:
        where = RunFilter(workflow=run.workflow, source=run.source, event_id=run.event_id, limit=RUNS_MAX)
    found: list[Millis] = []
    for one in await worker.read(worker.store.runs, where):
        last = run.generation - 1 if one.run_id == run.run_id else one.generation
        for generation in range(1, last + 1):
            rows: list[StepRow] = await worker.read(worker.store.steps, one.run_id, generation)
            found += [row.started_at for row in rows if row.key == key and row.kind == "run"]
    return min(found, default=None)
