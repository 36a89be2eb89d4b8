"""Every kind of source passes the public conformance suite, and damage at random gets nothing past it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from onceward.core.arrival import Incoming, Outcome, Verified
from onceward.core.messages import HttpRequest, HttpResponse
from onceward.sources import Source, kinds
from onceward.sources.base import parse_object
from onceward.sources.signing import hex_hmac, matching_secret, sole_header
from onceward.testing.source_suite import CHECKS, Check, Example, SourceCase, fuzz
from tests.sources.cases import CASES, OTHER, SECRET, hex_mac

IS_CAMPAIGN = os.environ.get("ONCEWARD_TEST_TIER") == "campaign"
DAMAGED = 100_000 if IS_CAMPAIGN else 300


def test_every_kind_has_a_case() -> None:
    assert set(CASES) == set(kinds())
    for kind, case in CASES.items():
        source = case.source()
        assert source.kind == kind
        assert source.docs_url


@pytest.mark.parametrize("check", CHECKS, ids=str)
@pytest.mark.parametrize("kind", kinds())
def test_source(kind: str, check: Check) -> None:
    check(CASES[kind])


@pytest.mark.timeout(0 if IS_CAMPAIGN else 60)
@pytest.mark.parametrize("kind", kinds())
def test_random_damage_is_neither_taken_nor_raises(kind: str) -> None:
    fuzz(CASES[kind], DAMAGED)


# --- the suite itself: each check finds the fault that it is for ---------------------------------


class Sound(Source):
    kind = "sound"

    def verify(self, request: HttpRequest, now_ms: int) -> Verified:
        return Verified(matching_secret(self.secrets, request.body, [sole_header(request, "x-signature")]))

    def normalize(self, request: HttpRequest) -> list[Incoming]:
        from onceward.sources.base import identifier

        body = parse_object(request.body)
        return [
            Incoming(id=identifier(body.get("id"), "the id"), type="t", payload=body, payload_is_body=True)
        ]

    def sign(self, body: bytes, now_ms: int, **_: Any) -> dict[str, str]:
        return {"X-Signature": hex_hmac(self.signing_key(), body).decode()}


def of(source_class: type[Source], **facts: Any) -> SourceCase:
    def make(secrets: Sequence[str]) -> Source:
        return source_class(secrets=secrets)

    examples = []
    for body in (b'{"id": "a"}', b'{"id": "b"}'):
        request = HttpRequest.of(body, {"X-Signature": hex_mac(body)})
        examples.append(Example(request, 0, request))
    return replace(SourceCase(make, SECRET, OTHER, tuple(examples)), **facts)


@pytest.mark.parametrize("check", CHECKS, ids=str)
def test_a_sound_source_passes(check: Check) -> None:
    check(of(Sound))


class Trusting(Sound):
    def verify(self, request: HttpRequest, now_ms: int) -> Verified:
        return Verified(0)


class First(Sound):
    def verify(self, request: HttpRequest, now_ms: int) -> Verified:
        given = request.header("x-signature") or ""
        return Verified(matching_secret(self.secrets[:1], request.body, [given.encode("latin-1")]))


class Textual(Sound):
    def verify(self, request: HttpRequest, now_ms: int) -> Verified:
        import hmac

        given = request.header("x-signature") or ""
        hmac.compare_digest(given, "x" * 64)  # raises for what is not ASCII
        return super().verify(request, now_ms)


class Trimming(Sound):
    def verify(self, request: HttpRequest, now_ms: int) -> Verified:
        given = sole_header(request, "x-signature")
        return Verified(matching_secret(self.secrets, request.body.strip(), [given]))


class Raising(Sound):
    def normalize(self, request: HttpRequest) -> list[Incoming]:
        body = parse_object(request.body)
        return [Incoming(id=body["id"], type="t", payload=body)]


class Counting(Sound):
    count = 0

    def normalize(self, request: HttpRequest) -> list[Incoming]:
        Counting.count += 1
        return [replace_id(one, f"{Counting.count}") for one in super().normalize(request)]


class Collapsing(Sound):
    def normalize(self, request: HttpRequest) -> list[Incoming]:
        return [replace_id(one, "same") for one in super().normalize(request)]


class Stamped(Sound):
    def normalize(self, request: HttpRequest) -> list[Incoming]:
        return [replace_id(one, f"{one.id}{request.received_at_ms}") for one in super().normalize(request)]


class Unclean(Sound):
    def normalize(self, request: HttpRequest) -> list[Incoming]:
        return [replace_id(one, f"{one.id}\x00") for one in super().normalize(request)]


class Asking(Sound):
    def handshake(self, request: HttpRequest, now_ms: int) -> HttpResponse | None:
        return HttpResponse.of(200)


class Lying(Sound):
    def respond(self, outcome: Outcome) -> HttpResponse | None:
        return HttpResponse.of(200)


class Showing(Sound):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.keys = [secret.key.decode() for secret in self.secrets]


class Undated(Sound):
    docs_url = "http://example.com"


class Mirroring(Sound):
    def handshake(self, request: HttpRequest, now_ms: int) -> HttpResponse | None:
        given = request.header("x-signature")
        return HttpResponse.of(200, given.encode("ascii")) if given and request.method == "GET" else None


class Missigning(Sound):
    def sign(self, body: bytes, now_ms: int, **_: Any) -> dict[str, str]:
        return {"X-Signature": "00"}


def replace_id(incoming: Incoming, event_id: str) -> Incoming:
    import msgspec

    return msgspec.structs.replace(incoming, id=event_id)


@pytest.mark.parametrize(
    ("fault", "found_by"),
    [
        (Trusting, "trust-another_secret_is_refused"),
        (Trusting, "trust-a_changed_body_is_refused"),
        (Trusting, "trust-a_delivery_without_headers_or_body_is_refused"),
        (First, "trust-either_secret_of_a_rotation_is_taken"),
        (First, "trust-headers_that_matter_are_needed_once"),
        (Textual, "trust-hostile_headers_raise_nothing_else"),
        (Trimming, "trust-a_changed_body_is_refused"),
        (Raising, "reading-hostile_deliveries_raise_nothing_else"),
        (Counting, "reading-the_same_delivery_gives_the_same_events"),
        (Counting, "reading-a_redelivery_has_the_same_ids"),
        (Collapsing, "reading-different_events_have_different_ids"),
        (Stamped, "reading-the_same_delivery_gives_the_same_events"),
        (Unclean, "reading-events_can_be_stored"),
        (Asking, "manners-deliveries_are_no_questions"),
        (Mirroring, "manners-hostile_questions_raise_nothing_else"),
        (Lying, "manners-replies_tell_the_truth"),
        (Showing, "manners-secrets_are_not_shown"),
        (Undated, "manners-it_says_where_its_facts_are_from"),
        (Missigning, "manners-what_it_signs_it_takes"),
    ],
)
def test_a_fault_is_found_by_the_check_that_is_for_it(fault: type[Source], found_by: str) -> None:
    [check] = [check for check in CHECKS if str(check) == found_by]

    with pytest.raises((AssertionError, KeyError, TypeError, UnicodeEncodeError)):
        check(of(fault))


def test_fuzzing_finds_what_is_taken_wrongly_and_what_raises() -> None:
    fuzz(of(Sound), 200)
    for fault in (Trusting, Textual, Raising):
        with pytest.raises(AssertionError, match="seed"):
            fuzz(of(fault), 2_000)
