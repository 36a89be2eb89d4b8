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
import logging
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from onceward.authoring.context import Context, SyncContext
from onceward.authoring.current import Frame, frame_var, session_var
from onceward.authoring.event import Event
from onceward.authoring.options import IdempotencyKey, StepOptions
from onceward.authoring.workflow import Workflow
from onceward.core import codec, errors, failpoints, ids, retry
from onceward.core.failure_text import describe_error
from onceward.core.model import AttemptRow, EventRow, Millis, NewRun, RunRow, StepKey, StepRow
from onceward.core.ports import Accept, RunMove
from onceward.core.states import TERMINAL, RunState, StepState
from onceward.runtime.committer import PendingAdvance
from onceward.runtime.functions import facts_of
from onceward.runtime.recall import Recall

if TYPE_CHECKING:
    from onceward.runtime.worker import Worker

_log = logging.getLogger("onceward.run")

FAR_MS = 100 * 366 * 86_400_000
"""A due time for runs that wait for something without a time of their own."""


class Execution:
    """One loaded run.

    Args:
        worker: whose slots, clock and committer it uses.
        run: as claimed; this process is its only writer from here on.
        event: what started it.
        workflow: the code.
        history: its saved records in saved order.
    """

    def __init__(
        self,
        worker: Worker,
        run: RunRow,
        event: EventRow,
        workflow: Workflow[..., Any],
        history: list[StepRow],
    ) -> None:
        self.worker = worker
        self.run = run
        self.run_id = run.run_id
        self.generation = run.generation
        self.attempt = run.attempt
        self.event = Event(event, run.input)
        self.workflow = workflow
        self.is_sync = not workflow.is_async
        self.loop = worker.loop
        self.root: asyncio.Task[None] | None = None
        self.is_ending = False  # its code is over, its last commit is on its way
        self.stopping: str | None = None  # why it unwinds: suspend, hold, release, deadline, lost
        self.steps_in_flight: dict[StepKey, Millis] = {}
        self._recall = Recall(history, self.loop, self._quiet)
        self._seq = max((row.seq for row in history), default=0)
        self._pending: PendingAdvance | None = None
        self._calls = 0  # verbs in progress, parked ones included
        self._parked: dict[asyncio.Future[Any], Millis | None] = {}
        self._children: dict[str, asyncio.Future[RunRow]] = {}
        self._is_cancelling = run.state is RunState.CANCELLING
        self._is_cancel_delivered = any(row.state is StepState.CANCELLED for row in history)
        self._cancel_waits: list[tuple[StepKey, str, asyncio.Future[None]]] = []
        self._hold_reason: str | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._linger: asyncio.TimerHandle | None = None

    # --- life ---------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start the code in a task of its own."""
        self.root = self._recall.root = self.loop.create_task(self._main())
        if self.run.deadline_at is not None and not self._is_cancelling:
            left = max(0, self.run.deadline_at - self.worker.now_ms())
            self._deadline = self.loop.call_later(left / 1000, self.stop, "deadline")

    async def _main(self) -> None:
        """Run the code to its end, whatever that is, and commit what became of it."""
        session_var.set(self)
        error: BaseException | None = None
        value: Any = None
        try:
            if self.run.deadline_at is not None and self.run.deadline_at <= self.worker.now_ms():
                if not self._is_cancelling:
                    self.stopping = "deadline"
            if self.stopping is None:
                value = await self._call_workflow()
        except BaseException as caught:  # noqa: BLE001 - every way to end is told apart below
            error = caught
        if self._deadline is not None:
            self._deadline.cancel()
        try:
            await self._finish(value, error)
        except errors.LeaseLost:
            self.stopping = "lost"
        except asyncio.CancelledError:
            self.stopping = "lost"  # the loop is being closed under us; the lease decides
        finally:
            self._abandon()
            self.worker.unloaded(self)

    async def _call_workflow(self) -> Any:
        args, kwargs = self.workflow.unpack(self.event)
        if self.is_sync:
            sync_context = SyncContext(self, self.event)
            return await self.worker.workflow_threads.run(
                self.workflow.function, (sync_context, *args), kwargs
            )
        return await self.workflow.function(Context(self, self.event), *args, **kwargs)

    def stop(self, why: str) -> None:
        """Unwind the code; nothing of it starts any more. What follows is decided by *why*."""
        if self.stopping is None or why == "lost":
            self.stopping = why
            if self.root is not None:
                self.root.cancel()
            for future in list(self._parked):
                future.cancel()

    def _abandon(self) -> None:
        """Cut what the code left running: branches that nobody awaits, open waits."""
        for handle in (self._deadline, self._linger):
            if handle is not None:
                handle.cancel()
        self._recall.close()
        if self.stopping is None:
            self.stopping = "ended"
        for future in list(self._parked):
            future.cancel()
        for task in self._recall.callers():
            if task is not self.root and not task.done():
                task.cancel()

    async def _finish(self, value: Any, error: BaseException | None) -> None:
        """Commit what became of this go at the run."""
        why = self.stopping
        if why == "lost":
            return
        if why == "suspend":
            await self._give_up_until_due()
        elif why == "release":
            await self._end(self._move(RunState.QUEUED, due_at=self.worker.now_ms()))
        elif why == "hold" or self._hold_reason is not None:
            await self._hold(self._hold_reason or "held")
        elif self._is_cancelling:
            text = None if error is None or isinstance(error, errors.RunCancelled) else _error_text(error)
            await self._end(self._move(RunState.CANCELLED, error=text))
        elif why == "deadline":
            await self._fail(_deadline_error(self.run), may_retry=False)
        elif error is None:
            await self._complete(value)
        elif isinstance(error, asyncio.CancelledError) and self.worker.is_closing:
            self.stopping = "lost"
        else:
            await self._fail(error)

    async def _complete(self, value: Any) -> None:
        try:
            text = self.workflow.result_codec.encode(
                value,
                what=f"the result of workflow {self.workflow.name!r}",
                limit_bytes=self.worker.settings.value_bytes_max,
            )
        except errors.OncewardError as error:
            await self._fail(error, may_retry=False)
            return
        move = self._move(RunState.COMPLETED, output=text)
        move.warning = self._recall.unreached_text()
        await self._end(move)

    async def _fail(self, error: BaseException, *, may_retry: bool = True) -> None:
        now, run = self.worker.now_ms(), self.run
        failed = failed_steps(error)
        text = _error_text(error)
        log = AttemptRow(
            generation=run.generation,
            attempt=run.attempt,
            started_at=run.started_at,
            ended_at=now,
            outcome="failed",
            error=text,
            process_id=self.worker.process_id,
            failed_steps=msgspec.json.encode(failed).decode() if failed else None,
        )
        decision = retry.decide(
            self.workflow.policies.retry,
            tries=run.failures + 1,
            error=error,
            elapsed_ms=now - (run.started_at or now),
            draw=self.worker.ids.draw(),
            now_ms=now,
        )
        if decision.delay_ms is not None and may_retry:
            _log.warning(
                "run %s of %s: attempt %d failed, the next begins in %d ms: %s",
                run.run_id,
                run.workflow,
                run.attempt,
                decision.delay_ms,
                _one_line(error),
            )
            pending = self._operation()
            for key in failed:
                self._reopen(pending, key)
            move = self._move(RunState.BACKOFF, due_at=now + decision.delay_ms, error=text)
            move.attempt, move.failures = run.attempt + 1, run.failures + 1
        else:
            _log.warning("run %s of %s failed: %s", run.run_id, run.workflow, _one_line(error))
            move = self._move(RunState.FAILED, error=text, problem_at=now)
            move.failures = run.failures + 1
        move.log = log
        await self._end(move)

    def _reopen(self, pending: PendingAdvance, key: StepKey) -> None:
        """Let a failure that ended the attempt run again in the next (RULINGS 19)."""
        row = pending.steps.get(key) or self._recall.record(key)
        if row is not None:
            pending.steps[key] = msgspec.structs.replace(
                row, state=StepState.OPEN, tries=0, output=None, error=None, ended_at=None, wake_at=None
            )

    async def _hold(self, reason: str) -> None:
        _log.warning("run %s of %s is held: %s", self.run_id, self.run.workflow, reason)
        await self._end(self._move(RunState.HELD, reason=reason, problem_at=self.worker.now_ms()))

    async def _give_up_until_due(self) -> None:
        """Leave memory: the row alone waits from here on."""
        now = self.worker.now_ms()
        wakes = [wake for wake in self._wakes if wake is not None]
        due_at = min(wakes, default=now + FAR_MS)
        if self.run.deadline_at is not None and not self._is_cancelling:
            due_at = min(due_at, self.run.deadline_at)
        if self._is_cancelling:
            state, reason = RunState.CANCELLING, None
        elif self._waits_for:
            state, reason = RunState.WAITING, "waits for " + ", ".join(sorted(self._waits_for)[:10])
        elif self._is_backing_off:
            state, reason = RunState.BACKOFF, None
        else:
            state, reason = RunState.SLEEPING, None
        await self._end(self._move(state, due_at=due_at, reason=reason))

    def _move(self, state: RunState, **changes: Any) -> RunMove:
        """Give the run's new mutable part: as it is, save for the state and *changes*."""
        run, now = self.run, self.worker.now_ms()
        is_end = state in TERMINAL
        return RunMove(
            state=state,
            generation=run.generation,
            attempt=run.attempt,
            failures=run.failures,
            crashes=run.crashes,
            deadline_at=run.deadline_at,
            started_at=run.started_at,
            ended_at=now if is_end else None,
            now=now,
            warning=run.warning,
            dismissed_at=None,
            wakes_run_id=run.parent_run_id if is_end and run.is_called else None,
            **changes,
        )

    async def _end(self, move: RunMove) -> None:
        """Commit the move together with whatever checkpoint still waits (RULINGS 5)."""
        pending = self._operation()
        pending.move = move
        if not self.is_ending:
            self.is_ending = True
            self.worker.ending()
        if not await pending.future:
            raise errors.LeaseLost("The run was taken over or steered by an operator.")
        run = self.run
        run.state, run.attempt, run.failures = move.state, move.attempt, move.failures
        run.ended_at, run.output, run.error, run.reason = move.ended_at, move.output, move.error, move.reason

    # --- what is to be committed ---------------------------------------------------------------

    def _operation(self) -> PendingAdvance:
        """Give the operation that gathers, a new one if the last was taken by a batch."""
        pending = self._pending
        if pending is None or pending.is_taken:
            pending = self._pending = PendingAdvance(self.run_id, self.generation, self.run.fence, self.loop)
            self.worker.committer.add(pending)
        return pending

    def pending_future(self) -> asyncio.Future[bool]:
        """Give what resolves when everything handed over so far is durable."""
        return self._operation().future

    def _save(self, row: StepRow, accepts: list[Accept] | None = None) -> None:
        """Hand a record over to be committed; nobody waits for it yet."""
        pending = self._operation()
        pending.steps[row.key] = row
        if accepts:
            pending.accepts.extend(accepts)
        if self.run.crashes and row.state is not StepState.OPEN:
            self.run.crashes = 0  # a new checkpoint: it is not what kills its holders
            pending.move = self._move(self.run.state)

    async def _durable(self) -> None:
        """Return when everything that the run saved is durable and the lease stands."""
        pending = self._pending
        if pending is not None and (not pending.future.done() or not pending.future.result()):
            if not await pending.future:
                self.stop("lost")
        await self.worker.may_start_steps()
        self._check_usable()

    def _next_seq(self) -> int:
        self._seq += 1
        return self._seq

    def _check_usable(self) -> None:
        if self.stopping is not None:
            raise errors.Suspended("the run leaves memory; let this exception pass")

    # --- parking -------------------------------------------------------------------------------

    async def _park(self, future: asyncio.Future[Any], wake_at: Millis | None) -> Any:
        """Wait without keeping the run in memory; see `_quiet`."""
        self._parked[future] = wake_at
        timer = None
        if wake_at is not None:
            delay = max(0, wake_at - self.worker.now_ms()) / 1000
            # A timer of the loop counts from its own clock; it may be early by a millisecond.
            timer = self.loop.call_later(min(delay, 86_400), self._ring, future, wake_at)
        self._recall.look_when_quiet()
        try:
            return await future
        finally:
            if timer is not None:
                timer.cancel()
            self._parked.pop(future, None)
            if self.stopping is not None:
                raise errors.Suspended("the run leaves memory; let this exception pass")

    def _ring(self, future: asyncio.Future[Any], wake_at: Millis) -> None:
        if future.done():
            return
        left = wake_at - self.worker.now_ms()
        if left > 0:
            self.loop.call_later(min(left / 1000, 86_400), self._ring, future, wake_at)
        else:
            future.set_result(None)

    def _quiet(self) -> None:
        """Called when the code is quiet: nothing is ready to run and no saved outcome is due.

        If every branch is parked for longer than the linger, the run leaves memory.
        """
        if self.stopping is not None:
            return
        if self._cancel_waits:
            self.loop.create_task(self._deliver_cancel())
            return
        if not self._parked or self._calls != len(self._parked):
            return
        if self.worker.is_draining:
            self._suspend()
            return
        now, linger_ms = self.worker.now_ms(), self.worker.settings.linger_ms
        wakes = [wake for wake in self._parked.values() if wake is not None]
        earliest = min(wakes, default=None)
        if earliest is not None and earliest - now <= linger_ms:
            return
        if len(wakes) == len(self._parked):
            self._suspend()
        elif self._linger is None:
            self._linger = self.loop.call_later(linger_ms / 1000, self._lingered)

    def _lingered(self) -> None:
        self._linger = None
        if self.stopping is None and self._parked and self._calls == len(self._parked):
            earliest = min((wake for wake in self._parked.values() if wake is not None), default=None)
            if earliest is None or earliest - self.worker.now_ms() > self.worker.settings.linger_ms:
                self._suspend()

    def _suspend(self) -> None:
        self._wakes = list(self._parked.values())
        self.stop("suspend")

    _wakes: list[Millis | None] = []  # noqa: RUF012 - replaced, never changed
    _is_backing_off = False

    @property
    def _waits_for(self) -> set[str]:
        return set(self._children)

    def drain(self) -> None:
        """Leave memory at the next boundary between steps, charging nothing."""
        if not self.steps_in_flight:
            self.stop("release")

    # --- identity and saved answers ---------------------------------------------------------------

    async def _saved(self, key: StepKey, kind: str) -> StepRow | None:
        """Give the record of a step; with an outcome, it has been handed out in saved order."""
        record = self._recall.record(key)
        if record is None:
            if self._is_cancelling and not self._is_cancel_delivered:
                await self._cancel_here(key, kind)
            return None
        if record.kind != kind:
            self._mismatch(key, f"it was saved as {record.kind!r} and the code now asks for {kind!r}")
        if record.state is StepState.OPEN:
            if self._is_cancelling and not self._is_cancel_delivered:
                await self._cancel_here(key, kind)
            return record
        await self._recall.hand_out(record)
        self._check_usable()
        if record.state is StepState.CUT:
            # The code itself cut this step off; it will do so again.
            await self._park(self.loop.create_future(), None)
        if record.state is StepState.CANCELLED:
            raise errors.RunCancelled("the run is being cancelled")
        return record

    def _mismatch(self, key: StepKey, what: str) -> None:
        self._hold_reason = f"code mismatch at step {str(key)!r}: {what}"
        self.stop("hold")
        raise errors.Suspended("the run is held")

    async def _cancel_here(self, key: StepKey, kind: str) -> None:
        """Wait until the code is quiet, then raise the cancellation in every pending step at once."""
        future: asyncio.Future[None] = self.loop.create_future()
        self._cancel_waits.append((key, kind, future))
        self._recall.look_when_quiet()
        await future

    async def _deliver_cancel(self) -> None:
        waits, self._cancel_waits = self._cancel_waits, []
        self._is_cancel_delivered = True
        now = self.worker.now_ms()
        for key, kind, _ in waits:
            record = self._recall.record(key)
            if record is not None and record.child_run_id is not None:
                await self.worker.cancel_child(record.child_run_id)
            self._save(self._row(key, kind, StepState.CANCELLED, now, record=record))
        try:
            await self._durable()
        except (errors.Suspended, errors.LeaseLost):
            return
        for _, _, future in waits:
            if not future.done():
                future.set_exception(errors.RunCancelled("the run is being cancelled"))

    def _row(
        self,
        key: StepKey,
        kind: str,
        state: StepState,
        started_at: Millis,
        *,
        record: StepRow | None = None,
        **more: Any,
    ) -> StepRow:
        is_open = state is StepState.OPEN
        if record is not None:
            started_at = record.started_at
            more.setdefault("child_run_id", record.child_run_id)
        return StepRow(
            name=key.name,
            item=key.item,
            ordinal=key.ordinal,
            seq=self._next_seq(),
            kind=kind,
            state=state,
            attempt=self.attempt,
            started_at=started_at,
            ended_at=None if is_open else self.worker.now_ms(),
            **more,
        )

    def _answer(self, record: StepRow, result: codec.Codec) -> Any:
        """Give a saved outcome: the value, or the failure raised."""
        if record.state is StepState.FAILED:
            raise self._failure(record)
        if record.output is None:
            return None
        try:
            return result.decode(record.output)
        except errors.OncewardError as error:
            self._mismatch(record.key, f"its saved result does not fit the code any more: {error.what}")

    def _failure(self, record: StepRow) -> errors.StepFailed:
        told = msgspec.json.decode(record.error or "{}")
        failure = errors.StepFailed(
            str(record.key), told.get("type", "Exception"), told.get("message", ""), tries=record.tries
        )
        failure.step_key = (record.name, record.item, record.ordinal)
        return failure

    # --- steps -----------------------------------------------------------------------------------

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
        key = self._enter(name, item, caller)
        try:
            record = await self._saved(key, "run") if self._recall.is_needed(self._is_cancelling) else None
            facts = facts_of(function)
            if record is not None and record.state is not StepState.OPEN:
                return self._answer(record, facts.result)
            return await self._try(key, function, args, kwargs, options, record)
        finally:
            self._calls -= 1

    def _enter(self, name: str, item: str, caller: object) -> StepKey:
        """Begin a verb: check that it may, and give its key."""
        self._check_usable()
        if frame_var.get() is not None:
            raise errors.StepMisuse(
                f"The step {name!r} was called inside the body of step {str(frame_var.get().key)!r}.",  # type: ignore[union-attr]
                means="A step is saved whole; one inside another could be lost or run twice.",
                todo="Call it from the workflow, or call the plain function.",
            )
        self._calls += 1
        try:
            return self._recall.key(name, item, caller)
        except BaseException:
            self._calls -= 1
            raise

    async def _try(
        self,
        key: StepKey,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: StepOptions,
        record: StepRow | None,
    ) -> Any:
        worker, facts = self.worker, facts_of(function)
        tries = 0 if record is None else record.tries
        first_at = worker.now_ms() if record is None else record.started_at
        if record is not None and record.wake_at is not None:
            await self._back_off(record.wake_at)
        while True:
            await self._durable()
            if worker.is_draining:
                await self._park(self.loop.create_future(), None)
            tries += 1
            frame = Frame(self, key, tries)
            if facts.key_parameter is not None:
                kwargs = _with_key(facts, args, kwargs, frame)
            begun = worker.now_ms() if tries > 1 or record is not None else first_at
            if failpoints.is_armed():
                failpoints.hit("step.before_body", str(key))
            try:
                value = await self._body(frame, function, args, kwargs, options, facts.is_async)
                if failpoints.is_armed():
                    failpoints.hit("step.after_body", str(key))
                text, value = facts.result.round_trip(
                    value,
                    what=f"the result of step {str(key)!r}",
                    limit_bytes=worker.settings.value_bytes_max,
                )
            except asyncio.CancelledError as error:
                if self._is_ours(error):
                    self._save(self._row(key, "run", StepState.CUT, first_at, tries=tries))
                    raise
                failure: BaseException = errors.StepTimedOut("The body raised CancelledError itself.")
            except (errors.RunCancelled, GeneratorExit):
                raise
            except BaseException as error:  # noqa: BLE001 - a body may raise anything; it is the step's failure
                failure = error
            else:
                self._save(
                    self._row(key, "run", StepState.DONE, begun, tries=tries, output=text), frame.accepts
                )
                return value
            self._check_usable()
            await self._failed_try(key, failure, tries, first_at, options)

    def _is_ours(self, error: BaseException) -> bool:
        """Say whether a cancellation comes from outside the body; if the run unwinds, pass it on."""
        if self.stopping is not None:
            raise errors.Suspended("the run leaves memory; let this exception pass") from error
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0

    async def _body(
        self,
        frame: Frame,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: StepOptions,
        is_async: bool,
    ) -> Any:
        token = frame_var.set(frame)
        self.steps_in_flight[frame.key] = self.worker.now_ms()
        try:
            if options.timeout_ms is None:
                return await self._call(function, args, kwargs, is_async)
            limit = asyncio.timeout(options.timeout_ms / 1000)
            try:
                async with limit:
                    return await self._call(function, args, kwargs, is_async)
            except TimeoutError as error:
                if limit.expired():
                    raise errors.StepTimedOut(
                        f"Try {frame.try_number} of step {str(frame.key)!r} ran longer than {options.timeout_ms} ms.",
                        means="It was cut off; whether its effect happened is not known.",
                        todo="Give it more time, or make it safe to run twice with the step's idempotency key.",
                    ) from error
                raise
        finally:
            frame_var.reset(token)
            del self.steps_in_flight[frame.key]
            if self.worker.is_draining and not self.steps_in_flight:
                self.loop.call_soon(self.drain)

    async def _call(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], is_async: bool
    ) -> Any:
        if is_async:
            return await function(*args, **kwargs)
        value = await self.worker.step_threads.run(function, args, kwargs)
        # A lambda around an async function gives a coroutine, and means its result.
        return await value if hasattr(value, "__await__") else value

    async def _failed_try(
        self, key: StepKey, failure: BaseException, tries: int, first_at: Millis, options: StepOptions
    ) -> None:
        """Save a failed try and wait for the next, or save the failure and raise it."""
        worker, now = self.worker, self.worker.now_ms()
        decision = retry.decide(
            options.retry,
            tries=tries,
            error=failure,
            elapsed_ms=now - first_at,
            draw=worker.ids.draw(),
            now_ms=now,
        )
        text = _error_text(failure)
        if decision.delay_ms is None:
            row = self._row(key, "run", StepState.FAILED, first_at, tries=tries, error=text)
            self._save(row)
            raise self._failure(row) from failure
        _log.info(
            "run %s of %s: try %d of step %r failed, the next begins in %d ms: %s",
            self.run_id,
            self.run.workflow,
            tries,
            str(key),
            decision.delay_ms,
            _one_line(failure),
        )
        wake_at = now + decision.delay_ms
        self._save(self._row(key, "run", StepState.OPEN, first_at, tries=tries, error=text, wake_at=wake_at))
        await self._durable()
        await self._back_off(wake_at)

    async def _back_off(self, wake_at: Millis) -> None:
        if wake_at > self.worker.now_ms():
            self._is_backing_off = True
            await self._park(self.loop.create_future(), wake_at)
            self._is_backing_off = False

    # --- sleeps and drawn values ---------------------------------------------------------------

    async def sleep(self, name: str, item: str, delay_ms: Millis, caller: object) -> None:
        """Return when the deadline that was fixed at the first time has passed."""
        key = self._enter(name, item, caller)
        try:
            record = await self._saved(key, "sleep")
            if record is not None and record.state is not StepState.OPEN:
                return
            now = self.worker.now_ms()
            if record is None or record.wake_at is None:
                record = self._row(key, "sleep", StepState.OPEN, now, wake_at=now + delay_ms)
                self._save(record)
            wake_at: Millis = record.wake_at  # type: ignore[assignment]
            if wake_at > now:
                try:
                    await self._park(self.loop.create_future(), wake_at)
                except asyncio.CancelledError as error:
                    if self._is_ours(error):
                        self._save(
                            self._row(key, "sleep", StepState.CUT, now, record=record, wake_at=wake_at)
                        )
                    raise
            self._save(self._row(key, "sleep", StepState.DONE, now, record=record, wake_at=wake_at))
        finally:
            self._calls -= 1

    async def value(self, kind: str, name: str, item: str, caller: object) -> Any:
        """Draw once, save, and give the same for ever."""
        key = self._enter(name, item, caller)
        try:
            record = await self._saved(key, kind)
            if record is None or record.output is None:
                now = self.worker.now_ms()
                drawn = self._draw(kind, now)
                record = self._row(key, kind, StepState.DONE, now, output=msgspec.json.encode(drawn).decode())
                self._save(record)
            stored = msgspec.json.decode(record.output or "null")
            if kind == "uuid":
                return uuid.UUID(stored)
            if kind == "now":
                return datetime.fromtimestamp(stored / 1000, UTC)
            return stored
        finally:
            self._calls -= 1

    def _draw(self, kind: str, now: Millis) -> Any:
        if kind == "uuid":
            return str(self.worker.ids.uuid4())
        if kind == "now":
            return now
        return self.worker.ids.draw()

    # --- emits and children --------------------------------------------------------------------

    async def emit(
        self, name: str, item: str, type_: str, payload: Any, subject: str | None, caller: object
    ) -> tuple[str, str]:
        """Emit once, together with the checkpoint that says so."""
        key = self._enter(name, item, caller)
        try:
            record = await self._saved(key, "emit")
            source, event_id = f"run/{self.run_id}", ids.composed(self.generation, *key)
            if record is None:
                await self._durable()
                accept = self.worker.emit_accept(self, source, event_id, type_, payload, subject)
                now = self.worker.now_ms()
                self._save(self._row(key, "emit", StepState.DONE, now, output=_json(event_id)), [accept])
            return source, event_id
        finally:
            self._calls -= 1

    def emit_inside(
        self, frame: Frame, type_: str, payload: Any, event_id: str | None, subject: str | None
    ) -> tuple[str, str]:
        """Emit inside a step's body: stored if and only if the step's outcome is (RULINGS 27)."""
        source = f"emit/{type_}" if event_id is not None else f"run/{self.run_id}"
        if event_id is None:
            event_id = ids.composed(self.generation, *frame.key, len(frame.accepts) + 1)
        frame.accepts.append(self.worker.emit_accept(self, source, event_id, type_, payload, subject))
        return source, event_id

    def start_inside(
        self,
        frame: Frame,
        workflow: Workflow[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        event_id: str | None,
    ) -> str:
        """Start a run inside a step's body: it exists if and only if the step's outcome does."""
        source = f"start/{workflow.name}" if event_id is not None else f"run/{self.run_id}"
        if event_id is None:
            event_id = ids.composed(self.generation, *frame.key, len(frame.accepts) + 1)
        accept = self._child_accept(workflow, args, kwargs, source, event_id, is_called=False)
        frame.accepts.append(accept)
        return accept.runs[0].run_id

    def _child_accept(
        self,
        workflow: Workflow[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        source: str,
        event_id: str,
        *,
        is_called: bool,
    ) -> Accept:
        worker, now = self.worker, self.worker.now_ms()
        worker.check_depth(self.run)
        payload = workflow.pack(args, kwargs, limit_bytes=worker.settings.value_bytes_max)
        deadline_ms = workflow.policies.deadline_ms
        run = NewRun(
            run_id=worker.ids.run_id(),
            workflow=workflow.name,
            created_at=now,
            deadline_at=None if deadline_ms is None else now + deadline_ms,
            parent_run_id=self.run_id,
            parent_generation=self.generation,
            is_called=is_called,
            depth=self.run.depth + 1,
        )
        event = EventRow(source=source, id=event_id, type=workflow.name, payload=payload, received_at=now)
        return Accept(event, [run], by_run=self.run_id, by_fence=self.run.fence)

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
        kind = "call" if is_called else "start"
        try:
            record = await self._saved(key, kind)
            if record is None:
                await self._durable()
                event_id = ids.composed(self.generation, *key)
                accept = self._child_accept(
                    workflow, args, kwargs, f"run/{self.run_id}", event_id, is_called=is_called
                )
                child_run_id = accept.runs[0].run_id
                state = StepState.OPEN if is_called else StepState.DONE
                record = self._row(key, kind, state, self.worker.now_ms(), child_run_id=child_run_id)
                self._save(record, [accept])
                self.worker.child_made(self, accept, workflow)
            if record.child_run_id is None:
                self._mismatch(key, "its record names no run")
            if not is_called:
                return record.child_run_id
            if record.state is StepState.OPEN:
                record = await self._called(key, record, workflow)
            return self._answer(record, workflow.result_codec)
        finally:
            self._calls -= 1

    async def _called(self, key: StepKey, record: StepRow, workflow: Workflow[..., Any]) -> StepRow:
        """Wait for a called run's end and save its outcome before the code sees it (I11)."""
        child_run_id: str = record.child_run_id  # type: ignore[assignment]
        future: asyncio.Future[RunRow] = self.loop.create_future()
        self._children[child_run_id] = future
        await self._durable()
        self.worker.watch_child(self, child_run_id, is_reopened=record.tries == 0)
        try:
            child: RunRow = await self._park(future, None)
        except asyncio.CancelledError as error:
            if self._is_ours(error):
                self._save(self._row(key, "call", StepState.CUT, record.started_at, record=record))
            raise
        finally:
            if self.stopping != "suspend":
                self._children.pop(child_run_id, None)
        now = self.worker.now_ms()
        if child.state is RunState.COMPLETED:
            row = self._row(key, "call", StepState.DONE, now, record=record, output=child.output)
        else:
            text = child.error or _json(
                {"type": "RunWasCancelled", "message": f"the called run {child_run_id} was cancelled"}
            )
            row = self._row(key, "call", StepState.FAILED, now, record=record, error=text)
        self._save(row)
        await self._durable()
        return row

    def child_ended(self, child: RunRow) -> None:
        """Hear that a called run ended."""
        future = self._children.get(child.run_id)
        if future is not None and not future.done():
            future.set_result(child)

    def open_children(self) -> list[str]:
        """Give the called runs whose ends are awaited."""
        return [run_id for run_id, future in self._children.items() if not future.done()]


def failed_steps(error: BaseException) -> list[StepKey]:
    """Give the steps whose failures ended an attempt.

    Found through causes, contexts and exception groups (RULINGS 19); bounded, since a cycle of
    causes must not hang the end of a run.
    """
    found: dict[StepKey, None] = {}
    seen: set[int] = set()
    todo: list[BaseException | None] = [error]
    while todo and len(seen) < 1_000:
        one = todo.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, errors.StepFailed) and one.step_key is not None:
            found[StepKey(*one.step_key)] = None
            continue  # what lies beneath is the body's own error
        todo += [one.__cause__, one.__context__]
        if isinstance(one, BaseExceptionGroup):
            todo += one.exceptions
    return list(found)


def _with_key(facts: Any, args: tuple[Any, ...], kwargs: dict[str, Any], frame: Frame) -> dict[str, Any]:
    """Give the step its idempotency key, unless the caller passed one of his own."""
    name = facts.key_parameter
    if len(args) > facts.key_position or kwargs.get(name):
        return kwargs
    return {**kwargs, name: IdempotencyKey(frame.idempotency_key)}


def _deadline_error(run: RunRow) -> errors.DeadlineExceeded:
    return errors.DeadlineExceeded(
        f"Run {run.run_id} of {run.workflow!r} did not end before its deadline.",
        means="It was stopped; what its last step did outside is not known.",
        todo="Give the workflow a longer deadline=, or restart the run.",
    )


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _error_text(error: BaseException) -> str:
    return _json(describe_error(error))


def _one_line(error: BaseException) -> str:
    told = describe_error(error, limit_chars=300)
    text = f"{told['type']}: {told['message']}"
    return "".join(char if char.isprintable() else "?" for char in text)[:300]
