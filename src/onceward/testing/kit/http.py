"""Services that answer an app's requests in a test, and count what the requests did.

A service that knows idempotency keys does the same thing once for the same key and gives its first
answer again, as payment services do; the same key with another body is refused with 409.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from onceward.core.errors import ConfigError
from onceward.outgoing import HEADER, SAFE_METHODS

if TYPE_CHECKING:
    from onceward.testing.kit.outside import Outside

REPLACING = frozenset({"PUT", "DELETE"})
"""Methods that do the same thing to the same address, however often."""

REFUSED = 400
"""An answer from this status on says that nothing was done."""

BODY_CHARS_SHOWN = 80


@dataclass(frozen=True)
class Asked:
    """A request as a service gets it.

    Attributes:
        method: in capitals.
        url: whole.
        headers: names in lower case.
        body: the bytes.
    """

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes = b""

    @property
    def key(self) -> str | None:
        """Give its idempotency key."""
        return self.headers.get(HEADER.lower())

    def json(self) -> Any:
        """Give the body as JSON."""
        return json.loads(self.body)


@dataclass(frozen=True)
class Answer:
    """What a service answers.

    Attributes:
        status: of HTTP.
        body: JSON data, text or bytes.
        headers: more of them.
    """

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def content(self) -> bytes:
        """Give the bytes of the body."""
        if isinstance(self.body, bytes):
            return self.body
        return self.body.encode() if isinstance(self.body, str) else json.dumps(self.body).encode()

    def sent_headers(self) -> dict[str, str]:
        """Give the headers, with those that any service sends."""
        kind = "text/plain" if isinstance(self.body, (str, bytes)) else "application/json"
        return {"Content-Type": kind, "Content-Length": str(len(self.content())), **self.headers}


Reply = Answer | Callable[[Asked], Any] | Any


@dataclass(frozen=True)
class _Route:
    method: str
    url: str
    pattern: re.Pattern[str]
    reply: Reply
    knows_keys: bool
    key_header: str


class HttpWorld:
    """The services that an app sends requests to.

    Args:
        outside: where their effects are noted.
    """

    def __init__(self, outside: Outside) -> None:
        self._outside = outside
        self._routes: list[_Route] = []
        self._reached: set[str] = set()
        self._answered: dict[tuple[str, str, str], tuple[bytes, Answer]] = {}

    def route(
        self,
        method: str,
        url: str,
        reply: Reply = None,
        *,
        knows_keys: bool = True,
        key_header: str = HEADER,
    ) -> None:
        """Say what a service answers; a later route wins over an earlier one.

        Args:
            method: ``"POST"``; ``"*"`` for any.
            url: without its query; ``*`` stands for one part of the path, as in ``https://a/b/*``.
            reply: JSON data, an `Answer`, or a function of the request (`Asked`) that gives either.
            knows_keys: whether the service knows idempotency keys. If not, every request is an effect.
            key_header: the header in which it takes them.
        """
        text = re.escape(url).replace(r"\*", "[^/]+")
        self._routes.append(
            _Route(method.upper(), url, re.compile(text), reply, knows_keys, key_header.lower())
        )

    def get(self, url: str, reply: Reply = None) -> None:
        """Say what a GET is answered; see `route`."""
        self.route("GET", url, reply)

    def post(self, url: str, reply: Reply = None, *, knows_keys: bool = True) -> None:
        """Say what a POST is answered; see `route`."""
        self.route("POST", url, reply, knows_keys=knows_keys)

    def put(self, url: str, reply: Reply = None) -> None:
        """Say what a PUT is answered; see `route`."""
        self.route("PUT", url, reply)

    def delete(self, url: str, reply: Reply = None) -> None:
        """Say what a DELETE is answered; see `route`."""
        self.route("DELETE", url, reply)

    def forget(self) -> None:
        """Forget every key."""
        self._answered.clear()

    def begin(self) -> None:
        """Forget what was ever reached."""
        self._reached.clear()

    def unseen(self) -> list[str]:
        """Give the services that nobody sent anything to since `begin`."""
        names = dict.fromkeys(f"{route.method} {route.url}" for route in self._routes)
        return [name for name in names if name not in self._reached]

    def ask(self, asked: Asked) -> Answer:
        """Give a service's answer, and note what the request did.

        Raises:
            ConfigError: the test says no answer for it.
        """
        from onceward.testing.kit.outside import Effect

        self._outside.check_alive()
        plain = urlunsplit(urlsplit(asked.url)._replace(query="", fragment=""))
        route = self._find(asked.method, plain)
        self._reached.add(f"{route.method} {route.url}")
        if asked.method in SAFE_METHODS:
            return _answer(route.reply, asked)
        name = f"{asked.method} {route.url}"
        body = asked.body.decode("utf-8", "replace")[:BODY_CHARS_SHOWN]
        detail = f"{plain} {body}".strip()
        key = asked.headers.get(route.key_header) if route.knows_keys else None
        step = self._outside.here()
        if key is None:
            answer = _answer(route.reply, asked)
            if answer.status >= REFUSED:
                return answer
            is_replacing = asked.method in REPLACING
            place = asked.url if is_replacing else None
            self._outside.note(Effect("http", name, step, place, detail, is_replacing, route.knows_keys))
            return answer
        first = self._answered.get((asked.method, plain, key))
        if first is not None and first[0] != asked.body:
            self._outside.note(Effect("http", name, step, key, detail, clash=True))
            return Answer(409, {"error": "this idempotency key came with another body"})
        if first is None:
            first = asked.body, _answer(route.reply, asked)
            if first[1].status >= REFUSED:
                return first[1]
            self._answered[asked.method, plain, key] = first
        self._outside.note(Effect("http", name, step, key, detail))
        return first[1]

    def _find(self, method: str, url: str) -> _Route:
        for route in reversed(self._routes):
            if route.method in (method, "*") and route.pattern.fullmatch(url):
                return route
        raise ConfigError(
            f"A step sent {method} {url}, and the test says no answer for it.",
            means="Nothing leaves the test, so nobody answers.",
            todo=f'Say one: outside.http.route("{method}", "{url}", {{"id": "made up"}}).',
        )


def _answer(reply: Reply, asked: Asked) -> Answer:
    given = reply(asked) if callable(reply) else reply
    return given if isinstance(given, Answer) else Answer(200, given)
