"""Pub/Sub's tokens, made here with PyJWT as Google's page describes them."""

from __future__ import annotations

import json
from typing import Any

import jwt
import pytest

from onceward.core.errors import BodyMalformed, ConfigError, KeyUnavailable, SignatureInvalid
from onceward.core.messages import HttpRequest
from onceward.sources import create
from onceward.sources.google_pubsub import JWKS_URL, GooglePubSub
from tests.sources.rsa_keys import KEY, STRANGER

AUDIENCE = "https://example.com/hooks/pubsub"
ACCOUNT = "push@project.iam.gserviceaccount.com"
NOW = 1_760_000_000
NOW_MS = NOW * 1000
JWKS = json.dumps(
    {"keys": [json.loads(jwt.get_algorithm_by_name("RS256").to_jwk(KEY.public_key())) | {"kid": "k1"}]}
)
CLAIMS = {
    "aud": AUDIENCE,
    "azp": "113774264463038321964",
    "email": ACCOUNT,
    "email_verified": True,
    "exp": NOW + 3600,
    "iat": NOW,
    "iss": "https://accounts.google.com",
    "sub": "113774264463038321964",
}
MESSAGE: dict[str, Any] = {
    "message": {
        "attributes": {"eventType": "OBJECT_FINALIZE", "objectId": "a/b.txt"},
        "data": "SGVsbG8gQ2xvdWQgUHViL1N1YiE=",
        "messageId": "2070443601311540",
        "message_id": "2070443601311540",
        "publishTime": "2026-02-26T19:13:55.749Z",
    },
    "subscription": "projects/myproject/subscriptions/mysubscription",
    "deliveryAttempt": 1,
}
SOURCE = GooglePubSub(audience=["https://old", AUDIENCE], service_account=ACCOUNT, jwks=JWKS)


def request(token: str | None, body: object = MESSAGE, scheme: str = "Bearer") -> HttpRequest:
    headers = {} if token is None else {"Authorization": f"{scheme} {token}"}
    return HttpRequest.of(json.dumps(body).encode(), headers)


def token(key: Any = KEY, algorithm: str = "RS256", kid: str = "k1", **claims: Any) -> str:
    said = {name: value for name, value in (CLAIMS | claims).items() if value is not None}
    return jwt.encode(said, key, algorithm=algorithm, headers={"kid": kid})


def check_of(candidate: HttpRequest, now_ms: int = NOW_MS, source: GooglePubSub = SOURCE) -> str:
    with pytest.raises(SignatureInvalid) as refusal:
        source.verify(candidate, now_ms)
    return refusal.value.check


def test_googles_token_for_us_verifies() -> None:
    for good in (token(), token(iss="accounts.google.com")):
        verified = SOURCE.verify(request(good), NOW_MS)
        assert (verified.secret_index, verified.sent_at_ms) == (1, NOW_MS)
    assert SOURCE.verify(request(token(), scheme="bearer"), NOW_MS + 3_600_000)


@pytest.mark.parametrize(
    ("candidate", "words"),
    [
        (token(aud="https://other.example"), "another audience"),
        (token(aud=[AUDIENCE]), "no audience"),
        (token(aud=None), "no audience"),
        (token(email="push@stranger.iam.gserviceaccount.com"), "another service account"),
        (token(email=None), "another service account"),
        (token(email=[ACCOUNT]), "another service account"),
        (token(email_verified=False), "not verified"),
        (token(email_verified="true"), "not verified"),
        (token(email_verified=None), "not verified"),
        (token(iss="https://evil.example"), "issuer"),
        (token(iss=None), "issuer"),
        (token(exp=NOW - 61), "expired"),
        (token(exp=None), "no exp"),
        (token(iat=None), "no iat"),
        (token(iat=NOW + 61), "valid in"),
        (token(STRANGER), "no key verifies"),
        (token(kid="k2"), "does not publish"),
        (token("secret-of-thirty-two-bytes-length", "HS256"), "not RS256"),
        (token(KEY, "RS512"), "not RS256"),
        (token()[:-2], "no key verifies"),
        ("x", "cannot be read"),
        ("", "cannot be read"),
    ],
)
def test_another_token_is_refused(candidate: str, words: str) -> None:
    assert words in check_of(request(candidate))


def test_no_token_or_two_are_refused() -> None:
    check_of(request(None))
    check_of(request(token(), scheme="Basic"))
    check_of(HttpRequest.of(b"{}", [("Authorization", f"Bearer {token()}")] * 2))


@pytest.mark.parametrize(("at_ms", "words"), [(NOW_MS + 3_660_001, "expired"), (NOW_MS - 60_001, "valid in")])
def test_a_token_holds_for_its_hour(at_ms: int, words: str) -> None:
    assert words in check_of(request(token()), at_ms)


def test_googles_keys_are_fetched_and_kept() -> None:
    asked: list[str] = []

    def fetch(url: str) -> bytes:
        asked.append(url)
        if len(asked) == 1:
            raise TimeoutError
        return JWKS.encode()

    source = create("google_pubsub", secrets=AUDIENCE, service_account=ACCOUNT, fetch=fetch)
    with pytest.raises(KeyUnavailable):
        source.verify(request(token()), NOW_MS)
    for minutes in range(1, 30):
        assert source.verify(request(token()), NOW_MS + minutes * 60_000)

    assert source.is_blocking
    assert asked == [JWKS_URL, JWKS_URL]


# --- reading --------------------------------------------------------------------------------------


def test_a_message_is_read_and_a_later_attempt_is_the_same() -> None:
    [first] = SOURCE.normalize(request(None))

    assert first.id == "2070443601311540"
    assert (first.type, first.subject) == ("OBJECT_FINALIZE", "a/b.txt")
    assert first.occurred_at_ms == 1_772_133_235_749
    assert not first.id_is_signed
    assert [first] == SOURCE.normalize(request(None, MESSAGE | {"deliveryAttempt": 2}))


def test_a_message_without_attributes_is_one_all_the_same() -> None:
    [incoming] = SOURCE.normalize(request(None, {"message": {"message_id": 7}, "subscription": "s"}))

    assert (incoming.id, incoming.type, incoming.subject) == ("7", "message", "s")


def test_a_message_without_its_wrapper_is_read_from_body_and_headers() -> None:
    headers = {
        "Content-Type": "application/json",
        "X-Goog-Pubsub-Subscription-Name": MESSAGE["subscription"],
        "X-Goog-Pubsub-Message-Id": "2070443601311540",
        "X-Goog-Pubsub-Publish-Time": "2026-02-26T19:13:55.749Z",
        "eventType": "OBJECT_FINALIZE",
        "objectId": "a/b.txt",
    }
    [incoming] = SOURCE.normalize(HttpRequest.of(b"Hello Cloud Pub/Sub!", headers))

    [wrapped] = SOURCE.normalize(request(None))
    assert (incoming.id, incoming.type, incoming.subject) == (wrapped.id, wrapped.type, wrapped.subject)
    assert incoming.occurred_at_ms == wrapped.occurred_at_ms
    assert incoming.payload["message"]["data"] == MESSAGE["message"]["data"]
    assert incoming.payload["message"]["attributes"] == MESSAGE["message"]["attributes"]
    assert SOURCE.verify(HttpRequest.of(b"\xff", headers | {"Authorization": f"Bearer {token()}"}), NOW_MS)


@pytest.mark.parametrize("body", [[], {}, {"message": 7}, {"message": {}}, {"message": {"messageId": ""}}])
def test_what_cannot_be_read_is_malformed(body: object) -> None:
    with pytest.raises(BodyMalformed):
        SOURCE.normalize(request(None, body))


@pytest.mark.parametrize(
    "options",
    [{}, {"audience": AUDIENCE}, {"service_account": ACCOUNT}, {"audience": AUDIENCE, "service_account": ACCOUNT, "jwks": "[]"}],
)  # fmt: skip
def test_a_configuration_that_trusts_everyone_or_no_one_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        create("google_pubsub", **options)
