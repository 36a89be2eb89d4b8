"""Checks of `verify`: what is genuine is taken, everything else refused, nothing else raised."""

from __future__ import annotations

from datetime import timedelta

from onceward.testing.source_case import (
    SourceCase,
    each_header,
    refusal_of,
    verified,
    with_body,
    with_headers,
)
from onceward.testing.source_hostile import hostile_bodies, hostile_headers


def genuine_deliveries_are_taken(case: SourceCase) -> None:
    """A delivery that the secret signed is taken, and the secret's position is given."""
    source = case.source()
    for example in case.examples:
        found = verified(source, example.request, example.now_ms)
        why = refusal_of(source, example.request, example.now_ms)
        assert found is not None, f"a genuine delivery was refused: {why}"
        assert found.secret_index == (0 if case.is_checked else None)
        if example.redelivered is not None:
            assert verified(source, example.redelivered, example.now_ms) is not None


def either_secret_of_a_rotation_is_taken(case: SourceCase) -> None:
    """With the old and the new secret configured, each is found, and which of them is told."""
    if not case.is_checked:
        return
    example = case.examples[0]
    for secrets, position in (
        ([case.secret, case.other_secret], 0),
        ([case.other_secret, case.secret], 1),
    ):
        source = case.make(secrets)
        found = verified(source, example.request, example.now_ms)
        why = refusal_of(source, example.request, example.now_ms)
        assert found is not None, f"refused with the secret at {position} of two: {why}"
        assert found.secret_index == position


def another_secret_is_refused(case: SourceCase) -> None:
    """A delivery that none of the secrets signed is refused."""
    if not case.is_checked:
        return
    source = case.make([case.other_secret])
    for example in case.examples:
        assert verified(source, example.request, example.now_ms) is None


def a_changed_body_is_refused(case: SourceCase) -> None:
    """One byte changed, cut off or added in the body, and the delivery is refused."""
    if not case.is_checked or not case.covers_body:
        return
    source = case.source()
    for example in case.examples:
        body = example.request.body
        changed = [body + b" ", body[:-1], b"", body + b"\r\n", body.replace(b",", b", ", 1) + b"\n"]
        step = max(1, len(body) // 64)
        changed += [body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :] for at in range(0, len(body), step)]
        for one in changed:
            if one != body:
                refused = verified(source, with_body(example.request, one), example.now_ms) is None
                assert refused, f"a changed body was taken: {one[:80]!r}"


def headers_that_matter_are_needed_once(case: SourceCase) -> None:
    """A header without which a delivery is refused is refused too when it comes twice."""
    if not case.is_checked:
        return
    source = case.source()
    example = case.examples[0]
    for name, before, pair, behind in each_header(example.request):
        if verified(source, with_headers(example.request, before + behind), example.now_ms) is None:
            for doubled in ((*example.request.headers, pair), (*example.request.headers, (pair[0], b"x"))):
                twice = with_headers(example.request, doubled)
                assert verified(source, twice, example.now_ms) is None, f"two {name} headers were taken"


def a_delivery_without_headers_or_body_is_refused(case: SourceCase) -> None:
    """Nothing that proves anything, and the delivery is refused."""
    if not case.is_checked:
        return
    source = case.source()
    example = case.examples[0]
    assert verified(source, with_body(with_headers(example.request, ()), b""), example.now_ms) is None


def an_old_or_early_delivery_is_refused(case: SourceCase) -> None:
    """Where the sender signs the time, it may lie within the tolerance of now and no further."""
    source = case.source()
    if source.tolerance is None or case.has_expiry:
        return
    second = timedelta(seconds=1)
    for example in case.examples:
        found = verified(source, example.request, example.now_ms)
        assert found is not None
        assert found.sent_at_ms is not None, "the signed time is told"
        for distance, is_taken in ((source.tolerance - second, True), (source.tolerance + second, False)):
            apart_ms = distance // timedelta(milliseconds=1)
            late = verified(source, example.request, found.sent_at_ms + apart_ms)
            assert (late is not None) == is_taken, f"{distance} late"
        far_ahead = found.sent_at_ms - timedelta(days=1) // timedelta(milliseconds=1)
        assert verified(source, example.request, far_ahead) is None, "a day early"


def hostile_headers_raise_nothing_else(case: SourceCase) -> None:
    """Headers that are missing, doubled, not ASCII, endless or odd are refused, or do not matter."""
    source = case.source()
    for example in case.examples:
        for request in hostile_headers(example.request):
            verified(source, request, example.now_ms)


def hostile_bodies_raise_nothing_else(case: SourceCase) -> None:
    """Bodies that are empty, deep, broken or huge are refused, or do not matter to the proof."""
    source = case.source()
    for example in case.examples:
        for request in hostile_bodies(example.request):
            taken = verified(source, request, example.now_ms) is not None
            if case.is_checked and case.covers_body and request.body != example.request.body:
                assert not taken, f"another body was taken: {request.body[:80]!r}"


def times_at_the_edges_raise_nothing_else(case: SourceCase) -> None:
    """The first and the last times that can be are times like others."""
    source = case.source()
    for now_ms in (0, -1, 2**53, 2**63 - 1):
        verified(source, case.examples[0].request, now_ms)
