"""Server-sent events: a line when something changed, and how far a bulk action has come.

A stream ends by itself after a while and its reader asks again: so who lost the right to look stops
seeing, and a server that stops does not wait for its watchers for long.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Any

import msgspec

from onceward.console.port import Console
from onceward.console.views import BulkReply
from onceward.core.errors import OncewardError

STREAM_SECONDS = 20.0
STREAMS_MAX = 200
RETRY_MS = 1_500


@dataclass(frozen=True)
class Stream:
    """A reply that goes on: lines of ``text/event-stream``."""

    lines: AsyncGenerator[bytes, None]


async def changes(console: Console) -> AsyncGenerator[bytes, None]:
    """Give an event whenever something may have changed."""
    found: Any = aiter(console.changed())
    over_at = time.monotonic() + STREAM_SECONDS
    try:
        yield b"retry: %d\n\nevent: open\ndata: -\n\n" % RETRY_MS
        with contextlib.suppress(TimeoutError, StopAsyncIteration, OncewardError):
            while True:
                # Not asyncio.timeout around a yield: it would cut whoever reads this.
                await asyncio.wait_for(anext(found), max(0.0, over_at - time.monotonic()))
                yield b"event: change\ndata: -\n\n"
    finally:
        await _close(found)


async def progress(reports: AsyncIterator[BulkReply]) -> AsyncGenerator[bytes, None]:
    """Give an event for each report, the last one when all is over or the time of a stream is."""
    over_at = time.monotonic() + STREAM_SECONDS
    try:
        yield b"retry: %d\n\n" % RETRY_MS
        with contextlib.suppress(TimeoutError, StopAsyncIteration):
            while True:
                report = await asyncio.wait_for(anext(reports), max(0.0, over_at - time.monotonic()))
                yield b"event: progress\ndata: %s\n\n" % msgspec.json.encode(report)
    finally:
        await _close(reports)


async def _close(source: object) -> None:
    if isinstance(source, AsyncGenerator):
        await source.aclose()
