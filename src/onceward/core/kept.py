"""What is kept of a request: enough to verify and read it again, and no credential.

Headers are kept by an allow-list: a few that people ask for, those that the source names, and those
that it looked at while it verified and read the delivery, which are the ones it would look at again. Of a delivery that it failed to read
all others are kept too, since a corrected source may ask for more.
What authenticates by itself is never kept, whoever looked at it: `Authorization`, cookies, headers
that are named like a token, values that hold one of the source's secrets. A signature is none of
these: it proves only the body that lies beside it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable

import msgspec

from onceward.core.messages import HttpRequest, first_of, values_of, wire_name

_OF_THE_WAY = re.compile(
    rb"(x-)?forwarded(-.*)?|x-real-ip|(true|x)-client-ip|via|cf-.*|fly-.*|x-amzn-.*|host|connection|te|"
    rb"accept(-.*)?|content-length|transfer-encoding|upgrade.*|sec-.*"
)
"""Headers of the connection and of proxies, which say nothing of an event and may say who sent it."""

GENERAL_HEADERS = frozenset({b"content-type", b"content-encoding", b"user-agent"})
_NEVER = frozenset({b"authorization", b"proxy-authorization", b"cookie", b"set-cookie"})
# Not "signature", "auth-algo" or "idempotency-token", which schemes need and which open nothing.
_LIKE_A_TOKEN = re.compile(
    rb"(?<!idempotency-)token|secret|passw|api-?key|credential|cookie|authoriz|authentic|session"
    rb"|(^|-)auth(-?key)?$"
)


class WatchedRequest(HttpRequest, frozen=True):
    """A request that notes which headers it is asked for.

    Attributes:
        asked: their names, in lower case.
    """

    asked: set[bytes] = msgspec.field(default_factory=set)

    def header(self, name: str) -> str | None:
        """Give the first value of a header as text, or None; see `HttpRequest.header`."""
        wanted = wire_name(name)
        self.asked.add(wanted)
        return first_of(self.headers, wanted)

    def header_values(self, name: str) -> list[bytes]:
        """Give every value of a header as sent; see `HttpRequest.header_values`."""
        wanted = wire_name(name)
        self.asked.add(wanted)
        return values_of(self.headers, wanted)


class KeptRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request as it is stored, less its body; texts hold one character for each byte.

    Attributes:
        method: as of `HttpRequest`.
        path: likewise.
        query: likewise; empty where it held a secret.
        origin: scheme and host as the sender called it.
        headers: pairs in the order of arrival.
        redelivery_of: the delivery that a person had read again.
    """

    method: str
    path: str
    query: str = ""
    origin: str = ""
    headers: list[tuple[str, str]] = []
    redelivery_of: str = ""


_decoder = msgspec.json.Decoder(KeptRequest)
_encode = msgspec.json.Encoder().encode


def kept(
    request: HttpRequest,
    *,
    declared: Iterable[str] = (),
    secrets: Collection[bytes] = (),
    redelivery_of: str = "",
    is_unread: bool = False,
) -> str:
    """Give what is stored of *request* as JSON text.

    Args:
        request: as it came; what a `WatchedRequest` was asked for is kept as well.
        declared: names of headers that the source needs, in lower case; ``ce-*`` means all that
            begin so.
        secrets: the source's, none of which may be stored.
        redelivery_of: see `KeptRequest`.
        is_unread: nobody knows yet which headers it takes to read it.
    """
    asked = frozenset(request.asked) if isinstance(request, WatchedRequest) else frozenset()
    if is_unread:
        asked |= {name for name, _ in request.headers if not _OF_THE_WAY.fullmatch(name)}
    names, starts = _allowed(asked, tuple(declared))
    headers, values = [], []
    for name, value in request.headers:
        if name in names:
            text = names[name]
        elif starts and name.startswith(starts) and name not in _NEVER:
            text = name.decode("latin-1")
        else:
            continue
        headers.append((text, value.decode("latin-1")))
        values.append(value)
    # One look for all of them: hardly any request holds a secret.
    if _holds(b"\n".join(values), secrets):
        headers = [pair for pair, value in zip(headers, values, strict=True) if not _holds(value, secrets)]
    query = request.query
    if query and _holds(query.encode("latin-1", "replace"), secrets):
        query = ""
    origin = _origin_of(request.url)
    return _encode(KeptRequest(request.method, request.path, query, origin, headers, redelivery_of)).decode()


@functools.lru_cache(maxsize=256)
def _allowed(
    asked: frozenset[bytes], declared: tuple[str, ...]
) -> tuple[dict[bytes, str], tuple[bytes, ...]]:
    """Give the names of headers that are kept, each with its text, and beginnings of names."""
    raw = [name.encode("latin-1") for name in declared]
    names = {name for name in asked if not _LIKE_A_TOKEN.search(name)}.union(raw, GENERAL_HEADERS)
    texts = {name: name.decode("latin-1") for name in names - _NEVER}
    return texts, tuple(name[:-1] for name in raw if name.endswith(b"*"))


def request_of(text: str, body: bytes, received_at_ms: int) -> HttpRequest:
    """Give the request back of which *text* was kept.

    Args:
        text: what `kept` gave.
        body: the bytes that were stored beside it.
        received_at_ms: when it came, Unix milliseconds.
    """
    found = _decoder.decode(text)
    query = f"?{found.query}" if found.query else ""
    return HttpRequest(
        method=found.method,
        path=found.path,
        query=found.query,
        headers=tuple((name.encode("latin-1"), value.encode("latin-1")) for name, value in found.headers),
        body=body,
        received_at_ms=received_at_ms,
        url=f"{found.origin}{found.path}{query}" if found.origin else "",
    )


def kept_of(text: str) -> KeptRequest:
    """Give the stored request as it is stored."""
    return _decoder.decode(text)


def _origin_of(url: str) -> str:
    """Give scheme and host of an address; empty where it has no host."""
    host_at = url.find("://") + 3
    if host_at in (2, len(url)):
        return ""
    end = url.find("/", host_at)
    return url if end < 0 else url[:end]


def _holds(value: bytes, secrets: Collection[bytes]) -> bool:
    for secret in secrets:  # noqa: SIM110 - a generator costs as much as the look itself
        # Not `in`: for bytes it tries first whether *secret* is a number, and drops the error.
        if value.find(secret) >= 0:
            return True
    return False
