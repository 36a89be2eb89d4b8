"""What callers hold: a run, an event, what an emit did."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from onceward.core import asked, codec, errors, json_plain, unknown
from onceward.core.asked import UNSET
from onceward.core.choice import choice_of
from onceward.core.duration import Duration, show, to_ms
from onceward.core.model import AttemptRow, DeliveryRow, EventRow, RunRow, Skip, SkippedRow, StepRow
from onceward.core.plan import Plan
from onceward.core.ports import RunFilter
from onceward.core.states import RunState, Verb
from onceward.core.steer import Reply
from onceward.core.unknown import Question
from onceward.planning import Answered, PlannedVerb, anew_of, checked_verb

if TYPE_CHECKING:
    from onceward.authoring.workflow import Workflow
    from onceward.desk import Desk

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
HandleT_co = TypeVar("HandleT_co", covariant=True)


class RunHandle(Generic[R_co]):
    """One run, by id; every method asks the store. Got from `App.start`, `App.emit` and `App.run`.

    Attributes:
        run_id: the run's id. Of a start inside a step's body whose key another run holds it is that
            run's, from the first question on that is asked after the step is saved.
        is_duplicate: for a start: the run existed already, by its ``id=`` or because it holds the key.
    """

    def __init__(
        self,
        desk: Desk,
        run_id: str,
        workflow: Workflow[..., R_co] | None = None,
        *,
        is_duplicate: bool = False,
        started_by: tuple[str, str, str] | None = None,
    ) -> None:
        self._desk = desk
        self._workflow = workflow
        # The workflow, source and id of a start that a step's body brings, until it is seen.
        self._started_by = started_by
        self.run_id = run_id
        self.is_duplicate = is_duplicate

    async def _known(self) -> str:
        """Give the run's id; of a start inside a step's body once it is known which run it is.

        Raises:
            NotFound: the step is not saved yet.
            KeyTaken: there is no run, since another holds the key.
        """
        if self._started_by is not None:
            self.run_id, is_own = await self._desk.started(self.run_id, *self._started_by)
            self.is_duplicate = self.is_duplicate or not is_own
            self._started_by = None
        return self.run_id

    async def row(self) -> RunRow:
        """Give everything that is stored of the run itself.

        Raises:
            NotFound: no such run in this namespace.
        """
        return await self._desk.run_row(await self._known())

    async def state(self) -> RunState:
        """Give where the run stands.

        Raises:
            NotFound: no such run in this namespace.
        """
        return (await self.row()).state

    async def result(self, timeout: Duration | None = None) -> R_co:  # noqa: ASYNC109 - a wait, not a scope
        """Wait for the run's end and give its result; a held run has not ended.

        Args:
            timeout: how long to wait; the run goes on when it is over.

        Returns:
            What the workflow returned, read by its return annotation.

        Raises:
            RunFailed: it failed; the type and message of what ended it.
            RunWasCancelled: it was cancelled.
            Pruned: it completed, and retention took its result.
            TimeoutError: it has not ended yet.
            NotFound: no such run in this namespace; or it was started inside a step that is not saved yet.
            KeyTaken: it was started inside a step, and there is no such run: another holds the key.
        """
        row = await self._desk.ended(
            await self._known(), None if timeout is None else to_ms(timeout, what="timeout")
        )
        if row.state is RunState.CANCELLED:
            raise errors.RunWasCancelled(f"Run {row.run_id} of {row.workflow!r} was cancelled.")
        if row.state is RunState.FAILED:
            told = msgspec.json.decode(row.error or "{}")
            raise errors.RunFailed(row.run_id, told.get("type", "Exception"), told.get("message", ""))
        workflow = self._workflow or self._desk.workflows.get(row.workflow)
        if row.pruned_at is not None:
            raise errors.Pruned(
                f"The result of run {row.run_id} was pruned.",
                means="The run completed; retention took its result since.",
                todo="Keep results for longer: Retention(payloads=…).",
            )
        if row.output is None:
            return None  # type: ignore[return-value]
        decoder = codec.codec_for(Any) if workflow is None else workflow.result_codec
        result: R_co = decoder.decode(row.output)
        return result

    async def steps(self, generation: int | None = None) -> list[StepRow]:
        """Give the records of a generation in the order in which their outcomes were saved.

        Args:
            generation: counted from 1; the present one by default.

        Raises:
            ConfigError: *generation* cannot be one.
        """
        return await self._desk.ask("steps", await self._known(), asked.checked_generation(generation))  # type: ignore[no-any-return]

    async def attempts(self) -> list[AttemptRow]:
        """Give the attempts that ended without ending their generation well, oldest first."""
        return await self._desk.ask("attempts", await self._known())  # type: ignore[no-any-return]

    async def children(self) -> list[RunRow]:
        """Give the runs that this run started or called."""
        return await self._desk.ask("children", await self._known())  # type: ignore[no-any-return]

    async def retry(self, *, actor: str = "app") -> Reply:
        """Begin the next attempt of the same generation; saved steps are kept.

        Joins an attempt that is under way, brings one forward that waits.

        Args:
            actor: who asks, for the audit: 1 to 200 printable characters.

        Raises:
            StateConflict: the run completed, was cancelled, is held or being cancelled.
        """
        return await self._desk.steer(Verb.RETRY, await self._known(), actor=actor)

    async def plan(
        self,
        verb: PlannedVerb,
        *,
        from_step: str | None = None,
        keep: str | Iterable[str] | None = None,
        drop: str | Iterable[str] | None = None,
        payload: Any = None,
        answer: str | None = None,
        step: str | None = None,
    ) -> Plan:
        """Tell what a verb would do to each step, and do nothing.

        Args:
            verb: ``"retry"``, ``"restart"``, ``"replay"``, or ``"answer"`` for a held run; ``"resume"`` is
                the answer "retry".
            from_step: of a restart or replay: keep what was saved before this step's outcome.
            keep: keep these steps; ``"charge"`` is every use of the name, ``"charge[order-7]"`` and
                ``"charge #2"`` are one.
            drop: let these run again. Without *from_step* and *keep* everything else that is done is kept.
            payload: of a replay.
            answer: of an answer: the word, as `answer` takes it; "retry" by default.
            step: likewise: which step it is about.

        Returns:
            The plan; printed, it is a list for people. ``restart(plan=…)`` takes it, or its ``token``.

        Raises:
            StateConflict: the verb, or the answer, does not apply to the run as it stands.
            ConfigError: there is no plan of such a verb, or the run has no such step.
            NotFound: no such run in this namespace.
        """
        choice, answered = choice_of(from_step, keep, drop), Answered(answer, step)
        return await self._desk.planner.plan(
            await self._known(), checked_verb(verb), choice, payload, answered
        )

    async def restart(
        self,
        *,
        plan: Plan | str | None = None,
        from_step: str | None = None,
        keep: str | Iterable[str] | None = None,
        drop: str | Iterable[str] | None = None,
        acknowledge: bool = False,
        request_id: str | None = None,
        actor: str = "app",
    ) -> Reply:
        """Begin a new generation of the same run: every step runs again that is not kept.

        The old records stay. Steps that run again get new idempotency keys, so what they did is done
        again, save with ``key_scope="business"``. If that concerns the world outside, it has to be
        agreed to: with the plan that was looked at, or with ``acknowledge=True``.

        Args:
            plan: what ``plan("restart")`` gave, which says what is kept; or its token, with the same
                *from_step*, *keep* and *drop*.
            from_step: see `plan`.
            keep: see `plan`; nothing by default.
            drop: see `plan`.
            acknowledge: whatever it does again; for scripts.
            request_id: makes the restart itself idempotent: the same id restarts once.
            actor: who asks, for the audit: 1 to 200 printable characters.

        Raises:
            PlanNeeded: it would do something outside again, and neither *plan* nor *acknowledge* says
                that it may.
            StateConflict: the run is being cancelled; or it changed since *plan* was made.
            ConfigError: the run has no such step, or *plan*, *request_id* or *actor* cannot be used.
        """
        choice = choice_of(from_step, keep, drop)
        restart = anew_of(choice, plan, request_id, is_given=acknowledge)
        return await self._desk.steer(Verb.RESTART, await self._known(), actor=actor, restart=restart)

    async def replay(
        self,
        *,
        from_step: str | None = None,
        keep: str | Iterable[str] | None = None,
        drop: str | Iterable[str] | None = None,
        payload: Any = None,
        plan: Plan | str | None = None,
        request_id: str | None = None,
        actor: str = "app",
    ) -> RunHandle[R_co]:
        """Make a new run of the same event; the old one does not change.

        Args:
            from_step: keep what was saved before this step's outcome, by copy; run the rest.
            keep: keep these steps too; see `plan`.
            drop: let these run again; see `plan`.
            plan: what ``plan("replay")`` gave, or its token: refused if the run changed since.
            payload: put in place of the event's payload; JSON-native data.
            request_id: makes the replay itself idempotent: the same id gives the same run.
            actor: who asks, for the audit: 1 to 200 printable characters.

        Returns:
            A handle on the new run.

        Raises:
            ConfigError: the run has no such step, or *plan*, *request_id* or *actor* cannot be used.
            StateConflict: the run changed since *plan* was made.
            NotStorable: the payload is more than JSON's own types.
            NotFound: no such run in this namespace.
        """
        choice = choice_of(from_step, keep, drop)
        wanted = anew_of(
            choice, plan, request_id, is_given=True
        )  # only a restart demands a plan (RULINGS 20)
        run_id, is_duplicate = await self._desk.replay(await self._known(), wanted, payload, actor)
        return RunHandle(self._desk, run_id, self._workflow, is_duplicate=is_duplicate)

    async def cancel(self, *, actor: str = "app") -> Reply:
        """End the run from outside; its clean-up steps still run. Never refused.

        Args:
            actor: who asks, for the audit: 1 to 200 printable characters.

        Returns:
            What happened: it is being cancelled, was cancelled before it began, or had ended.
        """
        return await self._desk.steer(Verb.CANCEL, await self._known(), actor=actor)

    async def questions(self) -> list[Question]:
        """Give what a person is asked about a held run: a question for each step of unknown outcome.

        Empty where the run is held for another reason, which its row tells, or not held.

        Raises:
            NotFound: no such run in this namespace.
        """
        return await self._desk.questions(self.run_id)

    async def answer(
        self, answer: str, *, step: str | None = None, result: Any = UNSET, actor: str = "app"
    ) -> Reply:
        """Let a held run go on, or give it up.

        A run that asks about several steps goes on when all of them are answered.

        Args:
            answer: where the outcome of a step is asked for: ``"happened"``, ``"did_not_happen"`` to
                have it tried again, ``"fail"`` to give the run up; in any other hold ``"retry"`` for
                another attempt, or ``"fail"``.
            step: which step it is about, as `questions` names it; may be left out if there is one.
            result: of a step that happened: what it would have returned; None if that is nothing.
            actor: who asks, for the audit: 1 to 200 printable characters.

        Raises:
            StateConflict: the run is not held, or for another reason than the answer is about.
            ConfigError: there is no such answer, or it does not say about which step, or what the step gave.
            NotStorable: the result is none of the step.
        """
        return await self._desk.answer(await self._known(), answer, step=step, result=result, actor=actor)

    async def resume(self, *, actor: str = "app") -> Reply:
        """Let a held run go on with another attempt: the answer ``"retry"``.

        Args:
            actor: who asks, for the audit: 1 to 200 printable characters.

        Raises:
            StateConflict: the run is not held, or it asks whether a step took effect; see `answer`.
        """
        return await self.answer(unknown.RETRY, actor=actor)

    async def dismiss(self, *, actor: str = "app") -> Reply:
        """Take a failed run off the list of open problems.

        Args:
            actor: who asks, for the audit: 1 to 200 printable characters.

        Raises:
            StateConflict: the run did not fail.
        """
        return await self._desk.steer(Verb.DISMISS, await self._known(), actor=actor)

    def __repr__(self) -> str:
        """Show the id."""
        return f"<run {self.run_id}>"


LOOK_S = 0.05
"""How often whoever waits for a run to be there looks."""


class LaterRun(Generic[R_co]):
    """A run that there is when the transaction has committed in which it was started.

    Attributes:
        source: of the event that starts it.
        event_id: of that event.
    """

    def __init__(self, desk: Desk, workflow: Workflow[..., R_co], event: EventRow) -> None:
        self._desk = desk
        self._workflow = workflow
        self._event = event
        self.source = event.source
        self.event_id = event.id

    async def run(self, timeout: Duration = "30s") -> RunHandle[R_co]:  # noqa: ASYNC109
        """Give the run when there is one: a moment after the commit.

        Args:
            timeout: how long to wait for it.

        Raises:
            TimeoutError: there is none yet; if the transaction was rolled back, there never will be.
            IdClash: the id was taken by other arguments.
            KeyTaken: another run holds the key, and the workflow says ``clash="reject"``.
        """
        timeout_ms = to_ms(timeout, what="timeout")
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                event = await self._committed()
        except TimeoutError:
            raise TimeoutError(
                f"event {self.event_id!r} of {self.source!r} is not there after {show(timeout_ms)}"
            ) from None
        if event.content_hash is not None and event.content_hash != self._event.content_hash:
            raise asked.clash(self.source, self.event_id)
        where = RunFilter(
            workflow=self._workflow.name, source=self.source, event_id=self.event_id, limit=1_000
        )
        for row in await self._desk.ask("runs", where):
            if not row.replay_id:
                return RunHandle(self._desk, row.run_id, self._workflow)
        for skipped in await self._desk.ask("skipped", self.source, self.event_id):
            if skipped.workflow == self._workflow.name and skipped.holder_run_id is not None:
                if skipped.reason is Skip.REJECTED:
                    raise errors.KeyTaken(skipped.workflow, skipped.key or "", skipped.holder_run_id)
                return RunHandle(self._desk, skipped.holder_run_id, self._workflow, is_duplicate=True)
        raise errors.NotFound(
            f"Event {self.event_id!r} of {self.source!r} has no run of {self._workflow.name!r}."
        )

    async def _committed(self) -> EventRow:
        """Look until the event is there: the commit may happen in another program, and nobody says so."""
        while True:
            event: EventRow | None = await self._desk.ask("event", self.source, self.event_id)
            if event is not None:
                return event
            await asyncio.sleep(LOOK_S)

    def __repr__(self) -> str:
        """Show what identifies it."""
        return f"<run of event {self.event_id!r} of {self.source!r}>"


@dataclass(frozen=True)
class Emitted(Generic[HandleT_co]):
    """What an emit did.

    Attributes:
        source: the event's source.
        id: the event's id.
        is_duplicate: the event existed already; its runs are the ones it had.
        runs: one run per subscribed workflow; empty when nobody subscribed, and inside a step,
            where the event exists only once the step is saved.
    """

    source: str
    id: str
    is_duplicate: bool
    runs: Sequence[HandleT_co]


class EventView:
    """A stored event with its runs and deliveries.

    Attributes:
        source: who says so.
        id: the event's id within its source.
        type: what happened.
        subject: what it is about, if the source says so.
        runs: its runs, the originals and their replays, oldest first.
        deliveries: the requests that carried it, oldest first; none for events of our own. Of a
            great many the first are kept.
        delivery_count: how many came in all.
        same_body: ids of other events of the source with the very same body, where the id stands
            outside the signature: somebody may have sent a captured delivery again under new ids.
        skipped: the workflows that want it and have no run of it; ``why`` is the reason in words.
    """

    def __init__(
        self,
        row: EventRow,
        runs: list[RunRow],
        deliveries: list[DeliveryRow],
        skipped: list[SkippedRow],
        surplus: int = 0,
        same_body: Sequence[str] = (),
    ) -> None:
        self._row = row
        self.source = row.source
        self.id = row.id
        self.type = row.type
        self.subject = row.subject
        self.runs = runs
        self.deliveries = deliveries
        self.skipped = skipped
        self.delivery_count = len(deliveries) + surplus
        self.same_body = list(same_body)

    @property
    def has_clash(self) -> bool:
        """Say whether a delivery brought other content under the same id; the first stays."""
        return any(delivery.outcome == "clash" for delivery in self.deliveries)

    @property
    def payload(self) -> Any:
        """Give the payload; None once retention has pruned it."""
        return None if self._row.payload is None else json_plain.decode_plain(self._row.payload)

    @property
    def received_at(self) -> datetime:
        """Give when the event was stored first, in UTC."""
        return datetime.fromtimestamp(self._row.received_at / 1000, UTC)

    def __repr__(self) -> str:
        """Show what identifies it, never the payload."""
        return f"EventView(source={self.source!r}, id={self.id!r}, runs={len(self.runs)})"
