"""What becomes of a run when this go at its code is over: the commit that says so."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from onceward.authoring.made import not_awaited
from onceward.core import errors, retry, takeover
from onceward.core.model import AttemptRow, Millis, RunRow, StepKey, StepRow
from onceward.core.ports import RunMove
from onceward.core.rules import AWAITS
from onceward.core.states import TERMINAL, RunState, StepState
from onceward.core.steer import key_of
from onceward.runtime import unknown
from onceward.runtime.records import deadline_error, error_text, failed_steps, json_text, one_line, saved_line

if TYPE_CHECKING:
    from onceward.runtime.execution import Execution
    from onceward.runtime.journal import Journal

_log = logging.getLogger("onceward.run")

NO_CLEAN_UP = {"type": "Poison", "message": "its clean-up lost its process too often and was given up"}

COUNTED = TERMINAL | {RunState.HELD}
"""States in which a run is left to itself, or to a person."""

FAR_MS = 100 * 366 * 86_400_000
"""A due time for runs that wait for something without a time of their own."""


@dataclass(frozen=True)
class Verdict:
    """What the end of the code means for the run.

    Attributes:
        output: its result as JSON text, if it is completed.
        failure: JSON text of what failed it, if it failed.
        error: the same as it was raised.
        delay_ms: when the next attempt begins; None if there is none.
    """

    output: str | None = None
    failure: str | None = None
    error: BaseException | None = None
    delay_ms: Millis | None = None


NO_VERDICT = Verdict()
"""Of a run whose code is not over, or whose end is decided by what stopped it."""


def judge(execution: Execution, value: Any, error: BaseException | None) -> Verdict:
    """Say what the end of the code means.

    Args:
        execution: the run, its code unwound.
        value: what the workflow returned.
        error: what it raised, or what unwound it.
    """
    why = execution.stopping
    if (
        execution.cancel.is_on
        or execution.hold_reason is not None
        or why not in (None, "rewound", "deadline")
    ):
        return NO_VERDICT
    if execution.undoing.failure is not None:
        return Verdict(failure=execution.undoing.failure)
    if why == "deadline":
        return _failed(execution, deadline_error(execution.run), may_retry=False)
    if error is None:
        return _result(execution, value)
    if isinstance(error, asyncio.CancelledError) and execution.worker.is_cut_down():
        return NO_VERDICT
    # What was undone would count as done for the next attempt.
    return _failed(execution, error, may_retry=not execution.undoing.undone)


async def finish(execution: Execution, error: BaseException | None, verdict: Verdict) -> None:
    """Commit what became of this go at the run.

    Args:
        execution: the run, its code unwound.
        error: what the code raised, or what unwound it.
        verdict: what that means.
    """
    why = execution.stopping
    if why == "lost":
        return
    if why == "suspend" and execution.questions:
        await _hold(execution, *unknown.questions(execution))
    elif why == "suspend":
        await _leave_until_due(execution)
    elif why == "release":
        state = RunState.CANCELLING if execution.cancel.is_on else RunState.QUEUED
        await _end(execution, move_of(execution, state, due_at=execution.worker.now_ms()))
    elif execution.cancel.is_on and execution.undoing.is_over and why == "hold":
        await _hold(execution, execution.hold_reason or "held")
    elif execution.cancel.is_on:
        move = move_of(execution, RunState.CANCELLED, error=_clean_up_error(execution, error))
        move.warning = _warning(execution, [])
        await _end(execution, move)
    elif why == "hold" or execution.hold_reason is not None:
        record = execution.hold_record
        await _hold(execution, execution.hold_reason or "held", [] if record is None else [record])
    elif verdict.failure is not None:
        await _fail(execution, verdict)
    elif verdict is not NO_VERDICT:
        move = move_of(execution, RunState.COMPLETED, output=verdict.output)
        move.warning = _warning(execution, execution.recall.unreached())
        await _end(execution, move)
    else:
        execution.stopping = "lost"


def is_over(execution: Execution, verdict: Verdict) -> bool:
    """Say whether the code came to an end, and was not only taken out of memory or held."""
    if execution.stopping in ("lost", "suspend", "release", "hold"):
        return False
    return execution.cancel.is_on or (execution.hold_reason is None and verdict is not NO_VERDICT)


def is_given_up(run: RunRow) -> bool:
    """Say whether the clean-up of a cancelled run has killed its holders too often to be tried again."""
    return run.state is RunState.CANCELLING and run.crashes >= takeover.CRASH_LIMIT


def _clean_up_error(execution: Execution, error: BaseException | None) -> str | None:
    """Give what went wrong while a run was being cancelled.

    It ends all the same: a held run could be answered, and a run whose cancel was acknowledged must
    not go on (I17).
    """
    if is_given_up(execution.run):
        return json_text(NO_CLEAN_UP)
    if execution.hold_reason is not None:
        return error_text(errors.HistoryMismatch(f"The clean-up stopped: {execution.hold_reason}."))
    if error is None or isinstance(error, errors.RunCancelled):
        return None
    if isinstance(error, BaseExceptionGroup) and error.split(errors.RunCancelled)[1] is None:
        return None
    return error_text(error)


def _result(execution: Execution, value: Any) -> Verdict:
    workflow = execution.workflow
    if forgotten := execution.made.take_forgotten(execution.loop):
        return _failed(execution, not_awaited(forgotten, f"workflow {workflow.name!r}"), may_retry=False)
    try:
        text = workflow.result_codec.encode(
            value,
            what=workflow.result_name,
            limit_bytes=execution.worker.settings.value_bytes_max,
        )
    except errors.OncewardError as error:
        return _failed(execution, error, may_retry=False)
    return Verdict(output=text)


def _failed(execution: Execution, error: BaseException, *, may_retry: bool) -> Verdict:
    worker, run = execution.worker, execution.run
    now = worker.now_ms()
    decision = retry.decide(
        execution.workflow.policies.retry,
        tries=run.failures + 1,
        error=error,
        elapsed_ms=now - (run.started_at or now),
        draw=worker.ids.draw(),
        now_ms=now,
    )
    return Verdict(failure=error_text(error), error=error, delay_ms=decision.delay_ms if may_retry else None)


def _warning(execution: Execution, unreached: list[str]) -> str | None:
    """Give what was odd about the run's end, as JSON text."""
    if not unreached and not execution.undoing.undone:
        return None
    told = {"steps_no_longer_reached": unreached[:100], "undone": execution.undoing.undone}
    return json_text({name: steps for name, steps in told.items() if steps})


async def _fail(execution: Execution, verdict: Verdict) -> None:
    worker, run, error = execution.worker, execution.run, verdict.error
    now, text = worker.now_ms(), verdict.failure
    failed = [] if error is None else _to_run_again(execution, failed_steps(error))
    log = AttemptRow(
        generation=run.generation,
        attempt=run.attempt,
        started_at=run.started_at,
        ended_at=now,
        outcome="failed",
        error=text,
        process_id=worker.process_id,
        failed_steps=msgspec.json.encode([row.key for row in failed]).decode() if failed else None,
    )
    line = worker.redaction.text(saved_line(text) if error is None else one_line(error))
    if verdict.delay_ms is not None:
        _log.warning(
            "run %s of %s: attempt %d failed, the next begins in %d ms: %s",
            run.run_id,
            run.workflow,
            run.attempt,
            verdict.delay_ms,
            line,
        )
        pending = execution.operation()
        for row in failed:
            pending.steps[row.key] = _reopened(row)
        move = move_of(execution, RunState.BACKOFF, due_at=now + verdict.delay_ms, error=text)
        move.attempt, move.failures = run.attempt + 1, run.failures + 1
    else:
        _log.warning("run %s of %s failed: %s", run.run_id, run.workflow, line)
        move = move_of(execution, RunState.FAILED, error=text, problem_at=now)
        move.warning = _warning(execution, [])
        move.failures = run.failures + 1
    move.log = log
    await _end(execution, move)


def _to_run_again(execution: Execution, failed: list[StepKey]) -> list[StepRow]:
    """Give the failures that ended the attempt, and what they made the code cut off (RULINGS 19).

    A task group cuts the siblings of a failure; without them the next attempt could not finish.
    """
    rows = [row for key in failed if (row := execution.latest(key)) is not None]
    if not rows:
        return []
    return rows + execution.cut_after(min(row.seq for row in rows))


def _reopened(row: StepRow) -> StepRow:
    wake_at = row.wake_at if row.kind == "sleep" else None  # a deadline never moves (I14)
    begun = None if row.state is StepState.FAILED else row.begun  # what was cut off may have happened
    return msgspec.structs.replace(
        row,
        state=StepState.OPEN,
        tries=0,
        output=None,
        error=None,
        ended_at=None,
        wake_at=wake_at,
        begun=begun,
    )


async def _hold(execution: Execution, reason: str, records: Sequence[StepRow] = ()) -> None:
    _log.warning("run %s of %s is held: %s", execution.run_id, execution.run.workflow, reason)
    now = execution.worker.now_ms()
    move = move_of(execution, RunState.HELD, reason=reason, problem_at=now)
    await _end(execution, move, records)


def unstorable_text(error: errors.OncewardError) -> str:
    """Give why a run is held whose commit the store refuses for what is in it."""
    return f"not storable: {error.what}"


async def hold_unstorable(execution: Execution, error: errors.OncewardError) -> None:
    """Hold a run whose end the store refused; what it wanted to save with it is dropped."""
    execution.forget_refused()
    await _hold(execution, unstorable_text(error))


async def _leave_until_due(execution: Execution) -> None:
    """Leave memory: the row alone waits from here on."""
    run, parking, is_cancelling = execution.run, execution.parking, execution.cancel.is_on
    now = execution.worker.now_ms()
    wakes = [wake for wake in parking.wakes if wake is not None]
    due_at = min(wakes, default=now + FAR_MS)
    if run.deadline_at is not None and not is_cancelling:
        due_at = min(due_at, run.deadline_at)
    if is_cancelling:
        state, reason = RunState.CANCELLING, None
    elif awaited := [*execution.waits.texts.values(), *sorted(execution.called)]:
        state, reason = RunState.WAITING, AWAITS + ", ".join(awaited[:10])
    elif not wakes:
        await _end(execution, move_of(execution, RunState.QUEUED, due_at=now))
        return
    elif parking.backing_off:
        state, reason = RunState.BACKOFF, None
    else:
        state, reason = RunState.SLEEPING, None
    await _end(execution, move_of(execution, state, due_at=due_at, reason=reason))


def move_of(execution: Journal, state: RunState, **changes: Any) -> RunMove:
    """Give the run's new mutable part: as it is, save for the state and *changes*."""
    run, now = execution.run, execution.worker.now_ms()
    is_end = state in TERMINAL
    move = RunMove(
        state=state,
        generation=run.generation,
        attempt=run.attempt,
        failures=run.failures,
        crashes=run.crashes,
        deadline_at=run.deadline_at,
        started_at=run.started_at,
        ended_at=now if is_end else None,
        now=now,
        warning=run.warning,
        dismissed_at=None,
        wakes_run_id=run.parent_run_id if is_end and run.is_called else None,
        key=key_of(run),
        has_waits=execution.has_waits,
    )
    for name, value in changes.items():
        setattr(move, name, value)
    return move


async def _end(execution: Execution, move: RunMove, records: Sequence[StepRow] = ()) -> None:
    """Commit the move together with whatever checkpoint still waits (RULINGS 5)."""
    execution.check_saved()
    pending = execution.operation()
    pending.advance.move = move
    for record in records:
        pending.steps[record.key] = record
    if not execution.is_ending:
        execution.is_ending = True
        execution.worker.claiming.ending()
    if not await pending.future:
        raise errors.LeaseLost("The run was taken over or steered by an operator.")
    run = execution.run
    if move.state in COUNTED:
        execution.worker.counters.runs.add(run.workflow, move.state.value)
    run.state, run.attempt, run.failures = move.state, move.attempt, move.failures
    run.ended_at, run.output, run.error, run.reason = move.ended_at, move.output, move.error, move.reason
