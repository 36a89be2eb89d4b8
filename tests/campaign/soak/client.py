"""Requests over connections that are kept, as a sender or a browser makes them: bare streams, so that they cost little."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

CONNECTIONS_MAX = 32
REPLY_SECONDS_MAX = 60.0


class Reply(NamedTuple):
    """What came back: status 0 when nothing did."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Give the body as what it says."""
        return json.loads(self.body)


NO_REPLY = Reply(0, {}, b"")


class Client:
    """Asks one server; further requests wait while all connections are busy.

    Args:
        port: of a server on the loopback address.
        headers: of every request.
    """

    def __init__(self, port: int, headers: Mapping[str, str] | None = None) -> None:
        self.port = port
        self.headers = dict(headers or {})
        self._idle: deque[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = deque()
        self._free = asyncio.Semaphore(CONNECTIONS_MAX)

    async def ask(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Reply:
        """Send one request and give the reply; one that had none is never sent again."""
        request = self.request(method, path, body, headers)
        async with self._free:
            try:
                async with asyncio.timeout(REPLY_SECONDS_MAX):
                    pair = self._idle.popleft() if self._idle else await self._connected()
                    return await self._asked(pair, request)
            except (OSError, EOFError, TimeoutError, asyncio.IncompleteReadError):
                return NO_REPLY

    async def drop(self, request: bytes, *, after_s: float) -> None:
        """Send what may be less than a request, read for a while and go away without a word."""
        with contextlib.suppress(OSError, TimeoutError):
            reader, writer = await self._connected()
            try:
                writer.write(request)
                async with asyncio.timeout(after_s):
                    while await reader.read(65_536):
                        pass
            finally:
                writer.transport.abort()

    def request(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> bytes:
        """Give the bytes of a request."""
        lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{self.port}", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in {**self.headers, **(headers or {})}.items()]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + body

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def _asked(self, pair: tuple[asyncio.StreamReader, asyncio.StreamWriter], request: bytes) -> Reply:
        reader, writer = pair
        is_kept = False
        try:
            writer.write(request)
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.rstrip().split("\r\n")
            headers = {
                name.strip().lower(): value.strip()
                for name, _, value in (line.partition(":") for line in lines)
            }
            body = await _body(reader, headers)
            is_kept = headers.get("connection", "").lower() != "close"
            return Reply(int(first.split()[1]), headers, body)
        finally:
            if is_kept:
                self._idle.append(pair)
            else:
                writer.transport.abort()

    def close(self) -> None:
        """Close what is open."""
        while self._idle:
            _, writer = self._idle.popleft()
            writer.transport.abort()


async def _body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() != "chunked":
        return await reader.readexactly(int(headers.get("content-length", 0)))
    parts = []
    while size := int((await reader.readline()).split(b";")[0], 16):
        parts.append(await reader.readexactly(size))
        await reader.readline()
    await reader.readline()
    return b"".join(parts)
