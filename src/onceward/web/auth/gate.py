"""The gate before pages and calls: what comes through has a name of ours, a known asker, and no tricks.

Everything is shut unless it is named as public, so that a page that is added is shut too. Deliveries
do not come this way.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias
from urllib.parse import quote

from onceward.core.access_errors import Unauthorized
from onceward.core.errors import OncewardError, StoreError
from onceward.core.messages import HttpResponse
from onceward.web.access import Principal
from onceward.web.auth.guard import PRINCIPAL, SAFE_METHODS, Gone, Guard, header
from onceward.web.auth.headers import hardened
from onceward.web.port import Message, Receive, Scope, Send
from onceward.web.problems import problem, problem_of, problem_of_error
from onceward.web.receiver import path_below_mount, send_response

AsgiApplication: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

LOGIN = "/login"
PUBLIC = frozenset({LOGIN, "/login.css"})
PUBLIC_PREFIX = "/static/"

_ENDED = "the server stops"
_FAILED = problem(500, "error", "Something went wrong", "The server's log says more.")
log = logging.getLogger("onceward.web")


class Gate:
    """An ASGI application that lets through to another what may come in.

    Args:
        app: gets what may; it finds who asks in the scope, see `principal_of`.
        guard: knows who asks.
        has_login: whether a browser that nobody is logged in with is sent to the login page.
    """

    def __init__(self, app: AsgiApplication, guard: Guard, *, has_login: bool) -> None:
        self._app = app
        self._guard = guard
        self._has_login = has_login
        self._streams: set[asyncio.Task[object]] = set()

    def end_streams(self) -> None:
        """End the replies that go on, so that a server that stops need not wait for them."""
        for task in self._streams:
            task.cancel(_ENDED)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        send = hardened(send)
        head_only = scope["method"] == "HEAD"
        try:
            receive = await self._let_in(scope, receive)
        except Unauthorized as error:
            reply = self._to_login(scope) or problem_of_error(error)
            await send_response(send, reply, head_only=head_only)
        except StoreError as error:
            log.error("nobody could be looked up: %s", error)
            reply = problem_of(type(error), "Who asks could not be looked up. Try again later.")
            await send_response(send, reply, head_only=head_only)
        except OncewardError as error:
            await send_response(send, problem_of_error(error), head_only=head_only)
        except Gone:
            return
        else:
            await self._pass(scope, receive, send)

    async def _let_in(self, scope: Scope, receive: Receive) -> Receive:
        guard = self._guard
        guard.check_host(scope)
        path = path_below_mount(scope)
        if self._has_login and path.startswith(PUBLIC_PREFIX):
            scope[PRINCIPAL] = None  # files of ours: nobody has to be looked up
            return receive
        principal = scope[PRINCIPAL] = await guard.identify(scope)
        if self._has_login and path in PUBLIC:
            return receive  # the login looks at where a form comes from itself
        if principal is None:
            raise Unauthorized(
                "Nobody is logged in.",
                means="Nothing was done.",
                todo="Log in, or send a token: Authorization: Bearer owt_…",
            )
        if scope["method"] not in SAFE_METHODS and principal.csrf:
            guard.check_same_site(scope)
            return await guard.check_token(scope, receive, principal)
        return receive

    def _to_login(self, scope: Scope) -> HttpResponse | None:
        """Give the way to the login page for a browser that was to show a page."""
        wants_page = "text/html" in header(scope, b"accept") and scope["method"] in ("GET", "HEAD")
        if not self._has_login or not wants_page or header(scope, b"authorization"):
            return None
        path = path_below_mount(scope)
        query = scope.get("query_string", b"").decode("latin-1")
        wanted = quote(f"{path}?{query}" if query else path, safe="")
        return HttpResponse.of(303, b"", {"Location": f"{way_up(path)}login?next={wanted}"})

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False
        task = asyncio.current_task()
        assert task is not None

        async def sending(message: Message) -> None:
            nonlocal started
            started = True
            if message["type"] == "http.response.start" and _goes_on(message):
                self._streams.add(task)
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except asyncio.CancelledError as cancelled:
            if cancelled.args != (_ENDED,) or task not in self._streams:
                raise
            task.uncancel()
            await send({"type": "http.response.body", "body": b""})
        except Exception:
            log.exception("a request failed: %s", ascii(scope["method"]))
            if started:
                raise
            await send_response(send, _FAILED, head_only=scope["method"] == "HEAD")
        finally:
            self._streams.discard(task)


def _goes_on(head: Message) -> bool:
    kinds = [value for name, value in head["headers"] if name == b"content-type"]
    return any(kind.startswith(b"text/event-stream") for kind in kinds)


def principal_of(scope: Scope) -> Principal:
    """Give who asks, behind the gate.

    Raises:
        Unauthorized: nobody does; such a page is public.
    """
    principal: Principal | None = scope.get(PRINCIPAL)
    if principal is None:
        raise Unauthorized("Nobody is logged in.", means="Nothing was done.")
    return principal


def way_up(path: str) -> str:
    """Give the way from a page to the first one, below any prefix: ``./``, ``../``, ``../../``."""
    return "../" * (path.count("/") - 1) or "./"
