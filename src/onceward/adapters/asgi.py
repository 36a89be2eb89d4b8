"""Any ASGI application; the adapters of FastAPI, Starlette and Litestar stand on this one.

The app lives in the server's own event loop: opened when the web application starts, closed when
it ends. Verbs are awaited; ``sync`` has them for plain functions, which run in threads.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from onceward.adapters.front import (
    DEFAULT_PATH,
    AsgiApplication,
    AsgiFront,
    AsgiLife,
    checked_app,
    checked_path,
)
from onceward.app import App
from onceward.sync import SyncApp


class AsgiVerbs:
    """What every adapter for an ASGI framework has.

    Args:
        app: whose deliveries are received, and whose verbs these are.
        runs: whether the web processes run workflows too, or only accept, start and steer; then
            ``onceward worker`` runs them.

    Attributes:
        app: the app.
        emit: store an event; see `App.emit`.
        start: start a run; see `App.start`.
        run: give a handle on a run by its id; see `App.run`.
    """

    def __init__(self, app: App, *, runs: bool = True) -> None:
        self.app = checked_app(app)
        self.emit = app.emit
        self.start = app.start
        self.run = app.run
        self._runs = runs

    @property
    def sync(self) -> SyncApp:
        """Give the same verbs, blocking, for handlers that are plain functions."""
        return self.app.sync

    async def open(self) -> None:
        """Open the app in this event loop; see `App.open`."""
        await self.app.open(runs=self._runs)

    async def close(self) -> None:
        """Close it; see `App.close`."""
        await self.app.close()

    @contextlib.asynccontextmanager
    async def lifespan(self, *_: Any) -> AsyncIterator[None]:
        """Keep the app open for as long as the block runs; `mount` does it by itself.

        Raises:
            OncewardError: as `App.open`; the web application does not start then.
        """
        await self.open()
        try:
            yield
        finally:
            await self.close()


class Adapter(AsgiVerbs):
    """Puts the receiver before an ASGI application; see `AsgiVerbs` for its verbs."""

    def mount(self, application: AsgiApplication, path: str = DEFAULT_PATH) -> AsgiApplication:
        """Give the application that the server is to serve.

        Args:
            application: yours; its own lifespan runs while the app is open.
            path: deliveries come in at ``POST <path>/hooks/<source>``, health is at ``<path>/healthz``.

        Raises:
            ConfigError: the path cannot be used.
        """
        front = AsgiFront(self.app.asgi(), application, checked_path(path))
        return AsgiLife(front, self.open, self.close)
