"""Run a function as the body of a step: in its frame, its span and its time, where its kind belongs.

`runtime/tries.py` calls it for each try and each check of one; what comes of it is decided there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from onceward.authoring.current import Frame, frame_var
from onceward.authoring.options import StepOptions
from onceward.core import errors
from onceward.runtime.threads import NotBegun
from onceward.runtime.tracing import StepSpan, safely

if TYPE_CHECKING:
    from onceward.runtime.execution import Execution


async def run_body(
    execution: Execution,
    frame: Frame,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    options: StepOptions,
    is_async: bool,
) -> Any:
    """Give what a try's or a check's body gives.

    Raises:
        StepTimedOut: it ran longer than the step's options allow.
        BaseException: whatever it raised.
    """
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


def call_body(
    execution: Execution,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    is_async: bool,
) -> Awaitable[Any]:
    """Call a function as a step's body, or as a part of one: a plain one in a thread, once it is awaited."""
    return function(*args, **kwargs) if is_async else _in_thread(execution, function, args, kwargs)


async def _in_thread(
    execution: Execution, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
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
