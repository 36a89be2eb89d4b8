"""How a call of ``step.run`` is read: what of it is meant for the step, what for its function."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, NoReturn

from onceward.authoring.options import DEFAULT_OPTIONS, StepOptions, key_memory_of
from onceward.authoring.step import Step
from onceward.authoring.workflow import Workflow
from onceward.core import errors
from onceward.core.annotations import signature_of
from onceward.core.duration import Duration, to_ms
from onceward.core.keywords import refuse_unknown
from onceward.core.shown import shown

OPTIONS = ("retry", "timeout", "key_scope", "key_memory", "effect", "unknown")
"""Keywords of ``step.run`` that say how the step is tried."""

RESERVED = ("item", *OPTIONS)
"""Keywords of ``step.run`` that are its own, not the function's."""


def prepare(
    name: str,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> tuple[Callable[..., Any], str, StepOptions, dict[str, Any]]:
    """Split the keywords of ``step.run`` into its own and the function's.

    Raises:
        ConfigError: one is neither's.
        StepMisuse: *function* cannot be called, or needs a word that ``step.run`` keeps for itself.
    """
    options, item = DEFAULT_OPTIONS, ""
    if isinstance(function, Step):
        options, item, function = function.options, function.item_text, function.function
    elif isinstance(function, Workflow) or not callable(function):
        refuse_function(name, function)
    if not kwargs:
        return function, item, options, kwargs
    _refuse_hidden(name, function, kwargs, len(args))
    item = str(kwargs.pop("item", item))
    options = changed_options(name, options, kwargs)
    if kwargs:
        refuse_unknown(name, kwargs, _words_of(function).taken, RESERVED)
    return function, item, options, kwargs


def changed_options(name: str, options: StepOptions, kwargs: dict[str, Any]) -> StepOptions:
    """Take a step's own keywords out of *kwargs*; give its options with what they change."""
    changes: dict[str, Any] = {word: kwargs.pop(word) for word in OPTIONS if word in kwargs}
    timeout, key_memory = changes.pop("timeout", None), changes.pop("key_memory", None)
    if timeout is not None:
        changes["timeout_ms"] = to_ms(timeout, what=f"timeout of step {name!r}")
    if key_memory is not None:
        changes["key_memory_ms"] = key_memory_of(key_memory, f"step {name!r}")
    return dataclasses.replace(options, **changes) if changes else options


def wait_ms(name: str, timeout: Duration | None) -> int | None:
    """Give how long a wait may take, in milliseconds; None for ever."""
    return None if timeout is None else to_ms(timeout, what=f"timeout of wait {name!r}")


def uuid_kind(version: int) -> str:
    """Give what to ask a run for: a UUID of that version.

    Raises:
        ConfigError: it is neither 4 nor 7.
    """
    if version not in (4, 7):
        raise errors.ConfigError(
            f"step.uuid draws no version {shown(version)}.",
            means="A UUID for an id is drawn at random (4), or by time and at random (7).",
            todo="Write version=4 or version=7; derive others, such as uuid5, from what you have.",
        )
    return "uuid" if version == 4 else "uuid7"


def refuse_function(name: str, given: Any) -> NoReturn:
    """Refuse what cannot be called, before its tries are used up on it."""
    if isinstance(given, Workflow):
        raise errors.StepMisuse(
            f"The step {name!r} was given the workflow {given.name!r}.",
            means="A workflow has runs of its own; a step runs a function.",
            todo=f"Write ctx.step.call({name!r}, {given.__name__}, …), or step.start not to wait for it.",
        )
    if isinstance(given, Coroutine):
        given.close()  # or Python would warn that it was never awaited, too
        raise errors.StepMisuse(
            f"The step {name!r} was given a coroutine: its function was called already.",
            means="A coroutine can be awaited once; a step may have to run its body again.",
            todo=f"Write ctx.step.run({name!r}, function, …) with the function's arguments behind it.",
        )
    if callable(name):
        own = getattr(name, "__name__", "function")
        raise errors.StepMisuse(
            f"ctx.step.run was given {own} where the step's name belongs.",
            means="A step is found again by its name.",
            todo=f"Write ctx.step.run({own!r}, {own}, …).",
        )
    raise errors.StepMisuse(
        f"The step {name!r} was given {shown(given)}, which cannot be called.",
        means="A step runs a function.",
        todo=f"Write ctx.step.run({name!r}, function, …) with its arguments behind it.",
    )


def _refuse_hidden(name: str, function: Callable[..., Any], kwargs: dict[str, Any], given: int) -> None:
    """Refuse a keyword that looks like the function's and would never reach it."""
    meant = [word for word in RESERVED if word in kwargs]
    if not meant:
        return
    for word, position in _words_of(function).needed:
        if word in meant and position >= given:
            raise errors.StepMisuse(
                f"The function of step {name!r} takes {word!r}, which step.run keeps for itself.",
                means="The function would not get it.",
                todo=f"Pass it by position, or wrap the function: functools.partial(function, {word}=…).",
            )


class _Words(NamedTuple):
    """What a function's parameters are called."""

    needed: tuple[tuple[str, int], ...]  # reserved words without a default, with their positions
    taken: frozenset[str] | None  # what it takes by name; None where it takes anything


_UNKNOWN = _Words((), None)
_of_functions: weakref.WeakKeyDictionary[Any, _Words] = weakref.WeakKeyDictionary()
_of_methods: weakref.WeakKeyDictionary[Any, _Words] = weakref.WeakKeyDictionary()


def _words_of(function: Callable[..., Any]) -> _Words:
    """Give what a function's parameters are called.

    Remembered, since reading a signature takes longer than a step of a run that is recalled; by the
    function beneath a bound method, which is a new object at each access.
    """
    if inspect.ismethod(function):
        memory, anchor = _of_methods, function.__func__
    else:
        memory, anchor = _of_functions, function
    try:
        return memory[anchor]
    except (KeyError, TypeError):
        pass
    try:
        parameters = list(signature_of(function).parameters.values())
    except (TypeError, ValueError):  # a builtin without a signature
        return _UNKNOWN
    needed = tuple(
        (parameter.name, position)
        for position, parameter in enumerate(parameters)
        if parameter.name in RESERVED and parameter.default is parameter.empty
    )
    taken = None
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        taken = frozenset(parameter.name for parameter in parameters if parameter.kind in by_name)
    words = _Words(needed, taken)
    with contextlib.suppress(TypeError):  # a callable that cannot be referred to weakly
        memory[anchor] = words
    return words
