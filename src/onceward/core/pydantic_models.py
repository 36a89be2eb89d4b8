"""The user's pydantic models as JSON, where he has pydantic; we never import it.

A model can only exist after its program imported pydantic, so it is looked up among the loaded
modules. The codec hands models over to pydantic's own ``TypeAdapter``, which knows their validators
and serializers, whether a model is the whole value or stands in a dataclass, a list or a union.
"""

from __future__ import annotations

import dataclasses
import sys
import typing
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import msgspec


def is_model_type(kind: object) -> bool:
    """Say whether a class is pydantic's to read and write: a model, or a type such as ``HttpUrl``."""
    return (
        isinstance(kind, type)
        and hasattr(sys.modules.get("pydantic"), "TypeAdapter")
        and hasattr(kind, "__get_pydantic_core_schema__")
    )


def contains_model(annotation: Any) -> bool:
    """Say whether a model stands anywhere in an annotation, also in fields of its classes."""
    return any(map(is_model_type, _classes_in(annotation, set())))


class Models:
    """Reads and writes the values of one annotation by pydantic.

    Raises whatever pydantic raises: for an annotation it does not take, for a value that does not
    fit it, and for a text that is not its JSON.
    """

    __slots__ = ("_adapter", "_dumped", "_read")

    def __init__(self, annotation: Any) -> None:
        pydantic: Any = sys.modules["pydantic"]
        self._adapter = pydantic.TypeAdapter(annotation)
        if not getattr(self._adapter, "pydantic_complete", True):
            raise NameError("a name in one of its models is not defined")
        # Names instead of aliases, both ways: a model may read one alias and write another.
        # pydantic before 2.11 cannot read by name; there both ways use the alias.
        by_name = tuple(map(int, pydantic.VERSION.split(".")[:2])) >= (2, 11)
        self._dumped = {"by_alias": not by_name, "round_trip": True, "warnings": "error"}
        self._read = {"by_alias": False, "by_name": True} if by_name else {}

    def encode(self, value: Any) -> bytes:
        """Give the JSON of a value."""
        encoded: bytes = self._adapter.dump_json(value, **self._dumped)
        return encoded

    def decode(self, text: str | bytes) -> Any:
        """Give the value of a JSON text."""
        return self._adapter.validate_json(text, **self._read)


@lru_cache(maxsize=1024)
def models_of(annotation: Any) -> Models:
    """Give the reader and writer of an annotation, made once."""
    return Models(annotation)


def encode_hook(value: Any) -> Any:
    """Encode for msgspec what it does not know: a model that stands in one of its own types.

    Raises:
        NotImplementedError: the value is no model; msgspec then says that it cannot be encoded.
    """
    kind: Any = type(value)
    if is_model_type(kind):
        return msgspec.Raw(models_of(kind).encode(value))
    raise NotImplementedError


def decode_hook(kind: Any, value: Any) -> Any:
    """Decode for msgspec what it does not know: a model, or ``object``, which takes everything."""
    if is_model_type(kind):
        return models_of(kind).decode(msgspec.json.encode(value))
    return value


def _classes_in(annotation: Any, seen: set[int]) -> Iterator[Any]:
    if id(annotation) in seen:
        return
    seen.add(id(annotation))
    yield annotation
    inner = list(typing.get_args(annotation))
    if isinstance(annotation, type) and (
        dataclasses.is_dataclass(annotation)
        or issubclass(annotation, (msgspec.Struct, tuple, dict))
        or hasattr(annotation, "__attrs_attrs__")
    ):
        inner += typing.get_type_hints(annotation).values()
    for part in inner:
        yield from _classes_in(part, seen)
