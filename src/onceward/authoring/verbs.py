"""``ctx.step`` in an async workflow: the durable verbs, each handed over to the session at once."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime
from typing import Any, Literal, ParamSpec, TypeVar, TypeVarTuple, overload

from onceward.authoring.calls import prepare, uuid_kind
from onceward.authoring.current import noted
from onceward.authoring.ensure import ensured
from onceward.authoring.event import Event
from onceward.authoring.keys import KeyScope
from onceward.authoring.options import Unknown
from onceward.authoring.step import Step
from onceward.authoring.takes import Takes0, Takes1, Takes2, Takes3, Takes4
from onceward.authoring.transaction_verbs import TransactionVerbs
from onceward.authoring.wait_verbs import WaitVerbs
from onceward.authoring.workflow import Workflow
from onceward.core.duration import Duration, to_ms
from onceward.core.effects import EffectName
from onceward.core.keywords import spelled
from onceward.core.retry import Retry

P = ParamSpec("P")
R = TypeVar("R")
Ts = TypeVarTuple("Ts")
D = TypeVar("D")
A1 = TypeVar("A1")
A2 = TypeVar("A2")
A3 = TypeVar("A3")
A4 = TypeVar("A4")


class StepVerbs(TransactionVerbs, WaitVerbs):
    """``ctx.step`` in an async workflow."""

    __slots__ = ()

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
        key_scope: KeyScope = ...,
        key_memory: Duration | None = ...,
        effect: EffectName = ...,
        unknown: Unknown | None = ...,
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
        key_scope: KeyScope = ...,
        key_memory: Duration | None = ...,
        effect: EffectName = ...,
        unknown: Unknown | None = ...,
    ) -> R: ...
    @noted  # type: ignore[misc]  # *args: *Ts counts as wider than *args: Any
    async def run(self, name: str, function: Any = None, /, *args: Any, **kwargs: Any) -> Any:
        """Run a function as a step and give its result; a saved result answers without running it.

        Args:
            name: what identifies the step in this run; the same name in sequence is numbered.
            function: any function, async or plain (plain ones run in a thread).
            args: its arguments; they need not be storable.
            item: which element of a loop this is, when the name repeats in parallel branches.
            retry: how it is tried again; five tries with growing delays by default.
            timeout: how long one try may take.
            key_scope: ``"business"`` for an idempotency key that a restart or replay hands out again.
            key_memory: how long the receiver remembers the key; see `App.step`.
            effect: what running it again does; see `App.step`.
            unknown: what becomes of it when it began and has no saved end; see `App.step`.
            kwargs: the function's keywords.

        Raises:
            StepFailed: its tries are used up, or it failed for good, as with a result that cannot
                be stored, or an annotation of which no value could be.
            StepMisuse: the name repeats in parallel branches, or a step is called inside a step.
        """
        function, item, options, kwargs = prepare(name, function, args, kwargs)
        return await self._session.step(name, item, function, args, kwargs, options, None)

    @overload
    async def ensure(
        self,
        name: str,
        find: Callable[[*Ts], Awaitable[R | None]],
        create: Callable[[*Ts], Awaitable[R]],
        args: tuple[*Ts] = ...,
        *,
        item: object = ...,
        retry: Retry | None = ...,
        timeout: Duration | None = ...,  # noqa: ASYNC109
        key_scope: KeyScope | None = ...,
        key_memory: Duration | None = ...,
        effect: EffectName | None = ...,
        unknown: Unknown | None = ...,
    ) -> R: ...
    @overload
    async def ensure(
        self,
        name: str,
        find: Callable[[*Ts], Awaitable[R | None]],
        create: Callable[[*Ts], R],
        args: tuple[*Ts] = ...,
        *,
        item: object = ...,
        retry: Retry | None = ...,
        timeout: Duration | None = ...,  # noqa: ASYNC109
        key_scope: KeyScope | None = ...,
        key_memory: Duration | None = ...,
        effect: EffectName | None = ...,
        unknown: Unknown | None = ...,
    ) -> R: ...
    @overload
    async def ensure(
        self,
        name: str,
        find: Callable[[*Ts], R | None],
        create: Callable[[*Ts], Awaitable[R]],
        args: tuple[*Ts] = ...,
        *,
        item: object = ...,
        retry: Retry | None = ...,
        timeout: Duration | None = ...,  # noqa: ASYNC109
        key_scope: KeyScope | None = ...,
        key_memory: Duration | None = ...,
        effect: EffectName | None = ...,
        unknown: Unknown | None = ...,
    ) -> R: ...
    @overload
    async def ensure(
        self,
        name: str,
        find: Callable[[*Ts], R | None],
        create: Callable[[*Ts], R],
        args: tuple[*Ts] = ...,
        *,
        item: object = ...,
        retry: Retry | None = ...,
        timeout: Duration | None = ...,  # noqa: ASYNC109
        key_scope: KeyScope | None = ...,
        key_memory: Duration | None = ...,
        effect: EffectName | None = ...,
        unknown: Unknown | None = ...,
    ) -> R: ...
    @spelled("step.ensure")
    @noted
    async def ensure(
        self,
        name: str,
        find: Callable[..., Any],
        create: Callable[..., Any],
        args: tuple[Any, ...] = (),
        *,
        item: object = "",
        retry: Retry | None = None,
        timeout: Duration | None = None,  # noqa: ASYNC109
        key_scope: KeyScope | None = None,
        key_memory: Duration | None = None,
        effect: EffectName | None = None,
        unknown: Unknown | None = None,
    ) -> Any:
        """Give what *find* finds, else what *create* creates; saved as one step.

        A first try that created something and died before that was saved is found by the next.

        Args:
            name: what identifies the step.
            find: gives what is there, or None.
            create: makes it. Its return annotation says how the result is stored; the options of a
                decorated step count.
            args: the arguments of both.
            item: which element of a loop this is.
            retry: how it is tried again, as a whole.
            timeout: how long one try may take.
            key_scope: see `run`.
            key_memory: see `run`.
            effect: see `run`.
            unknown: see `run`.

        Raises:
            StepFailed: its tries are used up, or it failed for good.
            StepMisuse: *find* or *create* is no function, or *args* no tuple.
        """
        given = {
            "retry": retry,
            "timeout": timeout,
            "key_scope": key_scope,
            "key_memory": key_memory,
            "effect": effect,
            "unknown": unknown,
        }
        body, options = ensured(self._session, name, find, create, args, given)
        return await self._session.step(name, str(item), body, args, {}, options, None)

    @noted
    async def undo(self, name: str, *, item: object = "") -> list[str]:
        """Undo what the run did so far: the undo of each done step, the last one first.

        Each is a step of its own. Steps of unknown outcome are looked at first, by their check or by a
        person; what was undone before is not undone again. An undo that fails holds the run.

        Args:
            name: what identifies this in the run.
            item: which element of a loop this is.

        Returns:
            The steps that were undone, in that order.
        """
        return await self._session.undo(name, str(item), None)

    @noted
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

    @noted
    async def uuid(self, name: str, *, version: Literal[4, 7] = 4, item: object = "") -> uuid.UUID:
        """Draw a random UUID once; every attempt gets the same.

        Args:
            name: what identifies it in this run.
            version: 4, all random, or 7, which sorts by the time at which it was drawn.
            item: which element of a loop this is.

        Raises:
            ConfigError: there is no such *version* here.
        """
        drawn: uuid.UUID = await self._session.value(uuid_kind(version), name, str(item), None)
        return drawn

    @noted
    async def now(self, name: str, *, item: object = "") -> datetime:
        """Look at the clock once; every attempt gets the same time, in UTC.

        Args:
            name: what identifies it in this run.
            item: which element of a loop this is.
        """
        at: datetime = await self._session.value("now", name, str(item), None)
        return at

    @noted
    async def random(self, name: str, *, item: object = "") -> float:
        """Draw a number in [0, 1) once; every attempt gets the same.

        Args:
            name: what identifies it in this run.
            item: which element of a loop this is.
        """
        drawn: float = await self._session.value("random", name, str(item), None)
        return drawn

    @noted
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
    async def start(self, name: str, workflow: Takes0[Any], /, *, item: object = ...) -> str: ...
    @overload
    async def start(self, name: str, workflow: Takes1[A1, Any], a1: A1, /, *, item: object = ...) -> str: ...
    @overload
    async def start(
        self, name: str, workflow: Takes2[A1, A2, Any], a1: A1, a2: A2, /, *, item: object = ...
    ) -> str: ...
    @overload
    async def start(
        self, name: str, workflow: Takes3[A1, A2, A3, Any], a1: A1, a2: A2, a3: A3, /, *, item: object = ...
    ) -> str: ...
    @overload
    async def start(
        self,
        name: str,
        workflow: Takes4[A1, A2, A3, A4, Any],
        a1: A1,
        a2: A2,
        a3: A3,
        a4: A4,
        /,
        *,
        item: object = ...,
    ) -> str: ...
    @noted
    async def start(self, name: str, workflow: Any, /, *args: Any, **kwargs: Any) -> str:
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
    async def call(self, name: str, workflow: Takes0[R], /, *, item: object = ...) -> R: ...
    @overload
    async def call(self, name: str, workflow: Takes1[A1, R], a1: A1, /, *, item: object = ...) -> R: ...
    @overload
    async def call(
        self, name: str, workflow: Takes2[A1, A2, R], a1: A1, a2: A2, /, *, item: object = ...
    ) -> R: ...
    @overload
    async def call(
        self, name: str, workflow: Takes3[A1, A2, A3, R], a1: A1, a2: A2, a3: A3, /, *, item: object = ...
    ) -> R: ...
    @overload
    async def call(
        self,
        name: str,
        workflow: Takes4[A1, A2, A3, A4, R],
        a1: A1,
        a2: A2,
        a3: A3,
        a4: A4,
        /,
        *,
        item: object = ...,
    ) -> R: ...
    @noted
    async def call(self, name: str, workflow: Any, /, *args: Any, **kwargs: Any) -> Any:
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
