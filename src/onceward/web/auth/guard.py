"""Who a request comes from, and whether it may change anything: asked before any page or call.

A program shows a token; a browser shows a cookie by itself, also where another site makes it call us.
So what a cookie alone vouches for may look, and needs more to act: that the browser says the request
comes from our own pages, and the secret that these carry.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Callable
from http.cookies import SimpleCookie
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlsplit

from onceward.core.access_errors import Forbidden, HostUnknown, Unauthorized
from onceward.core.errors import BodyMalformed, BodyTooLarge
from onceward.web.access import Principal
from onceward.web.address import Proxies, origin_of, peer_of
from onceward.web.auth.accounts import Accounts
from onceward.web.auth.hosts import Hosts
from onceward.web.port import Message, Receive, Scope

PRINCIPAL = "onceward.principal"
"""Where a scope says who asks; absent or None for nobody."""

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
CSRF_FIELD = "csrf"
CSRF_HEADER = b"x-csrf-token"
FIELDS_MAX = 1_000
BODY_SECONDS_MAX = 30.0
_COOKIE_CHARS_MAX = 8_192
_FORM = b"application/x-www-form-urlencoded"


class Ask(Protocol):
    """Makes a blocking call away from the event loop."""

    async def __call__(self, function: Callable[..., Any], *args: Any) -> Any:
        """Give what *function* gives."""
        ...


class Guard:
    """Knows who asks.

    Args:
        accounts: gives those of the open app.
        ask: makes a blocking call of the store.
        hosts: the server's names.
        proxies: whose word about host, scheme and client is believed.
        cookie: the name of the session's cookie; each store has another, so that two servers on one
            host do not log each other's browsers out.
        form_bytes_max: the largest form.
    """

    def __init__(
        self,
        accounts: Callable[[], Accounts],
        ask: Ask,
        *,
        hosts: Hosts,
        proxies: Proxies,
        cookie: str,
        form_bytes_max: int,
    ) -> None:
        self._accounts = accounts
        self.ask = ask
        self.hosts = hosts
        self.proxies = proxies
        self.cookie = cookie
        self.form_bytes_max = form_bytes_max

    @property
    def accounts(self) -> Accounts:
        """Give the users, tokens and sessions of the open app."""
        return self._accounts()

    def check_host(self, scope: Scope) -> None:
        """Refuse a request that came under another name than the server's.

        Raises:
            HostUnknown: it is not one of them; the setting ``allowed_hosts`` names them.
        """
        host = origin_of(scope, self.proxies)[1]
        if not self.hosts.allows(host):
            raise HostUnknown(
                "The request came under a name that is not one of this server's.",
                means="A page of a stranger may have brought the browser here.",
                todo="Name it in the setting allowed_hosts, ONCEWARD_ALLOWED_HOSTS.",
            )

    async def identify(self, scope: Scope) -> Principal | None:
        """Give who asks: by the token in ``Authorization``, else by the cookie; None for nobody.

        Raises:
            Unauthorized: there is a token, and it does not work.
            StoreUnavailable: nobody can be looked up.
        """
        scheme, _, token = header(scope, b"authorization").partition(" ")
        if scheme.lower() == "bearer":
            found: Principal | None = await self.ask(self.accounts.by_token, token.strip())
            if found is None:
                raise Unauthorized(
                    "The token does not work.",
                    means="It is unknown, revoked, expired, or of another namespace.",
                    todo="Make one: onceward tokens add NAME.",
                )
            return found
        cookie = self.cookie_of(scope)
        if not cookie:
            return None
        who: Principal | None = await self.ask(self.accounts.by_cookie, cookie)
        return who

    def cookie_of(self, scope: Scope) -> str:
        """Give what the session's cookie holds; empty where there is none."""
        text = header(scope, b"cookie")[:_COOKIE_CHARS_MAX]
        for part in text.split(";"):
            name, _, value = part.strip().partition("=")
            if name == self.cookie_name(scope):
                return value.strip()
        return ""

    def cookie_name(self, scope: Scope) -> str:
        """Give the cookie's name; over https one that no neighbouring host can set."""
        return f"__Host-{self.cookie}" if self.is_https(scope) else self.cookie

    def is_https(self, scope: Scope) -> bool:
        """Say whether the browser spoke https, as far as is known."""
        return origin_of(scope, self.proxies)[0] == "https"

    def peer(self, scope: Scope) -> str:
        """Give the client's address, for limits and the audit."""
        return peer_of(scope, self.proxies)

    def set_cookie(self, scope: Scope, value: str) -> bytes:
        """Give the ``Set-Cookie`` that keeps a session, or ends it where *value* is empty."""
        found: SimpleCookie = SimpleCookie()
        name = self.cookie_name(scope)
        found[name] = value
        found[name]["path"] = "/"
        found[name]["httponly"] = True
        found[name]["samesite"] = "Lax"
        if self.is_https(scope):
            found[name]["secure"] = True
        if not value:
            found[name]["max-age"] = 0
        return found[name].OutputString().encode("latin-1")

    # --- what a cookie alone does not vouch for ---------------------------------------------------

    def check_same_site(self, scope: Scope) -> None:
        """Refuse what another site made a browser send.

        Raises:
            Forbidden: the browser says so. One that says nothing is none that keeps cookies of ours
                for other sites: they are ``SameSite``.
        """
        fetched = header(scope, b"sec-fetch-site") or "same-origin"
        origin = header(scope, b"origin")
        is_ours = not origin or _netloc(origin) == origin_of(scope, self.proxies)[1].lower()
        if fetched != "same-origin" or not is_ours:
            raise Forbidden(
                "The request comes from another site.",
                means="Somebody may have tried to act in your name; nothing was done.",
                todo="Open the dashboard itself and try again. Behind a proxy, let it pass the Host header on.",
            )

    async def check_token(self, scope: Scope, receive: Receive, principal: Principal) -> Receive:
        """Refuse what does not carry the session's secret; give the body to whoever reads it next.

        It is in the header ``X-CSRF-Token`` or in the field ``csrf`` of a form.

        Raises:
            Forbidden: it is not, or is another's.
        """
        shown = header(scope, CSRF_HEADER)
        if not shown and _media_type(scope) == _FORM:
            body = await read_body(receive, self.form_bytes_max)
            shown = field_of(body, CSRF_FIELD)
            receive = _again(body, receive)
        if not hmac.compare_digest(shown.encode("utf-8", "replace"), principal.csrf.encode()):
            raise Forbidden(
                "The request does not carry your session's secret.",
                means="It is older than your session, or not from our pages; nothing was done.",
                todo="Reload the page and send it again. Programs use a token in place of a session.",
            )
        return receive


def cookie_of_store(address: str, namespace: str) -> str:
    """Give the name of the cookie for a store's namespace; *address* without secrets."""
    return f"onceward_{hashlib.sha256(f'{address} {namespace}'.encode()).hexdigest()[:10]}"


def header(scope: Scope, name: bytes) -> str:
    """Give a request's header; empty without one."""
    for found, value in scope["headers"]:
        if found == name:
            return bytes(value).decode("latin-1")
    return ""


async def read_body(receive: Receive, bytes_max: int) -> bytes:
    """Give a request's body.

    Raises:
        BodyTooLarge: it is larger than *bytes_max*.
        BodyMalformed: it did not come in time.
        Gone: the client hung up.
    """
    try:
        async with asyncio.timeout(BODY_SECONDS_MAX):
            return await _read(receive, bytes_max)
    except TimeoutError:
        raise BodyMalformed("The body took too long.", means="Nothing was done.") from None


async def _read(receive: Receive, bytes_max: int) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise Gone
        body += message.get("body", b"")
        if len(body) > bytes_max:
            raise BodyTooLarge(f"The body is larger than {bytes_max} bytes.", means="Nothing was done.")
        if not message.get("more_body", False):
            return bytes(body)


class Gone(Exception):
    """The client hung up before its body was here; nobody is left to answer."""


def field_of(body: bytes, name: str) -> str:
    """Give the first value of a form's field; empty without one, or where the form cannot be read."""
    try:
        fields = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=FIELDS_MAX)
    except ValueError:
        return ""
    return next((value for known, value in fields if known == name), "")


def _again(body: bytes, receive: Receive) -> Receive:
    is_read = False

    async def give() -> Message:
        nonlocal is_read
        if is_read:
            return await receive()
        is_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return give


def _media_type(scope: Scope) -> bytes:
    return header(scope, b"content-type").partition(";")[0].strip().lower().encode()


def _netloc(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""
