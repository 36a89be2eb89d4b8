"""Stripe's scheme, with the vendor's own library as the oracle in both directions."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from typing import Any

import pytest
import stripe
from hypothesis import given
from hypothesis import strategies as st

from onceward.core.duration import Duration
from onceward.core.errors import BodyMalformed, ConfigError, SignatureInvalid
from onceward.core.messages import HttpRequest
from onceward.sources import Stripe

NEW = "whsec_new_5f2b8c1d9e0a4b7c"
OLD = "whsec_old_0a1b2c3d4e5f6a7b"
NOW_MS = 1_760_000_000_000
SOURCE = Stripe(secrets=[NEW, OLD])
EVENT = {
    "id": "evt_1PqRs",
    "object": "event",
    "type": "checkout.session.completed",
    "created": 1_759_999_990,
    "data": {"object": {"id": "cs_test_42", "object": "checkout.session", "note": "naïve ☃ \\/ 🎉"}},
}
BODY = json.dumps(EVENT, ensure_ascii=False, indent=1).encode()


def request(body: bytes = BODY, *signatures: str) -> HttpRequest:
    return HttpRequest.of(body, [("Stripe-Signature", value) for value in signatures])


def signed(body: bytes = BODY, secret: str = NEW, at_ms: int = NOW_MS) -> HttpRequest:
    return HttpRequest.of(body, Stripe(secrets=secret).sign(body, at_ms))


def vendor_header(body: bytes, secret: str, at_ms: int = NOW_MS) -> str:
    return str(
        stripe.WebhookSignature.generate_signature_header(body.decode(), secret, timestamp=at_ms // 1000)
    )


def vendor_accepts(body: bytes, header: str, secret: str) -> bool:
    try:
        stripe.WebhookSignature.verify_header(body, header, secret, tolerance=None)
    except (stripe.SignatureVerificationError, ValueError, TypeError):
        # The last two are what the library raises on bytes that are not UTF-8 and on text that is
        # not ASCII; a receiver must refuse these as well.
        return False
    return True


def check_of(candidate: HttpRequest, now_ms: int = NOW_MS) -> str:
    with pytest.raises(SignatureInvalid) as refusal:
        SOURCE.verify(candidate, now_ms)
    return refusal.value.check


# --- the vendor's library as oracle -----------------------------------------------------------


@given(st.text(), st.integers(0, 10**11))
def test_what_the_vendor_signs_verifies(text: str, seconds: int) -> None:
    body = text.encode("utf-8", "replace")
    header = vendor_header(body, OLD, seconds * 1000)

    assert SOURCE.verify(request(body, header), seconds * 1000).secret_index == 1


def test_what_is_signed_here_the_vendor_accepts() -> None:
    headers = SOURCE.sign(BODY, int(time.time() * 1000))

    event = stripe.Webhook.construct_event(BODY, headers["Stripe-Signature"], NEW)

    assert event.id == "evt_1PqRs"


def test_the_vendor_refuses_what_a_wrong_secret_signed_here() -> None:
    headers = Stripe(secrets="whsec_another").sign(BODY, int(time.time() * 1000))

    with pytest.raises(stripe.SignatureVerificationError):
        stripe.Webhook.construct_event(BODY, headers["Stripe-Signature"], NEW)


HEADER = vendor_header(BODY, NEW)


@given(st.data())
def test_a_changed_byte_in_the_header_is_refused(data: st.DataObject) -> None:
    position = data.draw(st.integers(0, len(HEADER) - 1))
    character = data.draw(st.characters(max_codepoint=255))
    mutated = HEADER[:position] + character + HEADER[position + 1 :]

    try:
        SOURCE.verify(request(BODY, mutated), NOW_MS)
        accepted = True
    except SignatureInvalid:
        accepted = False

    assert accepted == (mutated == HEADER)


@given(st.integers(0, len(BODY) - 1), st.integers(0, 255))
def test_a_changed_byte_in_the_body_is_refused(position: int, byte: int) -> None:
    mutated = BODY[:position] + bytes([byte]) + BODY[position + 1 :]

    try:
        SOURCE.verify(request(mutated, HEADER), NOW_MS)
        accepted = True
    except SignatureInvalid:
        accepted = False

    assert accepted == (mutated == BODY)


@given(
    st.lists(
        st.one_of(
            st.text(st.characters(max_codepoint=255), max_size=30),
            st.sampled_from([*HEADER.split(","), "t=", "v1=", "v0=abc", "=", "", "t=1=2", "v1", "t"]),
        ),
        max_size=8,
    )
)
def test_any_header_gives_the_vendors_verdict_or_a_stricter_one(parts: list[str]) -> None:
    header = ",".join(parts)

    try:
        SOURCE.verify(request(BODY, header), NOW_MS)
        accepted = True
    except SignatureInvalid:
        accepted = False

    assert not accepted or vendor_accepts(BODY, header, NEW)


# --- rotation -----------------------------------------------------------------------------------


def test_the_secret_that_matched_is_reported() -> None:
    assert SOURCE.verify(signed(secret=NEW), NOW_MS).secret_index == 0
    assert SOURCE.verify(signed(secret=OLD), NOW_MS).secret_index == 1


def test_during_a_rotation_any_of_the_listed_signatures_may_match() -> None:
    unknown, old = vendor_header(BODY, "whsec_other"), vendor_header(BODY, OLD)
    both = f"{unknown},{old.partition(',')[2]}"

    assert SOURCE.verify(request(BODY, both), NOW_MS).secret_index == 1


def test_after_the_rotation_the_old_secret_is_refused() -> None:
    with pytest.raises(SignatureInvalid):
        Stripe(secrets=NEW).verify(signed(secret=OLD), NOW_MS)


# --- time -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("skew_ms", [-300_000, -1, 0, 1, 300_000])
def test_a_time_within_the_tolerance_is_accepted(skew_ms: int) -> None:
    assert SOURCE.verify(signed(), NOW_MS + skew_ms).secret_index == 0


@pytest.mark.parametrize(
    ("skew_ms", "says"), [(300_001, "300 s in the past"), (-300_001, "300 s in the future")]
)
def test_a_time_beyond_the_tolerance_is_refused_in_both_directions(skew_ms: int, says: str) -> None:
    assert says in check_of(signed(), NOW_MS + skew_ms)


@pytest.mark.parametrize("hour", [timedelta(hours=1), "1h", 3600])
def test_the_tolerance_is_a_setting(hour: timedelta | str | int) -> None:
    wide = Stripe(secrets=NEW, tolerance=hour)

    assert wide.verify(signed(), NOW_MS + 3_600_000).secret_index == 0
    with pytest.raises(SignatureInvalid):
        wide.verify(signed(), NOW_MS + 3_600_001)


def test_a_stale_time_with_a_forged_signature_is_reported_as_forged() -> None:
    assert "no signature matches" in check_of(signed(secret="whsec_other"), NOW_MS + 10_000_000)


@pytest.mark.parametrize(
    "text",
    ["", "-1", "+1760000000", " 1760000000", "1_760_000_000", "1e9", "NaN", "9" * 13, "9" * 100_000, "²"],
)
def test_a_time_that_is_no_number_of_seconds_is_refused(text: str) -> None:
    assert check_of(request(BODY, f"t={text},v1=00")) == "timestamp is not a number of seconds"


# --- stripping and doubling -----------------------------------------------------------------------


def test_a_delivery_without_the_header_is_refused() -> None:
    assert check_of(request(BODY)) == "no Stripe-Signature header"


def test_two_signature_headers_are_refused_even_when_one_is_right() -> None:
    assert check_of(request(BODY, HEADER, HEADER)) == "2 Stripe-Signature headers"


def test_the_test_scheme_v0_alone_is_refused_though_its_value_is_right() -> None:
    assert check_of(request(BODY, HEADER.replace("v1=", "v0="))) == "Stripe-Signature has no v1 signature"


def test_the_test_scheme_v0_beside_v1_is_ignored() -> None:
    assert SOURCE.verify(request(BODY, f"{HEADER},v0=deadbeef"), NOW_MS).secret_index == 0


@pytest.mark.parametrize("value", ["v1=", "", "sha256=abc", ",", f"{HEADER},v1", f"t,{HEADER}"])
def test_a_stripped_header_is_refused(value: str) -> None:
    check_of(request(BODY, value))


def test_two_timestamps_are_refused() -> None:
    assert check_of(request(BODY, f"t=1,{HEADER}")) == "Stripe-Signature has 2 timestamps"


def test_more_signatures_than_anyone_sends_are_refused() -> None:
    assert "17 signatures" in check_of(request(BODY, HEADER + ",v1=00" * 16))


def test_text_that_is_not_ascii_is_refused() -> None:
    assert "no signature matches" in check_of(request(BODY, f"t={NOW_MS // 1000},v1=é\xff"))


# --- reading the event ----------------------------------------------------------------------------


def normalized(body: object) -> Any:
    [incoming] = SOURCE.normalize(HttpRequest.of(json.dumps(body).encode()))
    return incoming


def test_a_snapshot_event_is_read() -> None:
    [incoming] = SOURCE.normalize(HttpRequest.of(BODY))

    assert incoming.id == "evt_1PqRs"
    assert incoming.type == "checkout.session.completed"
    assert incoming.subject == "cs_test_42"
    assert incoming.occurred_at_ms == 1_759_999_990_000
    assert incoming.payload == EVENT
    assert incoming.payload_is_body
    assert incoming.id_is_signed


def test_a_thin_event_of_api_v2_is_read() -> None:
    incoming = normalized(
        {
            "id": "evt_test_65R9Ijk8dKEYZcXeRWn16R9A7j1FSQ3w3TGDPLLGSM4CW0",
            "object": "v2.core.event",
            "type": "v1.billing.meter.error_report_triggered",
            "created": "2024-09-17T06:20:52.246Z",
            "related_object": {"id": "mtr_test_61R9IeP0SgKbYROOx41PEAQhH0qO23oW", "type": "billing.meter"},
        }
    )

    assert incoming.type == "v1.billing.meter.error_report_triggered"
    assert incoming.subject == "mtr_test_61R9IeP0SgKbYROOx41PEAQhH0qO23oW"
    assert incoming.occurred_at_ms == 1_726_554_052_246


@pytest.mark.parametrize(
    "created", [None, True, -1, 10**30, 1.5, "yesterday", "2024-09-17T06:20:52", "9" * 50, [], {}]
)
def test_an_unreadable_time_of_occurrence_costs_only_itself(created: object) -> None:
    assert normalized({"id": "evt_1", "type": "a.b", "created": created}).occurred_at_ms is None


@pytest.mark.parametrize(
    "about",
    [{}, {"data": None}, {"data": []}, {"data": {"object": "cs"}}, {"data": {"object": {"id": ["x"]}}}],
)
def test_an_event_about_nothing_nameable_has_no_subject(about: dict[str, Any]) -> None:
    assert normalized({"id": "evt_1", "type": "a.b", **about}).subject is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b'"evt_1"',
        b"NaN",
        b'{"id": NaN, "type": "a"}',
        b'{"id": "evt_1", "type": "a", "x": Infinity}',
        b'{"id": "evt_1", "type": "a", "x": 1e999}',
        b'{"id": "evt_1"}',
        b'{"type": "a"}',
        b'{"id": null, "type": "a"}',
        b'{"id": "", "type": "a"}',
        b'{"id": true, "type": "a"}',
        b'{"id": 1.5, "type": "a"}',
        b'{"id": ["evt_1"], "type": "a"}',
        b'{"id": "evt_1", "type": {"a": 1}}',
        b'{"id": "evt\\u0000", "type": "a"}',
        b'{"id": "evt\\n1", "type": "a"}',
        b'{"id": "evt_\\ud800", "type": "a"}',
        b'{"id": "%s", "type": "a"}' % (b"x" * 256),
        b'{"id": %s, "type": "a"}' % (b"9" * 4000),
        b'{"id": "evt_1", "type": "a"} trailing',
        b'{"id": "evt_1", "type": "a"',
        b"\xef\xbb\xbf{}",
        b'\xff\xfe{"id"',
        b'{"id": "evt_\xff", "type": "a"}',
        b'{"id": "evt_1", "type": "a", "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_a_body_that_cannot_be_read_is_malformed_and_nothing_else(body: bytes) -> None:
    with pytest.raises(BodyMalformed):
        SOURCE.normalize(HttpRequest.of(body))


def test_of_a_repeated_key_the_last_one_counts_as_in_pythons_json() -> None:
    body = b'{"id": "evt_1", "id": "evt_2", "type": "a"}'

    [incoming] = SOURCE.normalize(HttpRequest.of(body))

    assert incoming.id == json.loads(body)["id"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.fixed_dictionaries(
        {"id": json_values, "type": json_values},
        optional={"created": json_values, "data": json_values, "related_object": json_values},
    )
)
def test_values_of_any_type_are_read_or_malformed(body: dict[str, Any]) -> None:
    try:
        incoming = normalized(body)
    except BodyMalformed:
        return

    assert incoming.id == str(body["id"])
    assert incoming.type == str(body["type"])


# --- configuration --------------------------------------------------------------------------------


@pytest.mark.parametrize("tolerance", [timedelta(0), timedelta(seconds=-1), 0, "5 minutes"])
def test_a_tolerance_that_would_refuse_everything_is_refused(tolerance: Duration) -> None:
    with pytest.raises(ConfigError):
        Stripe(secrets=NEW, tolerance=tolerance)


@pytest.mark.parametrize("key", ["sk_test_123", "rk_live_123", "pk_test_123"])
def test_an_api_key_is_no_signing_secret(key: str) -> None:
    with pytest.raises(ConfigError, match="begins with whsec_") as refused:
        Stripe(secrets=[NEW, key])

    assert key not in str(refused.value)


def test_two_headers_that_a_proxy_joined_are_refused_whichever_comes_first() -> None:
    source = Stripe(secrets="whsec_joined_0123456789")
    good = source.sign(b"{}", 1_760_000_000_000)["Stripe-Signature"]

    for joined in (f"{good}, t=1,v1=00", f"t=1,v1=00, {good}", f"{good}, {good}", f"{good},{good}"):
        with pytest.raises(SignatureInvalid):
            source.verify(HttpRequest.of(b"{}", {"Stripe-Signature": joined}), 1_760_000_000_000)
