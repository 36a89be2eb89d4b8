"""Connections whose requests must begin in time and within bounds.

The receiver bounds what it is given, which is what follows a whole head. What comes before, uvicorn
keeps for as long as it comes: by its fast parser without a limit, 100 MB of one header are 100 MB
of memory, and a head that never ends holds its connection for ever.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import deque
from collections.abc import Iterable
from http import HTTPStatus
from time import monotonic
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from onceward.core.messages import HttpResponse
from onceward.web import replies

HEAD_SECONDS_MAX = 30.0
"""The longest time from a connection, or the first byte of its next request, to the head's end."""
# Of what is no body in one go; the receiver's own limit for headers is lower and tells more.
_BYTES_MAX = 128 * 1024
# Requests that one connection may send ahead; no sender of deliveries does it at all.
_PIPELINED_MAX = 256
# For how long what still comes is thrown away, so that its sender reads the reply before it is reset.
_LINGER_SECONDS = 5.0

_log = logging.getLogger("onceward.receiver")


class TimedHead(asyncio.Protocol):
    """What is added to uvicorn's protocols: a time for the head; see `sweep`."""

    # uvicorn's: the request under way or the last one, None before the first.
    cycle: Any
    transport: asyncio.Transport
    _since: float | None = None
    _has_begun = False
    _is_cut = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the time of the first head."""
        super().connection_made(transport)
        self._since = monotonic()

    def data_received(self, data: bytes) -> None:
        """Pass on what comes, and note whether a head is still awaited."""
        if self._is_cut:
            return
        self._has_begun = True
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self._since = None
        elif self._since is None and before.response_complete:
            # The next head has begun, or the rest of a body that was refused still comes.
            self._since = monotonic()

    def check_time(self, now: float) -> None:
        """End a connection that was waited for too long."""
        if self._since is None or now - self._since <= (
            _LINGER_SECONDS if self._is_cut else HEAD_SECONDS_MAX
        ):
            return
        if self._has_begun and self.cycle is None and not self._is_cut:
            self.cut(replies.BODY_TOO_SLOW, "the head took too long")
        else:
            self.transport.abort()

    def cut(self, reply: HttpResponse, check: str) -> None:
        """Answer and take no more of the connection."""
        self._is_cut, self._since = True, monotonic()
        _log.warning("request refused: status=%d check=%r", reply.status, check)
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.abort()  # a reply is under way, into which this one would run
        elif not self.transport.is_closing():
            self.transport.write(_written(reply))
            if self.transport.can_write_eof():
                self.transport.write_eof()


class BoundedH11(TimedHead, H11Protocol):
    """uvicorn's protocol in Python; h11 bounds the head by itself."""


def protocol_class() -> type[asyncio.Protocol]:
    """Give the protocol for uvicorn: by the fast parser where that is installed."""
    try:
        from httptools import HttpRequestParser
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
    except ImportError:
        return BoundedH11

    class BoundedHttpTools(TimedHead, HttpToolsProtocol):
        """uvicorn's fast protocol, with a bound on heads, trailers and whatever else is no body."""

        _unread = 0
        _is_head = True
        _offer_at: int | None = None  # where the head ended that offered to upgrade
        _is_repeated = False  # the head that comes is of the request that is known

        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            # Those not answered, the one under way first: uvicorn 0.54 tells only the last that its
            # connection is gone, and the reply of the others is an exception in the log.
            self._unanswered: deque[Any] = deque()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            for cycle in self._unanswered:
                cycle.disconnected = True
                cycle.message_event.set()

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self._is_head = True

        def on_header(self, name: bytes, value: bytes) -> None:
            # A trailer is none (RFC 9110, 6.5.1). uvicorn 0.54 adds it to the headers, behind the back
            # of whoever looked at those before the body was read, as a proxy does.
            if self._is_head:
                super().on_header(name, value)

        def data_received(self, data: bytes) -> None:
            self._unread += len(data)  # until the parser says that it got somewhere
            super().data_received(data)
            while (offer_at := self._offer_at) is not None:
                data, self._offer_at = data[offer_at:], None
                self._go_on_without_upgrade()
                super().data_received(data)
            if self._unread > _BYTES_MAX and not self._is_cut:
                self.cut(replies.HEADERS_TOO_LARGE, f"more than {_BYTES_MAX} bytes that are no body")

        def _unsupported_upgrade_warning(self) -> None:
            # Called where httptools raised HttpParserUpgrade, which says how far it came.
            upgrade = sys.exception()
            assert upgrade is not None
            self._offer_at = upgrade.args[0]

        def _go_on_without_upgrade(self) -> None:
            """Take a request that offers to upgrade as if it did not (RFC 9110, 7.8).

            Java's HttpClient offers HTTP/2 with each request over http. httptools 0.9 then says that the
            request is over, and has no body: https://github.com/Kludex/uvicorn/issues/2722.
            """
            framing = [
                b"%b: %b\r\n" % pair
                for pair in self.headers
                if pair[0] in (b"content-length", b"transfer-encoding")
            ]
            self.cycle.more_body = True
            self.cycle.message_event.clear()
            self.parser, self._is_repeated = HttpRequestParser(self), True
            self.parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n" % b"".join(framing))

        def on_headers_complete(self) -> None:
            self._unread, self._is_head = 0, False
            if self._is_repeated:
                self._is_repeated = False
                return
            if len(self.pipeline) >= _PIPELINED_MAX:
                self.cut(replies.BUSY, f"more than {_PIPELINED_MAX} requests before the first reply")
                raise ValueError("no more requests are parsed")
            before = self.cycle
            super().on_headers_complete()
            if self.cycle is not before:
                self._unanswered.append(self.cycle)

        def on_body(self, body: bytes) -> None:
            self._unread = 0
            super().on_body(body)

        def on_response_complete(self) -> None:
            self._unanswered.popleft()
            super().on_response_complete()
            if self.pipeline:
                # uvicorn 0.54 reads on after each reply, so that a sender that never waits for one
                # fills the memory with requests, 20 MB of them with more than a gigabyte.
                self.flow.pause_reading()

    return BoundedHttpTools


def sweep(connections: Iterable[Any], now: float) -> None:
    """End those connections that were waited for too long; called about once a second.

    Args:
        connections: protocols of `protocol_class`.
        now: by `time.monotonic`.
    """
    for connection in list(connections):
        connection.check_time(now)


def _written(reply: HttpResponse) -> bytes:
    lines = [
        f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}".encode(),
        *(b"%b: %b" % pair for pair in reply.headers if pair[0] not in (b"connection", b"content-length")),
        b"content-length: %d" % len(reply.body),
        b"connection: close",
    ]
    return b"\r\n".join([*lines, b"", reply.body])
