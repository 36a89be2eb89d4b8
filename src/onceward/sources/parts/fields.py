"""Optional facts in a decoded body: what is odd or missing is None and never costs the event.

Ids and types are read with `onceward.sources.base.identifier` instead, which refuses.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from onceward.sources.signing import EPOCH

_SECONDS_MAX = 253_402_300_799  # the end of the year 9999
_MS_MAX = _SECONDS_MAX * 1000
_INTEGER_MAX = 2**63 - 1  # what every store can keep
_DIGITS = re.compile(r"[0-9]{1,15}")
_ISO_CHARS_MAX = 64


def at(value: object, *path: str) -> object:
    """Give what stands under the keys of *path*, one object inside the other, or None."""
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def first_at(value: object, *keys: str) -> object:
    """Give the first of several members of an object that is there and neither null nor empty text."""
    if isinstance(value, dict):
        for key in keys:
            found = value.get(key)
            if found is not None and found != "":
                return found
    return None


def text_or_none(value: object) -> str | None:
    """Give *value* when it is text that is not empty."""
    return value if isinstance(value, str) and value else None


def integer_or_none(value: object) -> int | None:
    """Give a whole number, or text of digits, that fits 63 bits; for `Incoming.version`."""
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        return int(value)
    return value if type(value) is int and 0 <= value <= _INTEGER_MAX else None


def seconds_ms(value: object) -> int | None:
    """Give Unix seconds, a number or text of digits, in milliseconds."""
    if isinstance(value, float):
        # NaN fails the comparison, and so does infinity.
        return round(value * 1000) if 0 <= value <= _SECONDS_MAX else None
    number = integer_or_none(value)
    return number * 1000 if number is not None and number <= _SECONDS_MAX else None


def millis_or_none(value: object) -> int | None:
    """Give Unix milliseconds, a number or text of digits."""
    number = integer_or_none(value)
    return number if number is not None and number <= _MS_MAX else None


def iso_or_none(value: object, *, naive_is_utc: bool = False) -> int | None:
    """Give a time in ISO 8601 in Unix milliseconds.

    Args:
        value: text with an offset from UTC, ``Z`` or `` UTC`` at its end.
        naive_is_utc: for senders that leave the offset out and mean UTC.
    """
    if not isinstance(value, str) or len(value) > _ISO_CHARS_MAX:
        return None
    try:
        moment = datetime.fromisoformat(re.sub(" UTC$", "+00:00", value))
    except ValueError:
        return None
    return _unix_ms(moment, naive_is_utc=naive_is_utc)


def mail_date_or_none(value: object) -> int | None:
    """Give a time as e-mail writes it (RFC 5322) in Unix milliseconds."""
    if not isinstance(value, str) or len(value) > _ISO_CHARS_MAX:
        return None
    from email.utils import parsedate_to_datetime  # slow to import, and for one sender

    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return _unix_ms(moment, naive_is_utc=True)


def _unix_ms(moment: datetime, *, naive_is_utc: bool) -> int | None:
    if moment.tzinfo is None:
        if not naive_is_utc:
            return None
        moment = moment.replace(tzinfo=UTC)
    since = (moment - EPOCH) // timedelta(milliseconds=1)
    return since if since >= 0 else None
