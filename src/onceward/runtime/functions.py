"""What the runtime needs to know of a user's function, looked up once."""

from __future__ import annotations

import contextlib
import inspect
import typing
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from onceward.authoring.options import AUTO, IdempotencyKey
from onceward.core import codec
from onceward.core.annotations import return_annotation


@dataclass(frozen=True, slots=True)
class FunctionFacts:
    """How to call a step's function and keep its result."""

    is_async: bool
    result: codec.Codec
    key_parameter: str | None
    key_position: int


_facts: weakref.WeakKeyDictionary[Callable[..., Any], FunctionFacts] = weakref.WeakKeyDictionary()


def facts_of(function: Callable[..., Any]) -> FunctionFacts:
    """Give the facts of *function*.

    Raises:
        ConfigError: its return annotation cannot be stored.
    """
    # A bound method is a new object at each access; its function is not.
    anchor = getattr(function, "__func__", function)
    try:
        return _facts[anchor]
    except (KeyError, TypeError):
        found = _look(function)
    with contextlib.suppress(TypeError):  # a callable that cannot be referred to weakly
        _facts[anchor] = found
    return found


def _look(function: Callable[..., Any]) -> FunctionFacts:
    key_parameter, key_position = None, 0
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # a builtin without a signature
        parameters = {}  # type: ignore[assignment]
    if any(parameter.default is AUTO for parameter in parameters.values()) or "IdempotencyKey" in repr(
        getattr(function, "__annotations__", "")
    ):
        hints = typing.get_type_hints(function)
        for position, name in enumerate(parameters):
            if hints.get(name) is IdempotencyKey:
                key_parameter, key_position = name, position
                break
    return FunctionFacts(
        is_async=inspect.iscoroutinefunction(function)
        or inspect.iscoroutinefunction(getattr(function, "__call__", None)),  # noqa: B004 - of the class
        result=codec.codec_for(return_annotation(function)),
        key_parameter=key_parameter,
        key_position=key_position,
    )
