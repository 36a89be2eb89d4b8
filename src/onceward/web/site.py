"""One ASGI application of receiver, REST API, metrics, dashboard and login, below any prefix.

Deliveries, and promises that are completed from outside, are told apart by their path first and pass
nothing that the rest needs: no look-up of who asks, no headers for browsers, no routes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from onceward.console.port import Console
from onceward.core import store_url
from onceward.core.errors import NotFound
from onceward.runtime.clock import SystemEntropy
from onceward.web.address import Proxies
from onceward.web.api.paths import PREFIX
from onceward.web.api.server import Api
from onceward.web.auth.accounts import Accounts
from onceward.web.auth.gate import Gate
from onceward.web.auth.guard import PRINCIPAL, Guard, cookie_of_store
from onceward.web.auth.hosts import Hosts
from onceward.web.auth.login import Login
from onceward.web.auth.passwords import Cost
from onceward.web.metrics import METRICS, Metrics
from onceward.web.port import Receive, Scope, Send
from onceward.web.problems import problem_of_error
from onceward.web.promise_door import PROMISES
from onceward.web.receiver import HEALTH, HOOKS, Receiver, path_below_mount, send_response

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from onceward.app import App
    from onceward.web.access import Principal

LOGIN_PATHS = ("/login", "/login.css", "/logout")


class Site:
    """Receiver, REST API, dashboard and login.

    Args:
        receiver: takes the deliveries, and opens and closes the app with the server.
        guard: knows who asks.
        api: the REST API, where it is served.
        metrics: the metrics, where the REST API is served.
        pages: the dashboard's routes, where it is served.
    """

    def __init__(
        self,
        receiver: Receiver,
        guard: Guard,
        *,
        api: Api | None,
        pages: list[BaseRoute] | None,
        metrics: Metrics | None = None,
    ) -> None:
        self._receiver = receiver
        self._api = api
        self._metrics = metrics
        self._login = Login(guard, time.monotonic)
        self._pages = None
        if pages is not None:
            from starlette.routing import Router

            self._pages = Router(pages, redirect_slashes=False)
        self._gate = Gate(self._behind, guard, has_login=pages is not None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection scope."""
        if scope["type"] == "http":
            path = path_below_mount(scope)
            if not path.startswith((HOOKS, PROMISES)) and path != HEALTH:
                await self._gate(scope, receive, send)
                return
        await self._receiver(scope, receive, send)
        if scope["type"] == "lifespan" and self._api is not None:
            await self._api.close()

    def end_streams(self) -> None:
        """End the replies that go on; their readers ask again, and find another server."""
        self._gate.end_streams()

    async def _behind(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = path_below_mount(scope)
        if self._api is not None and path.startswith(f"{PREFIX}/"):
            await self._api(scope, receive, send)
        elif self._metrics is not None and path == METRICS:
            await self._metrics(scope, receive, send)
        elif self._pages is not None and path in LOGIN_PATHS:
            await self._login(scope, receive, send)
        elif self._pages is not None and not path.startswith("/api/"):
            await self._pages(scope, receive, send)
        else:
            reply = problem_of_error(NotFound("There is nothing at this address."))
            await send_response(send, reply, head_only=scope["method"] == "HEAD")


def site_for(
    app: App, *, api: bool, dashboard: bool, console: Console | None = None, cost: Cost | None = None
) -> Site:
    """Give the site of *app*.

    Args:
        app: whose lifespan it opens and closes.
        api: whether it has the REST API.
        dashboard: whether it has the dashboard, and with it the login.
        console: answers and acts; by default that of the app.
        cost: what a guess at a password costs.

    Raises:
        ConfigError: the setting ``allowed_hosts`` or ``trusted_proxies`` cannot be read.
    """
    if console is None:
        from onceward.console.local import LocalConsole

        console = LocalConsole(app)
    guard = guard_for(app, cost=cost)
    served = Api(console, body_bytes_max=app.settings.body_bytes_max) if api else None
    return Site(
        app.asgi(),
        guard,
        api=served,
        metrics=Metrics(app, console) if api else None,
        pages=_dashboard(console, lambda: app.settings.address, api=api) if dashboard else None,
    )


def guard_for(app: App, *, cost: Cost | None = None) -> Guard:
    """Give who knows who asks for what *app* serves."""
    settings = app.settings
    return Guard(
        lambda: accounts_of(app, cost=cost),
        lambda function, *args: app.worker.read(function, *args),
        hosts=Hosts(settings.allowed_hosts, listening=settings.host),
        proxies=Proxies(settings.trusted_proxies),
        cookie=cookie_of_store(store_url.masked(settings.store or ""), settings.namespace),
        form_bytes_max=settings.body_bytes_max,
    )


def accounts_of(app: App, *, cost: Cost | None = None) -> Accounts:
    """Give the users, tokens and sessions of an open app.

    Raises:
        ConfigError: the app is not open.
    """
    worker = app.worker
    return Accounts(
        worker.store,
        now_ms=worker.now_ms,
        new_id=lambda: str(worker.ids.uuid7()),
        random_bytes=SystemEntropy().random_bytes,
        cost=cost,
    )


def _dashboard(console: Console, address: Callable[[], str], *, api: bool) -> list[BaseRoute]:
    from onceward.web.dashboard.site import routes

    return routes(console, _who, api=PREFIX[1:] if api else None, logout="logout", address=address)


def _who(request: Request) -> Principal | None:
    found: Principal | None = request.scope.get(PRINCIPAL)
    return found
