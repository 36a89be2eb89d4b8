"""Keywords that there are not: what was written, and which word was meant."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

from onceward.core import errors
from onceward.core.shown import shown

P = ParamSpec("P")
R = TypeVar("R")

_MEANT: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("tries", "max_tries", "retries", "max_retries", "attempts", "max_attempts", "retry_policy"),
        ("retry",),
    ),
    **dict.fromkeys(("backoff", "delay", "base", "cap", "factor"), ("retry",)),
    **dict.fromkeys(
        ("time_limit", "time_out", "timeout_s", "timeout_ms", "timeout_seconds", "max_time", "timeout"),
        ("timeout", "deadline"),
    ),
    **dict.fromkeys(("trigger", "triggers", "event", "events", "source", "listen"), ("on",)),
    **dict.fromkeys(("id", "index", "element"), ("item",)),
    **dict.fromkeys(("idempotency_key", "idempotency", "scope"), ("key_scope",)),
    **dict.fromkeys(("side_effect", "effects", "pure"), ("effect",)),
    **dict.fromkeys(("unique", "dedup", "dedupe"), ("key",)),
}
"""Words of other libraries and of habit, and ours for them: the first that the place knows."""

_WRITTEN: Mapping[str, str] = {
    "timeout": 'timeout="30s"',
    "deadline": 'deadline="1h"',
    "on": 'on="order.paid"',
    "item": "item=order.id",
    "key_scope": 'key_scope="business"',
    "key_memory": 'key_memory="24h"',
    "effect": 'effect="pure"',
    "key": 'key=event.payload["order"]',
}
"""How ours are written."""

_UNDO = (
    "Decorate the function that gives back what it did with @charge.undo, where charge is the step, "
    "made with @app.step or @app.transaction."
)
_BESIDE: Mapping[str, str] = dict.fromkeys(("undo", "compensate", "compensation", "rollback"), _UNDO)
"""What is no option of a step, and written beside it."""

_TRIES_MAX = 1_000


def meant(word: str, known: Sequence[str]) -> str | None:
    """Give the word among *known* that was probably meant, or None."""
    for right in _MEANT.get(word, ()):
        if right in known:
            return right
    close = difflib.get_close_matches(word, known, n=1)
    return close[0] if close else None


def unknown_word(what: str, word: str, value: object, known: Sequence[str], means: str) -> errors.ConfigError:
    """Give the error of a keyword that there is not.

    Args:
        what: says where, up to the word: "@app.step has no option".
        word: what was written.
        value: what was passed.
        known: the words that there are.
        means: what came of it.
    """
    right = meant(word, known)
    if right == "retry":
        is_count = type(value) is int and 0 < value < _TRIES_MAX
        todo = f"Write retry=Retry(max_tries={value if is_count else 5})."
    elif right is None and word in _BESIDE:
        todo = _BESIDE[word]
    elif right is not None:
        todo = f"Write {_WRITTEN.get(right, f'{right}=…')}."
    else:
        todo = f"There are: {', '.join(known)}."
    return errors.ConfigError(f"{what} {shown(word)}.", means=means, todo=todo)


def spelled(
    what: str, refuse: Callable[[str, Mapping[str, Any]], object] | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function answer a keyword that it does not have with the one that was meant.

    Args:
        what: how users call it: "@app.step".
        refuse: is asked first; it raises where there is more to say of a keyword.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        parameters = inspect.signature(function).parameters.values()
        named = [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]
        # What stands by position is what the options are of, unless there is nothing else, as in a dataclass.
        known = [one.name for one in parameters if one.kind is one.KEYWORD_ONLY] or named[1:]
        taken = {one.name for one in parameters if one.kind is not one.POSITIONAL_ONLY}
        if any(one.kind is one.VAR_KEYWORD for one in parameters):
            return function

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            if refuse is not None:
                refuse(what, kwargs)
            for word, value in kwargs.items():
                if word not in taken:
                    raise unknown_word(f"{what} has no option", word, value, known, "Nothing was done.")
            return function(*args, **kwargs)

        return call

    return decorate


def refuse_unknown(
    name: str, words: Mapping[str, Any], taken: frozenset[str] | None, options: Sequence[str]
) -> None:
    """Refuse what neither the function of a step nor ``step.run`` takes.

    Args:
        name: of the step.
        words: the keywords that are left for the function.
        taken: those that the function takes; None where it takes any.
        options: those of ``step.run``.

    Raises:
        ConfigError: there is such a word.
    """
    if taken is None:
        return
    for word, value in words.items():
        if word not in taken:
            raise unknown_word(
                f"Neither step.run nor the function of step {name!r} has a keyword",
                word,
                value,
                [*options, *sorted(taken.difference(options))],
                "The step was not run.",
            )
