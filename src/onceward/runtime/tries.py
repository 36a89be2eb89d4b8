"""The tries of one step: run the body, save its outcome or its failure, wait, run it again.

What must stay true: a failed try is durable before the next begins (RULINGS 7); what the body
raises is the step's failure, whatever it is, and what comes from outside is not; the value that
live code gets is the one that was encoded (31).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from onceward.authoring.current import Frame, frame_var
from onceward.authoring.made import not_awaited
from onceward.authoring.options import StepOptions
from onceward.core import errors, failpoints, retry
from onceward.core.model import Millis, StepKey, StepRow
from onceward.core.states import StepState
from onceward.runtime import key_memory
from onceward.runtime.functions import FunctionFacts
from onceward.runtime.records import error_text, failure_of, one_line
from onceward.runtime.threads import NotBegun

if TYPE_CHECKING:
    from onceward.runtime.execution import Execution

_log = logging.getLogger("onceward.run")


async def run_step(
    execution: Execution,
    key: StepKey,
    function: Callable[..., Any],
    facts: FunctionFacts,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    options: StepOptions,
    record: StepRow | None,
) -> Any:
    """Give the result of a step that has none yet.

    Args:
        execution: the run.
        key: which step.
        function: its body.
        facts: how to call it.
        args: for the body.
        kwargs: for the body, by name.
        options: how it is tried.
        record: its open record, if earlier tries failed.

    Raises:
        StepFailed: the tries are used up, or one failed for good.
    """
    worker = execution.worker
    tries = 0 if record is None else record.tries
    # A step that an operator's retry opened again has its whole time again.
    first_at = worker.now_ms() if record is None or tries == 0 else record.started_at
    if record is not None and record.wake_at is not None:
        await execution.parking.back_off(record.wake_at)
    key_since = None
    if options.key_memory_ms is not None:
        key_since = await key_memory.begin(execution, key, options, record)
    while True:
        await execution.durable()
        if worker.is_draining:
            await execution.parking.park(None)
        if key_since is not None:
            key_memory.check(execution, key, options, key_since, tries)
        tries += 1
        frame = Frame(execution, key, tries, options.key_scope)
        task = asyncio.current_task(execution.loop)
        if facts.key_place is not None:
            kwargs = facts.key_place.filled(args, kwargs, frame.idempotency_key)
        begun = worker.now_ms() if tries > 1 or record is not None else first_at
        begun = begun if key_since is None else key_since
        try:
            if failpoints.is_armed():
                failpoints.hit("step.before_body", str(key))
                # A process that was stopped right here for longer than its lease must not begin.
                await execution.durable()
            value = await _body(execution, frame, function, args, kwargs, options, facts.is_async)
            if failpoints.is_armed():
                failpoints.hit("step.after_body", str(key))
            if frame.made is not None and (forgotten := frame.made.take_forgotten(execution.loop)):
                raise not_awaited(forgotten, f"the body of step {str(key)!r}")
            text, value = facts.result.round_trip(
                value,
                what=f"The result of step {str(key)!r}",
                limit_bytes=worker.settings.value_bytes_max,
            )
        except asyncio.CancelledError as error:
            if execution.is_from_outside(error):
                begun = key_since or first_at
                row = execution.row(key, "run", StepState.CUT, begun, tries=tries, **options.recorded)
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
            row = execution.row(
                key, "run", StepState.DONE, begun, tries=tries, output=text, **options.recorded
            )
            execution.save(row, frame.accepts)
            if execution.recall.has_queue():
                await execution.recall.take_turn()
            return value
        execution.check_usable()
        await _failed_try(execution, key, failure, tries, first_at, key_since or first_at, options)


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
    worker = execution.worker
    token = frame_var.set(frame)
    execution.steps_in_flight.add(frame.key)
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
    finally:
        frame.is_over = True
        frame_var.reset(token)
        execution.steps_in_flight.discard(frame.key)
        if worker.is_draining and not execution.steps_in_flight:
            execution.loop.call_soon(execution.drain)


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
    key: StepKey,
    failure: BaseException,
    tries: int,
    first_at: Millis,
    started_at: Millis,
    options: StepOptions,
) -> None:
    """Save a failed try and wait for the next, or save the failure and raise it."""
    worker, now = execution.worker, execution.worker.now_ms()
    decision = retry.decide(
        options.retry,
        tries=tries,
        error=failure,
        elapsed_ms=now - first_at,
        draw=worker.ids.draw(),
        now_ms=now,
    )
    if decision.delay_ms is None:
        text = error_text(failure, is_final=retry.is_final(failure))
        row = execution.row(
            key, "run", StepState.FAILED, started_at, tries=tries, error=text, **options.recorded
        )
        execution.save(row)
        if execution.recall.has_queue():
            await execution.recall.take_turn()
        _log.debug("run %s: step %r failed", execution.run_id, str(key), exc_info=failure)
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
    )
    wake_at = now + decision.delay_ms
    execution.save(
        execution.row(
            key,
            "run",
            StepState.OPEN,
            started_at,
            tries=tries,
            error=text,
            wake_at=wake_at,
            **options.recorded,
        )
    )
    await execution.durable()
    await execution.parking.back_off(wake_at)
