"""Discord: ed25519 by RFC 8032's test key, pings of both addresses, events without ids."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from onceward.core.errors import ConfigError
from onceward.core.messages import HttpRequest
from onceward.sources import Discord
from tests.sources.known import NOW, NOW_MS, example, json_of, malformed, refused, sole_event

# The keys of RFC 8032, section 7.1, tests 1 and 2.
PRIVATE = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"
PUBLIC = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
OTHER_PRIVATE = "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb"
OTHER_PUBLIC = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"
SOURCE = Discord(secrets=[OTHER_PUBLIC, PUBLIC])
BODY = example("discord", "APPLICATION_AUTHORIZED")


def request(
    body: bytes = BODY, seconds: str = NOW, private: str = PRIVATE, **changed: str | None
) -> HttpRequest:
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(private))
    headers = {
        "X-Signature-Ed25519": key.sign(seconds.encode() + body).hex(),
        "X-Signature-Timestamp": seconds,
    } | {f"X-Signature-{name}": value for name, value in changed.items()}
    return HttpRequest.of(body, {name: value for name, value in headers.items() if value is not None})


def test_the_keys_of_the_rfc_verify_with_their_position() -> None:
    verified = SOURCE.verify(request(), NOW_MS)

    assert (verified.secret_index, verified.sent_at_ms) == (1, NOW_MS)
    assert SOURCE.verify(request(private=OTHER_PRIVATE), NOW_MS).secret_index == 0


RIGHT = request().header("x-signature-ed25519") or ""


@pytest.mark.parametrize(
    "changed",
    [
        {"Ed25519": None},
        {"Ed25519": ""},
        {"Ed25519": "zz"},
        {"Ed25519": RIGHT[:-2]},
        {"Ed25519": RIGHT[:-1]},
        {"Ed25519": RIGHT + "00"},
        {"Ed25519": "0" * 128},
        {"Ed25519": "é\xff" * 64},
        {"Timestamp": None},
        {"Timestamp": "1760000001"},
        {"Timestamp": "soon"},
    ],
)
def test_a_changed_header_is_refused(changed: dict[str, Any]) -> None:
    refused(SOURCE, request(**changed))


def test_hexadecimal_is_taken_in_either_case_as_by_the_libraries_of_discord() -> None:
    # discord-interactions decodes it: bytes.fromhex in Python, parseInt in JavaScript.
    assert SOURCE.verify(request(Ed25519=RIGHT.upper()), NOW_MS).secret_index == 1


def test_the_probes_with_another_key_or_body_are_refused() -> None:
    refused(SOURCE, request(private="00" * 32))
    headers = request(b'{"type":1}').headers
    refused(SOURCE, HttpRequest("POST", "/", "", headers, b'{"type":2}', 0))
    pairs = [(n.decode(), v.decode()) for n, v in request().headers]
    refused(SOURCE, HttpRequest.of(BODY, [*pairs, pairs[0]]))


def test_the_time_is_checked_on_both_sides() -> None:
    assert "301 s in the past" in refused(SOURCE, request(), NOW_MS + 301_000)
    assert "301 s in the future" in refused(SOURCE, request(), NOW_MS - 301_000)
    assert Discord(secrets=PUBLIC, tolerance="1h").verify(request(), NOW_MS + 301_000).secret_index == 0


@pytest.mark.parametrize(
    ("body", "status", "reply"),
    [
        ({"version": 1, "application_id": "1", "type": 0}, 204, b""),
        ({"id": "1", "application_id": "1", "type": 1, "token": "t", "version": 1}, 200, b'{"type":1}'),
    ],
)
def test_a_ping_is_answered(body: object, status: int, reply: bytes) -> None:
    answer = SOURCE.handshake(request(json_of(body)), NOW_MS)

    assert answer is not None
    assert (answer.status, answer.body) == (status, reply)


@pytest.mark.parametrize(
    "body", [BODY, example("discord", "interaction.application_command"), b"[]", b"{", b'{"type": true}']
)
def test_a_delivery_is_no_ping(body: bytes) -> None:
    assert SOURCE.handshake(request(body), NOW_MS) is None


def test_an_attempt_signed_anew_is_the_same_event() -> None:
    later = NOW_MS + 600_000
    again = request(seconds=str(later // 1000))

    SOURCE.verify(again, later)
    first = sole_event(SOURCE, request())

    assert sole_event(SOURCE, again) == first
    assert first.id_is_derived
    assert (first.type, first.subject) == ("APPLICATION_AUTHORIZED", "1028384837374747373")
    assert first.occurred_at_ms == 1729262573064


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"APPLICATION_AUTHORIZED", b"APPLICATION_DEAUTHORIZED"),
        (b"14:42:53.064834", b"14:42:53.064835"),
        (b"1028384837374747373", b"1028384837374747374"),
        (b"1234560123453231555", b"1234560123453231556"),
    ],
)
def test_another_event_has_another_id(old: bytes, new: bytes) -> None:
    assert sole_event(SOURCE, request(BODY.replace(old, new))).id != sole_event(SOURCE, request()).id


def test_an_interaction_has_its_own_id() -> None:
    incoming = sole_event(SOURCE, request(example("discord", "interaction.application_command")))

    assert (incoming.id, incoming.type) == ("786008729715212338", "interaction.application_command")
    assert incoming.subject == "290926798626357999"
    assert not incoming.id_is_derived
    assert sole_event(SOURCE, request(b'{"id": "x", "type": 99}')).type == "interaction.99"
    # The example of "Snowflakes" in Discord's reference: 2016-04-30 11:18:25.796 UTC.
    dated = sole_event(SOURCE, request(b'{"id": "175928847299117063", "type": 3}'))
    assert dated.occurred_at_ms == 1462015105796


def test_each_address_has_its_reply() -> None:
    events, interactions = (Discord(secrets=PUBLIC, interactions=given) for given in (False, True))

    assert [getattr(source.respond("accepted"), "status", None) for source in (events, interactions)] == [
        204,
        202,
    ]
    assert events.respond("refused") is None


@pytest.mark.parametrize(
    "body",
    [b"[]", b"{}", b'{"type": 2}', b'{"id": "1"}', b'{"id": "1", "type": {}}', b'{"event": {"type": 1.5}}'],
)
def test_what_cannot_be_read_is_malformed(body: bytes) -> None:
    malformed(SOURCE, request(body))


@pytest.mark.parametrize("secret", ["abc", "00" * 31, "z" * 64])
def test_what_is_no_public_key_is_refused(secret: str) -> None:
    with pytest.raises(ConfigError):
        Discord(secrets=secret)


def test_sign_takes_a_private_key() -> None:
    source = Discord(secrets=[OTHER_PUBLIC, PUBLIC], private_keys=[OTHER_PRIVATE, PRIVATE])

    for index in (0, 1):
        signed = source.signed_request(BODY, NOW_MS, secret_index=index)
        assert source.verify(signed, NOW_MS).secret_index == index
    assert PRIVATE not in repr(vars(source))
    with pytest.raises(ConfigError, match="private_keys"):
        SOURCE.sign(BODY, NOW_MS)
    with pytest.raises(ConfigError):
        Discord(secrets=PUBLIC, private_keys="not a key").sign(BODY, NOW_MS)
