"""FusionAuth's token, made here with PyJWT as FusionAuth's page describes it."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from onceward.core.errors import BodyMalformed, ConfigError, SignatureInvalid
from onceward.core.messages import HttpRequest
from onceward.sources import create
from onceward.sources.fusionauth import FusionAuth
from tests.sources.rsa_keys import KEY as RSA

SECRET = "B5gGJ2TOGoTT9AWQQBvpX5Ft9vOFdX8hpiOlLjqg8iM="
NOW_MS = 1_760_000_000_000
EVENT = {
    "event": {
        "createInstant": 1_759_999_999_123,
        "id": "2b9c7a6e-9b1a-4f0c-8a5a-2a4f3d1f8f10",
        "type": "user.create.complete",
        "user": {"id": "00000000-0000-0001-0000-000000000000"},
    }
}
BODY = json.dumps(EVENT).encode()
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()


def pem(key: Any) -> str:
    text: bytes = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return text.decode()


def claims(body: bytes = BODY, **more: Any) -> dict[str, Any]:
    return {"request_body_sha256": base64.b64encode(hashlib.sha256(body).digest()).decode()} | more


def signed(
    key: Any = SECRET, algorithm: str = "HS256", said: dict[str, Any] | None = None, **header: Any
) -> HttpRequest:
    token = jwt.encode(claims() if said is None else said, key, algorithm=algorithm, headers=header)
    return HttpRequest.of(BODY, {"X-FusionAuth-Signature-JWT": token})


def check_of(candidate: HttpRequest, source: FusionAuth | None = None, now_ms: int = NOW_MS) -> str:
    with pytest.raises(SignatureInvalid) as refusal:
        (source or FusionAuth(secrets=SECRET)).verify(candidate, now_ms)
    return refusal.value.check


@pytest.mark.parametrize("said", [claims(), claims(iat=1_760_000_000, exp=1_760_000_060)])
def test_a_token_over_the_bodys_hash_verifies(said: dict[str, Any]) -> None:
    source = FusionAuth(secrets=["another-secret-of-some-length-here!!", SECRET])

    assert source.verify(signed(said=said), NOW_MS).secret_index == 1
    assert not source.is_blocking


@pytest.mark.parametrize(("key", "algorithm"), [(RSA, "RS256"), (RSA, "RS512"), (EC, "ES256"), (ED, "EdDSA")])
def test_a_public_key_verifies_the_algorithms_of_its_kind(key: Any, algorithm: str) -> None:
    source = FusionAuth(secrets=[pem(RSA), pem(EC), pem(ED)])

    assert source.verify(signed(key, algorithm), NOW_MS).secret_index == [RSA, EC, ED].index(key)


def forged(header: dict[str, Any], key: bytes) -> HttpRequest:
    import hmac

    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in (header, claims())]
    signature = hmac.new(key, b".".join(parts), hashlib.sha256).digest() if key else b""
    token = b".".join([*parts, base64.urlsafe_b64encode(signature).rstrip(b"=")])
    return HttpRequest.of(BODY, {"X-FusionAuth-Signature-JWT": token.decode()})


def test_a_public_key_is_never_an_hmac_secret_and_none_is_no_algorithm() -> None:
    source = FusionAuth(secrets=pem(RSA))

    check_of(forged({"alg": "HS256"}, pem(RSA).encode()), source)
    check_of(forged({"alg": "none"}, b""), source)
    check_of(forged({"alg": "none"}, b""))
    check_of(forged({"alg": None}, SECRET.encode()))
    assert FusionAuth(secrets=SECRET).verify(forged({"alg": "HS256"}, SECRET.encode()), NOW_MS)


@pytest.mark.parametrize(
    "said",
    [
        {},
        claims(b"other"),
        claims() | {"request_body_sha256": None},
        claims() | {"request_body_sha256": "é"},
        claims() | {"request_body_sha256": hashlib.sha256(BODY).hexdigest()},
    ],
)
def test_a_token_about_another_body_is_refused(said: dict[str, Any]) -> None:
    check_of(signed(said=said))


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"exp": 1_760_000_000 - 301}, "expired"),
        ({"iat": 1_760_000_000 + 301}, "valid in"),
        ({"nbf": 1_760_000_000 + 301}, "valid in"),
        ({"exp": True}, "is no time"),
    ],
)
def test_a_token_at_the_wrong_time_is_refused(said: dict[str, Any], words: str) -> None:
    assert words in check_of(signed(said=claims(**said)))


@pytest.mark.parametrize(
    "token",
    ["", "x", "a.b.c", "..", "é.é.é", "e30.e30.", "bnVsbA.e30.e30", "eyJhbGciOnt9fQ.e30.e30", "x" * 20_000,
     base64.urlsafe_b64encode(b"[" * 9000).decode() + ".e30.e30"],
)  # fmt: skip
def test_what_is_no_token_is_refused(token: str) -> None:
    check_of(HttpRequest.of(BODY, {"X-FusionAuth-Signature-JWT": token}))


# --- published keys -------------------------------------------------------------------------------


def entry(key: Any, key_id: str | None) -> dict[str, Any]:
    algorithm = jwt.get_algorithm_by_name({RSA: "RS256", EC: "ES256", ED: "EdDSA"}[key])
    made: dict[str, Any] = json.loads(algorithm.to_jwk(key.public_key()))
    return made | ({} if key_id is None else {"kid": key_id})


def key_set(*entries: object) -> bytes:
    return json.dumps({"keys": entries}).encode()


URL = "https://auth.example.com/.well-known/jwks.json"


def test_published_keys_are_fetched_and_fetched_again_for_a_new_one_but_not_by_strangers() -> None:
    published = [key_set(entry(EC, "old"))]
    asked: list[str] = []

    def fetch(url: str) -> bytes:
        asked.append(url)
        return published[0]

    source = create("fusionauth", jwks_url=URL, fetch=fetch)
    assert source.is_blocking
    source.verify(signed(EC, "ES256", kid="old"), NOW_MS)
    source.verify(signed(EC, "ES256", kid="old"), NOW_MS + 1_000)
    assert asked == [URL]

    published[0] = key_set(entry(EC, "old"), entry(RSA, "new"))
    for second in range(2, 50):
        with pytest.raises(SignatureInvalid):
            source.verify(signed(RSA, "RS256", kid="new"), NOW_MS + second * 1_000)
    assert asked == [URL]

    source.verify(signed(RSA, "RS256", kid="new"), NOW_MS + 60_000)
    for number in range(50):
        with pytest.raises(SignatureInvalid):
            source.verify(signed(RSA, "RS256", kid=f"unknown-{number}"), NOW_MS + 61_000)
    assert asked == [URL, URL]


def test_of_a_fixed_set_the_named_key_counts_or_each_when_none_is_named() -> None:
    source = FusionAuth(jwks=key_set({"kty": "new"}, 7, entry(RSA, "r"), entry(ED, None)).decode())

    assert not source.is_blocking
    for good in (signed(RSA, "RS256", kid="r"), signed(RSA, "RS256"), signed(ED, "EdDSA", kid="x")):
        assert source.verify(good, NOW_MS).secret_index is None
    check_of(signed(EC, "ES256"), source)
    check_of(signed(RSA, "RS256", kid="s"), source)


@pytest.mark.parametrize(
    "answer", [b"", b"[]", b"{}", b'{"keys":7}', b'{"keys":[{}]}', b"\xff", b"[" * 100_000]
)
def test_an_answer_without_keys_refuses(answer: bytes) -> None:
    check_of(signed(RSA, "RS256"), FusionAuth(jwks_url=URL, fetch=lambda _: answer))


# --- reading, signing, configuration --------------------------------------------------------------


def test_the_event_is_read() -> None:
    [incoming] = FusionAuth(secrets=SECRET).normalize(signed())

    assert incoming.id == "2b9c7a6e-9b1a-4f0c-8a5a-2a4f3d1f8f10"
    assert (incoming.type, incoming.subject) == (
        "user.create.complete",
        "00000000-0000-0001-0000-000000000000",
    )
    assert incoming.occurred_at_ms == 1_759_999_999_123


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"event":7}', b'{"event":{"id":"a"}}'])
def test_what_cannot_be_read_is_malformed(body: bytes) -> None:
    with pytest.raises(BodyMalformed):
        FusionAuth(secrets=SECRET).normalize(HttpRequest.of(body))


def test_a_token_made_here_is_what_pyjwt_reads() -> None:
    token = FusionAuth(secrets=SECRET).sign(BODY, NOW_MS)["X-FusionAuth-Signature-JWT"]

    read = jwt.decode(token, SECRET, algorithms=["HS256"], options={"verify_iat": False})
    assert read == claims(iat=1_760_000_000)
    with pytest.raises(ConfigError):
        FusionAuth(secrets=pem(RSA)).sign(BODY, NOW_MS)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"secrets": "-----BEGIN PUBLIC KEY-----\nx\n-----END PUBLIC KEY-----"},
        {"jwks_url": "http://auth.example.com/jwks.json"},
        {"jwks": "{}"},
        {"secrets": SECRET, "jwks_url": URL},
    ],
)
def test_a_configuration_that_can_verify_nothing_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        create("fusionauth", **options)
