"""One run in memory: its code executing, its saved answers, what it wants committed.

The session that a context talks to. On the way back up from a crash, a sleep or a wait the code
runs again from the top and saved outcomes answer (recall); where they end, steps run for real.

What must stay true: no body, emit or wait begins before all earlier checkpoints of the run are
durable (RULINGS 5); what a step returns live is what a later attempt reads (31); saved outcomes
are handed out in the order in which they were saved (17); a run leaves memory only when every
branch is parked, and while it unwinds nothing starts (26).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from onceward.authoring.current import Frame, frame_var, session_var
from onceward.authoring.event import Event
from onceward.authoring.expect import RAISES, Label, Parts
from onceward.authoring.made import MadeCalls
from onceward.authoring.options import StepOptions
from onceward.authoring.workflow import Workflow
from onceward.core import codec, errors, promises
from onceward.core.idempotency import business_parts
from onceward.core.model import EventRow, Millis, RunRow, StepKey, StepRow
from onceward.core.ports import Accept
from onceward.core.states import RunState, StepState
from onceward.runtime import ending, fixed, promising, starts, waiting
from onceward.runtime.body import call_body
from onceward.runtime.branches import LAST_WORDS_ROUNDS, Branches
from onceward.runtime.calling import call_workflow
from onceward.runtime.cancel import Cancel
from onceward.runtime.functions import facts_of, is_coroutine_function
from onceward.runtime.journal import Journal
from onceward.runtime.parking import Parking
from onceward.runtime.recall import Recall
from onceward.runtime.records import deadline_error, error_text, failure_of
from onceward.runtime.tracing import GoSpan, safely
from onceward.runtime.tries import UNDO, Call, run_step
from onceward.runtime.undoing import Undoing, judged_and_undone
from onceward.runtime.waiting import Waits

if TYPE_CHECKING:
    from onceward.runtime.worker import Worker

_log = logging.getLogger("onceward.run")

CUT_SLACK, CUT_PATIENCE_MS = 2, 2_000
"""How long code may take to cut a step off again: twice the time of the first time, and a bit."""

CLEAN_UP_LOOK_S = 0.05
"""How often a run that is being cancelled looks whether its other branches have cleaned up."""

LEFT_S_MAX = 5
"""How long branches that the code left running may hold up the commit of its end."""


class Execution(Journal):
    """One loaded run.

    Args:
        worker: whose slots, clock and committer it uses.
        run: as claimed; this process is its only writer from here on.
        event: what started it.
        workflow: the code.
        history: its saved records in saved order.
        confirmed_at: when the store said that the run is ours.
    """

    __slots__ = (
        "_deadline",
        "_history",
        "_is_begun",
        "_parking",
        "_verbs",
        "_waits",
        "began_at",
        "branches",
        "called",
        "calls",
        "cancel",
        "event",
        "is_sync",
        "made",
        "questions",
        "recall",
        "root",
        "steps_in_flight",
        "told",
        "trace",
        "undoing",
        "unseen",
        "workflow",
    )

    def __init__(
        self,
        worker: Worker,
        run: RunRow,
        event: EventRow,
        workflow: Workflow[..., Any],
        history: list[StepRow],
        confirmed_at: float,
    ) -> None:
        super().__init__(worker, run, history, confirmed_at)
        self.event = Event(event, run.input, is_stale=run.is_stale)
        self.workflow = workflow
        self.trace = event.trace
        self.is_sync = not workflow.is_async
        self.root: asyncio.Task[None] | None = None
        self.calls = 0  # verbs in progress, parked ones included
        self.made = MadeCalls()
        self.steps_in_flight: set[StepKey] = set()
        self.questions: dict[StepKey, StepRow] = {}  # what a person is to be asked about
        self.called: dict[str, list[asyncio.Future[RunRow]]] = {}  # runs whose ends are awaited
        self.unseen: set[str] = set()  # of these, the ones that were not looked at since the claim
        self.began_at = event.received_at  # from when on events count that it waits for; of replays too
        self._waits: Waits | None = None
        self._history = history
        self.told = worker.matching.told(run.run_id)  # events that may end a wait, read as it was loaded
        self.branches = Branches(self.loop)
        self.recall = Recall(history, self.branches, self.loop, worker.context, self._quiet)
        self.undoing = Undoing(history)
        if self.undoing.mark is not None:
            self.recall.set_aside(UNDO, self.undoing.mark.seq)
        self._parking: Parking | None = None
        self.cancel = Cancel(
            is_on=run.state is RunState.CANCELLING,
            is_delivered=bool(history) and any(row.state is StepState.CANCELLED for row in history),
        )
        self._deadline: asyncio.TimerHandle | None = None
        self._verbs: set[asyncio.Task[Any]] = set()  # tasks of verbs that threads wait for
        self._is_begun = False

    # --- life ---------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start the code in a task of its own."""
        self.root = self.branches.root = self.loop.create_task(self._main())
        if self.run.deadline_at is not None and not self.cancel.is_on and not self.undoing.is_rewinding:
            left = max(0, self.run.deadline_at - self.worker.now_ms())
            self._deadline = self.loop.call_later(
                left / 1000, self.stop, "deadline", context=self.worker.context
            )

    async def _main(self) -> None:
        """Run the code to its end, whatever that is, and commit what became of it."""
        self._is_begun = True
        session_var.set(self)
        tracer = self.worker.tracer
        span = None if tracer is None else safely(GoSpan, tracer, self, self._history)
        error: BaseException | None = None
        value: Any = None
        try:
            is_bound = not self.cancel.is_on and not self.undoing.is_rewinding
            deadline_at = self.run.deadline_at if is_bound else None
            if deadline_at is not None and deadline_at <= self.worker.now_ms():
                if self.workflow.policies.undoes_on_failure:
                    self.undoing.rewind(error_text(deadline_error(self.run)))
                else:
                    self.stopping = "deadline"
            if self.stopping is None and not ending.is_given_up(self.run):
                try:
                    value = await call_workflow(self, is_known=bool(self._history))
                finally:
                    if self.cancel.is_on:
                        await self._cleaned_up()
        except BaseException as caught:  # noqa: BLE001 - every way to end is told apart below
            error = caught
        if self._deadline is not None:
            self._deadline.cancel()
        if self.root is not None and self.root.cancelling():
            # A cancellation that the code asked for and did not wait for must not hit the commit.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
        try:
            await self._finish(*await judged_and_undone(self, value, error))
        finally:
            if span is not None:
                safely(span.end, self, error)
            self._abandon()
            self.worker.unloaded(self)
            # The task's context has this object as its session: without this, memory that runs leave
            # would wait for the garbage collector, which then takes a quarter of the time.
            self.root = None

    async def _cleaned_up(self) -> None:
        """Wait for branches that clean up after a cancellation.

        The first of them that is through ends a ``gather``, and with it the code; the clean-up of
        the others must not be cut off by that. A branch that is not in a verb, nor soon in the
        next, does not count: nobody can tell it.
        """
        rounds = 0
        while self.stopping is None and rounds < LAST_WORDS_ROUNDS:
            branches = [task for task in self.branches.tasks() if task is not self.root and not task.done()]
            if self.calls and branches:
                rounds = 0
                await asyncio.wait(branches, timeout=CLEAN_UP_LOOK_S, return_when=asyncio.FIRST_COMPLETED)
            else:
                rounds += 1
                await asyncio.sleep(0)

    async def _finish(self, error: BaseException | None, verdict: ending.Verdict) -> None:
        try:
            if ending.is_over(self, verdict):
                await self._end_left()
            try:
                await ending.finish(self, error, verdict)
            except (errors.LeaseLost, errors.StoreUnavailable):  # the second one when this process stops
                raise
            except errors.OncewardError as refused:
                await ending.hold_unstorable(self, refused)
        except errors.LeaseLost:
            self.stopping = "lost"
        except asyncio.CancelledError:
            self.stopping = "lost"  # the loop is being closed under us; the lease decides
        except errors.OncewardError:
            self.stopping = "lost"
            if not self.worker.is_closing:  # else whoever takes the run over goes on with it
                _log.exception("run %s of %s: its end cannot be stored", self.run_id, self.run.workflow)

    async def _end_left(self) -> None:
        """End what the code left running: after the commit the next attempt, or the key's next run, is beside it."""
        if self.stopping is None:
            self.stopping = "ended"  # nothing of it is saved, and nothing more of it starts
        left = [task for task in self._left() if task is not self.root]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=LEFT_S_MAX)

    def _left(self) -> list[asyncio.Task[Any]]:
        return [task for task in (*self.branches.tasks(), *self._verbs) if not task.done()]

    def stop(self, why: str) -> None:
        """Unwind the code; nothing of it starts any more. What follows is decided by *why*."""
        if self.stopping is None or why == "lost":
            self.stopping = why
            # A task that is cancelled before its first step never enters its code, so nobody would
            # hear that the run left memory; `_main` looks at `stopping` by itself.
            if self.root is not None and self._is_begun and self.root is not _current_task():
                self.root.cancel()
            for task in self._verbs - {_current_task()}:
                task.cancel()
            if self._parking is not None:
                self._parking.cut()

    def keep_loaded(self, key: StepKey) -> None:
        """Keep the run in memory: a step is about to begin, or its body runs."""
        self.steps_in_flight.add(key)

    def may_unload(self, key: StepKey) -> None:
        """Hear that the step does not keep the run in memory any more."""
        self.steps_in_flight.discard(key)
        if self.worker.is_draining and not self.steps_in_flight:
            self.loop.call_soon(self.drain)

    def drain(self) -> None:
        """Leave memory at the next boundary between steps, charging nothing."""
        if not self.steps_in_flight:
            self.stop("release")

    @property
    def business(self) -> tuple[str, ...]:
        """Give what keys of scope ``"business"`` are made of."""
        run = self.run
        return business_parts(self.worker.settings.namespace, run.workflow, run.key, run.source, run.event_id)

    @property
    def parking(self) -> Parking:
        """Give the parked branches; made when the first of them parks."""
        if self._parking is None:
            self._parking = Parking(self)
        return self._parking

    @property
    def waits(self) -> Waits:
        """Give the open waits; made when something of the run waits, or is told of an event."""
        if self._waits is None:
            self._waits = Waits(self, self._history)
        return self._waits

    def _quiet(self) -> None:
        """Hear that the code is quiet: nothing is ready to run and no saved outcome is due."""
        if self.stopping is not None:
            return
        if self.undoing.waits:
            self.stop("rewound")
        elif self.cancel.waits:
            self.loop.create_task(self.cancel.deliver(self))
        elif self._parking is not None:
            self._parking.look()

    def _abandon(self) -> None:
        """Cut what the code left running: branches that nobody awaits, open waits."""
        if self._deadline is not None:
            self._deadline.cancel()
        self.made.clear()
        self.recall.close()
        if self.stopping is None:
            self.stopping = "ended"
        if self._parking is not None:
            self._parking.close()
        for task in self._left():
            if task is not self.root:
                task.cancel()
        self.branches.close()

    # --- saved answers -------------------------------------------------------------------------

    async def saved(self, key: StepKey, kind: str) -> StepRow | None:
        """Give the record of a step; with an outcome, it has been handed out in saved order."""
        record = self.recall.record(key)
        if record is not None and record.kind != kind:
            self.mismatch(key, f"it was saved as {record.kind!r} and the code now asks for {kind!r}")
        if record is None or record.state is StepState.OPEN:
            if self.undoing.is_rewinding:
                await self.undoing.end_here(self)
            if record is not None and kind == UNDO:
                return record  # what it did so far was saved after it, and is handed out by it
            if self.cancel.is_due:
                await self.cancel.raise_here(self, key, kind)
            await self.recall.caught_up()
            if record is None:
                self.recall.begins_anew()
            self.check_usable()
            return record
        if kind == UNDO and record.state is StepState.DONE:
            return record  # handed out by the undoing itself, after what it did
        await self.recall.hand_out(record)
        self.check_usable()
        if record.state is StepState.CUT:
            await self._cut_again(record)
        if record.state is StepState.CANCELLED:
            raise errors.RunCancelled("the run is being cancelled")
        return record

    async def _cut_again(self, record: StepRow) -> NoReturn:
        """Wait for the code to cut the step off, as it did before; it stays in memory until then."""
        # The clock may have been set back meanwhile.
        took_ms = max(0, (record.ended_at or record.started_at) - record.started_at)
        await asyncio.sleep((CUT_SLACK * took_ms + CUT_PATIENCE_MS) / 1000)
        self.mismatch(record.key, "the code cut it off while it ran and now does not")

    def mismatch(self, key: StepKey, what: str) -> NoReturn:
        """Hold the run: its code does not fit what is saved of a step (RULINGS 24)."""
        self.hold_reason = f"code mismatch at step {str(key)!r}: {what}"
        self.stop("hold")
        raise errors.Suspended("the run is held")

    def answer(self, record: StepRow, result: codec.Codec) -> Any:
        """Give a saved outcome: the value, or the failure raised."""
        if record.state is StepState.FAILED:
            try:
                failure = failure_of(record)
            except msgspec.DecodeError as error:
                self.mismatch(record.key, f"its saved failure cannot be read: {error}")
            raise failure
        if record.output is None:
            return None
        try:
            return result.decode(record.output)
        except errors.OncewardError as error:
            self.mismatch(record.key, f"its saved result does not fit the code any more: {error.what}")

    # --- the verbs of the context ----------------------------------------------------------------

    def _enter(self, name: str, item: str, caller: object) -> StepKey:
        """Begin a verb: check that it may, and give its key."""
        self.check_usable()
        if self.undoing.is_over:
            raise errors.Suspended("the run has ended; let this exception pass")
        frame = frame_var.get()
        if frame is not None:
            raise errors.StepMisuse(
                f"The step {name!r} was called inside the body of step {str(frame.key)!r}.",
                means="A step is saved whole; one inside another could be lost or run twice.",
                todo="Call it from the workflow, or call the plain function.",
            )
        key = self.branches.key(name, item, caller)
        self.recall.asked(key)
        self.calls += 1
        if self.is_sync and (task := _current_task()) is not None:
            self._verbs.add(task)
        return key

    @contextlib.contextmanager
    def _verb(self, key: StepKey, kind: str) -> Iterator[None]:
        """End a verb that was begun, and save that the code cut it off, if it does."""
        try:
            yield
        except asyncio.CancelledError as error:
            self._note_cut(key, kind, error)
            raise
        finally:
            self._leave()

    def _leave(self) -> None:
        """End a verb."""
        self.calls -= 1
        self.branches.left()
        if self.is_sync and (task := _current_task()) is not None:
            self._verbs.discard(task)

    async def step(
        self,
        name: str,
        item: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: StepOptions,
        caller: object,
    ) -> Any:
        """Give a step's saved result, or run it, try by try, and save what comes of it."""
        task = asyncio.current_task(self.loop)
        key = self._enter(name, item, caller or task)
        try:  # as in `_verb`, without what a context manager costs each step
            if options.undo is not None:
                self.undoing.note(self, key, function, args, kwargs, options)
            has_records = self.recall.is_needed(self.cancel.is_on) or self.undoing.is_rewinding
            record = await self.saved(key, options.kind) if has_records else None
            try:
                facts = facts_of(function)
            except errors.ConfigError as error:
                self._refuse_function(key, options.kind, record, error)
            if record is not None and record.state is not StepState.OPEN:
                return self.answer(record, facts.result)
            call = Call(key, function, facts, args, kwargs, options, options.kind)
            return await run_step(self, call, record, task)
        except asyncio.CancelledError as error:
            self._note_cut(key, options.kind, error)
            raise
        finally:
            self._leave()

    async def body(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a function inside a step's body: an async one here, a plain one in a thread."""
        return await call_body(self, function, args, kwargs, is_coroutine_function(function))

    def _refuse_function(
        self, key: StepKey, kind: str, record: StepRow | None, error: errors.ConfigError
    ) -> NoReturn:
        """Fail a step whose function cannot be one: its result has no stored form."""
        if record is not None and record.state is StepState.FAILED:
            raise failure_of(record)
        if record is not None and record.state is not StepState.OPEN:
            self.mismatch(key, error.what)
        now = self.worker.now_ms()
        text = error_text(error, is_final=True)
        row = self.row(key, kind, StepState.FAILED, now, record=record, error=text)
        self.save(row)
        raise failure_of(row) from None

    async def undo(self, name: str, item: str, caller: object) -> list[str]:
        """Undo what was done before this point of the code; give the steps, the last one first."""
        key = self._enter(name, item, caller)
        with self._verb(key, UNDO):
            return await self.undoing.here(self, key)

    async def sleep(self, name: str, item: str, delay_ms: Millis, caller: object) -> None:
        """Return when the deadline that was fixed at the first time has passed."""
        key = self._enter(name, item, caller)
        with self._verb(key, "sleep"):
            await fixed.sleep(self, key, delay_ms)

    async def wait(
        self,
        name: str,
        item: str,
        parts: Parts,
        timeout_ms: Millis | None,
        is_raising: bool,
        caller: object,
    ) -> tuple[Label | None, Event] | None:
        """Give the first event that is waited for, and as which; None when the time is over."""
        key = self._enter(name, item, caller)
        with self._verb(key, "wait"):
            promising.check_strict(self, key, timeout_ms)
            return await waiting.wait(self, key, parts, timeout_ms, is_raising=is_raising)

    async def promise(
        self, name: str, item: str, timeout_ms: Millis | None, caller: object
    ) -> promising.Made:
        """Make a promise once."""
        key = self._enter(name, item, caller)
        with self._verb(key, "promise"):
            promising.check_strict(self, key, timeout_ms)
            return await promising.promise(self, key, timeout_ms)

    async def promised(
        self,
        name: str,
        item: str,
        token_hash: str,
        expires_at: datetime | None,
        default: Any,
        caller: object,
    ) -> Any:
        """Wait for the end of a promise."""
        key = self._enter(name + promises.RESULT, item, caller)
        until = promising.to_ms(expires_at)
        with self._verb(key, "promise"):
            is_completed, value = await promising.promised(
                self, key, token_hash, until, is_raising=default is RAISES
            )
            return value if is_completed else default

    async def value(self, kind: str, name: str, item: str, caller: object) -> Any:
        """Draw once, save, and give the same for ever."""
        key = self._enter(name, item, caller)
        with self._verb(key, fixed.kind_of(kind)):
            return await fixed.value(self, key, kind)

    async def emit(
        self, name: str, item: str, type_: str, payload: Any, subject: str | None, caller: object
    ) -> tuple[str, str]:
        """Emit once, together with the checkpoint that says so."""
        key = self._enter(name, item, caller)
        with self._verb(key, "emit"):
            return await starts.emit(self, key, type_, payload, subject)

    def emit_inside(
        self,
        frame: Frame,
        type_: str,
        payload: Any,
        event_id: str | None,
        subject: str | None,
        occurred_at: Millis | None,
        *,
        is_posted: bool = False,
    ) -> Accept:
        """Emit inside a step's body: stored if and only if the step's outcome is."""
        return starts.emit_inside(
            self, frame, type_, payload, event_id, subject, occurred_at, is_posted=is_posted
        )

    async def start(
        self,
        name: str,
        item: str,
        workflow: Workflow[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        is_called: bool,
        caller: object,
    ) -> Any:
        """Start a child once; give its id, or wait for its outcome and save that."""
        key = self._enter(name, item, caller)
        with self._verb(key, "call" if is_called else "start"):
            return await starts.start(self, key, workflow, args, kwargs, is_called=is_called)

    def start_inside(
        self,
        frame: Frame,
        workflow: Workflow[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        event_id: str | None,
        *,
        is_posted: bool = False,
    ) -> Accept:
        """Start a run inside a step's body: it exists if and only if the step's outcome does."""
        return starts.start_inside(self, frame, workflow, args, kwargs, event_id, is_posted=is_posted)

    def child_ended(self, child: RunRow) -> None:
        """Hear that a called run ended."""
        for future in self.called.get(child.run_id, ()):
            if not future.done():
                future.set_result(child)

    def child_seen(self, child_run_id: str) -> None:
        """Hear that a called run was looked at: it has ended, or its end will be heard of."""
        self.unseen.discard(child_run_id)
        if not self.unseen:
            self.recall.look_when_quiet()

    def open_children(self) -> list[str]:
        """Give the called runs whose ends are awaited."""
        return [
            run_id for run_id, futures in self.called.items() if not all(future.done() for future in futures)
        ]


def _current_task() -> asyncio.Task[Any] | None:
    """Give the task that runs now; None in a callback of the loop."""
    return asyncio.current_task()
