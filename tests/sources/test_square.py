"""Square's scheme against the vectors of its own library."""

from __future__ import annotations

import base64
import hmac
from typing import Any

import pytest

from onceward.core.errors import BodyMalformed, ConfigError, SignatureInvalid
from onceward.core.messages import HttpRequest
from onceward.sources.square import Square

# square/square-python-sdk, tests/integration/test_webhooks_helper.py.
KEY = "Ibxx_5AKakO-3qeNVR61Dw"
PATH = "/679a4f3a-dcfa-49ee-bac5-9d0edad886b9"
URL = f"https://webhook.site{PATH}"
SIGNATURE = "GF4YkrJgGBDZ9NIYbNXBnMzqb2HoL4RW/S6vkZ9/2N4="
BODY = (
    b'{"merchant_id":"MLEFBHHSJGVHD","type":"webhooks.test_notification",'
    b'"event_id":"ac3ac95b-f97d-458c-a6e6-18981597e05f","created_at":"2022-07-13T20:30:59.037339943Z",'
    b'"data":{"type":"webhooks","id":"bc368e64-01aa-407e-b46e-3231809b1129"}}'
)


def request(body: bytes = BODY, signature: str = SIGNATURE, url: str = URL, path: str = "/") -> HttpRequest:
    return HttpRequest.of(body, {"X-Square-HmacSha256-Signature": signature}, url=url, path=path)


def test_the_published_vectors_verify() -> None:
    second = request(
        b'{"data":{"type":"webhooks","id":">id<"}}',
        "Cxt7+aTi4rKgcA0bC4g9EHdVtLSDWdqccmL5MvihU4U=",
        "https://webhook.site/webhooks",
    )

    assert Square(secrets=["other", KEY]).verify(request(), 0).secret_index == 1
    assert Square(secrets="signature-key").verify(second, 0).secret_index == 0


@pytest.mark.parametrize(
    ("public_url", "url", "path"),
    [
        ("https://webhook.site", "http://10.0.0.7:8000/wrong", PATH),
        ("https://webhook.site/", "", PATH),
        (URL, "", "/hooks/square"),
        (URL, "", "/"),
        (URL, "", PATH),
        ("https://webhook.site/679a4f3a-dcfa-49ee-bac5-9d0edad886b9/", "", "/"),
    ],
)
def test_the_configured_address_wins(public_url: str, url: str, path: str) -> None:
    source = Square(secrets=KEY, public_url=public_url)

    assert source.verify(request(url=url, path=path), 0).secret_index == 0


@pytest.mark.parametrize(
    "candidate",
    [
        request(BODY + b" "),
        request(BODY.replace(b"07-13", b"06-13")),
        request(url="https://webhook.site/79a4f3a-dcfa-49ee-bac5-9d0edad886b9"),
        request(url=URL.replace("https", "http")),
        request(url=URL + "/"),
        request(url=""),
        request(signature=SIGNATURE[:-1]),
        request(signature="1z2n3DEJJiUPKcPzQo1ftvbxGdw="),
        request(signature="é\xff"),
        HttpRequest.of(BODY, url=URL),
        HttpRequest.of(BODY, {"X-Square-Signature": SIGNATURE}, url=URL),
        HttpRequest.of(BODY, [("X-Square-HmacSha256-Signature", SIGNATURE)] * 2, url=URL),
    ],
)
def test_whatever_else_is_sent_is_refused(candidate: HttpRequest) -> None:
    with pytest.raises(SignatureInvalid):
        Square(secrets=[KEY, "MCmhFRxGX82xMwg5FsaoQA"]).verify(candidate, 0)


@pytest.mark.parametrize("public_url", ["https://shop.example/square?shop=1", "https://shop.example"])
@pytest.mark.parametrize("query", ["shop=1", ""])
def test_a_registered_address_may_have_a_query(public_url: str, query: str) -> None:
    """It is signed as it was registered; the request has it as well, unless a proxy took it off."""
    signature = base64.b64encode(
        hmac.digest(KEY.encode(), b"https://shop.example/square?shop=1" + BODY, "sha256")
    ).decode()
    source = Square(secrets=KEY, public_url=public_url)
    candidate = HttpRequest.of(
        BODY,
        {"X-Square-HmacSha256-Signature": signature},
        path="/square",
        query=query,
        url="http://inside/square",
    )

    if query or "?" in public_url:
        assert source.verify(candidate, 0).secret_index == 0
    else:
        with pytest.raises(SignatureInvalid):
            source.verify(candidate, 0)


@pytest.mark.parametrize("query", ["shop=2", "shop=1&x=1", "SHOP=1"])
def test_another_query_than_the_registered_one_is_refused(query: str) -> None:
    source = Square(secrets=KEY, public_url="https://shop.example/square?shop=1")
    headers = source.sign(BODY, 0)

    with pytest.raises(SignatureInvalid):
        source.verify(HttpRequest.of(BODY, headers, path="/square", query=query), 0)


def test_the_event_is_read() -> None:
    [incoming] = Square(secrets=KEY).normalize(request())

    assert incoming.id == "ac3ac95b-f97d-458c-a6e6-18981597e05f"
    assert incoming.type == "webhooks.test_notification"
    assert incoming.subject == "bc368e64-01aa-407e-b46e-3231809b1129"
    assert incoming.occurred_at_ms == 1_657_744_259_037
    assert incoming.id_is_signed


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"type":"a"}', b'{"event_id":"a"}', b'{"event_id":[],"type":"a"}']
)
def test_a_body_without_id_or_type_is_malformed(body: bytes) -> None:
    with pytest.raises(BodyMalformed):
        Square(secrets=KEY).normalize(request(body))


def test_the_signature_made_here_is_the_published_one() -> None:
    assert Square(secrets=KEY).sign(BODY, 0, url=URL)["x-square-hmacsha256-signature"] == SIGNATURE
    assert Square(secrets=KEY, public_url=URL).sign(BODY, 0)["x-square-hmacsha256-signature"] == SIGNATURE


@pytest.mark.parametrize(
    "public_url", ["", "example.com", "ftp://x", "https://", "https://x/#a", "https://x y", 7]
)
def test_a_public_url_that_no_one_can_call_is_refused(public_url: Any) -> None:
    with pytest.raises(ConfigError):
        Square(secrets=KEY, public_url=public_url)
