"""A connection to nowhere: what is written to it is read as an HTTP/1.1 request and answered at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from onceward.testing.kit.http import Answer

Ask = Callable[[str, str, dict[str, str], bytes], Answer]

END = b"\r\n\r\n"


class Wire(asyncio.Transport):
    """The client's end of one connection, for one request.

    Args:
        ask: gives the answer to method, path, headers and body.
        received: is given the bytes of the answer.
    """

    def __init__(self, ask: Ask, received: Callable[[bytes], None]) -> None:
        super().__init__()
        self._ask = ask
        self._received = received
        self._sent = bytearray()
        self._is_answered = self._is_closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Take a part of the request; the last part is answered, in the context of whoever writes it."""
        self._sent += data
        request = None if self._is_answered else _read(bytes(self._sent))
        if request is None:
            return
        self._is_answered = True
        answer = self._ask(*request)
        head = [f"HTTP/1.1 {answer.status} Answered", "Connection: close"]
        head += [f"{name}: {value}" for name, value in answer.sent_headers().items()]
        content = "\r\n".join(head).encode("latin-1") + END + answer.content()
        asyncio.get_running_loop().call_soon(self._received, content)

    def writelines(self, list_of_data: Any) -> None:
        """Take several parts."""
        for data in list_of_data:
            self.write(data)

    def is_closing(self) -> bool:
        """Say whether it was closed."""
        return self._is_closing

    def close(self) -> None:
        """Close it."""
        self._is_closing = True

    abort = close

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ARG002
        """Know nothing of a socket: there is none."""
        return default

    def pause_reading(self) -> None:
        """Read on; it is all there."""

    resume_reading = pause_reading

    def get_write_buffer_size(self) -> int:
        """Give what is not yet taken: nothing."""
        return 0


def _read(sent: bytes) -> tuple[str, str, dict[str, str], bytes] | None:
    """Give method, path, headers and body of a request, or None while it is not whole."""
    head, end, rest = sent.partition(END)
    if not end:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, _version = first.split(" ", 2)
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    if "chunked" in headers.get("transfer-encoding", ""):
        body = _chunks(rest)
    else:
        length = int(headers.get("content-length", "0"))
        body = rest[:length] if len(rest) >= length else None
    return None if body is None else (method, path, headers, body)


def _chunks(rest: bytes) -> bytes | None:
    body = b""
    while True:
        size, end, rest = rest.partition(b"\r\n")
        if not end:
            return None
        count = int(size.split(b";")[0], 16)
        if count == 0:
            return body
        if len(rest) < count + 2:
            return None
        body, rest = body + rest[:count], rest[count + 2 :]
