"""Slack: the vector of its documentation, handshake, events, interactions, commands."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import pytest

from onceward.core.messages import HttpRequest
from onceward.sources import Slack
from tests.sources.known import NOW, NOW_MS, example, hex_of, json_of, malformed, refused, sole_event

# From "Verifying requests from Slack".
SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
TIMESTAMP = "1531420618"
AT_MS = 1_531_420_618_000
BODY = (
    b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V"
    b"&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text="
    b"&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554"
    b"%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
)
SIGNATURE = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"
SOURCE = Slack(secrets=["another", SECRET])
FORM = "application/x-www-form-urlencoded"


def published(**changed: str | None) -> HttpRequest:
    headers = {
        "Content-Type": FORM,
        "X-Slack-Request-Timestamp": TIMESTAMP,
        "X-Slack-Signature": SIGNATURE,
    } | {f"X-Slack-{name.replace('_', '-')}": value for name, value in changed.items()}
    return HttpRequest.of(BODY, {name: value for name, value in headers.items() if value is not None})


def request(
    body: bytes, seconds: str = NOW, content_type: str = "application/json", **more: str
) -> HttpRequest:
    signature = hex_of(SECRET, b"v0:" + seconds.encode() + b":" + body)
    return HttpRequest.of(
        body,
        {
            "Content-Type": content_type,
            "X-Slack-Request-Timestamp": seconds,
            "X-Slack-Signature": f"v0={signature}",
            **{name.replace("_", "-"): value for name, value in more.items()},
        },
    )


def test_the_published_vector_verifies() -> None:
    verified = SOURCE.verify(published(), AT_MS)

    assert (verified.secret_index, verified.sent_at_ms) == (1, AT_MS)


@pytest.mark.parametrize(
    "changed",
    [
        {"Signature": None},
        {"Signature": ""},
        {"Signature": SIGNATURE[3:]},
        {"Signature": SIGNATURE.replace("v0=", "v1=")},
        {"Signature": "x" + SIGNATURE},
        {"Signature": SIGNATURE.upper()},
        {"Signature": "v0=é\xff"},
        {"Request_Timestamp": None},
        {"Request_Timestamp": "1531420619"},
        {"Request_Timestamp": "1531420618.0"},
        {"Request_Timestamp": "9" * 400},
    ],
)
def test_a_changed_header_is_refused(changed: dict[str, Any]) -> None:
    refused(SOURCE, published(**changed), AT_MS)


def test_a_changed_body_is_refused() -> None:
    # A form rebuilt from its values loses the blank field, which is signed.
    rebuilt = BODY.replace(b"&text=", b"")
    headers = published().headers
    refused(SOURCE, HttpRequest("POST", "/", "", headers, rebuilt, 0), AT_MS)


@pytest.mark.parametrize(
    ("skew_ms", "fits"), [(300_000, True), (-300_000, True), (300_001, False), (-300_001, False)]
)
def test_the_time_is_checked_on_both_sides(skew_ms: int, fits: bool) -> None:
    if fits:
        assert SOURCE.verify(published(), AT_MS + skew_ms).secret_index == 1
    else:
        assert "300 s in the" in refused(SOURCE, published(), AT_MS + skew_ms)


def test_the_challenge_is_sent_back_as_plain_text() -> None:
    challenge = "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P"
    asked = request(
        json_of({"token": "Jhj5dZrVaK7ZwHHjRyZWjbDl", "challenge": challenge, "type": "url_verification"})
    )

    SOURCE.verify(asked, NOW_MS)
    answer = SOURCE.handshake(asked, NOW_MS)

    assert answer is not None
    assert (answer.status, answer.body) == (200, challenge.encode())
    assert (b"content-type", b"text/plain; charset=utf-8") in answer.headers
    assert (b"x-content-type-options", b"nosniff") in answer.headers


@pytest.mark.parametrize(
    "body",
    [
        {"type": "url_verification"},
        {"type": "url_verification", "challenge": 7},
        {"type": "url_verification", "challenge": "x" * 2000},
        {"type": "url_verification", "challenge": "a\nb"},
        {"type": "event_callback", "challenge": "url_verification"},
        ["url_verification"],
    ],
)
def test_nothing_else_is_sent_back(body: Any) -> None:
    assert SOURCE.handshake(request(json_of(body)), NOW_MS) is None
    assert SOURCE.handshake(request(b"url_verification {"), NOW_MS) is None
    assert SOURCE.handshake(published(), NOW_MS) is None


def test_the_certificate_check_of_commands_is_answered() -> None:
    answer = SOURCE.handshake(request(b"ssl_check=1&token=abc", content_type=FORM), NOW_MS)

    assert answer is not None
    assert (answer.status, answer.body) == (200, b"")


def test_an_event_and_its_retry_are_one() -> None:
    body = example("slack", "app_mention")

    first = sole_event(SOURCE, request(body))
    retry = sole_event(
        SOURCE,
        request(body, str(int(NOW) + 60), X_Slack_Retry_Num="1", X_Slack_Retry_Reason="http_timeout"),
    )

    assert first == retry
    assert (first.id, first.type, first.subject) == ("Ev123ABC456", "app_mention", "C123ABC456")
    assert first.occurred_at_ms == 1515449522000
    assert first.id_is_signed
    assert sole_event(SOURCE, request(example("slack", "channel_created"))).subject == "C024BE91L"


def test_a_command_is_read_and_told_from_the_next() -> None:
    command = sole_event(SOURCE, published())

    assert (command.type, command.subject) == ("slash_command", "G8PSS9T3V")
    assert command.payload["text"] == ""
    assert command.payload["command"] == "/webhook-collect"
    assert command.id_is_derived
    assert sole_event(SOURCE, published()).id == command.id
    assert sole_event(SOURCE, request(BODY.replace(b"3b6703c", b""), content_type=FORM)) == command
    other = BODY.replace(b"trigger_id=398", b"trigger_id=399")
    assert sole_event(SOURCE, request(other, content_type=FORM)).id != command.id


def test_an_interaction_is_read_from_its_payload_field() -> None:
    incoming = sole_event(SOURCE, request(example("slack", "block_actions"), content_type=FORM))

    assert (incoming.type, incoming.subject) == ("block_actions", "C061EG9T2")
    assert incoming.payload["actions"][0]["value"] == "click_me_123"
    assert incoming.occurred_at_ms == 1548426417000
    assert incoming.id_is_derived


def test_interactions_without_a_trigger_are_told_apart_by_their_content() -> None:
    def closed(view: str) -> str:
        body = urlencode(
            {"payload": json_of({"type": "view_closed", "view": {"id": view}}).decode()}
        ).encode()
        return sole_event(SOURCE, request(body, content_type=FORM)).id

    assert closed("V1") == closed("V1") != closed("V2")


def test_a_notice_about_the_subscription_is_an_event() -> None:
    body = {
        "type": "app_rate_limited",
        "team_id": "T1",
        "minute_rate_limited": 1518467820,
        "api_app_id": "A1",
    }

    incoming = sole_event(SOURCE, request(json_of(body)))

    assert (incoming.type, incoming.subject) == ("app_rate_limited", "T1")
    assert incoming.occurred_at_ms == 1518467820000


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"[]", "application/json"),
        (b"{}", "application/json"),
        (b'{"event": {"type": "a"}}', "application/json"),
        (b'{"event": {}, "event_id": "Ev1"}', "application/json"),
        (b"a=b", FORM),
        (b"payload=%FF", FORM),
        (b"payload=[]", FORM),
        (b"payload={}", FORM),
        (b"\xff=1", FORM),
        (b"&" * 2000, FORM),
        (b"command=", FORM),
    ],
)
def test_what_cannot_be_read_is_malformed(body: bytes, content_type: str) -> None:
    malformed(SOURCE, request(body, content_type=content_type))


def test_the_reply_is_an_empty_200() -> None:
    answer = SOURCE.respond("accepted")

    assert answer is not None
    assert (answer.status, answer.body) == (200, b"")
    assert SOURCE.respond("malformed") is None
