"""HTTP requests and responses as values, so that verifying and reading one needs no server.

The receiver builds an `HttpRequest` from what the server gives it; tests, the demo and stored
deliveries build one with `HttpRequest.of`. Sources take it and never see a socket. Header values
stay bytes as they were sent: joining, decoding or trimming them is how signatures break.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import TypeAlias
from urllib.parse import urlsplit

import msgspec

HeaderPairs: TypeAlias = tuple[tuple[bytes, bytes], ...]


class HttpRequest(msgspec.Struct, frozen=True):
    """One HTTP request, whole and unchanged.

    Attributes:
        method: upper case, e.g. ``POST``.
        path: the path as the sender wrote it, percent-encoding and mount prefix kept.
        query: the text after ``?``, as sent, without it.
        headers: pairs in the order of arrival; names in lower case, a name may come several times.
        body: the bytes that signatures cover.
        received_at_ms: when the receiver got it, Unix milliseconds.
        url: the whole address as the sender called it, scheme, host and query included, for schemes
            that sign it; empty where it is not known.
    """

    method: str
    path: str
    query: str
    headers: HeaderPairs
    body: bytes
    received_at_ms: int
    url: str = ""

    @classmethod
    def of(
        cls,
        body: bytes = b"",
        headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
        *,
        method: str = "POST",
        path: str = "/",
        query: str = "",
        received_at_ms: int = 0,
        url: str = "",
    ) -> HttpRequest:
        """Give a request built from texts.

        Args:
            body: the bytes that signatures cover.
            headers: by name, in any case, or as pairs where a name comes several times.
            method: upper case.
            path: percent-encoded.
            query: without the question mark.
            received_at_ms: Unix milliseconds.
            url: the whole address as the sender called it; *path* and *query* are taken from it
                where they are not given.
        """
        if url and path == "/" and not query:
            parts = urlsplit(url)
            path, query = parts.path or "/", parts.query
        return cls(method, path, query, _header_pairs(headers), body, received_at_ms, url)

    def header(self, name: str) -> str | None:
        """Give the first value of a header as text (every byte is one character), or None."""
        return first_of(self.headers, wire_name(name))

    def header_values(self, name: str) -> list[bytes]:
        """Give every value of a header as sent, in order; an empty list when it is absent."""
        return values_of(self.headers, wire_name(name))


class HttpResponse(msgspec.Struct, frozen=True):
    """One HTTP response, such as a source's answer to a handshake.

    Attributes:
        status: e.g. 200.
        headers: pairs; names in lower case.
        body: its bytes.
    """

    status: int
    headers: HeaderPairs = ()
    body: bytes = b""

    @classmethod
    def of(
        cls,
        status: int,
        body: bytes = b"",
        headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
    ) -> HttpResponse:
        """Give a response built from texts.

        Args:
            status: e.g. 200.
            body: its bytes.
            headers: by name, in any case, or as pairs where a name comes several times.
        """
        return cls(status, _header_pairs(headers), body)


@functools.lru_cache(maxsize=256)
def wire_name(name: str) -> bytes:
    """Give a header's name as requests have it: bytes in lower case."""
    return name.lower().encode("latin-1")


def first_of(headers: HeaderPairs, name: bytes) -> str | None:
    """Give the first value of the header *name*, as `wire_name` gives it; see `HttpRequest.header`."""
    for found, value in headers:
        if found == name:
            return value.decode("latin-1")
    return None


def values_of(headers: HeaderPairs, name: bytes) -> list[bytes]:
    """Give every value of the header *name*, as `wire_name` gives it; see `HttpRequest.header_values`."""
    return [value for found, value in headers if found == name]


def without_encoding(headers: HeaderPairs) -> HeaderPairs:
    """Give headers without ``Content-Encoding``, for a body that is decoded already."""
    return tuple(pair for pair in headers if pair[0] != b"content-encoding")


def _header_pairs(headers: Mapping[str, str] | Iterable[tuple[str, str]]) -> HeaderPairs:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return tuple((name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in pairs)
