"""Views with something in every field: by their types, so that no field can be forgotten."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

T = TypeVar("T")

NOW = 1_764_000_000_000


def filled(kind: Any, text: Callable[[str], str], name: str = "", depth: int = 0) -> Any:
    """Give a value of a type with every optional field set and one item in every list.

    Args:
        kind: a struct of `onceward.console.views`, or what its fields are annotated with.
        text: gives the text of the field of that name.
        name: of the field.
        depth: how deep it lies.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = get_type_hints(kind)
        return kind(
            **{field: filled(hints[field], text, field, depth + 1) for field in kind.__struct_fields__}
        )
    if origin in (Union, types.UnionType):
        return filled(next(kind for kind in arguments if kind is not type(None)), text, name, depth)
    if origin is list:
        return [filled(arguments[0], text, name, depth + 1)]
    if origin is dict:
        return {text(f"{name} key"): filled(arguments[1], text, name, depth + 1)}
    if kind is Any:
        return {text(f"{name} key"): [text(name), {"deeper": text(name)}]}
    if kind is str:
        return text(name)
    if kind is bool:
        return True
    if kind is int:
        return NOW - 60_000 if name.endswith(("_at", "until", "_ms")) or name == "at" else 1
    raise AssertionError(f"{name} is a {kind}: say here how to fill it")
