"""From stored rows to what a console shows, redacted; nothing here asks the store."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import msgspec

from onceward.console.views import (
    AttemptView,
    AuditView,
    DeliveryView,
    EventSummary,
    ExpectedView,
    Failure,
    NoticeAddressView,
    NoticesView,
    NoticeView,
    PromiseView,
    RefusalView,
    RunDetail,
    RunSummary,
    SkippedView,
    StepView,
    VerbView,
    WorkerView,
)
from onceward.core.effects import effect_of
from onceward.core.kept import KeptRequest, kept_of
from onceward.core.looks import Listed
from onceward.core.messages import HttpRequest
from onceward.core.model import (
    AttemptRow,
    AuditRow,
    DeliveryRow,
    EventRow,
    Millis,
    ProcessRow,
    PromiseRow,
    RunRow,
    SkippedRow,
    StepKey,
    StepRow,
    UnparsedRow,
    WaitRow,
    WorkflowRow,
)
from onceward.core.notices import NoticeAddressRow, NoticeRow
from onceward.core.plan import handed_key
from onceward.core.promises import RESULT
from onceward.core.redact import Redaction
from onceward.core.rules import AWAITS, FAR_MS, WAITS_FOR_KEY
from onceward.core.states import OPEN_PROBLEM, TERMINAL, Effect, RunState, StepState, Verb
from onceward.core.steer import cell_of
from onceward.core.triggers import OWN
from onceward.core.unknown import Question, open_questions
from onceward.core.within_ports import is_shared
from onceward.refusals import Refusal

UNREADABLE = "[cannot be read]"


class Shaping:
    """Shapes rows; every text of a user's goes through the rules.

    Args:
        redaction: the app's rules.
    """

    def __init__(self, redaction: Redaction) -> None:
        self.redaction = redaction

    # --- values ----------------------------------------------------------------------------------

    def json(self, text: str | None) -> Any:
        """Give stored JSON as a value, redacted; None for none, and a word where it is no JSON."""
        if text is None:
            return None
        try:
            return self.redaction.value(msgspec.json.decode(text))
        except (ValueError, RecursionError):
            return UNREADABLE

    def failure(self, text: str | None, *, with_traceback: bool = True) -> Failure | None:
        """Give what a stored error says."""
        if text is None:
            return None
        try:
            told = msgspec.json.decode(text, type=dict[str, Any])
        except (ValueError, RecursionError):
            told = {"type": "Exception", "message": UNREADABLE}
        traceback = told.get("traceback") if with_traceback else None
        return Failure(
            type=str(told.get("type") or "Exception"),
            message=self.redaction.text(str(told.get("message") or "")),
            traceback=None if traceback is None else self.redaction.text(str(traceback)),
        )

    # --- runs ------------------------------------------------------------------------------------

    def run(self, listed: Listed) -> RunSummary:
        """Give a run for a list."""
        row = listed.run
        return RunSummary(
            run_id=row.run_id,
            workflow=row.workflow,
            state=row.state.value,
            source=row.source,
            event_id=row.event_id,
            generation=row.generation,
            attempt=row.attempt,
            created_at=row.created_at,
            event_type=listed.event_type,
            subject=listed.subject,
            key=row.key,
            started_at=row.started_at,
            ended_at=row.ended_at,
            due_at=due_at(listed),
            reason=None if row.reason is None else self.redaction.text(row.reason),
            failure=self.failure(row.error, with_traceback=False),
            is_open_problem=row.state in OPEN_PROBLEM and row.dismissed_at is None,
            replay_of=row.replay_of,
            parent_run_id=row.parent_run_id,
            process_id=listed.process_id,
            pruned_at=row.pruned_at,
            is_undone=listed.is_undone,
        )

    def steps(self, rows: Sequence[StepRow], run: RunRow, generation: int, namespace: str) -> list[StepView]:
        """Give the records of a generation, with what a person is asked about them."""
        asked = open_questions(run, rows) if generation == run.generation else {}
        return [self._step(row, run, generation, namespace, asked.get(row.key)) for row in rows]

    def _question(self, question: Question | None) -> Any:
        if question is None:
            return None
        told = msgspec.json.decode(msgspec.json.encode(question))
        return {**told, "arguments": self.json(question.arguments), "why": self.redaction.text(question.why)}

    def _step(
        self, row: StepRow, run: RunRow, generation: int, namespace: str, question: Question | None
    ) -> StepView:
        return StepView(
            name=row.name,
            item=row.item,
            ordinal=row.ordinal,
            label=str(row.key),
            seq=row.seq,
            kind=row.kind,
            state=row.state.value,
            generation=generation,
            attempt=row.attempt,
            tries=row.tries,
            started_at=row.started_at,
            ended_at=row.ended_at,
            wake_at=row.wake_at,
            output=self.json(row.output),
            failure=self.failure(row.error),
            child_run_id=row.child_run_id,
            origin=row.origin,
            idempotency_key=handed_key(row, run, generation, namespace),
            effect=effect_of(row.kind, row.effect).replace("_", " "),
            question=self._question(question),
        )

    def attempt(self, row: AttemptRow) -> AttemptView:
        """Give an attempt that is over."""
        keys = [] if row.failed_steps is None else msgspec.json.decode(row.failed_steps, type=list[list[Any]])
        return AttemptView(
            generation=row.generation,
            attempt=row.attempt,
            ended_at=row.ended_at,
            outcome=row.outcome,
            started_at=row.started_at,
            failure=self.failure(row.error),
            process_id=row.process_id,
            failed_steps=[str(StepKey(*key)) for key in keys],
        )

    def audit(self, row: AuditRow) -> AuditView:
        """Give what an operator did."""
        return AuditView(
            audit_id=row.audit_id,
            at=row.at,
            verb=row.verb,
            actor=row.actor,
            run_id=row.run_id,
            detail=None if row.detail is None else self.redaction.text(row.detail),
        )

    # --- events and deliveries -------------------------------------------------------------------

    def delivery(self, row: DeliveryRow | UnparsedRow, events: Sequence[str]) -> DeliveryView:
        """Give a delivery without its body."""
        unparsed = row if isinstance(row, UnparsedRow) else None
        request = KeptRequest("", "") if row.request is None else kept_of(row.request)
        return DeliveryView(
            delivery_id=row.delivery_id,
            source=row.source,
            received_at=row.received_at,
            outcome=row.outcome,
            event_id=None if isinstance(row, UnparsedRow) else row.event_id,
            sent_at=row.sent_at,
            skew_ms=row.skew_ms,
            secret_index=row.secret_index,
            method=request.method or None,
            url=self._url(request),
            headers=self.redaction.headers(dict(request.headers)),
            error=None if unparsed is None else self.redaction.text(unparsed.error),
            copies=1 if unparsed is None else unparsed.copies,
            events=list(events),
        )

    def _url(self, request: KeptRequest) -> str | None:
        if not request.path:
            return None
        query = f"?{self.redaction.text(request.query)}" if request.query else ""
        return f"{request.origin}{request.path}{query}"

    def with_body(self, view: DeliveryView, request: HttpRequest) -> DeliveryView:
        """Give the same delivery with its body."""
        try:
            text = request.body.decode()
        except UnicodeDecodeError:
            # Nobody can tell fields in it; what is compressed may hold any.
            encoded = base64.b64encode(request.body).decode()
            return msgspec.structs.replace(view, body_base64=encoded)
        return msgspec.structs.replace(view, body=self.body(text))

    def body(self, text: str) -> str:
        """Give a body redacted; byte for byte where nothing in it is hidden."""
        try:
            value = msgspec.json.decode(text)
        except (ValueError, RecursionError):
            return self.redaction.text(text)
        shown = self.redaction.value(value)
        return text if shown == value and not _has_twins(text) else msgspec.json.encode(shown).decode()


def _has_twins(text: str) -> bool:
    """Say whether an object in JSON has a name twice: what the first one holds nobody looked at."""

    def checked(pairs: list[tuple[str, Any]]) -> None:
        if len(pairs) != len(dict(pairs)):
            raise ValueError("twins")

    try:
        json.loads(text, object_pairs_hook=checked)
    except (ValueError, RecursionError):
        return True
    return False


def promise_hashes(rows: Sequence[StepRow]) -> list[str]:
    """Give the hashes of the tokens of the promises that steps made."""
    return [found for row in rows if (found := promise_hash(row)) is not None]


def promise_hash(row: StepRow) -> str | None:
    """Give the hash of the token of the promise that a step made; None where it made none."""
    is_one = row.kind == "promise" and row.state is StepState.DONE and not row.name.endswith(RESULT)
    try:
        return msgspec.json.decode(row.output, type=str) if is_one and row.output is not None else None
    except msgspec.MsgspecError:
        return None  # somebody has changed it by hand


def with_waits(
    views: Sequence[StepView],
    rows: Sequence[StepRow],
    waits: Sequence[WaitRow],
    promises: Mapping[str, PromiseRow],
) -> list[StepView]:
    """Give steps with the events that would end them, and what became of the promises that they made."""
    found = []
    for view, row in zip(views, rows, strict=True):
        place = (view.generation, row.name, row.item, row.ordinal)
        awaits = [
            _expected(wait)
            for wait in waits
            if row.state is StepState.OPEN and (wait.generation, wait.name, wait.item, wait.ordinal) == place
        ]
        promise = promises.get(promise_hash(row) or "")
        if awaits or promise is not None:
            made = None if promise is None else _promise(promise)
            view = msgspec.structs.replace(view, awaits=awaits, promise=made)
        found.append(view)
    return found


def _expected(wait: WaitRow) -> ExpectedView:
    return ExpectedView(
        type=wait.type,
        subject=wait.subject or None,
        source=None if wait.source == OWN else wait.source,
        until_at=wait.until_at,
        condition=None if wait.condition is None else msgspec.json.decode(wait.condition),
    )


def _promise(row: PromiseRow) -> PromiseView:
    return PromiseView(state=row.state.value, expires_at=row.expires_at, ended_at=row.ended_at)


def due_at(listed: Listed) -> Millis | None:
    """Give when a run wants to be claimed; None where somebody holds it, or only a wake-up brings it back."""
    row, at = listed.run, listed.due_at
    if at is None or listed.process_id is not None or row.state in TERMINAL:
        return None
    return at if at < row.created_at + FAR_MS // 2 else None


def event_summary(row: EventRow) -> EventSummary:
    """Give an event for a list."""
    return EventSummary(
        source=row.source,
        id=row.id,
        type=row.type,
        received_at=row.received_at,
        subject=row.subject,
        occurred_at=row.occurred_at,
    )


def skipped_view(row: SkippedRow) -> SkippedView:
    """Give why a workflow has no run of an event."""
    return SkippedView(
        workflow=row.workflow,
        reason=row.reason.value,
        why=row.why,
        at=row.at,
        holder_run_id=row.holder_run_id,
    )


def refusal_view(refusal: Refusal) -> RefusalView:
    """Give what one source refused for one reason."""
    return RefusalView(
        source=refusal.source,
        reason=refusal.reason,
        count=refusal.count,
        first_at=refusal.first_at,
        last_at=refusal.last_at,
        samples=msgspec.to_builtins(refusal.samples),
        hint=refusal.hint,
    )


def _notice_view(row: NoticeRow, shown_as: Mapping[str, str]) -> NoticeView:
    return NoticeView(
        notice_id=row.notice_id,
        address=shown_as.get(row.address_id, f"(no longer known: {row.address_id})"),
        type=row.type,
        run_id=row.run_id,
        workflow=row.workflow,
        at=row.at,
        state=row.state.value,
        tries=row.tries,
        trouble=row.trouble,
        due_at=row.due_at,
        ended_at=row.ended_at,
    )


def notices_view(addresses: Sequence[NoticeAddressRow], latest: Sequence[NoticeRow]) -> NoticesView:
    """Give notices with the addresses that they are for."""
    shown_as = {row.address_id: row.shown for row in addresses}
    return NoticesView(
        addresses=[
            NoticeAddressView(
                address=row.shown, kinds=row.kinds.split(), seen_at=row.seen_at, off_at=row.off_at
            )
            for row in addresses
        ],
        latest=[_notice_view(row, shown_as) for row in latest],
    )


def worker_view(row: ProcessRow, owned: Mapping[str, int], now: Millis, here: str) -> WorkerView:
    """Give a process that is registered."""
    return WorkerView(
        process_id=row.process_id,
        host=row.host,
        pid=row.pid,
        version=row.version,
        started_at=row.started_at,
        lease_until=row.lease_until,
        instance=row.instance,
        owned=owned.get(row.process_id, 0),
        is_alive=row.lease_until >= now,
        is_here=row.process_id == here,
    )


def verb_views(listed: Listed) -> list[VerbView]:
    """Give what each verb would do to a run as it stands."""
    run, views = listed.run, []
    for verb in Verb:
        cell = cell_of(verb, run.state, is_undone=listed.is_undone)
        if verb is Verb.DISMISS and run.dismissed_at is not None:
            is_allowed, reply, hint = False, "the run was dismissed already", "there is nothing to do"
        elif verb in (Verb.RETRY, Verb.RESTART) and run.pruned_at is not None:
            is_allowed, reply, hint = False, "its values were pruned", "replay it with a payload"
        else:
            is_allowed = cell.effect not in (Effect.REFUSE, Effect.NOTHING)
            reply, hint = cell.reply, cell.hint
        views.append(VerbView(verb=verb.value, is_allowed=is_allowed, reply=reply, hint=hint))
    return views


LATE_MS = 30_000
"""A run that is due for so long is not claimed in the usual course of things."""


class Serving(Enum):
    """Whether a process that is alive has the code of a workflow, as far as the store knows."""

    YES = "one has it"
    PERHAPS = "none is known to"
    NO = "none has it"


def serving(workflow: WorkflowRow | None, processes: Sequence[ProcessRow], now: Millis) -> Serving:
    """Give whether a process that is alive has a workflow.

    Every process registers its workflows when it starts, and of each the last one is noted, by its time: one
    that started clearly later does not have it; an earlier one may.
    """
    began = [row.started_at for row in processes if row.lease_until >= now]
    if workflow is None or not began:
        return Serving.NO
    if workflow.seen_at in began:
        return Serving.YES
    return Serving.PERHAPS if min(began) <= workflow.seen_at + LATE_MS else Serving.NO


def waits_for(
    run: RunRow,
    steps: Sequence[StepRow],
    listed: Listed,
    now: Millis,
    holder: str | None = None,
    *,
    served: Serving = Serving.YES,
) -> str | None:
    """Say in words what a run waits for, without times, which everybody shows in their own way.

    None where it has ended or runs. *holder* is the run that has its key; *served* is whether a
    process has its workflow.
    """
    open_steps = [row for row in steps if row.state is StepState.OPEN]
    labels = ", ".join(repr(str(row.key)) for row in open_steps[:5]) or "a step"
    if run.state is RunState.HELD:
        return f"a person: {run.reason or 'held'}"
    if run.state is RunState.SLEEPING:
        return f"the end of {labels}"
    if run.state is RunState.WAITING:
        children = [row.child_run_id for row in open_steps if row.child_run_id is not None]
        if children:
            return f"{labels}: the end of {', '.join(children[:5])}"
        awaited = (run.reason or "").removeprefix(AWAITS)
        return f"{awaited}, for {labels}" if awaited else labels
    if run.state is RunState.BACKOFF:
        shut_out = [repr(str(row.key)) for row in open_steps if is_shared(row.error)]
        if shut_out:
            return f"the end of the other process that uses the store's file, for {', '.join(shut_out[:5])}"
        tried = [repr(str(row.key)) for row in open_steps if row.wake_at is not None]
        return f"the next try of {', '.join(tried[:5])}" if tried else "its next attempt"
    if run.state is RunState.QUEUED:
        if run.reason == WAITS_FOR_KEY and run.key is not None:
            has_it = f", which {holder} holds" if holder not in (None, run.run_id) else ""
            return f"its key {run.key!r}{has_it}"
        if run.reason is not None:
            return run.reason
        if listed.due_at is None or listed.due_at > now:
            return "its time"
        if served is not Serving.YES and listed.due_at + LATE_MS <= now:
            none = "has it" if served is Serving.NO else "is known to"
            return f"a process that has the workflow {run.workflow!r}; none that is alive {none}"
        return "a free process"
    return None


def killed_behind(detail: RunDetail) -> str | None:
    """Give the last saved step of a run that kills its process, "" where it has none; None of other runs."""
    if detail.run.state != "held" or not (detail.run.reason or "").startswith("poison"):
        return None
    saved = [step for step in detail.steps if step.ended_at is not None]
    return max(saved, key=lambda step: step.ended_at or 0).label if saved else ""
