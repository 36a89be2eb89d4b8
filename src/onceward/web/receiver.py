"""The door for deliveries: an ASGI application that needs no framework.

The order of work is the promise. A delivery's bytes are counted before they are kept; the
signature is checked over the bytes as they came; only then is anything read from them; and the
reply is sent after `Intake.accept` returned, which is after the commit. A 4xx is for a delivery
that is not genuine or cannot be read, since several senders drop an event for good on any 4xx.
Refusals tell the sender the same few words each time and the operator's log which check failed.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias
from urllib.parse import quote

import msgspec

from onceward.core.arrival import Accepted, Incoming, Verified
from onceward.core.errors import (
    BodyMalformed,
    BodyTooLarge,
    ConfigError,
    OncewardError,
    SignatureInvalid,
    SourceUnknown,
    StoreError,
    StoreUnavailable,
)
from onceward.core.messages import HttpRequest, HttpResponse
from onceward.sources.base import Source
from onceward.web.cutoff import Cutoff
from onceward.web.problems import problem, problem_of

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Hook: TypeAlias = Callable[[], Awaitable[None]]

HOOKS = "/hooks/"
HEALTH = "/healthz"
RETRY_AFTER_SECONDS = 5
_LOGGED_CHARS_MAX = 200

log = logging.getLogger("onceward.receiver")


class Intake(Protocol):
    """What the receiver needs from the engine behind it."""

    @property
    def sources(self) -> Mapping[str, Source]:
        """The app's sources by name."""
        ...

    async def accept(
        self, source: str, request: HttpRequest, incoming: list[Incoming], verified: Verified
    ) -> Accepted:
        """Store a delivery with its events and their runs, and return once all of it is durable.

        Called with an empty list as well, when a delivery held no event.

        Raises:
            StoreUnavailable: nothing is known to be stored; the sender is asked to try again.
            BodyMalformed: the payload can never be stored.
        """
        ...

    async def healthy(self) -> bool:
        """Say whether deliveries can be accepted at present."""
        ...

    def now_ms(self) -> int:
        """Give the time, Unix milliseconds."""
        ...


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds on what strangers can make the receiver hold and wait for.

    Attributes:
        body_bytes_max: the largest body; 413 beyond it. GitHub sends up to 25 MB, most others stay
            below 1 MB.
        body_seconds_max: the longest time from the head of a request to the end of its body; 408.
        header_count_max: the most header lines; 431.
        header_bytes_max: the most bytes in all names and values together; 431.
        held_bytes_max: the most bytes of bodies that are being read or accepted at once; 503.
        health_seconds_max: the longest time to wait for the engine's word on its health.
    """

    body_bytes_max: int = 5 * 1024 * 1024
    body_seconds_max: float = 30.0
    header_count_max: int = 128
    header_bytes_max: int = 32 * 1024
    held_bytes_max: int = 256 * 1024 * 1024
    health_seconds_max: float = 5.0


_RETRY = {"Retry-After": str(RETRY_AFTER_SECONDS)}
_NOT_FOUND = problem(404, "not_found", "Not found", "There is nothing at this address.")
_SOURCE_UNKNOWN = problem_of(SourceUnknown, "Nothing was stored. Check the address.")
_SIGNATURE_INVALID = problem_of(SignatureInvalid, "The delivery was refused and nothing was stored.")
_BODY_MALFORMED = problem_of(BodyMalformed, "The delivery was refused and nothing was stored.")
_BODY_TOO_LARGE = problem_of(BodyTooLarge, "The delivery was refused and nothing was stored.")
_BODY_GONE = problem(
    500, "body_gone", "The body did not arrive", "Nothing was stored. Send the delivery again later."
)
_BODY_TOO_SLOW = problem(
    408,
    "body_too_slow",
    "The body took too long",
    "Nothing was stored. Send the delivery again.",
    {"Connection": "close"},
)
_HEADERS_TOO_LARGE = problem(
    431, "headers_too_large", "The headers are too large", "The delivery was refused and nothing was stored."
)
_ENCODING_UNSUPPORTED = problem(
    415,
    "encoding_unsupported",
    "The body is compressed",
    "Send the body without Content-Encoding.",
    {"Accept-Encoding": "identity"},
)
_UNAVAILABLE = problem_of(StoreUnavailable, "Nothing is known to be stored. Send it again later.", _RETRY)
_BUSY = problem(503, "busy", "Too busy", "Nothing was stored. Send the delivery again later.", _RETRY)
_DRAINING = problem(
    503,
    "draining",
    "Shutting down",
    "Nothing was stored. Send the delivery again later.",
    _RETRY | {"Connection": "close"},
)
_FAILED = problem(500, "error", "Something went wrong", "Send the delivery again later.")
_UNHEALTHY = problem(503, "unhealthy", "Not healthy", "Deliveries cannot be accepted at present.", _RETRY)
_HEALTHY = HttpResponse.of(
    200, b'{"status":"ok"}', {"Content-Type": "application/json", "Cache-Control": "no-store"}
)
_ACCEPTED_HEADERS = ((b"content-type", b"application/json"),)


class Receiver:
    """Serves ``POST /hooks/{source}`` and ``GET /healthz``, below any mount prefix.

    Args:
        intake: the engine behind it.
        startup: awaited once before the first request, where the server speaks "lifespan".
        shutdown: awaited once after the last request, likewise.
        limits: bounds on bodies and headers.
    """

    def __init__(
        self,
        intake: Intake,
        *,
        startup: Hook | None = None,
        shutdown: Hook | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._intake = intake
        self._startup = startup
        self._shutdown = shutdown
        self._limits = limits or Limits()
        self._cutoff = Cutoff(self._limits.body_seconds_max)
        self._held_bytes = 0
        self._is_draining = False

    def drain(self) -> None:
        """Refuse new deliveries with 503 from now on; those under way are still answered."""
        self._is_draining = True

    def resume(self) -> None:
        """Accept deliveries again, when what is behind it was closed and has been opened anew."""
        self._is_draining = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection scope."""
        kind = scope["type"]
        if kind == "http":
            response = await self._respond(scope, receive)
            if response is not None:
                await send_response(send, response, head_only=scope["method"] == "HEAD")
        elif kind == "lifespan":
            await self._lifespan(receive, send)
        elif kind == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1000})

    # --- routes -----------------------------------------------------------------------------------

    async def _respond(self, scope: Scope, receive: Receive) -> HttpResponse | None:
        """Give the reply, or None when the sender has gone."""
        path = path_below_mount(scope)
        method = scope["method"]
        if path.startswith(HOOKS) and len(path) > len(HOOKS):
            if method != "POST":
                return _method_not_allowed("POST")
            name = path[len(HOOKS) :]
            try:
                return await self._deliver(name, scope, receive)
            except Exception as error:  # noqa: BLE001 (the last line of defence: a fault is a 500, and logged)
                _log_fault(name, error)
                return _FAILED
        if path == HEALTH:
            return await self._health() if method in ("GET", "HEAD") else _method_not_allowed("GET, HEAD")
        return _NOT_FOUND

    async def _health(self) -> HttpResponse:
        if self._is_draining:
            return _UNHEALTHY
        try:
            async with asyncio.timeout(self._limits.health_seconds_max):
                healthy = await self._intake.healthy()
        except Exception as error:  # noqa: BLE001 (whatever fails here means the same: not healthy)
            log.warning("health check failed: %s", type(error).__name__)
            return _UNHEALTHY
        return _HEALTHY if healthy else _UNHEALTHY

    # --- one delivery -----------------------------------------------------------------------------

    async def _deliver(self, name: str, scope: Scope, receive: Receive) -> HttpResponse | None:
        if self._is_draining:
            return _refuse(name, _DRAINING, "draining")
        refusal = self._refusal_by_head(name, scope["headers"])
        if refusal is not None:
            return refusal

        body = await self._read_body(name, receive)
        if not isinstance(body, bytes):
            return body
        if not body and (announced := _announced_bytes(scope["headers"])):
            return _refuse(name, _BODY_GONE, f"none of {announced} bytes: something read the body before")
        try:
            return await self._take(name, scope, body)
        finally:
            self._held_bytes -= len(body)

    async def _take(self, name: str, scope: Scope, body: bytes) -> HttpResponse:
        """Verify, read and accept a delivery that is here in full."""
        source = self._intake.sources.get(name)
        if source is None:
            return _refuse(name, _SOURCE_UNKNOWN, "no such source")
        now_ms = self._intake.now_ms()
        request = _request(scope, body, now_ms)

        try:
            verified = source.verify(request, now_ms)
        except SignatureInvalid as error:
            return _refuse(name, _SIGNATURE_INVALID, error.check)
        except Exception as error:  # noqa: BLE001 (a source's own bug must never let a delivery in)
            _log_fault(name, error)
            return _refuse(name, _SIGNATURE_INVALID, "the source's verify failed")

        try:
            answer = source.handshake(request, now_ms)
            if answer is not None:
                return answer
            incoming = source.normalize(request)
            accepted = await self._intake.accept(name, request, incoming, verified)
        except BodyMalformed as error:
            return _refuse(name, _BODY_MALFORMED, error.what)
        except StoreUnavailable as error:
            return _refuse(name, _UNAVAILABLE, error.what)
        return HttpResponse(202, _ACCEPTED_HEADERS, msgspec.json.encode(accepted))

    def _refusal_by_head(self, name: str, headers: Any) -> HttpResponse | None:
        """Give the refusal that the headers alone earn, before a byte of the body is read."""
        limits = self._limits
        announced = _announced_bytes(headers)
        if announced > limits.body_bytes_max:
            return _refuse(name, _BODY_TOO_LARGE, f"announced {announced} bytes")
        count = size = 0
        for field, value in headers:
            count += 1
            size += len(field) + len(value)
            if field == b"content-encoding" and value.strip().lower() != b"identity":
                return _refuse(name, _ENCODING_UNSUPPORTED, "compressed body")
        if count > limits.header_count_max or size > limits.header_bytes_max:
            return _refuse(name, _HEADERS_TOO_LARGE, f"{count} headers of {size} bytes")
        return None

    async def _read_body(self, name: str, receive: Receive) -> bytes | HttpResponse | None:
        """Give the body, or the refusal, or None when the sender hung up.

        What is kept never exceeds the limits by more than one chunk. The bytes of a body that is
        given back stay counted in ``_held_bytes``; the caller takes them off.
        """
        limits = self._limits
        # One growing buffer: a list of one-byte chunks would take forty times the body's size.
        buffer = bytearray()
        size = 0
        complete = False
        task = self._cutoff.begin()
        try:
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    return None
                chunk = message.get("body", b"")
                size += len(chunk)
                self._held_bytes += len(chunk)
                if size > limits.body_bytes_max:
                    return _refuse(name, _BODY_TOO_LARGE, f"more than {limits.body_bytes_max} bytes")
                if self._held_bytes > limits.held_bytes_max:
                    return _refuse(name, _BUSY, f"{self._held_bytes} bytes of bodies at once")
                if message.get("more_body", False):
                    buffer += chunk
                    continue
                complete = True
                return bytes(buffer + chunk) if buffer else bytes(chunk)
        except asyncio.CancelledError:
            if not self._cutoff.cut_off(task):
                raise
            check = f"incomplete after {limits.body_seconds_max} s"
            return _refuse(
                name, _BODY_TOO_SLOW, check if size else f"{check}, unless something read it before"
            )
        finally:
            self._cutoff.end(task)
            if not complete:
                self._held_bytes -= size

    # --- life of the server -----------------------------------------------------------------------

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            stage = (await receive())["type"].removeprefix("lifespan.")
            if stage == "shutdown":
                self.drain()
            hook = self._startup if stage == "startup" else self._shutdown
            try:
                if hook is not None:
                    await hook()
            except Exception as error:
                # The server prints the message as its reason to stop. Ours say what to do.
                message = str(error)
                if not isinstance(error, OncewardError):
                    log.exception("%s failed", stage)
                    message = f"{stage} failed: {type(error).__name__}"
                await send({"type": f"lifespan.{stage}.failed", "message": message})
                return
            await send({"type": f"lifespan.{stage}.complete"})
            if stage == "shutdown":
                return


def path_below_mount(scope: Scope) -> str:
    """Give a request's path without the prefix at which the application is mounted."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "").rstrip("/")
    # ASGI puts the mount prefix into both; servers and frameworks that do not are as welcome.
    if root and path.startswith(root) and path[len(root) : len(root) + 1] == "/":
        return path[len(root) :]
    return path


def _announced_bytes(headers: Any) -> int:
    """Give the size that the head announces, 0 where it announces none."""
    for field, value in headers:
        # Anything else than a few digits is the server's business; the bytes are counted.
        if field == b"content-length" and value.isdigit() and len(value) < 20:
            return int(value)
    return 0


def _request(scope: Scope, body: bytes, now_ms: int) -> HttpRequest:
    raw_path: bytes | None = scope.get("raw_path")
    return HttpRequest(
        method=scope["method"],
        path=raw_path.decode("latin-1") if raw_path else quote(scope["path"]),
        query=scope.get("query_string", b"").decode("latin-1"),
        headers=tuple(scope["headers"]),
        body=body,
        received_at_ms=now_ms,
    )


def _method_not_allowed(allow: str) -> HttpResponse:
    return problem(405, "method_not_allowed", "The method is not allowed", f"Use {allow}.", {"Allow": allow})


def _refuse(source: str, response: HttpResponse, check: str) -> HttpResponse:
    # ascii() quotes and escapes: a stranger chooses the source's name, and must not write log lines.
    log.warning(
        "delivery refused: source=%s status=%d check=%s",
        ascii(source[:_LOGGED_CHARS_MAX]),
        response.status,
        ascii(check[:_LOGGED_CHARS_MAX]),
    )
    return response


def _log_fault(source: str, error: Exception) -> None:
    """Log where an unexpected exception came from; its text, which may hold payload, only at DEBUG.

    Errors about the set-up and the store are ours, hold none, and say what to do.
    """
    if isinstance(error, ConfigError | StoreError):
        text = " ".join(str(error).split())
        log.error("delivery failed: source=%s error=%s", ascii(source[:_LOGGED_CHARS_MAX]), text)
        return
    log.error(
        "delivery failed: source=%s error=%s\n%s",
        ascii(source[:_LOGGED_CHARS_MAX]),
        type(error).__name__,
        "".join(traceback.format_tb(error.__traceback__)).rstrip(),
        exc_info=error if log.isEnabledFor(logging.DEBUG) else None,
    )


async def send_response(send: Send, response: HttpResponse, *, head_only: bool) -> None:
    """Send a response, of which the asker of a HEAD gets no body."""
    headers = list(response.headers)
    if response.status not in (204, 304):
        headers.append((b"content-length", b"%d" % len(response.body)))
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if head_only else response.body})
