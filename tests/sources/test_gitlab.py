"""GitLab's plain tokens and its signing tokens."""

from __future__ import annotations

import base64

import pytest

from onceward.core.errors import ConfigError
from onceward.core.messages import HttpRequest
from onceward.sources import GitLab
from tests.sources.known import NOW, NOW_MS, base64_of, example, json_of, malformed, refused, sole_event

KEY = b"0123456789abcdef0123456789abcdef"
SIGNING = "whsec_" + base64.b64encode(KEY).decode()
SOURCE = GitLab(secrets=["new-token", "old-token"])
SIGNED = GitLab(secrets=["token", SIGNING])
BODY = example("gitlab", "merge_request.open")
UUID = "4df8c2fe-1d5f-4b52-a1f2-7d9f8c1a5a10"


def request(token: str | None = "new-token", body: bytes = BODY, **headers: str) -> HttpRequest:
    given = {"X-Gitlab-Event": "Merge Request Hook", "Idempotency-Key": UUID} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    return HttpRequest.of(body, given | ({} if token is None else {"X-Gitlab-Token": token}))


def signed(
    body: bytes = BODY,
    token: str | None = "token",
    key: bytes = KEY,
    seconds: str = NOW,
    signed_id: str = UUID,
) -> HttpRequest:
    signature = base64_of(key, f"{signed_id}.{seconds}.".encode() + body)
    return request(
        token, body, webhook_id=UUID, webhook_timestamp=seconds, webhook_signature=f"v1,{signature}"
    )


@pytest.mark.parametrize(("token", "index"), [("new-token", 0), ("old-token", 1)])
def test_a_token_is_accepted_with_its_position(token: str, index: int) -> None:
    assert SOURCE.verify(request(token), NOW_MS).secret_index == index


@pytest.mark.parametrize("token", [None, "", "new-toke", "new-token ", "NEW-TOKEN", "é\xff", "new-token\0"])
def test_another_token_is_refused(token: str | None) -> None:
    refused(SOURCE, request(token))


def test_two_tokens_are_refused() -> None:
    pairs = [("X-Gitlab-Token", "new-token"), ("x-gitlab-token", "new-token")]
    assert refused(SOURCE, HttpRequest.of(BODY, pairs)) == "2 X-Gitlab-Token headers"


def test_a_signing_token_verifies_by_the_documented_formula() -> None:
    verified = SIGNED.verify(signed(), NOW_MS)

    assert (verified.secret_index, verified.sent_at_ms) == (1, NOW_MS)


@pytest.mark.parametrize("secret", ["just text", base64.b64encode(KEY).decode()])
def test_a_signing_token_without_the_prefix_is_text_or_base64(secret: str) -> None:
    keys = [secret.encode()] if " " in secret else [secret.encode(), KEY]
    for key in keys:
        assert GitLab(secrets=secret).verify(signed(token=None, key=key), NOW_MS).secret_index == 0


def test_a_right_token_does_not_excuse_a_wrong_signature_where_a_signing_token_is_listed() -> None:
    assert "no signature matches" in refused(SIGNED, signed(key=b"another"))
    assert "no signature matches" in refused(SIGNED, signed(signed_id="another"))
    assert "301 s in the past" in refused(SIGNED, signed(), NOW_MS + 301_000)
    assert "301 s in the future" in refused(SIGNED, signed(), NOW_MS - 301_000)


def test_where_only_the_token_is_listed_the_signature_beside_it_is_not_looked_at() -> None:
    assert GitLab(secrets="token").verify(signed(key=b"unknown"), NOW_MS).secret_index == 0


def test_a_signing_token_is_no_plain_token() -> None:
    refused(GitLab(secrets=SIGNING), request(SIGNING))
    refused(GitLab(secrets=SIGNING), request(None))


@pytest.mark.parametrize(
    ("event_type", "subject", "occurred_at_ms"),
    [
        ("push", "mike/diaspora", None),
        ("merge_request.open", "gitlabhq/gitlab-test", 1795195414000),
        ("pipeline", "gitlab-org/gitlab-test", 1786548389000),
    ],
)
def test_an_event_is_read(event_type: str, subject: str, occurred_at_ms: int | None) -> None:
    incoming = sole_event(SOURCE, request(body=example("gitlab", event_type)))

    assert (incoming.id, incoming.type, incoming.subject) == (UUID, event_type, subject)
    assert incoming.occurred_at_ms == occurred_at_ms
    assert not incoming.id_is_signed


@pytest.mark.parametrize(
    ("body", "event_type"),
    [
        ({"event_name": "project_create", "path_with_namespace": "a/b"}, "project_create"),
        ({}, "Merge Request Hook"),
        ({"object_kind": "issue", "object_attributes": {"action": None}}, "issue"),
        ({"object_kind": "release", "action": "create", "tag": "v1.1"}, "release.create"),
        ({"object_kind": "milestone", "object_attributes": {"id": 1}, "action": "close"}, "milestone.close"),
    ],
)
def test_a_type_is_found_in_every_kind_of_hook(body: object, event_type: str) -> None:
    assert sole_event(SOURCE, request(body=json_of(body))).type == event_type


def test_the_time_of_a_deployment_is_read() -> None:
    """As GitLab writes it there: testdata/gitlab/deployment-event.json of go-playground/webhooks."""
    body = {"object_kind": "deployment", "status_changed_at": "2021-04-28 21:50:00 +0200"}

    assert sole_event(SOURCE, request(body=json_of(body))).occurred_at_ms == 1_619_639_400_000


def test_the_id_of_a_signed_delivery_is_the_signed_one() -> None:
    fresh = HttpRequest.of(
        BODY, {"Idempotency-Key": "fresh", "webhook-id": UUID, "webhook-signature": "v1,x"}
    )

    incoming = sole_event(SIGNED, fresh)

    assert (incoming.id, incoming.id_is_signed) == (UUID, True)
    # Without a signing token nobody looked at the signature.
    assert not sole_event(SOURCE, fresh).id_is_signed


def test_without_an_id_it_is_derived_from_the_body() -> None:
    one, again, other = (
        sole_event(SOURCE, HttpRequest.of(body, {"X-Gitlab-Event-UUID": uuid}))
        for body, uuid in [(BODY, "a"), (BODY, "b"), (example("gitlab", "push"), "a")]
    )

    assert one.id == again.id != other.id
    assert one.id_is_derived
    assert not sole_event(SOURCE, request()).id_is_derived


def test_what_cannot_be_read_is_malformed() -> None:
    malformed(SOURCE, request(body=b"[]"))
    malformed(SOURCE, HttpRequest.of(b"{}"))
    malformed(SOURCE, request(body=b'{"object_kind": 7.5}'))


def test_sign_writes_what_verifies() -> None:
    for index in (0, 1):
        headers = SIGNED.sign(
            BODY, NOW_MS, event_id=UUID, event_type="merge_request.open", secret_index=index
        )
        assert headers["X-Gitlab-Event"] == "Merge Request Hook"
        assert SIGNED.verify(HttpRequest.of(BODY, headers), NOW_MS).secret_index == index


def test_no_key_is_shown() -> None:
    shown = f"{vars(SIGNED)} {SIGNED!r}"

    assert "token" not in shown
    assert KEY.decode() not in shown
    assert SOURCE.tolerance is None
    assert SIGNED.tolerance is not None


def test_a_signing_token_that_is_not_base64_is_refused() -> None:
    with pytest.raises(ConfigError):
        GitLab(secrets="whsec_%")
