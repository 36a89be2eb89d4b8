"""What the runtime needs to know of a user's function, looked up once."""

from __future__ import annotations

import contextlib
import inspect
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType, MethodType
from typing import Any, NamedTuple

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


class _Known(NamedTuple):
    """What is known of a function, or of code with the annotations that it had."""

    of: weakref.ref[Any]
    annotations: Any
    facts: FunctionFacts


# By the id of the function or code, which is forgotten with it: code is compared and hashed by all that
# is in it, which takes longer than the rest of this.
_known: dict[int, _Known] = {}


def facts_of(function: Callable[..., Any]) -> FunctionFacts:
    """Give the facts of *function*.

    Raises:
        ConfigError: its return annotation cannot be stored.
    """
    anchor, annotations = _anchor(function)
    place = id(anchor)
    known = _known.get(place)
    if known is not None and (known.annotations is annotations or known.annotations == annotations):
        return known.facts
    found = _look(function)
    with contextlib.suppress(TypeError):  # a callable that cannot be referred to weakly
        of = weakref.ref(anchor, lambda _: _known.pop(place, None))
        _known[place] = _Known(of, annotations, found)
    return found


def _anchor(function: Any) -> tuple[Any, Any]:
    """Give what the facts are remembered by, and the annotations with which they hold.

    A bound method is a new object at each access, and a function inside another at each run of the
    code around it; the function of the one and the code of the other stay. What a function inside
    another is annotated with may differ from run to run.
    """
    anchor = function.__func__ if type(function) is MethodType else function
    if (
        type(anchor) is FunctionType
        and anchor.__defaults__ is None
        and anchor.__kwdefaults__ is None
        and not anchor.__dict__
    ):
        return anchor.__code__, anchor.__annotations__
    return anchor, None


def is_coroutine_function(function: Callable[..., Any]) -> bool:
    """Say whether a call of a function, or of an object, gives a coroutine."""
    of_class = getattr(function, "__call__", None)  # noqa: B004 - of the class
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(of_class)


def misfit(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Give why a function cannot be called with these arguments, in Python's words, and what it takes.

    None where it can, or where that is not known. A wrapper is asked itself: what it passes on is its matter.
    """
    try:
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError, NameError):  # a builtin without a signature; names for type checkers only
        return None
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        return f"{error}; it takes {', '.join(signature.parameters) or 'nothing'}"
    return None


def _look(function: Callable[..., Any]) -> FunctionFacts:
    return FunctionFacts(
        is_async=is_coroutine_function(function),
        result=codec.codec_for(return_annotation(function)),
        key_place=key_place(function),
    )
