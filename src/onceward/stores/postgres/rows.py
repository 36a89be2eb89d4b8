"""Rows as PostgreSQL's statements take them: a struct's fields are the columns of a JSON row set.

They carry what the stored row does not: the fence that guards it, the place in the queue. What is
null is left out of the JSON, which spares the server a tenth of the work of reading it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from onceward.core.model import (
    AttemptRow,
    DeliveryRow,
    DoneWait,
    EventRow,
    Millis,
    NewRun,
    PromiseRow,
    StepRow,
    WaitRow,
)
from onceward.core.ports import RunMove
from onceward.core.states import TERMINAL, RunState
from onceward.core.takeover import SUSPECT_FROM


class HolderColumns(msgspec.Struct):
    """A run and the fence that a commit needs it to have."""

    run_id: str
    fence: int


class StepColumns(msgspec.Struct, omit_defaults=True):
    """A checkpoint."""

    run_id: str
    fence: int
    generation: int
    name: str
    item: str
    ordinal: int
    seq: int
    kind: str
    state: str
    attempt: int
    tries: int
    started_at: Millis
    ended_at: Millis | None = None
    output: str | None = None
    error: str | None = None
    wake_at: Millis | None = None
    child_run_id: str | None = None
    origin: str | None = None
    inputs_hash: str | None = None
    effect: str | None = None
    key_scope: str | None = None
    key_memory_ms: Millis | None = None
    begun: str | None = None


class EventColumns(msgspec.Struct, omit_defaults=True):
    """An event, perhaps guarded by the run that emits it."""

    source: str
    id: str
    type: str
    received_at: Millis
    payload: str | None = None
    subject: str | None = None
    occurred_at: Millis | None = None
    content_hash: str | None = None
    by_run: str | None = None
    by_fence: int | None = None
    is_loose: bool = False
    trace: str | None = None


class RunColumns(msgspec.Struct, omit_defaults=True):
    """A run of an event that is accepted."""

    source: str
    event_id: str
    run_id: str
    workflow: str
    created_at: Millis
    replay_id: str
    is_called: bool
    depth: int
    is_claimed: bool
    deadline_at: Millis | None = None
    replay_of: str | None = None
    parent_run_id: str | None = None
    parent_generation: int | None = None
    input: str | None = None


class JudgedColumns(RunColumns, omit_defaults=True, kw_only=True):
    """A run that hangs on more than its event's being new."""

    subject: str | None = None
    version: str | None = None
    drops_stale: bool | None = None  # false is a default of bool's, which would be left out
    key: str | None = None
    once: str | None = None
    window_ms: Millis | None = None
    clash: str | None = None
    payload_hash: str | None = None
    hold_reason: str | None = None


class KeyColumns(msgspec.Struct, frozen=True, order=True):
    """A key that a commit claims or gives free."""

    workflow: str
    key: str


class FreedColumns(msgspec.Struct):
    """A run with a key that ended."""

    run_id: str
    fence: int
    workflow: str
    key: str
    state: str
    now: Millis


class RaiseColumns(msgspec.Struct):
    """The version of its subject that an event brings, for one workflow."""

    source: str
    event_id: str
    workflow: str
    subject: str
    version: str


class DeliveryColumns(msgspec.Struct, omit_defaults=True):
    """A delivery of an event."""

    source: str
    event_id: str
    delivery_id: str
    received_at: Millis
    content_hash: str
    is_first: bool = False
    earlier: int = 0  # deliveries of the same event that come before it in the batch
    part: int = 0
    event_hash: str | None = None
    secret_index: int | None = None
    sent_at: Millis | None = None
    request: str | None = None
    body: bytes | None = None  # encoded as base64


class MoveColumns(msgspec.Struct, omit_defaults=True):
    """A run's new standing and its place in the queue."""

    run_id: str
    fence: int
    state: str
    generation: int
    attempt: int
    failures: int
    crashes: int
    now: Millis
    is_out: bool
    is_suspect: int
    deadline_at: Millis | None = None
    started_at: Millis | None = None
    ended_at: Millis | None = None
    output: str | None = None
    error: str | None = None
    reason: str | None = None
    problem_at: Millis | None = None
    dismissed_at: Millis | None = None
    warning: str | None = None
    due_at: Millis | None = None


class WakeColumns(msgspec.Struct):
    """A run to wake, and the run whose end does it."""

    run_id: str
    now: Millis
    by_run: str
    by_fence: int


class WaitColumns(msgspec.Struct, omit_defaults=True):
    """An event that would end an open wait."""

    run_id: str
    fence: int
    generation: int
    name: str
    item: str
    ordinal: int
    part: int
    type: str
    subject: str
    source: str
    since_at: Millis
    until_at: Millis | None = None
    condition: str | None = None


class DoneWaitColumns(msgspec.Struct, omit_defaults=True):
    """A wait that is over."""

    run_id: str
    fence: int
    generation: int
    name: str
    item: str
    ordinal: int
    source: str | None = None
    event_id: str | None = None


class PromiseColumns(msgspec.Struct, omit_defaults=True):
    """A promise that is made."""

    token_hash: str
    run_id: str
    fence: int
    generation: int
    name: str
    item: str
    ordinal: int
    created_at: Millis
    expires_at: Millis | None = None


class AttemptColumns(msgspec.Struct, omit_defaults=True):
    """The record of an attempt that ended."""

    run_id: str
    fence: int
    generation: int
    attempt: int
    ended_at: Millis
    outcome: str
    started_at: Millis | None = None
    error: str | None = None
    process_id: str | None = None
    failed_steps: str | None = None


def is_off_queue(state: RunState) -> bool:
    """Say whether a run in *state* has no row in the queue."""
    return state in TERMINAL or state is RunState.HELD


def is_suspect(crashes: int) -> int:
    """Say, as the queue's column has it, whether a run may kill whoever takes it."""
    return int(crashes >= SUSPECT_FROM)


def step_columns(run_id: str, fence: int, generation: int, steps: Sequence[StepRow]) -> list[StepColumns]:
    """Give a run's checkpoints, each step once, sorted by key."""
    columns = [
        StepColumns(
            run_id,
            fence,
            generation,
            step.name,
            step.item,
            step.ordinal,
            step.seq,
            step.kind,
            step.state,
            step.attempt,
            step.tries,
            step.started_at,
            step.ended_at,
            step.output,
            step.error,
            step.wake_at,
            step.child_run_id,
            step.origin,
            step.inputs_hash,
            step.effect,
            step.key_scope,
            step.key_memory_ms,
            step.begun,
        )
        for step in steps
    ]
    return columns if len(columns) < 2 else _each_step_once(columns)


def _each_step_once(columns: list[StepColumns]) -> list[StepColumns]:
    # One command may touch a row once. This is what several would have left, one after the other.
    found: dict[tuple[str, str, int], StepColumns] = {}
    for row in columns:
        key = (row.name, row.item, row.ordinal)
        first = found.get(key)
        if first is None:
            found[key] = row
        elif first.state == "open":
            row.kind, row.started_at = first.kind, first.started_at
            row.origin, row.inputs_hash = first.origin, first.inputs_hash
            found[key] = row
    return [found[key] for key in sorted(found)]


def event_columns(event: EventRow, by_run: str | None, by_fence: int | None) -> EventColumns:
    """Give an event with the fence that guards it."""
    return EventColumns(
        event.source,
        event.id,
        event.type,
        event.received_at,
        event.payload,
        event.subject,
        event.occurred_at,
        event.content_hash,
        by_run,
        by_fence,
        not event.id_is_signed,
        event.trace,
    )


def run_columns(event: EventRow, run: NewRun) -> RunColumns:
    """Give a run of an event."""
    return RunColumns(*_run_values(event, run))


def is_judged(event: EventRow, run: NewRun) -> bool:
    """Say whether a run hangs on more than its event's being new."""
    return has_version(event, run) or run.key is not None or run.hold_reason is not None


def has_version(event: EventRow, run: NewRun) -> bool:
    """Say whether an event brings a version of its subject for a run's workflow."""
    return run.version is not None and event.subject is not None


def judged_columns(event: EventRow, run: NewRun) -> JudgedColumns:
    """Give a run of an event with what it hangs on."""
    is_versioned = has_version(event, run)
    return JudgedColumns(
        *_run_values(event, run),
        subject=event.subject if is_versioned else None,
        version=run.version if is_versioned else None,
        drops_stale=run.drops_stale,
        key=run.key,
        once=run.once,
        window_ms=run.window_ms,
        clash=run.clash,
        payload_hash=run.payload_hash,
        hold_reason=run.hold_reason,
    )


def raise_columns(row: JudgedColumns) -> RaiseColumns | None:
    """Give the version that an event brings, if it brings one."""
    if row.subject is None or row.version is None:
        return None
    return RaiseColumns(row.source, row.event_id, row.workflow, row.subject, row.version)


def freed_columns(run_id: str, fence: int, move: RunMove) -> FreedColumns | None:
    """Give a run that a move ends and that has a key; None for any other."""
    if move.key is None or move.state not in TERMINAL:
        return None
    return FreedColumns(run_id, fence, *move.key, move.state, move.now)


def _run_values(event: EventRow, run: NewRun) -> tuple[Any, ...]:
    return (
        event.source,
        event.id,
        run.run_id,
        run.workflow,
        run.created_at,
        run.replay_id,
        run.is_called,
        run.depth,
        run.is_claimed,
        run.deadline_at,
        run.replay_of,
        run.parent_run_id,
        run.parent_generation,
        run.input,
    )


def delivery_columns(event: EventRow, row: DeliveryRow, *, is_first: bool, earlier: int) -> DeliveryColumns:
    """Give a delivery of an event, of which the batch has some *earlier* ones."""
    return DeliveryColumns(
        row.source,
        row.event_id,
        row.delivery_id,
        row.received_at,
        row.content_hash,
        is_first,
        earlier,
        row.part,
        event.content_hash,
        row.secret_index,
        row.sent_at,
        row.request,
        row.body,
    )


def move_columns(run_id: str, fence: int, move: RunMove) -> MoveColumns:
    """Give a run's new standing and its place in the queue."""
    return MoveColumns(
        run_id,
        fence,
        move.state,
        move.generation,
        move.attempt,
        move.failures,
        move.crashes,
        move.now,
        is_off_queue(move.state),
        is_suspect(move.crashes),
        move.deadline_at,
        move.started_at,
        move.ended_at,
        move.output,
        move.error,
        move.reason,
        move.problem_at,
        move.dismissed_at,
        move.warning,
        move.due_at,
    )


def attempt_columns(run_id: str, fence: int, row: AttemptRow) -> AttemptColumns:
    """Give an attempt's record."""
    return AttemptColumns(
        run_id,
        fence,
        row.generation,
        row.attempt,
        row.ended_at,
        row.outcome,
        row.started_at,
        row.error,
        row.process_id,
        row.failed_steps,
    )


def wait_columns(fence: int, wait: WaitRow) -> WaitColumns:
    """Give an event that would end an open wait."""
    return WaitColumns(
        wait.run_id,
        fence,
        wait.generation,
        *wait.key,
        wait.part,
        wait.type,
        wait.subject,
        wait.source,
        wait.since_at,
        wait.until_at,
        wait.condition,
    )


def done_wait_columns(run_id: str, fence: int, generation: int, done: DoneWait) -> DoneWaitColumns:
    """Give a wait that is over."""
    return DoneWaitColumns(run_id, fence, generation, *done.key, done.source, done.event_id)


def promise_columns(fence: int, row: PromiseRow) -> PromiseColumns:
    """Give a promise that is made."""
    return PromiseColumns(
        row.token_hash, row.run_id, fence, row.generation, *row.key, row.created_at, row.expires_at
    )
