"""SendGrid: the vector of its helper libraries, batches, the line end that is signed."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st

from onceward.core.errors import ConfigError
from onceward.core.messages import HttpRequest
from onceward.sources import SendGrid
from tests.sources.known import NOW, NOW_MS, example, malformed, refused, sole_event

# From the tests of sendgrid-python, sendgrid-nodejs and their siblings ("EventWebhook").
PUBLIC = (
    "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE83T4O/n84iotIvIW4mdBgQ/7dAfSmpqIM8kF9mN1flpVKS3GRqe62gw+"
    "2fNNRaINXvVpiglSI8eNEc6wEA3F+g=="
)
SIGNATURE = "MEUCIGHQVtGj+Y3LkG9fLcxf3qfI10QysgDWmMOVmxG0u6ZUAiEAyBiXDWzM+uOe5W0JuG+luQAbPIqHh89M15TluLtEZtM="
TIMESTAMP = "1600112502"
AT_MS = 1_600_112_502_000
BODY = example("sendgrid", "dropped")

OWN = ec.derive_private_key(0x5EED, ec.SECP256R1())
OWN_PUBLIC = base64.b64encode(
    OWN.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
).decode()
SOURCE = SendGrid(secrets=[OWN_PUBLIC, PUBLIC])


def request(body: bytes = BODY, **changed: str | None) -> HttpRequest:
    headers = {
        f"X-Twilio-Email-Event-Webhook-{name}": value
        for name, value in ({"Signature": SIGNATURE, "Timestamp": TIMESTAMP} | changed).items()
        if value is not None
    }
    return HttpRequest.of(body, headers)


def own(body: bytes, seconds: str = NOW) -> HttpRequest:
    signature = OWN.sign(seconds.encode() + body, ec.ECDSA(SHA256()))
    return request(body, Signature=base64.b64encode(signature).decode(), Timestamp=seconds)


def test_the_published_vector_verifies_years_later() -> None:
    verified = SOURCE.verify(request(), NOW_MS)

    assert (verified.secret_index, verified.sent_at_ms) == (1, AT_MS)
    assert SOURCE.verify(own(BODY), NOW_MS).secret_index == 0


@pytest.mark.parametrize(
    "body", [BODY.rstrip(), BODY.rstrip() + b"\n", BODY + b"\n", BODY.replace(b"hello", b"jello"), b""]
)
def test_a_changed_body_is_refused_its_line_end_included(body: bytes) -> None:
    refused(SOURCE, request(body))


@pytest.mark.parametrize(
    "changed",
    [
        {"Signature": None},
        {"Signature": ""},
        {"Signature": SIGNATURE.rstrip("=")},
        {"Signature": SIGNATURE[:-2] + "N="},
        {"Signature": SIGNATURE[:40]},
        {"Signature": "AAAA"},
        {"Signature": "%%%%"},
        {"Signature": "é\xff"},
        {"Timestamp": None},
        {"Timestamp": "1600112503"},
        {"Timestamp": "x"},
        {"Timestamp": TIMESTAMP + "["},
    ],
)
def test_a_changed_header_is_refused(changed: dict[str, Any]) -> None:
    refused(SOURCE, request(**changed))


@settings(max_examples=200)
@given(st.integers(0, len(SIGNATURE) - 1), st.characters(max_codepoint=255))
def test_a_signature_has_one_spelling(position: int, character: str) -> None:
    changed = SIGNATURE[:position] + character + SIGNATURE[position + 1 :]
    if changed != SIGNATURE:
        refused(SOURCE, request(Signature=changed))


def test_a_tolerance_can_be_set() -> None:
    strict = SendGrid(secrets=PUBLIC, tolerance="5m")

    assert strict.verify(request(), AT_MS + 300_000).secret_index == 0
    assert "past" in refused(strict, request(), AT_MS + 301_000)
    assert "future" in refused(strict, request(), AT_MS - 301_000)


def test_a_batch_is_read_in_its_order() -> None:
    events = SOURCE.normalize(request(example("sendgrid", "processed")))

    assert [event.id for event in events] == ["rbtnWrG1DVDGGGFHFyun0A==", "sZROwMGMagFgnOEmSdvhig=="]
    assert [event.type for event in events] == ["processed", "delivered"]
    assert [event.occurred_at_ms for event in events] == [1513299569000, 1513299570000]
    assert (events[1].subject or "").startswith("14c5d75ce93.dfd.64b469")
    assert events[0].payload["category"] == ["cat facts"]
    assert SOURCE.normalize(request(b"[]\r\n")) == []


def test_an_item_without_an_id_has_one_by_its_content() -> None:
    events = SOURCE.normalize(request(b'[{"event": "a"}, {"event": "a", "x": 1}, {"x": 1, "event": "a"}]'))

    assert events[0].id != events[1].id == events[2].id
    assert events[0].id_is_derived


def test_grouped_otherwise_the_events_are_the_same() -> None:
    one, two = SOURCE.normalize(request(example("sendgrid", "processed")))
    alone = b"[" + example("sendgrid", "processed").strip()[1:-1].split(b"},{")[0] + b"}]"

    assert sole_event(SOURCE, request(alone)) == one != two


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[1]", b"[{}]", b'[{"event": 1.5}]', b'[{"event": "a", "sg_event_id": {}}]']
)
def test_what_cannot_be_read_is_malformed(body: bytes) -> None:
    malformed(SOURCE, request(body))


@pytest.mark.parametrize("secret", ["abc", PUBLIC[:-8], "-----BEGIN PUBLIC KEY-----\nx"])
def test_what_is_no_public_key_is_refused(secret: str) -> None:
    with pytest.raises(ConfigError):
        SendGrid(secrets=secret)


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\\n", "\\r\\n"])
def test_a_pem_is_taken_as_files_and_variables_hold_it(line_end: str) -> None:
    pem = OWN.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    signed = SendGrid(
        secrets=OWN_PUBLIC,
        private_keys=OWN.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
    ).signed_request(BODY, NOW_MS)

    for secrets in (pem.replace("\n", line_end), [OWN_PUBLIC, pem.replace("\n", line_end)]):
        assert SendGrid(secrets=secrets).verify(signed, NOW_MS).secret_index == 0
    assert SendGrid(secrets=[PUBLIC, pem]).verify(signed, NOW_MS).secret_index == 1


def test_sign_takes_a_private_key() -> None:
    pem = OWN.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    source = SendGrid(secrets=OWN_PUBLIC, private_keys=[pem])

    assert source.verify(source.signed_request(BODY, NOW_MS), NOW_MS).secret_index == 0
    with pytest.raises(ConfigError, match="private_keys"):
        SOURCE.sign(BODY, NOW_MS)
