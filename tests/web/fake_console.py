"""A console that answers from a few made-up things and remembers what it was asked to do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import msgspec

from onceward.console.port import (
    Action,
    Completion,
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
from onceward.core.choice import Choice
from onceward.core.errors import KeyTaken, NotFound, StateConflict, StoreUnavailable
from onceward.core.plan import Plan
from onceward.core.states import Effect, RunState, Verb

NOW = 1_760_000_000_000
NASTY = "<script>alert(1)</script>\u2028'\"&{{7*7}}\x1b[2J\u202e../../"
"""Text that a sender chose."""


def run(number: int = 1, **changes: Any) -> RunSummary:
    values: dict[str, Any] = {
        "run_id": f"run_{number}",
        "workflow": "fulfil",
        "state": "failed",
        "source": "stripe",
        "event_id": NASTY,
        "generation": 1,
        "attempt": 2,
        "created_at": NOW,
    }
    return RunSummary(**{**values, **changes})


class FakeConsole:
    """Has the runs ``run_1`` to ``run_9`` and the events that are asked for."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.acted: list[tuple[str, Action]] = []
        self.done: dict[str, ActionReply] = {}
        self.fault: Exception | None = None
        self.elsewhere: dict[str, list[BulkReply]] = {}
        self.go_on = asyncio.Event()
        self.go_on.set()

    def _note(self, asked: Any) -> None:
        self.asked.append(asked)
        if self.fault is not None:
            raise self.fault

    async def overview(self, *, window_ms: int = 3_600_000) -> Overview:
        self._note(window_ms)
        return Overview(
            now=NOW,
            namespace="default",
            store={},
            version="1",
            counts=Counts(states={}),
            slots=[],
            slot_ms=1,
            is_sampled=False,
            workers=[],
            problems=[run()],
            refusals=[],
        )

    async def counts(self) -> Counts:
        self._note("counts")
        return Counts(states={"failed": 9})

    async def runs(self, query: RunQuery) -> Page[RunSummary]:
        self._note(query)
        return Page(items=[run(1), run(2)], next="run_2")

    async def run(self, run_id: str, generation: int | None = None) -> RunDetail:
        self._note((run_id, generation))
        if not run_id.startswith("run_"):
            raise NotFound(f"There is no run {run_id!r} in this namespace.")
        return RunDetail(
            run=run(run_id=run_id),
            event=EventSummary(source="stripe", id=NASTY, type=NASTY, received_at=NOW),
            payload={NASTY: [NASTY]},
            steps=[],
            shown_generation=1,
            attempts=[],
            audits=[],
            children=[],
            verbs=[],
        )

    async def events(self, query: EventQuery) -> Page[EventSummary]:
        self._note(query)
        return Page(items=[])

    async def event(self, source: str, event_id: str) -> EventDetail:
        self._note((source, event_id))
        event = EventSummary(source=source, id=event_id, type="paid", received_at=NOW)
        return EventDetail(event=event, payload=None, runs=[], deliveries=[], skipped=[], delivery_count=0)

    async def deliveries(self, query: DeliveryQuery) -> Page[DeliveryView]:
        self._note(query)
        return Page(items=[])

    async def delivery(self, delivery_id: str) -> DeliveryView:
        self._note(delivery_id)
        return DeliveryView(
            delivery_id=delivery_id, source="stripe", received_at=NOW, outcome="accepted", body=NASTY
        )

    async def redeliver(self, delivery_id: str, *, actor: str) -> Mapping[str, Any]:
        self._note((delivery_id, actor))
        return {"events": []}

    async def emit(self, emit: Emit) -> EmitReply:
        self._note(emit)
        event = EventSummary(source=f"emit/{emit.type}", id=emit.id or "e1", type=emit.type, received_at=NOW)
        return EmitReply(event=event, is_duplicate=False, runs=[], skipped=[])

    async def complete(self, run_id: str, completion: Completion) -> ActionReply:
        self._note((run_id, completion))
        return ActionReply(run_id=run_id, verb="complete", effect="completed", text="It goes on.")

    async def prune(self, asked: Prune) -> PruneReply:
        self._note(asked)
        return PruneReply(is_dry_run=asked.dry_run, what="runs", looked=3, next="more")

    async def export(self, query: ExportQuery) -> ExportPage:
        self._note(query)
        return ExportPage(rows=[msgspec.Raw(b'{"row":"event","id":1.0}')], next="more")

    async def sources(self) -> list[SourceView]:
        self._note("sources")
        return []

    async def refusals(self, source: str | None = None) -> list[RefusalView]:
        self._note(("refusals", source))
        return []

    async def workers(self) -> list[WorkerView]:
        self._note("workers")
        return []

    async def notices(self) -> NoticesView:
        self._note("notices")
        return NoticesView(addresses=[], latest=[])

    async def workflows(self) -> list[WorkflowView]:
        self._note("workflows")
        return []

    async def audit(self, *, after: str | None = None, limit: int = 50) -> Page[AuditView]:
        self._note((after, limit))
        return Page(items=[])

    async def plan(self, run_id: str, action: Action) -> Any:
        self._note((run_id, action))
        return Plan(
            run_id=run_id,
            workflow="fulfil",
            verb=Verb(action.verb),
            effect=Effect.NEW_ATTEMPT,
            text="It goes on.",
            state=RunState.FAILED,
            generation=1,
            attempt=3,
            choice=Choice(),
            steps=[],
            children=[],
            outside_again=[],
            hides_steps=False,
            warnings=[],
            needs_consent=False,
        )

    async def act(self, run_id: str, action: Action) -> ActionReply:
        self._note((run_id, action))
        if run_id == "run_completed":
            raise StateConflict("The run is completed.", means="Nothing was done.", todo="Replay it.")
        if run_id == "run_key":
            raise KeyTaken("fulfil", "order-7", "run_1")
        if run_id == "run_down":
            raise StoreUnavailable("The store cannot be reached.")
        if action.request_id in self.done:
            return msgspec.structs.replace(self.done[action.request_id], is_duplicate=True)
        self.acted.append((run_id, action))
        reply = ActionReply(run_id=run_id, verb=action.verb, effect="begun", text="It goes on.")
        if action.request_id is not None:
            self.done[action.request_id] = reply
        return reply

    async def bulk(
        self,
        query: RunQuery,
        action: Action,
        *,
        dry_run: bool,
        progress: Callable[[BulkReply], object] | None = None,
        run_ids: Sequence[str] | None = None,
    ) -> BulkReply:
        self._note((query, action, dry_run))
        reply = BulkReply(
            bulk_id=action.request_id or "", verb=action.verb, is_dry_run=dry_run, matched=3, sample=[run()]
        )
        if dry_run:
            return reply
        if progress is not None:
            progress(msgspec.structs.replace(reply, is_over=False))
        for done in range(1, 4):
            await self.go_on.wait()
            if self.fault is not None:
                raise self.fault
            self.acted.append((f"run_{done}", action))
            reply = msgspec.structs.replace(reply, done=done, is_over=False)
            if progress is not None:
                progress(reply)
        return msgspec.structs.replace(reply, is_over=True)

    async def bulk_progress(self, bulk_id: str) -> BulkReply:
        if bulk_id not in self.elsewhere:
            raise NotFound(f"There is no bulk action {bulk_id!r}.")
        replies = self.elsewhere[bulk_id]
        return replies.pop(0) if len(replies) > 1 else replies[0]

    async def changed(self) -> AsyncIterator[None]:
        for _ in range(2):
            yield None
