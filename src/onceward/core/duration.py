"""Lengths of time: one form everywhere, a ``timedelta``, seconds, or a text such as ``"1h30m"``.

Every sleep, time-out, lease and retry delay of users and settings passes through `to_ms`, so that
a length that can never end (NaN, infinity, a million years) is refused where it is written and
not where a run would hang on it. Inside, lengths are whole milliseconds.
"""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import NoReturn, TypeAlias

from onceward.core.errors import ConfigError
from onceward.core.shown import shown

Duration: TypeAlias = timedelta | str | int | float

# 100 Julian years. Longer is a unit mistaken (milliseconds given as seconds), and the bound keeps
# every sum of a time and a length far inside 64 bits.
DURATION_MS_MAX = 36_525 * 86_400_000

_UNIT_MS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_TEXT = re.compile(r"\s*".join(rf"(?:([0-9]{{1,15}}){unit})?" for unit in _UNIT_MS))
_TEXT_CHARS_MAX = 100

_WORDS = {
    "w": "w wk wks week weeks",
    "d": "d day days",
    "h": "h hr hrs hour hours",
    "m": "m min mins minute minutes",
    "s": "s sec secs second seconds",
    "ms": "ms msec msecs millis millisecond milliseconds",
}
_UNIT_OF = {word: unit for unit, words in _WORDS.items() for word in words.split()}

# Weeks are read but not shown: "7d" is plainer beside "8d" than "1w" is beside "1w 1d".
_SHOWN_UNITS = ("d", "h", "m", "s", "ms")


def to_ms(value: Duration, *, what: str) -> int:
    """Give the length in whole milliseconds, from 0 to a hundred years.

    Args:
        value: a ``timedelta``; seconds as a number; or a text of numbers with the units
            ``w d h m s ms``, from big to small and each once, e.g. ``"7d"``, ``"1h30m"``.
        what: whose length it is, for the error message, e.g. ``"timeout of step 'charge'"``.

    Returns:
        The nearest millisecond, except that a length above 0 is never rounded to 0.

    Raises:
        ConfigError: *value* is negative, not finite, over a hundred years, a text that cannot be
            read, or of another type (booleans and None included).
    """
    if isinstance(value, str):
        microseconds = _text_ms(value, what) * 1_000
    elif isinstance(value, timedelta):
        microseconds = value // timedelta(microseconds=1)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        if isinstance(value, float) and not math.isfinite(value):
            _refuse(value, what, "It would never end.")
        # Bounded before it is multiplied, by any number above the limit: 1e308 * 1e6 is infinite.
        microseconds = round(max(-DURATION_MS_MAX, min(value, DURATION_MS_MAX)) * 1_000_000)
        if value < 0:  # also where rounding hides it: -1e-9
            microseconds = min(microseconds, -1)
        elif value > 0:
            microseconds = max(microseconds, 1)
    else:
        _refuse(value, what, f"A {type(value).__name__} is no length of time.")
    if microseconds < 0:
        _refuse(value, what, "A length of time is never below zero.")
    if microseconds > DURATION_MS_MAX * 1_000:
        _refuse(value, what, "The most is 100 years.")
    return (microseconds + 500) // 1_000 or (1 if microseconds else 0)


def show(ms: int) -> str:
    """Give a length as people and `to_ms` read it: ``"1h 30m"``, ``"250ms"``, ``"0s"``."""
    if ms < 0:
        return f"-{show(-ms)}"
    words = []
    for unit in _SHOWN_UNITS:
        count, ms = divmod(ms, _UNIT_MS[unit])
        if count:
            words.append(f"{count}{unit}")
    return " ".join(words) or "0s"


def _text_ms(text: str, what: str) -> int:
    stripped = text.strip() if len(text) <= _TEXT_CHARS_MAX else ""
    found = _TEXT.fullmatch(stripped) if stripped else None
    if found is None:
        _refuse(text, what, "A text is numbers with the units w d h m s ms, from big to small.")
    return sum(
        int(count) * unit for count, unit in zip(found.groups(), _UNIT_MS.values(), strict=True) if count
    )


def _meant(text: str) -> str:
    """Give a text as it was probably meant, e.g. ``5m`` for ``5 minutes``; empty where nobody can tell."""
    parts = re.findall(r"([0-9]{1,15})\s*([a-z]*)[\s,]*", text[:_TEXT_CHARS_MAX].lower())
    if len(parts) == 1 and text.strip().isdigit():
        parts = [(parts[0][0], "s")]
    meant = "".join(f"{count}{_UNIT_OF.get(word, '?')}" for count, word in parts)
    is_all = sum(len(count) + len(word) for count, word in parts) == len(re.sub(r"[\s,]", "", text))
    return meant if _TEXT.fullmatch(meant) and (is_all or text.strip().isdigit()) else ""


def _refuse(value: object, what: str, means: str) -> NoReturn:
    todo = 'Write a timedelta, a number of seconds, or a text such as "90s", "1h30m" or "7d".'
    if isinstance(value, str):  # as settings are given; there a timedelta or a number is no advice
        todo = (
            f'Write "{meant}".' if (meant := _meant(value)) else 'Write for example "90s", "1h30m" or "7d".'
        )
    raise ConfigError(f"The {what} cannot be {shown(value)}.", means=means, todo=todo)
