"""Values of annotated functions as JSON text and back, equal and of the same types.

A function's return annotation decides how its saved result comes back. The body's value is encoded
at once and the decoded one is handed to the live code (RULINGS 31), so what runs now and what
reads the result after a crash see the same. A value that would come back as anything else is
refused by its place (I22): `round_trip` compares, it does not trust.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import inspect as kinds

from onceward.core.errors import ConfigError, HistoryMismatch, NotStorable
from onceward.core.json_plain import (
    Role,
    decode_plain,
    encode_plain,
    not_storable,
    round_trip_plain,
    scalar_reason,
    too_large,
)
from onceward.core.pydantic_models import Models, contains_model, decode_hook, encode_hook, is_model_type
from onceward.core.shown import SHOWN_CHARS_MAX, class_name, type_name
from onceward.core.walk import Fault, first_difference, first_fault, parts, path_text

_CODECS_MAX = 4_096

# What an annotation may say that leaves everything open: the plain rules apply.
_OPEN = (Any, object, inspect.Signature.empty, typing.NoReturn, typing.Never)

# What the plain rules give back exactly, whatever an annotation says about it.
_PLAIN = (kinds.AnyType, kinds.NoneType, kinds.BoolType, kinds.IntType, kinds.FloatType, kinds.StrType)

# Keys of objects are text in JSON; these have no text form that comes back.
_NO_KEYS = (
    kinds.NoneType,
    kinds.BoolType,
    kinds.CollectionType,
    kinds.TupleType,
    kinds.NamedTupleType,
    kinds.DictType,
    kinds.TypedDictType,
    kinds.StructType,
    kinds.DataclassType,
    kinds.CustomType,
)

_encode = msgspec.json.Encoder(enc_hook=encode_hook).encode


class Codec:
    """Turns the values of one annotation into JSON text and back; made by `codec_for`."""

    __slots__ = ("_decode", "_encode", "annotation")

    def __init__(
        self,
        annotation: Any,
        encode: Callable[[Any], bytes] | None = None,
        decode: Callable[[str], Any] | None = None,
    ) -> None:
        self.annotation = annotation
        self._encode = encode
        self._decode = decode

    @property
    def is_plain(self) -> bool:
        """Say whether its values follow the rules of `encode_plain`."""
        return self._encode is None

    def encode(self, value: Any, *, what: object, limit_bytes: int, role: Role = "result") -> str:
        """Give the JSON text of a value; refuses what `round_trip` refuses."""
        if self._encode is None:
            return encode_plain(value, what=what, limit_bytes=limit_bytes, role=role)
        return self.round_trip(value, what=what, limit_bytes=limit_bytes)[0]

    def decode(self, text: str, *, what: object = "A stored value") -> Any:
        """Give the value of a stored text; *what* names it in messages.

        Raises:
            StoreDamaged: the text is no JSON.
            HistoryMismatch: the text is JSON, but no value of the annotation: the code changed
                since it was saved.
        """
        if self._decode is None:
            return decode_plain(text, what=what)
        try:
            return self._decode(text)
        except Exception as error:
            decode_plain(text, what=what)
            raise HistoryMismatch(
                f"{what} is no {annotation_text(self.annotation)}: {_reason_of(error)}.",
                means="It was saved when the code said another type.",
                todo="Let the type accept what was saved, or restart the run.",
            ) from error

    def misfit(self, value: Any) -> str | None:
        """Give why JSON-native data from outside is no value of the annotation, or None where it is one.

        What code returns is kept as it is where the plain rules give it back; what a person says
        in its place is compared, also with an annotation that is plain.
        """
        if any(self.annotation is open_type for open_type in _OPEN):
            return None
        try:
            if self._decode is None:
                msgspec.convert(value, _unaliased(self.annotation))
            else:
                self._decode(_encode(value).decode())
        except Exception as error:  # noqa: BLE001 (hooks of the user's classes run here)
            return f"{annotation_text(self.annotation)} is expected: {_reason_of(error)}"
        return None

    def round_trip(self, value: Any, *, what: object, limit_bytes: int) -> tuple[str, Any]:
        """Give the JSON text of a value and the value read back from it, equal and of the same types.

        The one given back shares nothing that can change with the one given. An int in a place
        declared ``float`` comes back as the equal float.

        Args:
            value: what the function returned.
            what: whose value it is, e.g. ``"The result of step 'charge'"``; its text is asked for by messages only.
            limit_bytes: the most bytes the text may have as UTF-8.

        Raises:
            NotStorable: a part would not come back the same; the message names its place.
            ValueTooLarge: the text is longer than *limit_bytes*.
        """
        if self._encode is None or self._decode is None:
            return round_trip_plain(value, what=what, limit_bytes=limit_bytes)
        try:
            encoded = self._encode(value)
        except Exception as error:
            raise self._refusal(value, what, error) from error
        if len(encoded) > limit_bytes:
            raise too_large(what, len(encoded), limit_bytes)
        text = encoded.decode()
        try:
            decoded = self._decode(text)
        except Exception as error:
            raise self._refusal(value, what, error) from error
        difference = first_difference(value, decoded)
        if difference is not None:
            raise self._error(difference, what)
        return text, decoded

    def _refusal(self, value: Any, what: object, error: Exception) -> NotStorable:
        """Give the error for a value that could not be encoded or read back, with the best place known."""
        fault = first_fault(value, reason=_leaf_reason)
        if fault is None:
            reason, _, place = _reason_of(error).partition(" - at ")
            fault = Fault(place.strip("`") or "$", value, f"does not fit: {reason}")
        return self._error(fault, what)

    def _error(self, fault: Fault, what: object) -> NotStorable:
        return not_storable(
            what,
            fault,
            means=f"It would not come back the same as {annotation_text(self.annotation)}.",
            todo="Return what the annotation says, or annotate what is returned.",
        )


def codec_for(annotation: Any) -> Codec:
    """Give the codec of a type annotation, made once.

    ``Any``, ``object``, no annotation, and annotations made of nothing but JSON's own types (also
    a ``TypedDict`` of them) follow the plain rules of `encode_plain`: the value comes back
    exactly, whether or not it fits. Others are read back as the annotation says: msgspec structs,
    dataclasses, attrs classes, named tuples, enums of text or integers, dates, times, ``Decimal``,
    ``UUID``, bytes, tuples, sets, dicts with keys that have a text form, unions that JSON can tell
    apart, pydantic models; anywhere inside each other.

    Raises:
        ConfigError: no value of the annotation could be stored, or two members of a union would
            look alike.
    """
    try:
        hash(annotation)
    except TypeError:  # such as Annotated[int, {}]
        return _make(annotation)
    return _cached(annotation)


def annotation_text(annotation: Any) -> str:
    """Give an annotation as it is written in code."""
    text = inspect.formatannotation(annotation)
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}…"


def _make(annotation: Any) -> Codec:
    if any(annotation is open_type for open_type in _OPEN):
        return Codec(annotation)
    try:
        if is_model_type(annotation):
            return _model_codec(annotation)
        try:
            tree = kinds.type_info(_unaliased(annotation))
        except TypeError:
            if contains_model(annotation):
                return _model_codec(annotation)
            raise
        reason = next(filter(None, map(_objection, _nodes(tree))), None)
    except Exception as error:
        # A NameError of a forward reference, or what a class's own schema hooks raise.
        raise _unsupported(annotation, _reason_of(error)) from error
    if reason is not None:
        raise _unsupported(annotation, reason)
    if _is_plain(tree, set()):
        return Codec(annotation)
    return Codec(
        annotation, _encode, msgspec.json.Decoder(_unaliased(annotation), dec_hook=decode_hook).decode
    )


_cached = lru_cache(maxsize=_CODECS_MAX)(_make)


def _model_codec(annotation: Any) -> Codec:
    models = Models(annotation)
    return Codec(annotation, models.encode, models.decode)


def _unaliased(annotation: Any) -> Any:
    """Give what a ``type X = ...`` stands for."""
    while type(annotation).__name__ == "TypeAliasType":
        annotation = annotation.__value__
    return annotation


def _unsupported(annotation: Any, reason: str) -> ConfigError:
    return ConfigError(
        f"The annotation {annotation_text(annotation)} cannot be stored: {reason}.",
        means="What the function returns could not be saved, so it was not called.",
        todo="Annotate plain data, a dataclass, TypedDict, msgspec Struct or pydantic model.",
    )


# --- annotations as trees ------------------------------------------------------------------------


def _nodes(tree: kinds.Type) -> Iterator[kinds.Type]:
    """Give every type in the tree once; trees of recursive classes contain themselves."""
    waiting: list[Any] = [tree]
    seen: set[int] = set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, kinds.Type):
            yield node
        if isinstance(node, (kinds.Type, kinds.Field)):
            waiting.extend(getattr(node, name) for name in node.__struct_fields__)
        elif isinstance(node, tuple):
            waiting.extend(node)


def _objection(node: kinds.Type) -> str | None:
    """Give why values of one type cannot be stored, or None."""
    if isinstance(node, kinds.CustomType) and node.cls is not object and not is_model_type(node.cls):
        return f"{class_name(node.cls)} has no JSON form"
    if isinstance(node, (kinds.RawType, kinds.ExtType)):
        return "it stands for bytes of a message, not for a value"
    if isinstance(node, kinds.DictType):
        keys = node.key_type.types if isinstance(node.key_type, kinds.UnionType) else (node.key_type,)
        if any(isinstance(key, _NO_KEYS) for key in keys):
            return "keys of dicts must have a text form"
    return None


def _is_plain(node: kinds.Type, seen: set[int]) -> bool:
    """Say whether the plain rules give back every value of a type exactly."""
    if isinstance(node, (*_PLAIN, kinds.LiteralType)) or id(node) in seen:
        return True
    seen.add(id(node))
    inner: list[kinds.Type]
    if isinstance(node, kinds.ListType):
        inner = [node.item_type]
    elif isinstance(node, kinds.DictType):
        if not isinstance(node.key_type, (kinds.StrType, kinds.AnyType)):
            return False
        inner = [node.value_type]
    elif isinstance(node, kinds.UnionType):
        inner = list(node.types)
    elif isinstance(node, kinds.TypedDictType):
        inner = [field.type for field in node.fields]
    elif isinstance(node, kinds.Metadata):
        inner = [node.type]
    else:
        return isinstance(node, kinds.CustomType) and node.cls is object
    return all(_is_plain(part, seen) for part in inner)


# --- reasons ---------------------------------------------------------------------------------------


def _leaf_reason(part: Any) -> str | None:
    """Give the objection to a part that has no parts of its own, or None."""
    reason = scalar_reason(part)
    if reason is not None or issubclass(type(part), (list, dict, tuple, set, frozenset)) or parts(part):
        return reason
    try:
        _encode(part)
    except Exception:  # noqa: BLE001 (hooks of the user's classes run here)
        return f"is of type {type_name(part)}, which has no JSON form"
    return None


def _reason_of(error: Exception) -> str:
    """Give the first thing an error says, on one line; of pydantic's lists the first entry."""
    try:
        entry: Any = error.errors()[0]  # type: ignore[attr-defined]
        text = f"{entry['msg']} - at {path_text(entry['loc'])}"
    except Exception:  # noqa: BLE001 (most errors have no such list)
        text = str(error)
    line = text.strip().partition("\n")[0].rstrip(".")
    return line[: SHOWN_CHARS_MAX * 2] or type_name(error)
