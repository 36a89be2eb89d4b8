"""What a console shows: plain structs, the very JSON of the REST API.

Times are Unix milliseconds. Payloads, inputs and outputs are JSON values with the redaction rules
applied; what was pruned or never was is None.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from onceward.core.model import Millis

T = TypeVar("T")


class Page(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One page of a list, newest first.

    Attributes:
        items: at most as many as were asked for.
        next: what to pass as ``after`` for the next page; None on the last one.
    """

    items: list[T]
    next: str | None = None


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """What ended a step, an attempt or a run."""

    type: str
    message: str
    traceback: str | None = None


class VerbView(msgspec.Struct, frozen=True, kw_only=True):
    """What one verb would do to a run as it stands: a button with its words.

    Attributes:
        verb: which.
        is_allowed: whether the table of states and verbs lets it.
        reply: what it would do, or why it is refused.
        hint: what to do instead, where it is refused.
    """

    verb: str
    is_allowed: bool
    reply: str
    hint: str = ""


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A run in a list.

    Attributes:
        run_id: its id.
        workflow: the workflow's name.
        state: where it stands.
        source: of its event.
        event_id: of its event.
        event_type: of its event, where it was asked for with the event.
        subject: of its event, likewise.
        key: what it is about, where its workflow has one run for each.
        generation: which life, counted from 1.
        attempt: which attempt of the generation.
        created_at: when its event was accepted.
        started_at: when its generation was first claimed.
        ended_at: when it ended.
        due_at: when it wants to be claimed again, where it sleeps, waits or backs off.
        reason: why it is held, or what it waits for.
        failure: what ended it or its last attempt, without the traceback.
        is_open_problem: failed or held, and nobody dismissed it.
        replay_of: the run that it replays.
        parent_run_id: the run that started or called it.
        process_id: the process that holds it.
        step: the step that is under way or was the last, where it was asked for.
        pruned_at: when retention took its values; it can no longer run again.
        is_undone: it failed, and steps of it were undone: it is restarted, not retried.
    """

    run_id: str
    workflow: str
    state: str
    source: str
    event_id: str
    generation: int
    attempt: int
    created_at: Millis
    event_type: str | None = None
    subject: str | None = None
    key: str | None = None
    started_at: Millis | None = None
    ended_at: Millis | None = None
    due_at: Millis | None = None
    reason: str | None = None
    failure: Failure | None = None
    is_open_problem: bool = False
    replay_of: str | None = None
    parent_run_id: str | None = None
    process_id: str | None = None
    step: str | None = None
    pruned_at: Millis | None = None
    is_undone: bool = False


class ExpectedView(msgspec.Struct, frozen=True, kw_only=True):
    """An event that would end an open wait.

    Attributes:
        type: of the event.
        subject: what it must be about; None for whatever.
        source: who must say so; None for an event of our own, as `emit` makes it.
        until_at: when it is too late.
        condition: what must hold for it besides, as it is stored.
    """

    type: str
    subject: str | None = None
    source: str | None = None
    until_at: Millis | None = None
    condition: Any = None


class PromiseView(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a promise: ``open``, ``completed``, ``failed`` or ``expired``."""

    state: str
    expires_at: Millis | None = None
    ended_at: Millis | None = None


class StepView(msgspec.Struct, frozen=True, kw_only=True):
    """A step's record.

    Attributes:
        label: name, item and ordinal for people: ``charge[order-7] #2``.
        idempotency_key: what it hands to others; None where its kind has none.
        effect: ``pure``, ``own database`` or ``outside``; None where it is not known.
        question: what a person is to decide, where its outcome is unknown; see ``answer``.
        awaits: the events of which one ends it, where it is an open wait.
        promise: what became of it, where it made one.
    """

    name: str
    item: str
    ordinal: int
    label: str
    seq: int
    kind: str
    state: str
    generation: int
    attempt: int
    tries: int
    started_at: Millis
    ended_at: Millis | None = None
    wake_at: Millis | None = None
    output: Any = None
    failure: Failure | None = None
    child_run_id: str | None = None
    origin: str | None = None
    idempotency_key: str | None = None
    effect: str | None = None
    question: Any = None
    awaits: list[ExpectedView] = []
    promise: PromiseView | None = None


class AttemptView(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that ended without ending its generation well."""

    generation: int
    attempt: int
    ended_at: Millis
    outcome: str
    started_at: Millis | None = None
    failure: Failure | None = None
    process_id: str | None = None
    failed_steps: list[str] = []


class AuditView(msgspec.Struct, frozen=True, kw_only=True):
    """Who did what, when. *run_id* is empty for what is not about one run."""

    audit_id: str
    at: Millis
    verb: str
    actor: str
    run_id: str = ""
    detail: str | None = None


class DeliveryView(msgspec.Struct, frozen=True, kw_only=True):
    """One request that carried an event, or one that could not be read (``unparsed``).

    Attributes:
        outcome: ``accepted``, ``duplicate``, ``clash`` or ``unparsed``.
        skew_ms: how long after its signed time it came.
        secret_index: which secret verified it, counted from 0.
        method: of the request.
        url: of the request, without its host where it was not kept.
        headers: those that are kept, redacted.
        body: as text; None in lists, where it was pruned, or where it is not text.
        body_base64: where it is not text.
        error: why an unparsed one could not be read.
        copies: how many of an unparsed one came.
        events: source and id of each event that it carried.
    """

    delivery_id: str
    source: str
    received_at: Millis
    outcome: str
    event_id: str | None = None
    sent_at: Millis | None = None
    skew_ms: Millis | None = None
    secret_index: int | None = None
    method: str | None = None
    url: str | None = None
    headers: dict[str, str] = {}
    body: str | None = None
    body_base64: str | None = None
    error: str | None = None
    copies: int = 1
    events: list[str] = []


class SkippedView(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow that wants an event and has no run of it, and why."""

    workflow: str
    reason: str
    why: str
    at: Millis
    holder_run_id: str | None = None


class EventSummary(msgspec.Struct, frozen=True, kw_only=True):
    """An event in a list."""

    source: str
    id: str
    type: str
    received_at: Millis
    subject: str | None = None
    occurred_at: Millis | None = None


class EventDetail(msgspec.Struct, frozen=True, kw_only=True):
    """An event with everything that is known of it.

    Attributes:
        delivery_count: how many deliveries came, also those that are no longer kept.
        same_body: ids of other events with the very same body, where ids are not signed.
        has_clash: a delivery brought other content under the same id; the first stays.
    """

    event: EventSummary
    payload: Any
    runs: list[RunSummary]
    deliveries: list[DeliveryView]
    skipped: list[SkippedView]
    delivery_count: int
    same_body: list[str] = []
    has_clash: bool = False


class RunDetail(msgspec.Struct, frozen=True, kw_only=True):
    """A run with everything that is known of it.

    Attributes:
        steps: of the generation that was asked for, in saved order.
        shown_generation: which that is.
        input: what a replay put in place of the event's payload.
        output: its result.
        warning: what was odd about its end.
        waits_for: what it waits for and until when, in words.
        stopped_at: until when somebody was at it, at most, where it is held or its process is gone.
        verbs: what each verb would do now.
    """

    run: RunSummary
    event: EventSummary | None
    payload: Any
    steps: list[StepView]
    shown_generation: int
    attempts: list[AttemptView]
    audits: list[AuditView]
    children: list[RunSummary]
    verbs: list[VerbView]
    failure: Failure | None = None
    input: Any = None
    output: Any = None
    warning: Any = None
    waits_for: str | None = None
    deadline_at: Millis | None = None
    crashes: int = 0
    failures: int = 0
    is_stale: bool = False
    replays: list[RunSummary] = []
    stopped_at: Millis | None = None


class RefusalView(msgspec.Struct, frozen=True, kw_only=True):
    """Deliveries that one source refused for one reason."""

    source: str
    reason: str
    count: int
    first_at: Millis
    last_at: Millis
    samples: list[Any] = []
    hint: str = ""


class SourceView(msgspec.Struct, frozen=True, kw_only=True):
    """A source: what it is, and how it fares.

    Attributes:
        name: its name.
        kind: of source; None where the code that knows it is not here.
        path: where its deliveries go.
        last_received_at: when the latest delivery came, of the newest ten thousand of all sources.
        median_skew_ms: of the latest deliveries that sign a time.
        refusals: what it refused.
        unparsed: how many deliveries wait to be read.
    """

    name: str
    kind: str | None = None
    path: str | None = None
    docs: str | None = None
    last_received_at: Millis | None = None
    median_skew_ms: Millis | None = None
    refusals: list[RefusalView] = []
    unparsed: int = 0


class WorkerView(msgspec.Struct, frozen=True, kw_only=True):
    """A process that is registered in the store."""

    process_id: str
    host: str
    pid: int
    version: str
    started_at: Millis
    lease_until: Millis
    instance: str | None = None
    owned: int = 0
    is_alive: bool = True
    is_here: bool = False


class NoticeAddressView(msgspec.Struct, frozen=True, kw_only=True):
    """An address that notices are sent to; of it only scheme and host are shown.

    Attributes:
        kinds: what it is told: ``failed``, ``held``.
        seen_at: when a process last said that it has it.
        off_at: since when its receiver wants no more.
    """

    address: str
    kinds: list[str]
    seen_at: Millis
    off_at: Millis | None = None


class NoticeView(msgspec.Struct, frozen=True, kw_only=True):
    """What an address was told, or is to be told, of a run.

    Attributes:
        type: ``run.failed`` or ``run.held``.
        state: ``owed``, ``told`` or ``given_up``.
        tries: how often it was sent.
        trouble: why the last try did not tell it.
        due_at: when it is sent next.
    """

    notice_id: str
    address: str
    type: str
    run_id: str
    workflow: str
    at: Millis
    state: str
    tries: int
    trouble: str | None = None
    due_at: Millis | None = None
    ended_at: Millis | None = None


class NoticesView(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses that notices are sent to, and the latest notices, newest first."""

    addresses: list[NoticeAddressView]
    latest: list[NoticeView]

    @property
    def untold(self) -> list[NoticeView]:
        """Give those of the latest that did not arrive, or have not yet."""
        return [
            one for one in self.latest if one.state == "given_up" or (one.state == "owed" and one.trouble)
        ]


class WorkflowView(msgspec.Struct, frozen=True, kw_only=True):
    """A registered workflow."""

    name: str
    triggers: list[Any]
    seen_at: Millis
    deadline_ms: Millis | None = None
    is_in_code: bool = False
    rules: Any = None
    tags: list[str] = []


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """How many runs stand where, now: live states and open problems exactly.

    Attributes:
        states: queued, running, sleeping, waiting, backoff, cancelling, held; and open failures as
            ``failed``. At most `COUNT_MAX` is counted of each, so that a long queue costs no more.
        is_capped: the states of which there are more.
        oldest_due_at: since when the run that waits longest to be claimed is due.
        unparsed: deliveries that could not be read.
    """

    states: dict[str, int]
    is_capped: list[str] = []
    oldest_due_at: Millis | None = None
    unparsed: int = 0


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """What happened in one slice of time; the end of runs is by when they ended, where known."""

    at: Millis
    events: int = 0
    completed: int = 0
    failed: int = 0
    p50_ms: int | None = None
    p95_ms: int | None = None


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """The first page.

    Attributes:
        slots: of the window, oldest first, all of the same length.
        slot_ms: that length.
        is_sampled: there was more in the window than is looked at; the newest is counted.
        unserved: how many runs are due for over half a minute of each workflow that no process that
            is alive has; of the `COUNT_MAX` that are due longest.
    """

    now: Millis
    namespace: str
    store: dict[str, str]
    version: str
    counts: Counts
    slots: list[Slot]
    slot_ms: Millis
    is_sampled: bool
    workers: list[WorkerView]
    problems: list[RunSummary]
    refusals: list[RefusalView]
    unserved: dict[str, int] = {}


class ActionReply(msgspec.Struct, frozen=True, kw_only=True):
    """What an action did.

    Attributes:
        run_id: the run that it was about; of a replay the new one.
        effect: by the table of states and verbs.
        text: the same for people.
    """

    run_id: str
    verb: str
    effect: str
    text: str
    state: str | None = None
    generation: int | None = None
    attempt: int | None = None
    is_duplicate: bool = False


class EmitReply(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an event that an operator made.

    Attributes:
        event: as it is stored.
        is_duplicate: it was there before, by the same id or request; nothing was stored now.
        runs: of it.
        skipped: workflows that want it and have no run of it, and why.
        waits: runs with a wait that it fits; each takes the first event that does.
    """

    event: EventSummary
    is_duplicate: bool
    runs: list[RunSummary]
    skipped: list[SkippedView]
    waits: list[str] = []


class ExportPage(msgspec.Struct, frozen=True, kw_only=True):
    """Stored rows of some events, each with what it is of in ``row``.

    Attributes:
        rows: of whole events: the event, its runs, their steps, attempts and audit entries.
        next: what to pass as ``after`` for the next page; None on the last one.
    """

    rows: list[msgspec.Raw]
    next: str | None = None


class AgainView(msgspec.Struct, frozen=True, kw_only=True):
    """A step that a bulk action would run again.

    Attributes:
        step: its name.
        runs: in how many of the runs that were looked at.
        is_outside: what it does would be done again outside, or may be.
    """

    step: str
    runs: int
    is_outside: bool


class BulkReply(msgspec.Struct, frozen=True, kw_only=True):
    """How far a bulk action has come.

    Attributes:
        bulk_id: the request's id; the same id joins the bulk action that is under way or over.
        actor: who asked.
        matched: how many runs the filter found, at most `BULK_MAX`.
        done: how many were acted on.
        refused: how many the table of states and verbs refused, with the first reasons.
        sample: some of the runs, for a dry run.
        again: the steps that would run again in them, for a dry run of what runs steps again.
        is_over: whether it is finished, or given up.
        is_interrupted: whether it was given up before it was through; the same id goes on from there.
    """

    bulk_id: str
    verb: str
    is_dry_run: bool
    matched: int
    done: int = 0
    refused: int = 0
    reasons: list[str] = []
    sample: list[RunSummary] = []
    again: list[AgainView] = []
    is_over: bool = True
    is_interrupted: bool = False
    actor: str | None = None
