"""The undo of a step: what gives back what it did, called with its result and its arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from onceward.authoring.keys import key_place
from onceward.authoring.options import Undo
from onceward.core import errors
from onceward.core.annotations import signature_of

_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def check_undo(name: str, step: Callable[..., Any], undo: Undo, *, has_connection: bool) -> None:
    """Refuse an undo that could not be called once it is needed.

    Args:
        name: of the step.
        step: its function.
        undo: the undo.
        has_connection: the step is a transaction: its first parameter is the connection.

    Raises:
        ConfigError: it takes no result, or a parameter that the step does not have.
    """
    # The undo of a method is a method; what follows its self is what others begin with.
    parameters = [one for one in _parameters(undo.function) or [] if one.name != "self"]
    known = [one.name for one in _parameters(step) or [] if one.name != "self"]
    connection, known = (known[:1], known[1:]) if has_connection else ([], known)
    if undo.options.database is None and any(one.name in connection for one in parameters):
        raise errors.ConfigError(
            f"The undo of transaction {name!r} takes {connection[0]!r} and is no transaction.",
            means="It would be called with what the transaction gave, and without a connection.",
            todo="Write @app.transaction below the line with .undo, and take the connection first, the result next.",
        )
    for parameter in _taken(parameters, undo)[1]:
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
    undo: Undo, result: Any, named: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Give what an undo is called with: the result first, then the step's arguments that it takes.

    Args:
        undo: the undo.
        result: of the step.
        named: the step's arguments by name.
    """
    parameters = _parameters(undo.function)
    if parameters is None:
        return (result,), {}
    takes_result, taken = _taken(parameters, undo)
    place = key_place(undo.function)
    kwargs: dict[str, Any] = {}
    for parameter in taken:
        if parameter.kind is parameter.VAR_KEYWORD:
            own = None if place is None else place.name
            kwargs = {name: value for name, value in named.items() if name != own} | kwargs
        elif parameter.name in named:
            kwargs[parameter.name] = named[parameter.name]
    return (result,) if takes_result else (), kwargs


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter] | None:
    try:
        return list(signature_of(function).parameters.values())
    except (TypeError, ValueError):  # a builtin without a signature: its arguments have no names
        return None


def _taken(parameters: list[inspect.Parameter], undo: Undo) -> tuple[bool, list[inspect.Parameter]]:
    """Give whether an undo takes the result, and which parameters it has beside it, its key and its connection."""
    place = key_place(undo.function)
    if undo.options.database is not None:
        parameters = parameters[1:]
    parameters = [one for one in parameters if place is None or one.name != place.name]
    takes_result = bool(parameters) and parameters[0].kind in (
        *_BY_POSITION,
        inspect.Parameter.VAR_POSITIONAL,
    )
    return takes_result, parameters[1:] if takes_result else parameters
