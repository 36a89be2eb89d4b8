"""Idempotency keys: what a step hands to others with a request, so that it takes effect once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NewType, TypeAlias, cast

from onceward.core.annotations import signature_of

IdempotencyKey = NewType("IdempotencyKey", str)
"""The key that a step hands to others: the same on every try and attempt of one generation.

Annotate a step's parameter with it and give it the default `AUTO`; Onceward passes the step's own
key. Outside a run the default arrives as it is.
"""


KeyScope: TypeAlias = Literal["step", "business"]
"""What a step's key belongs to: ``"step"``, this generation of this run; ``"business"``, what the run
is about, so that a restart or a replay hands out the same key."""

KEY_SCOPES: tuple[KeyScope, ...] = ("step", "business")


class _Auto(str):
    """Empty, and told from every other text by its identity."""

    __slots__ = ()


AUTO = cast("IdempotencyKey", _Auto())
"""The default of an injected `IdempotencyKey` parameter."""


@dataclass(frozen=True, slots=True)
class KeyPlace:
    """Which parameter of a function takes its step's key.

    Attributes:
        name: the parameter's name.
        position: which argument that is, if it can be passed by position.
    """

    name: str
    position: int | None

    def filled(self, args: tuple[Any, ...], kwargs: dict[str, Any], key: str) -> dict[str, Any]:
        """Give *kwargs* with the key, unless the caller passed one of his own."""
        is_given = self.position is not None and len(args) > self.position
        return kwargs if is_given or kwargs.get(self.name) else {**kwargs, self.name: key}


def key_place(function: Callable[..., Any]) -> KeyPlace | None:
    """Give the parameter of a function that takes its step's key, or None."""
    try:
        parameters = signature_of(function).parameters
    except (TypeError, ValueError):  # a builtin without a signature
        return None
    for position, parameter in enumerate(parameters.values()):
        if parameter.default is AUTO or _is_key(parameter.annotation):
            is_keyword = parameter.kind is parameter.KEYWORD_ONLY
            return KeyPlace(parameter.name, None if is_keyword else position)
    return None


def _is_key(annotation: object) -> bool:
    """Say whether a parameter is annotated as a key; other annotations need not be resolvable."""
    if isinstance(annotation, str):
        return annotation.strip("\"'").rpartition(".")[2] == IdempotencyKey.__name__
    return annotation is IdempotencyKey
