"""The undo of a step: what gives back what it did, called with its result and its arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from onceward.authoring.keys import key_place
from onceward.core import errors
from onceward.core.annotations import signature_of

_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def check_undo(name: str, step: Callable[..., Any], undo: Callable[..., Any]) -> None:
    """Refuse an undo that could not be called once it is needed.

    Raises:
        ConfigError: it takes no result, or a parameter that the step does not have.
    """
    _, parameters, _ = _taken(undo)
    if parameters and next(iter(signature_of(undo).parameters)) == "self":
        parameters = parameters[1:]  # the undo of a method is a method; what follows is the result
    try:
        known = set(signature_of(step).parameters)
    except (TypeError, ValueError):  # a builtin without a signature: its arguments have no names
        known = set()
    for parameter in parameters:
        is_free = parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        if parameter.kind is parameter.POSITIONAL_ONLY or (
            parameter.name not in known and parameter.default is parameter.empty and not is_free
        ):
            raise errors.ConfigError(
                f"The undo of step {name!r} takes {parameter.name!r}, which is no parameter of the step.",
                means="It is called with the step's result, and by name with the step's arguments.",
                todo=f"Take the result first, then any of: {', '.join(sorted(known)) or 'nothing'}.",
            )


def undo_arguments(
    undo: Callable[..., Any], result: Any, named: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Give what an undo is called with: the result first, then the step's arguments that it takes.

    Args:
        undo: the function.
        result: of the step.
        named: the step's arguments by name.
    """
    takes_result, parameters, key_name = _taken(undo)
    kwargs: dict[str, Any] = {}
    for parameter in parameters:
        if parameter.kind is parameter.VAR_KEYWORD:
            kwargs = {name: value for name, value in named.items() if name != key_name} | kwargs
        elif parameter.name in named:
            kwargs[parameter.name] = named[parameter.name]
    return (result,) if takes_result else (), kwargs


def _taken(undo: Callable[..., Any]) -> tuple[bool, list[inspect.Parameter], str | None]:
    """Give whether an undo takes the result, which other parameters it has, and which takes its key."""
    try:
        parameters = list(signature_of(undo).parameters.values())
    except (TypeError, ValueError):
        return True, [], None
    place = key_place(undo)
    key_name = None if place is None else place.name
    parameters = [parameter for parameter in parameters if parameter.name != key_name]
    takes_result = bool(parameters) and parameters[0].kind in (
        *_BY_POSITION,
        inspect.Parameter.VAR_POSITIONAL,
    )
    return takes_result, parameters[1:] if takes_result else parameters, key_name
