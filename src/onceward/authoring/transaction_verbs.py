"""``ctx.step.transaction`` in an async workflow; a part of `StepVerbs`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar, TypeVarTuple, overload

from onceward.authoring.current import noted
from onceward.authoring.session_verbs import SessionVerbs
from onceward.authoring.transaction import Transaction, prepared
from onceward.core.duration import Duration
from onceward.core.retry import Retry

P = ParamSpec("P")
R = TypeVar("R")
Ts = TypeVarTuple("Ts")


class TransactionVerbs(SessionVerbs):
    """The verb that commits rows and a checkpoint together."""

    __slots__ = ()

    @overload
    async def transaction(
        self,
        name: str,
        function: Transaction[P, Coroutine[Any, Any, R]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R: ...
    @overload
    async def transaction(
        self, name: str, function: Transaction[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...
    @overload
    async def transaction(
        self,
        name: str,
        function: Callable[Concatenate[Any, P], Awaitable[R]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R: ...
    @overload
    async def transaction(
        self, name: str, function: Callable[Concatenate[Any, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...
    @overload
    async def transaction(
        self,
        name: str,
        function: Callable[[Any, *Ts], Awaitable[R]],
        /,
        *args: *Ts,
        item: object = ...,
        retry: Retry = ...,
        timeout: Duration | None = ...,  # noqa: ASYNC109
        connect: Any = ...,
    ) -> R: ...
    @overload
    async def transaction(
        self,
        name: str,
        function: Callable[[Any, *Ts], R],
        /,
        *args: *Ts,
        item: object = ...,
        retry: Retry = ...,
        timeout: Duration | None = ...,  # noqa: ASYNC109
        connect: Any = ...,
    ) -> R: ...
    @noted  # type: ignore[misc]  # likewise
    async def transaction(self, name: str, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Run a function as a step that commits its rows and its checkpoint in one transaction.

        Args:
            name: what identifies the step in this run.
            function: takes the connection or session first; see `App.transaction`.
            args: its other arguments.
            item: which element of a loop this is, when the name repeats in parallel branches.
            retry: how it is tried again; five tries with growing delays by default.
            timeout: how long one try may take until it begins to commit.
            connect: what `App.transactions` takes or gave, where it is not the app's default.
            kwargs: the function's keywords.

        Raises:
            StepFailed: its tries are used up, or it failed for good.
            TransactionMisuse: called inside the body of a step.
        """
        function, item, options, kwargs = prepared(name, function, args, kwargs)
        return await self._session.step(name, item, function, args, kwargs, options, None)
