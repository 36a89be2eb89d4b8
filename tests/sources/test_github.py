"""GitHub's scheme, with GitHub's published test vector as the oracle."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward.core.arrival import Incoming, Verified
from onceward.core.errors import BodyMalformed, ConfigError, SignatureInvalid
from onceward.core.messages import HttpRequest
from onceward.sources import GitHub

# docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries#testing-the-webhook-payload-validation
PUBLISHED_SECRET = "It's a Secret to Everybody"
PUBLISHED_BODY = b"Hello, World!"
PUBLISHED_SIGNATURE = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"

SOURCE = GitHub(secrets=[PUBLISHED_SECRET, "the old secret"])
EVENT = {"action": "opened", "number": 7, "repository": {"full_name": "octocat/hello-world"}}
DELIVERY = "72d3162e-cc78-11e3-81ab-4c9367dc0958"


def request(body: bytes = PUBLISHED_BODY, *signatures: str) -> HttpRequest:
    return HttpRequest.of(body, [("X-Hub-Signature-256", value) for value in signatures])


def check_of(candidate: HttpRequest) -> str:
    with pytest.raises(SignatureInvalid) as refusal:
        SOURCE.verify(candidate, 0)
    return refusal.value.check


def normalized(body: bytes, *extra: tuple[str, str], event: str = "pull_request") -> Incoming:
    headers = [("X-GitHub-Delivery", DELIVERY), ("X-GitHub-Event", event), *extra]
    [incoming] = SOURCE.normalize(HttpRequest.of(body, headers))
    return incoming


# --- verifying ------------------------------------------------------------------------------------


def test_the_published_vector_verifies() -> None:
    assert SOURCE.verify(request(PUBLISHED_BODY, PUBLISHED_SIGNATURE), 0) == Verified(0)


def test_signing_gives_the_published_vector() -> None:
    headers = SOURCE.sign(PUBLISHED_BODY, 0, event_id=DELIVERY, event_type="pull_request.opened")

    assert headers["X-Hub-Signature-256"] == PUBLISHED_SIGNATURE
    assert headers["X-GitHub-Event"] == "pull_request"
    assert headers["X-GitHub-Delivery"] == DELIVERY


def test_the_secret_that_matched_is_reported() -> None:
    headers = SOURCE.sign(b"{}", 0, secret_index=1)

    assert SOURCE.verify(HttpRequest.of(b"{}", headers), 0) == Verified(1)


@given(st.data())
def test_a_changed_byte_in_the_header_is_refused(data: st.DataObject) -> None:
    position = data.draw(st.integers(0, len(PUBLISHED_SIGNATURE) - 1))
    character = data.draw(st.characters(max_codepoint=255))
    mutated = PUBLISHED_SIGNATURE[:position] + character + PUBLISHED_SIGNATURE[position + 1 :]

    try:
        SOURCE.verify(request(PUBLISHED_BODY, mutated), 0)
        accepted = True
    except SignatureInvalid:
        accepted = False

    assert accepted == (mutated == PUBLISHED_SIGNATURE)


@given(st.binary(max_size=64))
def test_any_other_body_is_refused(body: bytes) -> None:
    if body != PUBLISHED_BODY:
        check_of(request(body, PUBLISHED_SIGNATURE))


@given(st.text(st.characters(max_codepoint=255), max_size=200))
def test_any_other_header_is_refused(value: str) -> None:
    if value != PUBLISHED_SIGNATURE:
        check_of(request(PUBLISHED_BODY, value))


@pytest.mark.parametrize(
    "value",
    [
        PUBLISHED_SIGNATURE.removeprefix("sha256="),
        PUBLISHED_SIGNATURE.replace("sha256=", "sha1="),
        PUBLISHED_SIGNATURE.replace("sha256=", "SHA256="),
        "junk" + PUBLISHED_SIGNATURE,
        PUBLISHED_SIGNATURE + "," + PUBLISHED_SIGNATURE,
        PUBLISHED_SIGNATURE[:-1],
        "sha256=",
        "sha256=é",
        "",
    ],
)
def test_a_signature_in_another_dress_is_refused(value: str) -> None:
    check_of(request(PUBLISHED_BODY, value))


def test_the_sha1_header_is_never_enough() -> None:
    # HMAC-SHA1 of the published body under the published secret.
    sha1 = "sha1=01dc10d0c83e72ed246219cdd91669667fe2ca59"
    only_sha1 = HttpRequest.of(PUBLISHED_BODY, {"X-Hub-Signature": sha1})

    assert check_of(only_sha1) == "no X-Hub-Signature-256 header"


def test_two_signature_headers_are_refused_even_when_both_are_right() -> None:
    doubled = request(PUBLISHED_BODY, PUBLISHED_SIGNATURE, PUBLISHED_SIGNATURE)

    assert check_of(doubled) == "2 X-Hub-Signature-256 headers"


# --- reading the event ----------------------------------------------------------------------------


def test_an_event_with_an_action_is_read() -> None:
    incoming = normalized(json.dumps(EVENT).encode(), ("Content-Type", "application/json"))

    assert incoming == Incoming(
        id=DELIVERY,
        type="pull_request.opened",
        payload=EVENT,
        payload_is_body=True,
        subject="octocat/hello-world",
        id_is_signed=False,
    )


@pytest.mark.parametrize("event", ["push", "ping"])
def test_an_event_without_an_action_has_the_headers_type(event: str) -> None:
    incoming = normalized(b'{"zen": "Keep it logically awesome."}', event=event)

    assert incoming.type == event
    assert incoming.subject is None


@pytest.mark.parametrize("action", [None, "", 7, ["opened"]])
def test_an_action_that_is_no_text_is_left_out_of_the_type(action: object) -> None:
    assert normalized(json.dumps({"action": action}).encode()).type == "pull_request"


def test_a_form_body_gives_the_same_event_as_json() -> None:
    as_json = normalized(json.dumps(EVENT).encode())
    form = urlencode({"payload": json.dumps(EVENT)}).encode()

    as_form = normalized(form, ("Content-Type", "application/x-www-form-urlencoded; charset=utf-8"))

    assert not as_form.payload_is_body
    assert (as_form.id, as_form.type, as_form.subject, as_form.payload) == (
        as_json.id,
        as_json.type,
        as_json.subject,
        as_json.payload,
    )


@pytest.mark.parametrize(
    "form",
    [
        b"",
        b"payload=",
        b"payload=%7B%7D&payload=%7B%7D",
        b"Payload=%7B%7D",
        b"payload=%ff%fe",
        b"payload=\xff",
        b"payload=[]",
        b"payload=NaN",
        b"payload=%7B%7D" + b"&a=1" * 1000,
        b"&" * 100_000,
    ],
)
def test_a_form_that_cannot_be_read_is_malformed(form: bytes) -> None:
    with pytest.raises(BodyMalformed):
        normalized(form, ("Content-Type", "application/x-www-form-urlencoded"))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"NaN",
        b"\xff",
        b"[" * 100_000,
        b'{"action": "a\\u0000"}',
        b'{"action": "%s"}' % (b"x" * 300),
        b'{"action": "\\udfff"}',
        b"payload=%7B%7D",
    ],
)
def test_a_body_that_cannot_be_read_is_malformed_and_nothing_else(body: bytes) -> None:
    with pytest.raises(BodyMalformed):
        normalized(body)


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("X-GitHub-Event", "push")],
        [("X-GitHub-Delivery", DELIVERY)],
        [("X-GitHub-Delivery", ""), ("X-GitHub-Event", "push")],
        [("X-GitHub-Delivery", "\xa0\x85"), ("X-GitHub-Event", "push")],
        [("X-GitHub-Delivery", "a\tb"), ("X-GitHub-Event", "push")],
        [("X-GitHub-Delivery", "x" * 256), ("X-GitHub-Event", "push")],
        [("X-GitHub-Delivery", DELIVERY), ("X-GitHub-Delivery", "other"), ("X-GitHub-Event", "push")],
        [("X-GitHub-Delivery", DELIVERY), ("X-GitHub-Event", "push"), ("X-GitHub-Event", "ping")],
    ],
)
def test_headers_that_do_not_name_one_event_are_malformed(headers: list[tuple[str, str]]) -> None:
    with pytest.raises(BodyMalformed):
        SOURCE.normalize(HttpRequest.of(b"{}", headers))


@pytest.mark.parametrize("repository", [None, "x", [], {}, {"full_name": None}, {"full_name": "a\nb"}])
def test_an_odd_repository_costs_only_the_subject(repository: Any) -> None:
    assert normalized(json.dumps({"repository": repository}).encode()).subject is None


# --- subscribing ----------------------------------------------------------------------------------


def test_a_bare_name_that_always_has_an_action_is_refused_as_a_trigger() -> None:
    with pytest.raises(ConfigError, match=r"pull_request\.\*"):
        SOURCE["pull_request"]
    # Required in GitHub's OpenAPI description, and in every example of @octokit/webhooks-examples.
    for name in ("repository_dispatch", "projects_v2_item", "security_advisory", "sub_issues"):
        with pytest.raises(ConfigError, match="without an action"):
            SOURCE[name]


def test_triggers_match_what_is_read() -> None:
    kind = normalized(json.dumps(EVENT).encode()).type

    assert SOURCE["pull_request.opened"].matches("github", kind)
    assert SOURCE["pull_request.*"].matches("github", kind)
    assert not SOURCE["pull_request.closed"].matches("github", kind)
    assert SOURCE["push"].matches("github", normalized(b"{}", event="push").type)
