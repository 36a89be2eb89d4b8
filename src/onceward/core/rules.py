"""What a workflow says of an event before there is a run of it: its version, its key.

A rule reads one value from the event: by an expression, which is data and stored by registration, so
that a receiver without the user's code can accept (RULINGS 18); or by a function, which only
processes with the code can call.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from onceward.core import json_plain
from onceward.core.errors import ConfigError
from onceward.core.paths import Expr, evaluate, from_data, to_data
from onceward.core.shown import shown

if TYPE_CHECKING:
    from onceward.core.model import EventRow

Place: TypeAlias = Expr | Callable[[Any], Any]
"""Where a value is in an event: an expression over it, or a function of the `Event`."""

STALE = ("drop", "mark")
"""What may become of an event that is not newer than the newest of its subject."""

EVER, ACTIVE, WINDOW = "ever", "active", "window"
"""How long a key is held: for good, until its run has ended, or for a time after it was claimed."""

CLASHES: Mapping[str, tuple[str, ...]] = {
    EVER: ("return", "reject"),
    ACTIVE: ("return", "reject", "replace", "queue"),
    WINDOW: ("return", "reject", "replace", "queue"),
}
"""What may become of an event whose key is held, by how long keys are held (RULINGS 14)."""

AWAITS = "waits for "
"""How the reason of a waiting run begins; what it waits for follows."""

WAITS_FOR_KEY = "waits for its key"
"""Why a run is queued that another run with the same key keeps from beginning."""

FAR_MS = 100 * 366 * 86_400_000
"""When a run is due that waits for its key: it is brought forward when the key is free."""

KEY_CHARS_MAX = 1_000

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
        key: where the key of an event's run is; None where runs have none.
        once: how long a key is held: ``ever``, ``active`` or ``window``.
        window_ms: how long after it was claimed, of a ``window``.
        clash: what becomes of an event whose key is held.
        retries_on_redelivery: a redelivery retries its failed run.
    """

    version: Place | None = None
    drops_stale: bool = True
    key: Place | None = None
    once: str = EVER
    window_ms: int | None = None
    clash: str = "return"
    retries_on_redelivery: bool = False

    @property
    def is_empty(self) -> bool:
        """Say whether every event makes a run and nothing else matters."""
        return self.version is None and self.key is None

    @property
    def may_begin_at_once(self) -> bool:
        """Say whether the accepting process may begin a run without reading what the store made of it."""
        is_marked = self.version is not None and not self.drops_stale
        return not is_marked and (self.key is None or self.clash in CLASHES[EVER])

    def to_text(self) -> str | None:
        """Give the rules as JSON text; `from_text` reads it back. None where there are none."""
        if self.is_empty and not self.retries_on_redelivery:
            return None
        stored = _Stored(
            version=_place_data(self.version),
            drops_stale=self.drops_stale,
            key=_place_data(self.key),
            once=self.once,
            window_ms=self.window_ms,
            clash=self.clash,
            retries_on_redelivery=self.retries_on_redelivery,
        )
        return msgspec.json.encode(stored).decode()

    @classmethod
    def from_text(cls, text: str | None) -> Rules:
        """Give the rules that `to_text` wrote; functions become ones that say that they are elsewhere."""
        if text is None:
            return NO_RULES
        stored = msgspec.json.decode(text, type=_Stored)
        return cls(
            version=_place_of(stored.version, "version"),
            drops_stale=stored.drops_stale,
            key=_place_of(stored.key, "key"),
            once=stored.once,
            window_ms=stored.window_ms,
            clash=stored.clash,
            retries_on_redelivery=stored.retries_on_redelivery,
        )


class _Stored(msgspec.Struct, omit_defaults=True):
    version: Any = None
    drops_stale: bool = True
    key: Any = None
    once: str = EVER
    window_ms: int | None = None
    clash: str = "return"
    retries_on_redelivery: bool = False


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
        ConfigError: it is a condition, an async function, or neither an expression nor a function.
    """
    if inspect.iscoroutinefunction(place):
        raise ConfigError(
            f"The {what} of a workflow is an async function.",
            means="It is read while the sender waits, before the event is stored; it must not wait itself.",
            todo="Use a plain function of the event, or an expression.",
        )
    is_place = isinstance(place, Expr) and place.op == "event"
    if is_place or (callable(place) and not isinstance(place, type)):
        return place  # type: ignore[no-any-return]
    raise ConfigError(
        f"The {what} of a workflow cannot be {shown(place)}.",
        means="It is a place in the event, or a function of the event.",
        todo=f'Write for example {what}=event.payload["{what}"], with `from onceward import event`.',
    )


def fields_of(event: EventRow, namespace: str, version: int | None = None) -> dict[str, Any]:
    """Give a stored event by the names that expressions use.

    Args:
        event: as it is stored; its payload is decoded.
        namespace: of this process.
        version: what its source says that it is; never its time instead: a mark of milliseconds would
            make every later number stale.
    """
    return {
        "namespace": namespace,
        "source": event.source,
        "id": event.id,
        "type": event.type,
        "subject": event.subject,
        "payload": None if event.payload is None else json_plain.decode_plain(event.payload),
        "occurred_at": event.occurred_at,
        "received_at": event.received_at,
        "version": version,
    }


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


def key_text(value: Any) -> str | None:
    """Give the text of a key: a text as it is, a whole number in digits, several of them as a JSON array.

    None for what can be no key: nothing, an empty text, one of over a thousand characters, a fraction.
    """
    if isinstance(value, list | tuple):
        parts = [key_text(part) for part in value]
        if not parts or None in parts:
            return None
        text = msgspec.json.encode(parts).decode()
    elif isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        text = str(value)
    else:
        return None
    is_storable = "\0" not in text and text.encode("utf-8", "ignore").decode() == text
    return text if 0 < len(text) <= KEY_CHARS_MAX and is_storable else None


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
