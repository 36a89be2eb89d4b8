"""What calls take: the structs that bodies are read into, strictly, and that the description shows."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from onceward.console.port import Action, BulkQuery


class Plain(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An action that takes nothing.

    Attributes:
        request_id: the same id does it once; so does the header ``Idempotency-Key``.
    """

    request_id: Annotated[str, msgspec.Meta(min_length=1, max_length=200)] | None = None


class Resume(Plain, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Let a held run go on: the answer ``retry``.

    Attributes:
        step: about this one of several.
    """

    step: str | None = None


class Answer(Resume, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Answer what a held run asks.

    Attributes:
        answer: the word.
        result: for an answer that says what happened.
    """

    answer: str
    result: Any = msgspec.UNSET


class Restart(Plain, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Run every step again, but for those that are kept.

    Attributes:
        from_step: run again from here on, and keep what was before.
        keep: these steps.
        drop: every step but these.
        plan: the token of the plan that was seen, where one is demanded; ``acknowledged`` by who looked
            at none and means it.
    """

    from_step: str | None = None
    keep: list[str] | None = None
    drop: list[str] | None = None
    plan: str | None = None


class Replay(Restart, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Make a new run of the same event.

    Attributes:
        payload: in place of the event's.
    """

    payload: Any = msgspec.UNSET


class Emit(Plain, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Make an event.

    Attributes:
        type: what happened.
        payload: JSON.
        id: the same id gives the same event; by default the request's id, else drawn.
        subject: what it is about.
        source: whom it stands in for; by default it is an event of our own. Takes no *id*.
    """

    type: str
    payload: Any = None
    id: str | None = None
    subject: str | None = None
    source: str | None = None


class Complete(Plain, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """End an open promise of a run, without its token.

    Attributes:
        promise: of which step, where the run has several that are open.
        value: what the run gets.
        reason: set, the promise fails with it instead.
    """

    promise: str | None = None
    value: Any = None
    reason: str | None = None


class Prune(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Take what is over out of the store, a page for each call.

    Attributes:
        older_than: of what ended or came so long ago, such as ``30d``; without it the retention of the app
            and of its workflows holds.
        payloads: payloads and results; so if nothing else is chosen.
        runs: runs whole.
        deliveries: requests as they came.
        identity: ids of events that have neither runs nor deliveries left.
        workflow: only runs of this one.
        subject: instead, what is stored about this, such as a customer, however young; only ids, times
            and states stay.
        dry_run: only count; anything else must be asked for.
        after: the ``next`` of the reply before.
    """

    older_than: str | None = None
    payloads: bool = False
    runs: bool = False
    deliveries: bool = False
    identity: bool = False
    workflow: str | None = None
    subject: str | None = None
    dry_run: bool = True
    after: str | None = None


class Planned(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An action that is only thought through; its fields are those of the action."""

    verb: str
    answer: str | None = None
    result: Any = msgspec.UNSET
    step: str | None = None
    from_step: str | None = None
    payload: Any = msgspec.UNSET
    keep: list[str] | None = None
    drop: list[str] | None = None
    plan: str | None = None


class PlanQuery(msgspec.Struct, frozen=True, kw_only=True):
    """As `Planned`, for what fits into an address."""

    verb: str
    answer: str | None = None
    step: str | None = None
    from_step: str | None = None
    keep: list[str] | None = None
    drop: list[str] | None = None


class Filter(BulkQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which runs; as the query of the list of runs, without those that are named in ``without``."""


class Bulk(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One action for every run that a filter finds.

    Attributes:
        query: which runs.
        run_ids: these runs instead, up to 200.
        action: what is done to each.
        dry_run: only say what would be done; anything else must be asked for.
        request_id: the same id joins the bulk action that is under way or over; so does the header
            ``Idempotency-Key``.
    """

    query: Filter
    action: Planned
    run_ids: list[str] | None = None
    dry_run: bool = True
    request_id: Annotated[str, msgspec.Meta(min_length=1, max_length=200)] | None = None


class Redeliver(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nothing: a stored delivery is read again as it came."""


class OverviewQuery(msgspec.Struct, frozen=True, kw_only=True):
    """How far the overview looks back."""

    window_ms: int = 3_600_000


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Whose steps are shown; the present generation's by default."""

    generation: int | None = None


class EventOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which event, whatever its id holds."""

    source: str
    id: str


class RefusalQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Of which source."""

    source: str | None = None


class AuditQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which page of the audit."""

    after: str | None = None
    limit: int = 50


BODIES: dict[str, type[Plain]] = {
    "retry": Plain,
    "restart": Restart,
    "replay": Replay,
    "cancel": Plain,
    "resume": Resume,
    "answer": Answer,
    "dismiss": Plain,
}
"""What each verb takes."""


def action_of(verb: str, body: msgspec.Struct, actor: str, request_id: str | None) -> Action:
    """Give the console's action for a body."""
    fields = {name: getattr(body, name) for name in body.__struct_fields__ if name != "request_id"}
    fields.pop("verb", None)
    if verb == "resume":
        verb = "answer"
        fields["answer"] = "retry"
    return Action(verb=verb, actor=actor, request_id=request_id, **fields)
