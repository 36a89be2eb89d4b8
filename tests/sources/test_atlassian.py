"""Bitbucket and Jira, with the vector of Atlassian's own documentation."""

from __future__ import annotations

import pytest

from onceward.core.messages import HttpRequest
from onceward.sources import Bitbucket, Jira, Source
from tests.sources.known import NOW_MS, example, hex_of, json_of, malformed, refused, sole_event

# From "Manage webhooks" (Bitbucket) and "Webhooks" (Jira), with the body "Hello World!".
SECRET = "It's a Secret to Everybody"
HELLO = b"Hello World!"
SIGNATURE = "sha256=a4771c39fbe90f317c7824e83ddef3caae9cb3d976c214ace1f2937e133263c9"
KINDS = [Bitbucket, Jira]
UUID = "91c8e2a4-4d3e-4f64-8b4f-8d8a3f7a1c55"


def request(body: bytes = HELLO, signature: str = SIGNATURE, **headers: str) -> HttpRequest:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return HttpRequest.of(body, {"X-Hub-Signature": signature} | named)


@pytest.mark.parametrize("kind", KINDS)
def test_the_published_vector_verifies(kind: type[Source]) -> None:
    assert kind(secrets=["other", SECRET]).verify(request(), NOW_MS).secret_index == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "signature",
    [
        "",
        SIGNATURE[7:],
        "sha1=" + hex_of(SECRET, HELLO, "sha1"),
        "junk" + SIGNATURE,
        " " + SIGNATURE,
        SIGNATURE.upper(),
        SIGNATURE.replace("=", ":"),
        SIGNATURE + "0",
        "sha256=",
        "sha256=é\xff",
    ],
)
def test_another_signature_is_refused(kind: type[Source], signature: str) -> None:
    refused(kind(secrets=SECRET), request(signature=signature))


@pytest.mark.parametrize("kind", KINDS)
def test_a_changed_body_or_a_doubled_header_is_refused(kind: type[Source]) -> None:
    source = kind(secrets=SECRET)

    refused(source, request(b"Hello World?"))
    refused(source, HttpRequest.of(HELLO))
    pairs = [("X-Hub-Signature", SIGNATURE), ("x-hub-signature", SIGNATURE)]
    refused(source, HttpRequest.of(HELLO, pairs))
    refused(source, HttpRequest.of(HELLO, {"X-Hub-Signature-256": SIGNATURE}))


@pytest.mark.parametrize(
    ("event_type", "subject", "occurred_at_ms"),
    [
        ("repo:push", "team_name/repo_name", None),
        ("pullrequest:created", "team_name/repo_name", 1794195289000),
        ("pr:opened", "PROJ/repository", 1789775891000),
    ],
)
def test_an_event_of_bitbucket_is_read(event_type: str, subject: str, occurred_at_ms: int | None) -> None:
    body = example("bitbucket", event_type)

    incoming = sole_event(
        Bitbucket(secrets=SECRET), request(body, X_Event_Key=event_type, X_Request_UUID=UUID)
    )

    assert (incoming.id, incoming.type, incoming.subject) == (UUID, event_type, subject)
    assert incoming.occurred_at_ms == occurred_at_ms
    assert not incoming.id_is_signed


def test_a_repository_that_data_center_renamed_is_the_new_one() -> None:
    """The shape of testdata/bitbucket-server/repo-modified.json of go-playground/webhooks."""
    old, new = ({"slug": slug, "project": {"key": "gopher"}} for slug in ("webhook-test-2", "webhook-test"))
    body = json_of({"eventKey": "repo:modified", "date": "2019-02-28T16:08:46+0100", "old": old, "new": new})

    event = sole_event(Bitbucket(secrets=SECRET), request(body, X_Event_Key="repo:modified"))

    assert (event.subject, event.occurred_at_ms) == ("gopher/webhook-test", 1_551_366_526_000)


def test_another_attempt_of_bitbucket_is_the_same_event() -> None:
    source = Bitbucket(secrets=SECRET)
    body = example("bitbucket", "pr:opened")

    def event_id(number: str, **headers: str) -> str:
        sent = request(body, X_Event_Key="pr:opened", X_Attempt_Number=number, **headers)
        return sole_event(source, sent).id

    # Cloud keeps its id; Data Center's is rewritten by proxies and not looked at.
    assert event_id("1", X_Request_UUID=UUID) == event_id("2", X_Request_UUID=UUID) == UUID
    assert event_id("1", X_Request_Id="a") == event_id("2", X_Request_Id="b") != UUID


def test_the_connection_test_of_data_center_is_answered() -> None:
    source = Bitbucket(secrets=SECRET)
    ping = request(b'{"test": true}', X_Event_Key="diagnostics:ping")

    answer = source.handshake(ping, NOW_MS)

    assert answer is not None
    assert answer.status == 200
    assert source.handshake(request(X_Event_Key="repo:push"), NOW_MS) is None


@pytest.mark.parametrize("event_type", ["jira:issue_created", "comment_created"])
def test_an_event_of_jira_is_read(event_type: str) -> None:
    source = Jira(secrets=SECRET)
    body = example("jira", event_type)
    first, retry = (
        sole_event(
            source,
            request(body, X_Atlassian_Webhook_Identifier=UUID, X_Atlassian_Webhook_Retry=count),
        )
        for count in ("0", "1")
    )

    assert first == retry
    assert (first.id, first.type) == (UUID, event_type)
    assert first.occurred_at_ms == 1525698237764
    assert first.subject == ("JRA-20002")


def test_without_an_identifier_jiras_id_is_derived() -> None:
    source = Jira(secrets=SECRET)
    one, other = (
        sole_event(source, request(example("jira", name)))
        for name in ("jira:issue_created", "comment_created")
    )

    assert one == sole_event(source, request(example("jira", "jira:issue_created")))
    assert one.id != other.id
    assert one.id_is_derived


def test_what_cannot_be_read_is_malformed() -> None:
    malformed(Bitbucket(secrets=SECRET), request(b"{}"))
    malformed(Bitbucket(secrets=SECRET), request(b"[]", X_Event_Key="repo:push"))
    malformed(Jira(secrets=SECRET), request(b"{}"))
    doubled = [("X-Event-Key", "a"), ("X-Event-Key", "b")]
    malformed(Bitbucket(secrets=SECRET), HttpRequest.of(b"{}", doubled))
