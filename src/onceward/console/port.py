"""The questions and actions of a console, and what they take.

Whoever answers checks its input and bounds its work: a page has at most `PAGE_MAX` items, a bulk action
at most `BULK_MAX` runs. Every method is a coroutine; it may be called from any task of the app's loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from onceward.console.prune_views import PruneReply
from onceward.console.views import (
    ActionReply,
    AuditView,
    BulkReply,
    Counts,
    DeliveryView,
    EmitReply,
    EventDetail,
    EventSummary,
    ExportPage,
    NoticesView,
    Overview,
    Page,
    RefusalView,
    RunDetail,
    RunSummary,
    SourceView,
    WorkerView,
    WorkflowView,
)
from onceward.core.model import Millis

PAGE_MAX = 200
BULK_MAX = 10_000
COUNT_MAX = 2_000
NOTICES_MAX = 50
ACKNOWLEDGED = "acknowledged"
"""In place of a plan's token: whatever happens again outside."""


class RunQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs; everything that is given must hold.

    Attributes:
        workflow: of this workflow.
        state: in this state.
        source: of an event of this source.
        event_id: of this event; needs *source*.
        type: of an event of this type.
        subject: of an event about this.
        key: of this key.
        tag: of a workflow that has this tag, as it is registered now.
        since: accepted at this time or later.
        until: accepted before this time.
        problems: failed and held ones that nobody dismissed: the dead letters.
        error: words that the failure's type, message or reason begins with; only with *problems* or
            the states ``failed`` and ``held``.
        parent: started or called by this run.
        after: the ``next`` of the page before.
        limit: at most this many, up to `PAGE_MAX`.
    """

    workflow: str | None = None
    state: str | None = None
    source: str | None = None
    event_id: str | None = None
    type: str | None = None
    subject: str | None = None
    key: str | None = None
    tag: str | None = None
    since: Millis | None = None
    until: Millis | None = None
    problems: bool = False
    error: str | None = None
    parent: str | None = None
    after: str | None = None
    limit: int = 50


class BulkQuery(RunQuery, frozen=True, kw_only=True):
    """Which runs a bulk action is about; as `RunQuery`.

    Attributes:
        without: ids of runs that it would find and leaves alone, up to `PAGE_MAX`.
    """

    without: list[str] = []


class EventQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which events; everything that is given must hold. As `RunQuery`.

    Attributes:
        without_runs: only those that started no run.
    """

    source: str | None = None
    type: str | None = None
    subject: str | None = None
    id: str | None = None
    since: Millis | None = None
    until: Millis | None = None
    without_runs: bool = False
    after: str | None = None
    limit: int = 50


class DeliveryQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which deliveries; *outcome* ``unparsed`` gives only those that could not be read. As `RunQuery`.

    Attributes:
        since: stored at this time or later, Unix milliseconds.
        until: stored before this time.
    """

    source: str | None = None
    outcome: str | None = None
    since: Millis | None = None
    until: Millis | None = None
    after: str | None = None
    limit: int = 50


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done to one run.

    Attributes:
        verb: retry, restart, replay, cancel, answer or dismiss; ``resume`` is ``answer`` with ``retry``.
        actor: who asks, for the audit.
        request_id: the same id does it once.
        answer: for ``answer``: the word.
        result: for an answer that says what happened: JSON.
        step: for an answer about one step of several.
        from_step: for ``restart`` and ``replay``.
        payload: for ``replay``, put in place of the event's; unset keeps that.
        keep: for ``restart`` and ``replay``: steps to keep.
        drop: likewise: steps not to keep.
        plan: token of the acknowledged plan, where one is demanded; `ACKNOWLEDGED` by who looked at
            none and means it, as for many runs at once.
    """

    verb: str
    actor: str
    request_id: str | None = None
    answer: str | None = None
    result: Any = msgspec.UNSET
    step: str | None = None
    from_step: str | None = None
    payload: Any = msgspec.UNSET
    keep: list[str] | None = None
    drop: list[str] | None = None
    plan: str | None = None


class Emit(msgspec.Struct, frozen=True, kw_only=True):
    """An event that somebody makes by hand.

    Attributes:
        type: what happened.
        actor: who asks, for the audit.
        payload: JSON.
        id: the same id gives the same event; by default the request's id, else drawn.
        subject: what it is about.
        source: whom it stands in for; by default it is an event of our own. It then takes no *id*, since
            one of the sender's own must never be taken away from it.
        request_id: the same id does it once.
    """

    type: str
    actor: str
    payload: Any = None
    id: str | None = None
    subject: str | None = None
    source: str | None = None
    request_id: str | None = None


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """How a promise of a run is to end, without its token.

    Attributes:
        actor: who asks, for the audit.
        promise: of which step, where the run has several that are open.
        value: what the run gets.
        reason: set, the promise fails with it instead.
        request_id: the same id does it once.
    """

    actor: str
    promise: str | None = None
    value: Any = None
    reason: str | None = None
    request_id: str | None = None


class Prune(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be taken out of the store; see `onceward.core.retention`.

    Attributes:
        actor: who asks, for the audit.
        older_than: of what ended or came so long ago; without it the retention of the app and of its
            workflows holds.
        payloads: payloads and results; so if nothing else is chosen.
        runs: runs whole.
        deliveries: requests as they came.
        identity: ids of events that have neither runs nor deliveries left.
        workflow: only runs of this one.
        subject: instead, what is stored about this, such as a customer, however young.
        dry_run: only count.
        after: the ``next`` of the reply before, by the same person with the same words; it does not grow old.
    """

    actor: str
    older_than: str | None = None
    payloads: bool = False
    runs: bool = False
    deliveries: bool = False
    identity: bool = False
    workflow: str | None = None
    subject: str | None = None
    dry_run: bool = True
    after: str | None = None


class ExportQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which events are exported, with their runs.

    Attributes:
        workflow: only runs of this one, and their events.
        subject: only events about this, such as a customer.
        since: received at this time or later.
        until: received before this time.
        raw: without redaction.
        after: the ``next`` of the page before.
    """

    workflow: str | None = None
    subject: str | None = None
    since: Millis | None = None
    until: Millis | None = None
    raw: bool = False
    after: str | None = None


class Console(Protocol):
    """What a person asks of a store.

    Raises:
        NotFound: there is no such thing in this namespace.
        ConfigError: the question cannot be answered as it is put.
        StateConflict: the verb does not apply to the run as it stands.
        StoreUnavailable: the store cannot be reached; over the API: the server.
    """

    async def overview(self, *, window_ms: Millis = 3_600_000) -> Overview:
        """Give the first page."""
        ...

    async def counts(self) -> Counts:
        """Give how many runs stand where."""
        ...

    async def runs(self, query: RunQuery) -> Page[RunSummary]:
        """List runs, newest first."""
        ...

    async def run(self, run_id: str, generation: int | None = None) -> RunDetail:
        """Give one run with its steps, attempts, audit, children and what can be done."""
        ...

    async def events(self, query: EventQuery) -> Page[EventSummary]:
        """List events, newest first."""
        ...

    async def event(self, source: str, event_id: str) -> EventDetail:
        """Give one event with its deliveries, runs and why some workflow has none."""
        ...

    async def deliveries(self, query: DeliveryQuery) -> Page[DeliveryView]:
        """List deliveries, newest first, without bodies."""
        ...

    async def delivery(self, delivery_id: str) -> DeliveryView:
        """Give one delivery with its raw request."""
        ...

    async def redeliver(self, delivery_id: str, *, actor: str) -> Mapping[str, Any]:
        """Feed a stored raw request in again; give what became of it."""
        ...

    async def emit(self, emit: Emit) -> EmitReply:
        """Store an event, start what subscribed to it, and end what waits for it."""
        ...

    async def complete(self, run_id: str, completion: Completion) -> ActionReply:
        """End an open promise of a run."""
        ...

    async def prune(self, asked: Prune) -> PruneReply:
        """Prune one page, or count what would go of it."""
        ...

    async def export(self, query: ExportQuery) -> ExportPage:
        """Give the stored rows of the next events, newest first."""
        ...

    async def sources(self) -> list[SourceView]:
        """List the sources with their refusals and clock skew."""
        ...

    async def refusals(self, source: str | None = None) -> list[RefusalView]:
        """List what was refused."""
        ...

    async def workers(self) -> list[WorkerView]:
        """List the processes that are registered."""
        ...

    async def notices(self) -> NoticesView:
        """Give the addresses that notices are sent to, and the latest notices."""
        ...

    async def workflows(self) -> list[WorkflowView]:
        """List the registered workflows."""
        ...

    async def audit(self, *, after: str | None = None, limit: int = 50) -> Page[AuditView]:
        """List what operators did, newest first."""
        ...

    async def plan(self, run_id: str, action: Action) -> Any:
        """Give the rerun plan of an action, and do nothing."""
        ...

    async def act(self, run_id: str, action: Action) -> ActionReply:
        """Do one thing to one run."""
        ...

    async def bulk(
        self,
        query: RunQuery,
        action: Action,
        *,
        dry_run: bool,
        progress: Callable[[BulkReply], object] | None = None,
        run_ids: Sequence[str] | None = None,
    ) -> BulkReply:
        """Do one thing to every run that a query finds, or to the runs that are named."""
        ...

    async def bulk_progress(self, bulk_id: str) -> BulkReply:
        """Give how far a bulk action has come, or how it ended, whichever process is at it."""
        ...

    def changed(self) -> Any:
        """Give an async iterator that yields whenever something may have changed, at most twice a second."""
        ...
