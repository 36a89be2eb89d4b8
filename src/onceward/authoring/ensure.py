"""``step.ensure``: look for what a first try left, and create it only if nothing is there."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from onceward.authoring.calls import changed_options, refuse_function
from onceward.authoring.current import Session, frame_var
from onceward.authoring.keys import key_place
from onceward.authoring.options import DEFAULT_OPTIONS, StepOptions
from onceward.authoring.step import Step
from onceward.authoring.workflow import Workflow
from onceward.core import errors
from onceward.core.shown import shown


class Ensured:
    """The body of such a step: one function that finds, and creates where nothing was found.

    It looks like the function that creates, whose annotation says how the result is stored.

    Args:
        session: the run.
        find: gives what is there, or None.
        create: gives what it made.
    """

    def __init__(self, session: Session, find: Callable[..., Any], create: Callable[..., Any]) -> None:
        functools.update_wrapper(self, create)  # first: it also copies what an object has
        self._session = session
        self._find = find
        self._create = create

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Give what is found, or what is created with the step's idempotency key."""
        keys: dict[str, Any] = {}
        place, frame = key_place(self._find), frame_var.get()
        if place is not None and frame is not None:
            keys = place.filled(args, {}, frame.idempotency_key)
        found = await self._session.body(self._find, args, keys)
        return found if found is not None else await self._session.body(self._create, args, kwargs)


def ensured(
    session: Session,
    name: str,
    find: Callable[..., Any],
    create: Callable[..., Any],
    args: tuple[Any, ...],
    given: dict[str, Any],
) -> tuple[Ensured, StepOptions]:
    """Give the body of an ensuring step and its options: those of *create*, with what the call changes.

    Raises:
        StepMisuse: *find* or *create* cannot be called, or *args* is no tuple.
        ConfigError: an option cannot be used.
    """
    for function in (find, create):
        if isinstance(function, Workflow) or not callable(function):
            refuse_function(name, function)
    if not isinstance(args, tuple):
        raise errors.StepMisuse(
            f"The args of step {name!r} are {shown(args)}, which is no tuple.",
            means="They are the arguments of both functions, one after the other.",
            todo="Write args=(order.id,), with the comma also where there is only one.",
        )
    options = create.options if isinstance(create, Step) else DEFAULT_OPTIONS
    options = changed_options(
        name, options, {word: value for word, value in given.items() if value is not None}
    )
    return Ensured(session, _plain(find), _plain(create)), options


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give the function of a decorated step: inside this step's body it is no step of its own."""
    return function.function if isinstance(function, Step) else function
