"""Linear: hexadecimal over the body, whose own time is checked."""

from __future__ import annotations

import pytest

from onceward.core.messages import HttpRequest
from onceward.sources import Linear
from tests.sources.known import NOW_MS, example, hex_of, json_of, malformed, refused, sole_event

SECRET = "lin_wh_0123456789abcdef"
SOURCE = Linear(secrets=["another", SECRET])
DELIVERY = "234d1a4e-b617-4388-90fe-adc3633d6b72"
# As JSON.stringify writes it, with the time of sending inside.
BODY = b'{"action":"create","type":"Issue","createdAt":"2026-01-23T12:53:18.084Z","data":{"id":"2174add1"},"webhookTimestamp":%d}'


def request(body: bytes = BODY % NOW_MS, **changed: str | None) -> HttpRequest:
    headers = {
        "Linear-Delivery": DELIVERY,
        "Linear-Event": "Issue",
        "Linear-Signature": hex_of(SECRET, body),
    } | {f"Linear-{name}": value for name, value in changed.items()}
    return HttpRequest.of(body, {name: value for name, value in headers.items() if value is not None})


def test_a_delivery_verifies_by_the_documented_formula() -> None:
    verified = SOURCE.verify(request(), NOW_MS)

    assert (verified.secret_index, verified.sent_at_ms) == (1, NOW_MS)


@pytest.mark.parametrize(
    "signature",
    [
        None,
        "",
        "0" * 64,
        "sha256=" + hex_of(SECRET, BODY % NOW_MS),
        hex_of(SECRET, BODY % NOW_MS).upper(),
        "é\xff",
    ],
)
def test_another_signature_is_refused(signature: str | None) -> None:
    refused(SOURCE, request(Signature=signature))


def test_a_changed_time_is_refused() -> None:
    headers = request().headers
    refused(SOURCE, HttpRequest("POST", "/", "", headers, BODY % (NOW_MS + 1), 0))


@pytest.mark.parametrize(
    ("skew_ms", "fits"), [(60_000, True), (-60_000, True), (60_001, False), (-60_001, False)]
)
def test_the_time_is_checked_on_both_sides(skew_ms: int, fits: bool) -> None:
    if fits:
        assert SOURCE.verify(request(), NOW_MS + skew_ms).secret_index == 1
    else:
        assert "tolerance is 60 s" in refused(SOURCE, request(), NOW_MS + skew_ms)
        assert Linear(secrets=SECRET, tolerance="5m").verify(request(), NOW_MS + skew_ms).secret_index == 0


@pytest.mark.parametrize(
    "body", [b"{}", b"[]", b"{", b'{"webhookTimestamp": "soon"}', b'{"webhookTimestamp": true}']
)
def test_a_signed_body_without_its_time_is_refused(body: bytes) -> None:
    assert "no webhookTimestamp" in refused(SOURCE, request(body))


def test_an_event_is_read() -> None:
    incoming = sole_event(SOURCE, request(example("linear", "Issue.update")))

    assert (incoming.id, incoming.type) == (DELIVERY, "Issue.update")
    assert incoming.subject == "539068e2-ae88-4d09-bd75-22eb4a59612f"
    assert incoming.occurred_at_ms == 1769172798084
    assert not incoming.id_is_signed


def test_a_retry_with_a_new_time_is_the_same_event() -> None:
    first, retry = BODY % NOW_MS, BODY % (NOW_MS + 3_600_000)

    assert sole_event(SOURCE, request(first)).id == sole_event(SOURCE, request(retry)).id
    derived = [sole_event(SOURCE, request(body, Delivery=None)) for body in (first, retry)]
    assert derived[0].id == derived[1].id
    assert derived[0].id_is_derived
    other = sole_event(SOURCE, request(first.replace(b"2174add1", b"2174add2"), Delivery=None))
    assert other.id != derived[0].id


def test_an_event_without_an_action_has_its_bare_type() -> None:
    agent = {"type": "AgentSessionEvent", "agentSession": {"id": "s1"}}
    incoming = sole_event(SOURCE, request(json_of(agent)))

    assert (incoming.type, incoming.subject) == ("AgentSessionEvent", "s1")


def test_what_cannot_be_read_is_malformed() -> None:
    malformed(SOURCE, request(b"[]"))
    malformed(SOURCE, request(b"{}"))
    malformed(SOURCE, request(BODY % 1, Delivery="x" * 256))


def test_signing_sets_the_time_of_the_body() -> None:
    signed = SOURCE.signed_request(BODY % 1, NOW_MS, event_id="d1", event_type="Issue.create", secret_index=1)

    assert SOURCE.verify(signed, NOW_MS).secret_index == 1
    assert signed.header("linear-event") == "Issue"
    assert SOURCE.signed_request(b"[]", NOW_MS).body == b"[]"
