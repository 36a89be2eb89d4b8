"""What strangers send: bodies that break readers, headers that break comparisons, and random damage."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

from onceward.core.messages import HeaderPairs, HttpRequest
from onceward.testing.source_case import with_body, with_headers

_DEEP = 100_000
# What stands where something else was expected.
_ODD_VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    10**400,
    1.5,
    1e308,
    "",
    " ",
    "\x00",
    "a\nb",
    "x" * 10_000,
    "\U0001f600",
    "2021-01-01T00:00:00Z",
    "0001-01-01T00:00:00+23:59",
    [],
    [None],
    [[]],
    {},
    {"id": {"id": []}},
)
BODIES: tuple[bytes, ...] = (
    b"",
    b" ",
    b"\x00",
    b"\xff\xfe",
    b"\xef\xbb\xbf{}",
    b"null",
    b"true",
    b"0",
    b'"text"',
    b"[]",
    b"[[]]",
    b"[null]",
    b"[1,2]",
    b"{}",
    b'{"a":1,"a":2}',
    b"NaN",
    b"[Infinity]",
    b"1" * 10_000,
    b'{"id":' + b"9" * 5_000 + b"}",
    b"-" + b"9" * 400,
    b"1e999",
    b'"\\ud800"',
    b'{"id":"\\ud83d\\ude00"}',
    b'{"id":"\\u0000"}',
    b"{" * 1_000,
    b"[" * _DEEP,
    b"[" * _DEEP + b"]" * _DEEP,
    b'{"a":' * 2_000 + b"1" + b"}" * 2_000,
    b"a=1&b=2",
    b"%ff=%zz&&&=",
    b"payload=%7B%7D",
    b"a=" * 2_000,
    b"<xml/>",
    b"--x\r\n\r\n--x--",
    b"\x1f\x8b\x08\x00",
)
HEADER_VALUES: tuple[bytes, ...] = (
    b"",
    b" ",
    b"\xff",
    b"\xc3\xa4" * 20,
    "ä".encode(),
    b"=",
    b",",
    b",,,,",
    b"v1=",
    b"=v1",
    b"t=,v1=",
    b"v1,",
    b"sha256=",
    b"Basic ",
    b"Basic \xff",
    b"Bearer",
    b"0" * 64,
    b"A" * 10_000,
    b"9" * 10_000,
    b"-1",
    b"1e9",
    b"NaN",
    b"%",
    b"%ff%zz",
    b"9999-12-31T23:59:59Z",
    b"0001-01-01T00:00:00+23:59",
    "١٢٣".encode(),
    b",".join([b"v1=aa"] * 1_000),
    b" ".join([b"v1,aa"] * 1_000),
)
_ENCODINGS = (b"gzip", b"deflate", b"br", b"identity, gzip")


def hostile_bodies(request: HttpRequest) -> Iterator[HttpRequest]:
    """Give the request with bodies that are broken, empty, deep or odd, in form and out of it."""
    for body in BODIES:
        yield with_body(request, body)
        for kind in (b"application/json", b"application/x-www-form-urlencoded", b"multipart/form-data", b""):
            others = tuple(pair for pair in request.headers if pair[0] != b"content-type")
            yield with_body(with_headers(request, (*others, (b"content-type", kind))), body)
    for encoding in _ENCODINGS:
        yield with_headers(request, (*request.headers, (b"content-encoding", encoding)))
    for body in mutated_json(request.body):
        yield with_body(request, body)


def mutated_json(raw: bytes) -> Iterator[bytes]:
    """Give a JSON body with each of its values replaced by odd ones, and each member left out."""
    try:
        value = json.loads(raw)
    except ValueError:
        return
    for path in _paths(value, ()):
        for odd in _ODD_VALUES:
            yield _dumped(_replaced(value, path, odd))
        if path:
            yield _dumped(_replaced(value, path, _GONE))


_GONE = object()


def _paths(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    yield path
    members = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, member in members:
        yield from _paths(member, (*path, key))


def _replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    member = _replaced(copy[path[0]], path[1:], new)
    if member is _GONE:
        del copy[path[0]]
    else:
        copy[path[0]] = member
    return copy


def _dumped(value: Any) -> bytes:
    return json.dumps(value).encode()


def hostile_headers(request: HttpRequest) -> Iterator[HttpRequest]:
    """Give the request with each header missing, doubled, odd, and all of them gone."""
    yield with_headers(request, ())
    yield with_headers(request, request.headers * 100)
    for index, (name, value) in enumerate(request.headers):
        before, behind = request.headers[:index], request.headers[index + 1 :]
        yield with_headers(request, before + behind)
        yield with_headers(request, (*request.headers, (name, value)))
        for odd in (*HEADER_VALUES, value + b"\xff", value * 2, value[:-1], value.upper(), b"x" + value):
            yield with_headers(request, (*before, (name, odd), *behind))


def damaged(request: HttpRequest, *, seed: int) -> HttpRequest:
    """Give the request with random damage to its headers, its body or both; the same for a seed."""
    draw = random.Random(seed)  # noqa: S311 (repeatable, not secret)
    changed = request
    for _ in range(draw.randint(1, 3)):
        if changed.headers and draw.random() < 0.6:
            changed = with_headers(changed, _damaged_headers(changed.headers, draw))
        else:
            changed = with_body(changed, _damaged_bytes(changed.body, draw))
    return changed


def _damaged_headers(headers: HeaderPairs, draw: random.Random) -> HeaderPairs:
    index = draw.randrange(len(headers))
    name, value = headers[index]
    action = draw.randrange(5)
    if action == 0:
        return headers[:index] + headers[index + 1 :]
    if action == 1:
        return (*headers, (name, _damaged_bytes(value, draw)))
    odd = draw.choice(HEADER_VALUES) if action == 2 else _damaged_bytes(value, draw)
    return (*headers[:index], (name, odd), *headers[index + 1 :])


def _damaged_bytes(raw: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(raw) + 1)
    action = draw.randrange(6)
    if action == 0:
        return raw[:at]
    if action == 1:
        return raw[:at] + draw.randbytes(draw.randint(1, 8)) + raw[at:]
    if action == 2:
        return raw[:at] + raw[at + draw.randint(1, 4) :]
    if action == 3:
        return (
            raw[:at] + draw.choice((b",", b"=", b'"', b"}", b"]", b"\\", b"\xff", b"\x00", b".")) + raw[at:]
        )
    if action == 4:
        return raw + raw[: draw.randint(0, 64)]
    return raw[:at] + bytes(byte ^ (1 << draw.randrange(8)) for byte in raw[at : at + 1]) + raw[at + 1 :]
