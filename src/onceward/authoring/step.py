"""Decorated steps: called like the function they decorate, saved when called inside a run."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Coroutine
from dataclasses import replace
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast, overload

from onceward.authoring.current import Frame, Session, frame_var, session_var, wait_in_thread
from onceward.authoring.keys import KeyPlace, KeyScope, key_place
from onceward.authoring.options import DEFAULT_STEP_RETRY, StepOptions, Undo, Unknown, key_memory_of
from onceward.authoring.undo import check_undo
from onceward.core import errors
from onceward.core.duration import Duration, to_ms
from onceward.core.retry import Retry

P = ParamSpec("P")
Q = ParamSpec("Q")
R_co = TypeVar("R_co", covariant=True)
S_co = TypeVar("S_co", covariant=True)
T = TypeVar("T")
U = TypeVar("U")


class Step(Generic[P, R_co]):
    """A function that is a step when it is called inside a run, and itself outside; see `App.step`.

    ``R`` is what a call gives: a coroutine for an ``async def`` function.

    Args:
        function: async or plain.
        name: what identifies it in a run.
        options: how it is tried.
        item: which element of a loop it is for.
    """

    __name__: str

    def __init__(self, function: Callable[P, R_co], name: str, options: StepOptions, item: str = "") -> None:
        self.function = function
        self.name = name
        self.options = options
        self.is_async = inspect.iscoroutinefunction(function)
        self.item_text = item
        functools.update_wrapper(self, function)

    def item(self, item: object) -> Step[P, R_co]:
        """Give the same step for one element of a loop, e.g. ``ship.item(order.id)(order)``.

        Args:
            item: what tells the element apart; its text counts.
        """
        return Step(self.function, self.name, self.options, str(item))

    @overload
    def undo(
        self: Step[..., Coroutine[Any, Any, T]], function: Callable[Concatenate[T, Q], U], /
    ) -> Callable[Concatenate[T, Q], U]: ...
    @overload
    def undo(self, function: Callable[Concatenate[R_co, Q], U], /) -> Callable[Concatenate[R_co, Q], U]: ...
    @overload
    def undo(
        self: Step[..., Coroutine[Any, Any, T]],
        /,
        *,
        retry: Retry = ...,
        timeout: Duration | None = ...,
        key_scope: KeyScope = ...,
        key_memory: Duration | None = ...,
        unknown: Unknown | None = ...,
    ) -> Callable[[Callable[Concatenate[T, Q], U]], Callable[Concatenate[T, Q], U]]: ...
    @overload
    def undo(
        self,
        /,
        *,
        retry: Retry = ...,
        timeout: Duration | None = ...,
        key_scope: KeyScope = ...,
        key_memory: Duration | None = ...,
        unknown: Unknown | None = ...,
    ) -> Callable[[Callable[Concatenate[R_co, Q], U]], Callable[Concatenate[R_co, Q], U]]: ...
    def undo(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        retry: Retry = DEFAULT_STEP_RETRY,
        timeout: Duration | None = None,
        key_scope: KeyScope = "step",
        key_memory: Duration | None = None,
        unknown: Unknown | None = None,
    ) -> Any:
        """Say how what this step did is given back: ``@charge.undo``.

        The function is called with the step's result, and by name with those of the step's arguments
        that it takes. It runs as a step of its own, with a key of its own, when a run of a workflow
        with ``undo="on_failure"`` ends badly, or where the code calls ``ctx.step.undo``. That the step
        begins is saved before its body does.

        Args:
            function: async or plain; it is given back as it is.
            retry: as of `App.step`; when its tries are used up, the run is held for a person.
            timeout: as of `App.step`.
            key_scope: as of `App.step`.
            key_memory: as of `App.step`.
            unknown: as of `App.step`.

        Raises:
            ConfigError: it takes something that is no parameter of the step, or the step has an undo.
        """
        options = StepOptions(
            retry=retry,
            timeout_ms=None
            if timeout is None
            else to_ms(timeout, what=f"timeout of the undo of {self.name}"),
            key_scope=key_scope,
            key_memory_ms=key_memory_of(key_memory, f"the undo of {self.name}"),
            unknown=unknown,
        )

        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            if self.options.undo is not None:
                raise errors.ConfigError(
                    f"The step {self.name!r} has two undos.",
                    means="Nothing says which of them gives back what it did.",
                    todo="Write one function that does all of it.",
                )
            undo = _undo_of(self.name, function, options)
            check_undo(self.name, self.function, undo, has_connection=self.options.database is not None)
            self.options = replace(self.options, undo=undo)
            return function

        return decorate if function is None else decorate(function)

    @overload
    def __get__(self, instance: None, owner: type) -> Step[P, R_co]: ...
    @overload
    def __get__(self: Step[Concatenate[Any, Q], S_co], instance: object, owner: type) -> Step[Q, S_co]: ...
    def __get__(self, instance: object, owner: type) -> Any:
        """Give the same step for a method of one object, as for a function in a class."""
        if instance is None:
            return self
        return Step(
            MethodType(self.function, instance), self.name, self._options_of(instance), self.item_text
        )

    def _options_of(self, instance: object) -> StepOptions:
        """Give the options of the method of one object: its undo is one, too."""
        if self.options.undo is None:
            return self.options
        undo = replace(self.options.undo, function=MethodType(self.options.undo.function, instance))
        return replace(self.options, undo=undo)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Run as a saved step inside a run, as the plain function outside and inside other steps."""
        session = session_var.get()
        if session is None:
            return self.function(*args, **kwargs)
        frame = frame_var.get()
        if frame is not None:
            return self._inside(frame, args, kwargs)
        if self.is_async:
            if session.is_sync:
                raise errors.StepMisuse(
                    f"The async step {self.name!r} was called from the plain function of a workflow.",
                    means="The call would only make a coroutine that nothing awaits.",
                    todo=f"Write ctx.step.run({self.name!r}, {self._label()}, …); it waits for the result.",
                )
            return cast("R_co", self._awaited(session, args, kwargs))
        if not session.is_sync:
            raise errors.StepMisuse(
                f"The step {self.name!r} is a plain function and was called directly in an async workflow.",
                means="It would block the event loop and every other run in it.",
                todo=f"Write `await ctx.step.run({self.name!r}, {self._label()}, …)`; it runs in a thread.",
            )
        coroutine = session.step(
            self.name, self.item_text, self.function, args, kwargs, self.options, threading.current_thread()
        )
        return cast("R_co", wait_in_thread(session, coroutine))

    @functools.cached_property
    def _key_place(self) -> KeyPlace | None:
        return key_place(self.function)

    def _inside(self, frame: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R_co:
        """Be a part of the step whose body calls: the plain function, with a key of its own."""
        if self._key_place is not None:
            kwargs = self._key_place.filled(args, kwargs, frame.nested_key(self.name, self.options.key_scope))
        return cast("Callable[..., R_co]", self.function)(*args, **kwargs)

    def _label(self) -> str:
        return getattr(self.function, "__name__", self.name)

    def _awaited(
        self, session: Session, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Coroutine[Any, Any, Any]:
        call = session.step(self.name, self.item_text, self.function, args, kwargs, self.options, None)
        return session.made.add(call)


def _undo_of(name: str, function: Callable[..., Any], options: StepOptions) -> Undo:
    """Give the undo of a step: a function, or a transaction with options of its own.

    Raises:
        ConfigError: a transaction is given options beside its own.
    """
    if not isinstance(function, Step) or function.options.database is None:
        return Undo(function, options)
    if options != StepOptions():
        raise errors.ConfigError(
            f"The undo of {name!r} is a transaction, and .undo(…) was given options for it.",
            means="A transaction has its own, retry= and timeout=.",
            todo="Say them at @app.transaction, and write .undo without any.",
        )
    return Undo(function.function, function.options)
