"""Django, under WSGI and under ASGI.

The app lives in a thread of its own in both, so that the verbs are the same in every view and
Django's blocking code never holds up a run.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from onceward.adapters.blocking import BlockingVerbs
from onceward.adapters.front import DEFAULT_PATH, AsgiApplication, AsgiFront, AsgiLife, checked_path
from onceward.adapters.wsgi import WsgiFront
from onceward.adapters.wsgi_receiver import WsgiReceiver, unopened
from onceward.core import errors
from onceward.core.shown import shown
from onceward.web.receiver import Receive, Scope, Send, send_response

T = TypeVar("T")
ApplicationT = TypeVar("ApplicationT", bound=Callable[..., Any])


class Adapter(BlockingVerbs):
    """Puts the receiver before a Django application; see `BlockingVerbs` for its verbs.

    In an ``async def`` view call a verb in a thread: ``await asyncio.to_thread(hooks.start, …)``.
    """

    def mount(self, application: ApplicationT, path: str = DEFAULT_PATH) -> ApplicationT:
        """Give the application that the server is to serve, of the same kind as yours.

        Args:
            application: what ``get_wsgi_application()`` or ``get_asgi_application()`` gives.
            path: deliveries come in at ``POST <path>/hooks/<source>``, health is at ``<path>/healthz``.

        Raises:
            ConfigError: the path cannot be used, or *application* is neither WSGI nor ASGI.
        """
        clean = checked_path(path)
        if _takes(application, 2):
            return cast("ApplicationT", WsgiFront(WsgiReceiver(self), application, clean))
        if not _takes(application, 3):
            raise errors.ConfigError(
                f"{shown(application)} is neither a WSGI nor an ASGI application.",
                means="It takes neither (environ, start_response) nor (scope, receive, send).",
                todo="Give what get_wsgi_application() or get_asgi_application() returns.",
            )
        front = AsgiFront(self._receive, application, clean)

        async def opening() -> None:
            await asyncio.to_thread(self.open)

        async def closing() -> None:
            await asyncio.to_thread(self.close)

        return cast("ApplicationT", AsgiLife(front, opening, closing))

    async def _receive(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a delivery that came into the server's event loop in the app's."""
        if not self.app.is_open:  # the server has no "lifespan"
            try:
                await asyncio.to_thread(self.open)
            except errors.OncewardError as error:
                await send_response(send, unopened(error), head_only=scope["method"] == "HEAD")
                return
        here, there = asyncio.get_running_loop(), self.app.loop
        receiver: AsgiApplication = self.app.asgi()
        if here is not there:
            receiver = _in_loop(there, receiver)
            receive, send = _in_loop(here, receive), _in_loop(here, send)
        await receiver(scope, receive, send)


def _in_loop(
    loop: asyncio.AbstractEventLoop, function: Callable[..., Awaitable[T]]
) -> Callable[..., Awaitable[T]]:
    """Give a function that another event loop may await and that runs in *loop*."""

    async def called(*args: Any) -> T:
        return await function(*args)

    async def call(*args: Any) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(called(*args), loop))

    return call


def _takes(application: Callable[..., Any], count: int) -> bool:
    try:
        inspect.signature(application).bind(*range(count))
    except (TypeError, ValueError):
        return False
    return True
