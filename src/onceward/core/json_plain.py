"""Plain JSON values as text and back: what a step without a return annotation may give.

Stores keep values as JSON text. Plain means that the text alone is enough to come back with an
equal value of the same types: None, bool, int, finite float, str, list, and dict with str keys.
Everything else is refused by its place in the value, since JSON would turn it silently into
something else (a tuple into a list, NaN into null, the key 1 into "1").
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from math import isfinite
from typing import Any, Literal
from uuid import UUID

import msgspec

from onceward.core.errors import NotStorable, StoreDamaged, ValueTooLarge
from onceward.core.shown import shown, type_name
from onceward.core.walk import DEPTH_MAX, Fault, Step, field_names, first_fault, float_reason

# What the decoder reads, a minus sign counted in; Python's own default limit for integers as text
# is the same (CVE-2020-10735), but a program may have lifted it.
INT_DIGITS_MAX = 4_300
_INT_ABOVE = 10**INT_DIGITS_MAX
_INT_BELOW = -(10 ** (INT_DIGITS_MAX - 1))

_ALWAYS_PLAIN = frozenset({str, bool, type(None)})
_SCALARS = frozenset({str, bool, type(None), int, float})
_ANNOTATED = frozenset(
    {tuple, set, frozenset, bytes, bytearray, datetime, date, time, timedelta, Decimal, UUID},
)
_EXAMPLES: Mapping[type, str] = {
    tuple: "tuple[int, str]",
    set: "set[str]",
    frozenset: "frozenset[str]",
    dict: "dict[int, str]",
}

Role = Literal["result", "argument", "payload"]
"""What a value is for; only results and arguments have an annotation that can say how they come back."""
_ANNOTATE: Mapping[Role, str] = {
    "result": "Annotate the function's return type with the type that should come back, e.g. `-> {example}`.",
    "argument": "Annotate the parameter with the type that should come back, e.g. `: {example}`.",
    "payload": "A payload is plain data: write a list for a tuple or set, and a text for the rest, "
    "e.g. .isoformat() for a time.",
}
_AWAIT: Mapping[Role, str] = {
    "result": "Await it before it is returned.",
    "argument": "Await it first.",
    "payload": "Await it first.",
}
_PLAIN_ONLY = "{verb} plain data: None, bool, int, float, str, lists, and dicts with text keys."

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def encode_plain(value: Any, *, what: object, limit_bytes: int, role: Role = "result") -> str:
    """Give a plain value as JSON text that `decode_plain` reads back equal, types included.

    Args:
        value: None, bool, int of at most 4,300 digits (its sign counted), finite float, str, list, dict with str keys,
            nested at most 200 deep; exactly these types and no subclasses.
        what: whose value it is, e.g. ``"The result of step 'charge'"``; its text is asked for by messages only.
        limit_bytes: the most bytes the text may have as UTF-8.
        role: what it is for, on which the advice depends.

    Raises:
        NotStorable: a part is anything else; the message says where and of what type.
        ValueTooLarge: the text is longer than *limit_bytes*.
    """
    try:
        if type(value) not in _ALWAYS_PLAIN and not _is_plain(value, limit_bytes):
            raise _refusal(value, what, limit_bytes, role)
        encoded = _encode(value)
    except (ValueError, TypeError, RuntimeError, msgspec.MsgspecError) as error:
        raise _refusal(value, what, limit_bytes, role, error) from error
    if len(encoded) > limit_bytes:
        raise too_large(what, len(encoded), limit_bytes)
    return encoded.decode()


def encode_payload(payload: Any, *, what: object, limit_bytes: int) -> str:
    """Give the payload of an event as JSON text; refuses what `encode_plain` refuses."""
    return encode_plain(payload, what=what, limit_bytes=limit_bytes, role="payload")


def decode_plain(text: str, *, what: object = "A stored value") -> Any:
    """Give the value of a text that `encode_plain` wrote; *what* names it in messages.

    Raises:
        StoreDamaged: the text is no JSON; it was cut short or edited.
    """
    try:
        return _decode(text)
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise StoreDamaged(
            f"{what} cannot be read: {error}.",
            means="Its row was truncated or edited by hand.",
            todo="Restore the row from a backup, or restart the run.",
        ) from error


def round_trip_plain(value: Any, *, what: object, limit_bytes: int) -> tuple[str, Any]:
    """Give the text of `encode_plain` and a value read back from it, which shares nothing with *value*."""
    if value is None:
        return "null", None
    text = encode_plain(value, what=what, limit_bytes=limit_bytes)
    return text, value if type(value) in _SCALARS else _decode(text)


def too_large(what: object, size_bytes: int, limit_bytes: int, *, at_least: bool = False) -> ValueTooLarge:
    """Give the error for a value whose text exceeds the limit, with both figures."""
    return ValueTooLarge(
        f"{what} takes {'more than ' if at_least else ''}{size_bytes:,} bytes as JSON; the limit is {limit_bytes:,}.",
        means="It was not stored.",
        todo="Store the data elsewhere and return its address, or raise the limit.",
    )


def not_storable(what: object, fault: Fault, *, means: str, todo: str) -> NotStorable:
    """Give the error for a value of which a part cannot be stored, with the part's place."""
    return NotStorable(f"{what} cannot be stored: {fault.path} {fault.reason}.", means=means, todo=todo)


# The hot path answers only yes or no, level by level without recursion; the place is looked for
# by `first_fault` when the answer was no. The two branches are one loop written twice: a shared
# one costs half as much again for a small dict.
def _is_plain(value: Any, limit_bytes: int) -> bool:
    kind = type(value)
    if kind is not dict and kind is not list:
        return (kind is int and _INT_BELOW < value < _INT_ABOVE) or (kind is float and isfinite(value))
    level = [value]
    seen = 0
    for _ in range(DEPTH_MAX):
        below: list[Any] = []
        for node in level:
            # Each part takes a byte or more: so many cannot fit. This also ends the walk over a
            # list that holds one list many times, which is small and endless.
            seen += len(node)
            if seen > limit_bytes:
                return False
            if type(node) is dict:
                for key, part in node.items():
                    if type(key) is not str:
                        return False
                    kind = type(part)
                    if kind in _ALWAYS_PLAIN:
                        continue
                    if kind is int:
                        if not _INT_BELOW < part < _INT_ABOVE:
                            return False
                    elif kind is dict or kind is list:
                        below.append(part)
                    elif kind is not float or not isfinite(part):
                        return False
            else:
                for part in node:
                    kind = type(part)
                    if kind in _ALWAYS_PLAIN:
                        continue
                    if kind is int:
                        if not _INT_BELOW < part < _INT_ABOVE:
                            return False
                    elif kind is dict or kind is list:
                        below.append(part)
                    elif kind is not float or not isfinite(part):
                        return False
        if not below:
            return True
        level = below
    return False


def _refusal(
    value: Any, what: object, limit_bytes: int, role: Role, error: Exception | None = None
) -> NotStorable:
    fault = first_fault(value, reason=_reason, parts_of=_plain_parts)
    if fault is None and error is None:
        return too_large(what, limit_bytes, limit_bytes, at_least=True)
    if fault is None:  # such as a dict that another thread changes meanwhile
        fault = Fault("$", None, f"cannot be encoded ({error})")
    if hasattr(type(fault.part), "__await__"):
        todo = _AWAIT[role]
    elif _has_annotation(fault.part):
        kind = type(fault.part)
        todo = _ANNOTATE[role].format(example=_EXAMPLES.get(kind, kind.__name__))
    else:
        todo = _PLAIN_ONLY.format(verb="Return" if role == "result" else "Pass")
    return not_storable(what, fault, means="Plain JSON would not give it back as it is.", todo=todo)


def _plain_parts(value: Any) -> list[tuple[Step, Any]]:
    if type(value) is dict:
        return list(value.items())
    return list(enumerate(value)) if type(value) is list else []


def scalar_reason(part: Any) -> str | None:
    """Give the objection to a text, an int or a float that JSON cannot give back; None for the rest."""
    kind = type(part)
    if issubclass(kind, str):
        return None if _is_unicode(part) else "is text with half a surrogate pair, which is not Unicode"
    if issubclass(kind, int):
        return (
            None
            if _INT_BELOW < part < _INT_ABOVE
            else f"is an integer of more than {INT_DIGITS_MAX:,} digits"
        )
    return float_reason(part) if issubclass(kind, float) else None


def _reason(part: Any) -> str | None:
    kind = type(part)
    if kind in _SCALARS:
        return scalar_reason(part)
    if kind is dict:
        for key in part:
            if type(key) is not str:
                return f"has the key {shown(key)} of type {type_name(key)}; keys of JSON are text"
            if not _is_unicode(key):
                return f"has the key {shown(key)}, which is not Unicode"
        return None
    return None if kind is list else f"is of type {type_name(part)}"


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _has_annotation(part: Any) -> bool:
    """Say whether an annotation would make the part storable."""
    kind: Any = type(part)
    if kind in _ANNOTATED or issubclass(kind, Enum):
        return True
    # NamedTuples; and dicts, which were refused for their keys.
    return (
        kind is dict
        or (issubclass(kind, tuple) and hasattr(kind, "_fields"))
        or field_names(kind) is not None
    )
