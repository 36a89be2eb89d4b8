"""Leads what httpx, httpx2, requests and aiohttp send to the test's own services; nothing leaves the test.

Below the clients of these libraries, where hooks of theirs have run: what `onceward.outgoing` adds
is seen. Those that are installed are imported for it, since a step may import one in its body.
"""

from __future__ import annotations

import contextlib
import functools
import ssl
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from onceward.testing.kit.http import Answer, Asked

if TYPE_CHECKING:
    from onceward.testing.kit.outside import Outside

TLS = ssl.PROTOCOL_TLS_CLIENT


@contextlib.contextmanager
def patched(outside: Outside) -> Iterator[None]:
    """Answer every request of these libraries from *outside* for a while."""
    with contextlib.ExitStack() as stack:
        if find_spec("httpx") is not None:
            import httpx

            _httpx(stack, httpx, outside)
        if find_spec("httpx2") is not None:
            import httpx2

            _httpx(stack, httpx2, outside)
        if find_spec("requests") is not None:
            _requests(stack, outside)
        if find_spec("aiohttp") is not None:
            _aiohttp(stack, outside)
        yield


def _put(stack: contextlib.ExitStack, owner: Any, name: str, value: Callable[..., Any]) -> None:
    stack.callback(setattr, owner, name, getattr(owner, name))
    setattr(owner, name, value)


def _httpx(stack: contextlib.ExitStack, httpx: Any, outside: Outside) -> None:
    def answered(request: Any, body: bytes) -> Any:
        answer = outside.http.ask(_asked(request.method, str(request.url), request.headers, body))
        return httpx.Response(
            answer.status, headers=answer.sent_headers(), content=answer.content(), request=request
        )

    def handle(_self: Any, request: Any) -> Any:
        return answered(request, request.read())

    async def handle_async(_self: Any, request: Any) -> Any:
        return answered(request, await request.aread())

    inner: Any = sys.modules.get(f"{httpx.__name__}._transports.default")
    if hasattr(inner, "create_ssl_context"):
        # Read from disk for every client, which takes longer than everything else in a test.
        _put(stack, inner, "create_ssl_context", lambda *_, **__: _no_tls())
    _put(stack, httpx.HTTPTransport, "handle_request", handle)
    _put(stack, httpx.AsyncHTTPTransport, "handle_async_request", handle_async)


@functools.cache
def _no_tls() -> ssl.SSLContext:
    """Give a context that knows no certificates: no connection is made."""
    return ssl.SSLContext(TLS)


def _requests(stack: contextlib.ExitStack, outside: Outside) -> None:
    import io

    import requests
    from requests.adapters import HTTPAdapter

    def send(_self: Any, request: Any, **_options: Any) -> Any:
        body = request.body or b""
        content = body.encode() if isinstance(body, str) else bytes(body)
        answer = outside.http.ask(_asked(request.method, request.url, request.headers, content))
        response: Any = requests.Response()
        response.status_code = answer.status
        response.headers.update(answer.sent_headers())
        response.raw = io.BytesIO(answer.content())
        response.url, response.request, response.connection = request.url, request, _self
        response.encoding = "utf-8"
        return response

    _put(stack, HTTPAdapter, "send", send)


def _aiohttp(stack: contextlib.ExitStack, outside: Outside) -> None:
    import asyncio

    from aiohttp import TCPConnector
    from aiohttp.client_proto import ResponseHandler

    from onceward.testing.kit.wire import Wire

    async def create_connection(_self: Any, request: Any, *_: Any, **__: Any) -> Any:
        protocol = ResponseHandler(asyncio.get_running_loop())
        origin = str(request.url.origin())

        def ask(method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
            return outside.http.ask(_asked(method, origin + path, headers, body))

        wire = Wire(ask, protocol.data_received)
        protocol.connection_made(wire)
        return protocol

    _put(stack, TCPConnector, "_create_connection", create_connection)


def _asked(method: str, url: str, headers: Any, body: bytes) -> Asked:
    lower = {_text(name).lower(): _text(value) for name, value in headers.items()}
    return Asked(method.upper(), url, lower, body)


def _text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
