"""The receiver's replies, made once, and those that a source has its own form for."""

from __future__ import annotations

import logging

import msgspec

from onceward.core.arrival import Accepted, Outcome
from onceward.core.errors import (
    BodyMalformed,
    BodyTooLarge,
    KeyUnavailable,
    SignatureInvalid,
    SourceUnknown,
    StoreUnavailable,
)
from onceward.core.messages import HttpResponse
from onceward.sources.base import Source
from onceward.web.problems import problem, problem_of

RETRY_AFTER_SECONDS = 5

_log = logging.getLogger("onceward.receiver")

_RETRY = {"Retry-After": str(RETRY_AFTER_SECONDS)}
NOT_FOUND = problem(404, "not_found", "Not found", "There is nothing at this address.")
SOURCE_UNKNOWN = problem_of(SourceUnknown, "Nothing was stored. Check the address.")
SIGNATURE_INVALID = problem_of(SignatureInvalid, "The delivery was refused and nothing was stored.")
BODY_MALFORMED = problem_of(BodyMalformed, "The delivery was refused and nothing was stored.")
BODY_TOO_LARGE = problem_of(BodyTooLarge, "The delivery was refused and nothing was stored.")
BODY_GONE = problem(
    500, "body_gone", "The body did not arrive", "Nothing was stored. Send the delivery again later."
)
BODY_TOO_SLOW = problem(
    408,
    "body_too_slow",
    "The body took too long",
    "Nothing was stored. Send the delivery again.",
    {"Connection": "close"},
)
HEADERS_TOO_LARGE = problem(
    431, "headers_too_large", "The headers are too large", "The delivery was refused and nothing was stored."
)
ENCODING_UNSUPPORTED = problem(
    415,
    "encoding_unsupported",
    "The body is compressed",
    "Send the body without Content-Encoding, and with no Transfer-Encoding but chunked.",
    {"Accept-Encoding": "identity"},
)
KEY_UNAVAILABLE = problem_of(KeyUnavailable, "Nothing was stored. Send it again later.", _RETRY)
UNAVAILABLE = problem_of(StoreUnavailable, "Nothing is known to be stored. Send it again later.", _RETRY)
BUSY = problem(503, "busy", "Too busy", "Nothing was stored. Send the delivery again later.", _RETRY)
DRAINING = problem(
    503,
    "draining",
    "Shutting down",
    "Nothing was stored. Send the delivery again later.",
    _RETRY | {"Connection": "close"},
)
FAILED = problem(500, "error", "Something went wrong", "Send the delivery again later.")
UNHEALTHY = problem(503, "unhealthy", "Not healthy", "Deliveries cannot be accepted at present.", _RETRY)
HEALTHY = HttpResponse.of(
    200, b'{"status":"ok"}', {"Content-Type": "application/json", "Cache-Control": "no-store"}
)
_JSON = ((b"content-type", b"application/json"),)
_RETRY_HEADER = (b"retry-after", b"%d" % RETRY_AFTER_SECONDS)
_encode = msgspec.json.Encoder().encode


def method_not_allowed(allow: str) -> HttpResponse:
    """Give the reply to a method that is none of *allow*."""
    return problem(405, "method_not_allowed", "The method is not allowed", f"Use {allow}.", {"Allow": allow})


def accepted_reply(source: Source, accepted: Accepted) -> HttpResponse:
    """Give the reply to a delivery that is stored."""
    own = _own_reply(source, accepted.outcome)
    return own if own is not None else HttpResponse(202, _JSON, _encode(accepted))


def refused_reply(source: Source, outcome: Outcome, ours: HttpResponse) -> HttpResponse:
    """Give the reply to a delivery that is not stored: the source's own form of it, or *ours*."""
    own = _own_reply(source, outcome)
    if own is None:
        return ours
    if outcome == "busy" and not any(name == b"retry-after" for name, _ in own.headers):
        return HttpResponse(own.status, (*own.headers, _RETRY_HEADER), own.body)
    return own


def _own_reply(source: Source, outcome: Outcome) -> HttpResponse | None:
    """Give the source's reply if it tells the truth: 2xx for what is stored, an error for what is not."""
    try:
        own = source.respond(outcome)
    except Exception as error:  # noqa: BLE001 - a plug-in's fault must not change what the sender hears
        _log.error("source %s: respond(%r) failed: %s", source.name, outcome, type(error).__name__)
        return None
    if own is None:
        return None
    is_success = outcome in ("accepted", "duplicate")
    if not (200 <= own.status < 300 if is_success else 400 <= own.status < 600):
        _log.error("source %s: respond(%r) gave status %d, not told", source.name, outcome, own.status)
        return None
    return own
