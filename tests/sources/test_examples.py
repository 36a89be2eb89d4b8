"""What holds for these built-in sources, shown with its example bodies: genuine ones are taken,
changed ones refused, and nothing that a stranger or a broken sender writes raises anything else."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st

from onceward.core.errors import BodyMalformed, SignatureInvalid
from onceward.core.messages import HttpRequest
from onceward.sources import Source, create
from tests.sources.known import NOW_MS, examples

URL = "https://hooks.example.com/hooks/a?b=1"
ED25519 = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"
ED25519_PUBLIC = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
P256 = ec.derive_private_key(0x5EED, ec.SECP256R1())
OPTIONS: dict[str, dict[str, Any]] = {
    "discord": {"secrets": ED25519_PUBLIC, "private_keys": ED25519},
    "sendgrid": {
        "secrets": P256.public_key()
        .public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        .decode()
        .strip(),
        "private_keys": P256.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
    },
}
KINDS = [
    "bitbucket",
    "clerk",
    "discord",
    "gitlab",
    "jira",
    "linear",
    "meta",
    "openai",
    "resend",
    "sendgrid",
    "shopify",
    "slack",
    "standard_webhooks",
    "svix",
    "telegram",
    "twilio",
    "zoom",
]
CASES = [(kind, event_type) for kind in KINDS for event_type in examples(kind)]
# Kinds that prove the sender by a token and say nothing of the body.
UNSIGNED = {"gitlab", "telegram"}


def source_of(kind: str) -> Source:
    return create(kind, **({"secrets": "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"} | OPTIONS.get(kind, {})))


SOURCES = {kind: source_of(kind) for kind in KINDS}


def genuine(kind: str, event_type: str, at_ms: int = NOW_MS) -> HttpRequest:
    body, headers = examples(kind)[event_type]
    request = SOURCES[kind].signed_request(body, at_ms, event_id="ev_1", event_type=event_type, url=URL)
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


@pytest.mark.parametrize(("kind", "event_type"), CASES)
def test_an_example_is_verified_and_read_as_its_type(kind: str, event_type: str) -> None:
    source, request = SOURCES[kind], genuine(kind, event_type)

    verified = source.verify(request, NOW_MS)
    events = source.normalize(request)

    assert verified.secret_index == 0
    assert source.handshake(request, NOW_MS) is None
    assert events[0].type == event_type
    assert len({event.id for event in events}) == len(events)
    assert events == source.normalize(request)
    for event in events:
        assert event.subject is None or event.subject
        if event.payload_is_body:
            assert event.payload == json.loads(request.body)
        json.dumps(event.payload)


@pytest.mark.parametrize(("kind", "event_type"), CASES)
def test_an_example_sent_again_later_has_the_same_events(kind: str, event_type: str) -> None:
    source = SOURCES[kind]
    later = NOW_MS + 3_600_000
    again = genuine(kind, event_type, later)

    source.verify(again, later)

    ids = [[event.id for event in source.normalize(one)] for one in (genuine(kind, event_type), again)]
    assert ids[0] == ids[1]


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_beyond_64_bits_stay_exact(kind: str) -> None:
    number = 123456789012345678901234567890
    event_type = next(name for name, (body, _) in examples(kind).items() if body[:1] in (b"{", b"["))
    body = examples(kind)[event_type][0]
    grown = body.replace(b"{", b'{"big": %d, ' % number, 1)
    request = SOURCES[kind].signed_request(grown, NOW_MS, event_id="ev_1", event_type=event_type, url=URL)

    events = SOURCES[kind].normalize(request)

    # Meta's payload is rebuilt around the event, without members that are about the whole.
    assert events[0].payload.get("big") == (None if kind == "meta" else number)


@pytest.mark.parametrize("kind", KINDS)
def test_several_types_have_an_example(kind: str) -> None:
    assert len(examples(kind)) >= 3


@pytest.mark.parametrize("kind", KINDS)
def test_facts_of_the_sender_are_stated(kind: str) -> None:
    source = SOURCES[kind]

    assert source.kind == source.name == kind
    assert source.docs_url.startswith("https://")
    assert source.docs_date >= "2026"
    assert "POST" in source.methods


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(CASES), st.data())
def test_one_changed_byte_is_refused(case: tuple[str, str], data: st.DataObject) -> None:
    kind, event_type = case
    request = genuine(kind, event_type)
    unsigned_names = {b"content-type", b"idempotency-key"}
    places = [
        (position, name)
        for position, (name, value) in enumerate(request.headers)
        if value
        and any(word in name for word in (b"signature", b"hmac", b"token", b"timestamp"))
        and name not in unsigned_names
        and not (kind == "twilio" and b"idempotency" in name)
    ]
    headers, body = list(request.headers), bytearray(request.body)
    where = data.draw(st.sampled_from([*places, None] if kind not in UNSIGNED and body else places))
    target = body if where is None else bytearray(headers[where[0]][1])
    at = data.draw(st.integers(0, len(target) - 1))
    before = target[at]
    # Some senders' own libraries take hexadecimal in either case: that is the same signature.
    same = {before} if where is None else {*bytes([before]).lower(), *bytes([before]).upper()}
    target[at] = data.draw(st.integers(0, 255).filter(lambda byte: byte not in same))
    if where is not None:
        headers[where[0]] = (where[1], bytes(target))
    elif kind == "twilio" and SOURCES[kind].normalize(request)[0].payload == _form(bytes(body)):
        return  # another spelling of the same fields
    changed = HttpRequest(
        request.method, request.path, request.query, tuple(headers), bytes(body), NOW_MS, request.url
    )

    with pytest.raises(SignatureInvalid):
        SOURCES[kind].verify(changed, NOW_MS)


def _form(body: bytes) -> object:
    try:
        request = HttpRequest.of(body, {"Content-Type": "application/x-www-form-urlencoded"})
        return SOURCES["twilio"].normalize(request)[0].payload
    except BodyMalformed:
        return None


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def grafted(value: Any, draw: st.DataObject) -> Any:
    """Give the value with one part of it, anywhere, replaced by another."""
    parts = (
        list(value.items())
        if isinstance(value, dict)
        else list(enumerate(value))
        if isinstance(value, list)
        else []
    )
    if not parts or draw.draw(st.integers(0, 3)) == 0:
        return draw.draw(values)
    key, inner = draw.draw(st.sampled_from(parts))
    copy = value.copy()
    copy[key] = grafted(inner, draw)
    return copy


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(CASES), st.data())
def test_a_body_with_any_part_replaced_is_read_or_malformed(
    case: tuple[str, str], data: st.DataObject
) -> None:
    kind, event_type = case
    request = genuine(kind, event_type)
    try:
        body = json.dumps(grafted(json.loads(request.body), data)).encode()
    except ValueError:
        body = data.draw(st.binary(max_size=60))
    sent = HttpRequest("POST", request.path, request.query, request.headers, body, 0, URL)

    try:
        events = SOURCES[kind].normalize(sent)
    except BodyMalformed:
        events = []

    for event in events:
        assert 0 < len(event.id) <= 255
        assert 0 < len(event.type) <= 255
        assert event.version is None or 0 <= event.version < 2**63
        assert event.occurred_at_ms is None or abs(event.occurred_at_ms) < 2**53


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(KINDS),
    st.lists(
        st.tuples(
            st.sampled_from(
                sorted({name.decode() for kind, one in CASES for name, _ in genuine(kind, one).headers})
            ),
            st.text(st.characters(max_codepoint=255), max_size=80),
        ),
        max_size=8,
    ),
    st.binary(max_size=80) | values.map(lambda value: json.dumps(value).encode()),
    st.text(max_size=40),
    st.sampled_from(["GET", "POST"]),
)
def test_hostile_requests_get_a_refusal_and_nothing_else(
    kind: str, headers: list[tuple[str, str]], body: bytes, query: str, method: str
) -> None:
    source = SOURCES[kind]
    request = HttpRequest.of(body, headers, method=method, query=query, url=f"https://h.example/?{query}")

    with pytest.raises(SignatureInvalid):
        source.verify(request, NOW_MS)
    for ask in (lambda: source.handshake(request, NOW_MS), lambda: source.normalize(request)):
        with contextlib.suppress(SignatureInvalid, BodyMalformed):
            ask()
