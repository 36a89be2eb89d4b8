"""Ids: drawn ones that sort by time, and composed ones that are a function of their parts.

The runtime owns one `IdSource` a process; simulation gives it a clock and bytes of its own and so
decides every id by its seed. What must stay true: within a process no run id is ever equal to or
below an earlier one, also in one millisecond, when the clock steps back, and between threads; and
a forked child never draws what its parent drew.
"""

from __future__ import annotations

import hashlib
import os
import struct
import threading
import uuid
import weakref
from collections.abc import Callable, Iterator

import msgspec

from onceward.core.errors import NotStorable
from onceward.core.shown import shown

RUN_ID_PREFIX = "run_"
DELIVERY_ID_PREFIX = "del_"
TIME_MS_MAX = 2**48 - 1

# Crockford's base 32: no i, l, o and u, so that an id read out aloud is written down right.
_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"

# Ten bits at a time: a table of 1,024 pairs halves the look-ups of an id.
_PAIRS = [first + second for first in _DIGITS for second in _DIGITS]

_VERSION = 7 << 36  # in the upper 40 of an id's lower 80 bits
_VARIANT = 2 << 22
_LOW_40 = 2**40 - 1

_WORDS = struct.Struct(">512Q")


def run_id(now_ms: int, random_bytes10: bytes) -> str:
    """Give ``run_`` and the 26 digits of the UUIDv7 that `uuid7` gives for the same arguments.

    Texts sort as the times do. See `IdSource.run_id` for ids that also sort within a millisecond.
    """
    low = _low_80(random_bytes10)
    return RUN_ID_PREFIX + _time_digits(now_ms) + _digits(low >> 40) + _digits(low & _LOW_40)


def uuid7(now_ms: int, random_bytes: bytes) -> uuid.UUID:
    """Give a UUID version 7: 48 bits of Unix milliseconds, then 74 of the ten bytes' 80 bits.

    Raises:
        ValueError: *now_ms* is outside 48 bits, or *random_bytes* are not ten.

    Source: RFC 9562, section 5.7.
    """
    return uuid.UUID(int=_checked_time(now_ms) << 80 | _low_80(random_bytes))


def composed(*parts: str | int) -> str:
    """Give one id made of several: canonical JSON array text, ``["gen",1,"a/b"]``.

    Different parts never give the same text, which joined text ("a/b" + "/" + "c") would.

    Raises:
        NotStorable: a part is no text or integer, or a text that is not Unicode.
    """
    for part in parts:
        if type(part) is not str and type(part) is not int:
            raise NotStorable(
                f"An id cannot be composed of {shown(part)}.",
                means="Parts are texts and integers.",
                todo="Give the part as a text.",
            )
    try:
        return msgspec.json.encode(parts).decode()
    except ValueError as error:  # a lone surrogate, or an integer of thousands of digits
        raise NotStorable(
            f"An id cannot be composed of {shown(parts)}: {error}.",
            means="It would have no text form that comes back equal.",
            todo="Give the part as a plain text.",
        ) from error


def content_hash(text: str | bytes) -> str:
    """Give the hash by which the same id with other content is noticed."""
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()[:32]


START = "start"
"""Ends the id of an event that a run made to start another, so that it is told from an emit."""


def is_start(source: str, event_id: str) -> bool:
    """Say whether an event is a start of a workflow, so that its payload are arguments."""
    return source.startswith("start/") or (source.startswith("run/") and event_id.endswith(f',"{START}"]'))


class IdSource:
    """Draws the ids and random numbers of one process; safe to use from every thread.

    Args:
        now_ms: gives the time in Unix milliseconds.
        random_bytes: gives that many bytes that nobody can foresee (``os.urandom``), or in a
            simulation bytes that the seed decides. Called for 4 KiB at a time.
    """

    __slots__ = (
        "__weakref__",
        "_head",
        "_high",
        "_lock",
        "_low",
        "_ms",
        "_now_ms",
        "_random_bytes",
        "_words",
    )

    def __init__(self, now_ms: Callable[[], int], random_bytes: Callable[[int], bytes]) -> None:
        self._now_ms = now_ms
        self._random_bytes = random_bytes
        self._lock = threading.Lock()
        self._words: Iterator[int] = iter(())
        self._ms = -1
        self._high = 0  # bits 40 to 79 of the last id
        self._head = ""  # the digits of _ms and _high
        self._low = 0  # bits 0 to 39
        _sources.add(self)

    def run_id(self) -> str:
        """Give a run id above every earlier one."""
        return RUN_ID_PREFIX + self.event_id()

    def event_id(self) -> str:
        """Give an id for an event of our own, above every earlier one.

        In order of time: with random ids each event would touch a page of the index of its own
        (2.4 times the cost of a whole three-step run on SQLite, measured).
        """
        with self._lock:
            self._advance()
            return self._head + _digits(self._low)

    def delivery_id(self) -> str:
        """Give an id for a delivery, above every earlier one."""
        return DELIVERY_ID_PREFIX + self.event_id()

    def uuid7(self) -> uuid.UUID:
        """Give a UUID version 7 above every earlier one, and in one order with the run ids."""
        with self._lock:
            self._advance()
            return uuid.UUID(int=self._ms << 80 | self._high << 40 | self._low)

    def uuid4(self) -> uuid.UUID:
        """Give a random UUID."""
        with self._lock:
            return uuid.UUID(int=self._word() << 64 | self._word(), version=4)

    def draw(self) -> float:
        """Give a number in [0, 1), with 53 random bits."""
        with self._lock:
            return (self._word() >> 11) * 2.0**-53

    def hex(self, n: int) -> str:
        """Give *n* random bytes as 2 *n* hexadecimal digits."""
        with self._lock:
            return "".join([f"{self._word():016x}" for _ in range((n + 7) // 8)])[: 2 * n]

    def forget(self) -> None:
        """Drop buffered bytes; done by itself in a forked child, which shares them with its parent."""
        self._lock = threading.Lock()  # another thread of the parent may have held the old one
        self._words = iter(())
        self._ms = -1

    def _advance(self) -> None:
        """Step to the next id: a new millisecond draws afresh, the same one counts on.

        Counting on by a random step keeps order. There is room for eight million ids in one
        millisecond (2**39 by steps of at most 2**16); after them the next one is borrowed.
        """
        now_ms = self._now_ms()
        if now_ms <= self._ms:
            self._low += 1 + (self._word() & 0xFFFF)
            if self._low <= _LOW_40:
                return
            now_ms = self._ms + 1
        word = self._word()
        high = _VERSION | word >> 52 << 24 | _VARIANT | word & 0x3FFFFF
        self._head = _time_digits(now_ms) + _digits(high)
        self._ms, self._high = now_ms, high
        self._low = self._word() >> 25  # 39 bits: the upper half is left for counting on

    def _word(self) -> int:
        for word in self._words:
            return word
        self._words = iter(_WORDS.unpack(self._random_bytes(_WORDS.size)))
        return next(self._words)


_sources: weakref.WeakSet[IdSource] = weakref.WeakSet()


def _forget_all() -> None:
    for source in list(_sources):
        source.forget()


if hasattr(os, "register_at_fork"):
    # A prefork server imports the app, draws ids, and forks: without this each child would hand
    # out the same "random" bytes.
    os.register_at_fork(after_in_child=_forget_all)


def _low_80(random_bytes: bytes) -> int:
    if len(random_bytes) != 10:
        raise ValueError(f"a UUIDv7 takes 10 random bytes, not {len(random_bytes)}")
    drawn = int.from_bytes(random_bytes, "big")
    return (_VERSION | drawn >> 68 << 24 | _VARIANT) << 40 | drawn >> 6 & (2**62 - 1)


def _checked_time(now_ms: int) -> int:
    if not 0 <= now_ms <= TIME_MS_MAX:
        raise ValueError(f"a time is 0 to {TIME_MS_MAX} milliseconds, not {now_ms}")
    return now_ms


def _time_digits(now_ms: int) -> str:
    ms = _checked_time(now_ms)
    return _PAIRS[ms >> 40] + _digits(ms & _LOW_40)


def _digits(number: int) -> str:
    """Give the eight digits of 40 bits."""
    upper, lower = number >> 20, number & 0xFFFFF
    return f"{_PAIRS[upper >> 10]}{_PAIRS[upper & 1023]}{_PAIRS[lower >> 10]}{_PAIRS[lower & 1023]}"
