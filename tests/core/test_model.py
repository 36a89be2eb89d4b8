"""Rows as values: what a fresh one stands for, and what people read of them."""

from __future__ import annotations

from typing import Any

import pytest

from onceward.core.model import (
    DeliveryRow,
    EventRow,
    NewRun,
    PromiseRow,
    RefusalRow,
    RunRow,
    Skip,
    SkippedRow,
    StepKey,
    StepRow,
    UnparsedRow,
    WaitRow,
)
from onceward.core.ports import Accept, Accepted
from onceward.core.rules import version_text
from onceward.core.states import PromiseState, RunState, StepState


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        (StepKey("charge", "", 1), "charge"),
        (StepKey("charge", "order-7", 1), "charge[order-7]"),
        (StepKey("charge", "", 2), "charge #2"),
        (StepKey("charge", "order-7", 3), "charge[order-7] #3"),
    ],
)
def test_a_step_is_named_with_its_item_and_from_the_second_use_on_its_number(
    key: StepKey, shown: str
) -> None:
    assert str(key) == shown


def test_every_row_of_a_step_knows_the_step() -> None:
    key = StepKey("paid", "o-1", 2)

    assert StepRow(*key, 9, "wait", StepState.OPEN, 1, 1).key == key
    assert WaitRow("run_1", 1, *key, 0, "order.paid", "", "stripe", 1).key == key
    assert PromiseRow("hash", "run_1", 1, *key, 1).key == key


def test_what_is_new_has_nothing_behind_it() -> None:
    run = RunRow("run_1", "buy", "stripe", "evt_1", 1)
    step = StepRow("charge", "", 1, 1, "run", StepState.DONE, 1, 1)

    assert (run.state, run.generation, run.attempt) == (RunState.QUEUED, 1, 1)
    assert (run.failures, run.crashes, run.fence, run.depth, run.replay_id) == (0, 0, 0, 0, "")
    assert (run.is_called, run.is_stale) == (False, False)
    assert (step.tries, step.key_scope) == (1, None)
    assert PromiseRow("hash", "run_1", 1, "ok", "", 1, 1).state is PromiseState.OPEN


def test_of_a_delivery_nothing_is_decided_and_of_a_refused_one_nothing_is_kept() -> None:
    delivery = DeliveryRow("del_1", "stripe", "evt_1", 100, "hash")

    assert (delivery.outcome, delivery.part, delivery.secret_index) == ("", 0, None)
    assert RefusalRow("stripe", "no signature", 1, 100, 100).samples == "[]"
    assert EventRow("stripe", "evt_1", "order.paid", None, 1).id_is_signed


def test_a_run_that_says_nothing_of_its_key_takes_none_and_returns_who_has_it() -> None:
    run = NewRun("run_1", "buy", 1)

    assert (run.key, run.once, run.clash, run.replay_id, run.depth) == (None, None, "return", "", 0)
    assert not any((run.is_called, run.is_claimed, run.drops_stale, run.is_stale))


@pytest.mark.parametrize(("sent_at", "skew_ms"), [(None, None), (90, 10), (110, -10)])
def test_a_clock_is_told_by_how_long_after_its_time_a_delivery_came(
    sent_at: int | None, skew_ms: int | None
) -> None:
    assert DeliveryRow("del_1", "stripe", "evt_1", 100, "hash", sent_at=sent_at).skew_ms == skew_ms
    unparsed = UnparsedRow("stripe", "hash", "del_1", 100, 500, 2, "no JSON", "{}", sent_at=sent_at)
    assert (unparsed.skew_ms, unparsed.outcome) == (skew_ms, "unparsed")


HELD = {"key": "o-1", "holder_run_id": "run_1"}


@pytest.mark.parametrize(
    ("reason", "more", "why"),
    [
        (Skip.RETURNED, HELD, "its key 'o-1' is held by run run_1: that run stands for this event, too"),
        (
            Skip.REJECTED,
            {**HELD, "is_other_payload": True},
            "its key 'o-1' is held by run run_1, for another payload: the event was turned away",
        ),
        (Skip.STALE, HELD, "its key 'o-1' is held by run run_1: stale"),
        (
            Skip.STALE,
            {"version": version_text(6), "newest": version_text(7)},
            "its version 6 is not newer than 7, which had been accepted",
        ),
        (Skip.STALE, {"version": version_text(6)}, "there is no run: stale"),
        (Skip.STALE, {"newest": version_text(6)}, "there is no run: stale"),
    ],
)
def test_it_is_said_why_an_event_has_no_run(reason: Skip, more: dict[str, Any], why: str) -> None:
    assert SkippedRow("buy", "stripe", "evt_1", reason, "run_2", 1, **more).why.startswith(why)


def test_a_caller_is_told_of_the_run_that_stands_for_its_event() -> None:
    def skipped(reason: Skip, holder: str | None) -> SkippedRow:
        return SkippedRow("buy", "stripe", "evt_1", reason, "run_9", 1, holder_run_id=holder)

    rows = {
        "mail": skipped(Skip.RETURNED, "run_2"),
        "ship": skipped(Skip.REJECTED, "run_3"),
        "bill": skipped(Skip.RETURNED, None),
    }
    accepted = Accepted(is_duplicate=False, is_clash=False, runs={"buy": "run_1"}, skipped=rows)

    assert accepted.answers() == {"buy": "run_1", "mail": "run_2"}
    assert accepted.runs == {"buy": "run_1"}
    assert not accepted.is_refused


def test_events_are_the_same_by_source_and_id() -> None:
    def accept(source: str, event_id: str) -> Accept:
        return Accept(EventRow(source, event_id, "order.paid", None, 1), [])

    one = accept("stripe", "evt_1")
    others = [accept("stripe", "evt_1"), accept("stripe", "evt_2"), accept("github", "evt_1")]

    assert [one.is_same_event(other) for other in others] == [True, False, False]
