"""Telling open pages that something may have changed; they fetch themselves again.

A stream ends by itself after a while and the browser asks again: so a session that is over stops
seeing, and a server that stops does not wait for its watchers for long.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TYPE_CHECKING

from starlette.responses import Response, StreamingResponse

from onceward.console.port import Console
from onceward.core.errors import OncewardError
from onceward.web.dashboard.render import HEADERS

if TYPE_CHECKING:
    from starlette.requests import Request

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
        if self._open >= self._streams_max:
            return Response("Too many pages are open.", 503, headers={"Retry-After": "10"})
        return StreamingResponse(
            self._stream(), media_type="text/event-stream", headers={**HEADERS, "X-Accel-Buffering": "no"}
        )

    async def _stream(self) -> AsyncIterator[str]:
        self._open += 1
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
            self._open -= 1
            if isinstance(changes, AsyncGenerator):
                await changes.aclose()
