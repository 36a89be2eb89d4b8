"""The login page: by name and password, or by a link that works once.

A wrong password and an unknown name cost the same work and get the same words. Nothing happens by
GET, so that a link that a mail program or a browser looks at beforehand still works.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from html import escape
from ipaddress import IPv6Address, ip_address

from onceward.core.access_errors import TooMany, Unauthorized
from onceward.core.errors import NotFound, OncewardError
from onceward.core.messages import HttpResponse
from onceward.web import replies
from onceward.web.auth.accounts import Opened
from onceward.web.auth.gate import LOGIN
from onceward.web.auth.guard import PRINCIPAL, Guard, field_of, read_body
from onceward.web.auth.limiter import Failures
from onceward.web.port import Receive, Scope, Send
from onceward.web.problems import problem_of_error
from onceward.web.receiver import path_below_mount, send_response

FORM_BYTES_MAX = 16_384
WINDOW_S = 300.0
OF_ADDRESS_MAX = 10
OF_NAME_MAX = 30
AUDITED_MAX = 1_000
"""Failed logins that are written to the audit within an hour; the log has all of them."""
AT_ONCE_MAX = 2
"""Passwords that are looked at at once: each takes 32 MiB."""
WAITING_MAX = 20

_WRONG = "The name or the password is wrong."
_LINK_WRONG = "The link does not work any more. Make another: onceward users link."
log = logging.getLogger("onceward.web")


class Login:
    """Serves ``/login``, ``/logout`` and the style of the page.

    Args:
        guard: knows the accounts.
        monotonic: gives seconds that only grow.
    """

    def __init__(self, guard: Guard, monotonic: Callable[[], float]) -> None:
        self._guard = guard
        self._of_address = Failures(OF_ADDRESS_MAX, WINDOW_S, monotonic)
        self._of_name = Failures(OF_NAME_MAX, WINDOW_S, monotonic)
        self._audited = Failures(AUDITED_MAX, 3_600.0, monotonic)
        self._at_once = asyncio.Semaphore(AT_ONCE_MAX)
        self._waiting = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request for the login."""
        try:
            reply = await self._reply(scope, receive)
        except OncewardError as error:
            reply = problem_of_error(error)
        await send_response(send, reply, head_only=scope["method"] == "HEAD")

    async def _reply(self, scope: Scope, receive: Receive) -> HttpResponse:
        path, method = path_below_mount(scope), scope["method"]
        if path == "/login.css" and method in ("GET", "HEAD"):
            return HttpResponse.of(200, _STYLE, {"Content-Type": "text/css; charset=utf-8"})
        if path == "/logout":
            return await self._log_out(scope) if method == "POST" else replies.method_not_allowed("POST")
        if path != LOGIN:
            raise NotFound("There is nothing at this address.")
        query = scope.get("query_string", b"")[:FORM_BYTES_MAX]
        if method in ("GET", "HEAD"):
            return _page(wanted=field_of(query, "next"), link=field_of(query, "link"))
        if method != "POST":
            return replies.method_not_allowed("GET, HEAD, POST")
        self._guard.check_same_site(scope)
        body = await read_body(receive, FORM_BYTES_MAX)
        return await self._log_in(scope, body)

    async def _log_in(self, scope: Scope, body: bytes) -> HttpResponse:
        guard = self._guard
        name, password, link = (field_of(body, field) for field in ("name", "password", "link"))
        wanted, peer = field_of(body, "next"), guard.peer(scope)
        address, user = _network(peer), name[:100].lower()
        for failures, key in ((self._of_address, address), (self._of_name, user)):
            wait = failures.wait_of(key)
            if wait > 0:
                return _too_often(math.ceil(wait))
        opened: Opened | None
        if link:
            opened = await guard.ask(guard.accounts.by_link, link)
        else:
            opened = await self._looked_at(name, password, f"from {peer or 'unknown'}")
        if opened is None:
            await self._note(address, user, name, link=bool(link), peer=peer)
            return _page(wanted=wanted, said=_LINK_WRONG if link else _WRONG, name=name, status=401)
        self._of_address.forget(address)
        before = guard.cookie_of(scope)
        if before and scope.get(PRINCIPAL) is not None:
            # Nobody goes on under a session that stood in this browser before.
            who = scope[PRINCIPAL].name
            await guard.ask(lambda: guard.accounts.log_out(before, actor=who))
        return _moved(scope, wanted, guard.set_cookie(scope, opened.cookie))

    async def _looked_at(self, name: str, password: str, detail: str) -> Opened | None:
        """Give a session for the right password; few at once, since each look takes memory.

        Raises:
            TooMany: too many wait already.
        """
        guard = self._guard
        if self._waiting >= WAITING_MAX:
            raise TooMany("Too many log in at once.", wait_s=2, todo="Try again in a moment.")
        self._waiting += 1
        try:
            async with self._at_once:
                found: Opened | None = await guard.ask(
                    lambda: guard.accounts.by_password(name, password, detail=detail)
                )
                return found
        finally:
            self._waiting -= 1

    async def _note(self, address: str, user: str, name: str, *, link: bool, peer: str) -> None:
        self._of_address.note(address)
        if not link:
            self._of_name.note(user)
        log.warning("login refused: from=%s", ascii(peer[:100]))
        if self._audited.wait_of("") == 0:
            self._audited.note("")
            accounts, detail = self._guard.accounts, f"{'a link, ' if link else ''}from {peer or 'unknown'}"
            await self._guard.ask(lambda: accounts.refused("" if link else name, detail=detail))

    async def _log_out(self, scope: Scope) -> HttpResponse:
        """End the session; the gate has seen that the form is of ours."""
        guard, cookie, who = self._guard, self._guard.cookie_of(scope), scope[PRINCIPAL]
        if who is None:
            raise Unauthorized("Nobody is logged in.")
        await guard.ask(lambda: guard.accounts.log_out(cookie, actor=who.name))
        return _moved(scope, "/login", guard.set_cookie(scope, ""))


def _network(peer: str) -> str:
    """Give what one household or server has: an IPv4 address, a /64 of IPv6."""
    try:
        address = ip_address(peer.partition("%")[0])
    except ValueError:
        return peer
    if isinstance(address, IPv6Address) and address.ipv4_mapped is None:
        return f"{int(address) >> 64:x}"
    return str(getattr(address, "ipv4_mapped", None) or address)


# --- what is shown --------------------------------------------------------------------------------


def _moved(_scope: Scope, wanted: str, cookie: bytes) -> HttpResponse:
    """Send a browser on to a page of ours: a path below the login's own folder, wherever that is."""
    path = wanted.lstrip("/\\")
    is_plain = path.isascii() and path.isprintable() and "\\" not in path
    location = f"./{path if is_plain else ''}"
    head = ((b"location", location.encode()), (b"set-cookie", cookie))
    return HttpResponse(303, head, b"")


def _too_often(wait_s: int) -> HttpResponse:
    text = f"Too many failed logins. Try again in {wait_s} s."
    page = _page(said=text, status=429)
    return HttpResponse(429, (*page.headers, (b"retry-after", str(wait_s).encode())), page.body)


def _page(
    *, wanted: str = "", link: str = "", said: str = "", name: str = "", status: int = 200
) -> HttpResponse:
    told = f'<p role="alert">{escape(said)}</p>' if said else ""
    if link:
        fields = f'<input type="hidden" name="link" value="{escape(link)}"><p>This link works once.</p>'
    else:
        fields = (
            '<label for="name">Name</label>'
            f'<input id="name" name="name" value="{escape(name[:100])}" autocomplete="username" required>'
            '<label for="password">Password</label>'
            '<input id="password" name="password" type="password" autocomplete="current-password" required>'
        )
    text = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Log in · Onceward</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="stylesheet" href="./login.css"></head><body><main><h1>Onceward</h1>'
        f'{told}<form method="post" action="./login">{fields}'
        f'<input type="hidden" name="next" value="{escape(wanted)}">'
        '<button type="submit">Log in</button></form></main></body></html>'
    )
    return HttpResponse.of(
        status, text.encode("utf-8", "replace"), {"Content-Type": "text/html; charset=utf-8"}
    )


_STYLE = b"""
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { margin: 0; min-height: 100vh; display: grid; place-items: center; }
main { width: min(22rem, 90vw); }
form { display: grid; gap: .5rem; }
input, button { font: inherit; padding: .5rem .75rem; border: 1px solid #767676; border-radius: .375rem; }
button { margin-top: .75rem; cursor: pointer; color: #fff; background: #1f5fa8; border-color: #1f5fa8; }
input:focus-visible, button:focus-visible { outline: 3px solid #4c9be8; outline-offset: 2px; }
[role=alert] { padding: .5rem .75rem; border-left: 4px solid #c0392b; }
"""
