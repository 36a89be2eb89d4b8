"""What a function says it returns: the annotation that decides how its saved result comes back."""

from __future__ import annotations

import collections.abc
import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable
from typing import Any

from onceward.core.errors import ConfigError

_WRAPPERS_MAX = 100
_AWAITED = (collections.abc.Awaitable, collections.abc.Coroutine)


def return_annotation(function: Callable[..., Any]) -> Any:
    """Give the type that a call of a function ends up with, or ``Any`` if it does not say.

    For a coroutine function, and for one annotated ``-> Awaitable[T]``, that is what awaiting gives.
    A class gives itself, an object with ``__call__`` what that returns; partials and wrappers
    (``functools.wraps``) are looked through. Only the return annotation is evaluated, so parameters
    may be annotated with names that exist for type checkers only.

    Raises:
        ConfigError: the annotation is a text (as all are under ``from __future__ import
            annotations``) that names something the function's module does not have.
    """
    target = _plain_function(function)
    if inspect.isclass(target):
        return target
    annotation = _resolved(target, "return")
    if typing.get_origin(annotation) in _AWAITED:
        return typing.get_args(annotation)[-1]
    return Any if annotation in _AWAITED else annotation


def parameter_annotation(function: Callable[..., Any], name: str) -> Any:
    """Give the type that a parameter of a function is annotated with, or ``Any`` if it is not.

    Only this annotation is evaluated; others may name what exists for type checkers only.

    Raises:
        ConfigError: the annotation is a text that names something the function's module does not have.
    """
    return _resolved(_plain_function(function), name)


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """Give a function's signature without evaluating its annotations.

    Raises:
        TypeError, ValueError: it has none, as some builtins.
    """
    if sys.version_info >= (3, 14):
        import annotationlib

        return inspect.signature(function, annotation_format=annotationlib.Format.FORWARDREF)
    return inspect.signature(function)


def _plain_function(function: Callable[..., Any]) -> Any:
    """Give the function, or the class, beneath partials, methods, wrappers and ``__call__``."""
    target: Any = function
    for _ in range(_WRAPPERS_MAX):
        if isinstance(target, (functools.partial, functools.partialmethod)):
            target = target.func
        elif inspect.ismethod(target):
            target = target.__func__
        elif hasattr(target, "__wrapped__"):
            target = target.__wrapped__
        else:
            break
    if inspect.isclass(target) or inspect.isroutine(target):
        return target
    return inspect.unwrap(type(target).__call__)


def _resolved(function: Any, name: str) -> Any:
    written = _written(function, name)
    if written is inspect.Signature.empty:
        return Any
    # get_type_hints evaluates everything that an object carries, so it gets one that carries only this.
    carrier = types.SimpleNamespace(__annotations__={name: written})
    try:
        hints = typing.get_type_hints(
            carrier, getattr(function, "__globals__", {}), _names_around(function), include_extras=True
        )
    except Exception as error:
        what = "return annotation" if name == "return" else f"annotation of {name!r},"
        whose = getattr(function, "__qualname__", repr(function))
        raise ConfigError(
            f"The {what} {written!r} of {whose} cannot be resolved: {error}.",
            means="It decides how the saved value comes back.",
            todo="Import the name at run time, not only under TYPE_CHECKING, and define it in the module.",
        ) from error
    return hints[name]


def _written(function: Any, name: str) -> Any:
    """Give an annotation as it stands in the code, evaluated or not."""
    try:
        annotations = getattr(function, "__annotations__", None)
    except NameError:  # Python 3.14 evaluates all annotations at this point, those of parameters too
        annotations = _unevaluated(function)
    if not isinstance(annotations, collections.abc.Mapping):
        return inspect.Signature.empty
    return annotations.get(name, inspect.Signature.empty)


def _unevaluated(function: Any) -> Any:
    if sys.version_info >= (3, 14):
        import annotationlib

        return annotationlib.get_annotations(function, format=annotationlib.Format.FORWARDREF)
    return None


def _names_around(function: Any) -> dict[str, Any]:
    """Give the names that the function's own code takes from a function around it."""
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None)
    if code is None or not cells:
        return {}
    found = {}
    for name, cell in zip(code.co_freevars, cells, strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # the name is assigned later
            continue
    return found
