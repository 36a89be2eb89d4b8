"""One HTTP request over a connection of its own, answered whole or not at all.

For the sender, who must know the difference: a reply that was cut off is no reply.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

REPLY_BYTES_MAX = 1024 * 1024


class Unanswered(Exception):
    """No whole reply came: refused, cut off, or too late."""


@dataclass(frozen=True)
class Reply:
    """A whole reply."""

    status: int
    body: bytes

    def json(self) -> Any:
        """Give the body's JSON value."""
        return json.loads(self.body)


async def exchange(
    port: int,
    method: str,
    path: str,
    *,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    seconds: float = 10,
) -> Reply:
    """Send a request to a port of the loopback address and give the reply.

    Raises:
        Unanswered: there is none within *seconds*.
    """
    head = {
        "Host": f"127.0.0.1:{port}",
        "Connection": "close",
        "Content-Length": str(len(body)),
        **(headers or {}),
    }
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items()), "", ""]
    request = "\r\n".join(lines).encode("latin-1") + body
    try:
        async with asyncio.timeout(seconds):
            return _reply(await _sent(port, request))
    except (OSError, TimeoutError, ValueError, IndexError) as error:
        raise Unanswered(f"{method} {path}: {type(error).__name__}") from error


async def _sent(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        await writer.drain()
        return await _read_all(reader)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _read_all(reader: asyncio.StreamReader) -> bytes:
    received = b""
    while len(received) < REPLY_BYTES_MAX:
        chunk = await reader.read(65_536)
        if not chunk:
            break
        received += chunk
    return received


def _reply(received: bytes) -> Reply:
    head, separator, body = received.partition(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    lengths = [
        int(line.partition(b":")[2])
        for line in head.split(b"\r\n")[1:]
        if line.lower().startswith(b"content-length:")
    ]
    if not separator or (lengths and len(body) < lengths[0]):
        raise ValueError("cut off")
    return Reply(status, body)
