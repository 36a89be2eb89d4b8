"""Leads what httpx, httpx2, requests and aiohttp send to the test's own services; nothing leaves the test.

Below the clients of these libraries, where hooks of theirs have run: what `onceward.outgoing` adds
is seen. A step may import one in its body, so those that are not imported yet are changed when they are.
"""

from __future__ import annotations

import contextlib
import functools
import ssl
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from onceward.testing.kit.http import Answer, Asked

if TYPE_CHECKING:
    from onceward.testing.kit.outside import Outside

TLS = ssl.PROTOCOL_TLS_CLIENT


@contextlib.contextmanager
def patched(outside: Outside) -> Iterator[None]:
    """Answer every request of these libraries from *outside* for a while."""
    with contextlib.ExitStack() as stack:
        late = Late(
            {
                "httpx": lambda module: _httpx(stack, module, outside),
                "httpx2": lambda module: _httpx(stack, module, outside),
                "requests": lambda _: _requests(stack, outside),
                "aiohttp": lambda _: _aiohttp(stack, outside),
            }
        )
        sys.meta_path.insert(0, late)
        stack.callback(sys.meta_path.remove, late)
        yield


class Late(MetaPathFinder):
    """Changes modules: those that are imported already at once, others when they are.

    Importing them for it would take longer than many a test.

    Args:
        changes: what is done to which module.
    """

    def __init__(self, changes: Mapping[str, Callable[[Any], None]]) -> None:
        self._changes = dict(changes)
        for name in [name for name in changes if name in sys.modules]:
            self._changes.pop(name)(sys.modules[name])

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Give the spec that the others find, with the change after the module's own code."""
        change = self._changes.pop(fullname, None)
        if change is None:
            return None
        for finder in [finder for finder in sys.meta_path if finder is not self]:
            spec = finder.find_spec(fullname, path, target)
            if spec is not None and spec.loader is not None:
                _afterwards(spec.loader, change)
                return spec
        return None


def _afterwards(loader: Loader, change: Callable[[Any], None]) -> None:
    """Let a loader, which is one module's alone, change what it has loaded."""
    execute = loader.exec_module

    def both(module: ModuleType) -> None:
        execute(module)
        change(module)

    setattr(loader, "exec_module", both)  # noqa: B010 - a method, to the type checker


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
