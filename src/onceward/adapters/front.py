"""The door before a framework: deliveries go to the receiver, everything else goes on.

A signature is over the bytes as they came, so deliveries are taken before any middleware of the
framework can read, parse, limit or redirect them. Of a path only three addresses are taken,
``<path>/hooks/…``, ``<path>/promises/…`` and ``<path>/healthz``; the framework keeps the others.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from onceward.app import App
from onceward.core import errors
from onceward.core.shown import shown
from onceward.web.port import Message, Receive, Scope, Send
from onceward.web.promise_door import PROMISES
from onceward.web.receiver import HEALTH, HOOKS, path_below_mount

AsgiApplication: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

DEFAULT_PATH = "/webhooks"

log = logging.getLogger("onceward.adapters")


def checked_path(path: str) -> str:
    """Give a path at which something is mounted, without a slash at its end.

    Raises:
        ConfigError: it does not begin with a slash, or has one that nobody would send.
    """
    clean = path.rstrip("/")
    if clean and (not clean.startswith("/") or "//" in clean or not clean.isprintable() or "?" in clean):
        raise errors.ConfigError(
            f"The path {shown(path)} cannot be mounted at.",
            means="No delivery could be addressed to it.",
            todo=f'Give one such as "{DEFAULT_PATH}", or "" for addresses that begin with {HOOKS}.',
        )
    return clean


def checked_app(app: object) -> App:
    """Give *app* if it is one of ours.

    Raises:
        ConfigError: it is something else, such as the web application.
    """
    if not isinstance(app, App):
        raise errors.ConfigError(
            f"The adapter was given {shown(app)}, not an App.",
            means="There is nothing that could receive.",
            todo="Write Adapter(app) with the App, and mount(web) with the web application.",
        )
    return app


def is_ours(below: str, path: str) -> bool:
    """Say whether a request is for the receiver.

    Args:
        below: the request's path, without the prefix at which the framework itself is mounted.
        path: where the receiver is mounted.
    """
    rest = below.removeprefix(path)
    return (not path or rest != below) and (rest.startswith((HOOKS, PROMISES)) or rest == HEALTH)


class AsgiFront:
    """An ASGI application with the receiver before it.

    Args:
        receiver: gets the deliveries.
        app: gets everything else; the name by which frameworks look through middleware.
        path: where the receiver is mounted.
    """

    def __init__(self, receiver: AsgiApplication, app: AsgiApplication, path: str) -> None:
        self._receiver = receiver
        self.app = app
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection scope."""
        if scope["type"] == "http" and is_ours(below := path_below_mount(scope), self._path):
            root = scope.get("root_path", "").rstrip("/")
            scope = {**scope, "root_path": root + self._path, "path": root + below}
            await self._receiver(scope, receive, send)
        else:
            await self.app(scope, receive, send)


class AsgiLife:
    """An ASGI application around whose life something is opened and closed.

    What it opens is open before the application starts and is closed after it has ended. An
    application that knows nothing of "lifespan" needs not.

    Args:
        app: the application.
        opening: awaited at the start; the server does not start when it raises.
        closing: awaited at the end.
    """

    def __init__(
        self,
        app: AsgiApplication,
        opening: Callable[[], Awaitable[None]],
        closing: Callable[[], Awaitable[None]],
    ) -> None:
        self.app = app
        self._opening = opening
        self._closing = closing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection scope."""
        if scope["type"] != "lifespan":
            await self.app(scope, receive, send)
            return
        first = await receive()
        try:
            await self._opening()
        except Exception as error:
            message = str(error)
            if not isinstance(error, errors.OncewardError):
                log.exception("startup failed")
                message = f"startup failed: {type(error).__name__}"
            await send({"type": "lifespan.startup.failed", "message": message})
            return
        try:
            last = await self._live(first, scope, receive, send)
        finally:
            await self._closing()
        await send(last)

    async def _live(self, first: Message, scope: Scope, receive: Receive, send: Send) -> Message:
        """Let the application live; give its last word, which is told when all is closed."""
        unread = [first]
        said: list[str] = []
        last: list[Message] = []

        async def hear() -> Message:
            return unread.pop() if unread else await receive()

        async def say(message: Message) -> None:
            if not message["type"].startswith("lifespan."):
                return  # it takes every scope for a request
            said.append(message["type"])
            if message["type"] == "lifespan.startup.complete":
                await send(message)
            else:
                last.append(message)

        try:
            await self.app(scope, hear, say)
        except Exception as error:
            if said and not last:
                raise
            # Without a word it has no lifespan of its own; with one, that says it.
            log.debug("the application's lifespan ended: %s", error)
        if not said:
            await send({"type": "lifespan.startup.complete"})
            await receive()
        return last[-1] if last else {"type": "lifespan.shutdown.complete"}
