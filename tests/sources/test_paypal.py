"""PayPal's scheme against a delivery of its sandbox from 2015 and the certificate of that time."""

from __future__ import annotations

import base64
import zlib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding

from onceward.core.errors import ConfigError, KeyUnavailable, SignatureInvalid
from onceward.core.messages import HttpRequest
from onceward.sources import create
from onceward.sources.paypal import PayPal
from tests.sources.rsa_keys import KEY

VECTORS = Path(__file__).parent / "vectors"
CERTIFICATE = (VECTORS / "paypal.pem").read_text()
# Body, headers and webhook id: paypal/PayPal-Ruby-SDK, spec/webhooks_examples_spec.rb; the certificate:
# the mocks of paypal/PayPal-node-SDK.
BODY = (VECTORS / "paypal.json").read_bytes()
WEBHOOK_ID = "4JH86294D6297924G"
CERT_URL = "https://api.sandbox.paypal.com/v1/notifications/certs/CERT-360caa42-fca2a594-a5cafa77"
HEADERS = {
    "PAYPAL-TRANSMISSION-ID": "dfb3be50-fd74-11e4-8bf3-77339302725b",
    "PAYPAL-TRANSMISSION-TIME": "2015-05-18T15:45:13Z",
    "PAYPAL-TRANSMISSION-SIG": (
        "thy4/U002quzxFavHPwbfJGcc46E8rc5jzgyeafWm5mICTBdY/8rl7WJpn8JA0GKA+oDTPsSruqusw+XXg5RLAP7ip53Euh9Xu3U"
        "bUhQFX7UgwzE2FeYoY6lyRMiiiQLzy9BvHfIzNIVhPad4KnC339dr6y2l+mN8ALgI4GCdIh3/SoJO5wE64Bh/ueWtt8EVuvsvXfd"
        "a2Le5a2TrOI9vLEzsm9GS79hAR/5oLexNz8UiZr045Mr5ObroH4w4oNfmkTaDk9Rj0G19uvISs5QzgmBpauKr7Nw++JI0pr/v5mF"
        "ctQkoWJSGfBGzPRXawrvIIVHQ9Wer48GR2g9ZiApWg=="
    ),
    "PAYPAL-CERT-URL": CERT_URL,
    "PAYPAL-AUTH-ALGO": "SHA256withRSA",
}
SENT_MS = 1_431_963_913_000
NOW_MS = 1_760_000_000_000


def request(body: bytes = BODY, **changed: str) -> HttpRequest:
    headers = HEADERS | {f"PAYPAL-{name.replace('_', '-')}": value for name, value in changed.items()}
    return HttpRequest.of(body, {name: value for name, value in headers.items() if value})


def fixed(webhook_id: str | list[str] = WEBHOOK_ID) -> PayPal:
    return PayPal(webhook_id=webhook_id, certificates=CERTIFICATE)


def check_of(source: PayPal, candidate: HttpRequest, now_ms: int = NOW_MS) -> str:
    with pytest.raises(SignatureInvalid) as refusal:
        source.verify(candidate, now_ms)
    return refusal.value.check


# --- the published delivery -----------------------------------------------------------------------


def test_the_published_delivery_verifies_with_a_certificate_that_is_given() -> None:
    source = fixed(["9ZZ", WEBHOOK_ID])

    verified = source.verify(request(), NOW_MS)

    assert (verified.secret_index, verified.sent_at_ms) == (1, SENT_MS)
    assert not source.is_blocking


def test_the_published_delivery_verifies_with_a_certificate_that_is_fetched_once() -> None:
    asked: list[str] = []

    def fetch(url: str) -> bytes:
        asked.append(url)
        return CERTIFICATE.encode()

    source = create("paypal", secrets=WEBHOOK_ID, fetch=fetch)

    assert source.verify(request(), NOW_MS).secret_index == 0
    assert source.verify(request(), NOW_MS + 3_600_000).secret_index == 0
    assert asked == [CERT_URL]
    assert source.is_blocking


def test_the_event_is_read() -> None:
    [incoming] = fixed().normalize(request())

    assert incoming.id == "WH-0G2756385H040842W-5Y612302CV158622M"
    assert incoming.type == "PAYMENT.SALE.COMPLETED"
    assert incoming.subject == "4EU7004268015634R"
    assert incoming.occurred_at_ms == SENT_MS


# --- tampering ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "candidate",
    [
        request(BODY.replace(b"20.00", b"21.00")),
        request(BODY + b" "),
        request(TRANSMISSION_ID="dfb3be50-fd74-11e4-8bf3-77339302725c"),
        request(TRANSMISSION_TIME="2015-05-18T15:45:14Z"),
        request(TRANSMISSION_SIG="AAAA"),
        request(TRANSMISSION_SIG="é\xff"),
        request(TRANSMISSION_TIME="yesterday"),
        request(AUTH_ALGO="SHA1withRSA"),
        *(
            HttpRequest.of(BODY, {name: value for name, value in HEADERS.items() if name != missing})
            for missing in HEADERS
            if "CERT" not in missing
        ),
    ],
)  # fmt: skip
def test_whatever_else_is_sent_is_refused(candidate: HttpRequest) -> None:
    check_of(fixed(), candidate)


def test_another_webhooks_delivery_is_refused() -> None:
    assert "1 webhook ids tried" in check_of(fixed("4JH86294D6297924H"), request())


def test_a_doubled_header_is_refused() -> None:
    pairs = [*HEADERS.items(), ("PAYPAL-TRANSMISSION-SIG", HEADERS["PAYPAL-TRANSMISSION-SIG"])]

    assert "2 PAYPAL-TRANSMISSION-SIG headers" in check_of(fixed(), HttpRequest.of(BODY, pairs))


@pytest.mark.parametrize(
    "url",
    [
        "",
        "http://api.paypal.com/v1/notifications/certs/CERT-1",
        "https://api.paypal.com.evil.example/v1/notifications/certs/CERT-1",
        "https://evil.example/v1/notifications/certs/CERT-1?api.paypal.com",
        "https://api.paypal.com@evil.example/v1/notifications/certs/CERT-1",
        "https://api.paypal.com:8443/v1/notifications/certs/CERT-1",
        "https://api.paypal.com/v1/other/CERT-1",
        "https://api.paypal.com/v1/notifications/certs/../CERT",
        "https://www.paypal.com/v1/notifications/certs/CERT-1",
        CERT_URL + "\n",
    ],
)
def test_an_address_that_is_not_paypals_is_never_asked(url: str) -> None:
    def fetch(url: str) -> bytes:
        raise AssertionError(url)

    check_of(PayPal(webhook_id=WEBHOOK_ID, fetch=fetch), request(CERT_URL=url))


@pytest.mark.parametrize(
    "answer", [b"", b"<html>", "é".encode(), b"-----BEGIN CERTIFICATE-----", b"x" * 300_000]
)
def test_an_answer_that_is_no_certificate_refuses(answer: bytes) -> None:
    check_of(PayPal(webhook_id=WEBHOOK_ID, fetch=lambda _: answer), request())


def test_a_certificate_that_cannot_be_had_is_told_from_a_forgery_and_not_asked_for_without_end() -> None:
    asked: list[str] = []

    def fetch(url: str) -> bytes:
        asked.append(url)
        raise OSError("down")

    source = PayPal(webhook_id=WEBHOOK_ID, fetch=fetch)
    for _ in range(3):
        with pytest.raises(KeyUnavailable):
            source.verify(request(), NOW_MS)
    assert len(asked) == 1

    for number in range(50):
        with pytest.raises(KeyUnavailable):
            source.verify(request(CERT_URL=f"{CERT_URL}{number}"), NOW_MS)
    assert len(asked) == 20


# --- what a CRC does not cover --------------------------------------------------------------------


def own_certificate() -> str:
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(KEY.public_key())
        .serial_number(1)
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2021, 1, 1, tzinfo=UTC))
        .sign(KEY, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM).decode()


def signed(body: bytes, transmission_id: str = "t-1", at: str = "2025-10-09T08:53:20Z") -> HttpRequest:
    message = f"{transmission_id}|{at}|{WEBHOOK_ID}|{zlib.crc32(body)}".encode()
    signature = base64.b64encode(KEY.sign(message, padding.PKCS1v15(), hashes.SHA256())).decode()
    return request(body, TRANSMISSION_ID=transmission_id, TRANSMISSION_TIME=at, TRANSMISSION_SIG=signature)


def with_crc_of(wanted: bytes, forged: bytes) -> bytes:
    """Give *forged* with four bytes behind it that make its CRC32 that of *wanted*."""
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0xEDB88320 if crc & 1 else 0)
        table.append(crc)
    state = zlib.crc32(wanted) ^ 0xFFFFFFFF
    for _ in range(4):
        index = next(byte for byte in range(256) if table[byte] >> 24 == state >> 24)
        state = ((state ^ table[index]) << 8 | index) & 0xFFFFFFFF
    state ^= zlib.crc32(forged) ^ 0xFFFFFFFF
    return forged + state.to_bytes(4, "little")


def test_another_body_with_the_same_crc_is_told_apart_and_the_same_again_is_not() -> None:
    source = PayPal(webhook_id=WEBHOOK_ID, certificates=own_certificate())
    genuine = signed(b'{"id":"WH-1"}')
    forged_body = with_crc_of(genuine.body, b'{"id":"WH-2"}')
    assert zlib.crc32(forged_body) == zlib.crc32(genuine.body)
    forged = HttpRequest.of(forged_body, [(n.decode(), v.decode()) for n, v in genuine.headers])

    first, second = (source.verify(one, NOW_MS).loose_proof for one in (genuine, forged))

    assert first is not None
    assert second is not None
    assert first == source.verify(genuine, NOW_MS).loose_proof
    assert first.proof_hash == second.proof_hash
    assert first.content_hash != second.content_hash
    assert first.until_ms is None


def test_sent_again_under_a_new_transmission_it_is_the_same_event() -> None:
    source = PayPal(webhook_id=WEBHOOK_ID, certificates=own_certificate())
    body = b'{"id":"WH-1","event_type":"PAYMENT.CAPTURE.COMPLETED"}'
    first, again = signed(body), signed(body, "t-2", "2025-10-10T08:53:20Z")

    for one in (first, again):
        source.verify(one, NOW_MS)

    assert source.normalize(first)[0].id == source.normalize(again)[0].id == "WH-1"


@pytest.mark.parametrize("skew_ms", [-60_001, 60_001])
def test_a_tolerance_holds_in_both_directions(skew_ms: int) -> None:
    source = PayPal(webhook_id=WEBHOOK_ID, certificates=CERTIFICATE, tolerance=timedelta(minutes=1))

    assert source.verify(request(), SENT_MS + skew_ms // abs(skew_ms) * 60_000).secret_index == 0
    assert "60 s in the" in check_of(source, request(), SENT_MS + skew_ms)


@pytest.mark.parametrize("options", [{}, {"webhook_id": WEBHOOK_ID, "certificates": "no"}])
def test_a_configuration_that_can_verify_nothing_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        create("paypal", **options)
