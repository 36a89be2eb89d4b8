"""The console of an open app: answers from its store, acts through its desk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

import msgspec

from onceward.console import asking, exporting, pruning, shaping
from onceward.console.acting import Acting
from onceward.console.bulks import how_far
from onceward.console.making import Making
from onceward.console.overview import overview_of, servings
from onceward.console.port import (
    COUNT_MAX,
    NOTICES_MAX,
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
from onceward.console.shaping import Shaping
from onceward.console.together import Together
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
from onceward.core import asked
from onceward.core.errors import NotFound
from onceward.core.looks import Listed, RecentDelivery, RunLook
from onceward.core.model import DeliveryRow, EventRow, Millis, RunRow, UnparsedRow
from onceward.core.ports import Store
from onceward.core.redact import Redaction
from onceward.core.rules import WAITS_FOR_KEY
from onceward.core.shown import shown
from onceward.core.states import RunState
from onceward.receiving import found_deliveries

if TYPE_CHECKING:
    from onceward.app import App

CHANGES_S = 0.5
"""Between two looks for changes."""

BLIND_S = 1.0
"""Between two guesses that something changed, where the store cannot tell."""

CHILDREN_MAX = 200
REPLAYS_LOOK_MAX = 1_000
RECENT_DELIVERIES = 200
"""Of one source, from which its clock is judged."""


class LocalConsole:
    """Answers every question of `Console` from an app that is open in this event loop.

    Args:
        app: open; with or without workflows of its own.

    Raises:
        ConfigError: the setting ``redact`` has a rule that cannot be one; from any method: the app is not
            open.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._shaping = Shaping(Redaction((app.settings.redact or "").split()))
        self._acting = Acting(app, self)
        self._making = Making(app, self)
        self._together = Together()

    async def _ask(self, read: Callable[..., Any], *args: Any) -> Any:
        return await self._app.worker.read(read, *args)

    @property
    def _store(self) -> Store:
        return self._app.worker.store

    # --- all at once -----------------------------------------------------------------------------

    async def overview(self, *, window_ms: Millis = 3_600_000) -> Overview:
        """Give the first page.

        Args:
            window_ms: how far back its slots go: a minute to 31 days.

        Raises:
            ConfigError: *window_ms* is out of range.
        """
        return await self._together.ask(
            ("overview", str(window_ms)), lambda: overview_of(self._app, self, window_ms)
        )

    async def counts(self) -> Counts:
        """Give how many runs stand where; see `Counts`."""
        return await self._together.ask("counts", self._counts)

    async def _counts(self) -> Counts:
        tally = await self._ask(self._store.tally, self._app.worker.now_ms(), COUNT_MAX)
        return Counts(
            states=tally.states,
            is_capped=tally.capped,
            oldest_due_at=tally.oldest_due,
            unparsed=tally.unparsed,
        )

    # --- runs ------------------------------------------------------------------------------------

    async def runs(self, query: RunQuery) -> Page[RunSummary]:
        """List runs, newest first; a page may be short of its limit while it has a ``next``.

        Raises:
            ConfigError: a filter cannot be used, or two do not go together.
        """
        tagged: list[str] = []
        if query.tag is not None:
            asked.checked_texts(tag=query.tag)
            tagged = [one.name for one in await self.workflows() if query.tag in one.tags]
        where = asking.run_look(query, tagged)
        if where.workflows == []:
            return Page(items=[])
        found = await self._ask(self._store.look_for_runs, where)
        run_ids, after = found.run_ids[: query.limit], found.edge
        if len(found.run_ids) > query.limit:
            after = run_ids[-1]
        listed: Sequence[Listed] = await self._ask(self._store.listed, run_ids)
        runs = [self._shaping.run(one) for one in listed]
        if query.error is not None:
            runs = [run for run in runs if _fits(query.error, run)]
        return Page(items=runs, next=after)

    async def run(self, run_id: str, generation: int | None = None) -> RunDetail:
        """Give one run with its steps, attempts, audit, children and what can be done.

        Args:
            run_id: the run's.
            generation: whose steps are shown; the present one by default.

        Raises:
            NotFound: no such run in this namespace.
            ConfigError: *generation* cannot be one.
        """
        asked.checked_text(run_id, "run id")
        asked.checked_generation(generation)
        store, shape = self._store, self._shaping
        listed: Sequence[Listed] = await self._ask(store.listed, [run_id])
        if not listed:
            raise NotFound(f"There is no run {shown(run_id)} in this namespace.")
        one, row = listed[0], listed[0].run
        number = generation or row.generation
        event: EventRow | None = await self._ask(store.event, row.source, row.event_id)
        steps = await self._ask(store.steps, run_id, number)
        current = steps if number == row.generation else await self._ask(store.steps, run_id)
        attempts = await self._ask(store.attempts, run_id)
        audits = await self._ask(store.audits, run_id)
        children = await self._runs_of(RunLook(parent=run_id, limit=CHILDREN_MAX, look=CHILDREN_MAX))
        siblings = await self._runs_of(
            RunLook(
                source=row.source,
                event_id=row.event_id,
                workflow=row.workflow,
                limit=REPLAYS_LOOK_MAX,
                look=REPLAYS_LOOK_MAX,
            )
        )
        waits = await self._ask(store.waits_of, run_id)
        promises = await self._ask(store.promises, shaping.promise_hashes(steps))
        holder = None
        if row.reason == WAITS_FOR_KEY and row.key is not None:
            holder = await self._ask(store.holder, row.workflow, row.key)
        served = shaping.Serving.YES
        if row.state is RunState.QUEUED:
            served = (await servings(self._app, [row.workflow]))[row.workflow]
        waits_for = shaping.waits_for(
            row,
            current,
            one,
            self._app.worker.now_ms(),
            holder,
            served=served,
        )
        return RunDetail(
            run=shape.run(one),
            event=None if event is None else shaping.event_summary(event),
            payload=None if event is None else shape.json(event.payload),
            steps=shaping.with_waits(
                shape.steps(steps, row, number, self._app.settings.namespace), steps, waits, promises
            ),
            shown_generation=number,
            attempts=[shape.attempt(attempt) for attempt in attempts],
            audits=[shape.audit(audit) for audit in audits],
            children=children,
            verbs=shaping.verb_views(one),
            failure=shape.failure(row.error),
            input=shape.json(row.input),
            output=shape.json(row.output),
            warning=shape.json(row.warning),
            waits_for=None if waits_for is None else shape.redaction.text(waits_for),
            deadline_at=row.deadline_at,
            crashes=row.crashes,
            failures=row.failures,
            is_stale=row.is_stale,
            replays=[run for run in siblings if run.replay_of == run_id],
            stopped_at=await self._stopped_at(one),
        )

    async def _stopped_at(self, listed: Listed) -> Millis | None:
        """Give until when somebody was at a run, at most, that is held or whose process is silent."""
        run = listed.run
        if run.state is RunState.HELD:
            whole: RunRow | None = await self._ask(self._store.run, run.run_id)
            return None if whole is None else whole.problem_at
        if listed.process_id is None:
            return None
        owner = [row for row in await self._ask(self._store.processes) if row.process_id == listed.process_id]
        if not owner:
            return run.started_at or run.created_at
        return owner[0].lease_until if owner[0].lease_until < self._app.worker.now_ms() else None

    async def runs_by_id(self, run_ids: Sequence[str]) -> list[RunSummary]:
        """Give these runs, newest first, as far as they are there."""
        return [self._shaping.run(one) for one in await self._ask(self._store.listed, run_ids)]

    async def _runs_of(self, where: RunLook) -> list[RunSummary]:
        found = await self._ask(self._store.look_for_runs, where)
        listed = await self._ask(self._store.listed, found.run_ids)
        return [self._shaping.run(one) for one in listed]

    # --- events and deliveries -------------------------------------------------------------------

    async def events(self, query: EventQuery) -> Page[EventSummary]:
        """List events, newest first; a page may be short of its limit while it has a ``next``.

        Raises:
            ConfigError: a filter cannot be used.
        """
        where = asking.event_look(query)
        if query.source is not None and query.id is not None:
            row: EventRow | None = await self._ask(self._store.event, query.source, query.id)
            return Page(items=[shaping.event_summary(row)] if row is not None and _is(row, where) else [])
        found = await self._ask(self._store.look_for_events, where)
        rows, edge = found.events[: query.limit], found.edge
        if len(found.events) > query.limit:
            edge = (rows[-1].received_at, rows[-1].source, rows[-1].id)
        return Page(
            items=[shaping.event_summary(row) for row in rows],
            next=None if edge is None else asking.cursor(*edge),
        )

    async def event(self, source: str, event_id: str) -> EventDetail:
        """Give one event with its deliveries, runs and why some workflow has none.

        Raises:
            NotFound: no such event in this namespace.
        """
        view = await self._app.event(source, event_id)
        row: EventRow | None = await self._ask(self._store.event, source, event_id)
        assert row is not None
        runs = await self._runs_of(
            RunLook(source=source, event_id=event_id, limit=REPLAYS_LOOK_MAX, look=REPLAYS_LOOK_MAX)
        )
        return EventDetail(
            event=shaping.event_summary(row),
            payload=self._shaping.json(row.payload),
            runs=runs,
            deliveries=[self._shaping.delivery(one, [_name(one)]) for one in view.deliveries],
            skipped=[shaping.skipped_view(one) for one in view.skipped],
            delivery_count=view.delivery_count,
            same_body=view.same_body,
            has_clash=view.has_clash,
        )

    async def deliveries(self, query: DeliveryQuery) -> Page[DeliveryView]:
        """List deliveries, newest first, without bodies; a page may be short while it has a ``next``.

        Raises:
            ConfigError: a filter cannot be used.
        """
        where = asking.delivery_filter(query)
        rows, edge = await found_deliveries(self._app.worker, where)
        views: dict[str, DeliveryView] = {}
        for row in rows:
            view = views.get(row.delivery_id)
            if view is None:
                views[row.delivery_id] = self._shaping.delivery(row, _names(row))
            else:
                view.events.extend(_names(row))
        found = list(views.values())
        if len(rows) <= query.limit:
            return Page(items=found, next=edge)
        if len(found) > 1:
            found.pop()  # its parts may go on behind the page
            return Page(items=found, next=found[-1].delivery_id)
        # One delivery fills the page with its events: there may be no other.
        last = found[0].delivery_id
        older, edge = await found_deliveries(
            self._app.worker, msgspec.structs.replace(where, before=last, limit=1)
        )
        return Page(items=found, next=last if older else edge)

    async def delivery(self, delivery_id: str) -> DeliveryView:
        """Give one delivery with its raw request, as far as it is kept.

        Raises:
            NotFound: there is no such delivery.
        """
        store = self._store
        parts: list[DeliveryRow] = await self._ask(
            store.delivery, asked.checked_text(delivery_id, "delivery id")
        )
        row: DeliveryRow | UnparsedRow | None
        row = parts[0] if parts else await self._ask(store.unparsed_delivery, delivery_id)
        if row is None:
            raise NotFound(f"There is no delivery {shown(delivery_id)} in this namespace.")
        view = self._shaping.delivery(row, [_name(part) for part in parts])
        try:
            _, request = await self._app.arrivals.request(delivery_id)
        except NotFound:
            return view
        return self._shaping.with_body(view, request)

    async def redeliver(self, delivery_id: str, *, actor: str) -> Mapping[str, Any]:
        """Feed a stored raw request in again; give each event with its runs.

        Args:
            delivery_id: which.
            actor: who asks, for the audit.

        Raises:
            BodyMalformed: the source cannot read it; it is kept as it was.
            NotFound: there is no such delivery, or its body is not kept any more.
            ConfigError: the app does not have its source.
        """
        return await self._acting.redeliver(delivery_id, actor)

    async def sources(self) -> list[SourceView]:
        """List the sources with their refusals and clock skew; also those that only the store knows."""
        refusals = await self.refusals()
        views = []
        recent: list[RecentDelivery] = await self._ask(self._store.recent_deliveries, asked.LOOK_MAX)
        for name, source in self._app.sources.items():
            rows = [row for row in recent if row.source == name][:RECENT_DELIVERIES]
            look = partial(self._store.look_for_unparsed, limit=RECENT_DELIVERIES, look=asked.LOOK_MAX)
            unread: list[UnparsedRow] = (await self._ask(look, name, None)).deliveries
            received = [row.received_at for row in rows] + [row.received_at for row in unread]
            skews = [row.received_at - row.sent_at for row in rows if row.sent_at is not None]
            views.append(
                SourceView(
                    name=name,
                    kind=source.kind,
                    path=f"/hooks/{name}",
                    docs=source.docs_url or None,
                    last_received_at=max(received, default=None),
                    median_skew_ms=round(median(skews)) if skews else None,
                    refusals=[refusal for refusal in refusals if refusal.source == name],
                    unparsed=len(unread),
                )
            )
        return views

    async def refusals(self, source: str | None = None) -> list[RefusalView]:
        """List what was refused, the latest first."""
        return [shaping.refusal_view(one) for one in await self._app.refusals(source)]

    # --- processes and workflows -----------------------------------------------------------------

    async def workers(self) -> list[WorkerView]:
        """List the processes that are registered, this one included."""
        worker = self._app.worker
        rows = await self._app.processes()
        owned = await self._ask(worker.store.owned_counts)
        return [shaping.worker_view(row, owned, worker.now_ms(), worker.process_id) for row in rows]

    async def notices(self) -> NoticesView:
        """Give the addresses that notices are sent to, and the latest notices."""
        addresses = await self._ask(self._store.notice_addresses)
        latest = await self._ask(self._store.notices, NOTICES_MAX)
        return shaping.notices_view(addresses, latest)

    async def workflows(self) -> list[WorkflowView]:
        """List the registered workflows; ``is_in_code`` says whether this app's code has it."""
        return [
            WorkflowView(
                name=row.name,
                triggers=msgspec.json.decode(row.triggers),
                seen_at=row.seen_at,
                deadline_ms=row.deadline_ms,
                is_in_code=row.name in self._app.workflows,
                rules=None if row.rules is None else msgspec.json.decode(row.rules),
                tags=[] if row.tags is None else msgspec.json.decode(row.tags),
            )
            for row in await self._app.registered()
        ]

    async def audit(self, *, after: str | None = None, limit: int = 50) -> Page[AuditView]:
        """List what operators did, newest first.

        Raises:
            ConfigError: *after* or *limit* cannot be used.
        """
        before = None if after is None else asking.read_cursor(after, int, str)
        rows = await self._ask(self._store.all_audits, before, asking.checked_limit(limit) + 1)
        items = [self._shaping.audit(row) for row in rows[:limit]]
        is_more = len(rows) > limit
        return Page(items=items, next=asking.cursor(items[-1].at, items[-1].audit_id) if is_more else None)

    # --- acting ----------------------------------------------------------------------------------

    async def plan(self, run_id: str, action: Action) -> Any:
        """Give the rerun plan of an action, and do nothing.

        Returns:
            What becomes of each step and child, with what would happen again outside, and the token by
            which a restart is told that it was looked at; see `onceward.core.plan.Plan`.

        Raises:
            NotFound: no such run in this namespace.
            StateConflict: the verb does not apply to the run as it stands.
            ConfigError: there is no plan of such a verb, or the run has no such step.
        """
        return await self._acting.plan(run_id, action)

    async def act(self, run_id: str, action: Action) -> ActionReply:
        """Do one thing to one run; with a request id, once.

        Raises:
            NotFound: no such run in this namespace.
            PlanNeeded: a restart would do something outside again, and its plan was not acknowledged.
            StateConflict: the verb does not apply to the run as it stands.
            ConfigError: there is no such verb, or what it is given cannot be used.
        """
        return await self._acting.act(run_id, action)

    async def emit(self, emit: Emit) -> EmitReply:
        """Store an event, start what subscribed to it, and end what waits for it; with a request id, once.

        Raises:
            ConfigError: the type, id, subject or source cannot be used.
            IdClash: the id exists with another payload.
            StateConflict: the request was another action.
        """
        return await self._making.emit(emit)

    async def complete(self, run_id: str, completion: Completion) -> ActionReply:
        """End an open promise of a run.

        Raises:
            NotFound: no such run, or it made no such promise.
            AlreadyCompleted: it was ended before, with something else.
            PromiseOver: it has expired, or its run has ended or was restarted.
            ConfigError: several are open, and none is named.
        """
        return await self._making.complete(run_id, completion)

    async def bulk(
        self,
        query: RunQuery,
        action: Action,
        *,
        dry_run: bool,
        progress: Callable[[BulkReply], object] | None = None,
        run_ids: Sequence[str] | None = None,
    ) -> BulkReply:
        """Do one thing to every run that a query finds, up to `BULK_MAX`.

        Args:
            query: which runs; its ``after`` and ``limit`` are not looked at.
            run_ids: these runs instead, up to `PAGE_MAX`; *query* is not looked at.
            action: what; its request id is the bulk action's, and the same id does it once.
            dry_run: only say how many there are, and how many would be refused.
            progress: called now and then with how far it has come.

        Raises:
            ConfigError: as for `runs` and `act`, or a filter that finds everything.
            IdClash: the request id was another bulk action's.
        """
        return await self._acting.bulk(query, action, dry_run=dry_run, progress=progress, run_ids=run_ids)

    async def bulk_progress(self, bulk_id: str) -> BulkReply:
        """Give how far a bulk action has come, or how it ended, whichever process is at it.

        Where that process is gone it is told as interrupted; the same request id goes on from there.

        Raises:
            NotFound: there is none of that id.
        """
        return await how_far(self._app, asked.checked_text(bulk_id, "bulk id"))

    # --- much ------------------------------------------------------------------------------------

    async def prune(self, asked: Prune) -> PruneReply:
        """Prune one page in a transaction of its own, or count what would go of it.

        Raises:
            ConfigError: what is asked does not go together.
        """
        return await pruning.prune(self._app, asked)

    async def export(self, query: ExportQuery) -> ExportPage:
        """Give the stored rows of the next events, newest first, redacted unless ``raw`` is asked for.

        Raises:
            ConfigError: a filter cannot be used.
        """
        page: ExportPage = await self._ask(exporting.page, self._store, query, self._shaping.redaction)
        return page

    async def changed(self) -> AsyncIterator[None]:
        """Yield whenever something may have changed, at most twice a second."""
        seen = await self._ask(self._store.changes)
        while True:
            await asyncio.sleep(BLIND_S if seen is None else CHANGES_S)
            now = await self._ask(self._store.changes)
            if now is None or now != seen:
                seen = now
                yield


def _fits(error: str, run: RunSummary) -> bool:
    failure = run.failure
    return asking.fits_error(error, run.reason, *(() if failure is None else (failure.type, failure.message)))


def _is(row: EventRow, where: Any) -> bool:
    """Say whether the one event of a source and an id is what else is looked for."""
    return (
        where.type in (None, row.type)
        and where.subject in (None, row.subject)
        and row.received_at >= where.since
        and (where.before is None or (row.received_at, row.source, row.id) < where.before)
    )


def _name(row: DeliveryRow) -> str:
    return f"{row.source}/{row.event_id}"


def _names(row: DeliveryRow | UnparsedRow) -> list[str]:
    return [_name(row)] if isinstance(row, DeliveryRow) else []
