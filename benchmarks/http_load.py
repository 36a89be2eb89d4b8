"""A load of HTTP requests from one process: as fast as the replies come, or at a given rate.

Bare sockets, no library: what the load costs must not be what is measured.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

CONNECTIONS = 64
TICK_S = 0.001
DRAIN_SECONDS_MAX = 30.0


@dataclass
class Replies:
    """What came of a load.

    Attributes:
        statuses: how many of each.
        took: seconds of each request; at a given rate from when it was due, so that a server that
            stalls is charged for everything that it holds up.
        wall_s: from the first request to the last reply.
    """

    statuses: Counter[int] = field(default_factory=Counter)
    took: list[float] = field(default_factory=list)
    wall_s: float = 0.0

    @property
    def per_s(self) -> float:
        """Give the replies a second."""
        return round(sum(self.statuses.values()) / self.wall_s, 1)

    @property
    def are_2xx(self) -> bool:
        """Say whether every reply is one."""
        return bool(self.statuses) and all(200 <= status < 300 for status in self.statuses)


class _Connection(asyncio.Protocol):
    """One connection with one request at a time."""

    def __init__(self, load: _Load) -> None:
        self._load = load
        self._received = b""
        self._since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._load.free(self)

    def send(self, request: bytes, since: float) -> None:
        self._since = since
        self._transport.write(request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, mark, body = self._received.partition(b"\r\n\r\n")
        if not mark:
            return
        at = head.lower().find(b"content-length:")
        length = int(head[at + 15 :].partition(b"\r")[0]) if at >= 0 else 0
        if len(body) >= length:
            self._received = b""
            self._load.replied(int(head[9:12]), self._since)
            self._load.free(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (asyncio's)
        self._load.lost()


class _Load:
    def __init__(self, requests: Iterator[bytes], until: float, *, is_open: bool) -> None:
        self._requests = requests
        self._until = until
        self._idle: deque[_Connection] = deque()
        self._due: deque[float] = deque()
        self._is_open_loop = is_open
        self._under_way = 0
        self._is_over = asyncio.get_running_loop().create_future()
        self.has_ended = False
        self.replies = Replies()
        self.last = 0.0

    # --- as fast as it goes -------------------------------------------------------------------

    def free(self, connection: _Connection) -> None:
        """Hear that a connection has nothing to do."""
        now = time.perf_counter()
        if self._is_open_loop:
            if self._due:
                self._send(connection, self._due.popleft())
            else:
                self._idle.append(connection)
        elif now < self._until:
            self._send(connection, now)
        self._end_if_done(now)

    def _send(self, connection: _Connection, since: float) -> None:
        request = next(self._requests, None)
        if request is None:
            self._until = 0.0
            return
        self._under_way += 1
        connection.send(request, since)

    def replied(self, status: int, since: float) -> None:
        """Hear of a reply."""
        self.last = time.perf_counter()
        self._under_way -= 1
        self.replies.statuses[status] += 1
        self.replies.took.append(self.last - since)

    def lost(self) -> None:
        """Hear that a connection is closed; before the end that is an error."""
        if not self.has_ended and not self._is_over.done():
            self._is_over.set_exception(ConnectionError("the server closed a connection"))

    def _end_if_done(self, now: float) -> None:
        if self._under_way == 0 and not self._due and now >= self._until and not self._is_over.done():
            self._is_over.set_result(None)

    # --- at a rate ----------------------------------------------------------------------------

    async def at_rate(self, per_s: float, seconds: float) -> None:
        """Make requests due, evenly, and send each as soon as a connection is free."""
        began = time.perf_counter()
        self._until = began + seconds
        made, count = 0, int(per_s * seconds)
        while made < count:
            now = time.perf_counter()
            while made < count and began + made / per_s <= now:
                due = began + made / per_s
                made += 1
                if self._idle:
                    self._send(self._idle.popleft(), due)
                else:
                    self._due.append(due)
            await asyncio.sleep(TICK_S)
        self._until = 0.0
        self._end_if_done(time.perf_counter())

    async def over(self) -> None:
        """Return when every request is answered."""
        async with asyncio.timeout(DRAIN_SECONDS_MAX + max(0.0, self._until - time.perf_counter())):
            await self._is_over


async def _loaded(
    port: int, requests: Iterator[bytes], seconds: float, per_s: float | None, connections: int
) -> Replies:
    loop = asyncio.get_running_loop()
    load = _Load(requests, time.perf_counter() + seconds, is_open=per_s is not None)
    began = time.perf_counter()
    made = [
        await loop.create_connection(lambda: _Connection(load), "127.0.0.1", port) for _ in range(connections)
    ]
    if per_s is not None:
        await load.at_rate(per_s, seconds)
    await load.over()
    load.has_ended = True
    for transport, _ in made:
        transport.close()
    load.replies.wall_s = load.last - began
    return load.replies


async def closed_loop(port: int, requests: Iterator[bytes], seconds: float) -> Replies:
    """Send the next request over each connection as soon as the last one is answered."""
    return await _loaded(port, requests, seconds, None, CONNECTIONS)


async def open_loop(port: int, requests: Iterator[bytes], seconds: float, per_s: float) -> Replies:
    """Send so many requests a second, whatever the server does."""
    return await _loaded(port, requests, seconds, per_s, CONNECTIONS)
