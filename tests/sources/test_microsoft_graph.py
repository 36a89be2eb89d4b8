"""Graph's handshake, shared secret and batches."""

from __future__ import annotations

import json
from typing import Any

import pytest

from onceward.core.errors import BodyMalformed, ConfigError, SignatureInvalid
from onceward.core.messages import HttpRequest
from onceward.sources.microsoft_graph import MicrosoftGraph

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
