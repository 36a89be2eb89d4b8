"""Walks over a user's value: to find a fault in it, or where two values differ, and name the place.

The codec calls these after it failed (to say where) and after each typed round trip (to prove that
what comes back is what went in). A walk goes no deeper than `DEPTH_MAX`, so a value that contains
itself ends it like one that is too deep.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import sys
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

import msgspec

from onceward.core.shown import shown, type_name

# Deeper JSON is a mistake or an attack; 200 leaves Python's own recursion limit far away.
DEPTH_MAX = 200
NODES_MAX = 1_000_000
TOO_DEEP = f"nests deeper than {DEPTH_MAX} levels, or contains itself"

# Where a part stands in its whole: an index, a key, or the name of a field.
Step: TypeAlias = Any

_PATH_CHARS_MAX = 200
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_MISSING = object()


class Fault(NamedTuple):
    """A part of a value and what is wrong with it: ``("$.lines[3].qty", (1, 2), "is a tuple")``."""

    path: str
    part: Any
    reason: str


def path_text(steps: Iterable[Step]) -> str:
    """Give a place as text: ``$.lines[3].qty``; keys that are no names in brackets and quotes."""
    words = ["$"]
    for step in steps:
        if not isinstance(step, str):
            words.append(f"[{shown(step)}]")
        elif _NAME.fullmatch(step):
            words.append(f".{step}")
        else:
            words.append(f"[{json.dumps(step[:_PATH_CHARS_MAX])}]")
    text = "".join(words)
    if len(text) <= _PATH_CHARS_MAX:
        return text
    return f"{text[: _PATH_CHARS_MAX // 2]}…{text[-_PATH_CHARS_MAX // 2 :]}"


def parts(value: Any) -> list[tuple[Step, Any]]:
    """Give the parts of a container, or of an object whose fields are known; none for a leaf."""
    # By type() throughout, not by isinstance, which asks the value for its __class__ and so runs
    # its code.
    kind: Any = type(value)
    if issubclass(kind, dict):
        return list(value.items())
    if issubclass(kind, (list, tuple, set, frozenset)):
        return list(enumerate(value))
    names = field_names(kind)
    if names is None:
        return []
    found = [(name, getattr(value, name, _MISSING)) for name in names]
    # What pydantic models hold beside their declared fields.
    for more in ("__pydantic_extra__", "__pydantic_private__"):
        found.extend((getattr(value, more, None) or {}).items())
    return found


@lru_cache(maxsize=4096)
def field_names(kind: Any) -> tuple[str, ...] | None:  # Any: mypy does not take a type for hashable
    """Give the fields of a Struct, dataclass, attrs class or pydantic model; None for other classes."""
    if issubclass(kind, msgspec.Struct):
        return tuple(kind.__struct_fields__)
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    attributes = getattr(kind, "__attrs_attrs__", None)
    if attributes is not None:
        return tuple(attribute.name for attribute in attributes)
    pydantic = sys.modules.get("pydantic")
    if pydantic is not None and issubclass(kind, pydantic.BaseModel):
        return tuple(kind.model_fields)
    return None


# --- the first fault ----------------------------------------------------------------------------


def first_fault(
    value: Any,
    *,
    reason: Callable[[Any], str | None],
    parts_of: Callable[[Any], list[tuple[Step, Any]]] = parts,
) -> Fault | None:
    """Give the part nearest to the top to which *reason* objects; None if there is none.

    Depth is an objection of its own. The search gives up after a million parts.
    """
    level: list[tuple[tuple[Step, ...], Any]] = [((), value)]
    seen = 0
    for depth in range(DEPTH_MAX + 1):
        below: list[tuple[tuple[Step, ...], Any]] = []
        for path, part in level:
            try:
                objection = reason(part)
                children = parts_of(part) if objection is None else []
            except Exception as error:  # noqa: BLE001 (properties of the user's classes run here)
                objection, children = f"cannot be looked at ({type_name(error)})", []
            if objection is None and depth == DEPTH_MAX and (children or type(part) in (list, dict)):
                objection = TOO_DEEP
            if objection is not None:
                return Fault(path_text(path), part, objection)
            seen += len(children)
            if seen > NODES_MAX:
                return None
            below.extend(((*path, step), child) for step, child in children)
        level = below
    return None


# --- the first difference -----------------------------------------------------------------------

# The steps to the place from below, the part there, and the reason. Only made where there is one,
# so that the usual walk, which finds none, builds no paths.
_Found: TypeAlias = tuple[list[Step], Any, str]

# Types for which "equal and of the same type" says it all.
_PLAINLY_COMPARED = frozenset({str, int, bool, type(None), bytes, bytearray, UUID, date, timedelta})


def first_difference(value: Any, decoded: Any) -> Fault | None:
    """Give the first place where *decoded* is not *value*, types included; None if they are the same.

    One change is let pass: an int that comes back as the equal float. Only a place declared as
    ``float`` does that, and there Python's typing lets an int stand.
    """
    try:
        found = _difference(value, decoded, 0)
    except RecursionError:
        return Fault("$", value, TOO_DEEP)
    except Exception as error:  # noqa: BLE001 (properties and comparisons of the user's classes run here)
        return Fault("$", value, f"cannot be compared with what would come back ({type_name(error)})")
    if found is None:
        return None
    steps, part, reason = found
    return Fault(path_text(reversed(steps)), part, reason)


def _difference(value: Any, decoded: Any, depth: int) -> _Found | None:
    kind = type(value)
    if kind is not type(decoded):
        if kind is int and type(decoded) is float and value == decoded:
            return None
        reason = float_reason(value) if kind is float else None
        return (
            [],
            value,
            reason or f"is of type {type_name(value)} and would come back as {type_name(decoded)}",
        )
    if kind in _PLAINLY_COMPARED:
        return None if value == decoded else _changed(value, decoded)
    compare = _COMPARED_BY_TYPE.get(kind)
    if compare is not None:
        reason = compare(value, decoded)
        return None if reason is None else ([], value, reason)
    if depth >= DEPTH_MAX:
        return [], value, TOO_DEEP
    if issubclass(kind, dict):
        return _dict_difference(value, decoded, depth)
    if issubclass(kind, (list, tuple)):
        if len(value) != len(decoded):
            return _changed(value, decoded)
        return _parts_difference(zip(range(len(value)), value, decoded, strict=True), depth)
    if issubclass(kind, (set, frozenset)):
        return _set_difference(value, decoded, depth)
    fields_of: Any = kind
    if field_names(fields_of) is None:
        return None if _is_equal(value, decoded) else _changed(value, decoded)
    mine, theirs = parts(value), parts(decoded)
    if [step for step, _ in mine] != [step for step, _ in theirs]:
        return _changed(value, decoded)
    return _parts_difference(
        ((step, part, other) for (step, part), (_, other) in zip(mine, theirs, strict=True)), depth
    )


def _parts_difference(triples: Iterable[tuple[Step, Any, Any]], depth: int) -> _Found | None:
    for step, part, other in triples:
        found = _difference(part, other, depth + 1)
        if found is not None:
            found[0].append(step)
            return found
    return None


def _dict_difference(value: dict[Any, Any], decoded: dict[Any, Any], depth: int) -> _Found | None:
    if len(value) != len(decoded):
        return [], value, f"has {len(value)} keys and would come back with {len(decoded)}"
    for (key, part), (other_key, other) in zip(value.items(), decoded.items(), strict=True):
        if _difference(key, other_key, depth + 1) is not None:
            return [], value, f"has the key {shown(key)}, which would come back as {shown(other_key)}"
        found = _difference(part, other, depth + 1)
        if found is not None:
            found[0].append(key)
            return found
    return None


def _set_difference(value: Any, decoded: Any, depth: int) -> _Found | None:
    theirs = {element: element for element in decoded}
    for element in value:
        other = theirs.get(element, _MISSING)
        if other is _MISSING or _difference(element, other, depth + 1) is not None:
            return [], value, f"has the element {shown(element)}, which would not come back equal"
    return None if len(value) == len(decoded) else _changed(value, decoded)


def _changed(value: Any, decoded: Any) -> _Found:
    return [], value, f"is {shown(value)} and would come back as {shown(decoded)}"


def _is_equal(value: Any, decoded: Any) -> bool:
    if issubclass(type(value), Enum):
        return value is decoded
    try:
        return bool(value == decoded)
    except Exception:  # noqa: BLE001 (the value's own code: arrays raise here, others anything)
        return False


# --- leaves of which equality says too little ---------------------------------------------------


def float_reason(value: float) -> str | None:
    """Give the objection to a float that JSON does not have: NaN and the infinities."""
    return None if math.isfinite(value) else f"is {value}, which JSON does not have"


def _float_reason(value: float, decoded: float) -> str | None:
    return float_reason(value) or (
        None if value == decoded else f"is {value} and would come back as {decoded}"
    )


def _decimal_reason(value: Decimal, decoded: Decimal) -> str | None:
    # Decimal("1.0") == Decimal("1.00"), but they are not the same amount on an invoice.
    if not value.is_nan() and value.as_tuple() == decoded.as_tuple():
        return None
    return f"is {value!r}, which would not come back equal"


def _time_reason(value: datetime | time, decoded: datetime | time) -> str | None:
    if value.tzinfo is not None and not _has_fixed_offset(value.tzinfo):
        # It would come back with the offset of that moment: equal, but an hour off after adding a
        # day over a clock change, and not even equal in the hour that comes twice.
        return f"is in the time zone {value.tzinfo}, of which only the offset would come back"
    # `fold` is not compared and not kept: it is no part of equality, and refusing it would fail
    # naive local times in the one hour of the year that comes twice.
    if value == decoded and value.utcoffset() == decoded.utcoffset():
        return None
    return f"is {value!r} and would come back as {decoded!r}"


def _has_fixed_offset(zone: tzinfo) -> bool:
    try:
        return zone.utcoffset(None) is not None
    except Exception:  # noqa: BLE001 (a zone of the user's may not expect None)
        return False


_COMPARED_BY_TYPE: dict[type, Callable[[Any, Any], str | None]] = {
    float: _float_reason,
    Decimal: _decimal_reason,
    datetime: _time_reason,
    time: _time_reason,
}
