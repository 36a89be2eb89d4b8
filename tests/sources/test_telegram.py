"""Telegram: a token in a header, updates that count up."""

from __future__ import annotations

from typing import Any

import pytest

from onceward.core.errors import ConfigError
from onceward.core.messages import HttpRequest
from onceward.sources import Telegram
from tests.sources.known import NOW_MS, example, json_of, malformed, refused, sole_event

SOURCE = Telegram(secrets=["new_Token-1", "old"])
HEADER = "X-Telegram-Bot-Api-Secret-Token"
BODY = example("telegram", "message")


def request(body: bytes = BODY, token: str = "new_Token-1") -> HttpRequest:
    return HttpRequest.of(body, {HEADER: token})


def test_a_token_is_accepted_with_its_position() -> None:
    assert SOURCE.verify(request(), NOW_MS).secret_index == 0
    assert SOURCE.verify(request(token="old"), NOW_MS).secret_index == 1


@pytest.mark.parametrize("token", ["", "new_Token-", "new_token-1", "old ", "é\xff"])
def test_another_token_is_refused(token: str) -> None:
    refused(SOURCE, request(token=token))


def test_a_missing_or_doubled_token_is_refused() -> None:
    refused(SOURCE, HttpRequest.of(BODY))
    refused(SOURCE, HttpRequest.of(BODY, [(HEADER, "old"), (HEADER.lower(), "old")]))


@pytest.mark.parametrize(
    ("event_type", "update_id", "subject", "occurred_at_ms"),
    [
        ("message", 10000, "1111111", 1441645532000),
        ("callback_query", 10001, "-1001234567890", None),
        ("edited_message", 10002, "1111111", 1441646600000),
    ],
)
def test_an_update_is_read(event_type: str, update_id: int, subject: str, occurred_at_ms: int | None) -> None:
    incoming = sole_event(SOURCE, request(example("telegram", event_type)))

    assert (incoming.id, incoming.type, incoming.version) == (str(update_id), event_type, update_id)
    assert (incoming.subject, incoming.occurred_at_ms) == (subject, occurred_at_ms)
    assert not incoming.id_is_signed


@pytest.mark.parametrize(
    "body", [{"update_id": 1}, {"update_id": 1, "new_kind": None}, {"update_id": 1, "poll": []}]
)
def test_an_update_of_an_unknown_kind_is_kept(body: dict[str, Any]) -> None:
    incoming = sole_event(SOURCE, request(json_of(body)))

    assert incoming.type == next((name for name in body if name != "update_id"), "update")
    assert incoming.subject is None


@pytest.mark.parametrize(
    "body", [b"[]", b"{}", b'{"message": {}}', b'{"update_id": 1.5}', b'{"update_id": 1, "a\\u0000": 1}']
)
def test_what_cannot_be_read_is_malformed(body: bytes) -> None:
    malformed(SOURCE, request(body))


@pytest.mark.parametrize("secret", ["110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw", "a b", "x" * 257, "é"])
def test_what_setwebhook_refuses_is_no_secret(secret: str) -> None:
    with pytest.raises(ConfigError):
        Telegram(secrets=secret)


def test_the_reply_is_an_empty_200() -> None:
    answer = SOURCE.respond("duplicate")

    assert answer is not None
    assert (answer.status, answer.body) == (200, b"")
