"""Which events end which waits, where waits are looked for, and that what was taken comes back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from onceward.core.awaiting import (
    ANY,
    Seen,
    events_of,
    in_order,
    key_of,
    places_of,
    places_of_batch,
    stored_events,
    taken_of,
    taken_text,
)
from onceward.core.model import EventRow, NewRun, WaitRow
from onceward.core.paths import event as expression
from onceward.core.paths import to_data
from onceward.core.ports import Accept, Accepted, Advance, Batch, BatchResult, EventPlace
from onceward.core.triggers import OWN


def event(source: str = "stripe", event_id: str = "evt_1", **more: Any) -> EventRow:
    values: dict[str, Any] = {"type": "order.paid", "payload": '{"n":1}', "received_at": 100, **more}
    return EventRow(source, event_id, **values)


def wait(**more: Any) -> WaitRow:
    values: dict[str, Any] = {"type": "order.paid", "subject": ANY, "source": "stripe", "since_at": 0, **more}
    return WaitRow("run_1", 1, "paid", "", 1, 0, **values)


def condition(n: int) -> str:
    return json.dumps(to_data(expression.payload["n"] == n))


@pytest.mark.parametrize(
    ("one", "of"),
    [
        (event(), wait()),
        (event(subject="o-1"), wait()),
        (event(subject="o-1"), wait(subject="o-1")),
        (event("emit/order.paid"), wait(source=OWN)),
        (event("run/run_2"), wait(source=OWN)),
        (event(), wait(since_at=100)),
        (event(), wait(until_at=100)),
        (event(), wait(condition=condition(1))),
    ],
)
def test_an_event_that_fits_ends_a_wait(one: EventRow, of: WaitRow) -> None:
    assert Seen(one, "default").fits(of)


@pytest.mark.parametrize(
    ("one", "of"),
    [
        (event(type="order.lost"), wait()),
        (event(), wait(subject="o-1")),
        (event(subject="o-2"), wait(subject="o-1")),
        (event("github"), wait()),
        (event(), wait(source=OWN)),
        (event("emit/order.paid"), wait()),
        (event(), wait(since_at=101)),
        (event(), wait(until_at=99)),
        (event(), wait(condition=condition(2))),
        (event("start/order.paid"), wait(source="start/order.paid")),
    ],
)
def test_an_event_that_does_not_fit_ends_none(one: EventRow, of: WaitRow) -> None:
    assert not Seen(one, "default").fits(of)


def test_waits_are_looked_for_by_type_with_and_without_the_subject() -> None:
    events = [event(type="b"), event(type="a", subject="o-1"), event(type="a")]

    assert places_of(events) == [EventPlace("a", ANY), EventPlace("a", "o-1"), EventPlace("b", ANY)]


def test_what_a_batch_stored_is_what_a_wait_could_be_for() -> None:
    accepts = [Accept(event(event_id=str(number)), []) for number in range(3)]
    start = Accept(event("start/buy", "4"), [NewRun("run_9", "buy", 1)])
    emits = [Accept(event("run/run_1", str(number), type="emitted"), []) for number in (5, 6)]
    advances = [Advance("run_1", 1, 1, accepts=emits[:1]), Advance("run_2", 1, 1, accepts=emits[1:])]
    batch = Batch("b", accepts=[*accepts, start], advances=advances)
    fresh = Accepted(is_duplicate=False, is_clash=False, runs={})
    known = Accepted(is_duplicate=True, is_clash=False, runs={})
    refused = Accepted(is_duplicate=False, is_clash=False, runs={}, is_refused=True)

    stored = stored_events(batch, BatchResult([fresh, known, refused, fresh], [True, False], []))

    assert [key_of(one) for one in stored] == [("stripe", "0"), ("run/run_1", "5")]
    assert places_of_batch(batch) == [EventPlace("emitted", ANY), EventPlace("order.paid", ANY)]
    assert events_of([start]) == []


def test_events_are_ordered_by_when_they_came() -> None:
    events = [event(event_id="b"), event(event_id="a"), event("a", "z"), event(received_at=99)]

    assert [in_order(one)[2] for one in sorted(events, key=in_order)] == ["evt_1", "z", "a", "b"]


@pytest.mark.parametrize("label", [None, 0, "paid"])
@pytest.mark.parametrize("payload", ['{"n":1}', "null", None])
def test_what_was_taken_comes_back_whole(label: str | int | None, payload: str | None) -> None:
    row = event(payload=payload, subject="o-1", occurred_at=90)

    assert taken_of(taken_text(label, row)) == (label, row)
