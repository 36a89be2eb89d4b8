"""The configurable HMAC source against digests made by the standard library directly."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward.core.arrival import Incoming, Verified
from onceward.core.errors import BodyMalformed, ConfigError, SignatureInvalid
from onceward.core.messages import HttpRequest
from onceward.sources import Hmac

SECRET = "a generic secret"
BODY = b'{"event": {"id": "e-1", "kind": "order.paid"}, "order": {"a/b": [{"id": 9007199254740993}]}}'


def source(**options: Any) -> Hmac:
    settings: dict[str, Any] = {
        "name": "acme",
        "secrets": [SECRET],
        "header": "X-Acme-Signature",
        "id_from": "/event/id",
        "type_from": "/event/kind",
    }
    return Hmac(**(settings | options))


def delivery(value: str, *extra: tuple[str, str], body: bytes = BODY) -> HttpRequest:
    return HttpRequest.of(body, [("x-acme-signature", value), *extra])


def digest(algorithm: str, secret: str = SECRET) -> bytes:
    return hmac.new(secret.encode(), BODY, getattr(hashlib, algorithm)).digest()


@pytest.mark.parametrize("algorithm", ["sha1", "sha256", "sha384", "sha512"])
@pytest.mark.parametrize("prefix", ["", "sha=", "v1,"])
def test_every_algorithm_encoding_and_prefix_verifies(algorithm: str, prefix: str) -> None:
    raw = digest(algorithm)
    spelled = {
        "hex": [raw.hex(), raw.hex().upper()],
        "base64": [base64.b64encode(raw).decode(), base64.b64encode(raw).decode().rstrip("=")],
    }
    for encoding, texts in spelled.items():
        acme = source(algorithm=algorithm, encoding=encoding, prefix=prefix)
        for text in texts:
            assert acme.verify(delivery(prefix + text), 0) == Verified(0)


def test_a_missing_prefix_is_refused() -> None:
    with pytest.raises(SignatureInvalid):
        source(prefix="sha256=").verify(delivery(digest("sha256").hex()), 0)


@pytest.mark.parametrize("encoding", ["hex", "base64"])
@given(value=st.text(st.characters(max_codepoint=255), max_size=80))
def test_any_header_is_refused_without_another_error(encoding: str, value: str) -> None:
    with pytest.raises(SignatureInvalid):
        source(encoding=encoding).verify(delivery(value), 0)


def test_another_algorithms_digest_is_refused() -> None:
    with pytest.raises(SignatureInvalid):
        source().verify(delivery(digest("sha512").hex()), 0)


def test_a_missing_or_doubled_header_is_refused() -> None:
    good = digest("sha256").hex()
    with pytest.raises(SignatureInvalid, match="no X-Acme-Signature header"):
        source().verify(HttpRequest.of(BODY), 0)
    with pytest.raises(SignatureInvalid, match="2 X-Acme-Signature headers"):
        source().verify(delivery(good, ("X-ACME-Signature", good)), 0)


def test_the_secret_that_matched_is_reported() -> None:
    acme = source(secrets=["new", SECRET])

    assert acme.verify(delivery(digest("sha256").hex()), 0) == Verified(1)


@pytest.mark.parametrize("encoding", ["hex", "base64"])
def test_what_is_signed_here_is_what_the_standard_library_says(encoding: str) -> None:
    raw = digest("sha256")
    expected = raw.hex() if encoding == "hex" else base64.b64encode(raw).decode()

    headers = source(encoding=encoding, prefix="p=", id_from="header:X-Id", type_from="header:X-Kind").sign(
        BODY, 0, event_id="e-9", event_type="order.paid"
    )

    assert headers == {
        "Content-Type": "application/json",
        "X-Acme-Signature": f"p={expected}",
        "X-Id": "e-9",
        "X-Kind": "order.paid",
    }


def test_id_type_and_subject_are_found_by_pointer() -> None:
    acme = source(subject_from="/order/a~1b/0/id")

    assert acme.normalize(delivery("")) == [
        Incoming(
            id="e-1",
            type="order.paid",
            payload=json.loads(BODY),
            payload_is_body=True,
            subject="9007199254740993",
        )
    ]


def test_id_and_type_are_found_in_headers_and_such_an_id_is_unsigned() -> None:
    acme = source(id_from="header:X-Id", type_from="const:acme.event")

    [incoming] = acme.normalize(delivery("", ("X-Id", "e-7")))

    assert (incoming.id, incoming.type, incoming.id_is_signed) == ("e-7", "acme.event", False)


@pytest.mark.parametrize(
    ("options", "body"),
    [
        ({"id_from": "/missing"}, BODY),
        ({"id_from": "/event/id/deeper"}, BODY),
        ({"id_from": "/event"}, BODY),
        ({"id_from": "/0"}, b"[]"),
        ({"id_from": "/00"}, b'["x"]'),
        ({"id_from": "/-1"}, b'["x"]'),
        ({"id_from": "/-"}, b'["x"]'),
        ({"id_from": "/999999999"}, b'["x"]'),
        ({"id_from": "header:X-Id"}, BODY),
        ({"type_from": "/order"}, BODY),
        ({}, b"NaN"),
        ({}, b""),
        ({}, b"[" * 100_000),
        ({}, b"null"),
    ],
)
def test_what_cannot_be_found_is_malformed_and_nothing_else(options: dict[str, str], body: bytes) -> None:
    with pytest.raises(BodyMalformed):
        source(**options).normalize(delivery("", body=body))


@pytest.mark.parametrize(
    "options",
    [
        {"name": "emit"},
        {"name": "a/b"},
        {"header": ""},
        {"header": "X Signature"},
        {"header": "X-Signatür"},
        {"algorithm": "md5"},
        {"algorithm": "sha3_256"},
        {"encoding": "base32"},
        {"id_from": ""},
        {"id_from": "event.id"},
        {"id_from": "/bad~2escape"},
        {"id_from": "header:"},
        {"id_from": "header:not a token"},
        {"id_from": "const:same-for-all"},
        {"type_from": "const:"},
    ],
)
def test_a_configuration_that_cannot_work_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        source(**options)
