"""The packaged deliveries: each is signed, verified and read as the type that it is filed under."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from hypothesis import given
from hypothesis import strategies as st

from onceward.core.errors import BodyMalformed, ConfigError, SignatureInvalid
from onceward.core.messages import HttpRequest
from onceward.sources import Source, create
from onceward.sources.fixture import fixtures_of, renewed, value_at, with_value
from tests.sources.rsa_keys import KEY as PRIVATE

NOW_MS = 1_772_000_000_000
URL = "https://example.com/hooks/it?a=%2F"
PRIVATE_PEM = PRIVATE.private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
).decode()
PUBLIC_PEM = (
    PRIVATE.public_key()
    .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    .decode()
)
JWKS = json.dumps({"keys": [json.loads(jwt.get_algorithm_by_name("RS256").to_jwk(PRIVATE.public_key()))]})
SECRETS = ["first-secret-0123456789", "second-secret-9876543210"]
TOPICS = ["arn:aws:sns:eu-west-1:123456789012:orders", "arn:aws:sns:eu-west-1:123456789012:returns"]
OPTIONS: dict[str, dict[str, Any]] = {
    "adyen": {"secrets": ["00ff", "DFB1EB5485895CFA84146406857104ABB4CBCABDC8AAF103A624C8F6A3EAAB00"]},
    "aws_sns": {"secrets": TOPICS, "certificate": PUBLIC_PEM, "private_keys": PRIVATE_PEM},
    "fusionauth": {},
    "github": {},
    "google_pubsub": {"service_account": "a@b", "jwks": JWKS, "private_keys": PRIVATE_PEM},
    "hubspot": {},
    "mailgun": {},
    "microsoft_graph": {},
    "paddle": {},
    "paypal": {"certificates": PUBLIC_PEM, "private_keys": PRIVATE_PEM},
    "square": {},
    "stripe": {},
    "zendesk": {},
}
TYPES = [(kind, event_type) for kind in OPTIONS for event_type in fixtures_of(kind)]


def source_of(kind: str, **more: Any) -> Source:
    return create(kind, **({"secrets": SECRETS} | OPTIONS[kind] | more))


def body_of(kind: str, event_type: str) -> bytes:
    body = fixtures_of(kind)[event_type].body
    return body.encode() if isinstance(body, str) else json.dumps(body).encode()


def test_every_kind_has_several_and_an_unknown_one_has_none() -> None:
    assert {kind for kind in OPTIONS if len(fixtures_of(kind)) < 3} == set()
    assert fixtures_of("nobody") == {}


@pytest.mark.parametrize(("kind", "event_type"), TYPES)
def test_a_fixture_is_signed_verified_and_read_as_its_type(kind: str, event_type: str) -> None:
    source = source_of(kind)
    body = body_of(kind, event_type)

    for index in (0, 1):
        how = {"event_id": "delivery-1", "event_type": event_type, "secret_index": index, "url": URL}
        request = source.signed_request(body, NOW_MS, **how)  # type: ignore[arg-type]
        verified = source.verify(request, NOW_MS)
        incoming = source.normalize(request)[0]

        assert verified.secret_index == index
        assert incoming.type == event_type
        assert source.normalize(request)[0] == incoming
        with pytest.raises(SignatureInvalid):
            source.verify(HttpRequest.of(request.body, url=URL, path="/x"), NOW_MS) if kind not in (
                "adyen", "aws_sns", "mailgun", "microsoft_graph"
            ) else source.verify(HttpRequest.of(body, url=URL), NOW_MS)  # fmt: skip


@pytest.mark.parametrize("kind", [kind for kind in OPTIONS if kind not in ("github", "hubspot")])
def test_a_fixture_sent_an_hour_later_is_the_same_event(kind: str) -> None:
    source = source_of(kind)
    for event_type in fixtures_of(kind):
        first, later = (
            source.normalize(
                source.signed_request(
                    body_of(kind, event_type), at_ms, url=URL, event_id="i-1", event_type=event_type
                )
            )
            for at_ms in (NOW_MS, NOW_MS + 3_600_000)
        )

        assert [one.id for one in first] == [one.id for one in later]


@pytest.mark.parametrize(("kind", "event_type"), TYPES)
def test_what_is_fresh_makes_another_event_of_the_same_form(kind: str, event_type: str) -> None:
    fixture = fixtures_of(kind)[event_type]
    random = Random(7)

    bodies = [fixture.body, *(renewed(fixture.body, fixture.fresh, random) for _ in range(3))]

    for place in fixture.fresh:
        assert len({len(str(value_at(body, place))) for body in bodies}) == 1
    if fixture.fresh:
        requests = [HttpRequest.of(json.dumps(body).encode()) for body in bodies]
        assert len({SOURCES[kind].normalize(request)[0].id for request in requests}) == 4


@pytest.mark.parametrize("path", ["/a/b", "a.b"])
def test_a_value_is_put_where_it_is_asked_for(path: str) -> None:
    body = {"a": {"b": 1}, "c": [{}, {"d": 2}]}

    assert with_value(body, path, 7) == {"a": {"b": 7}, "c": [{}, {"d": 2}]}
    assert with_value(body, "/c/1/d", None) == {"a": {"b": 1}, "c": [{}, {"d": None}]}
    assert with_value(body, "c.0", "x") == {"a": {"b": 1}, "c": ["x", {"d": 2}]}
    assert with_value(body, "/new~1/x", 1)["new/"] == {"x": 1}
    assert body == {"a": {"b": 1}, "c": [{}, {"d": 2}]}


@pytest.mark.parametrize("path", ["/a/b/c", "/c/2", "/c/x", "/c/2/d", "c.-1"])
def test_a_place_that_cannot_be_is_refused(path: str) -> None:
    with pytest.raises(ConfigError):
        with_value({"a": {"b": 1}, "c": [{}, {}]}, path, 7)


@pytest.mark.parametrize("kind", ["aws_sns", "google_pubsub", "paypal"])
def test_without_a_private_key_of_the_tests_own_nothing_is_signed(kind: str) -> None:
    source = source_of(kind, private_keys=())
    event_type = next(iter(fixtures_of(kind)))

    with pytest.raises(ConfigError):
        source.signed_request(body_of(kind, event_type), NOW_MS)
    with pytest.raises(ConfigError):
        source_of(kind, private_keys="no key").signed_request(body_of(kind, event_type), NOW_MS)


@pytest.mark.parametrize("kind", OPTIONS)
def test_every_kind_can_be_told_to_check_nothing(kind: str) -> None:
    assert create(kind, insecure=True).verify(HttpRequest.of(b""), 0).secret_index is None


# --- whatever is sent -----------------------------------------------------------------------------

SOURCES = {kind: source_of(kind) for kind in OPTIONS}
GENUINE = {
    kind: [
        source.signed_request(
            body_of(kind, event_type), NOW_MS, url=URL, event_id="i-1", event_type=event_type
        )
        for event_type in fixtures_of(kind)
    ]
    for kind, source in SOURCES.items()
}
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def outcome(source: Source, request: HttpRequest) -> str:
    try:
        source.handshake(request, NOW_MS)
        source.verify(request, NOW_MS)
        verdict = "accepted"
    except SignatureInvalid:
        verdict = "refused"
    try:
        for incoming in source.normalize(request):
            assert incoming.id
            assert incoming.type
    except BodyMalformed:
        verdict += ", malformed"
    return verdict


# What carries the proof of a kind: headers, and whether the body as it is.
PROOF: dict[str, tuple[set[bytes], bool]] = {
    "fusionauth": ({b"x-fusionauth-signature-jwt"}, True),
    "github": ({b"x-hub-signature-256"}, True),
    "google_pubsub": ({b"authorization"}, False),
    "hubspot": ({b"x-hubspot-signature-v3", b"x-hubspot-request-timestamp"}, True),
    "paddle": ({b"paddle-signature"}, True),
    "paypal": (
        {b"paypal-transmission-id", b"paypal-transmission-time", b"paypal-transmission-sig"},
        True,
    ),
    "square": ({b"x-square-hmacsha256-signature"}, True),
    "stripe": ({b"stripe-signature"}, True),
    "zendesk": ({b"x-zendesk-webhook-signature", b"x-zendesk-webhook-signature-timestamp"}, True),
}


@pytest.mark.parametrize("kind", OPTIONS)
@given(data=st.data())
def test_a_changed_byte_is_refused_and_nothing_else_is_raised(kind: str, data: st.DataObject) -> None:
    genuine = data.draw(st.sampled_from(GENUINE[kind]))
    names, is_body_signed = PROOF.get(kind, (set(), True))
    places = [pair for pair in genuine.headers if pair[0] in names] + [(b"", genuine.body)] * is_body_signed
    name, value = data.draw(st.sampled_from(places))
    at = data.draw(st.integers(0, len(value) - 1))
    byte = bytes([data.draw(st.integers(0, 255))])
    changed = value[:at] + byte + value[at + 1 :]
    headers = tuple((name, changed) if pair == (name, value) else pair for pair in genuine.headers)
    body = genuine.body if name else changed

    verdict = outcome(SOURCES[kind], HttpRequest("POST", genuine.path, genuine.query, headers, body, 0, URL))

    # Of the kinds that sign fields of the body their own modules test which. "bearer" has no case, and
    # the last character of base64 has bits that are not used.
    is_same = changed == value or (name == b"authorization" and at < len("Bearer "))
    is_same |= kind in ("fusionauth", "google_pubsub", "paypal") and at > len(value) - 4
    assert verdict.startswith("refused") or is_same or kind not in PROOF


@pytest.mark.parametrize("kind", OPTIONS)
@given(data=st.data())
def test_values_of_any_type_are_read_or_malformed(kind: str, data: st.DataObject) -> None:
    event_type = data.draw(st.sampled_from(list(fixtures_of(kind))))
    body = fixtures_of(kind)[event_type].body
    if isinstance(body, str):
        return
    body = json.loads(json.dumps(body))
    node = body
    while True:
        keys = list(range(len(node))) if isinstance(node, list) else list(node)
        key = data.draw(st.sampled_from(keys))
        if isinstance(node[key], (dict, list)) and node[key] and data.draw(st.booleans()):
            node = node[key]
            continue
        node[key] = data.draw(json_values)
        break
    genuine = GENUINE[kind][0]
    request = HttpRequest("POST", "/", "", genuine.headers, json.dumps(body).encode(), 0, URL)

    assert outcome(SOURCES[kind], request)


@pytest.mark.parametrize("kind", OPTIONS)
@given(
    body=st.binary(max_size=60),
    query=st.text(max_size=20),
    values=st.lists(st.binary(max_size=40), max_size=9),
)
def test_noise_is_never_accepted(kind: str, body: bytes, query: str, values: list[bytes]) -> None:
    names = [name for name, _ in GENUINE[kind][0].headers]
    request = HttpRequest("POST", "/", query, tuple(zip(names, values, strict=False)), body, 0, URL)

    assert outcome(SOURCES[kind], request).startswith("refused")
