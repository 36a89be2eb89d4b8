"""What tests of every layer need: waiting for something that happens soon, with a deadline."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from onceward.core.shown import shown

T = TypeVar("T")

POLL_SECONDS = 0.01


def eventually(predicate: Callable[[], T], within_s: float = 10, *, what: str = "") -> T:
    """Give the predicate's first truthy value; fail when there is none within the time.

    Args:
        predicate: called again and again; what it raises fails the test at once.
        within_s: seconds.
        what: what was waited for, for the failure's text; the predicate's name when not given.
    """
    deadline = time.monotonic() + within_s
    while True:
        value = predicate()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within_s} s: {what or predicate!r}; last value: {value!r}")
        time.sleep(POLL_SECONDS)


async def eventually_async(
    predicate: Callable[[], Awaitable[T]], within_s: float = 10, *, what: str = ""
) -> T:
    """``eventually`` for a predicate that is awaited; the event loop runs on between the tries."""
    deadline = time.monotonic() + within_s
    while True:
        value = await predicate()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within_s} s: {what or predicate!r}; last value: {value!r}")
        await asyncio.sleep(POLL_SECONDS)


def named(value: object) -> str:
    """Give a parameter's id: what it shows as, without what differs in each process.

    Addresses do, and the order of sets.
    """
    if isinstance(value, set | frozenset):
        return f"{type(value).__name__} of {', '.join(sorted(map(named, value)))}"
    return re.sub(r" at 0x[0-9a-f]+", "", shown(value))
