"""What a source gives of a delivery: what is wrong with it, and what its sender is told."""

from __future__ import annotations

from typing import Any

import pytest

from onceward.core.arrival import EVENTS_MAX, Accepted, AcceptedEvent, Incoming, fault_of


def incoming(**more: Any) -> Incoming:
    return Incoming(**{"id": "evt_1", "type": "order.paid", "payload": {}, **more})


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"id": "x" * 255},
        {"type": "x" * 255},
        {"subject": ""},
        {"subject": "x" * 500},
        {"occurred_at_ms": 2**63 - 1},
        {"version": -(2**63)},
    ],
)
def test_an_event_that_can_be_stored_has_no_fault(more: dict[str, Any]) -> None:
    assert fault_of([incoming(**more)]) is None
    assert fault_of((incoming(),) * EVENTS_MAX) is None
    assert fault_of([]) is None


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        (None, "gave NoneType, not a list"),
        ([incoming()] * (EVENTS_MAX + 1), "gave 5001 events, more than 5000"),
        ([incoming(), {}], "gave dict in its list"),
        ([incoming(id="")], "whose id is not"),
        ([incoming(id="x" * 256)], "whose id is not"),
        ([incoming(id="a\0")], "whose id is not"),
        ([incoming(type="")], "whose type is not"),
        ([incoming(type="x" * 256)], "whose type is not"),
        ([incoming(subject="x" * 501)], "whose subject is not"),
        ([incoming(subject=7)], "whose subject is not"),
        ([incoming(occurred_at_ms=2**63)], "whose occurred_at_ms is not"),
        ([incoming(occurred_at_ms=True)], "whose occurred_at_ms is not"),
        ([incoming(version=-(2**63) - 1)], "whose version is not"),
        ([incoming(version=1.0)], "whose version is not"),
    ],
    ids=range(14),
)
def test_what_a_store_could_not_keep_is_noticed_before_it(given: object, fault: str) -> None:
    assert fault in (fault_of(given) or "")


def test_a_delivery_is_a_duplicate_only_when_all_of_it_was_there() -> None:
    old, new = AcceptedEvent("evt_1", True, ["run_1"]), AcceptedEvent("evt_2", False, [])

    outcomes = [Accepted(events).outcome for events in ([old], [old, old], [old, new], [new], [])]

    assert outcomes == ["duplicate", "duplicate", "accepted", "accepted", "accepted"]
