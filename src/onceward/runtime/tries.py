"""The tries of one step: run the body, save its outcome or its failure, wait, run it again.

What must stay true: a failed try is durable before the next begins (RULINGS 7); what the body
raises is the step's failure, whatever it is, and what comes from outside is not; the value that
live code gets is the one that was encoded (31).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from onceward.authoring.current import Frame, frame_var
from onceward.authoring.keys import key_place
from onceward.authoring.made import not_awaited
from onceward.authoring.options import StepOptions
from onceward.core import errors, failpoints, retry
from onceward.core.model import Millis, StepKey, StepRow
from onceward.core.states import StepState
from onceward.core.unknown import Begun, begun_of
from onceward.runtime import key_memory, unknown
from onceward.runtime.functions import FunctionFacts, is_coroutine_function
from onceward.runtime.records import error_text, failure_of, one_line
from onceward.runtime.threads import NotBegun
from onceward.runtime.tracing import StepSpan, safely
from onceward.runtime.transactions.commit import TransactionTry

if TYPE_CHECKING:
    from onceward.runtime.execution import Execution

_log = logging.getLogger("onceward.run")

UNDO = "undo"
"""The kind of the records of undoing."""


@dataclass(frozen=True, slots=True)
class Call:
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

    def row(self, execution: Execution, state: StepState, started_at: Millis, **more: Any) -> StepRow:
        """Give the step's next record, with what its records say of its options."""
        return execution.row(self.key, self.kind, state, started_at, **more, **self.options.recorded)

    async def look(self, execution: Execution, begun: Begun) -> Any:
        """Give what the step's check function says, called with the step's arguments."""
        check: Any = self.options.unknown
        await execution.durable()
        frame = Frame(execution, self.of or self.key, begun.try_number, self.options.key_scope)
        place, kwargs = key_place(check), self.kwargs
        if place is not None:
            kwargs = place.filled(self.args, kwargs, frame.idempotency_key)
        told = await _body(
            execution, frame, check, self.args, kwargs, self.options, is_coroutine_function(check)
        )
        if frame.accepts:
            raise errors.StepMisuse(
                f"The check of step {str(self.key)!r} emitted or started something.",
                means="It would be saved with nothing, and could happen twice.",
                todo="Let the check only look; emit in the step, or in one after it.",
            )
        return told


async def run_step(execution: Execution, call: Call, record: StepRow | None) -> Any:
    """Give the result of a step that has none yet.

    Args:
        execution: the run.
        call: the step.
        record: its open record, if earlier tries failed or one began.

    Raises:
        StepFailed: the tries are used up, or one failed for good.
    """
    worker, key, options, facts = execution.worker, call.key, call.options, call.facts
    args, kwargs = call.args, call.kwargs
    keeps_start = worker.transactions.keeps_start(options)
    tries = 0 if record is None else record.tries
    # A step that an operator's retry opened again has its whole time again.
    first_at = worker.now_ms() if record is None or tries == 0 else record.started_at
    if record is not None and record.wake_at is not None:
        await execution.parking.back_off(record.wake_at)
    begun = begun_of(record)
    if begun is not None and (options.if_unknown != "retry" or begun.is_asked):
        found = await unknown.settle(execution, call, begun, tries, first_at)
        if found.happened:
            return await _happened(execution, call, found, first_at, begun.try_number)
        begun = record = None
        tries, first_at = (0, worker.now_ms()) if found.by_person else (tries, first_at)
    # What an undo must know: a try that ended so that it may have taken effect, whatever the next ones say.
    doubt, begun, key_since = begun, None, None
    if options.key_memory_ms is not None:
        key_since = await key_memory.begin(execution, key, options, record)
    while True:
        if not keeps_start:
            await execution.durable()
        if worker.is_draining:
            await execution.parking.park(None)
        if key_since is not None:
            key_memory.check(execution, key, options, key_since, tries)
        tries += 1
        in_transaction = options.database is not None
        frame = Frame(execution, key, tries, options.key_scope, is_transaction=in_transaction)
        if keeps_start:
            begun = unknown.begin(execution, call, frame, key_since or first_at)
            execution.keep_loaded(key)  # a stop waits for it, or the record would ask in vain
            try:
                await execution.durable()
            finally:
                execution.may_unload(key)
        task = asyncio.current_task(execution.loop)
        if facts.key_place is not None:
            kwargs = facts.key_place.filled(args, kwargs, frame.idempotency_key)
        began_at = worker.now_ms() if tries > 1 or record is not None else first_at
        began_at = began_at if key_since is None else key_since
        try:
            if failpoints.is_armed():
                failpoints.hit("step.before_body", str(key))
                # A process that was stopped right here for longer than its lease must not begin.
                await execution.durable()
            if options.database is not None:
                one = TransactionTry(
                    execution, frame, call.function, facts, options.database, began_at, call.kind
                )
                value = await _body(execution, frame, one, args, kwargs, options, True)
                execution.check_usable()
                if execution.recall.has_queue():
                    await execution.recall.take_turn()
                return value
            value = await _body(execution, frame, call.function, args, kwargs, options, facts.is_async)
            if failpoints.is_armed():
                failpoints.hit("step.after_body", str(key))
            if frame.made is not None and (forgotten := frame.made.take_forgotten(execution.loop)):
                raise not_awaited(forgotten, f"the body of step {str(key)!r}")
            text, value = facts.result.round_trip(
                value if call.kind != UNDO else None,  # nobody asks for what an undo returns
                what=f"The result of step {str(key)!r}",
                limit_bytes=worker.settings.value_bytes_max,
            )
        except asyncio.CancelledError as error:
            if execution.is_from_outside(error):
                kept = None if begun is None else begun.to_text()
                row = call.row(execution, StepState.CUT, key_since or first_at, tries=tries, begun=kept)
                execution.save(row)
                raise
            failure: BaseException = error
        except GeneratorExit as error:
            if not _is_raised_here(task):
                raise  # the coroutine is being thrown away together with its event loop
            failure = error
        except BaseException as error:  # noqa: BLE001 - a body may raise anything; it is the step's failure
            failure = error
        else:
            row = call.row(execution, StepState.DONE, began_at, tries=tries, output=text)
            execution.save(row, frame.accepts)
            if execution.recall.has_queue():
                await execution.recall.take_turn()
            return value
        execution.check_usable()
        is_doubtful = begun is not None and retry.is_unknown(failure)
        begun = None if begun is None else msgspec.structs.replace(begun, why=one_line(failure))
        if begun is not None and is_doubtful and options.if_unknown in ("ask", "check"):
            found = await unknown.settle(execution, call, begun, tries - 1, key_since or first_at)
            if found.happened:
                return await _happened(execution, call, found, began_at, tries)
            is_doubtful = False
        doubt = doubt if not is_doubtful else begun
        await _failed_try(execution, call, failure, frame, first_at, key_since or first_at, doubt)


async def _happened(
    execution: Execution, call: Call, found: unknown.Found, started_at: Millis, tries: int
) -> Any:
    """Save a result that was found out, and give it."""
    execution.save(call.row(execution, StepState.DONE, started_at, tries=tries, output=found.text))
    if execution.recall.has_queue():
        await execution.recall.take_turn()
    return found.value


def _is_raised_here(task: asyncio.Task[Any] | None) -> bool:
    """Say whether an exception came up in *task* while it ran, not because it was thrown away."""
    try:
        return asyncio.current_task() is task
    except RuntimeError:  # no event loop runs any more
        return False


async def _body(
    execution: Execution,
    frame: Frame,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    options: StepOptions,
    is_async: bool,
) -> Any:
    token, tracer = frame_var.set(frame), execution.worker.tracer
    span = None if tracer is None else safely(StepSpan, tracer, execution, frame)
    execution.keep_loaded(frame.key)
    try:
        if options.timeout_ms is None:
            return await call_body(execution, function, args, kwargs, is_async)
        limit = asyncio.timeout(options.timeout_ms / 1000)
        try:
            async with limit:
                return await call_body(execution, function, args, kwargs, is_async)
        except TimeoutError as error:
            if limit.expired():
                raise errors.StepTimedOut(
                    f"Try {frame.try_number} of step {str(frame.key)!r} ran longer than {options.timeout_ms} ms.",
                    means="It was cut off; whether its effect happened is not known.",
                    todo="Give it more time, or make it safe to run twice with the step's idempotency key.",
                ) from error
            raise
    except BaseException as error:
        if span is not None:
            safely(span.fail, error)
        raise
    finally:
        execution.may_unload(frame.key)
        if span is not None:
            safely(span.end)
        frame.is_over = True
        frame_var.reset(token)


async def call_body(
    execution: Execution,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    is_async: bool,
) -> Any:
    """Call a function as a step's body, or as a part of one: a plain one in a thread."""
    if is_async:
        return await function(*args, **kwargs)
    while True:
        try:
            value = await execution.worker.step_threads.run(
                function, args, kwargs, may_begin=execution.may_begin
            )
            break
        except NotBegun:
            await execution.durable()
    # A lambda around an async function gives a coroutine, and means its result.
    return await value if hasattr(value, "__await__") else value


async def _failed_try(
    execution: Execution,
    call: Call,
    failure: BaseException,
    frame: Frame,
    first_at: Millis,
    started_at: Millis,
    doubt: Begun | None,
) -> None:
    """Save a failed try and wait for the next, or save the failure and raise it."""
    worker, key, now, tries = execution.worker, call.key, execution.worker.now_ms(), frame.try_number
    kept = None if doubt is None or call.options.undo is None else doubt.to_text()
    decision = retry.decide(
        call.options.retry,
        tries=tries,
        error=failure,
        elapsed_ms=now - first_at,
        draw=worker.ids.draw(),
        now_ms=now,
    )
    said = {"step": str(key), "try_number": tries}
    worker.counters.tries_failed.add(
        execution.run.workflow, "again" if decision.delay_ms is not None else "failed"
    )
    if decision.delay_ms is None and call.kind == UNDO:
        why = f"it failed after {tries} {'try' if tries == 1 else 'tries'}: {one_line(failure)}"
        begun = msgspec.structs.replace(unknown.begun_now(execution, frame), at=started_at, why=why)
        await unknown.ask(execution, call, begun, tries, started_at)
    if decision.delay_ms is None:
        text = error_text(failure, is_final=retry.is_final(failure))
        row = call.row(execution, StepState.FAILED, started_at, tries=tries, error=text, begun=kept)
        execution.save(row)
        if execution.recall.has_queue():
            await execution.recall.take_turn()
        _log.debug("run %s: step %r failed", execution.run_id, str(key), exc_info=failure, extra=said)
        raise failure_of(row)
    text = error_text(failure)
    _log.info(
        "run %s of %s: try %d of step %r failed, the next begins in %d ms: %s",
        execution.run_id,
        execution.run.workflow,
        tries,
        str(key),
        decision.delay_ms,
        one_line(failure),
        extra=said,
    )
    wake_at = now + decision.delay_ms
    kept = kept if call.options.if_unknown == "retry" else None
    row = call.row(
        execution, StepState.OPEN, started_at, tries=tries, error=text, wake_at=wake_at, begun=kept
    )
    execution.save(row)
    await execution.durable()
    await execution.parking.back_off(wake_at)
