"""The tries of one step: run the body, save its outcome or its failure, wait, run it again.

What must stay true: a failed try is durable before the next begins (RULINGS 7); what the body
raises is the step's failure, whatever it is, and what comes from outside is not; the value that
live code gets is the one that was encoded (31).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from onceward.authoring.current import Frame
from onceward.authoring.keys import key_place
from onceward.authoring.made import not_awaited
from onceward.authoring.options import StepOptions
from onceward.core import errors, failpoints, retry
from onceward.core.model import Millis, StepKey, StepRow
from onceward.core.states import StepState
from onceward.core.unknown import Begun, begun_of
from onceward.core.within_ports import FileShared
from onceward.runtime import key_memory, unknown
from onceward.runtime.body import run_body
from onceward.runtime.functions import FunctionFacts, is_coroutine_function, misfit
from onceward.runtime.records import error_text, failure_of, one_line
from onceward.runtime.transactions.commit import TransactionTry

if TYPE_CHECKING:
    from onceward.runtime.execution import Execution

_log = logging.getLogger("onceward.run")

UNDO = "undo"
"""The kind of the records of undoing."""


class Call(msgspec.Struct, frozen=True):
    """A step as the code calls it in this go.

    Attributes:
        key: which step.
        function: its body.
        facts: how to call it.
        args: for the body.
        kwargs: for the body, by name.
        options: how it is tried.
        kind: ``run`` or ``undo``.
        of: the step that its check looks for, where that is another one.
    """

    key: StepKey
    function: Callable[..., Any]
    facts: FunctionFacts
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    options: StepOptions
    kind: str = "run"
    of: StepKey | None = None

    def __str__(self) -> str:
        """Give what its result is called in messages."""
        return f"The result of step {str(self.key)!r}"

    def row(
        self,
        execution: Execution,
        state: StepState,
        started_at: Millis,
        *,
        tries: int,
        output: str | None = None,
        error: str | None = None,
        wake_at: Millis | None = None,
        begun: str | None = None,
    ) -> StepRow:
        """Give the step's next record, with what its records say of its options."""
        return execution.row(
            self.key,
            self.kind,
            state,
            started_at,
            tries=tries,
            output=output,
            error=error,
            wake_at=wake_at,
            begun=begun,
            recorded=self.options.recorded,
        )

    async def look(self, execution: Execution, begun: Begun) -> Any:
        """Give what the step's check function says, called with the step's arguments."""
        check: Any = self.options.unknown
        await execution.durable()
        frame = Frame(execution, self.of or self.key, begun.try_number, self.options.key_scope)
        place, kwargs = key_place(check), self.kwargs
        if place is not None:
            kwargs = place.filled(self.args, kwargs, frame.idempotency_key)
        told = await run_body(
            execution, frame, check, self.args, kwargs, self.options, is_coroutine_function(check)
        )
        if frame.accepts:
            raise errors.StepMisuse(
                f"The check of step {str(self.key)!r} emitted or started something.",
                means="It would be saved with nothing, and could happen twice.",
                todo="Let the check only look; emit in the step, or in one after it.",
            )
        return told


def run_step(
    execution: Execution, call: Call, record: StepRow | None, task: asyncio.Task[Any] | None
) -> Coroutine[Any, Any, Any]:
    """Give the result of a step that has none yet, once it is awaited.

    Args:
        execution: the run.
        call: the step.
        record: its open record, if earlier tries failed or one began.
        task: that awaits it.

    Raises:
        StepFailed: the tries are used up, or one failed for good.
    """
    return _Tries(execution, call, record, task).result()


class _Tries:
    """One step's tries in this go: `result` goes from one to the next, the rest is done with one.

    It is made for every step that runs, so what each try needs are plain calls; a coroutine of its own
    has only what waits for the store or for a person anyway.
    """

    __slots__ = (
        "begun",
        "call",
        "doubt",
        "execution",
        "first_at",
        "keeps_start",
        "key_since",
        "record",
        "task",
        "tries",
    )

    def __init__(
        self, execution: Execution, call: Call, record: StepRow | None, task: asyncio.Task[Any] | None
    ) -> None:
        self.execution = execution
        self.call = call
        self.record = record
        self.task = task
        self.tries = 0 if record is None else record.tries
        # A step that an operator's retry opened again has its whole time again.
        self.first_at = (
            execution.worker.now_ms() if record is None or record.tries == 0 else record.started_at
        )
        self.keeps_start = execution.worker.transactions.keeps_start(call.options)
        self.begun: Begun | None = None  # what is kept of the try under way, where that is kept
        # What an undo must know: a try that ended so that it may have taken effect, whatever the next ones say.
        self.doubt: Begun | None = None
        # When the step's key was first handed out, where its receiver forgets keys.
        self.key_since: Millis | None = None

    async def result(self) -> Any:
        """Give the step's result, after as many tries as its options allow."""
        execution, call = self.execution, self.call
        worker, options = execution.worker, call.options
        if self.record is not None and (past := await self._past(self.record)) is not None:
            found, tries = past
            return await self._happened(found, self.first_at, tries)
        if options.key_memory_ms is not None:
            self.key_since = await key_memory.begin(execution, call.key, options, self.record)
        while True:
            if not self.keeps_start:
                await execution.durable()
            if worker.is_draining:
                await execution.parking.park(None)
            frame = self._next_frame()
            if self.keeps_start:
                await self._keep_start(frame)
            kwargs, began_at = self._kwargs(frame), self._began_at()
            try:
                if failpoints.is_armed():
                    failpoints.hit("step.before_body", str(call.key))
                    # A process that was stopped right here for longer than its lease must not begin.
                    await execution.durable()
                function, is_async = self._function(frame, began_at)
                value = await run_body(execution, frame, function, call.args, kwargs, options, is_async)
                if not frame.is_transaction:
                    text, value = self._stored(frame, value)
            except BaseException as error:  # a body may raise anything; it is the step's failure
                if self._is_not_its_own(error):
                    raise
                failure = error
            else:
                if frame.is_transaction:
                    execution.check_usable()  # its checkpoint is committed
                else:
                    row = call.row(execution, StepState.DONE, began_at, tries=self.tries, output=text)
                    execution.save(row, frame.accepts)
                if execution.recall.has_queue():
                    await execution.recall.take_turn()
                return value
            if isinstance(failure, FileShared):
                await self._stand_back(failure)
                continue
            happened = await self._failed(frame, failure)
            if happened is not None:
                return await self._happened(happened, began_at, self.tries)

    # --- before a body ---

    async def _past(self, record: StepRow) -> tuple[unknown.Found, int] | None:
        """Wait for the next try's time, or find out what became of the last.

        Returns:
            What it came to and which try it was, where it took effect; else None, and the next may begin.
        """
        if record.wake_at is not None:
            await self.execution.parking.back_off(record.wake_at)
        begun, options = begun_of(record), self.call.options
        if begun is not None and (options.if_unknown != "retry" or begun.is_asked):
            found = await unknown.settle(self.execution, self.call, begun, self.tries, self.first_at)
            if found.happened:
                return found, begun.try_number
            self.record = begun = None
            if found.by_person:
                self.tries, self.first_at = 0, self.execution.worker.now_ms()
        self.doubt = begun
        return None

    def _next_frame(self) -> Frame:
        """Count the next try, and give where its body is."""
        call, options = self.call, self.call.options
        if self.key_since is not None:
            key_memory.check(self.execution, call.key, options, self.key_since, self.tries)
        self.tries += 1
        is_transaction = options.database is not None
        return Frame(self.execution, call.key, self.tries, options.key_scope, is_transaction=is_transaction)

    async def _keep_start(self, frame: Frame) -> None:
        """Return when it is durable that the try begins."""
        execution, key = self.execution, self.call.key
        self.begun = unknown.begin(execution, self.call, frame, self._since())
        execution.keep_loaded(key)  # a stop waits for it, or the record would ask in vain
        try:
            await execution.durable()
        finally:
            execution.may_unload(key)

    def _kwargs(self, frame: Frame) -> dict[str, Any]:
        call, place = self.call, self.call.facts.key_place
        return call.kwargs if place is None else place.filled(call.args, call.kwargs, frame.idempotency_key)

    def _since(self) -> Millis:
        """Give when the step began, for the records of tries without a result."""
        return self.key_since or self.first_at

    def _began_at(self) -> Millis:
        """Give when the try that is under way began, for the record of its result."""
        if self.key_since is not None:
            return self.key_since
        is_first = self.tries == 1 and self.record is None
        return self.first_at if is_first else self.execution.worker.now_ms()

    def _function(self, frame: Frame, began_at: Millis) -> tuple[Callable[..., Any], bool]:
        """Give what is called as the body, and whether it is awaited."""
        call, database = self.call, self.call.options.database
        if database is None:
            return call.function, call.facts.is_async
        return TransactionTry(
            self.execution, frame, call.function, call.facts, database, began_at, call.kind
        ), True

    # --- after it ---

    def _stored(self, frame: Frame, value: Any) -> tuple[str, Any]:
        """Give a body's value as JSON, and as live code gets it: the value that was encoded."""
        execution, call = self.execution, self.call
        if failpoints.is_armed():
            failpoints.hit("step.after_body", str(call.key))
        if frame.made is not None and (forgotten := frame.made.take_forgotten(execution.loop)):
            raise not_awaited(forgotten, f"the body of step {str(call.key)!r}")
        return call.facts.result.round_trip(
            value if call.kind != UNDO else None,  # nobody asks for what an undo returns
            what=call,
            limit_bytes=execution.worker.settings.value_bytes_max,
        )

    def _is_not_its_own(self, error: BaseException) -> bool:
        """Say whether something else ends the go than the body; a cut that the code made is saved as one."""
        if isinstance(error, asyncio.CancelledError) and self.execution.is_from_outside(error):
            kept = None if self.begun is None else self.begun.to_text()
            row = self.call.row(self.execution, StepState.CUT, self._since(), tries=self.tries, begun=kept)
            self.execution.save(row)
            return True
        # Or else the coroutine is being thrown away together with its event loop.
        return isinstance(error, GeneratorExit) and not _is_raised_here(self.task)

    async def _happened(self, found: unknown.Found, started_at: Millis, tries: int) -> Any:
        """Save a result that was found out, and give it."""
        execution = self.execution
        execution.save(self.call.row(execution, StepState.DONE, started_at, tries=tries, output=found.text))
        if execution.recall.has_queue():
            await execution.recall.take_turn()
        return found.value

    async def _failed(self, frame: Frame, failure: BaseException) -> unknown.Found | None:
        """Do what follows from a failure: return when the next try may begin, or raise for good.

        Returns:
            What the try came to, where its failure left that open and it was found to have taken effect.
        """
        execution, call = self.execution, self.call
        execution.check_usable()
        if isinstance(failure, TypeError):
            failure = self._misuse(frame, failure) or failure
        begun = self.begun
        if begun is not None:
            begun = msgspec.structs.replace(begun, why=one_line(failure))
            if retry.is_unknown(failure):
                if call.options.if_unknown in ("ask", "check"):
                    found = await unknown.settle(execution, call, begun, self.tries - 1, self._since())
                    if found.happened:
                        return found
                else:
                    self.doubt = begun
        now = execution.worker.now_ms()
        decision = retry.decide(
            call.options.retry,
            tries=self.tries,
            error=failure,
            elapsed_ms=now - self.first_at,
            draw=execution.worker.ids.draw(),
            now_ms=now,
        )
        outcome = "again" if decision.delay_ms is not None else "failed"
        execution.worker.counters.tries_failed.add(execution.run.workflow, outcome)
        if decision.delay_ms is None:
            await self._give_up(frame, failure)
        else:
            await self._back_off(failure, now, decision.delay_ms)
        return None

    def _misuse(self, frame: Frame, failure: TypeError) -> errors.StepMisuse | None:
        """Give the error of a call with arguments that the function does not take: no try can go better.

        Looked at only now, so that a call that is right costs nothing.
        """
        call = self.call
        args = (None, *call.args) if frame.is_transaction else call.args  # the connection is given first
        why = misfit(call.function, args, self._kwargs(frame))
        if why is None:
            return None
        error = errors.StepMisuse(
            f"The step {str(call.key)!r} was called with arguments that its function does not take: {why}.",
            means="Its body did not begin; it would not at any other try.",
            todo="Correct the call, and retry the run.",
        )
        error.__cause__ = failure
        return error

    async def _give_up(self, frame: Frame, failure: BaseException) -> NoReturn:
        """Save the last try's failure as the step's and raise it; of an undo, have a person asked."""
        execution, call, tries, since = self.execution, self.call, self.tries, self._since()
        if call.kind == UNDO:
            why = f"it failed after {tries} {'try' if tries == 1 else 'tries'}: {one_line(failure)}"
            begun = msgspec.structs.replace(unknown.begun_now(execution, frame), at=since, why=why)
            await unknown.ask(execution, call, begun, tries, since)
        text, kept = error_text(failure, is_final=retry.is_final(failure)), self._kept_doubt()
        row = call.row(execution, StepState.FAILED, since, tries=tries, error=text, begun=kept)
        execution.save(row)
        if execution.recall.has_queue():
            await execution.recall.take_turn()
        step = str(call.key)
        said = {"step": step, "try_number": tries}
        _log.debug("run %s: step %r failed", execution.run_id, step, exc_info=failure, extra=said)
        raise failure_of(row)

    async def _back_off(self, failure: BaseException, now: Millis, delay_ms: Millis) -> None:
        """Save a failed try, and return when the next may begin."""
        execution, call, tries = self.execution, self.call, self.tries
        step = str(call.key)
        _log.info(
            "run %s of %s: try %d of step %r failed, the next begins in %d ms: %s",
            execution.run_id,
            execution.run.workflow,
            tries,
            step,
            delay_ms,
            execution.worker.redaction.text(one_line(failure)),
            extra={"step": step, "try_number": tries},
        )
        text, wake_at = error_text(failure), now + delay_ms
        kept = self._kept_doubt() if call.options.if_unknown == "retry" else None
        row = call.row(
            execution, StepState.OPEN, self._since(), tries=tries, error=text, wake_at=wake_at, begun=kept
        )
        execution.save(row)
        await execution.durable()
        await execution.parking.back_off(wake_at)

    async def _stand_back(self, refusal: FileShared) -> None:
        """Wait, uncharged, while another process uses the file: nothing of the try was begun."""
        execution = self.execution
        execution.check_usable()
        self.tries -= 1
        wake_at = execution.worker.now_ms() + execution.worker.transactions.sharing.refused(refusal)
        row = self.call.row(
            execution,
            StepState.OPEN,
            self._since(),
            tries=self.tries,
            error=error_text(refusal),
            wake_at=wake_at,
            begun=self._kept_doubt(),
        )
        execution.save(row)
        await execution.durable()
        await execution.parking.back_off(wake_at)
        if self.tries == 0:
            self.first_at = execution.worker.now_ms()  # its time begins with its first try

    def _kept_doubt(self) -> str | None:
        """Give what an undo of the step will have to know."""
        return None if self.doubt is None or self.call.options.undo is None else self.doubt.to_text()


def _is_raised_here(task: asyncio.Task[Any] | None) -> bool:
    """Say whether an exception came up in *task* while it ran, not because it was thrown away."""
    try:
        return asyncio.current_task() is task
    except RuntimeError:  # no event loop runs any more
        return False
