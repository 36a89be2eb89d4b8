"""Events and runs that a run starts: each exactly once, together with the checkpoint that says so.

In a workflow they are steps of their own; inside a step's body they gather in its frame and
commit with its outcome, or not at all (RULINGS 27).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from onceward.authoring.current import Frame
from onceward.authoring.workflow import Workflow
from onceward.core import errors, ids, json_plain
from onceward.core.asked import clash
from onceward.core.model import EventRow, Millis, NewRun, RunRow, Skip, StepKey, StepRow
from onceward.core.ports import Accept
from onceward.core.shown import shown
from onceward.core.states import RunState, StepState
from onceward.core.texts import checked_name, checked_subject
from onceward.runtime.records import error_text, json_text
from onceward.runtime.tracing import traceparent

if TYPE_CHECKING:
    from onceward.runtime.execution import Execution

DEPTH_MAX = 100
"""Runs that start runs that start runs: beyond this it is a loop (F50)."""


def check_depth(run: RunRow) -> None:
    """Refuse a chain of runs that starts itself for ever."""
    if run.depth >= DEPTH_MAX:
        raise errors.StepMisuse(
            f"Run {run.run_id} is {run.depth} starts deep.",
            means="Workflows that start or trigger each other in a circle would never end.",
            todo="Break the circle: do not emit the event that started the run.",
        )


async def emit(
    execution: Execution, key: StepKey, type_: str, payload: Any, subject: str | None
) -> tuple[str, str]:
    """Emit once; give the event's source and id."""
    record = await execution.saved(key, "emit")
    run_id, generation = execution.maker_of(record)
    source, event_id = f"run/{run_id}", ids.composed(generation, *key)
    if record is None or record.state is StepState.OPEN:
        await execution.durable()
        accept = _emit_accept(execution, source, event_id, type_, payload, subject)
        now = execution.worker.now_ms()
        execution.save(execution.row(key, "emit", StepState.DONE, now, output=json_text(event_id)), [accept])
        if execution.recall.has_queue():
            await execution.recall.take_turn()
    return source, event_id


def _check_open(frame: Frame, verb: str) -> None:
    if frame.is_over:
        raise errors.CallOutsideStep(
            f"app.{verb} was called after the body of step {str(frame.key)!r} had ended.",
            means="What a body leaves running is not part of its step, so this would be lost.",
            todo=f"Await it inside the body, or use `await ctx.step.{verb}(name, …)` in the workflow.",
        )


def emit_inside(
    execution: Execution,
    frame: Frame,
    type_: str,
    payload: Any,
    event_id: str | None,
    subject: str | None,
    occurred_at: Millis | None,
    *,
    is_posted: bool = False,
) -> Accept:
    """Emit inside a step's body: stored if and only if the step's outcome is.

    One that is posted hangs on another transaction, which the body may make more than once: its id
    is the same then.
    """
    _check_open(frame, "emit")
    if is_posted:
        posted_id = event_id or frame.posted_id()
        accept = _emit_accept(
            execution, f"emit/{type_}", posted_id, type_, payload, subject, occurred_at=occurred_at
        )
        return accept if event_id is not None else _unhashed(accept)
    source = f"emit/{type_}" if event_id is not None else f"run/{execution.run_id}"
    if event_id is None:
        event_id = ids.composed(execution.generation, *frame.key, len(frame.accepts) + 1)
    accept = _emit_accept(execution, source, event_id, type_, payload, subject, occurred_at=occurred_at)
    return _added(frame, accept)


def _added(frame: Frame, accept: Accept) -> Accept:
    """Let an event commit with the step; give what the body said before under its id, if it did.

    Raises:
        IdClash: that was something else.
    """
    event = accept.event
    for other in frame.accepts if event.content_hash is not None else ():  # else its id was drawn
        if accept.is_same_event(other):
            if other.event.content_hash != event.content_hash:
                raise clash(event.source, event.id)
            return other
    frame.accepts.append(accept)
    return accept


def _unhashed(accept: Accept) -> Accept:
    """Give it without the mark of its content: a body that runs again may say it in other words."""
    event = msgspec.structs.replace(accept.event, content_hash=None)
    return msgspec.structs.replace(accept, event=event)


def start_inside(
    execution: Execution,
    frame: Frame,
    workflow: Workflow[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    event_id: str | None,
    *,
    is_posted: bool = False,
) -> Accept:
    """Start a run inside a step's body: it exists if and only if the step's outcome does."""
    _check_open(frame, "start")
    if is_posted:
        posted_id = event_id or frame.posted_id()
        source = f"start/{workflow.name}"
        accept = _child_accept(execution, workflow, args, kwargs, source, posted_id, is_called=False)
        return accept if event_id is not None else _unhashed(accept)
    source = f"start/{workflow.name}" if event_id is not None else f"run/{execution.run_id}"
    if event_id is None:
        event_id = ids.composed(execution.generation, *frame.key, len(frame.accepts) + 1, ids.START)
    accept = _child_accept(execution, workflow, args, kwargs, source, event_id, is_called=False)
    return _added(frame, accept)


def _child_accept(
    execution: Execution,
    workflow: Workflow[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    source: str,
    event_id: str,
    *,
    is_called: bool,
) -> Accept:
    worker, now = execution.worker, execution.worker.now_ms()
    check_depth(execution.run)
    payload = workflow.pack(args, kwargs, limit_bytes=worker.settings.value_bytes_max)
    deadline_ms = workflow.policies.deadline_ms
    run = NewRun(
        run_id=worker.ids.run_id(),
        workflow=workflow.name,
        created_at=now,
        deadline_at=None if deadline_ms is None else now + deadline_ms,
        parent_run_id=execution.run_id,
        parent_generation=execution.generation,
        is_called=is_called,
        depth=execution.run.depth + 1,
    )
    event = EventRow(
        source=source,
        id=event_id,
        type=workflow.name,
        payload=payload,
        received_at=now,
        content_hash=ids.content_hash(payload) if source.startswith("start/") else None,
        trace=traceparent(worker.tracer),
    )
    run = worker.keys.keyed(run, event, workflow)
    return Accept(event, [run], by_run=execution.run_id, by_fence=execution.run.fence)


async def start(
    execution: Execution,
    key: StepKey,
    workflow: Workflow[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    is_called: bool,
) -> Any:
    """Start a child once; give its id, or wait for its outcome and save that."""
    kind = "call" if is_called else "start"
    if not isinstance(workflow, Workflow):
        name = getattr(workflow, "name", None) or getattr(workflow, "__name__", None)
        raise errors.WorkflowUnknown(
            f"ctx.step.{kind} was given {shown(name or workflow)}, which is not a workflow.",
            means="Nothing was started.",
            todo=f"Decorate it with @app.workflow(); a function is run with ctx.step.run({str(key)!r}, …).",
        )
    record = await execution.saved(key, kind)
    run_id, generation = execution.maker_of(record)
    source, event_id = f"run/{run_id}", ids.composed(generation, *key, ids.START)
    if record is not None and record.state is StepState.FAILED:
        return execution.answer(record, workflow.result_codec)
    is_new = record is None or record.child_run_id is None
    if record is None or is_new:
        await execution.durable()
        accept = _child_accept(execution, workflow, args, kwargs, source, event_id, is_called=is_called)
        child_run_id, business_key = accept.runs[0].run_id, accept.runs[0].key
        if business_key is not None and is_called:
            error = await execution.worker.keys.cycle_of(execution.run, workflow.name, business_key)
            execution.check_usable()
            if error is not None:
                return execution.answer(_refused(execution, key, error), workflow.result_codec)
        state = StepState.OPEN if is_called else StepState.DONE
        record = execution.row(key, kind, state, execution.worker.now_ms(), child_run_id=child_run_id)
        execution.save(record, [accept])
        execution.worker.children.made(execution)
        if not is_called and execution.recall.has_queue():
            await execution.recall.take_turn()
    if record.child_run_id is None:
        execution.mismatch(key, "its record names no run")
    holder_run_id = None
    # The outcome of a call names the run that gave it; what was started is told again each time.
    is_untold = record.state is (StepState.OPEN if is_called else StepState.DONE)
    if workflow.policies.rules.key is not None and is_untold:
        record, holder_run_id = await _unless_skipped(execution, key, workflow, record, source, event_id)
    if not is_called:
        return holder_run_id or record.child_run_id
    if record.state is StepState.OPEN and holder_run_id is None and workflow.policies.rules.clash == "queue":
        record = await _unless_in_circle(execution, key, record)
    if record.state is StepState.OPEN:
        record = await _called(execution, key, record, holder_run_id, is_new=is_new)
    return execution.answer(record, workflow.result_codec)


async def _unless_skipped(
    execution: Execution,
    key: StepKey,
    workflow: Workflow[..., Any],
    record: StepRow,
    source: str,
    event_id: str,
) -> tuple[StepRow, str | None]:
    """Give the record of a child, and the run that holds its key: then there is no child.

    Raises:
        KeyTaken: a detached start whose workflow rejects it.
    """
    worker = execution.worker
    await execution.durable()
    rows = await worker.insist(worker.read, worker.store.skipped, source, event_id)
    skipped = next((row for row in rows if row.workflow == workflow.name), None)
    if skipped is None:
        return record, None
    business_key, holder_run_id = skipped.key or "", skipped.holder_run_id or ""
    error: errors.OncewardError | None = None
    if skipped.reason is not Skip.RETURNED:
        error = errors.KeyTaken(workflow.name, business_key, holder_run_id)
    elif record.kind == "call":
        # Only now, when both are stored, do two runs that wait for each other see it.
        error = await worker.keys.cycle(execution.run, workflow.name, business_key, holder_run_id)
        execution.check_usable()
    if error is None:
        return record, holder_run_id
    if record.kind == "start":
        raise error
    return _refused(execution, key, error, record), None


async def _unless_in_circle(execution: Execution, key: StepKey, record: StepRow) -> StepRow:
    """Give the record of a call, failed where its run is in line for a key whose holder waits for the caller.

    Two that call for each other's keys at one moment find nothing before; now that both are stored, whoever
    comes second does, or both do.
    """
    worker, child_run_id = execution.worker, record.child_run_id
    assert child_run_id is not None
    await execution.durable()
    rows = await worker.insist(worker.read, worker.store.states, [child_run_id])
    child = rows.get(child_run_id)
    if child is None or child.state is not RunState.QUEUED or child.key is None:
        return record
    error = await worker.keys.cycle_of(execution.run, child.workflow, child.key)
    execution.check_usable()
    if error is None:
        return record
    await worker.children.cancel(child_run_id)  # it has not begun; nobody is to wait for it
    execution.check_usable()
    return _refused(execution, key, error, record)


def _refused(
    execution: Execution, key: StepKey, error: errors.OncewardError, record: StepRow | None = None
) -> StepRow:
    """Save that a call failed for good, so that it fails the same at every attempt."""
    text = error_text(error, is_final=True)
    now = execution.worker.now_ms()
    failed = execution.row(key, "call", StepState.FAILED, now, record=record, error=text)
    execution.save(failed)
    return failed


async def _called(
    execution: Execution, key: StepKey, record: StepRow, holder_run_id: str | None, *, is_new: bool
) -> StepRow:
    """Wait for a called run's end and save its outcome before the code sees it (I11).

    Where another run holds the key of the called one, its outcome counts. It is not this run's child:
    it is not cancelled with it, so the open record goes on to name the run that there is not.
    """
    child_run_id: str = holder_run_id or record.child_run_id  # type: ignore[assignment]
    is_new = is_new and holder_run_id is None
    children = execution.worker.children
    future: asyncio.Future[RunRow] = execution.loop.create_future()
    execution.called.setdefault(child_run_id, []).append(future)
    if holder_run_id is not None:
        children.joined(execution, holder_run_id)
    try:
        if not is_new:
            # It may have ended before this go began, and then nobody will say so.
            execution.unseen.add(child_run_id)
        await execution.durable()
        if record.tries == 0:
            # A retry reopened the call: it retries the child, once, and this record says that it did.
            await children.retry(child_run_id)
            execution.check_usable()
            record = execution.row(key, "call", StepState.OPEN, record.started_at, record=record)
            execution.save(record)
        if not is_new:
            children.watch(execution)
        child: RunRow = await execution.parking.park(None, future)
    finally:
        if execution.stopping != "suspend":
            execution.called[child_run_id].remove(future)
            if not execution.called[child_run_id]:
                del execution.called[child_run_id]
        if holder_run_id is not None:
            children.left(execution, holder_run_id)
    now = execution.worker.now_ms()
    if child.state is RunState.COMPLETED:
        row = execution.row(
            key, "call", StepState.DONE, now, record=record, output=child.output, child_run_id=child_run_id
        )
    else:
        text = child.error or json_text(
            {"type": "RunWasCancelled", "message": f"the called run {child_run_id} was cancelled"}
        )
        row = execution.row(key, "call", StepState.FAILED, now, record=record, error=text)
    # Not durable yet when the code sees it, like any outcome (RULINGS 5): the order in which
    # outcomes are saved must be the order in which the code sees them.
    execution.save(row)
    if execution.recall.has_queue():
        await execution.recall.take_turn()
    return row


def _emit_accept(
    execution: Execution,
    source: str,
    event_id: str,
    type_: str,
    payload: Any,
    subject: str | None,
    *,
    occurred_at: Millis | None = None,
) -> Accept:
    """Give the commit of an event emitted inside a run, guarded by the run's fence."""
    worker = execution.worker
    check_depth(execution.run)
    checked_name(type_, "event type")
    now = worker.now_ms()
    text = json_plain.encode_payload(
        payload, what=f"The payload of event {type_!r}", limit_bytes=worker.settings.value_bytes_max
    )
    event = EventRow(
        source=source,
        id=event_id,
        type=type_,
        payload=text,
        received_at=now,
        subject=checked_subject(subject),
        occurred_at=occurred_at,
        # Where the caller chose the id, others may choose it too; see IdClash.
        content_hash=ids.content_hash(text) if source.startswith("emit/") else None,
        trace=traceparent(worker.tracer),
    )
    run = execution.run
    return worker.routing.accept(event, parent=run, by_run=run.run_id, by_fence=run.fence)
