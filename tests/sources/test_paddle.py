"""Paddle's scheme against the vector of its own library."""

from __future__ import annotations

import hashlib
import hmac
import json
from datetime import timedelta

import pytest

from onceward.core.errors import BodyMalformed, ConfigError, SignatureInvalid
from onceward.core.messages import HttpRequest
from onceward.sources.paddle import Paddle

# PaddleHQ/paddle-python-sdk, tests/Unit/Notification/test_Verifier.py.
KEYS = [
    "pdl_ntf_01hbpjmytsa32fhr36nqgc3kgb_TjIG2BXbm83HPXqNfziwe506sBEdqL/4",
    "pdl_ntf_01hbpjmytsa32fhr36nqgc3kgb_vB/yIOnTOCWIvpBadM5jzBZPHc7OmdSo",
    "pdl_ntf_01hbpjmytsa32fhr36nqgc3kgb_WvRO0eL4Bj9rgYYIBZY6wZhG4EHy9jzh",
]
HEADER = "ts=1696195954;h1=dummy;h1=d96299976a6eb066f484d7fde011ac56fc32b38fc9940bc419d6e537fdc6ef02"
NOW_MS = 1_696_195_954_000
SOURCE = Paddle(secrets=KEYS)
EVENT = {
    "event_id": "evt_01h",
    "event_type": "transaction.completed",
    "occurred_at": "2023-08-21T11:57:47.390028Z",
    "notification_id": "ntf_01h",
    "data": {"id": "txn_01h"},
}
# PaddleHQ/paddle-go-sdk, example_webhook_verifier_test.go: a whole delivery.
DELIVERY = (
    b'{"data":{"id":"pri_01hsdn96k2hxjzsq5yerecdj9j","name":null,"status":"active","quantity":{"maximum":999999,'
    b'"minimum":1},"tax_mode":"account_setting","product_id":"pro_01hsdn8qp7yydry3x1yeg6a9rv","unit_price":'
    b'{"amount":"1000","currency_code":"USD"},"custom_data":null,"description":"testing","import_meta":null,'
    b'"trial_period":null,"billing_cycle":{"interval":"month","frequency":1},"unit_price_overrides":[]},'
    b'"event_id":"evt_01hsdn97563968dy0szkmgjwh3","event_type":"price.created","occurred_at":'
    b'"2024-03-20T10:07:35.590857Z","notification_id":"ntf_01hsdn977e920kbgzt6r6c9rqc"}'
)
DELIVERY_KEY = "pdl_ntfset_01hsdn8d43dt7mezr1ef2jtbaw_hKkRiCGyyRhbFwIUuqiTBgI7gnWoV0Gr"
DELIVERY_HEADER = "ts=1710929255;h1=6c05ef8fa83c44d751be6d259ec955ce5638e2c54095bf128e408e2fce1589c8"
DELIVERY_MS = 1_710_929_255_000


def request(header: str, body: bytes = b"hello-world") -> HttpRequest:
    return HttpRequest.of(body, {"paddle-signature": header})


def signed(event: object, key: str = KEYS[0]) -> HttpRequest:
    body = json.dumps(event).encode()
    signature = hmac.new(key.encode(), b"1696195954:" + body, hashlib.sha256).hexdigest()
    return request(f"ts=1696195954;h1={signature}", body)


def test_the_published_vector_verifies() -> None:
    verified = SOURCE.verify(request(HEADER), NOW_MS)

    assert (verified.secret_index, verified.sent_at_ms) == (2, NOW_MS)


def test_the_published_delivery_verifies_and_is_read() -> None:
    source = Paddle(secrets=["other", DELIVERY_KEY])
    delivery = request(DELIVERY_HEADER, DELIVERY)

    assert source.verify(delivery, DELIVERY_MS).secret_index == 1
    [event] = source.normalize(delivery)
    assert (event.id, event.type, event.subject, event.occurred_at_ms) == (
        "evt_01hsdn97563968dy0szkmgjwh3",
        "price.created",
        "pri_01hsdn96k2hxjzsq5yerecdj9j",
        1_710_929_255_590,
    )
    for at_ms, raw in ((DELIVERY_MS + 301_000, DELIVERY), (DELIVERY_MS, DELIVERY.replace(b"1000", b"1"))):
        with pytest.raises(SignatureInvalid):
            source.verify(request(DELIVERY_HEADER, raw), at_ms)


@pytest.mark.parametrize("header", [f"{HEADER};h2=x;new", HEADER.replace(";", "; "), f"x==;{HEADER}"])
def test_parts_that_are_not_known_are_ignored(header: str) -> None:
    assert SOURCE.verify(request(header), NOW_MS).secret_index == 2


@pytest.mark.parametrize(
    "header",
    [
        "",
        ";",
        HEADER.replace("02", "03"),
        HEADER.replace("ts=1696195954", "ts=1696195955"),
        HEADER.replace("ts=1696195954;", ""),
        f"ts=1696195954;{HEADER}",
        "ts=1696195954",
        "ts=²;h1=00",
        "ts=1696195954;h1=é\xff",
        HEADER.upper(),
        HEADER + ";h1=00" * 16,
        f"ts=1696195954;h1=00, {HEADER}",
        f"{HEADER}, ts=1696195954;h1=00",
    ],
)
def test_another_header_is_refused(header: str) -> None:
    with pytest.raises(SignatureInvalid):
        SOURCE.verify(request(header), NOW_MS)


def test_another_body_and_a_doubled_or_missing_header_are_refused() -> None:
    doubled = HttpRequest.of(b"hello-world", [("Paddle-Signature", HEADER)] * 2)

    for candidate in (request(HEADER, b"hello-world\n"), doubled, HttpRequest.of(b"hello-world")):
        with pytest.raises(SignatureInvalid):
            SOURCE.verify(candidate, NOW_MS)


@pytest.mark.parametrize(("skew_ms", "side"), [(300_001, "past"), (-300_001, "future")])
def test_a_time_beyond_the_tolerance_is_refused_in_both_directions(skew_ms: int, side: str) -> None:
    SOURCE.verify(request(HEADER), NOW_MS + skew_ms // 300_001 * 300_000)

    with pytest.raises(SignatureInvalid, match=side):
        SOURCE.verify(request(HEADER), NOW_MS + skew_ms)
    assert Paddle(secrets=KEYS, tolerance="1h").verify(request(HEADER), NOW_MS + skew_ms)


def test_an_event_is_read_and_a_replay_of_it_is_the_same() -> None:
    [first] = SOURCE.normalize(signed(EVENT))
    [replayed] = SOURCE.normalize(signed(EVENT | {"notification_id": "ntf_02"}))

    assert first.id == replayed.id == "evt_01h"
    assert (first.type, first.subject) == ("transaction.completed", "txn_01h")
    assert first.occurred_at_ms == 1_692_619_067_390


@pytest.mark.parametrize("event", [[], {}, {"event_id": "a"}, {"event_type": "a", "event_id": None}])
def test_an_event_without_id_or_type_is_malformed(event: object) -> None:
    with pytest.raises(BodyMalformed):
        SOURCE.normalize(signed(event))


def test_the_signature_made_here_is_the_published_one() -> None:
    header = SOURCE.sign(b"hello-world", NOW_MS, secret_index=2)["Paddle-Signature"]

    assert header == HEADER.replace("h1=dummy;", "")


def test_paddle_gets_its_200() -> None:
    answer = SOURCE.respond("duplicate")

    assert answer is not None
    assert answer.status == 200
    assert SOURCE.respond("busy") is None


def test_a_tolerance_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError):
        Paddle(secrets=KEYS, tolerance=timedelta(0))
