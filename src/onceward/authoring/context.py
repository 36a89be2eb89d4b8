"""The context: what a workflow calls its durable verbs on, async and plain.

Both shells hand over to the session at once; neither decides anything. A workflow that is an
``async def`` gets a `Context`, a plain function gets a `SyncContext` whose verbs block its thread.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime
from typing import Any, NoReturn, ParamSpec, TypeVar, TypeVarTuple, overload

from onceward.authoring.current import Session, frame_var, wait_in_thread
from onceward.authoring.event import Event
from onceward.authoring.keys import IdempotencyKey
from onceward.authoring.options import DEFAULT_OPTIONS, StepOptions
from onceward.authoring.step import Step
from onceward.authoring.workflow import Workflow
from onceward.core import errors
from onceward.core.annotations import signature_of
from onceward.core.duration import Duration, to_ms
from onceward.core.retry import Retry
from onceward.core.shown import shown

P = ParamSpec("P")
R = TypeVar("R")
Ts = TypeVarTuple("Ts")
A1 = TypeVar("A1")
A2 = TypeVar("A2")
A3 = TypeVar("A3")

RESERVED = ("item", "retry", "timeout")
"""Keywords of ``step.run`` that are its own, not the function's."""


class _Base:
    """What both contexts know."""

    def __init__(self, session: Session, event: Event) -> None:
        self._session = session
        self.event = event

    @property
    def run_id(self) -> str:
        """Give the run's id."""
        return self._session.run_id

    @property
    def generation(self) -> int:
        """Give which life of the run this is; a restart begins the next."""
        return self._session.generation

    @property
    def attempt(self) -> int:
        """Give which attempt of the generation this is, counted from 1."""
        return self._session.attempt

    @property
    def idempotency_key(self) -> IdempotencyKey:
        """Give the key of the step whose body runs, to hand to others with a request.

        Raises:
            StepMisuse: outside a step's body, where there is none.
        """
        frame = frame_var.get()
        if frame is None:
            raise errors.StepMisuse(
                "ctx.idempotency_key was read outside a step's body.",
                means="A key belongs to one step; code between steps has none.",
                todo="Read it inside the step, or give the step a parameter of type IdempotencyKey.",
            )
        return IdempotencyKey(frame.idempotency_key)

    @property
    def try_number(self) -> int:
        """Give which try of the step whose body runs this is, counted from 1; 0 outside a step."""
        frame = frame_var.get()
        return 0 if frame is None else frame.try_number


def _prepare(
    name: str,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> tuple[Callable[..., Any], str, StepOptions, dict[str, Any]]:
    """Split the keywords of ``step.run`` into its own and the function's."""
    options, item = DEFAULT_OPTIONS, ""
    if isinstance(function, Step):
        options, item, function = function.options, function.item_text, function.function
    elif isinstance(function, Workflow) or not callable(function):
        _refuse_function(name, function)
    if not kwargs:
        return function, item, options, kwargs
    _refuse_hidden(name, function, kwargs, len(args))
    item = str(kwargs.pop("item", item))
    retry: Retry = kwargs.pop("retry", options.retry)
    timeout = kwargs.pop("timeout", None)
    if retry is not options.retry or timeout is not None:
        timeout_ms = (
            options.timeout_ms if timeout is None else to_ms(timeout, what=f"timeout of step {name!r}")
        )
        options = StepOptions(retry=retry, timeout_ms=timeout_ms)
    return function, item, options, kwargs


def _refuse_function(name: str, given: Any) -> NoReturn:
    """Refuse what cannot be called, before its tries are used up on it."""
    if isinstance(given, Workflow):
        raise errors.StepMisuse(
            f"The step {name!r} was given the workflow {given.name!r}.",
            means="A workflow has runs of its own; a step runs a function.",
            todo=f"Write ctx.step.call({name!r}, {given.__name__}, …), or step.start not to wait for it.",
        )
    if isinstance(given, Coroutine):
        given.close()  # or Python would warn that it was never awaited, too
        raise errors.StepMisuse(
            f"The step {name!r} was given a coroutine: its function was called already.",
            means="A coroutine can be awaited once; a step may have to run its body again.",
            todo=f"Write ctx.step.run({name!r}, function, …) with the function's arguments behind it.",
        )
    raise errors.StepMisuse(
        f"The step {name!r} was given {shown(given)}, which cannot be called.",
        means="A step runs a function.",
        todo=f"Write ctx.step.run({name!r}, function, …) with its arguments behind it.",
    )


def _refuse_hidden(name: str, function: Callable[..., Any], kwargs: dict[str, Any], given: int) -> None:
    """Refuse a keyword that looks like the function's and would never reach it."""
    meant = [word for word in RESERVED if word in kwargs]
    if not meant:
        return
    try:
        parameters = list(signature_of(function).parameters.values())
    except (TypeError, ValueError):  # a builtin without a signature
        return
    for position, parameter in enumerate(parameters):
        is_missing = parameter.default is parameter.empty and position >= given
        if parameter.name in meant and is_missing:
            raise errors.StepMisuse(
                f"The function of step {name!r} takes {parameter.name!r}, which step.run keeps for itself.",
                means="The function would not get it.",
                todo=f"Pass it by position, or wrap the function: functools.partial(function, {parameter.name}=…).",
            )


class StepVerbs:
    """``ctx.step`` in an async workflow."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    @overload
    async def run(
        self, name: str, function: Step[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...
    @overload
    async def run(
        self, name: str, function: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...
    @overload
    async def run(self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    async def run(
        self,
        name: str,
        function: Callable[[*Ts], Awaitable[R]],
        /,
        *args: *Ts,
        item: object = ...,
        retry: Retry = ...,
        timeout: Duration | None = ...,  # noqa: ASYNC109 - a try's limit, kept by the engine
    ) -> R: ...
    @overload
    async def run(
        self,
        name: str,
        function: Callable[[*Ts], R],
        /,
        *args: *Ts,
        item: object = ...,
        retry: Retry = ...,
        timeout: Duration | None = ...,  # noqa: ASYNC109
    ) -> R: ...
    async def run(  # type: ignore[misc]  # *args: *Ts counts as wider than *args: Any
        self, name: str, function: Any, /, *args: Any, **kwargs: Any
    ) -> Any:
        """Run a function as a step and give its result; a saved result answers without running it.

        Args:
            name: what identifies the step in this run; the same name in sequence is numbered.
            function: any function, async or plain (plain ones run in a thread).
            args: its arguments; they need not be storable.
            item: which element of a loop this is, when the name repeats in parallel branches.
            retry: how it is tried again; five tries with growing delays by default.
            timeout: how long one try may take.
            kwargs: the function's keywords.

        Raises:
            StepFailed: its tries are used up, or it failed for good, as with a result that cannot
                be stored.
            StepMisuse: the name repeats in parallel branches, or a step is called inside a step.
            ConfigError: no value of the function's return annotation could be stored.
        """
        function, item, options, kwargs = _prepare(name, function, args, kwargs)
        return await self._session.step(name, item, function, args, kwargs, options, None)

    async def sleep(self, name: str, delay: Duration, *, item: object = "") -> None:
        """Sleep until a deadline that is fixed when it is first reached; costs a row.

        Args:
            name: what identifies the sleep.
            delay: a ``timedelta``, seconds or a text such as ``"7d"``.
            item: which element of a loop this is.

        Raises:
            ConfigError: *delay* is no length of time, or over a hundred years.
        """
        await self._session.sleep(name, str(item), to_ms(delay, what=f"delay of sleep {name!r}"), None)

    async def uuid(self, name: str, *, item: object = "") -> uuid.UUID:
        """Draw a random UUID once; every attempt gets the same.

        Args:
            name: what identifies it in this run.
            item: which element of a loop this is.
        """
        drawn: uuid.UUID = await self._session.value("uuid", name, str(item), None)
        return drawn

    async def now(self, name: str, *, item: object = "") -> datetime:
        """Look at the clock once; every attempt gets the same time, in UTC.

        Args:
            name: what identifies it in this run.
            item: which element of a loop this is.
        """
        at: datetime = await self._session.value("now", name, str(item), None)
        return at

    async def random(self, name: str, *, item: object = "") -> float:
        """Draw a number in [0, 1) once; every attempt gets the same.

        Args:
            name: what identifies it in this run.
            item: which element of a loop this is.
        """
        drawn: float = await self._session.value("random", name, str(item), None)
        return drawn

    async def emit(
        self, name: str, type: str, payload: Any = None, *, subject: str | None = None, item: object = ""
    ) -> tuple[str, str]:
        """Emit an event exactly once, with the step's checkpoint.

        Args:
            name: what identifies the step.
            type: what happened; workflows that are ``on`` it get a run.
            payload: JSON-native data.
            subject: what the event is about.
            item: which element of a loop this is.

        Returns:
            The event's source and id.
        """
        return await self._session.emit(name, str(item), type, payload, subject, None)

    @overload
    async def start(
        self, name: str, workflow: Workflow[P, Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> str: ...
    @overload
    async def start(
        self, name: str, workflow: Workflow[[Event], Any], payload: Any = ..., /, *, item: object = ...
    ) -> str: ...
    @overload
    async def start(self, name: str, workflow: Workflow[[], Any], /, *, item: object = ...) -> str: ...
    @overload
    async def start(
        self, name: str, workflow: Workflow[[A1], Any], a1: A1, /, *, item: object = ...
    ) -> str: ...
    @overload
    async def start(
        self, name: str, workflow: Workflow[[A1, A2], Any], a1: A1, a2: A2, /, *, item: object = ...
    ) -> str: ...
    @overload
    async def start(
        self,
        name: str,
        workflow: Workflow[[A1, A2, A3], Any],
        a1: A1,
        a2: A2,
        a3: A3,
        /,
        *,
        item: object = ...,
    ) -> str: ...
    async def start(self, name: str, workflow: Workflow[..., Any], /, *args: Any, **kwargs: Any) -> str:
        """Start a run of another workflow exactly once, detached; give its id.

        Args:
            name: what identifies the step.
            workflow: which.
            args: what its function takes after the context; for one that takes an `Event`, the
                event's payload.
            kwargs: likewise, by name; and ``item=``, which element of a loop this is.

        Raises:
            ConfigError: the arguments do not fit the workflow's function.
            NotStorable: an argument cannot be stored.
        """
        item = str(kwargs.pop("item", ""))
        run_id: str = await self._session.start(name, item, workflow, args, kwargs, False, None)
        return run_id

    @overload
    async def call(self, name: str, workflow: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    async def call(
        self, name: str, workflow: Workflow[[Event], R], payload: Any = ..., /, *, item: object = ...
    ) -> R: ...
    @overload
    async def call(self, name: str, workflow: Workflow[[], R], /, *, item: object = ...) -> R: ...
    @overload
    async def call(self, name: str, workflow: Workflow[[A1], R], a1: A1, /, *, item: object = ...) -> R: ...
    @overload
    async def call(
        self, name: str, workflow: Workflow[[A1, A2], R], a1: A1, a2: A2, /, *, item: object = ...
    ) -> R: ...
    @overload
    async def call(
        self, name: str, workflow: Workflow[[A1, A2, A3], R], a1: A1, a2: A2, a3: A3, /, *, item: object = ...
    ) -> R: ...
    async def call(self, name: str, workflow: Workflow[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Start a run of another workflow exactly once, wait for it and give its result.

        It is cancelled with this run.

        Args:
            name: what identifies the step.
            workflow: which.
            args: what its function takes after the context; for one that takes an `Event`, the
                event's payload.
            kwargs: likewise, by name; and ``item=``, which element of a loop this is.

        Raises:
            StepFailed: the called run failed or was cancelled.
        """
        item = str(kwargs.pop("item", ""))
        return await self._session.start(name, item, workflow, args, kwargs, True, None)


class Context(_Base):
    """What an ``async def`` workflow gets first.

    Attributes:
        step: the durable verbs, see `StepVerbs`.
        event: what started the run.
    """

    def __init__(self, session: Session, event: Event) -> None:
        super().__init__(session, event)
        self.step = StepVerbs(session)


class SyncStepVerbs:
    """``ctx.step`` in a plain workflow; each verb blocks the workflow's thread."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    def _wait(self, coroutine: Coroutine[Any, Any, R]) -> R:
        return wait_in_thread(self._session, coroutine)

    @overload
    def run(
        self, name: str, function: Step[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...
    @overload
    def run(
        self, name: str, function: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...
    @overload
    def run(self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    def run(
        self,
        name: str,
        function: Callable[[*Ts], Awaitable[R]],
        /,
        *args: *Ts,
        item: object = ...,
        retry: Retry = ...,
        timeout: Duration | None = ...,
    ) -> R: ...
    @overload
    def run(
        self,
        name: str,
        function: Callable[[*Ts], R],
        /,
        *args: *Ts,
        item: object = ...,
        retry: Retry = ...,
        timeout: Duration | None = ...,
    ) -> R: ...
    def run(  # type: ignore[misc]  # likewise
        self, name: str, function: Any, /, *args: Any, **kwargs: Any
    ) -> Any:
        """Run a function as a step and give its result; see `StepVerbs.run`."""
        function, item, options, kwargs = _prepare(name, function, args, kwargs)
        caller = threading.current_thread()
        return self._wait(self._session.step(name, item, function, args, kwargs, options, caller))

    def sleep(self, name: str, delay: Duration, *, item: object = "") -> None:
        """Sleep until a deadline that is fixed when it is first reached; see `StepVerbs.sleep`."""
        delay_ms = to_ms(delay, what=f"delay of sleep {name!r}")
        self._wait(self._session.sleep(name, str(item), delay_ms, threading.current_thread()))

    def uuid(self, name: str, *, item: object = "") -> uuid.UUID:
        """Draw a random UUID once; every attempt gets the same; see `StepVerbs.uuid`."""
        drawn: uuid.UUID = self._value("uuid", name, item)
        return drawn

    def now(self, name: str, *, item: object = "") -> datetime:
        """Look at the clock once; every attempt gets the same time, in UTC; see `StepVerbs.now`."""
        at: datetime = self._value("now", name, item)
        return at

    def random(self, name: str, *, item: object = "") -> float:
        """Draw a number in [0, 1) once; every attempt gets the same; see `StepVerbs.random`."""
        drawn: float = self._value("random", name, item)
        return drawn

    def _value(self, kind: str, name: str, item: object) -> Any:
        return self._wait(self._session.value(kind, name, str(item), threading.current_thread()))

    def emit(
        self, name: str, type: str, payload: Any = None, *, subject: str | None = None, item: object = ""
    ) -> tuple[str, str]:
        """Emit an event exactly once; see `StepVerbs.emit`."""
        return self._wait(
            self._session.emit(name, str(item), type, payload, subject, threading.current_thread())
        )

    @overload
    def start(self, name: str, workflow: Workflow[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> str: ...
    @overload
    def start(
        self, name: str, workflow: Workflow[[Event], Any], payload: Any = ..., /, *, item: object = ...
    ) -> str: ...
    @overload
    def start(self, name: str, workflow: Workflow[[], Any], /, *, item: object = ...) -> str: ...
    @overload
    def start(self, name: str, workflow: Workflow[[A1], Any], a1: A1, /, *, item: object = ...) -> str: ...
    @overload
    def start(
        self, name: str, workflow: Workflow[[A1, A2], Any], a1: A1, a2: A2, /, *, item: object = ...
    ) -> str: ...
    @overload
    def start(
        self,
        name: str,
        workflow: Workflow[[A1, A2, A3], Any],
        a1: A1,
        a2: A2,
        a3: A3,
        /,
        *,
        item: object = ...,
    ) -> str: ...
    def start(self, name: str, workflow: Workflow[..., Any], /, *args: Any, **kwargs: Any) -> str:
        """Start a run of another workflow exactly once, detached; see `StepVerbs.start`."""
        run_id: str = self._start(name, workflow, args, kwargs, False)
        return run_id

    @overload
    def call(self, name: str, workflow: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    def call(
        self, name: str, workflow: Workflow[[Event], R], payload: Any = ..., /, *, item: object = ...
    ) -> R: ...
    @overload
    def call(self, name: str, workflow: Workflow[[], R], /, *, item: object = ...) -> R: ...
    @overload
    def call(self, name: str, workflow: Workflow[[A1], R], a1: A1, /, *, item: object = ...) -> R: ...
    @overload
    def call(
        self, name: str, workflow: Workflow[[A1, A2], R], a1: A1, a2: A2, /, *, item: object = ...
    ) -> R: ...
    @overload
    def call(
        self, name: str, workflow: Workflow[[A1, A2, A3], R], a1: A1, a2: A2, a3: A3, /, *, item: object = ...
    ) -> R: ...
    def call(self, name: str, workflow: Workflow[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Start a run of another workflow and wait for it; see `StepVerbs.call`."""
        return self._start(name, workflow, args, kwargs, True)

    def _start(
        self,
        name: str,
        workflow: Workflow[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        called: bool,
    ) -> Any:
        item = str(kwargs.pop("item", ""))
        caller = threading.current_thread()
        return self._wait(self._session.start(name, item, workflow, args, kwargs, called, caller))


class SyncContext(_Base):
    """What a plain workflow gets first.

    Attributes:
        step: the durable verbs, blocking, see `SyncStepVerbs`.
        event: what started the run.
    """

    def __init__(self, session: Session, event: Event) -> None:
        super().__init__(session, event)
        self.step = SyncStepVerbs(session)
