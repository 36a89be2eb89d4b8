"""CloudEvents against the examples of their specification: every mode, and the question before."""

from __future__ import annotations

import json
from typing import Any

import pytest

from onceward.core.arrival import Verified
from onceward.core.errors import BodyMalformed, ConfigError, SignatureInvalid
from onceward.core.messages import HttpRequest
from onceward.sources import CloudEvents, create
from tests.sources.cases import SECRET, hex_mac

STRUCTURED = {"Content-Type": "application/cloudevents+json; charset=UTF-8"}
BATCH = {"Content-Type": "application/cloudevents-batch+json"}
# HTTP Protocol Binding 1.0, "Examples", 3.1.4.
BINARY = {
    "ce-specversion": "1.0",
    "ce-type": "com.example.someevent",
    "ce-time": "2018-04-05T03:56:24Z",
    "ce-id": "1234-1234-1234",
    "ce-source": "/mycontext/subcontext",
    "Content-Type": "application/json; charset=utf-8",
}
EVENT = {
    "specversion": "1.0",
    "type": "com.example.someevent",
    "source": "/mycontext",
    "subject": "larger-context",
    "id": "A234-1234-1234",
    "time": "2018-04-05T17:31:00Z",
    "comexampleextension1": "value",
    "comexampleothervalue": 5,
    "datacontenttype": "text/xml",
    "data": '<much wow="xml"/>',
}


def source(**options: Any) -> CloudEvents:
    return CloudEvents(**({"secrets": [SECRET]} | options))


def events(body: Any, headers: dict[str, str]) -> list[Any]:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return source().normalize(HttpRequest.of(raw, headers))


def test_a_structured_event_is_its_own_payload() -> None:
    [one] = events(EVENT, STRUCTURED)

    assert one.id == '["/mycontext","A234-1234-1234"]'
    assert (one.type, one.subject, one.occurred_at_ms) == (
        "com.example.someevent",
        "larger-context",
        1_522_949_460_000,
    )
    assert one.payload == EVENT
    assert one.payload_is_body


def test_a_binary_event_is_read_from_its_headers() -> None:
    [one] = events({"appinfoA": "abc"}, BINARY)

    assert one.payload == {
        "specversion": "1.0",
        "type": "com.example.someevent",
        "time": "2018-04-05T03:56:24Z",
        "id": "1234-1234-1234",
        "source": "/mycontext/subcontext",
        "datacontenttype": "application/json; charset=utf-8",
        "data": {"appinfoA": "abc"},
    }
    assert not one.payload_is_body
    assert not one.id_is_signed


def test_the_same_event_has_the_same_id_in_every_mode() -> None:
    plain = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}
    headers = {f"ce-{name}": value for name, value in plain.items()}

    ids = {one[0].id for one in (events(plain, STRUCTURED), events([plain], BATCH), events(b"", headers))}

    assert ids == {'["/s","1"]'}


def test_source_and_id_together_tell_events_apart() -> None:
    def id_of(source: str, event_id: str) -> str:
        [one] = events({"specversion": "1.0", "type": "t", "source": source, "id": event_id}, STRUCTURED)
        return str(one.id)

    assert len({id_of("a", "b/c"), id_of("a/b", "c"), id_of("b", "a"), id_of('a","', "b")}) == 4
    long = id_of("x" * 200, "y" * 200)
    assert len(long) == 32
    assert long != id_of("x" * 200, "y" * 199 + "z")


def test_a_batch_holds_none_to_many() -> None:
    assert events([], BATCH) == []
    two = events([EVENT, EVENT | {"id": "B"}], BATCH)
    assert [one.id for one in two] == ['["/mycontext","A234-1234-1234"]', '["/mycontext","B"]']
    assert [one.payload_is_body for one in two] == [False, False]


@pytest.mark.parametrize(
    ("content_type", "body", "data"),
    [
        ("application/json", b"[1]", {"data": [1]}),
        ("application/vnd.acme+json", b"9007199254740993", {"data": 9007199254740993}),
        ("text/plain", "ä".encode(), {"data": "ä"}),
        ("text/plain", b"\xff", {"data_base64": "/w=="}),
        ("application/xml", b"<a/>", {"data": "<a/>"}),
        ("application/octet-stream", b"\x00\x01", {"data_base64": "AAE="}),
        ("", b"{}", {"data_base64": "e30="}),
        ("application/json", b"", {}),
    ],
)
def test_data_of_any_kind_is_kept(content_type: str, body: bytes, data: dict[str, Any]) -> None:
    [one] = events(body, BINARY | {"Content-Type": content_type})

    assert {
        name: one.payload[name] for name in one.payload if name.startswith("data") and "type" not in name
    } == data


@pytest.mark.parametrize(
    ("value", "subject"),
    [
        ("Euro%20%E2%82%AC%20%F0%9F%98%80", "Euro € \U0001f600"),
        ('"a b"', "a b"),
        ('"say \\"hi\\""', 'say "hi"'),
        ("100%", "100%"),
        ("a%0Ab", None),  # no clean text, and a subject never costs the event
    ],
)
def test_attributes_in_headers_are_decoded(value: str, subject: str | None) -> None:
    assert events(b"", BINARY | {"ce-subject": value})[0].subject == subject


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (EVENT, {}),
        (EVENT, {"Content-Type": "application/json"}),
        (EVENT, BATCH),
        ([EVENT], STRUCTURED),
        ([1], BATCH),
        (EVENT, {"Content-Type": "application/cloudevents+xml"}),
        (EVENT | {"specversion": "0.3"}, STRUCTURED),
        (EVENT | {"specversion": 1.0}, STRUCTURED),
        (EVENT | {"id": ""}, STRUCTURED),
        (EVENT | {"id": None}, STRUCTURED),
        (EVENT | {"source": ["x"]}, STRUCTURED),
        (EVENT | {"type": "x" * 300}, STRUCTURED),
        (b"", BINARY | {"ce-id": "%ff"}),
        (b"", BINARY | {"ce-id": "a\x00"}),
        (b"{", BINARY),
    ],
)
def test_what_is_no_event_is_malformed(body: Any, headers: dict[str, str]) -> None:
    with pytest.raises(BodyMalformed):
        events(body, headers)


def test_doubled_attributes_and_hundreds_of_them_are_malformed() -> None:
    for extra in ([("ce-id", "2")], [(f"ce-x{number}", "") for number in range(200)]):
        with pytest.raises(BodyMalformed):
            source().normalize(HttpRequest.of(b"", [*BINARY.items(), *extra]))


# --- trust ----------------------------------------------------------------------------------------


def test_a_bearer_token_is_the_default() -> None:
    request = HttpRequest.of(b"{}", {"Authorization": f"Bearer {SECRET}"})

    assert source().verify(request, 0) == Verified(0)
    for headers in ({}, {"Authorization": SECRET}, {"Authorization": "Bearer other"}):
        with pytest.raises(SignatureInvalid):
            source().verify(HttpRequest.of(b"{}", headers), 0)
    with pytest.raises(ConfigError, match="no secret"):
        create("cloudevents")


def test_a_signature_may_cover_the_attributes_too() -> None:
    plain = source(signature={"header": "X-Sign"})
    whole = source(signature={"header": "X-Sign", "template": "{header:ce-source}\n{header:ce-id}\n{body}"})
    signed = BINARY | {"X-Sign": hex_mac(b"/mycontext/subcontext\n1234-1234-1234\n{}")}

    assert whole.verify(HttpRequest.of(b"{}", signed), 0) == Verified(0)
    assert whole.normalize(HttpRequest.of(b"{}", BINARY))[0].id_is_signed
    assert not plain.normalize(HttpRequest.of(b"{}", BINARY))[0].id_is_signed
    assert plain.normalize(HttpRequest.of(json.dumps(EVENT).encode(), STRUCTURED))[0].id_is_signed
    with pytest.raises(SignatureInvalid):
        whole.verify(HttpRequest.of(b"{}", signed | {"ce-id": "other"}), 0)


def test_what_is_set_by_the_specification_is_no_option() -> None:
    with pytest.raises(ConfigError, match="no option 'id'"):
        source(id="/id")


# --- the question before --------------------------------------------------------------------------


def test_an_origin_is_given_consent() -> None:
    asked = {"WebHook-Request-Origin": "eventemitter.example.com", "WebHook-Request-Rate": "120"}

    answer = source().handshake(HttpRequest.of(b"", asked, method="OPTIONS"), 0)

    assert answer is not None
    assert answer.status == 200
    assert dict(answer.headers) == {
        b"allow": b"POST, OPTIONS",
        b"webhook-allowed-origin": b"eventemitter.example.com",
        b"webhook-allowed-rate": b"*",
    }
    assert source().handshake(HttpRequest.of(b"", asked), 0) is None
    assert source().handshake(HttpRequest.of(method="OPTIONS"), 0) is None


@pytest.mark.parametrize("origin", ["other.example", "eventemitter.example.com\r\nX: y", "ä", ""])
def test_another_origin_is_refused(origin: str) -> None:
    picky = source(origins=["eventemitter.example.com"])

    with pytest.raises(SignatureInvalid):
        picky.handshake(HttpRequest.of(b"", {"WebHook-Request-Origin": origin}, method="OPTIONS"), 0)
