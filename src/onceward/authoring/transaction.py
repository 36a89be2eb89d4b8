"""Transactional steps: the user's rows and the step's checkpoint, committed together or not at all."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from types import MethodType
from typing import Any, Concatenate, NoReturn, ParamSpec, TypeVar, cast, overload

from onceward.authoring.calls import prepare, refuse_function
from onceward.authoring.current import Frame, frame_var, session_var
from onceward.authoring.options import APP_DATABASE, Database, StepOptions
from onceward.authoring.step import Step
from onceward.core import errors

P = ParamSpec("P")
Q = ParamSpec("Q")
R_co = TypeVar("R_co", covariant=True)
S_co = TypeVar("S_co", covariant=True)


class Transaction(Step[P, R_co]):
    """A function that runs inside a transaction with its checkpoint; see `App.transaction`.

    Args:
        function: async or plain; it takes the connection or session first.
        name: what identifies it in a run.
        options: how it is tried, and where.
        item: which element of a loop it is for.
    """

    function: Callable[..., R_co]

    def __init__(
        self,
        function: Callable[Concatenate[Any, P], R_co],
        name: str,
        options: StepOptions,
        item: str = "",
    ) -> None:
        super().__init__(cast("Callable[P, R_co]", function), name, options, item)

    def item(self, item: object) -> Transaction[P, R_co]:
        """Give the same step for one element of a loop; see `Step.item`.

        Args:
            item: what tells the element apart; its text counts.
        """
        return Transaction(self.function, self.name, self.options, str(item))

    @overload
    def __get__(self, instance: None, owner: type) -> Transaction[P, R_co]: ...
    @overload
    def __get__(
        self: Transaction[Concatenate[Any, Q], S_co], instance: object, owner: type
    ) -> Transaction[Q, S_co]: ...
    def __get__(self, instance: object, owner: type) -> Any:
        """Give the same step for a method of one object."""
        if instance is None:
            return self
        return Transaction(
            MethodType(self.function, instance), self.name, self._options_of(instance), self.item_text
        )

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Run as a saved step inside a run.

        Raises:
            TransactionMisuse: called outside a run, or inside the body of a step.
        """
        if session_var.get() is None:
            raise errors.TransactionMisuse(
                f"The transaction {self.name!r} was called outside a run.",
                means="There is no checkpoint to commit with it; nothing was done.",
                todo=f"Call {self._label()}.function(connection, …) in a transaction of your own.",
            )
        return super().__call__(*args, **kwargs)

    def _inside(self, frame: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NoReturn:
        del args, kwargs
        raise nested(self.name, frame)


def nested(name: str, frame: Frame) -> errors.TransactionMisuse:
    """Give the error of a transaction inside the body of a step."""
    what = "transaction" if frame.is_transaction else "step"
    return errors.TransactionMisuse(
        f"The transaction {name!r} was called inside the body of {what} {str(frame.key)!r}.",
        means="It would commit apart from that, and what is saved could not tell what is done.",
        todo="Call it from the workflow; or call its .function with the connection that the body has."
        if frame.is_transaction
        else "Call it from the workflow.",
    )


def refuse_options(whose: str, words: Mapping[str, Any]) -> None:
    """Refuse what says nothing of a transaction, since its commit says it.

    Args:
        whose: of whom it is said: ``@app.transaction``.
        words: the keywords that it was given.

    Raises:
        ConfigError: one of them is about a step whose outcome may be unknown, or that does something outside.
    """
    for word, means in _OF_STEPS_ONLY.items():
        if word in words:
            raise errors.ConfigError(
                f"{whose} cannot have {word}=.",
                means=means,
                todo=f"Leave {word}= out; what must be said of another service belongs to a step of its own.",
            )


_OF_STEPS_ONLY = {
    "unknown": "The outcome of a transaction is never unknown: its rows and its checkpoint are committed together, "
    "or neither is.",
    "effect": "A transaction writes to your own database, and nothing else.",
}


def prepared(
    name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Callable[..., Any], str, StepOptions, dict[str, Any]]:
    """Split the keywords of ``step.transaction`` into its own and the function's.

    Raises:
        TransactionMisuse: called inside the body of a step.
        StepMisuse: *function* is an ordinary step, or cannot be called.
        ConfigError: an option cannot be used.
    """
    frame = frame_var.get()
    if frame is not None:
        raise nested(name, frame)
    if isinstance(function, Step) and not isinstance(function, Transaction):
        refuse_function(name, None)
    refuse_options(f"The transaction {name!r}", kwargs)
    connect = kwargs.pop("connect", None)
    function, item, options, kwargs = prepare(name, function, args, kwargs)
    if connect is not None:
        options = dataclasses.replace(options, database=database_of(connect))
    elif options.database is None:
        options = dataclasses.replace(options, database=APP_DATABASE)
    return function, item, options, kwargs


def database_of(connect: Any) -> Database:
    """Give where a transaction is, of what ``connect=`` was given."""
    return connect if isinstance(connect, Database) else Database(connect)
