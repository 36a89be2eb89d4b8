"""Bodies with a Content-Encoding: which are decoded, and within which bounds."""

from __future__ import annotations

import gzip
import zlib

import pytest

from onceward.core.errors import BodyMalformed, BodyTooLarge
from onceward.core.inflate import MEMBERS_MAX, can_inflate, inflated, is_encoded
from onceward.core.messages import HttpRequest
from onceward.sources.parts.body import DECODED_BYTES_MAX, decoded_body

TEXT = b'{"a": 1}'


def request(body: bytes, encoding: str) -> HttpRequest:
    return HttpRequest.of(body, {"Content-Encoding": encoding} if encoding else {})


@pytest.mark.parametrize(
    ("encoding", "body", "expected"),
    [
        ("gzip", gzip.compress(TEXT), True),
        (" X-GZip ", gzip.compress(TEXT), True),
        ("deflate", zlib.compress(TEXT), True),
        ("gzip", TEXT, False),
        ("gzip", zlib.compress(TEXT), False),
        ("deflate", TEXT, False),
        ("gzip", b"", False),
        ("br", gzip.compress(TEXT), False),
        ("gzip,gzip", gzip.compress(TEXT), False),
        ("", gzip.compress(TEXT), False),
    ],
)
def test_a_body_is_encoded_when_it_begins_as_its_header_says(
    encoding: str, body: bytes, expected: bool
) -> None:
    assert is_encoded(encoding, body) is expected


def test_only_one_encoding_is_undone() -> None:
    assert [can_inflate(one) for one in ("gzip", "X-GZIP", " deflate", "br", "gzip, gzip", "")] == [
        *(True, True, True),
        *(False, False, False),
    ]


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", gzip.compress(TEXT)),
        ("gzip", gzip.compress(TEXT[:3]) + gzip.compress(TEXT[3:])),
        ("deflate", zlib.compress(TEXT)),
        ("gzip", TEXT),  # a server in front decoded it and left the header
        ("br", TEXT),
        ("", TEXT),
    ],
)
def test_a_source_reads_what_is_inside(encoding: str, body: bytes) -> None:
    assert decoded_body(request(body, encoding)) == TEXT


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", gzip.compress(TEXT)[:-4]),
        ("gzip", gzip.compress(TEXT)[:12] + b"\xff" * 20),
        ("gzip", gzip.compress(TEXT) + b"more"),
        ("gzip", gzip.compress(TEXT) + gzip.compress(b"") * 64),
        ("gzip", gzip.compress(bytes(DECODED_BYTES_MAX + 1))),
        ("deflate", zlib.compress(TEXT) + zlib.compress(TEXT)),
    ],
    ids=["cut", "damaged", "followed", "members", "bomb", "twice"],
)
def test_a_source_calls_what_cannot_be_decoded_malformed(encoding: str, body: bytes) -> None:
    with pytest.raises(BodyMalformed):
        decoded_body(request(body, encoding))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", False),
        (b"\x78", False),
        (b"\x78\x01", True),
        (b"\x78\x9c", True),
        (b"\x78\x02", False),
        (b"\x77\x85", False),
    ],
)
def test_the_head_of_deflate_is_two_bytes_with_a_check(body: bytes, expected: bool) -> None:
    """RFC 1950: method 8 in the low bits of the first, and both together are a multiple of 31."""
    assert is_encoded("deflate", body) is expected


@pytest.mark.parametrize(
    ("encoding", "body", "error", "said"),
    [
        ("gzip", gzip.compress(TEXT)[:-4], BodyMalformed, "The gzip body of 24 bytes is cut short"),
        ("gzip", gzip.compress(TEXT) + b"more", BodyMalformed, "The body of 32 bytes is no gzip"),
        ("deflate", zlib.compress(TEXT) * 2, BodyMalformed, "Something follows the deflate body"),
        ("gzip", gzip.compress(b"") * 65, BodyMalformed, "has more than 64 members"),
        ("gzip", gzip.compress(TEXT * 2), BodyTooLarge, "holds more than 8 bytes"),
        ("gzip", gzip.compress(TEXT) * 2, BodyTooLarge, "holds more than 8 bytes"),
    ],
    ids=range(6),
)
def test_it_is_said_why_a_body_is_not_read(
    encoding: str, body: bytes, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        inflated(encoding, body, len(TEXT))


def test_as_many_members_are_read_as_are_allowed() -> None:
    body = gzip.compress(b"") * (MEMBERS_MAX - 1) + gzip.compress(TEXT)

    assert inflated("gzip", body, len(TEXT)) == TEXT


def test_deflate_may_come_without_its_head() -> None:
    assert inflated("deflate", zlib.compress(TEXT)[2:-4], len(TEXT)) == TEXT


def test_no_more_is_made_than_is_allowed() -> None:
    body = gzip.compress(TEXT)

    assert inflated("gzip", body, len(TEXT)) == TEXT
    with pytest.raises(BodyTooLarge):
        inflated("gzip", body, len(TEXT) - 1)
