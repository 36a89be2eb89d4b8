"""Notices: which addresses are refused and how, what is told, and until when."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest

from onceward import NoticeAddress
from onceward.core.errors import ConfigError
from onceward.core.notices import (
    GONE,
    KINDS,
    SEEN_EVERY_MS,
    SEND_SECONDS_MAX,
    TAKEN_MS,
    TEXT_CHARS_MAX,
    UNSEEN_MS,
    NoticeRow,
    message,
    put_off,
)
from onceward.core.redact import Redaction
from onceward.core.settings import SETTINGS, resolve
from onceward.core.states import NoticeState

SECRET, OTHER = ("whsec_" + base64.b64encode(bytes([number]) * 24).decode() for number in (1, 2))
DAY = 86_400_000
URL = "https://ops.example/hooks/s3cr3t?key=s3cr3t"
ROW = NoticeRow(
    notice_id="ntc_1_2",
    address_id="aa",
    type="run.held",
    at=1_750_000_000_123,
    state=NoticeState.OWED,
    due_at=1,
    ended_at=None,
    tries=1,
    trouble=None,
    run_id="run_1",
    workflow="fulfil",
    source="stripe",
    event_id="evt_1",
    event_type=None,
    key=None,
    generation=2,
    attempt=3,
    reason="token=abc " + "x" * TEXT_CHARS_MAX,
    error="no JSON",
)


def secret_of(length: int) -> str:
    return "whsec_" + base64.b64encode(bytes(length)).decode()


def read(value: object) -> tuple[NoticeAddress, ...]:
    return resolve(SETTINGS, {}, {"ONCEWARD_NOTICES": value}).notices or ()  # type: ignore[dict-item]


def test_a_text_names_addresses_with_their_secrets_and_kinds() -> None:
    found = read(f"{URL} {SECRET} {OTHER}  http://127.0.0.1:9/ held {SECRET}")

    assert found == (
        NoticeAddress(URL, secrets=[SECRET, OTHER]),
        NoticeAddress("http://127.0.0.1:9/", secrets=[SECRET], kinds=["held"]),
    )
    assert [address.kinds for address in found] == [KINDS, ("held",)]
    assert found == resolve(SETTINGS, {"notices": list(found)}, {}).notices
    assert found[:1] == resolve(SETTINGS, {"notices": found[0]}, {}).notices


def test_an_address_shows_neither_its_path_nor_a_secret() -> None:
    (address,) = read(f"{URL} {SECRET}")
    shown = next(setting for setting in SETTINGS if setting.name == "notices").show((address,))

    assert shown == "https://ops.example/…"
    assert NoticeAddress("https://ops.example:8443/", secrets=SECRET).shown == "https://ops.example:8443"
    assert NoticeAddress("https://ops.example?key=s3cr3t", secrets=SECRET).shown == "https://ops.example/…"
    assert "s3cr3t" not in repr(address)
    assert SECRET[6:] not in repr(address)
    assert len(address.address_id) == 16


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (SECRET, "Word 1 of the variable ONCEWARD_NOTICES is no address"),
        (f"{URL} {SECRET} {SECRET[6:]}", "Word 3 of the variable ONCEWARD_NOTICES is no address"),
        (URL, "The notice address https://ops.example/… has 0 secrets"),
        (f"{URL} {' '.join([SECRET] * 6)}", "The notice address https://ops.example/… has 6 secrets"),
        (f"{URL} whsec_", "Secret 1 of the notice address https://ops.example/… is none"),
        (f"{URL} {SECRET[:9]}#{SECRET[9:]}", "Secret 1 of the notice address https://ops.example/… is none"),
        (f"{URL} {secret_of(23)}", "Secret 1 of the notice address https://ops.example/… is none"),
        (f"{URL} {secret_of(65)}", "Secret 1 of the notice address https://ops.example/… is none"),
        (f"https://ops.example:0/ {SECRET}", "A notice address is none that can be posted to"),
        (f"{URL} {SECRET} whsec_####", "Secret 2 of the notice address https://ops.example/… is none"),
        (f"https:///hooks {SECRET}", "A notice address is none that can be posted to"),
        (f"https://user:s3cr3t@ops.example/ {SECRET}", "A notice address is none that can be posted to"),
        (f"https://ops.example:99999/ {SECRET}", "A notice address is none that can be posted to"),
        (f"https://ops.example/ü {SECRET}", "A notice address is none that can be posted to"),
        (f"ftp://ops.example/ {SECRET}", "Word 1 of the variable ONCEWARD_NOTICES is no address"),
        (f"{URL} {SECRET} {URL} {OTHER}", "The variable ONCEWARD_NOTICES names an address twice"),
        (
            " ".join(f"https://{number}.example {SECRET}" for number in range(11)),
            "The variable ONCEWARD_NOTICES names 11 addresses",
        ),
    ],
)
def test_what_cannot_be_told_is_refused_without_showing_a_secret(value: str, what: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(value)

    assert str(caught.value).startswith(what)
    assert "s3cr3t" not in str(caught.value)
    assert SECRET[6:] not in str(caught.value)


def test_as_many_addresses_and_secrets_are_taken_as_are_allowed() -> None:
    secrets = [secret_of(length) for length in (24, 32, 48, 63, 64)]

    found = read(" ".join(f"https://{number}.example {' '.join(secrets)}" for number in range(10)))

    assert [address.secrets for address in found] == [tuple(secrets)] * 10


@pytest.mark.parametrize("value", [7, [URL], {"url": URL}])
def test_an_argument_is_a_text_or_addresses(value: Any) -> None:
    with pytest.raises(ConfigError, match="setting 'notices'"):
        resolve(SETTINGS, {"notices": value}, {})


@pytest.mark.parametrize("kinds", [[], ["completed"], "run.failed"])
def test_a_kind_that_is_none_is_refused(kinds: Any) -> None:
    with pytest.raises(ConfigError, match="is to be told of"):
        NoticeAddress(URL, secrets=SECRET, kinds=kinds)


def test_a_message_says_what_is_known_and_is_short() -> None:
    told = json.loads(message(ROW, "default", Redaction(), None))

    assert told["timestamp"] == "2025-06-15T15:06:40.123Z"
    assert told["data"].pop("reason") == "token=[redacted] " + "x" * (TEXT_CHARS_MAX - 18) + "…"
    assert told == {
        "type": "run.held",
        "timestamp": "2025-06-15T15:06:40.123Z",
        "data": {
            "id": "run_1",
            "namespace": "default",
            "workflow": "fulfil",
            "state": "held",
            "event": {"source": "stripe", "id": "evt_1", "type": None},
            "generation": 2,
            "attempt": 3,
        },
    }


def test_a_message_has_the_runs_key_and_the_events_type_where_there_are_any() -> None:
    row = msgspec.structs.replace(ROW, key="order-7", event_type="order.paid")

    told = json.loads(message(row, "default", Redaction(), None))["data"]

    assert told["key"] == "order-7"
    assert told["event"] == {"source": "stripe", "id": "evt_1", "type": "order.paid"}


def test_of_an_error_type_and_message_are_told_without_what_no_output_shows() -> None:
    saved = {"type": "OSError", "message": "token=abc " + "x" * TEXT_CHARS_MAX, "traceback": "File …"}
    row = msgspec.structs.replace(ROW, type="run.failed", error=json.dumps(saved))

    told = json.loads(message(row, "default", Redaction(), "https://ops.example/runs"))["data"]

    assert told["error"] == {
        "type": "OSError",
        "message": "token=[redacted] " + "x" * (TEXT_CHARS_MAX - 18) + "…",
    }
    assert (told["state"], told["url"]) == ("failed", "https://ops.example/runs/run_1")


def test_a_notice_is_put_off_for_ever_longer_and_given_up_after_three_days() -> None:
    def waits(tries: int) -> int | None:
        row = NoticeRow(**{name: getattr(ROW, name) for name in ROW.__struct_fields__} | {"tries": tries})
        found = put_off(row, ROW.at, "HTTP 500", 0.999_999)
        return None if found is None or found.due_at is None else found.due_at - ROW.at

    assert [waits(tries) for tries in (0, 1, 2, 3, 30)] == [5_000, 5_000, 10_000, 20_000, 3_599_997]
    put_off_once_more = put_off(ROW, ROW.at + 3 * DAY - 1, "HTTP 500", 0.0)
    assert put_off_once_more is not None
    assert (put_off_once_more.due_at, put_off_once_more.trouble) == (ROW.at + 3 * DAY - 1, "HTTP 500")
    assert put_off(ROW, ROW.at + 3 * DAY, "HTTP 500", 0.5) is None


def test_the_limits_are_those_of_the_page_about_notices() -> None:
    assert SEND_SECONDS_MAX == 10
    assert TEXT_CHARS_MAX == 1_000
    assert UNSEEN_MS == 2 * DAY
    assert GONE == 410
    assert SEND_SECONDS_MAX * 1_000 < TAKEN_MS < 2 * SEEN_EVERY_MS < UNSEEN_MS, "nobody sends beside another"


@pytest.mark.parametrize("error", [None, "no JSON", "[1]"])
def test_an_error_that_cannot_be_read_is_left_out(error: str | None) -> None:
    row = msgspec.structs.replace(ROW, error=error, reason=None)

    told = json.loads(message(row, "default", Redaction(), None))["data"]

    assert not {"error", "reason"} & told.keys()


@pytest.mark.parametrize(("length", "told"), [(1_000, "x" * 1_000), (1_001, "x" * 999 + "…")])
def test_a_text_is_cut_at_a_thousand_characters(length: int, told: str) -> None:
    row = msgspec.structs.replace(ROW, reason="x" * length)

    assert json.loads(message(row, "default", Redaction(), None))["data"]["reason"] == told


@pytest.mark.parametrize(
    ("value", "refused"),
    [
        (f"held {URL} {SECRET}", "Word 1 of the setting 'notices' is no address"),
        (" ", "The setting 'notices' names no address"),
        (f"{URL} failed {SECRET} held failed", None),
    ],
)
def test_kinds_and_secrets_stand_behind_their_address_in_any_order(value: str, refused: str | None) -> None:
    if refused is not None:
        with pytest.raises(ConfigError, match=refused):
            resolve(SETTINGS, {"notices": value}, {})
        return
    (address,) = resolve(SETTINGS, {"notices": value}, {}).notices or ()
    assert (address.secrets, address.kinds) == ((SECRET,), KINDS)
