"""HubSpot's version 3 against the vector of its own library."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

import pytest

from onceward.core.errors import BodyMalformed, SignatureInvalid
from onceward.core.messages import HttpRequest
from onceward.sources.hubspot import HubSpot

# HubSpot/hubspot-api-python, tests/spec/utils/test_signature.py.
SECRET = "yyyyyyyy-yyyy-yyyy-yyyy-yyyyyyyyyyyy"
BODY = b"{'example_field':'example_value'}"
URL = "https://www.example.com/webhook_uri"
NOW_MS = 15_000_000
SIGNATURE = "HPW73RUtKmcYoEDADG0s6MmGFWUzWJKAW07r8RDgcQw="
V1 = "69fc6631a867edd4f9e9e627fc5c1148e3fbdd8b21837b6d2b8901c1fa57f750"
V2 = "4fe4e3a7d3cf09db53be39d0a58130e2aaba074ec123a9e355b876a689a1c383"

EVENT: dict[str, Any] = {
    "appId": 113,
    "eventId": 100,
    "subscriptionId": 138,
    "portalId": 62515,
    "occurredAt": 1564113600000,
    "subscriptionType": "contact.creation",
    "attemptNumber": 0,
    "objectId": 9_007_199_254_740_993,
    "changeSource": "CRM",
}


def request(**changed: Any) -> HttpRequest:
    parts = {
        "body": BODY,
        "url": URL,
        "time": str(NOW_MS),
        "signature": SIGNATURE,
        "method": "POST",
    } | changed
    headers = {"X-HubSpot-Signature-v3": parts["signature"], "X-HubSpot-Request-Timestamp": parts["time"]}
    return HttpRequest.of(
        parts["body"],
        {name: value for name, value in headers.items() if value},
        url=parts["url"],
        method=parts["method"],
    )


def signature_of(text: bytes) -> str:
    return base64.b64encode(hmac.new(SECRET.encode(), text, hashlib.sha256).digest()).decode()


def check_of(candidate: HttpRequest, now_ms: int = NOW_MS) -> str:
    with pytest.raises(SignatureInvalid) as refusal:
        HubSpot(secrets=["other", SECRET]).verify(candidate, now_ms)
    return refusal.value.check


def test_the_published_vector_verifies() -> None:
    verified = HubSpot(secrets=["other", SECRET]).verify(request(), NOW_MS)

    assert (verified.secret_index, verified.sent_at_ms) == (1, NOW_MS)


def test_the_configured_address_wins() -> None:
    source = HubSpot(secrets=SECRET, public_url="https://www.example.com")
    candidate = HttpRequest(
        "POST", "/webhook_uri", "", request().headers, BODY, 0, "http://10.0.0.1/webhook_uri"
    )

    assert source.verify(candidate, NOW_MS)


def test_the_listed_encodings_are_decoded_before_signing_and_no_others() -> None:
    url = "https://www.example.com/a%2Fb%3a%40%21%24%27%28%29%2A%2c%3B?q=1%3F&r=%26%3D%20%C3%A9"
    decoded = "https://www.example.com/a/b:@!$'()*,;?q=1?&r=%26%3D%20%C3%A9"
    signature = signature_of(b"POST" + decoded.encode() + BODY + b"15000000")

    assert HubSpot(secrets=SECRET).verify(request(url=url, signature=signature), NOW_MS)
    check_of(request(url=url, signature=signature_of(b"POST" + url.encode() + BODY + b"15000000")))


@pytest.mark.parametrize(
    "changed",
    [
        {"body": BODY + b" "},
        {"url": URL + "/"},
        {"url": URL.replace("https", "http")},
        {"url": ""},
        {"method": "GET"},
        {"time": "15000001"},
        {"time": ""},
        {"time": "15000000.0"},
        {"time": "9" * 16},
        {"signature": ""},
        {"signature": "é"},
        {"signature": V1},
        {"signature": V2},
    ],
)
def test_whatever_else_is_sent_is_refused(changed: dict[str, Any]) -> None:
    check_of(request(**changed))


@pytest.mark.parametrize(("version", "signature"), [("v1", V1), ("v2", V2)])
def test_older_versions_are_never_looked_at(version: str, signature: str) -> None:
    headers = {"X-HubSpot-Signature": signature, "X-HubSpot-Signature-Version": version}

    assert "no X-HubSpot-Signature-v3" in check_of(HttpRequest.of(BODY, headers, url=URL))


@pytest.mark.parametrize(("skew_ms", "side"), [(300_001, "past"), (-300_001, "future")])
def test_a_time_beyond_the_tolerance_is_refused_in_both_directions(skew_ms: int, side: str) -> None:
    HubSpot(secrets=SECRET).verify(request(), NOW_MS + skew_ms // 300_001 * 300_000)

    assert side in check_of(request(), NOW_MS + skew_ms)


# --- reading --------------------------------------------------------------------------------------


def normalized(body: object) -> list[Any]:
    return HubSpot(secrets=SECRET).normalize(request(body=json.dumps(body).encode()))


def test_every_event_of_the_list_is_read() -> None:
    first, second = normalized([EVENT, EVENT | {"subscriptionType": "deal.deletion", "eventId": 101}])

    assert (first.type, second.type) == ("contact.creation", "deal.deletion")
    assert first.subject == "9007199254740993"
    assert first.occurred_at_ms == 1_564_113_600_000
    assert "attemptNumber" not in first.payload
    assert first.payload["objectId"] == 9_007_199_254_740_993
    assert normalized([]) == []


def test_a_later_attempt_is_the_same_event_and_other_events_are_not() -> None:
    [first] = normalized([EVENT])

    assert first == normalized([EVENT | {"attemptNumber": 3}])[0]
    for changed in ("eventId", "subscriptionId", "portalId", "occurredAt", "objectId"):
        assert first.id != normalized([EVENT | {changed: 7}])[0].id


def test_a_workflows_call_is_one_event() -> None:
    [incoming] = normalized({"callbackId": "ap-1", "objectId": 5, "x": 1})

    assert (incoming.type, incoming.subject) == ("action", "5")
    assert incoming.id == normalized({"callbackId": "ap-1", "objectId": 5, "x": 2})[0].id
    assert incoming.id != normalized({"callbackId": "ap-2", "objectId": 5})[0].id


@pytest.mark.parametrize("body", [[7], [None], [{}], [EVENT, {"subscriptionType": None}], [[EVENT]]])
def test_a_list_of_something_else_is_malformed(body: object) -> None:
    with pytest.raises(BodyMalformed):
        normalized(body)


def test_the_signature_made_here_is_the_published_one() -> None:
    assert HubSpot(secrets=SECRET).sign(BODY, NOW_MS, url=URL)["X-HubSpot-Signature-v3"] == SIGNATURE
