"""Zoom: the documented formula, the question that is an oracle, events without ids."""

from __future__ import annotations

import json
from typing import Any

import pytest

from onceward.core.errors import SignatureInvalid
from onceward.core.messages import HttpRequest
from onceward.sources import Zoom
from tests.sources.known import NOW, NOW_MS, example, hex_of, json_of, malformed, refused, sole_event

OLD, SECRET = "old-secret-token", "s3cr3t-token_Zoom"
SOURCE = Zoom(secrets=[SECRET, OLD])
BODY = example("zoom", "meeting.participant_joined")
QUESTION = json_of(
    {
        "payload": {"plainToken": "qgg8vlvZRS6UYooatFL8Aw"},
        "event_ts": NOW_MS,
        "event": "endpoint.url_validation",
    }
)


def request(
    body: bytes = BODY, seconds: str = NOW, secret: str = SECRET, **changed: str | None
) -> HttpRequest:
    # "Verify with Zoom's header": v0= and the HMAC of v0:{timestamp}:{body}.
    signature = "v0=" + hex_of(secret, b"v0:" + seconds.encode() + b":" + body)
    headers = {"x-zm-signature": signature, "x-zm-request-timestamp": seconds} | {
        f"x-zm-{name.replace('_', '-')}": value for name, value in changed.items()
    }
    return HttpRequest.of(body, {name: value for name, value in headers.items() if value is not None})


RIGHT = request().header("x-zm-signature") or ""


def test_a_delivery_verifies_by_the_documented_formula() -> None:
    verified = SOURCE.verify(request(), NOW_MS)

    assert (verified.secret_index, verified.sent_at_ms) == (0, NOW_MS)
    assert SOURCE.verify(request(secret=OLD), NOW_MS).secret_index == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"signature": None},
        {"signature": RIGHT[3:]},
        {"signature": RIGHT.replace("v0", "v1")},
        {"signature": RIGHT[:-1]},
        {"signature": "v0=é\xff"},
        {"request_timestamp": None},
        {"request_timestamp": "1760000001"},
        {"request_timestamp": "now"},
    ],
)
def test_a_changed_header_is_refused(changed: dict[str, Any]) -> None:
    refused(SOURCE, request(**changed))


def test_a_changed_body_is_refused() -> None:
    rebuilt = json_of(json.loads(BODY)).replace(b": ", b":")
    assert rebuilt != BODY
    refused(SOURCE, HttpRequest("POST", "/", "", request().headers, rebuilt, 0))


@pytest.mark.parametrize(("skew_ms", "side"), [(300_001, "past"), (-300_001, "future")])
def test_the_time_is_checked_on_both_sides(skew_ms: int, side: str) -> None:
    assert f"in the {side}" in refused(SOURCE, request(), NOW_MS + skew_ms)
    assert SOURCE.verify(request(), NOW_MS + skew_ms // 2).secret_index == 0


@pytest.mark.parametrize("secret", [SECRET, OLD])
def test_the_question_is_answered_with_the_secret_that_asked(secret: str) -> None:
    answer = SOURCE.handshake(request(QUESTION, secret=secret), NOW_MS)

    assert answer is not None
    assert answer.status == 200
    assert json.loads(answer.body) == {
        "plainToken": "qgg8vlvZRS6UYooatFL8Aw",
        "encryptedToken": hex_of(secret, b"qgg8vlvZRS6UYooatFL8Aw"),
    }


def test_a_stranger_gets_nothing_signed() -> None:
    assert SOURCE.handshake_phase == "verified"
    for asked, now_ms in [
        (HttpRequest.of(QUESTION), NOW_MS),
        (request(QUESTION, secret="guess"), NOW_MS),
        (request(QUESTION), NOW_MS + 301_000),
    ]:
        with pytest.raises(SignatureInvalid):
            SOURCE.handshake(asked, now_ms)
    assert Zoom(insecure=True).handshake(HttpRequest.of(QUESTION), NOW_MS) is None


@pytest.mark.parametrize(
    "body",
    [
        BODY,
        QUESTION.replace(b'"plainToken": "qgg8vlvZRS6UYooatFL8Aw"', b'"plainToken": 7'),
        QUESTION.replace(b"qgg8vlvZRS6UYooatFL8Aw", b"x" * 2000),
        b'["endpoint.url_validation"]',
        b"endpoint.url_validation",
        b'{"event": "a", "payload": {"plainToken": "endpoint.url_validation"}}',
    ],
)
def test_anything_else_is_no_question(body: bytes) -> None:
    assert SOURCE.handshake(request(body), NOW_MS) is None


def test_an_attempt_signed_anew_is_the_same_event() -> None:
    later = str(int(NOW) + 300)
    first, again = sole_event(SOURCE, request()), sole_event(SOURCE, request(seconds=later))

    assert first == again
    assert first.id_is_derived
    assert (first.type, first.subject) == ("meeting.participant_joined", "4444AAAiAAAAAiAiAiiAii==")
    assert first.occurred_at_ms == 1626230691572


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"participant_joined", b"participant_left"),
        (b"1626230691572", b"1626230691573"),
        (b"16778240", b"16778241"),
    ],
)
def test_another_event_has_another_id(old: bytes, new: bytes) -> None:
    assert sole_event(SOURCE, request(BODY.replace(old, new))).id != sole_event(SOURCE, request()).id


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"event": ""}', b'{"event": ["a"]}'])
def test_what_cannot_be_read_is_malformed(body: bytes) -> None:
    malformed(SOURCE, request(body))
