"""Zendesk's scheme, expected signatures computed from its documentation."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

import pytest

from onceward.core.errors import BodyMalformed, SignatureInvalid
from onceward.core.messages import HttpRequest
from onceward.sources.zendesk import Zendesk

# The static secret of the "Test webhook" button, published on the page about verifying.
SECRET = "dGhpc19zZWNyZXRfaXNfZm9yX3Rlc3Rpbmdfb25seQ=="
SENT_AT = "2026-01-02T03:04:05Z"
NOW_MS = 1_767_323_045_000
EVENT = {
    "account_id": 22129848,
    "id": "cbe4028c-7239-495d-b020-f22348516046",
    "subject": "zen:ticket:35436",
    "time": "2026-01-02T03:04:04.123456Z",
    "type": "zen:event-type:ticket.created",
    "zendesk_event_version": "2022-11-06",
    "detail": {"id": "35436"},
}


def signed(body: bytes, sent_at: str = SENT_AT, secret: str = SECRET, **more: str) -> HttpRequest:
    digest = hmac.new(secret.encode(), sent_at.encode() + body, hashlib.sha256).digest()
    headers = {
        "X-Zendesk-Webhook-Signature": base64.b64encode(digest).decode(),
        "X-Zendesk-Webhook-Signature-Timestamp": sent_at,
    }
    return HttpRequest.of(body, headers | more)


def check_of(candidate: HttpRequest, now_ms: int = NOW_MS) -> str:
    with pytest.raises(SignatureInvalid) as refusal:
        Zendesk(secrets=["other", SECRET]).verify(candidate, now_ms)
    return refusal.value.check


@pytest.mark.parametrize("body", [b"", json.dumps(EVENT).encode(), b"\xff not json"])
@pytest.mark.parametrize("sent_at", [SENT_AT, "2026-01-02T04:04:05.000+01:00"])
def test_time_and_body_are_signed_and_the_body_may_be_empty(body: bytes, sent_at: str) -> None:
    verified = Zendesk(secrets=["other", SECRET]).verify(signed(body, sent_at), NOW_MS)

    assert (verified.secret_index, verified.sent_at_ms) == (1, NOW_MS)


def test_another_body_time_or_secret_is_refused() -> None:
    good = signed(b"{}")
    pairs = [(name.decode(), value.decode()) for name, value in good.headers]

    check_of(HttpRequest.of(b"{ }", pairs))
    check_of(HttpRequest.of(b"{}", [pairs[0], (pairs[1][0], "2026-01-02T03:04:06Z")]))
    check_of(HttpRequest.of(b"{}", [pairs[0], *pairs]))
    check_of(HttpRequest.of(b"{}", pairs[:1]))
    check_of(HttpRequest.of(b"{}", pairs[1:]))
    check_of(HttpRequest.of(b"{}", [(pairs[0][0], "é"), pairs[1]]))
    check_of(signed(b"{}", secret="another"))


@pytest.mark.parametrize("sent_at", ["1767323045", "2026-01-02T03:04:05", "yesterday"])
def test_a_time_of_another_form_is_refused_though_it_is_signed(sent_at: str) -> None:
    assert "timestamp" in check_of(signed(b"{}", sent_at))


@pytest.mark.parametrize(("skew_ms", "side"), [(300_001, "past"), (-300_001, "future")])
def test_a_time_beyond_the_tolerance_is_refused_in_both_directions(skew_ms: int, side: str) -> None:
    Zendesk(secrets=SECRET).verify(signed(b""), NOW_MS + skew_ms // 300_001 * 300_000)

    assert side in check_of(signed(b""), NOW_MS + skew_ms)


# --- reading --------------------------------------------------------------------------------------


def normalized(body: bytes, **headers: str) -> Any:
    [incoming] = Zendesk(secrets=SECRET).normalize(signed(body, **headers))
    return incoming


def test_an_event_of_zendesks_own_is_read() -> None:
    incoming = normalized(json.dumps(EVENT).encode(), **{"X-Zendesk-Webhook-Invocation-Id": "inv-1"})

    assert incoming.id == "cbe4028c-7239-495d-b020-f22348516046"
    assert (incoming.type, incoming.subject) == ("zen:event-type:ticket.created", "zen:ticket:35436")
    assert incoming.occurred_at_ms == 1_767_323_044_123
    assert incoming.id_is_signed


@pytest.mark.parametrize(
    ("body", "payload", "type"),
    [
        (b"", None, "invoked"),
        (b'{"id":"35436","type":"escalated"}', {"id": "35436", "type": "escalated"}, "escalated"),
        (b'["35436"]', ["35436"], "invoked"),
    ],
)
def test_of_a_triggers_call_the_invocation_is_the_id(body: bytes, payload: object, type: str) -> None:
    first = normalized(body, **{"X-Zendesk-Webhook-Invocation-Id": "inv-1"})
    again = normalized(body, sent_at="2026-01-02T03:09:05Z", **{"X-Zendesk-Webhook-Invocation-Id": "inv-1"})
    other = normalized(body, **{"X-Zendesk-Webhook-Invocation-Id": "inv-2"})

    assert (first.id, first.type, first.payload) == ("inv-1", type, payload)
    assert first == again
    assert first.id != other.id
    assert not first.id_is_signed


def test_a_body_of_another_kind_is_kept_as_text() -> None:
    assert normalized(b"<a/>", **{"Content-Type": "application/xml"}).payload == "<a/>"


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"<a/>", {"Content-Type": "application/json"}),
        (b"{", {}),
        (b"\xff", {"Content-Type": "text/plain"}),
        (b'{"type":"zen:event-type:a","id":null}', {}),
        (b'{"zendesk_event_version":1,"id":"x"}', {}),
    ],
)
def test_what_cannot_be_read_is_malformed(body: bytes, headers: dict[str, str]) -> None:
    with pytest.raises(BodyMalformed):
        normalized(body, **headers)


def test_two_invocation_headers_are_malformed() -> None:
    headers = [("X-Zendesk-Webhook-Invocation-Id", "a"), ("X-Zendesk-Webhook-Invocation-Id", "b")]

    with pytest.raises(BodyMalformed):
        Zendesk(secrets=SECRET).normalize(HttpRequest.of(b"", headers))


def test_the_signature_made_here_is_the_documented_one() -> None:
    headers = Zendesk(secrets=SECRET).sign(b"{}", NOW_MS, event_id="inv-1")

    expected = signed(b"{}").header("x-zendesk-webhook-signature")
    assert headers["X-Zendesk-Webhook-Signature"] == expected
    assert headers["X-Zendesk-Webhook-Invocation-Id"] == "inv-1"
