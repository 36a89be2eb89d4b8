"""The site of an app behind a real uvicorn, in a thread with an event loop of its own."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from typing import Self

import uvicorn

from onceward import App
from onceward.web.access import Role
from onceward.web.site import accounts_of, site_for
from tests.web.site_world import CHEAP

START_SECONDS = 30


class Server:
    """The site of an app behind a real uvicorn, in a thread."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.token = ""
        self._started = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        site = site_for(app, api=True, dashboard=False, cost=CHEAP)
        config = uvicorn.Config(site, log_config=None, access_log=False, timeout_graceful_shutdown=5)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        async with self.app:
            self.token = accounts_of(self.app, cost=CHEAP).add_token("fuzz", Role.OPERATOR, actor="test")
            self._started.set()
            with contextlib.suppress(asyncio.CancelledError):
                await self._server._serve([self._listener])

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(START_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(START_SECONDS)
        self._listener.close()
