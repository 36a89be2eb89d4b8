"""The rows that stores keep, as values: events, deliveries, runs, steps, attempts.

Everything above the stores talks in these. They are plain structs with text, integers and
JSON text in them, never decoded user values, so that reading the store cannot run code (I25).
Times are Unix milliseconds of the store's clock. The namespace is not in the rows: a process
serves one, and its store adds it to every statement.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec

from onceward.core.rules import shown_version
from onceward.core.states import PromiseState, RunState, StepState

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


class EventRow(msgspec.Struct, frozen=True, gc=False):
    """An immutable fact; ``(source, id)`` is unique in the namespace.

    Attributes:
        source: who says so, e.g. ``stripe`` or ``emit/order.paid``.
        id: the event's id within its source.
        type: what happened.
        payload: JSON text; None once retention has pruned it.
        received_at: when it was stored first.
        subject: what it is about.
        occurred_at: when it happened by its source's clock.
        content_hash: only where the id comes from outside, to see clashes.
        id_is_signed: False when the id stood outside the sender's signature, so that one captured
            body can come again under any number of ids.
        trace: the span in which it came about, as a W3C ``traceparent``; None without tracing.
    """

    source: str
    id: str
    type: str
    payload: str | None
    received_at: Millis
    subject: str | None = None
    occurred_at: Millis | None = None
    content_hash: str | None = None
    id_is_signed: bool = True
    trace: str | None = None


DELIVERIES_KEPT_MAX = 50
"""Deliveries of one event that are kept each; further ones are counted."""


class DeliveryRow(msgspec.Struct, frozen=True, gc=False):
    """One HTTP request that carried an event; a request with several events has a row for each.

    Attributes:
        delivery_id: drawn for the request, in order of time.
        source: whose event it carried.
        event_id: which event.
        received_at: when it came.
        content_hash: of its body.
        secret_index: which secret verified it, counted from 0; None where nothing was checked.
        request: JSON text: method, address and the headers that are kept; see `core.kept`.
        body: its bytes; None when the event's payload is the body, byte for byte, and in every
            part but the first.
        outcome: what the store found: ``accepted``, ``duplicate`` or ``clash`` (other content under
            a known id).
        sent_at: the time that the sender signed; None where it signs none.
        part: the event's place in its delivery, counted from 0.
    """

    delivery_id: str
    source: str
    event_id: str
    received_at: Millis
    content_hash: str
    secret_index: int | None = None
    request: str | None = None
    body: bytes | None = None
    outcome: str = ""
    sent_at: Millis | None = None
    part: int = 0

    @property
    def skew_ms(self) -> Millis | None:
        """Give how long after its signed time it came; negative when the sender's clock is ahead."""
        return None if self.sent_at is None else self.received_at - self.sent_at


class UnparsedRow(msgspec.Struct, frozen=True, gc=False):
    """A genuine delivery that its source could not read; kept until it can.

    Attributes:
        source: whose.
        content_hash: of what identifies it, the same for every redelivery.
        delivery_id: drawn for the first one.
        received_at: when the first one came.
        last_at: when the last one came.
        copies: how many came.
        error: why it cannot be read: a type and a place in the code, never what it holds.
        request: as of a `DeliveryRow`.
        body: its bytes; None in lists.
        secret_index: as of a `DeliveryRow`.
        sent_at: likewise.
    """

    source: str
    content_hash: str
    delivery_id: str
    received_at: Millis
    last_at: Millis
    copies: int
    error: str
    request: str
    body: bytes | None = None
    secret_index: int | None = None
    sent_at: Millis | None = None

    @property
    def outcome(self) -> str:
        """Give ``unparsed``, where a `DeliveryRow` has what became of it."""
        return "unparsed"

    @property
    def skew_ms(self) -> Millis | None:
        """Give how long after its signed time the first one came."""
        return None if self.sent_at is None else self.received_at - self.sent_at


class RefusalRow(msgspec.Struct, frozen=True, gc=False):
    """Deliveries that were refused for one reason.

    Attributes:
        source: at whose address; empty where there is no such source.
        reason: which check failed.
        count: how often.
        first_at: when first.
        last_at: when last.
        samples: JSON list of the newest ones that one process saw; see `core.kept`.
    """

    source: str
    reason: str
    count: int
    first_at: Millis
    last_at: Millis
    samples: str = "[]"


class NewRun(msgspec.Struct, frozen=True, gc=False):
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
    version: str | None = None  # of the event's subject, as `version_text` writes it
    drops_stale: bool = False  # there is no run if the version is not newer than all before
    is_stale: bool = False  # known before: a replay is as stale as its original
    key: str | None = None
    once: str | None = None  # how long the key is held; None does not claim it
    window_ms: int | None = None
    clash: str = "return"
    payload_hash: str | None = None  # of a run with a key
    hold_reason: str | None = None  # it is held from the start: its key cannot be told
    due_at: Millis | None = None  # decided by the store: when it may begin, if not at once
    reason: str | None = None  # decided by the store: what it waits for


class RunRow(msgspec.Struct, gc=False):
    """One durable execution of one workflow for one event.

    Attributes:
        run_id: its id.
        workflow: the workflow's name.
        source: of its event.
        event_id: of its event.
        created_at: when its event was accepted.
        state: where it stands.
        generation: which life this is; a restart begins the next.
        attempt: which attempt of the generation, counted from 1.
        failures: attempts of this generation that failed in code, since the last operator's retry.
        crashes: holders lost in a row without a new checkpoint.
        fence: grows at every claim, restart and cancel.
        started_at: when its generation was first claimed.
        ended_at: when it ended; None until then.
        deadline_at: when it must have ended.
        output: its result as JSON text.
        error: what ended it, or its last attempt: JSON text of type, message and traceback.
        reason: why it is held, or what it waits for.
        problem_at: since when it is on the list of open problems.
        dismissed_at: when it was taken off that list.
        warning: JSON text: what was odd about its end, such as steps that are no longer reached.
        replay_id: the request that made it; empty for an original.
        replay_of: the run that it replays.
        parent_run_id: the run that started or called it.
        parent_generation: in which generation.
        is_called: the parent waits for it.
        depth: how many runs started each other before it.
        input: JSON text that a replay put in place of the event's payload.
        is_stale: when its event was accepted, an event of the same subject as new or newer had been.
        key: what it is about, where its workflow has one run for each.
        pruned_at: when retention took its values: result, input, outputs of its steps. It cannot run again.
    """

    run_id: str
    workflow: str
    source: str
    event_id: str
    created_at: Millis
    state: RunState = RunState.QUEUED
    generation: int = 1
    attempt: int = 1
    failures: int = 0
    crashes: int = 0
    fence: int = 0
    started_at: Millis | None = None
    ended_at: Millis | None = None
    deadline_at: Millis | None = None
    output: str | None = None
    error: str | None = None
    reason: str | None = None
    problem_at: Millis | None = None
    dismissed_at: Millis | None = None
    warning: str | None = None
    replay_id: str = ""
    replay_of: str | None = None
    parent_run_id: str | None = None
    parent_generation: int | None = None
    is_called: bool = False
    depth: int = 0
    input: str | None = None
    is_stale: bool = False
    key: str | None = None
    pruned_at: Millis | None = None


class Skip(StrEnum):
    """Why a workflow has no run of an event that it wants."""

    STALE = "stale"
    RETURNED = "returned"
    REJECTED = "rejected"


_SKIPPED = {
    Skip.RETURNED: 'that run stands for this event, too (clash="return")',
    Skip.REJECTED: 'the event was turned away (clash="reject")',
}
"""What a taken key meant for an event, for people."""


class SkippedRow(msgspec.Struct, frozen=True, gc=False):
    """A workflow that wants an event and has no run of it, decided when the event was accepted.

    Attributes:
        workflow: which workflow.
        source: of the event.
        event_id: of the event.
        reason: ``stale``: the event was not newer than what had been accepted of its subject;
            ``returned`` and ``rejected``: another run held its key.
        run_id: the id that its run would have had.
        at: when.
        version: of the event, as `version_text` writes it.
        newest: the version that was the newest of the subject then.
        key: the key that was held.
        holder_run_id: by which run.
        is_other_payload: that run's event had another payload.
        parent_run_id: the run that called for it, and waits for the holder instead.
    """

    workflow: str
    source: str
    event_id: str
    reason: Skip
    run_id: str
    at: Millis
    version: str | None = None
    newest: str | None = None
    key: str | None = None
    holder_run_id: str | None = None
    is_other_payload: bool = False
    parent_run_id: str | None = None

    @property
    def why(self) -> str:
        """Give the reason as a sentence for people."""
        if self.holder_run_id is not None:
            other = ", for another payload" if self.is_other_payload else ""
            told = _SKIPPED.get(self.reason, self.reason)
            return f"its key {self.key!r} is held by run {self.holder_run_id}{other}: {told}"
        if self.version is None or self.newest is None:
            return f"there is no run: {self.reason}"
        return (
            f"its version {shown_version(self.version)} is not newer than {shown_version(self.newest)}, "
            "which had been accepted"
        )


class StepRow(msgspec.Struct, frozen=True, gc=False):
    """The checkpoint of a step: open while it tries, sleeps or waits, then one outcome for ever.

    Attributes:
        name: the step's name.
        item: which element of a loop; empty for none.
        ordinal: which use of that name and item, counted from 1.
        seq: the order in which outcomes were saved.
        kind: ``run``, ``sleep``, ``wait``, ``promise``, ``call``, ``start``, ``emit``, ``uuid``, ``now``,
            ``random``, ``undo`` or ``transaction``.
        state: ``open``, ``done``, ``failed``, ``cancelled`` or ``cut``.
        attempt: of the run, in which this was saved.
        started_at: when it began.
        ended_at: when it had its outcome.
        tries: how often it was tried.
        output: its result as JSON text.
        error: of its last failed try: JSON text of type, message and traceback.
        wake_at: a sleep's or a wait's deadline, or when the next try may begin.
        child_run_id: the run that it started or called.
        origin: run and generation that a copied record comes from.
        inputs_hash: of what it was called with, for whoever compares; None where nobody does.
        effect: what running it again does, where that is not what its kind says; see `core.plan`.
        key_scope: what its idempotency key belongs to, where that is not this generation of the run.
        key_memory_ms: how long the receiver remembers the key, if that is known.
        begun: JSON text: the try that began and has no saved end, where that is kept; see
            `onceward.core.unknown`.
    """

    name: str
    item: str
    ordinal: int
    seq: int
    kind: str
    state: StepState
    attempt: int
    started_at: Millis
    ended_at: Millis | None = None
    tries: int = 1
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

    @property
    def key(self) -> StepKey:
        """Give what identifies the step inside its generation."""
        return StepKey(self.name, self.item, self.ordinal)


class WaitRow(msgspec.Struct, frozen=True, gc=False):
    """An event that would end an open wait of a run; a wait for one of several has a row for each.

    Attributes:
        run_id: whose.
        generation: of the run.
        name: of the step that waits.
        item: likewise.
        ordinal: likewise.
        part: which of the events that the step waits for, counted from 0.
        type: of the event.
        subject: of the event; empty for any.
        source: who must say so: a source's name, or `OWN` for an event of our own.
        since_at: events that were received before do not count.
        until_at: nor those that are received later; None for no limit.
        condition: JSON text of an expression that must hold for the event, or None.
    """

    run_id: str
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

    @property
    def key(self) -> StepKey:
        """Give the step that waits."""
        return StepKey(self.name, self.item, self.ordinal)


class DoneWait(msgspec.Struct, frozen=True, gc=False):
    """A wait that is over, and the event that it took, if one did end it."""

    key: StepKey
    source: str | None = None
    event_id: str | None = None


class Offer(msgspec.Struct, frozen=True, gc=False):
    """An event that fits an open wait of a run."""

    run_id: str
    source: str
    event_id: str


class PromiseRow(msgspec.Struct, frozen=True, gc=False):
    """What is completed once from outside.

    Attributes:
        token_hash: of the token that completes it, which the store does not have.
        run_id: whose.
        generation: of the run.
        name: of the step that made it.
        item: likewise.
        ordinal: likewise.
        created_at: when it was made.
        state: where it stands.
        expires_at: from when on it cannot be completed any more; None for never.
        ended_at: when it was completed, or given up.
        output: JSON text: with what; of a failed one, the reason.
    """

    token_hash: str
    run_id: str
    generation: int
    name: str
    item: str
    ordinal: int
    created_at: Millis
    state: PromiseState = PromiseState.OPEN
    expires_at: Millis | None = None
    ended_at: Millis | None = None
    output: str | None = None

    @property
    def key(self) -> StepKey:
        """Give the step that made it."""
        return StepKey(self.name, self.item, self.ordinal)


class AttemptRow(msgspec.Struct, frozen=True, gc=False):
    """An attempt that ended without ending its generation well, kept for people.

    Attributes:
        generation: of the run.
        attempt: which.
        started_at: when its generation was first claimed.
        ended_at: when it ended.
        outcome: ``failed``, ``lost`` (with its process), ``restarted`` or ``held``.
        error: what ended it: JSON text of type, message and traceback.
        process_id: which process had it.
        failed_steps: JSON text: the steps whose failures ended it.
    """

    generation: int
    attempt: int
    started_at: Millis | None
    ended_at: Millis
    outcome: str
    error: str | None = None
    process_id: str | None = None
    failed_steps: str | None = None


class ProcessRow(msgspec.Struct, frozen=True, gc=False):
    """What holds leases and runs code.

    Attributes:
        process_id: drawn at its start.
        epoch: grows when it is evicted.
        instance: the name that the setting ``instance`` gave it.
        host: where it runs.
        pid: there.
        version: of its Onceward.
        started_at: when it registered.
        lease_until: until when it may be silent.
    """

    process_id: str
    epoch: int
    instance: str | None
    host: str
    pid: int
    version: str
    started_at: Millis
    lease_until: Millis


class KeyClaim(msgspec.Struct, frozen=True, gc=False):
    """A run's wish for its key when it is to run again; refused while another run holds it."""

    workflow: str
    key: str
    once: str
    payload_hash: str | None
    window_ms: int | None = None


class AuditRow(msgspec.Struct, frozen=True, gc=False):
    """Who did what, when.

    Attributes:
        audit_id: drawn for it.
        at: when.
        run_id: to which run; empty for what is about none.
        verb: what.
        actor: who.
        detail: for people, or JSON.
        request_id: of the request that asked for it; of each there is one entry.
    """

    audit_id: str
    at: Millis
    run_id: str
    verb: str
    actor: str
    detail: str | None = None
    request_id: str | None = None


class OutboxRow(msgspec.Struct, frozen=True, gc=False):
    """An event that somebody's transaction wrote and nobody has taken in yet.

    Attributes:
        outbox_id: its id; later ones are greater.
        at: when it was written.
        body: JSON text of a `Posted`.
    """

    outbox_id: str
    at: Millis
    body: str


class Posted(msgspec.Struct, frozen=True):
    """An event on its way through the outbox.

    Attributes:
        event: as it will be stored, but for the time.
        run: the run that it starts, for a start; an emit's are found when it is taken in.
        parent: id, generation and depth of the run in whose step it was written.
    """

    event: EventRow
    run: NewRun | None = None
    parent: tuple[str, int, int] | None = None


class WorkflowRow(msgspec.Struct, frozen=True):
    """A registered workflow with its triggers as data, so that any process can accept for it."""

    name: str
    triggers: str  # JSON list
    seen_at: Millis
    deadline_ms: int | None = None
    rules: str | None = None  # JSON: see `onceward.core.rules`
    retention: str | None = None  # JSON: a `onceward.core.retention.Keep`
    tags: str | None = None  # JSON list; None where there are none
