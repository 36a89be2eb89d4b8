"""Checks of `normalize`: always the same events, ids that last, and nothing raised but "malformed"."""

from __future__ import annotations

import msgspec

from onceward.sources.base import TEXT_CHARS_MAX
from onceward.testing.source_case import SourceCase, events_of, later
from onceward.testing.source_hostile import hostile_bodies, hostile_headers

_INTEGER_MAX = 2**63 - 1


def the_same_delivery_gives_the_same_events(case: SourceCase) -> None:
    """Reading twice, in another process or later, gives equal events."""
    for example in case.examples:
        first = events_of(case.source(), example.request)
        assert first is not None, "a genuine delivery could not be read"
        assert events_of(case.source(), example.request) == first
        if case.is_lasting:
            assert events_of(case.source(), later(example.request)) == first


def a_redelivery_has_the_same_ids(case: SourceCase) -> None:
    """What the sender sends again, signed anew, has the ids of the first time, in that order."""
    source = case.source()
    for example in case.examples:
        if example.redelivered is not None and case.is_lasting:
            first = events_of(source, example.request)
            again = events_of(source, example.redelivered)
            assert first is not None
            assert again is not None
            assert [one.id for one in again] == [one.id for one in first]
            assert [one.type for one in again] == [one.type for one in first]


def different_events_have_different_ids(case: SourceCase) -> None:
    """No two events of the examples have one id."""
    source = case.source()
    ids = [one.id for example in case.examples for one in events_of(source, example.request) or ()]
    assert len(set(ids)) == len(ids)


def events_can_be_stored(case: SourceCase) -> None:
    """Ids, types and subjects are short clean text, times fit, payloads are JSON."""
    source = case.source()
    for example in case.examples:
        for one in events_of(source, example.request) or ():
            for text in (one.id, one.type, *(() if one.subject is None else (one.subject,))):
                assert text
                assert len(text) <= TEXT_CHARS_MAX
                assert text.isprintable()
            for number in (one.occurred_at_ms, one.version):
                assert number is None or (type(number) is int and 0 <= number <= _INTEGER_MAX)
            msgspec.json.encode(one.payload)
            if one.payload_is_body:
                assert msgspec.json.decode(example.request.body) == one.payload


def hostile_deliveries_raise_nothing_else(case: SourceCase) -> None:
    """Whatever is genuine and odd is read or malformed, so that it is answered and never a fault."""
    source = case.source()
    for example in case.examples:
        for request in hostile_bodies(example.request):
            events_of(source, request)
        for request in hostile_headers(example.request):
            events_of(source, request)
