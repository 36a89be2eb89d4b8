"""What a workflow says of an event before there is a run of it: which version of its subject it is.

A rule reads one value from the event: by an expression, which is data and stored by registration, so
that a receiver without the user's code can accept (RULINGS 18); or by a function, which only
processes with the code can call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from typing import Any, TypeAlias

import msgspec

from onceward.core.errors import ConfigError
from onceward.core.paths import Expr, evaluate, from_data, to_data
from onceward.core.shown import shown

Place: TypeAlias = Expr | Callable[[Any], Any]
"""Where a value is in an event: an expression over it, or a function of the `Event`."""

STALE = ("drop", "mark")
"""What may become of an event that is not newer than the newest of its subject."""

_CODE = "code"
_VERSION_MAX = Decimal(10) ** 20
_EXACT = Context(prec=100)  # more digits than a number that is let through can have
_NUMBER = re.compile(r"[+-]?\d{1,40}(\.\d{1,40})?", re.ASCII)


@dataclass(frozen=True, slots=True, eq=False)
class Rules:
    """The rules of one workflow.

    Attributes:
        version: where an event's version is; None where order does not matter.
        drops_stale: an event that is not newer makes no run; else it makes a run that is marked.
    """

    version: Place | None = None
    drops_stale: bool = True

    @property
    def is_empty(self) -> bool:
        """Say whether every event makes a run and nothing else matters."""
        return self.version is None

    @property
    def may_begin_at_once(self) -> bool:
        """Say whether the accepting process may begin a run without reading what the store made of it."""
        return self.version is None or self.drops_stale

    def to_text(self) -> str | None:
        """Give the rules as JSON text; `from_text` reads it back. None where there are none."""
        if self.is_empty:
            return None
        stored = _Stored(version=_place_data(self.version), drops_stale=self.drops_stale)
        return msgspec.json.encode(stored).decode()

    @classmethod
    def from_text(cls, text: str | None) -> Rules:
        """Give the rules that `to_text` wrote; functions become ones that say that they are elsewhere."""
        if text is None:
            return NO_RULES
        stored = msgspec.json.decode(text, type=_Stored)
        return cls(version=_place_of(stored.version, "version"), drops_stale=stored.drops_stale)


class _Stored(msgspec.Struct, omit_defaults=True):
    version: Any = None
    drops_stale: bool = True


NO_RULES = Rules()


def _place_data(place: Place | None) -> Any:
    if place is None:
        return None
    return to_data(place) if isinstance(place, Expr) else _CODE


def _place_of(data: Any, what: str) -> Place | None:
    if data is None:
        return None
    if data != _CODE:
        return from_data(data)

    def elsewhere(_event: Any) -> Any:
        raise ConfigError(
            f"The {what} of this workflow is a function that this process does not have.",
            means="It cannot be told for an event that comes in here.",
            todo="Write it as an expression over the event, or receive where the workflow is.",
        )

    return elsewhere


def checked_place(place: Any, what: str) -> Place:
    """Give *place* if it can be one.

    Raises:
        ConfigError: it is a condition, or neither an expression nor a function.
    """
    is_place = isinstance(place, Expr) and place.op == "event"
    if is_place or (callable(place) and not isinstance(place, type)):
        return place  # type: ignore[no-any-return]
    raise ConfigError(
        f"The {what} of a workflow cannot be {shown(place)}.",
        means="It is a place in the event, or a function of the event.",
        todo=f'Write for example {what}=event.payload["{what}"], with `from onceward import event`.',
    )


def read(place: Place, fields: Mapping[str, Any], event: Any) -> Any:
    """Give the value at *place*.

    Args:
        place: where.
        fields: the event by names, for an expression.
        event: the `Event`, for a function.

    Raises:
        Exception: whatever the function raises; `PathMissing` where an expression finds nothing.
    """
    return evaluate(place, fields) if isinstance(place, Expr) else place(event)


def version_text(value: Any) -> str | None:
    """Give a version as a text that sorts as versions do, whatever they were written as.

    Args:
        value: a number; a time, as a ``datetime`` or in ISO 8601 (UTC where it names no zone); or a
            text of digits. Times count as seconds since 1970.

    Returns:
        21 digits, a dot where there is a fraction, and the fraction without trailing zeros; 10^20 is
        added, so that numbers below zero sort before the others. None for any other value: nobody
        could say which of two is newer.
    """
    number = _number(value)
    if number is None or not -_VERSION_MAX < number < _VERSION_MAX:
        return None
    whole, _, fraction = f"{_EXACT.add(number, _VERSION_MAX):f}".partition(".")
    fraction = fraction.rstrip("0")
    return whole.zfill(21) + (f".{fraction}" if fraction else "")


def shown_version(text: str) -> str:
    """Give a version as people write it, from `version_text`."""
    return f"{_EXACT.subtract(Decimal(text), _VERSION_MAX):f}"


def _number(value: Any) -> Decimal | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, datetime):
        return _seconds(value)
    if isinstance(value, int | float | Decimal):
        number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
        return number if number.is_finite() else None
    if not isinstance(value, str):
        return None
    if _NUMBER.fullmatch(value):
        return Decimal(value)
    try:
        return _seconds(datetime.fromisoformat(value))
    except ValueError:
        return None


def _seconds(at: datetime) -> Decimal:
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    since = at.astimezone(UTC) - datetime.combine(date(1970, 1, 1), datetime.min.time(), UTC)
    microseconds = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    return Decimal(microseconds).scaleb(-6)
