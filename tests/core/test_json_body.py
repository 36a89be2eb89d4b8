"""Bodies of requests: read to one clear meaning, or refused with a short reason."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceward.core.errors import BodyMalformed
from onceward.core.json_body import parse_body
from onceward.core.json_plain import decode_plain, encode_plain
from onceward.core.shown import shown

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(1 - 10**4_299, 10**4_300 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)


def reason(raw: bytes) -> str:
    with pytest.raises(BodyMalformed) as refused:
        parse_body(raw)
    assert refused.value.http_status == 400
    assert len(str(refused.value)) < 250
    return refused.value.what


@given(json_values, st.booleans(), st.sampled_from([None, 2]))
@settings(deadline=None)
def test_any_json_that_python_writes_is_read_as_python_reads_it(
    value: Any, ascii_only: bool, indent: int | None
) -> None:
    raw = json.dumps(value, ensure_ascii=ascii_only, indent=indent, separators=(" ,", " : ")).encode()

    parsed = parse_body(raw)

    assert repr(parsed) == repr(json.loads(raw))


@given(json_values)
@settings(deadline=None)
def test_a_body_that_was_read_can_be_stored_and_comes_back_equal(value: Any) -> None:
    parsed = parse_body(json.dumps(value).encode())

    stored = encode_plain(parsed, what="The payload", limit_bytes=10**7)

    assert repr(decode_plain(stored)) == repr(parsed)


@given(st.binary(max_size=40))
@settings(deadline=None)
def test_any_bytes_are_read_or_refused_and_nothing_else_escapes(raw: bytes) -> None:
    try:
        parse_body(raw)
    except BodyMalformed:
        return
    json.loads(raw.decode("utf-8-sig"))


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"null", None),
        (b" \t\r\n[ ]\n", []),
        (b"-0", 0),
        (b"9007199254740993", 2**53 + 1),
        (b"1" + b"0" * 4_299, 10**4_299),
        (b'"\\u0000"', "\x00"),
        (b'{"\\u0000":"\\ud83d\\ude00"}', {"\x00": "\U0001f600"}),
        (b"\xef\xbb\xbf{}", {}),
        (b'{"a":{"a":1},"b":[{"a":2},{"a":3}]}', {"a": {"a": 1}, "b": [{"a": 2}, {"a": 3}]}),
        (b'{"url":"https://a:1/\\"::\\"","a:":"\\\\"}', {"url": 'https://a:1/"::"', "a:": "\\"}),
        (b"1e-400", 0.0),
        (b"1.7976931348623157e308", 1.7976931348623157e308),
        (b"[" * 200 + b"]" * 200, json.loads("[" * 200 + "]" * 200)),
    ],
    ids=shown,
)
def test_json_at_its_edges_is_read(raw: bytes, expected: Any) -> None:
    assert parse_body(raw) == expected


def test_minus_zero_keeps_its_sign_as_a_float() -> None:
    assert repr(parse_body(b"-0.0")) == "-0.0"


def test_a_string_of_twenty_megabytes_is_read() -> None:
    assert parse_body(b'"' + b"x" * 20_000_000 + b'"') == "x" * 20_000_000


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "it is empty"),
        (b" \n", "it is empty"),
        (b"\xef\xbb\xbf", "it is empty"),
        (b"NaN", "no JSON"),
        (b'{"a":NaN}', "no JSON"),
        (b"[Infinity]", "no JSON"),
        (b"-Infinity", "no JSON"),
        (b"1e400", "out of range"),
        (b"[-1e400]", "out of range"),
        (b"1" * 4_301, "out of range"),
        (b'"\\ud800"', "no JSON"),
        (b'["\\ud800 and more text"]', "no JSON"),
        (b'"\\udc00\\ud800"', "no JSON"),
        (b'"\xed\xa0\x80"', "not UTF-8"),
        (b'"\xff"', "not UTF-8 (byte 1)"),
        ('{"a":1}'.encode("utf-16"), "not UTF-8"),
        ('{"a":1}'.encode("utf-16-le"), "no JSON"),
        ('{"a":1}'.encode("utf-32"), "not UTF-8"),
        (b"\xef\xbb\xbf\xef\xbb\xbf{}", "no JSON"),
        (b"{", "truncated"),
        (b"[1,]", "no JSON"),
        (b"{'a':1}", "no JSON"),
        (b"{} {}", "trailing"),
        (b"01", "no JSON"),
        (b'"a\nb"', "no JSON"),
        (b"a=1&b=2", "no JSON"),
        (b"\x00", "no JSON"),
        (b'{"a":1,"a":2}', "same key twice"),
        (b'{"a":1,"a":1}', "same key twice"),
        (b'{"a":1,"\\u0061":2}', "same key twice"),
        (b'{"a" :1,"b":":","a"\n:2}', "same key twice"),
        (b'[{"x":{"a":1,"a":{}}}]', "same key twice"),
        (b'{"":0,"":0}', "same key twice"),
        (b"[" * 201 + b"]" * 201, "deeper than 200"),
        (b'{"a":' * 201 + b"1" + b"}" * 201, "deeper than 200"),
        (b"[" * 100_000, "deeper than 200"),
        (b'{"a":' * 100_000, "deeper than 200"),
        (b"[" * 100_000 + b"]" * 100_000, "deeper than 200"),
    ],
    ids=lambda value: shown(value)[:50],
)
def test_a_body_that_is_not_clearly_json_is_refused_with_a_short_reason(raw: bytes, words: str) -> None:
    assert words in reason(raw)


def test_the_depth_allowed_is_the_callers() -> None:
    assert parse_body(b"[[1]]", limit_depth=2) == [[1]]
    with pytest.raises(BodyMalformed, match="deeper than 1 levels"):
        parse_body(b"[[1]]", limit_depth=1)


def test_a_refusal_quotes_nothing_of_the_body() -> None:
    assert "secret" not in reason(b'{"secret":1,"secret":2}')
    assert "secret" not in reason(b"secret")
