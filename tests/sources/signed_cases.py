"""Cases of the kinds whose deliveries have example bodies, signed with the source's own ``signed_request``.

That proves nothing of the signature, which a test of its own shows for each kind by vectors from
elsewhere; it serves to try everything else that the conformance suite asks of a source.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import onceward.sources
from onceward.core.messages import HttpRequest
from onceward.sources import Source, create
from onceward.testing.source_suite import Example, SourceCase
from tests.sources.rsa_keys import KEY

FIXTURES = Path(onceward.sources.__file__).parent / "fixtures"
NOW_MS = 1_780_000_000_000
URL = "https://shop.example.com/hooks/source"
# Kinds that send a token, or sign a part of the body only; Twilio signs names and values without a
# mark between them, so that "a=b" may become "ab=".
COVERING_LESS = frozenset(
    {"adyen", "aws_sns", "gitlab", "google_pubsub", "mailgun", "microsoft_graph", "telegram", "twilio"}
)
# Kinds whose sender signs a token that is good until some time.
EXPIRING = frozenset({"fusionauth", "google_pubsub"})


def has_examples(kind: str) -> bool:
    return (FIXTURES / f"{kind}.json").exists()


def signed_case(kind: str) -> SourceCase:
    """Give the case of a kind; every example body of it is a delivery."""
    secret, other = secrets_of(kind)
    examples = []
    for number, (event_type, one) in enumerate(json.loads((FIXTURES / f"{kind}.json").read_bytes()).items()):
        body = one["body"].encode() if isinstance(one["body"], str) else json.dumps(one["body"]).encode()
        first, again = (
            signed(make(kind, [secret]), body, f"id-{number}", event_type, one.get("headers", {}), at_ms)
            for at_ms in (NOW_MS, NOW_MS + 30_000)
        )
        examples.append(Example(first, NOW_MS, again))
    return SourceCase(
        lambda secrets: make(kind, secrets),
        secret,
        other,
        tuple(examples),
        covers_body=kind not in COVERING_LESS,
        has_expiry=kind in EXPIRING,
    )


def signed(
    source: Source, body: bytes, event_id: str, event_type: str, headers: dict[str, str], at_ms: int
) -> HttpRequest:
    request = source.signed_request(body, at_ms, event_id=event_id, event_type=event_type, url=URL)
    added = tuple((name.lower().encode(), value.encode()) for name, value in headers.items())
    return HttpRequest(
        request.method,
        request.path,
        request.query,
        request.headers + added,
        request.body,
        at_ms,
        request.url,
    )


def make(kind: str, secrets: Sequence[str]) -> Source:
    private = [PRIVATE[secret] for secret in secrets if secret in PRIVATE]
    options = rsa_options(kind) or ({"private_keys": private} if private else {})
    return create(kind, secrets=list(secrets), **options)


PRIVATE: dict[str, str] = {}
"""The private key of each public one that a case has for its secret."""


@cache
def secrets_of(kind: str) -> tuple[str, str]:
    """Give two secrets of the form that a kind has."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519

    keys: Any
    if kind == "aws_sns":
        topic = "arn:aws:sns:eu-west-1:123456789012"
        return f"{topic}:orders", f"{topic}:returns"
    if kind == "adyen":
        return "44" * 32, "45" * 32
    if kind in ("standard_webhooks", "svix", "clerk", "resend", "openai"):
        return "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
    if kind == "discord":
        keys = [ed25519.Ed25519PrivateKey.from_private_bytes(bytes([n] * 32)) for n in (1, 2)]
        for key in keys:
            PRIVATE[key.public_key().public_bytes_raw().hex()] = key.private_bytes_raw().hex()
        return tuple(key.public_key().public_bytes_raw().hex() for key in keys)
    if kind == "sendgrid":
        return _pem_pair([ec.derive_private_key(n, ec.SECP256R1()) for n in (0x5EED, 0x5EEE)])
    if kind == "telegram":
        return "a_secret-of-token-letters_1", "a_secret-of-token-letters_2"
    return "a secret of 32 characters and two", "another secret, as long as that is"


def _pem_pair(keys: Any) -> tuple[str, str]:
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    public = []
    for key in keys:
        text = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode().strip()
        PRIVATE[text] = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        public.append(text)
    return public[0], public[1]


@cache
def rsa_options(kind: str) -> dict[str, Any]:
    """Give the options of kinds whose sender has one key for all its users."""
    import jwt

    if kind not in ("aws_sns", "google_pubsub", "paypal"):
        return {}
    public, _ = _pem_pair([KEY, KEY])
    options: dict[str, Any] = {"private_keys": PRIVATE.pop(public)}
    if kind == "google_pubsub":
        jwk = json.loads(jwt.get_algorithm_by_name("RS256").to_jwk(KEY.public_key()))
        return options | {
            "service_account": "push@project.iam.gserviceaccount.com",
            "jwks": json.dumps({"keys": [jwk]}),
        }
    return options | {"certificate" if kind == "aws_sns" else "certificates": public}
