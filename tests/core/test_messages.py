"""Requests and responses as values: headers by any spelling, several of a name, bytes as they were sent."""

from __future__ import annotations

from typing import Any

import pytest

from onceward.core.messages import HttpRequest, HttpResponse, without_encoding

PAIRS = [("X-Event", "one"), ("Content-Encoding", "gzip"), ("x-event", "zwei \xfc")]


def test_a_header_is_found_in_any_spelling_and_of_several_the_first() -> None:
    request = HttpRequest.of(b"", PAIRS)

    assert request.header("x-EVENT") == "one"
    assert request.header_values("X-event") == [b"one", b"zwei \xfc"]
    assert (request.header("x-other"), request.header_values("x-other")) == (None, [])
    assert HttpRequest.of(b"", dict(PAIRS)).header_values("x-event") == [b"one", b"zwei \xfc"]


def test_a_body_that_is_decoded_has_no_encoding_any_more() -> None:
    assert without_encoding(HttpRequest.of(b"", PAIRS).headers) == (
        (b"x-event", b"one"),
        (b"x-event", b"zwei \xfc"),
    )


@pytest.mark.parametrize(
    ("url", "given", "path", "query"),
    [
        ("https://shop.example/hooks/x?a=b%20c", {}, "/hooks/x", "a=b%20c"),
        ("https://shop.example", {}, "/", ""),
        ("https://shop.example/hooks/x?a=b", {"path": "/mounted"}, "/mounted", ""),
        ("https://shop.example/hooks/x?a=b", {"query": "c=d"}, "/", "c=d"),
        ("", {}, "/", ""),
    ],
)
def test_path_and_query_are_those_of_the_address_where_neither_is_given(
    url: str, given: dict[str, Any], path: str, query: str
) -> None:
    request = HttpRequest.of(b"body", received_at_ms=7, url=url, **given)

    assert (request.path, request.query, request.url) == (path, query, url)
    assert (request.method, request.body, request.received_at_ms) == ("POST", b"body", 7)


def test_a_response_has_its_headers_in_lower_case() -> None:
    assert HttpResponse.of(201, b"x", {"Content-Type": "text/plain"}) == HttpResponse(
        201, ((b"content-type", b"text/plain"),), b"x"
    )
    assert HttpResponse.of(204) == HttpResponse(204, (), b"")
