"""What a test says of a source so that the conformance suite can try it: how to make it, and examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from onceward.core.arrival import Incoming, Verified
from onceward.core.errors import BodyMalformed, SignatureInvalid
from onceward.core.messages import HeaderPairs, HttpRequest
from onceward.sources.base import Source


@dataclass(frozen=True)
class Example:
    """A genuine delivery, signed with the case's secret.

    Attributes:
        request: as the sender sends it.
        now_ms: a time at which it is fresh, Unix milliseconds.
        redelivered: the same events as the sender would send them again, signed anew where it does
            that; None where a second attempt is the same bytes.
    """

    request: HttpRequest
    now_ms: int
    redelivered: HttpRequest | None = None


@dataclass(frozen=True)
class SourceCase:
    """A source under test.

    Attributes:
        make: makes the source with these secrets, e.g. ``lambda secrets: Acme(secrets=secrets)``;
            the name has to be the same each time.
        secret: signs the examples.
        other_secret: one of the same form that signs none of them.
        examples: genuine deliveries, of different events.
        covers_body: the signature covers the whole body, so that one changed byte is refused.
        is_checked: False for a source that cannot check anything (``insecure=True``).
        is_lasting: False where every delivery is an event of its own, also a second attempt.
        has_expiry: the sender signs until when a delivery is good, not when it was sent.
    """

    make: Callable[[Sequence[str]], Source]
    secret: str
    other_secret: str
    examples: tuple[Example, ...]
    covers_body: bool = True
    is_checked: bool = True
    is_lasting: bool = True
    has_expiry: bool = False

    def source(self) -> Source:
        """Give the source with the secret of the examples."""
        return self.make([self.secret] if self.is_checked else [])


def verified(source: Source, request: HttpRequest, now_ms: int) -> Verified | None:
    """Give what `verify` gives, or None when it refuses; another exception passes and fails the test."""
    try:
        found = source.verify(request, now_ms)
    except SignatureInvalid:
        return None
    assert isinstance(found, Verified), f"verify gave {type(found).__name__}"
    return found


def refusal_of(source: Source, request: HttpRequest, now_ms: int) -> str:
    """Give which check of `verify` refuses, as the receiver's log has it; empty where none does."""
    try:
        source.verify(request, now_ms)
    except SignatureInvalid as error:
        return error.check
    return ""


def events_of(source: Source, request: HttpRequest) -> list[Incoming] | None:
    """Give what `normalize` gives, or None when the body is malformed; see `verified`."""
    try:
        found = source.normalize(request)
    except BodyMalformed:
        return None
    assert isinstance(found, list), f"normalize gave {type(found).__name__}"
    assert all(isinstance(one, Incoming) for one in found)
    return found


def with_body(request: HttpRequest, body: bytes) -> HttpRequest:
    """Give the request with another body and the same headers."""
    return _changed(request, body=body)


def with_headers(request: HttpRequest, headers: HeaderPairs) -> HttpRequest:
    """Give the request with other headers and the same body."""
    return _changed(request, headers=headers)


def each_header(request: HttpRequest) -> Iterator[tuple[str, HeaderPairs, tuple[bytes, bytes], HeaderPairs]]:
    """Give each header's name, the headers before it, itself, and those behind it."""
    for index, pair in enumerate(request.headers):
        yield pair[0].decode("latin-1"), request.headers[:index], pair, request.headers[index + 1 :]


def _changed(
    request: HttpRequest, *, body: bytes | None = None, headers: HeaderPairs | None = None
) -> HttpRequest:
    return HttpRequest(
        request.method,
        request.path,
        request.query,
        request.headers if headers is None else headers,
        request.body if body is None else body,
        request.received_at_ms,
        request.url,
    )


def later(request: HttpRequest, by_ms: int = 60_000) -> HttpRequest:
    """Give the request as received later."""
    return HttpRequest(
        request.method,
        request.path,
        request.query,
        request.headers,
        request.body,
        request.received_at_ms + by_ms,
        request.url,
    )


__all__ = [
    "Example",
    "SourceCase",
    "each_header",
    "events_of",
    "later",
    "verified",
    "with_body",
    "with_headers",
]
