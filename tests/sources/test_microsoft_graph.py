"""Graph's handshake, shared secret and batches."""

from __future__ import annotations

import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization

from onceward.core.errors import BodyMalformed, ConfigError, SignatureInvalid
from onceward.core.messages import HttpRequest
from onceward.sources import create
from onceward.sources.microsoft_graph import MicrosoftGraph
from tests.sources.rsa_keys import KEY, STRANGER

STATE = "secretClientState"
SOURCE = MicrosoftGraph(secrets=["newState", STATE])
ITEM: dict[str, Any] = {
    "subscriptionId": "76619225-ff6b-4746-96ca-4ef547f4b6b8",
    "subscriptionExpirationDateTime": "2026-03-20T11:00:00.0000000Z",
    "clientState": STATE,
    "changeType": "created",
    "resource": "Users/ddfcd489/Messages/AAMkADEy",
    "resourceData": {
        "@odata.type": "#Microsoft.Graph.Message",
        "@odata.etag": 'W/"CQAAABYA"',
        "id": "AAMkADEy",
    },
}
LIFECYCLE = {
    "subscriptionId": "76619225-ff6b-4746-96ca-4ef547f4b6b8",
    "subscriptionExpirationDateTime": "2026-03-20T11:00:00.0000000Z",
    "clientState": STATE,
    "lifecycleEvent": "reauthorizationRequired",
}


def request(*items: object, at_ms: int = 0) -> HttpRequest:
    return HttpRequest.of(json.dumps({"value": items}).encode(), received_at_ms=at_ms)


def asked(query: str) -> HttpRequest:
    return HttpRequest.of(b"", {"Content-Type": "text/plain"}, path="/hooks/graph", query=query)


# --- the question at the beginning ----------------------------------------------------------------


def test_a_validation_token_is_echoed_decoded_as_plain_text() -> None:
    answer = SOURCE.handshake(asked("validationToken=Validation%3A+Testing%20%3Cb%3E%26%C3%A9"), 0)

    assert answer is not None
    assert (answer.status, answer.body) == (200, "Validation: Testing <b>&é".encode())
    assert dict(answer.headers) == {
        b"content-type": b"text/plain; charset=utf-8",
        b"x-content-type-options": b"nosniff",
    }
    assert SOURCE.handshake_phase == "unverified"


@pytest.mark.parametrize(
    "query",
    ["", "validationToken=", "validationtoken=x", "validationToken=a&validationToken=b", "validationToken=%ff",
     "validationToken=" + "x" * 4097, "a=1&" * 40 + "validationToken=x"],
)  # fmt: skip
def test_anything_else_is_no_question(query: str) -> None:
    assert SOURCE.handshake(asked(query), 0) is None


# --- the secret -----------------------------------------------------------------------------------


def test_every_item_must_carry_a_secret_of_ours() -> None:
    assert SOURCE.verify(request(ITEM), 0).secret_index == 1
    assert SOURCE.verify(request(ITEM | {"clientState": "newState"}, ITEM), 0).secret_index == 0


@pytest.mark.parametrize("state", ["", "SecretClientState", "secretClientState ", "é", None, 7, [STATE]])
def test_an_item_without_it_is_refused_wherever_it_stands(state: object) -> None:
    wrong = ITEM | {"clientState": state}

    for items in ([wrong], [ITEM, wrong], [wrong, ITEM], [ITEM, 7]):
        with pytest.raises(SignatureInvalid):
            SOURCE.verify(request(*items), 0)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"value":[]}', b'{"value":{}}', b"\xff"])
def test_a_body_without_items_is_refused(body: bytes) -> None:
    with pytest.raises(SignatureInvalid):
        SOURCE.verify(HttpRequest.of(body), 0)


# --- the tokens of resource data ------------------------------------------------------------------

APP, TENANT = "8e460676-ae3f-4b1e-8790-ee0fb5d6148f", "84bd8158-6d4d-4958-8b9f-9d6445542f95"
NOW = 1_565_046_900
JWKS = json.dumps(
    {"keys": [json.loads(jwt.get_algorithm_by_name("RS256").to_jwk(KEY.public_key())) | {"kid": "k1"}]}
)
# As the page about notifications with resource data shows them, of version 1 and of version 2.
CLAIMS = {
    "aud": APP,
    "iss": f"https://sts.windows.net/{TENANT}/",
    "iat": 1565046813,
    "nbf": 1565046813,
    "exp": 1565075913,
    "appid": "0bf30f3b-4a52-48df-9a82-234910c4a086",
    "tid": TENANT,
    "ver": "1.0",
}
CLAIMS_2 = {name: CLAIMS[name] for name in CLAIMS if name not in ("appid", "iss", "ver")} | {
    "azp": CLAIMS["appid"],
    "iss": f"https://login.microsoftonline.com/{TENANT}/v2.0",
    "ver": "2.0",
}
RICH = ITEM | {"tenantId": TENANT, "encryptedContent": {"data": "…"}}
WITH_TOKENS = MicrosoftGraph(secrets=STATE, app_id=[APP.upper(), "another"], tenant_id=TENANT, jwks=JWKS)


def token(key: Any = KEY, algorithm: str = "RS256", base: dict[str, Any] = CLAIMS, **claims: Any) -> str:
    said = {name: value for name, value in (base | claims).items() if value is not None}
    return jwt.encode(said, key, algorithm=algorithm, headers={"kid": "k1"})


def rich(*tokens: Any, items: Any = (RICH,)) -> HttpRequest:
    return HttpRequest.of(json.dumps({"validationTokens": tokens, "value": items}).encode())


@pytest.mark.parametrize("base", [CLAIMS, CLAIMS_2])
def test_resource_data_is_taken_with_microsofts_token_for_its_tenant(base: dict[str, Any]) -> None:
    assert WITH_TOKENS.verify(rich(token(base=base)), NOW * 1000).secret_index == 0
    assert WITH_TOKENS.verify(rich(token(base=base), items=[RICH, ITEM, LIFECYCLE]), NOW * 1000)
    assert not WITH_TOKENS.is_blocking


def test_without_resource_data_no_token_is_needed() -> None:
    assert WITH_TOKENS.verify(request(ITEM, LIFECYCLE), NOW * 1000).secret_index == 0


@pytest.mark.parametrize(
    ("candidate", "words"),
    [
        (rich(), "no token for its tenant"),
        (request(RICH), "no token for its tenant"),
        (rich(token(), items=[RICH, RICH | {"tenantId": "other"}]), "no token for its tenant"),
        (rich(token(), items=[RICH | {"tenantId": None}]), "no token for its tenant"),
        (rich(token(), token(STRANGER)), "no key verifies"),
        (rich(token(STRANGER), items=[ITEM]), "no key verifies"),
        (rich(token("a secret of more than thirty-two bytes", "HS256")), "not RS256"),
        (rich(token(aud="other")), "another application"),
        (rich(token(aud=[APP])), "another application"),
        (rich(token(aud=None)), "another application"),
        (rich(token(appid="00000003-0000-0000-c000-000000000000")), "sender of change notifications"),
        (rich(token(azp="other")), "sender of change notifications"),
        (rich(token(appid=None)), "sender of change notifications"),
        (rich(token(iss="https://sts.windows.net/other/")), "issuer"),
        (rich(token(iss="https://evil.example/")), "issuer"),
        (rich(token(tid=None)), "issuer"),
        (rich(token(tid="other", iss="https://sts.windows.net/other/")), "another tenant"),
        (rich(token(exp=NOW - 301)), "expired"),
        (rich(token(exp=None)), "no exp"),
        (rich(token(nbf=NOW + 301)), "valid in"),
        (rich("x"), "cannot be read"),
        (rich(7), "no token"),
        (rich(None), "no token"),
        (rich(*["x"] * 33), "no list"),
    ],
)
def test_resource_data_without_a_right_token_is_refused(candidate: HttpRequest, words: str) -> None:
    with pytest.raises(SignatureInvalid) as refusal:
        WITH_TOKENS.verify(candidate, NOW * 1000)

    assert words in refusal.value.check


def test_tokens_do_not_stand_in_for_the_secret() -> None:
    with pytest.raises(SignatureInvalid):
        WITH_TOKENS.verify(rich(token(), items=[RICH | {"clientState": "x"}]), NOW * 1000)


def test_microsofts_keys_are_fetched_once_and_kept() -> None:
    asked_for: list[str] = []

    def fetch(url: str) -> bytes:
        asked_for.append(url)
        return JWKS.encode()

    source = MicrosoftGraph(secrets=STATE, app_id=APP, fetch=fetch)
    for minutes in range(5):
        source.verify(rich(token()), NOW * 1000 + minutes * 60_000)

    assert source.is_blocking
    assert asked_for == ["https://login.microsoftonline.com/common/discovery/v2.0/keys"]


@pytest.mark.parametrize("options", [{"tenant_id": TENANT}, {"jwks": JWKS}, {"app_id": APP, "jwks": "{}"}])
def test_a_configuration_that_checks_no_token_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        create("microsoft_graph", secrets=STATE, **options)


def test_a_request_made_here_carries_tokens_for_its_tenants() -> None:
    pem = KEY.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    source = MicrosoftGraph(secrets=STATE, app_id=APP, jwks=JWKS, private_keys=pem.decode())

    made = source.signed_request(request(RICH, ITEM).body, NOW * 1000)

    assert source.verify(made, NOW * 1000)
    assert len(json.loads(made.body)["validationTokens"]) == 1


# --- reading --------------------------------------------------------------------------------------


def test_every_item_is_an_event_and_the_secret_is_not_kept() -> None:
    change, lifecycle = SOURCE.normalize(request(ITEM, LIFECYCLE))

    assert (change.type, change.subject) == ("created", "Users/ddfcd489/Messages/AAMkADEy")
    assert lifecycle.type == "reauthorizationRequired"
    assert STATE not in str([change.payload, lifecycle.payload])
    assert not change.id_is_signed


def ids(item: dict[str, Any], at_ms: int = 0) -> str:
    return SOURCE.normalize(request(item, at_ms=at_ms))[0].id


def test_what_is_sent_again_is_the_same_event() -> None:
    renewed = ITEM | {"subscriptionExpirationDateTime": "2026-04-20T11:00:00Z", "clientState": "newState"}
    assert ids(ITEM) == ids(renewed, at_ms=60_000)
    assert ids(LIFECYCLE) == ids(LIFECYCLE | {"clientState": "newState"}, at_ms=60_000)
    assert ids(ITEM | {"id": "n-1"}) == ids(ITEM | {"id": "n-1", "resource": "x"}, at_ms=1) == "n-1"


@pytest.mark.parametrize(
    "changed",
    [
        {"changeType": "updated"},
        {"resource": "Users/1/Messages/2"},
        {"resourceData": {"@odata.etag": 'W/"CQAAABYB"'}},
        {"subscriptionId": "another"},
    ],
)
def test_another_change_is_another_event(changed: dict[str, Any]) -> None:
    assert ids(ITEM) != ids(ITEM | changed)


def test_something_changed_is_never_taken_for_the_last_change() -> None:
    something = {name: ITEM[name] for name in ITEM if name != "resourceData"}
    missed = LIFECYCLE | {"lifecycleEvent": "missed"}

    for item in (something, missed):
        assert ids(item, at_ms=1_000) != ids(item, at_ms=2_000)
        assert ids(item, at_ms=1_000) == ids(item, at_ms=1_000)
    first, second = SOURCE.normalize(request(something, something))
    assert first.id != second.id


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"value":7}', b'{"value":[7]}', b'{"value":[{}]}'])
def test_what_cannot_be_read_is_malformed(body: bytes) -> None:
    with pytest.raises(BodyMalformed):
        SOURCE.normalize(HttpRequest.of(body))


def test_a_request_made_here_carries_the_secret_in_every_item() -> None:
    made = SOURCE.signed_request(request(LIFECYCLE, ITEM | {"clientState": "x"}).body, 5, secret_index=1)

    assert [item["clientState"] for item in json.loads(made.body)["value"]] == [STATE, STATE]
    with pytest.raises(ConfigError):
        SOURCE.sign(b"{}", 0)
