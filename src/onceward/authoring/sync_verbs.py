"""``ctx.step`` in a plain workflow: the same verbs, each blocking the thread that calls it."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, TypeVarTuple, overload

from onceward.authoring.calls import prepare, uuid_kind, wait_ms
from onceward.authoring.current import Session, wait_in_thread
from onceward.authoring.ensure import ensured
from onceward.authoring.event import Event
from onceward.authoring.expect import RAISES, Expect, parts_of
from onceward.authoring.keys import KeyScope
from onceward.authoring.options import Unknown
from onceward.authoring.promise import SyncPromise
from onceward.authoring.step import Step
from onceward.authoring.takes import Takes0, Takes1, Takes2, Takes3, Takes4
from onceward.authoring.transaction import Transaction, prepared
from onceward.authoring.workflow import Workflow
from onceward.core.duration import Duration, to_ms
from onceward.core.effects import EffectName
from onceward.core.keywords import spelled
from onceward.core.paths import Expr
from onceward.core.retry import Retry
from onceward.core.triggers import Trigger

P = ParamSpec("P")
R = TypeVar("R")
Ts = TypeVarTuple("Ts")
D = TypeVar("D")
A1 = TypeVar("A1")
A2 = TypeVar("A2")
A3 = TypeVar("A3")
A4 = TypeVar("A4")


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
        key_scope: KeyScope = ...,
        key_memory: Duration | None = ...,
        effect: EffectName = ...,
        unknown: Unknown | None = ...,
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
        key_scope: KeyScope = ...,
        key_memory: Duration | None = ...,
        effect: EffectName = ...,
        unknown: Unknown | None = ...,
    ) -> R: ...
    def run(  # type: ignore[misc]  # likewise
        self, name: str, function: Any = None, /, *args: Any, **kwargs: Any
    ) -> Any:
        """Run a function as a step and give its result; see `StepVerbs.run`."""
        function, item, options, kwargs = prepare(name, function, args, kwargs)
        caller = threading.current_thread()
        return self._wait(self._session.step(name, item, function, args, kwargs, options, caller))

    @overload
    def transaction(
        self,
        name: str,
        function: Transaction[P, Coroutine[Any, Any, R]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R: ...
    @overload
    def transaction(
        self, name: str, function: Transaction[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...
    @overload
    def transaction(
        self,
        name: str,
        function: Callable[Concatenate[Any, P], Awaitable[R]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R: ...
    @overload
    def transaction(
        self, name: str, function: Callable[Concatenate[Any, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...
    @overload
    def transaction(
        self,
        name: str,
        function: Callable[[Any, *Ts], Awaitable[R]],
        /,
        *args: *Ts,
        item: object = ...,
        retry: Retry = ...,
        timeout: Duration | None = ...,
        connect: Any = ...,
    ) -> R: ...
    @overload
    def transaction(
        self,
        name: str,
        function: Callable[[Any, *Ts], R],
        /,
        *args: *Ts,
        item: object = ...,
        retry: Retry = ...,
        timeout: Duration | None = ...,
        connect: Any = ...,
    ) -> R: ...
    def transaction(  # type: ignore[misc]  # likewise
        self, name: str, function: Any, /, *args: Any, **kwargs: Any
    ) -> Any:
        """Commit rows and the checkpoint in one transaction; see `StepVerbs.transaction`."""
        function, item, options, kwargs = prepared(name, function, args, kwargs)
        caller = threading.current_thread()
        return self._wait(self._session.step(name, item, function, args, kwargs, options, caller))

    @overload
    def ensure(
        self,
        name: str,
        find: Callable[[*Ts], Awaitable[R | None]],
        create: Callable[[*Ts], Awaitable[R]],
        args: tuple[*Ts] = ...,
        *,
        item: object = ...,
        retry: Retry | None = ...,
        timeout: Duration | None = ...,
        key_scope: KeyScope | None = ...,
        key_memory: Duration | None = ...,
        effect: EffectName | None = ...,
        unknown: Unknown | None = ...,
    ) -> R: ...
    @overload
    def ensure(
        self,
        name: str,
        find: Callable[[*Ts], Awaitable[R | None]],
        create: Callable[[*Ts], R],
        args: tuple[*Ts] = ...,
        *,
        item: object = ...,
        retry: Retry | None = ...,
        timeout: Duration | None = ...,
        key_scope: KeyScope | None = ...,
        key_memory: Duration | None = ...,
        effect: EffectName | None = ...,
        unknown: Unknown | None = ...,
    ) -> R: ...
    @overload
    def ensure(
        self,
        name: str,
        find: Callable[[*Ts], R | None],
        create: Callable[[*Ts], Awaitable[R]],
        args: tuple[*Ts] = ...,
        *,
        item: object = ...,
        retry: Retry | None = ...,
        timeout: Duration | None = ...,
        key_scope: KeyScope | None = ...,
        key_memory: Duration | None = ...,
        effect: EffectName | None = ...,
        unknown: Unknown | None = ...,
    ) -> R: ...
    @overload
    def ensure(
        self,
        name: str,
        find: Callable[[*Ts], R | None],
        create: Callable[[*Ts], R],
        args: tuple[*Ts] = ...,
        *,
        item: object = ...,
        retry: Retry | None = ...,
        timeout: Duration | None = ...,
        key_scope: KeyScope | None = ...,
        key_memory: Duration | None = ...,
        effect: EffectName | None = ...,
        unknown: Unknown | None = ...,
    ) -> R: ...
    @spelled("step.ensure")
    def ensure(
        self,
        name: str,
        find: Callable[..., Any],
        create: Callable[..., Any],
        args: tuple[Any, ...] = (),
        *,
        item: object = "",
        retry: Retry | None = None,
        timeout: Duration | None = None,
        key_scope: KeyScope | None = None,
        key_memory: Duration | None = None,
        effect: EffectName | None = None,
        unknown: Unknown | None = None,
    ) -> Any:
        """Give what *find* finds, else what *create* creates; see `StepVerbs.ensure`."""
        given = {
            "retry": retry,
            "timeout": timeout,
            "key_scope": key_scope,
            "key_memory": key_memory,
            "effect": effect,
            "unknown": unknown,
        }
        body, options = ensured(self._session, name, find, create, args, given)
        caller = threading.current_thread()
        return self._wait(self._session.step(name, str(item), body, args, {}, options, caller))

    def undo(self, name: str, *, item: object = "") -> list[str]:
        """Undo what the run did so far; see `StepVerbs.undo`."""
        return self._wait(self._session.undo(name, str(item), threading.current_thread()))

    def sleep(self, name: str, delay: Duration, *, item: object = "") -> None:
        """Sleep until a deadline that is fixed when it is first reached; see `StepVerbs.sleep`."""
        delay_ms = to_ms(delay, what=f"delay of sleep {name!r}")
        self._wait(self._session.sleep(name, str(item), delay_ms, threading.current_thread()))

    @overload
    def wait_for(
        self,
        name: str,
        on: str | Trigger,
        *,
        subject: str | None = ...,
        timeout: Duration | None = ...,
        where: Expr | None = ...,
        source: str | None = ...,
        item: object = ...,
    ) -> Event: ...
    @overload
    def wait_for(
        self,
        name: str,
        on: str | Trigger,
        *,
        subject: str | None = ...,
        timeout: Duration | None = ...,
        where: Expr | None = ...,
        source: str | None = ...,
        item: object = ...,
        default: D,
    ) -> Event | D: ...
    def wait_for(
        self,
        name: str,
        on: str | Trigger,
        *,
        subject: str | None = None,
        timeout: Duration | None = None,
        where: Expr | None = None,
        source: str | None = None,
        item: object = "",
        default: Any = RAISES,
    ) -> Any:
        """Wait for an event and give it; see `StepVerbs.wait_for`."""
        parts = [(None, Expect(on, subject=subject, where=where, source=source))]
        found = self._wait(
            self._session.wait(
                name, str(item), parts, wait_ms(name, timeout), default is RAISES, threading.current_thread()
            )
        )
        return default if found is None else found[1]

    @overload
    def wait_any(
        self,
        name: str,
        events: Mapping[str, Expect],
        *,
        timeout: Duration | None = ...,
        item: object = ...,
    ) -> tuple[str, Event]: ...
    @overload
    def wait_any(
        self,
        name: str,
        events: Sequence[Expect],
        *,
        timeout: Duration | None = ...,
        item: object = ...,
    ) -> tuple[int, Event]: ...
    @overload
    def wait_any(
        self,
        name: str,
        events: Mapping[str, Expect],
        *,
        timeout: Duration | None = ...,
        item: object = ...,
        default: D,
    ) -> tuple[str, Event] | D: ...
    @overload
    def wait_any(
        self,
        name: str,
        events: Sequence[Expect],
        *,
        timeout: Duration | None = ...,
        item: object = ...,
        default: D,
    ) -> tuple[int, Event] | D: ...
    def wait_any(
        self,
        name: str,
        events: Mapping[str, Expect] | Sequence[Expect],
        *,
        timeout: Duration | None = None,
        item: object = "",
        default: Any = RAISES,
    ) -> Any:
        """Wait for the first of several events; see `StepVerbs.wait_any`."""
        parts, timeout_ms = parts_of(events), wait_ms(name, timeout)
        found = self._wait(
            self._session.wait(
                name, str(item), parts, timeout_ms, default is RAISES, threading.current_thread()
            )
        )
        return default if found is None else found

    def promise(
        self,
        name: str,
        *,
        timeout: Duration | None = None,
        item: object = "",
    ) -> SyncPromise:
        """Make a promise; see `StepVerbs.promise`."""
        made = self._wait(
            self._session.promise(name, str(item), wait_ms(name, timeout), threading.current_thread())
        )
        return SyncPromise(self._session, name, str(item), *made)

    def uuid(self, name: str, *, version: Literal[4, 7] = 4, item: object = "") -> uuid.UUID:
        """Draw a random UUID once; every attempt gets the same; see `StepVerbs.uuid`."""
        drawn: uuid.UUID = self._value(uuid_kind(version), name, item)
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
    def start(self, name: str, workflow: Takes0[Any], /, *, item: object = ...) -> str: ...
    @overload
    def start(self, name: str, workflow: Takes1[A1, Any], a1: A1, /, *, item: object = ...) -> str: ...
    @overload
    def start(
        self, name: str, workflow: Takes2[A1, A2, Any], a1: A1, a2: A2, /, *, item: object = ...
    ) -> str: ...
    @overload
    def start(
        self, name: str, workflow: Takes3[A1, A2, A3, Any], a1: A1, a2: A2, a3: A3, /, *, item: object = ...
    ) -> str: ...
    @overload
    def start(
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
    def start(self, name: str, workflow: Any, /, *args: Any, **kwargs: Any) -> str:
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
    def call(self, name: str, workflow: Takes0[R], /, *, item: object = ...) -> R: ...
    @overload
    def call(self, name: str, workflow: Takes1[A1, R], a1: A1, /, *, item: object = ...) -> R: ...
    @overload
    def call(self, name: str, workflow: Takes2[A1, A2, R], a1: A1, a2: A2, /, *, item: object = ...) -> R: ...
    @overload
    def call(
        self, name: str, workflow: Takes3[A1, A2, A3, R], a1: A1, a2: A2, a3: A3, /, *, item: object = ...
    ) -> R: ...
    @overload
    def call(
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
    def call(self, name: str, workflow: Any, /, *args: Any, **kwargs: Any) -> Any:
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
