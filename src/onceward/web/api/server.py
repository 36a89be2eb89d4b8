"""Serves the calls of the table: finds the one that is meant, reads what it takes, tells what it gives.

Stands behind the gate, which says who asks. A reply is JSON of our own structs, never a page, so that
no stored text can be taken for one.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from typing import Any

import msgspec
from starlette.responses import StreamingResponse

from onceward.console.port import Console
from onceward.core.access_errors import Forbidden, TooMany
from onceward.core.errors import BodyMalformed, ConfigError, NotFound, OncewardError
from onceward.core.messages import HttpResponse
from onceward.core.shown import shown
from onceward.web import replies
from onceward.web.access import Principal
from onceward.web.api import openapi, reading
from onceward.web.api.bulks import Bulks
from onceward.web.api.calls import ENDPOINTS, Call, Endpoint
from onceward.web.api.conditional import conditional
from onceward.web.api.docs_page import STYLE, docs_page
from onceward.web.api.paths import event_of, parts_of
from onceward.web.api.streams import STREAMS_MAX, Stream
from onceward.web.auth.gate import principal_of
from onceward.web.auth.guard import Gone, header, read_body
from onceward.web.port import Receive, Scope, Send
from onceward.web.problems import problem, problem_of_error
from onceward.web.receiver import send_response

KEY_CHARS_MAX = 200

_UNSTORABLE = "\x00"
_JSON = {"Content-Type": "application/json"}
_FAILED = problem(500, "error", "Something went wrong", "The server's log says more.")
_NOT_JSON = problem(415, "media_type", "The body is no JSON", "Send it as Content-Type: application/json.")
_encode = msgspec.json.Encoder().encode
log = logging.getLogger("onceward.web")


class Api:
    """The ASGI application of the REST API.

    Args:
        console: answers and acts.
        body_bytes_max: the largest body.
    """

    def __init__(self, console: Console, *, body_bytes_max: int) -> None:
        self._console = console
        self._body_bytes_max = body_bytes_max
        self._streams = 0
        self.bulks = Bulks(console)
        self._pages: dict[str, Callable[[], HttpResponse]] = {
            "openapi.json": _openapi,
            "docs": _docs,
            "docs.css": _docs_style,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        head_only = scope["method"] == "HEAD"
        try:
            found = await self._reply(scope, receive)
        except Gone:
            return
        except OncewardError as error:
            if error.http_status >= 500 and not isinstance(error, ConfigError):
                log.warning("a call failed: %s", str(error)[:500])
            found = problem_of_error(error)
        except Exception:
            log.exception("a call failed")
            found = _FAILED
        if isinstance(found, Stream):
            await self._send_stream(found, scope, receive, send)
        else:
            await send_response(send, found, head_only=head_only)

    async def _reply(self, scope: Scope, receive: Receive) -> HttpResponse | Stream:
        who = principal_of(scope)
        parts = parts_of(scope)
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        if len(parts) == 1 and parts[0] in self._pages:
            return self._pages[parts[0]]() if method == "GET" else replies.method_not_allowed("GET, HEAD")
        fitting = [(one, values) for one in ENDPOINTS if (values := _fit(one, parts)) is not None]
        if not fitting:
            raise NotFound(
                f"There is nothing at this address: {shown('/'.join(parts))}.",
                todo="See docs for what there is.",
            )
        for endpoint, values in fitting:
            if endpoint.method == method:
                return await self._answer(endpoint, values, who, scope, receive)
        return replies.method_not_allowed(_allowed(fitting))

    async def _answer(
        self, endpoint: Endpoint, values: dict[str, str], who: Principal, scope: Scope, receive: Receive
    ) -> HttpResponse | Stream:
        if not who.may(endpoint.role):
            raise Forbidden(
                f"{who.name} is a {who.role}; this takes an {endpoint.role}.",
                means="Nothing was done.",
                todo="Ask an admin for that role.",
            )
        if any(_UNSTORABLE in value for value in values.values()):
            raise NotFound("Nothing stored has such an id.")
        query = reading.query_of(scope.get("query_string", b""), endpoint.query)
        body = None
        if endpoint.body is not None:
            sent = await read_body(receive, self._body_bytes_max)
            if sent and not _is_json(scope):
                return _NOT_JSON
            body = reading.body_of(sent, endpoint.body)
        call = Call(
            console=self._console,
            bulks=self.bulks,
            who=who,
            parts=values,
            query=query,
            body=body,
            request_id=_request_id(scope, body),
            wants_stream="text/event-stream" in header(scope, b"accept"),
            new_id=lambda: secrets.token_hex(16),
        )
        given = await endpoint.answer(call)
        if isinstance(given, Stream):
            return given
        if endpoint.method == "GET":
            return conditional(scope, _encode(given), _JSON)
        return HttpResponse.of(200, _encode(given), _JSON)

    async def _send_stream(self, stream: Stream, scope: Scope, receive: Receive, send: Send) -> None:
        if self._streams >= STREAMS_MAX:
            await stream.lines.aclose()
            error = TooMany("Too many streams are open.", wait_s=10)
            await send_response(send, problem_of_error(error), head_only=False)
            return
        self._streams += 1
        response = StreamingResponse(
            stream.lines, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"}
        )
        try:
            await response(scope, receive, send)
        finally:
            self._streams -= 1
            await stream.lines.aclose()

    async def close(self) -> None:
        """Stop what is under way."""
        await self.bulks.close()


def _fit(endpoint: Endpoint, parts: list[str]) -> dict[str, str] | None:
    """Give the values of the path's names where the parts fit, else None."""
    wanted = endpoint.path.split("/")[1:]
    if wanted[0] == "events" and len(wanted) == 3 and parts and parts[0] == "events":
        event = event_of(parts[1:])
        return None if event is None else dict(zip(endpoint.names, event, strict=True))
    if len(wanted) != len(parts):
        return None
    values = {}
    for want, part in zip(wanted, parts, strict=True):
        if want.startswith("{") and part:
            values[want[1:-1]] = part
        elif want != part:
            return None
    return values


def _allowed(fitting: list[tuple[Endpoint, dict[str, str]]]) -> str:
    methods = {endpoint.method for endpoint, _ in fitting}
    return ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))


def _is_json(scope: Scope) -> bool:
    kind = header(scope, b"content-type").partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


def _request_id(scope: Scope, body: Any) -> str | None:
    """Give the request's id; one that is there and says nothing would protect nobody, and is refused."""
    sent = [value for name, value in scope["headers"] if name == b"idempotency-key"]
    written: str | None = getattr(body, "request_id", None)
    named = [bytes(value).decode("latin-1").strip().strip('"') for value in sent]
    found = {*named, *([] if written is None else [written])}
    if len(found) > 1:
        raise ConfigError("Idempotency-Key and request_id differ.", todo="Send one of them.")
    if not found:
        return None
    (request_id,) = found
    if not 0 < len(request_id) <= KEY_CHARS_MAX or not request_id.isprintable():
        raise BodyMalformed(
            "The request id cannot be kept.",
            means="Nothing was done.",
            todo=f"Use up to {KEY_CHARS_MAX} printable characters, for instance a UUID.",
        )
    return request_id


def _openapi() -> HttpResponse:
    return HttpResponse.of(200, _encode(openapi.document()), _JSON)


def _docs() -> HttpResponse:
    page = docs_page(openapi.document())
    return HttpResponse.of(200, page.encode(), {"Content-Type": "text/html; charset=utf-8"})


def _docs_style() -> HttpResponse:
    return HttpResponse.of(200, STYLE, {"Content-Type": "text/css; charset=utf-8"})
