"""The rows that stores keep, as values: events, deliveries, runs, steps, attempts.

Everything above the stores talks in these. They are plain structs with text, integers and
JSON text in them, never decoded user values, so that reading the store cannot run code (I25).
Times are Unix milliseconds of the store's clock. The namespace is not in the rows: a process
serves one, and its store adds it to every statement.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from onceward.core.states import RunState, StepState

Millis = int


class StepKey(NamedTuple):
    """What identifies a step inside one generation of a run (RULINGS 15)."""

    name: str
    item: str
    ordinal: int

    def __str__(self) -> str:
        """Give the text for people: ``charge``, ``charge[order-7]``, ``charge #2``."""
        item = f"[{self.item}]" if self.item else ""
        ordinal = f" #{self.ordinal}" if self.ordinal > 1 else ""
        return f"{self.name}{item}{ordinal}"


class EventRow(msgspec.Struct, frozen=True):
    """An immutable fact; ``(source, id)`` is unique in the namespace."""

    source: str
    id: str
    type: str
    payload: str | None  # JSON text; None once retention has pruned it
    received_at: Millis
    subject: str | None = None
    occurred_at: Millis | None = None
    content_hash: str | None = None  # only where the id comes from outside, to see clashes


class DeliveryRow(msgspec.Struct, frozen=True):
    """One HTTP request that carried an event."""

    delivery_id: str
    source: str
    event_id: str
    received_at: Millis
    content_hash: str
    secret_index: int | None = None
    request: str | None = None  # JSON: method, path, allowed headers
    body: bytes | None = None  # None when the event's payload is the body, byte for byte
    outcome: str = ""  # what the store found: accepted, duplicate or clash


class NewRun(msgspec.Struct, frozen=True):
    """A run to be created together with its event."""

    run_id: str
    workflow: str
    created_at: Millis
    deadline_at: Millis | None = None
    replay_id: str = ""
    replay_of: str | None = None
    parent_run_id: str | None = None
    parent_generation: int | None = None
    is_called: bool = False  # the parent waits for it: cancelled with it, wakes it
    depth: int = 0
    input: str | None = None  # JSON that a replay puts in place of the event's payload
    is_claimed: bool = False  # written as running in the accepting process: start is claim


class RunRow(msgspec.Struct):
    """One durable execution of one workflow for one event."""

    run_id: str
    workflow: str
    source: str
    event_id: str
    created_at: Millis
    state: RunState = RunState.QUEUED
    generation: int = 1
    attempt: int = 1
    failures: int = 0  # attempts of this generation that failed in code, since the last operator's retry
    crashes: int = 0  # holders lost in a row without a new checkpoint (RULINGS 6)
    fence: int = 0  # grows at every claim, restart and cancel
    started_at: Millis | None = None
    ended_at: Millis | None = None
    deadline_at: Millis | None = None
    output: str | None = None
    error: str | None = None
    reason: str | None = None  # why it is held, what it waits for
    problem_at: Millis | None = None  # set while the run is on the list of open problems
    dismissed_at: Millis | None = None
    warning: str | None = None
    replay_id: str = ""
    replay_of: str | None = None
    parent_run_id: str | None = None
    parent_generation: int | None = None
    is_called: bool = False
    depth: int = 0
    input: str | None = None


class StepRow(msgspec.Struct, frozen=True):
    """The checkpoint of a step: open while it tries, sleeps or waits, then one outcome for ever."""

    name: str
    item: str
    ordinal: int
    seq: int  # the order in which outcomes were saved (RULINGS 17)
    kind: str
    state: StepState
    attempt: int
    started_at: Millis
    ended_at: Millis | None = None
    tries: int = 1
    output: str | None = None
    error: str | None = None
    wake_at: Millis | None = None  # a sleep's deadline, or when the next try may begin
    child_run_id: str | None = None
    origin: str | None = None  # run and generation that a copied record comes from
    inputs_hash: str | None = None

    @property
    def key(self) -> StepKey:
        """Give what identifies the step inside its generation."""
        return StepKey(self.name, self.item, self.ordinal)


class AttemptRow(msgspec.Struct, frozen=True):
    """An attempt that ended without ending its generation well, kept for people."""

    generation: int
    attempt: int
    started_at: Millis | None
    ended_at: Millis
    outcome: str  # failed, lost, retried, restarted
    error: str | None = None
    process_id: str | None = None
    failed_steps: str | None = None  # JSON: the step keys whose failures ended it (RULINGS 19)


class ProcessRow(msgspec.Struct, frozen=True):
    """What holds leases and runs code."""

    process_id: str
    epoch: int
    instance: str | None
    host: str
    pid: int
    version: str
    started_at: Millis
    lease_until: Millis


class AuditRow(msgspec.Struct, frozen=True):
    """Who did what to a run, when."""

    audit_id: str
    at: Millis
    run_id: str
    verb: str
    actor: str
    detail: str | None = None


class WorkflowRow(msgspec.Struct, frozen=True):
    """A registered workflow with its triggers as data, so that any process can accept for it."""

    name: str
    triggers: str  # JSON list
    seen_at: Millis
    deadline_ms: int | None = None
