"""The table of calls: address, who may, what is taken, what is given, and what is done.

The description of the API is made from it, the server looks calls up in it, and tests walk through it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from onceward.console.port import (
    Action,
    BulkQuery,
    Completion,
    Console,
    DeliveryQuery,
    Emit,
    EventQuery,
    ExportQuery,
    Prune,
    RunQuery,
)
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
from onceward.core.access_errors import Forbidden
from onceward.core.errors import ConfigError
from onceward.core.plan import Plan
from onceward.web.access import Principal, Role
from onceward.web.api import bodies
from onceward.web.api.bulks import Bulks
from onceward.web.api.streams import Stream, changes, progress


class Nothing(msgspec.Struct, frozen=True):
    """No parameters, or no body."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """One request that was read.

    Attributes:
        console: answers and acts.
        bulks: the bulk actions of this process.
        who: asks.
        parts: what stands in the address in place of each name.
        query: the parameters.
        body: what was sent.
        request_id: from the body or the header ``Idempotency-Key``.
        wants_stream: the asker takes server-sent events.
        new_id: draws a request id.
    """

    console: Console
    bulks: Bulks
    who: Principal
    parts: dict[str, str]
    query: Any
    body: Any
    request_id: str | None
    wants_stream: bool
    new_id: Callable[[], str]


Answer: TypeAlias = Callable[[Call], Awaitable[Any]]


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """One call of the API.

    Attributes:
        method: GET or POST.
        path: below the prefix, with ``{name}`` for a part of it.
        does: in a sentence.
        gives: the type of the reply; a `Stream` has none.
        answer: does it.
        role: who may.
        query: the struct of the parameters.
        body: the struct of the body.
        errors: statuses beside those that every call may have.
        tag: what it is about.
    """

    method: str
    path: str
    does: str
    gives: Any
    answer: Answer
    role: Role = Role.VIEWER
    query: type[msgspec.Struct] = Nothing
    body: type[msgspec.Struct] | None = None
    errors: tuple[int, ...] = ()
    tag: str = "looking"

    @property
    def names(self) -> list[str]:
        """Give the names in the path."""
        return [part[1:-1] for part in self.path.split("/") if part.startswith("{")]


# --- looking ------------------------------------------------------------------------------------


async def _overview(call: Call) -> Overview:
    return await call.console.overview(window_ms=call.query.window_ms)


async def _counts(call: Call) -> Counts:
    return await call.console.counts()


async def _runs(call: Call) -> Page[RunSummary]:
    return await call.console.runs(call.query)


async def _run(call: Call) -> RunDetail:
    return await call.console.run(call.parts["run_id"], call.query.generation)


async def _events(call: Call) -> Page[EventSummary]:
    return await call.console.events(call.query)


async def _event(call: Call) -> EventDetail:
    return await call.console.event(call.parts["source"], call.parts["event_id"])


async def _event_by_query(call: Call) -> EventDetail:
    return await call.console.event(call.query.source, call.query.id)


async def _deliveries(call: Call) -> Page[DeliveryView]:
    return await call.console.deliveries(call.query)


async def _delivery(call: Call) -> DeliveryView:
    return await call.console.delivery(call.parts["delivery_id"])


async def _sources(call: Call) -> list[SourceView]:
    return await call.console.sources()


async def _refusals(call: Call) -> list[RefusalView]:
    return await call.console.refusals(call.query.source)


async def _workers(call: Call) -> list[WorkerView]:
    return await call.console.workers()


async def _notices(call: Call) -> NoticesView:
    return await call.console.notices()


async def _workflows(call: Call) -> list[WorkflowView]:
    return await call.console.workflows()


async def _audit(call: Call) -> Page[AuditView]:
    return await call.console.audit(after=call.query.after, limit=call.query.limit)


async def _changes(call: Call) -> Stream:
    return Stream(changes(call.console))


# --- acting -------------------------------------------------------------------------------------


async def _plan(call: Call) -> Plan:
    asked = call.query if call.body is None else call.body
    action = bodies.action_of(asked.verb, asked, call.who.name, None)
    plan: Plan = await call.console.plan(call.parts["run_id"], action)
    return plan


def _acting(verb: str) -> Answer:
    async def act(call: Call) -> ActionReply:
        action = bodies.action_of(verb, call.body, call.who.name, call.request_id)
        return await call.console.act(call.parts["run_id"], action)

    return act


async def _emit(call: Call) -> EmitReply:
    asked: bodies.Emit = call.body
    return await call.console.emit(
        Emit(
            type=asked.type,
            actor=call.who.name,
            payload=asked.payload,
            id=asked.id,
            subject=asked.subject,
            source=asked.source,
            request_id=call.request_id,
        )
    )


async def _complete(call: Call) -> ActionReply:
    asked: bodies.Complete = call.body
    completion = Completion(
        actor=call.who.name,
        promise=asked.promise,
        value=asked.value,
        reason=asked.reason,
        request_id=call.request_id,
    )
    return await call.console.complete(call.parts["run_id"], completion)


async def _prune(call: Call) -> PruneReply:
    asked: bodies.Prune = call.body
    fields = {name: getattr(asked, name) for name in asked.__struct_fields__}
    return await call.console.prune(Prune(actor=call.who.name, **fields))


async def _export(call: Call) -> ExportPage:
    if call.query.raw and not call.who.may(Role.ADMIN):
        raise Forbidden(
            f"{call.who.name} is a {call.who.role}; what is not redacted is for an admin.",
            means="Nothing was given.",
            todo="Leave raw out.",
        )
    return await call.console.export(call.query)


async def _redeliver(call: Call) -> Any:
    return await call.console.redeliver(call.parts["delivery_id"], actor=call.who.name)


async def _bulk(call: Call) -> BulkReply | Stream:
    asked: bodies.Bulk = call.body
    query = BulkQuery(**{name: getattr(asked.query, name) for name in BulkQuery.__struct_fields__})
    if asked.action.verb not in bodies.BODIES:
        raise ConfigError(
            f"There is no verb {asked.action.verb!r}.", todo=f"There are: {', '.join(bodies.BODIES)}."
        )
    request_id = call.request_id or call.new_id()
    action: Action = bodies.action_of(asked.action.verb, asked.action, call.who.name, request_id)
    if asked.dry_run:
        return await call.console.bulk(query, action, dry_run=True, run_ids=asked.run_ids)
    reply = await call.bulks.begin(query, action, asked.run_ids)
    if call.wants_stream:
        return Stream(progress(call.bulks.follow(request_id)))
    return reply


async def _bulk_progress(call: Call) -> BulkReply | Stream:
    bulk_id = call.parts["bulk_id"]
    reply = await call.bulks.get(bulk_id)
    if call.wants_stream:
        return Stream(progress(call.bulks.follow(bulk_id)))
    return reply


_DOES = {
    "retry": "Go on with a failed run: what is saved stays.",
    "restart": "Run it again as a new generation.",
    "replay": "Make a new run of the same event, in which what is not kept runs again.",
    "cancel": "End it; clean-up steps still run.",
    "resume": "Let a held run go on.",
    "answer": "Answer what a held run asks.",
    "dismiss": "Take it off the list of open problems.",
}

_ACTIONS = tuple(
    Endpoint(
        method="POST",
        path=f"/runs/{{run_id}}/{verb}",
        does=_DOES[verb],
        gives=ActionReply,
        answer=_acting(verb),
        role=Role.OPERATOR,
        body=body,
        errors=(404, 409),
        tag="acting",
    )
    for verb, body in bodies.BODIES.items()
)

ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        method="GET",
        path="/overview",
        does="Give the first page: counts, throughput, workers, problems.",
        gives=Overview,
        answer=_overview,
        query=bodies.OverviewQuery,
    ),
    Endpoint(
        method="GET", path="/counts", does="Give how many runs stand where.", gives=Counts, answer=_counts
    ),
    Endpoint(
        method="GET",
        path="/runs",
        does="List runs, newest first.",
        gives=Page[RunSummary],
        answer=_runs,
        query=RunQuery,
    ),
    Endpoint(
        method="GET",
        path="/runs/{run_id}",
        does="Give a run with its steps, attempts, children and what can be done.",
        gives=RunDetail,
        answer=_run,
        query=bodies.RunOptions,
        errors=(404,),
    ),
    Endpoint(
        method="GET",
        path="/runs/{run_id}/plan",
        does="Say what an action would do, and do nothing.",
        gives=Plan,
        answer=_plan,
        query=bodies.PlanQuery,
        errors=(404, 409),
        tag="acting",
    ),
    Endpoint(
        method="POST",
        path="/runs/{run_id}/plan",
        does="Say what an action would do, and do nothing.",
        gives=Plan,
        answer=_plan,
        body=bodies.Planned,
        errors=(404, 409),
        tag="acting",
    ),
    *_ACTIONS,
    Endpoint(
        method="POST",
        path="/runs/{run_id}/complete",
        does="End an open promise of a run, without its token.",
        gives=ActionReply,
        answer=_complete,
        role=Role.OPERATOR,
        body=bodies.Complete,
        errors=(404, 409),
        tag="acting",
    ),
    Endpoint(
        method="POST",
        path="/runs/bulk",
        does="Do one thing to every run that a filter finds, or say what that would be.",
        gives=BulkReply,
        answer=_bulk,
        role=Role.OPERATOR,
        body=bodies.Bulk,
        errors=(409, 429),
        tag="acting",
    ),
    Endpoint(
        method="GET",
        path="/bulk/{bulk_id}",
        does="Say how far a bulk action has come; as server-sent events, each time that it comes further.",
        gives=BulkReply,
        answer=_bulk_progress,
        errors=(404,),
        tag="acting",
    ),
    Endpoint(
        method="GET",
        path="/events",
        does="List events, newest first.",
        gives=Page[EventSummary],
        answer=_events,
        query=EventQuery,
    ),
    Endpoint(
        method="POST",
        path="/events",
        does="Make an event: start what subscribed to it, and end what waits for it.",
        gives=EmitReply,
        answer=_emit,
        role=Role.OPERATOR,
        body=bodies.Emit,
        errors=(409,),
        tag="acting",
    ),
    Endpoint(
        method="GET",
        path="/events/{source}/{event_id}",
        does="Give an event with its payload, deliveries and runs. Percent-encode both parts whole.",
        gives=EventDetail,
        answer=_event,
        errors=(404,),
    ),
    Endpoint(
        method="GET",
        path="/event",
        does='Give an event likewise; also one whose id is "." or "..", which no path can end in.',
        gives=EventDetail,
        answer=_event_by_query,
        query=bodies.EventOptions,
        errors=(404,),
    ),
    Endpoint(
        method="GET",
        path="/deliveries",
        does="List deliveries, newest first, without bodies.",
        gives=Page[DeliveryView],
        answer=_deliveries,
        query=DeliveryQuery,
    ),
    Endpoint(
        method="GET",
        path="/deliveries/{delivery_id}",
        does="Give a delivery with its request.",
        gives=DeliveryView,
        answer=_delivery,
        errors=(404,),
    ),
    Endpoint(
        method="POST",
        path="/deliveries/{delivery_id}/redeliver",
        does="Have a stored delivery read again, as it came.",
        gives=dict[str, Any],
        answer=_redeliver,
        role=Role.OPERATOR,
        body=bodies.Redeliver,
        errors=(404, 409),
        tag="acting",
    ),
    Endpoint(
        method="GET", path="/sources", does="List the sources.", gives=list[SourceView], answer=_sources
    ),
    Endpoint(
        method="GET",
        path="/refusals",
        does="List what was refused, and why.",
        gives=list[RefusalView],
        answer=_refusals,
        query=bodies.RefusalQuery,
    ),
    Endpoint(
        method="GET",
        path="/workers",
        does="List the processes that are registered.",
        gives=list[WorkerView],
        answer=_workers,
    ),
    Endpoint(
        method="GET",
        path="/notices",
        does="Give the addresses that notices are sent to, and the latest notices.",
        gives=NoticesView,
        answer=_notices,
    ),
    Endpoint(
        method="GET",
        path="/workflows",
        does="List the workflows that events start runs of.",
        gives=list[WorkflowView],
        answer=_workflows,
    ),
    Endpoint(
        method="GET",
        path="/audit",
        does="List what operators did, newest first.",
        gives=Page[AuditView],
        answer=_audit,
        query=bodies.AuditQuery,
    ),
    Endpoint(
        method="POST",
        path="/prune",
        does="Take what is over out of the store, or say what would go: a page for each call.",
        gives=PruneReply,
        answer=_prune,
        role=Role.ADMIN,
        body=bodies.Prune,
        tag="acting",
    ),
    Endpoint(
        method="GET",
        path="/export",
        does="Give the stored rows of events and their runs, page by page. What is not redacted is for admins.",
        gives=ExportPage,
        answer=_export,
        query=ExportQuery,
    ),
    Endpoint(
        method="GET",
        path="/changes",
        does="Tell by server-sent events whenever something may have changed.",
        gives=None,
        answer=_changes,
        errors=(429,),
    ),
)
