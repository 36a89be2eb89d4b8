"""Telling open pages that something may have changed; they fetch themselves again.

A stream ends by itself after a while and the browser asks again: so a session that is over stops
seeing, and a server that stops does not wait for its watchers for long.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from starlette.responses import Response, StreamingResponse

from onceward.console.port import Console
from onceward.core.errors import OncewardError
from onceward.web.dashboard.render import HEADERS

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

STREAM_SECONDS = 20.0
STREAMS_MAX = 200
RETRY_MS = 1_500


class Live:
    """The streams of one dashboard.

    Args:
        console: says when something may have changed.
        stream_seconds: how long one goes on.
        streams_max: how many there may be at once.
    """

    def __init__(
        self, console: Console, *, stream_seconds: float = STREAM_SECONDS, streams_max: int = STREAMS_MAX
    ) -> None:
        self._console = console
        self._stream_seconds = stream_seconds
        self._streams_max = streams_max
        self._open = 0

    async def serve(self, _request: Request) -> Response:
        """Answer with a stream of server-sent events; 503 where there are too many."""
        return _Counted(self)

    def take(self) -> bool:
        """Count one more, if there may be one; `give_back` it."""
        if self._open >= self._streams_max:
            return False
        self._open += 1
        return True

    def give_back(self) -> None:
        """Count one less."""
        self._open -= 1

    async def lines(self) -> AsyncGenerator[str, None]:
        """Give the events of one stream."""
        changes = aiter(self._console.changed())
        over_at = time.monotonic() + self._stream_seconds
        try:
            yield f"retry: {RETRY_MS}\n\nevent: open\ndata: -\n\n"
            while True:
                # Not asyncio.timeout around a yield: it would cut whoever reads this.
                await asyncio.wait_for(anext(changes), max(0.0, over_at - time.monotonic()))
                yield "event: change\ndata: -\n\n"
        except (TimeoutError, StopAsyncIteration, OncewardError):
            pass  # the browser asks again
        finally:
            if isinstance(changes, AsyncGenerator):
                await changes.aclose()


class _Counted(Response):
    """One stream, counted from the moment it is let through to its end, whether or not anything was read of it."""

    def __init__(self, live: Live) -> None:
        super().__init__()
        self._live = live

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Nothing is awaited between the question and the count: else a burst would pass together.
        if not self._live.take():
            refusal = Response("Too many pages are open.", 503, headers={**HEADERS, "Retry-After": "10"})
            await refusal(scope, receive, send)
            return
        lines = self._live.lines()
        try:
            stream = StreamingResponse(
                lines, media_type="text/event-stream", headers={**HEADERS, "X-Accel-Buffering": "no"}
            )
            await stream(scope, receive, send)
        finally:
            self._live.give_back()
            await lines.aclose()
