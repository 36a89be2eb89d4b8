"""What a process shows that receives nothing: its metrics and whether it is healthy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceward.console.local import LocalConsole
from onceward.core.errors import NotFound
from onceward.web.auth.gate import Gate
from onceward.web.metrics import METRICS, Metrics
from onceward.web.port import Receive, Scope, Send
from onceward.web.problems import problem_of_error
from onceward.web.receiver import HEALTH, path_below_mount, send_response
from onceward.web.site import guard_for

if TYPE_CHECKING:
    from onceward.app import App


class WorkerSite:
    """``GET /metrics`` for who may look, and ``GET /healthz`` for everybody; no deliveries, no pages.

    Args:
        app: open for as long as this is served.

    Raises:
        ConfigError: the setting ``allowed_hosts`` or ``trusted_proxies`` cannot be read.
    """

    def __init__(self, app: App) -> None:
        self._receiver = app.asgi()
        self._metrics = Metrics(app, LocalConsole(app))
        self._gate = Gate(self._behind, guard_for(app), has_login=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if path_below_mount(scope) == HEALTH:
            await self._receiver(scope, receive, send)
        else:
            await self._gate(scope, receive, send)

    async def _behind(self, scope: Scope, receive: Receive, send: Send) -> None:
        if path_below_mount(scope) == METRICS:
            await self._metrics(scope, receive, send)
            return
        reply = problem_of_error(NotFound("There is nothing at this address."))
        await send_response(send, reply, head_only=scope["method"] == "HEAD")
