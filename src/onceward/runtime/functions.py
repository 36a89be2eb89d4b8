"""What the runtime needs to know of a user's function, looked up once."""

from __future__ import annotations

import contextlib
import inspect
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from onceward.authoring.keys import KeyPlace, key_place
from onceward.core import codec
from onceward.core.annotations import return_annotation


@dataclass(frozen=True, slots=True)
class FunctionFacts:
    """How to call a step's function and keep its result.

    Attributes:
        is_async: a call gives a coroutine.
        result: how its result is stored.
        key_place: what takes the step's idempotency key, if anything does.
    """

    is_async: bool
    result: codec.Codec
    key_place: KeyPlace | None


_facts: weakref.WeakKeyDictionary[Any, FunctionFacts] = weakref.WeakKeyDictionary()


def facts_of(function: Callable[..., Any]) -> FunctionFacts:
    """Give the facts of *function*.

    Raises:
        ConfigError: its return annotation cannot be stored.
    """
    anchor = _anchor(function)
    try:
        return _facts[anchor]
    except (KeyError, TypeError):
        found = _look(function)
    with contextlib.suppress(TypeError):  # a callable that cannot be referred to weakly
        _facts[anchor] = found
    return found


def _anchor(function: Any) -> Any:
    """Give what the facts are remembered by.

    A bound method is a new object at each access, and a lambda at each run of the code around
    it; the function of the one and the code of the other stay.
    """
    anchor = getattr(function, "__func__", function)
    if type(anchor) is FunctionType:
        says_nothing = not anchor.__annotations__ and anchor.__defaults__ is None
        if says_nothing and anchor.__kwdefaults__ is None and not anchor.__dict__:
            return anchor.__code__
    return anchor


def is_coroutine_function(function: Callable[..., Any]) -> bool:
    """Say whether a call of a function, or of an object, gives a coroutine."""
    of_class = getattr(function, "__call__", None)  # noqa: B004 - of the class
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(of_class)


def _look(function: Callable[..., Any]) -> FunctionFacts:
    return FunctionFacts(
        is_async=is_coroutine_function(function),
        result=codec.codec_for(return_annotation(function)),
        key_place=key_place(function),
    )
