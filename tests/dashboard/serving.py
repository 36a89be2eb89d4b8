"""The dashboard of any console, served on a port of this machine from a thread of its own."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Self

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

from onceward.console.port import Console
from onceward.web.access import Principal, Role
from onceward.web.dashboard.site import routes
from tests.helpers import eventually

OPERATOR = Principal(name="sam", role=Role.OPERATOR, csrf="token-of-sam")
PREFIX = "/deep/ops"
"""The dashboard must not care where it is mounted."""


class Site:
    """A served dashboard.

    Args:
        console: what it shows, or, to be made in the server's loop, a context manager that gives it.
    """

    def __init__(self, console: Console | Callable[[], AbstractAsyncContextManager[Console]]) -> None:
        self.principal: Principal | None = OPERATOR
        self._make = console
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}{PREFIX}/"
        self.loop: asyncio.AbstractEventLoop | None = None
        app = Starlette(lifespan=self._lifespan)
        self._app = app
        config = uvicorn.Config(app, log_level="warning", lifespan="on", timeout_graceful_shutdown=1)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="dashboard-of-a-test")

    def _run(self) -> None:
        asyncio.run(self._server.serve(sockets=[self._socket]))

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        self.loop = asyncio.get_running_loop()
        if callable(self._make):
            async with self._make() as console:
                self._mount(app, console)
                yield
        else:
            self._mount(app, self._make)
            yield

    def _mount(self, app: Starlette, console: Console) -> None:
        mounted = routes(console, lambda _request: self.principal, api="../api/v1")
        app.router.routes.append(Mount(PREFIX, routes=mounted))

    def call(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Call something in the server's loop."""
        assert self.loop is not None
        self.loop.call_soon_threadsafe(function, *arguments)

    def __enter__(self) -> Self:
        self._thread.start()
        eventually(lambda: self._server.started or not self._thread.is_alive(), 20, what="the server")
        assert self._server.started
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(20)
        assert not self._thread.is_alive()
