"""Mailgun's scheme against a published signature, and what it leaves uncovered."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any
from urllib.parse import urlencode

import pytest

from onceward.core.arrival import LooseProof
from onceward.core.errors import BodyMalformed, ConfigError, SignatureInvalid
from onceward.core.messages import HttpRequest
from onceward.sources.mailgun import Mailgun

# mailgun/mailgun-php, tests/Api/WebhookTest.php.
KEY = "key-3ax6xnjp29jd6fds4gc373sgvjxteol0"
PROOF = {
    "timestamp": "1403645220",
    "token": "5egbgr1vjgqxtrnp65xfznchgdccwh5d6i09vijqi3whgowmn6",
    "signature": "9cfc5c41582e51246e73c88d34db3af0a3a2692a76fbab81492842f000256d33",
}
NOW_MS = 1_403_645_220_000
EVENT = {
    "id": "CPgfbmQMTCKtHW6uIWtuVe",
    "event": "delivered",
    "timestamp": 1521472262.908181,
    "message": {"headers": {"message-id": "20130503182626.18666.16540@example.com"}},
    "recipient": "alice@example.com",
}


def request(event: object = EVENT, proof: object = PROOF, **more: Any) -> HttpRequest:
    return HttpRequest.of(json.dumps({"signature": proof, "event-data": event} | more).encode())


def form(**fields: str) -> HttpRequest:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    return HttpRequest.of(urlencode(PROOF | fields).encode(), headers)


def signed(token: str, at_ms: int = NOW_MS, key: str = KEY, event: object = EVENT) -> HttpRequest:
    text = f"{at_ms // 1000}{token}"
    signature = hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()
    return request(event, {"timestamp": str(at_ms // 1000), "token": token, "signature": signature})


def check_of(candidate: HttpRequest, source: Mailgun | None = None, now_ms: int = NOW_MS) -> str:
    with pytest.raises(SignatureInvalid) as refusal:
        (source or Mailgun(secrets=KEY)).verify(candidate, now_ms)
    return refusal.value.check


@pytest.mark.parametrize(
    "candidate",
    [request(), request(proof=PROOF | {"timestamp": 1403645220}), form(event="delivered", recipient="a@b.c")],
)
def test_the_published_signature_verifies_in_json_and_in_a_form(candidate: HttpRequest) -> None:
    verified = Mailgun(secrets=["key-new", KEY]).verify(candidate, NOW_MS)

    assert (verified.secret_index, verified.sent_at_ms) == (1, NOW_MS)


def test_of_a_field_that_a_message_brings_along_the_last_counts() -> None:
    """A forwarded message's headers are fields as well; django-anymail reads the last, as Mailgun means it."""
    own = list(PROOF.items())
    headers = {"Content-Type": "application/x-www-form-urlencoded"}

    for name in PROOF:
        sent = HttpRequest.of(urlencode([("recipient", "a@b.c"), (name, "x"), *own]).encode(), headers)
        assert Mailgun(secrets=KEY).verify(sent, NOW_MS).sent_at_ms == NOW_MS
        check_of(HttpRequest.of(urlencode([*own, (name, "x")]).encode(), headers))


def test_a_parent_accounts_signature_counts_as_well() -> None:
    source = Mailgun(secrets=KEY)

    assert source.verify(request(proof={"timestamp": "1"}, **{"parent-signature": PROOF}), NOW_MS)


@pytest.mark.parametrize(
    "proof",
    [
        PROOF | {"timestamp": "1403645221"},
        PROOF | {"timestamp": 1403645220.0},
        PROOF | {"timestamp": 10**400},
        PROOF | {"token": "x"},
        PROOF | {"token": None},
        PROOF | {"signature": PROOF["signature"].upper()},
        PROOF | {"signature": "é"},
        PROOF | {"signature": ["x"]},
        {},
        None,
        "text",
    ],
)
def test_another_proof_is_refused(proof: object) -> None:
    check_of(request(proof=proof))


@pytest.mark.parametrize("body", [b"", b"[]", b"\xff", b"{"])
def test_a_body_that_holds_no_proof_is_refused(body: bytes) -> None:
    check_of(HttpRequest.of(body))


@pytest.mark.parametrize(("skew_ms", "side"), [(301_000, "past"), (-301_000, "future")])
def test_a_time_beyond_the_tolerance_is_refused_in_both_directions(skew_ms: int, side: str) -> None:
    Mailgun(secrets=KEY).verify(request(), NOW_MS + skew_ms // 301 * 300)

    assert side in check_of(request(), now_ms=NOW_MS + skew_ms)


# --- the event is not covered ---------------------------------------------------------------------


def loose(candidate: HttpRequest) -> LooseProof:
    found = Mailgun(secrets=KEY).verify(candidate, NOW_MS).loose_proof
    assert found is not None
    return found


def test_what_stands_under_a_signature_is_told_apart_and_a_retry_is_the_same() -> None:
    genuine = loose(request())

    assert loose(request(dict(reversed(EVENT.items())))) == genuine
    assert genuine.until_ms == NOW_MS + 300_000
    for forged in (EVENT | {"event": "complained"}, EVENT | {"id": "other"}, EVENT | {"x": 1}):
        other = loose(request(forged))
        assert other.proof_hash == genuine.proof_hash
        assert other.content_hash != genuine.content_hash
    assert loose(signed("another token")).proof_hash != genuine.proof_hash


# --- reading --------------------------------------------------------------------------------------


def normalized(candidate: HttpRequest) -> Any:
    [incoming] = Mailgun(secrets=KEY).normalize(candidate)
    return incoming


def test_an_event_is_read() -> None:
    incoming = normalized(request())

    assert incoming.type == "delivered"
    assert incoming.subject == "20130503182626.18666.16540@example.com"
    assert incoming.occurred_at_ms == 1_521_472_262_908
    assert incoming.payload == {"event-data": EVENT}
    assert incoming.id_is_derived
    assert not incoming.id_is_signed


def test_an_event_keeps_its_id_under_a_new_signature_and_another_days_does_not() -> None:
    first = normalized(request())

    assert first.id == normalized(signed("new", NOW_MS + 600_000)).id
    assert first.payload == normalized(signed("new", NOW_MS + 600_000)).payload
    assert first.id != normalized(request(EVENT | {"timestamp": 1521558662.9})).id
    assert first.id != normalized(request(EVENT | {"id": "other"})).id


def test_a_forwarded_message_is_read() -> None:
    first = normalized(form(**{"Message-Id": "<1@x>", "recipient": "a@b.c", "body-plain": "naïve\r\n"}))
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    fields = {"Message-Id": "<1@x>", "recipient": "a@b.c", "token": "2", "body-plain": "naïve\r\n"}
    again = normalized(HttpRequest.of(urlencode(fields).encode(), headers))

    assert (first.type, first.subject) == ("inbound", "<1@x>")
    assert first.id == again.id
    assert first.payload == again.payload
    assert first.id != normalized(form(**{"Message-Id": "<2@x>", "recipient": "a@b.c"})).id


def test_a_forwarded_message_is_no_event_though_its_author_says_so() -> None:
    """Its headers are fields as well, and the author of a message writes those."""
    fields = {"Message-Id": "<1@x>", "recipient": "a@b.c", "body-plain": "hi"}

    claimed = normalized(form(**fields, event="complained"))

    assert claimed.type == "inbound"
    assert claimed.id == normalized(form(**fields)).id
    assert normalized(form(event="complained", recipient="a@b.c")).type == "complained"


def test_a_forwarded_message_with_a_file_is_read() -> None:
    parts = [("Message-Id", "", "<1@x>"), ("file", '; filename="a;b.bin"', "\x00\r\n--bo")]
    parts += [(name, "", value) for name, value in PROOF.items()]
    body = "".join(
        f'--bound\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n{value}\r\n'
        for name, more, value in parts
    )
    candidate = HttpRequest.of(
        f"{body}--bound--\r\n".encode(), {"Content-Type": 'multipart/form-data; boundary="bound"'}
    )

    Mailgun(secrets=KEY).verify(candidate, NOW_MS)
    incoming = normalized(candidate)

    assert incoming.subject == "<1@x>"
    assert incoming.payload["file"] == {
        "filename": "a;b.bin",
        "content_type": "",
        "content": "AA0KLS1ibw==",
    }


@pytest.mark.parametrize(
    "candidate",
    [
        HttpRequest.of(b"{}"),
        HttpRequest.of(b""),
        request({}),
        request({"id": "x"}),
        request({"id": 1.5, "event": "opened"}),
        HttpRequest.of(b"a=%ff", {"Content-Type": "application/x-www-form-urlencoded"}),
        HttpRequest.of(b"&".join([b"a=1"] * 1001), {"Content-Type": "application/x-www-form-urlencoded"}),
        HttpRequest.of(b"--b\r\n\r\n--b--", {"Content-Type": "multipart/form-data; boundary=b"}),
        HttpRequest.of(b"", {"Content-Type": "multipart/form-data"}),
        HttpRequest.of(b"", {"Content-Type": "multipart/form-data; boundary=b"}),
    ],
)
def test_what_cannot_be_read_is_malformed(candidate: HttpRequest) -> None:
    with pytest.raises(BodyMalformed):
        normalized(candidate)


def test_mailgun_is_answered_in_its_own_codes() -> None:
    source = Mailgun(secrets=KEY)

    answers = {outcome: source.respond(outcome) for outcome in ("accepted", "duplicate", "malformed", "busy")}

    assert {outcome: answer and answer.status for outcome, answer in answers.items()} == {
        "accepted": 200,
        "duplicate": 200,
        "malformed": 406,
        "busy": None,
    }


@pytest.mark.parametrize(
    "body", [json.dumps({"event-data": EVENT}).encode(), b"event=opened&recipient=a%40b.c"]
)
def test_a_request_signed_here_carries_the_documented_signature(body: bytes) -> None:
    source = Mailgun(secrets=["other", KEY])

    request = source.signed_request(body, NOW_MS, secret_index=1)

    assert source.verify(request, NOW_MS).secret_index == 1
    with pytest.raises(ConfigError):
        source.sign(body, NOW_MS)
