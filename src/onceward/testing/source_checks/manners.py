"""Checks of the rest: questions, replies, what a source says of itself, and what it keeps to itself."""

from __future__ import annotations

from datetime import date, timedelta
from typing import get_args

from onceward.core.arrival import Outcome
from onceward.core.errors import ConfigError, SignatureInvalid
from onceward.core.messages import HttpRequest, HttpResponse
from onceward.sources.base import Source
from onceward.testing.source_case import SourceCase, verified
from onceward.testing.source_hostile import hostile_bodies, hostile_headers

_TAKEN = ("accepted", "duplicate")


def deliveries_are_no_questions(case: SourceCase) -> None:
    """A genuine delivery is not taken for a question, which would lose its events."""
    source = case.source()
    for example in case.examples:
        assert _answered(source, example.request, example.now_ms) is None


def hostile_questions_raise_nothing_else(case: SourceCase) -> None:
    """Whatever is asked, by whatever method, is answered, refused or no question."""
    source = case.source()
    example = case.examples[0]
    for method in ("GET", "HEAD", "OPTIONS", "POST", "PUT", "BREW"):
        for query in (
            "",
            "challenge=%ff",
            "hub.challenge=1&hub.challenge=2",
            "validationToken=" + "x" * 9999,
        ):
            asked = HttpRequest(method, "/", query, example.request.headers, b"", 0)
            _answered(source, asked, example.now_ms)
    for request in (*hostile_headers(example.request), *hostile_bodies(example.request)):
        for method in ("POST", "GET"):
            asked = HttpRequest(method, "/", "", request.headers, request.body, 0)
            _answered(source, asked, example.now_ms)


def replies_tell_the_truth(case: SourceCase) -> None:
    """What was taken is answered with 2xx, and what was not with something else, never a redirect."""
    source = case.source()
    for outcome in get_args(Outcome):
        reply = source.respond(outcome)
        if reply is not None:
            assert (200 <= reply.status <= 299) == (outcome in _TAKEN), outcome
            assert not 300 <= reply.status <= 399, outcome


def it_says_where_its_facts_are_from(case: SourceCase) -> None:
    """The documentation's address and date, methods and lengths of time can be used."""
    source = case.source()
    assert source.kind
    assert not source.docs_url or source.docs_url.startswith("https://")
    assert not source.retry_docs or (source.retry_horizon and source.retry_docs.startswith("https://"))
    assert not source.docs_date or date.fromisoformat(source.docs_date)
    assert "POST" in source.methods
    assert source.handshake_phase in ("verified", "unverified")
    for length in (source.retry_horizon, source.reply_deadline, source.tolerance):
        assert length is None or length > timedelta()


def secrets_are_not_shown(case: SourceCase) -> None:
    """Neither the source nor its refusals show a secret."""
    if not case.is_checked:
        return
    source = case.source()
    example = case.examples[0]
    refused = ""
    try:
        case.make([case.other_secret]).verify(example.request, example.now_ms)
    except SignatureInvalid as refusal:
        refused = f"{refusal} {refusal.check}"
    assert case.secret not in f"{source!r} {source} {vars(source)}"
    assert case.other_secret not in refused


def what_it_signs_it_takes(case: SourceCase) -> None:
    """Where a source can sign for tests, it takes what it signed."""
    source = case.source()
    example = case.examples[0]
    try:
        request = source.signed_request(
            example.request.body,
            example.now_ms,
            event_id="id-1",
            event_type="type",
            url=example.request.url,
        )
    except ConfigError:
        return
    assert verified(source, request, example.now_ms) is not None, "it refuses what it signed"


def _answered(source: Source, request: HttpRequest, now_ms: int) -> HttpResponse | None:
    try:
        answer = source.handshake(request, now_ms)
    except SignatureInvalid:
        return None
    assert answer is None or isinstance(answer, HttpResponse)
    if answer is not None:
        for name, value in answer.headers:
            assert b"\n" not in name + value, "a header that a stranger chose would end the headers"
    return answer
