"""The door for deliveries: an ASGI application that needs no framework.

The order of work is the promise. A delivery's bytes are counted before they are kept; the
signature is checked over the bytes as they came; only then is anything read from them; and the
reply is sent after `Intake.accept` returned, which is after the commit. A 4xx is for a delivery
that is not genuine or cannot be read, since several senders drop an event for good on any 4xx; one
at which a plug-in fails is kept, answered 2xx and read again later.
Refusals tell the sender the same few words each time; the operator's log and counts say which
check failed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from onceward.core.arrival import Accepted, fault_of
from onceward.core.errors import (
    BodyMalformed,
    BodyNotStorable,
    BodyTooLarge,
    KeyUnavailable,
    NotStorable,
    OncewardError,
    SignatureInvalid,
    StoreUnavailable,
)
from onceward.core.inflate import can_inflate, inflated
from onceward.core.kept import WatchedRequest
from onceward.core.messages import HttpRequest, HttpResponse, without_encoding
from onceward.sources.base import Source
from onceward.web import replies
from onceward.web.address import Proxies, url_of
from onceward.web.admission import Admission
from onceward.web.aside import Aside, TooSlow
from onceward.web.cutoff import Cutoff
from onceward.web.faults import LOGGED_CHARS_MAX, log_fault, place_of
from onceward.web.port import Hook, Intake, Limits, Receive, Scope, Send
from onceward.web.promise_door import PROMISES, PromiseDoor

HOOKS = "/hooks/"
HEALTH = "/healthz"

log = logging.getLogger("onceward.receiver")


class _Head(NamedTuple):
    """What the receiver itself reads of the headers."""

    host: bytes | None
    encoding: str  # empty for a body as it is
    announced: int  # bytes of the body, 0 where none are announced


class Receiver:
    """Serves ``POST /hooks/{source}``, ``/promises/{token}`` and ``GET /healthz``, below any mount prefix.

    Args:
        intake: the engine behind it.
        startup: awaited once before the first request, where the server speaks "lifespan".
        shutdown: awaited once after the last request, likewise.
        limits: bounds on bodies and headers.
        proxies: whose word about scheme and host is believed.
        promises: completes promises; without it there are no addresses of theirs.
    """

    def __init__(
        self,
        intake: Intake,
        *,
        startup: Hook | None = None,
        shutdown: Hook | None = None,
        limits: Limits | None = None,
        proxies: Proxies | None = None,
        promises: PromiseDoor | None = None,
    ) -> None:
        self._intake = intake
        self._startup = startup
        self._shutdown = shutdown
        self._limits = limits or Limits()
        self._proxies = Proxies() if proxies is None else proxies
        self._promises = promises
        self._cutoff = Cutoff(self._limits.body_seconds_max)
        self._admission = Admission(self._limits.deliveries_max, self._limits.held_bytes_max)
        self._aside = Aside(self._limits.verify_seconds_max)
        self._is_draining = False

    def drain(self) -> None:
        """Refuse new deliveries with 503 from now on; those under way are still answered."""
        self._is_draining = True

    def resume(self) -> None:
        """Take deliveries again: the app behind it was opened once more."""
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
            name = path[len(HOOKS) :]
            try:
                if method == "POST":
                    return await self._deliver(name, scope, receive)
                return await self._answer(name, scope)
            except Exception as error:  # noqa: BLE001 (the last line of defence: a fault is a 500, and logged)
                log_fault(name, error)
                return replies.FAILED
        if self._promises is not None and path.startswith(PROMISES) and len(path) > len(PROMISES):
            return await self._complete(self._promises, path[len(PROMISES) :], scope, receive)
        if path == HEALTH:
            if method in ("GET", "HEAD"):
                return await self._health()
            return replies.method_not_allowed("GET, HEAD")
        return replies.NOT_FOUND

    async def _complete(
        self, promises: PromiseDoor, rest: str, scope: Scope, receive: Receive
    ) -> HttpResponse | None:
        """Answer at the address of a promise; what it is stands in the path, and goes into no log."""
        head = self._head("promises", scope["headers"])
        if not isinstance(head, _Head):
            return head
        body = await self._read_body("promises", "", receive)
        if not isinstance(body, bytes):
            return body
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            return await promises.answer(scope["method"], rest, headers, body)
        except Exception as error:  # noqa: BLE001 (the last line of defence: a fault is a 500, and logged)
            log_fault("promises", error)
            return replies.FAILED
        finally:
            self._admission.release("", len(body))

    async def _health(self) -> HttpResponse:
        if self._is_draining:
            return replies.UNHEALTHY
        try:
            async with asyncio.timeout(self._limits.health_seconds_max):
                healthy = await self._intake.healthy()
        except Exception as error:  # noqa: BLE001 (whatever fails here means the same: not healthy)
            log.warning("health check failed: %s", type(error).__name__)
            return replies.UNHEALTHY
        return replies.HEALTHY if healthy else replies.UNHEALTHY

    # --- questions --------------------------------------------------------------------------------

    async def _answer(self, name: str, scope: Scope) -> HttpResponse:
        """Answer what comes with another method than POST: a question of the protocol, or nothing."""
        source = self._intake.sources.get(name)
        if source is None:
            return self._refuse(name, replies.SOURCE_UNKNOWN, "no such source")
        allowed = replies.method_not_allowed(", ".join(source.methods))
        if scope["method"] not in source.methods:
            return allowed
        head = self._head(name, scope["headers"])
        if not isinstance(head, _Head):
            return head
        now_ms = self._intake.now_ms()
        request = self._request(scope, head, b"", now_ms)
        try:
            if source.handshake_phase == "verified":
                await self._call(source, source.verify, request, now_ms)
            answer: HttpResponse | None = await self._call(source, source.handshake, request, now_ms)
        except SignatureInvalid as error:
            return self._not_genuine(source, error, request)
        except TooSlow as error:
            return self._refuse_busy(source, replies.BUSY, str(error))
        except Exception as error:  # noqa: BLE001 (a source's own bug proves nothing)
            log_fault(name, error)
            return self._refuse(name, replies.SIGNATURE_INVALID, "the source's handshake failed")
        return allowed if answer is None else answer

    # --- one delivery -----------------------------------------------------------------------------

    async def _deliver(self, name: str, scope: Scope, receive: Receive) -> HttpResponse | None:
        if self._is_draining:
            return self._refuse(name, replies.DRAINING, "draining")
        head = self._head(name, scope["headers"])
        if not isinstance(head, _Head):
            return head
        source = self._intake.sources.get(name)
        # Strangers make up names; they share what one source may hold.
        holder = "" if source is None else name
        body = await self._read_body(name, holder, receive)
        if not isinstance(body, bytes):
            return body
        try:
            if source is None:
                return self._refuse(name, replies.SOURCE_UNKNOWN, "no such source", body_bytes=len(body))
            if not body and (check := _body_lost(head, scope)):
                return self._refuse(name, replies.BODY_GONE, check)
            if "POST" not in source.methods:
                return replies.method_not_allowed(", ".join(source.methods))
            if not self._admission.enter(name):
                return self._refuse_busy(source, replies.BUSY, "too many deliveries under way")
            try:
                return await self._take(source, scope, head, body)
            finally:
                self._admission.leave(name)
        finally:
            self._admission.release(holder, len(body))

    async def _take(self, source: Source, scope: Scope, head: _Head, body: bytes) -> HttpResponse:
        """Verify, read and accept a delivery that is here in full."""
        name = source.name
        now_ms = self._intake.now_ms()
        request = signed = self._request(scope, head, body, now_ms)
        if head.encoding:
            if source.encoded_bodies == "refused":
                return self._refuse(name, replies.ENCODING_UNSUPPORTED, "compressed body")
            if source.encoded_bodies == "decoded":
                inflation = self._inflated(source, request, head.encoding)
                if isinstance(inflation, HttpResponse):
                    return inflation
                request = signed = inflation

        try:
            if source.handshake_phase == "unverified":
                answer: HttpResponse | None = await self._call(source, source.handshake, request, now_ms)
                if answer is not None:
                    return answer
            if source.is_blocking:
                verified = await self._aside.call(source.verify, signed, now_ms)
            else:
                verified = source.verify(signed, now_ms)
        except SignatureInvalid as error:
            return self._not_genuine(source, error, signed)
        except TooSlow as error:
            return self._refuse_busy(source, replies.BUSY, str(error))
        except Exception as error:  # noqa: BLE001 (a source's own bug must never let a delivery in)
            log_fault(name, error)
            return self._not_genuine(source, SignatureInvalid("the source's verify failed"), None)

        if verified.loose_proof is not None:
            try:
                is_first = await self._intake.is_first_under(name, verified.loose_proof)
            except StoreUnavailable as error:
                return self._refuse_busy(source, replies.UNAVAILABLE, error.what)
            if not is_first:
                used = SignatureInvalid("something else came under the same signature before")
                return self._not_genuine(source, used, None)

        if head.encoding and source.encoded_bodies == "as-sent":
            inflation = self._inflated(source, request, head.encoding)
            if isinstance(inflation, HttpResponse):
                return inflation
            request = inflation
        asked_before: set[bytes] = set()
        try:
            if source.handshake_phase == "verified":
                if source.is_blocking:
                    answer = await self._aside.call(source.handshake, request, now_ms)
                else:
                    answer = source.handshake(request, now_ms)
                if answer is not None:
                    return answer
            asked_before = set(signed.asked)
            incoming = source.normalize(request)
        except SignatureInvalid as error:
            return self._not_genuine(source, error, None)
        except TooSlow as error:
            return self._refuse_busy(source, replies.BUSY, str(error))
        except BodyMalformed as error:
            if not source.keeps_malformed and not isinstance(error, BodyNotStorable):
                response = replies.refused_reply(source, "malformed", replies.BODY_MALFORMED)
                return self._refuse(name, response, error.what, body_bytes=len(body))
            reason = error.what
        except Exception as error:  # noqa: BLE001 (a source's own bug must not lose a genuine delivery)
            log_fault(name, error)
            reason = place_of(error)
        else:
            fault = fault_of(incoming)
            if fault is None:
                if signed is not request:  # what is stored is the body as it was sent
                    incoming = [msgspec.structs.replace(one, payload_is_body=False) for one in incoming]
                try:
                    accepted = await self._intake.accept(name, signed, incoming, verified)
                except NotStorable as error:
                    fault = error.what
                except StoreUnavailable as error:
                    return self._refuse_busy(source, replies.UNAVAILABLE, error.what)
                else:
                    return replies.accepted_reply(source, accepted)
            log.error("delivery not understood: source=%s error=%s", ascii(name), ascii(fault))
            reason = fault

        told_by = [header.decode("latin-1") for header in signed.asked - asked_before]
        try:
            await self._intake.keep_unparsed(name, signed, verified, reason, told_by)
        except StoreUnavailable as error:
            return self._refuse_busy(source, replies.UNAVAILABLE, error.what)
        return replies.accepted_reply(source, Accepted([]))

    async def _call(
        self, source: Source, function: Callable[..., Any], request: HttpRequest, now: int
    ) -> Any:
        """Call a function of a source here, or in a thread if it may wait for the network."""
        if source.is_blocking:
            return await self._aside.call(function, request, now)
        return function(request, now)

    # --- refusing ---------------------------------------------------------------------------------

    def _refuse(self, name: str, response: HttpResponse, check: str, **more: Any) -> HttpResponse:
        # ascii() quotes and escapes: a stranger chooses the source's name, and must not write log lines.
        log.warning(
            "delivery refused: source=%s status=%d check=%s",
            ascii(name[:LOGGED_CHARS_MAX]),
            response.status,
            ascii(check[:LOGGED_CHARS_MAX]),
        )
        self._intake.refused(name, response.status, check, **more)
        return response

    def _refuse_busy(self, source: Source, ours: HttpResponse, check: str) -> HttpResponse:
        return self._refuse(source.name, replies.refused_reply(source, "busy", ours), check)

    def _not_genuine(
        self, source: Source, error: SignatureInvalid, request: HttpRequest | None
    ) -> HttpResponse:
        if isinstance(error, KeyUnavailable):  # not the sender's fault
            return self._refuse_busy(source, replies.KEY_UNAVAILABLE, error.check)
        response = replies.refused_reply(source, "refused", replies.SIGNATURE_INVALID)
        size = None if request is None else len(request.body)
        return self._refuse(
            source.name, response, error.check, body_bytes=size, skew_ms=error.skew_ms, request=request
        )

    # --- the parts of a request -------------------------------------------------------------------

    def _head(self, name: str, headers: Any) -> _Head | HttpResponse:
        """Give what the headers say, or the refusal that they alone earn, before the body is read."""
        limits = self._limits
        count = size = announced = 0
        host: bytes | None = None
        encoding = ""
        for field, value in headers:
            count += 1
            size += len(field) + len(value)
            if field == b"content-length":
                # Anything else than a few digits is the server's business; the bytes are counted.
                if not announced and value.isdigit() and len(value) < 20:
                    announced = int(value)
            elif field == b"host":
                host = value
            elif field == b"content-encoding" and value.strip().lower() != b"identity":
                # A second encoding on top of the first is none that we know.
                encoding = f"{encoding}, {value.decode('latin-1')}" if encoding else value.decode("latin-1")
            elif field == b"transfer-encoding" and value.strip().lower() not in (b"chunked", b""):
                # Servers take the chunks off and leave what is under them, `gzip, chunked`, as it is.
                return self._refuse(name, replies.ENCODING_UNSUPPORTED, "a transfer encoding beside chunked")
        if announced > limits.body_bytes_max:
            return self._refuse(name, replies.BODY_TOO_LARGE, f"announced {announced} bytes")
        if count > limits.header_count_max or size > limits.header_bytes_max:
            return self._refuse(name, replies.HEADERS_TOO_LARGE, f"{count} headers of {size} bytes")
        if encoding:
            source = self._intake.sources.get(name)
            if source is None or source.encoded_bodies == "refused" or not can_inflate(encoding):
                return self._refuse(name, replies.ENCODING_UNSUPPORTED, "compressed body")
        return _Head(host, encoding, announced)

    async def _read_body(self, name: str, holder: str, receive: Receive) -> bytes | HttpResponse | None:
        """Give the body, or the refusal, or None when the sender hung up.

        What is kept never exceeds the limits by more than one chunk. The bytes of a body that is
        given back stay counted as held; the caller takes them off.
        """
        limits, admission = self._limits, self._admission
        # One growing buffer: a list of one-byte chunks would take forty times the body's size.
        buffer: bytearray | None = None
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
                is_within = admission.hold(holder, len(chunk))
                if size > limits.body_bytes_max:
                    return self._refuse(
                        name, replies.BODY_TOO_LARGE, f"more than {limits.body_bytes_max} bytes"
                    )
                if not is_within:
                    return self._refuse(name, replies.BUSY, f"{admission.bytes} bytes of bodies at once")
                if message.get("more_body", False):
                    buffer = bytearray() if buffer is None else buffer
                    buffer += chunk
                    continue
                complete = True
                return bytes(buffer + chunk) if buffer else bytes(chunk)
        except asyncio.CancelledError:
            if not self._cutoff.cut_off(task):
                raise
            check = f"incomplete after {limits.body_seconds_max} s"
            if not size:
                check += ", unless something read it before"
            return self._refuse(name, replies.BODY_TOO_SLOW, check)
        finally:
            self._cutoff.end(task)
            if not complete:
                admission.release(holder, size)

    def _request(self, scope: Scope, head: _Head, body: bytes, now_ms: int) -> WatchedRequest:
        raw_path: bytes | None = scope.get("raw_path")
        path = raw_path.decode("latin-1") if raw_path else quote(scope["path"])
        query = scope.get("query_string", b"").decode("latin-1")
        url = url_of(scope, path, query, head.host, self._proxies)
        return WatchedRequest(scope["method"], path, query, tuple(scope["headers"]), body, now_ms, url)

    def _inflated(
        self, source: Source, request: WatchedRequest, encoding: str
    ) -> WatchedRequest | HttpResponse:
        """Give a request with its body decoded, and not said to be encoded any more; or the refusal."""
        try:
            body = inflated(encoding, request.body, self._limits.body_bytes_max)
        except BodyTooLarge as error:
            return self._refuse(source.name, replies.BODY_TOO_LARGE, error.what)
        except BodyMalformed as error:
            response = replies.refused_reply(source, "malformed", replies.BODY_MALFORMED)
            return self._refuse(source.name, response, error.what)
        return msgspec.structs.replace(request, body=body, headers=without_encoding(request.headers))

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


def _body_lost(head: _Head, scope: Scope) -> str:
    """Say what became of a body that was announced and did not come; nothing where none was."""
    names = {name for name, _ in scope["headers"]}
    if not head.announced and not names >= {b"transfer-encoding", b"upgrade"}:
        return ""
    check = f"none of {head.announced} bytes" if head.announced else "none of the body"
    if b"upgrade" in names:
        # uvicorn by httptools, which `onceward serve` mends: https://github.com/Kludex/uvicorn/issues/2722
        return f"{check}: this server drops it where a sender offers to upgrade; for uvicorn, --http h11"
    return f"{check}: something read the body before"


def path_below_mount(scope: Scope) -> str:
    """Give a request's path without the prefix at which the application is mounted."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "").rstrip("/")
    # ASGI puts the mount prefix into both; servers and frameworks that do not are as welcome.
    if root and path.startswith(root) and path[len(root) : len(root) + 1] == "/":
        return path[len(root) :]
    return path


async def send_response(send: Send, response: HttpResponse, *, head_only: bool) -> None:
    """Send a response, of which the asker of a HEAD gets no body."""
    headers = list(response.headers)
    if response.status not in (204, 304):
        headers.append((b"content-length", b"%d" % len(response.body)))
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if head_only else response.body})
