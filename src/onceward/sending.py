"""The sending half of `App`: events that it emits itself, and starts of its workflows."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar, overload

from onceward.authoring.current import frame_var, noted, session_var
from onceward.authoring.event import Event
from onceward.authoring.takes import Takes0, Takes1, Takes2, Takes3, Takes4
from onceward.authoring.workflow import Workflow
from onceward.core import asked, errors, ids
from onceward.core.model import EventRow, OutboxRow, Skip
from onceward.core.ports import Accept, RunFilter
from onceward.core.shown import shown
from onceward.core.texts import checked_id
from onceward.handles import Emitted, LaterRun, RunHandle
from onceward.runtime.accepting import emitted_event, start_accept

if TYPE_CHECKING:
    from onceward.core.settings import Settings
    from onceward.desk import Desk
    from onceward.runtime.transactions.outbox import Outbox
    from onceward.runtime.worker import Worker

P = ParamSpec("P")
R = TypeVar("R")
A1 = TypeVar("A1")
A2 = TypeVar("A2")
A3 = TypeVar("A3")
A4 = TypeVar("A4")


class ToPost(NamedTuple):
    """An event that is about to be written in the caller's transaction.

    Attributes:
        row: what is written.
        event: as it will be.
        is_duplicate: an event of that id exists already.
        run_ids: the runs that it has then.
    """

    row: OutboxRow
    event: EventRow
    is_duplicate: bool
    run_ids: list[str]


class Sending:
    """The verbs that make events; see `App`."""

    settings: Settings
    _desk: Desk
    _workflows: dict[str, Workflow[..., Any]]

    @property
    def worker(self) -> Worker:
        """Give the worker of the open app, or raise."""
        raise NotImplementedError

    @noted
    async def emit(
        self,
        type: str,
        payload: Any = None,
        *,
        id: str | None = None,
        subject: str | None = None,
        occurred_at: datetime | None = None,
        within: Any = None,
    ) -> Emitted[RunHandle[Any]]:
        """Store an event and a run for every workflow that subscribed to its type.

        Inside a step's body it commits with the step's checkpoint; in a workflow outside a step
        it raises, since it would happen at every attempt.

        Args:
            type: what happened, e.g. ``"order.paid"``.
            payload: JSON-native data.
            id: makes the emit itself idempotent: the same id gives the same event.
            subject: what it is about.
            occurred_at: when it happened, with a time zone.
            within: a connection or session on which a transaction is open, to the store's database:
                the event exists if and only if that commits, and its runs a moment later.

        Returns:
            The event's identity and its runs; of one that is not committed yet there are none.

        Raises:
            ConfigError: the type or the id cannot be used, or the app is not open.
            NotStorable: the payload is more than JSON's own types.
            IdClash: the id exists with another payload.
            CallOutsideStep: called in a workflow outside a step.
            TransactionMisuse: *within* is no such connection.
            StoreUnavailable: nothing was stored.
        """
        if within is not None:
            posted = await self._to_emit(type, payload, id, subject, occurred_at)
            await self.worker.outbox.write(posted.row, posted.event, within)
            runs = [self._handle(run_id) for run_id in posted.run_ids]
            return Emitted(posted.event.source, posted.event.id, posted.is_duplicate, runs)
        at = asked.checked_time(occurred_at)
        frame = frame_var.get()
        if frame is not None:
            session: Any = frame.session
            accept = session.emit_inside(
                frame, type, payload, None if id is None else checked_id(id), subject, at
            )
            before = [] if id is None else await self._runs_before(accept)
            return Emitted(
                accept.event.source,
                accept.event.id,
                bool(before),
                [self._handle(run_id) for run_id in before],
            )
        self._refuse_in_workflow("emit")
        worker, event = self.worker, self._event(type, payload, id, subject, occurred_at)
        accepted = await worker.accept(worker.routing.accept(event))
        if accepted.is_clash:
            raise asked.clash(event.source, event.id)
        handles = [self._handle(run_id) for run_id in accepted.answers().values()]
        return Emitted(event.source, event.id, accepted.is_duplicate, handles)

    def _event(
        self, type: str, payload: Any, id: str | None, subject: str | None, occurred_at: datetime | None
    ) -> EventRow:
        """Give the event of an emit from outside any run."""
        at = asked.checked_time(occurred_at)
        return emitted_event(self.worker, type, payload, id=id, subject=subject, occurred_at=at)

    async def _to_emit(
        self, type: str, payload: Any, id: str | None, subject: str | None, occurred_at: datetime | None
    ) -> ToPost:
        """Give what an emit writes in a transaction of the caller's; for it and its sync twin."""
        frame = self._frame_of("emit")
        if frame is None:
            self._refuse_in_workflow("emit")
            accept = Accept(self._event(type, payload, id, subject, occurred_at), [])
        else:
            at, checked = asked.checked_time(occurred_at), None if id is None else checked_id(id)
            accept = frame.session.emit_inside(frame, type, payload, checked, subject, at, is_posted=True)
        return await self._to_post(accept, frame, has_id=id is not None)

    def _frame_of(self, verb: str) -> Any:
        """Give the step's body that asks for something within a transaction, if one does."""
        frame: Any = frame_var.get()
        if frame is not None and frame.is_transaction:
            raise errors.TransactionMisuse(
                f"app.{verb} was given within= in the body of transaction {str(frame.key)!r}.",
                means="What a transaction's body emits and starts commits with it as it is.",
                todo=f"Call app.{verb} without within=.",
            )
        return frame

    async def _to_post(self, accept: Accept, frame: Any, *, has_id: bool) -> ToPost:
        run = None if frame is None else frame.session.run
        parent = None if run is None else (run.run_id, run.generation, run.depth)
        row = self.worker.outbox.row_of(accept, parent)
        event = accept.event
        first = await self._desk.ask("event", event.source, event.id) if has_id else None
        before = await self._runs_before(accept) if first is not None else []
        return ToPost(row, event, first is not None, before)

    @overload
    async def start(  # type: ignore[overload-overlap]  # no workflow may take a within=
        self, workflow: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> RunHandle[R]: ...
    @overload
    async def start(
        self, workflow: Workflow[[Event], R], payload: Any = ..., /, *, id: str | None = ...
    ) -> RunHandle[R]: ...
    @overload
    async def start(self, workflow: Takes0[R], /, *, id: str | None = ...) -> RunHandle[R]: ...
    @overload
    async def start(self, workflow: Takes1[A1, R], a1: A1, /, *, id: str | None = ...) -> RunHandle[R]: ...
    @overload
    async def start(
        self, workflow: Takes2[A1, A2, R], a1: A1, a2: A2, /, *, id: str | None = ...
    ) -> RunHandle[R]: ...
    @overload
    async def start(
        self, workflow: Takes3[A1, A2, A3, R], a1: A1, a2: A2, a3: A3, /, *, id: str | None = ...
    ) -> RunHandle[R]: ...
    @overload
    async def start(
        self, workflow: Takes4[A1, A2, A3, A4, R], a1: A1, a2: A2, a3: A3, a4: A4, /, *, id: str | None = ...
    ) -> RunHandle[R]: ...
    @overload
    async def start(
        self, workflow: Workflow[[Event], R], payload: Any = ..., /, *, id: str | None = ..., within: Any
    ) -> LaterRun[R]: ...
    @overload
    async def start(self, workflow: Takes0[R], /, *, id: str | None = ..., within: Any) -> LaterRun[R]: ...
    @overload
    async def start(
        self, workflow: Takes1[A1, R], a1: A1, /, *, id: str | None = ..., within: Any
    ) -> LaterRun[R]: ...
    @overload
    async def start(
        self, workflow: Takes2[A1, A2, R], a1: A1, a2: A2, /, *, id: str | None = ..., within: Any
    ) -> LaterRun[R]: ...
    @overload
    async def start(
        self,
        workflow: Takes3[A1, A2, A3, R],
        a1: A1,
        a2: A2,
        a3: A3,
        /,
        *,
        id: str | None = ...,
        within: Any,
    ) -> LaterRun[R]: ...
    @overload
    async def start(
        self,
        workflow: Takes4[A1, A2, A3, A4, R],
        a1: A1,
        a2: A2,
        a3: A3,
        a4: A4,
        /,
        *,
        id: str | None = ...,
        within: Any,
    ) -> LaterRun[R]: ...
    @noted
    async def start(self, workflow: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Start a run of a workflow; inside a step's body it commits with the step's checkpoint.

        Args:
            workflow: which.
            args: what its function takes after the context; for one that takes an `Event`, the
                event's payload.
            kwargs: likewise, by name; and ``id=``, which makes the start itself idempotent, and
                ``within=``, a connection or session on which a transaction is open, to the store's
                database: the run exists if and only if that commits.

        Returns:
            A handle on the run; inside a step's body the run exists once the step is saved. With
            ``within=`` a `LaterRun`, which knows the event and gives the run when there is one.

        Raises:
            WorkflowUnknown: it is not a workflow of this app.
            ConfigError: the arguments do not fit the function, or the app is not open.
            NotStorable: an argument cannot be stored.
            IdClash: the id exists with other arguments.
            KeyTaken: another run holds the key, and the workflow says ``clash="reject"``.
            CallOutsideStep: called in a workflow outside a step.
            TransactionMisuse: *within* is no such connection.
            StoreUnavailable: nothing was stored.
        """
        event_id: str | None = kwargs.pop("id", None)
        within = kwargs.pop("within", None)
        if within is not None:
            posted = await self._to_start(workflow, args, kwargs, event_id)
            await self.worker.outbox.write(posted.row, posted.event, within)
            return self._later(workflow, posted)
        self._known(workflow)
        event_id = None if event_id is None else checked_id(event_id)
        frame = frame_var.get()
        if frame is not None:
            session: Any = frame.session
            accept = session.start_inside(frame, workflow, args, kwargs, event_id)
            before = [] if event_id is None else await self._runs_before(accept)
            if before:
                return RunHandle(self._desk, before[0], workflow, is_duplicate=True)
            (wanted,), place = accept.runs, (workflow.name, accept.event.source, accept.event.id)
            return RunHandle(self._desk, wanted.run_id, workflow, started_by=place)
        self._refuse_in_workflow("start")
        worker = self.worker
        text = workflow.pack(args, kwargs, limit_bytes=self.settings.value_bytes_max)
        hashed = None if event_id is None else ids.content_hash(text)
        accept = start_accept(worker, workflow, event_id, text, hashed)
        run = worker.claiming.placed(accept.runs[0], worker.routes.of(workflow.name))
        accept = Accept(accept.event, [run])
        accepted = await worker.accept(accept)
        if accepted.is_clash:
            raise asked.clash(accept.event.source, accept.event.id)
        skipped = accepted.skipped.get(workflow.name)
        if skipped is not None and skipped.reason is Skip.REJECTED:
            raise errors.KeyTaken(workflow.name, skipped.key or "", skipped.holder_run_id or "")
        run_id = accepted.answers()[workflow.name]
        is_duplicate = accepted.is_duplicate or skipped is not None
        return RunHandle(self._desk, run_id, workflow, is_duplicate=is_duplicate)

    async def _to_start(
        self,
        workflow: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        event_id: str | None,
    ) -> ToPost:
        """Give what a start writes in a transaction of the caller's; for it and its sync twin."""
        self._known(workflow)
        checked = None if event_id is None else checked_id(event_id)
        frame = self._frame_of("start")
        if frame is None:
            self._refuse_in_workflow("start")
            text = workflow.pack(args, kwargs, limit_bytes=self.settings.value_bytes_max)
            hashed = None if checked is None else ids.content_hash(text)
            accept = start_accept(self.worker, workflow, checked, text, hashed)
        else:
            accept = frame.session.start_inside(frame, workflow, args, kwargs, checked, is_posted=True)
        return await self._to_post(accept, frame, has_id=event_id is not None)

    def _later(self, workflow: Workflow[..., R], posted: ToPost) -> LaterRun[R]:
        """Give the handle of a start that was written in a transaction of the caller's."""
        return LaterRun(self._desk, workflow, posted.event)

    @property
    def outbox(self) -> Outbox:
        """Give the outbox of the open app, from any thread; for the sync twin.

        Raises:
            ConfigError: the app is not open.
        """
        raise NotImplementedError

    def _handle(self, run_id: str) -> RunHandle[Any]:
        return RunHandle(self._desk, run_id)

    async def _runs_before(self, accept: Accept) -> list[str]:
        """Give the runs that an event with an id of the caller's has already, inside a step's body.

        Raises:
            IdClash: the id exists with other content.
        """
        event = accept.event
        first: EventRow | None = await self._desk.ask("event", event.source, event.id)
        if first is None:
            return []
        if first.content_hash is not None and first.content_hash != event.content_hash:
            raise asked.clash(event.source, event.id)
        rows = await self._desk.ask("runs", RunFilter(source=event.source, event_id=event.id, limit=1_000))
        return [row.run_id for row in reversed(rows) if not row.replay_id]

    def _known(self, workflow: Workflow[..., Any]) -> None:
        if not isinstance(workflow, Workflow) or self._workflows.get(workflow.name) is not workflow:
            name = getattr(workflow, "name", None) or getattr(workflow, "__name__", None)
            raise errors.WorkflowUnknown(
                f"{shown(name or workflow)} is not a workflow of this app.",
                means="Nothing was started.",
                todo="Decorate it with @app.workflow() of the same app.",
            )

    def _refuse_in_workflow(self, verb: str) -> None:
        if session_var.get() is not None:
            raise errors.CallOutsideStep(
                f"app.{verb} was called in a workflow outside a step.",
                means="Code between steps runs again at every attempt, and so would this.",
                todo=f"Use `await ctx.step.{verb}(name, …)`, or call app.{verb} inside a step's body.",
            )
