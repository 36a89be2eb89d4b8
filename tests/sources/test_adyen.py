"""Adyen's schemes against the vectors of its own libraries."""

from __future__ import annotations

import base64
import copy
import hashlib
import hmac
import json
from typing import Any

import pytest

from onceward.core.errors import BodyMalformed, ConfigError, SignatureInvalid
from onceward.core.messages import HttpRequest
from onceward.sources.adyen import Adyen

KEY = "DFB1EB5485895CFA84146406857104ABB4CBCABDC8AAF103A624C8F6A3EAAB00"
OTHER = "44782DEF547AAA06C910C43932B1EB0C71FC68D9D0C057550C48EC2ACF6BA056"
# Adyen/adyen-node-api-library, src/__tests__/hmacValidator.spec.ts.
CAPTURE: dict[str, Any] = {
    "pspReference": "pspReference",
    "originalReference": "originalReference",
    "merchantAccountCode": "merchantAccount",
    "merchantReference": "reference",
    "amount": {"currency": "EUR", "value": 1000},
    "eventCode": "CAPTURE",
    "eventDate": "2021-01-01T01:00:00+01:00",
    "paymentMethod": "VISA",
    "reason": "reason",
    "success": "true",
    "additionalData": {"hmacSignature": "xhpHvYq2u2Np0rstbZ6QjLGu7JWhvf7Iwaa6EviJSX0="},
}
# Adyen/adyen-php-api-library, tests/Adyen/Util/HmacSignatureTest.php: no originalReference.
AUTHORISATION: dict[str, Any] = {
    "pspReference": "7914073381342284",
    "merchantAccountCode": "TestMerchant",
    "merchantReference": "TestPayment-1407325143704",
    "amount": {"value": 1130, "currency": "EUR"},
    "eventCode": "AUTHORISATION",
    "success": "true",
    "additionalData": {"hmacSignature": "Ny9gS2veKo5E4w8/OL6xz1/wvT/hYkAXy1xNc/QvO4I="},
}
PLATFORM = {
    "data": {"id": "48RTDZ5WGB", "creationDate": "2026-02-03T04:05:06+01:00"},
    "environment": "test",
    "timestamp": "2026-02-03T04:05:07.000Z",
    "type": "balancePlatform.transfer.created",
}
# Adyen's documentation, "Signing notifications with HMAC" of its classic platforms, to the byte.
CLASSIC = (
    b'{"eventDate":"2018-07-09T12:07:27+02:00","eventType":"ACCOUNT_HOLDER_CREATED","executingUserKey":"ws",'
    b'"live":false,"pspReference":"9915311308462016","content":{"invalidFields":[],"pspReference":'
    b'"9915311308462016","accountCode":"9915311308462024","accountHolderCode":'
    b'"6750d8cf-80ab-4a34-b2c5-f8a1f37a79da","accountHolderDetails":{"bankAccountDetails":[],"email":'
    b'"testEmail@gmail.com","individualDetails":{"name":{"firstName":"TestFirstName","gender":"MALE",'
    b'"lastName":"TestData"}},"merchantCategoryCode":"7999"},"accountHolderStatus":{"status":"Active",'
    b'"processingState":{"disabled":false,"processedFrom":{"currency":"EUR","value":0},"processedTo":'
    b'{"currency":"EUR","value":0},"tierNumber":0},"payoutState":{"allowPayout":false,"disabled":false,'
    b'"tierNumber":0},"events":[]},"legalEntity":"Individual","verification":{}}}'
)
CLASSIC_KEY = "79A3EAF309C43708726A8C284C0D72618696A12E840DFA1DF3A158AFA3B577DA"
CLASSIC_HEADERS = {"HmacSignature": "A2bHr0WPlKg1fJLVEDReVAdUDWt3znmsuYvp2KdihXY=", "Protocol": "HmacSHA256"}


def body(*items: object) -> bytes:
    entries = [{"NotificationRequestItem": item} for item in items]
    return json.dumps({"live": "false", "notificationItems": entries}).encode()


def request(*items: object, headers: dict[str, str] | None = None) -> HttpRequest:
    return HttpRequest.of(body(*items), headers or {})


def platform(event: object = PLATFORM, key: str = KEY) -> HttpRequest:
    raw = json.dumps(event).encode()
    signature = base64.b64encode(hmac.new(bytes.fromhex(key), raw, hashlib.sha256).digest()).decode()
    return HttpRequest.of(raw, {"HmacSignature": signature, "Protocol": "HmacSHA256"})


def check_of(candidate: HttpRequest, source: Adyen | None = None) -> str:
    with pytest.raises(SignatureInvalid) as refusal:
        (source or Adyen(secrets=KEY)).verify(candidate, 0)
    return refusal.value.check


# --- the published vectors ------------------------------------------------------------------------


def test_the_published_items_verify_alone_and_together() -> None:
    source = Adyen(secrets=[OTHER, KEY])

    for items in ([CAPTURE], [AUTHORISATION], [AUTHORISATION, CAPTURE]):
        assert source.verify(request(*items), 0).secret_index == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("pspReference", "x"),
        ("originalReference", ""),
        ("merchantAccountCode", "other"),
        ("merchantReference", "reference "),
        ("eventCode", "REFUND"),
        ("success", "false"),
        ("success", False),
        ("amount", {"currency": "EUR", "value": 1001}),
        ("amount", {"currency": "USD", "value": 1000}),
        ("amount", {"currency": "EUR", "value": 1000.0}),
        ("amount", None),
        ("amount", {"currency": "EUR", "value": 10**400}),
        ("additionalData", {}),
        ("additionalData", {"hmacSignature": "notValidSign"}),
        ("additionalData", {"hmacSignature": "é"}),
        ("additionalData", []),
    ],
)
def test_a_change_of_any_signed_field_is_refused_wherever_the_item_stands(field: str, value: object) -> None:
    changed = copy.deepcopy(CAPTURE) | {field: value}

    check_of(request(changed))
    check_of(request(AUTHORISATION, changed))
    check_of(request(changed, AUTHORISATION))


def test_the_published_event_of_classic_platforms_verifies_and_is_read() -> None:
    source = Adyen(secrets=[KEY, CLASSIC_KEY])
    delivery = HttpRequest.of(CLASSIC, CLASSIC_HEADERS)

    assert source.verify(delivery, 0).secret_index == 1
    [event] = source.normalize(delivery)
    assert (event.type, event.subject) == ("ACCOUNT_HOLDER_CREATED", "6750d8cf-80ab-4a34-b2c5-f8a1f37a79da")
    assert (event.occurred_at_ms, event.id_is_derived) == (1_531_130_847_000, True)
    assert event == source.normalize(HttpRequest.of(CLASSIC))[0]
    assert event.id != source.normalize(HttpRequest.of(CLASSIC.replace(b"CREATED", b"UPDATED")))[0].id
    check_of(HttpRequest.of(CLASSIC + b" ", CLASSIC_HEADERS))
    assert Adyen(secrets=CLASSIC_KEY).sign(CLASSIC, 0)["HmacSignature"] == CLASSIC_HEADERS["HmacSignature"]


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"{}",
        b'{"notificationItems":[]}',
        b'{"notificationItems":{}}',
        b'{"notificationItems":[7]}',
        b'{"notificationItems":[{"NotificationRequestItem":7}]}',
        b'{"notificationItems":[' + b",".join([b"{}"] * 1001) + b"]}",
    ],
)
def test_a_body_without_a_signature_is_refused(raw: bytes) -> None:
    check_of(HttpRequest.of(raw))


def test_what_is_true_in_json_is_signed_as_text() -> None:
    assert Adyen(secrets=KEY).verify(request(CAPTURE | {"success": True}), 0).secret_index == 0


# --- platform webhooks ----------------------------------------------------------------------------


def test_a_platform_webhook_signs_its_body() -> None:
    assert Adyen(secrets=[OTHER, KEY]).verify(platform(), 0).secret_index == 1
    check_of(
        HttpRequest.of(platform().body + b" ", [(n.decode(), v.decode()) for n, v in platform().headers])
    )
    check_of(platform(key=OTHER))


def test_a_wrong_header_is_not_made_good_by_items() -> None:
    check_of(request(CAPTURE, headers={"HmacSignature": "x"}))


# --- user and password ----------------------------------------------------------------------------


def login(text: str, scheme: str = "Basic") -> HttpRequest:
    return request(CAPTURE, headers={"Authorization": f"{scheme} {base64.b64encode(text.encode()).decode()}"})


def test_user_and_password_are_asked_for_beside_the_signature() -> None:
    source = Adyen(secrets=KEY, basic_auth=["user:pass:word", "user:old"])

    for good in (login("user:pass:word"), login("user:old", "basic")):
        assert source.verify(good, 0).secret_index == 0
    for bad in (login("user:pass"), login("user:old", "Bearer"), request(CAPTURE)):
        check_of(bad, source)
    check_of(request(CAPTURE, headers={"Authorization": "Basic é"}), source)
    wrong_item = CAPTURE | {"success": "false"}
    check_of(HttpRequest.of(body(wrong_item), {"Authorization": login("user:old").header("authorization") or ""}), source)  # fmt: skip


# --- reading --------------------------------------------------------------------------------------


def test_every_item_is_an_event() -> None:
    capture, authorisation = Adyen(secrets=KEY).normalize(request(CAPTURE, AUTHORISATION))

    assert (capture.type, capture.subject) == ("CAPTURE", "originalReference")
    assert (authorisation.type, authorisation.subject) == ("AUTHORISATION", "7914073381342284")
    assert capture.occurred_at_ms == 1_609_459_200_000
    assert capture.payload == CAPTURE
    assert capture.id != authorisation.id


def test_an_item_keeps_its_id_when_it_is_sent_again_and_another_outcome_has_another() -> None:
    def event_id(item: dict[str, Any]) -> str:
        return Adyen(secrets=KEY).normalize(request(item))[0].id

    again = CAPTURE | {"reason": "other", "eventDate": "2021-01-02T01:00:00+01:00", "additionalData": {}}
    assert event_id(CAPTURE) == event_id(again) == event_id(CAPTURE | {"success": True})
    for changed in ({"success": "false"}, {"eventCode": "REFUND"}, {"pspReference": "other"}):
        assert event_id(CAPTURE) != event_id(CAPTURE | changed)


def test_a_platform_event_is_read() -> None:
    [first] = Adyen(secrets=KEY).normalize(platform())
    [again] = Adyen(secrets=KEY).normalize(platform(PLATFORM | {"timestamp": "2026-02-03T05:00:00Z"}))

    assert first.id == again.id
    assert (first.type, first.subject) == ("balancePlatform.transfer.created", "48RTDZ5WGB")
    assert first.id != Adyen(secrets=KEY).normalize(platform(PLATFORM | {"data": {"id": "x"}}))[0].id


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"{}",
        b'{"notificationItems":7}',
        b'{"notificationItems":[7]}',
        b'{"notificationItems":[{"NotificationRequestItem":{"eventCode":"A"}}]}',
    ],
)
def test_what_cannot_be_read_is_malformed(raw: bytes) -> None:
    with pytest.raises(BodyMalformed):
        Adyen(secrets=KEY).normalize(HttpRequest.of(raw))


def test_a_list_of_nothing_is_no_event() -> None:
    assert Adyen(secrets=KEY).normalize(request()) == []


def test_adyen_reads_accepted() -> None:
    answer = Adyen(secrets=KEY).respond("accepted")

    assert answer is not None
    assert (answer.status, answer.body) == (200, b"[accepted]")
    assert Adyen(secrets=KEY).respond("refused") is None


# --- signing and configuration --------------------------------------------------------------------


def test_the_signatures_made_here_are_the_published_ones() -> None:
    unsigned = [item | {"additionalData": {"a": 1}} for item in (CAPTURE, AUTHORISATION)]
    source = Adyen(secrets=[OTHER, KEY], basic_auth="u:p")

    made = source.signed_request(body(*unsigned), 0, secret_index=1)

    items = [entry["NotificationRequestItem"] for entry in json.loads(made.body)["notificationItems"]]
    assert [item["additionalData"] for item in items] == [
        {"a": 1, **item["additionalData"]} for item in (CAPTURE, AUTHORISATION)
    ]
    assert source.verify(made, 0).secret_index == 1
    assert Adyen(secrets=KEY).sign(platform().body, 0)["HmacSignature"] == platform().header("hmacsignature")


@pytest.mark.parametrize("options", [{"secrets": "not hex"}, {"secrets": KEY, "basic_auth": "user"}])
def test_what_can_never_match_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        Adyen(**options)  # type: ignore[arg-type]
