"""How the dashboard says things: times, lengths, states, values; text in, text out.

A time is told as people tell it ("3 min ago"), with the exact one beside it; nothing here escapes
or marks up, which is the templates' part.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import msgspec

from onceward.core.model import Millis
from onceward.core.states import MEANING, RunState

SHOWN_CHARS_MAX = 200_000
"""Of one value on one page: a browser with ten megabytes of text in it helps nobody."""

NONE = "\N{EN DASH}"
_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))
_STEP_FAILED = re.compile(r"Step '(.*?)' failed after \d+ tr(?:y|ies): (.*)", re.DOTALL)
_STEP_MEANING = {
    "open": "Under way, or to be tried again.",
    "done": "Done; its result is saved.",
    "failed": "Used up its tries.",
    "cancelled": "Cancelled with its run.",
    "cut": "Cut off before it ended.",
}


def length(ms: Millis | float | None) -> str:
    """Give a length of time with at most two units: ``840 ms``, ``3.2 s``, ``2 h 5 min``."""
    if ms is None:
        return NONE
    ms = max(0, round(ms))
    if ms < 1_000:
        return f"{ms} ms"
    if ms < 10_000:
        return f"{ms / 1000:.1f} s"
    for index, (size, unit) in enumerate(_UNITS):
        if ms >= size:
            first, rest = divmod(ms, size)
            if index + 1 == len(_UNITS):
                return f"{first} {unit}"
            smaller, name = _UNITS[index + 1]
            second = rest // smaller
            return f"{first} {unit} {second} {name}" if second and first < 10 else f"{first} {unit}"
    raise AssertionError(ms)


def brief(ms: Millis | float | None) -> str:
    """Give a length of time in one unit, where there is little room: ``840 ms``, ``2 h``."""
    return " ".join(length(ms).split()[:2])


def skew(ms: Millis | None) -> str:
    """Give how far a sender's clock is off, or how long its request took: ``1.2 s``, ``40 s ahead``."""
    if ms is None:
        return NONE
    return length(ms) if ms >= 0 else f"{length(-ms)} ahead"


def ago(at: Millis | None, now: Millis) -> str:
    """Give when something was or will be, from now: ``3 min ago``, ``in 2 h``, ``just now``."""
    if at is None:
        return NONE
    away = abs(now - at)
    if away < 1_000:
        return "just now"
    # Rounded, and in the unit that it comes to: what is 59.7 minutes away is an hour.
    half = {size: smaller // 2 for (size, _), (smaller, _) in pairwise((*_UNITS, (0, "")))}
    size, unit = next((size, unit) for size, unit in _UNITS if away + half[size] >= size)
    told = f"{(away + size // 2) // size} {unit}"
    return f"{told} ago" if at <= now else f"in {told}"


def exact(at: Millis | None) -> str:
    """Give a time to the millisecond, in UTC."""
    moment = _moment(at)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03d} UTC" if moment else NONE


def machine_time(at: Millis | None) -> str:
    """Give a time as ISO 8601, for a ``datetime`` attribute; empty where there is none."""
    moment = _moment(at)
    return moment.isoformat(timespec="milliseconds") if moment else ""


def clock(at: Millis) -> str:
    """Give the hour and minute of a time in UTC, for the axis of a plot."""
    moment = _moment(at)
    return f"{moment:%H:%M}" if moment else NONE


def _moment(at: Millis | None) -> datetime | None:
    try:
        return None if at is None else datetime.fromtimestamp(at / 1000, UTC)
    except (OverflowError, OSError, ValueError):
        return None  # a sender may sign any number as its time


def meaning(state: str) -> str:
    """Give what a state of a run or step means, in a sentence; empty for an unknown one."""
    try:
        return MEANING[RunState(state)]
    except ValueError:
        return _STEP_MEANING.get(state, "")


def pretty(value: Any) -> str:
    """Give a JSON value for reading: indented, its keys as they came, cut where it is very long."""
    try:
        text = json.dumps(value, indent=2, ensure_ascii=False)
    except RecursionError:
        return "(nested too deeply to be shown)"
    except (TypeError, ValueError):
        text = str(value)
    if len(text) > SHOWN_CHARS_MAX:
        return f"{text[:SHOWN_CHARS_MAX]}\n… cut here: {len(text):,} characters in all"
    return text


def plain(value: Any) -> Any:
    """Give a view as the JSON that the REST API would send."""
    return msgspec.to_builtins(value)


def gist(type_name: str, message: str) -> str:
    """Give a failure in one line, with what went wrong first: of a step's failure its cause."""
    found = _STEP_FAILED.fullmatch(message) if type_name.endswith("StepFailed") else None
    return f"{found[1]}: {found[2]}" if found else f"{type_name}: {message}"
