"""How long what is over stays: whose values and rows are due, and when."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from onceward.core.errors import ConfigError, Pruned
from onceward.core.model import EventRow, NewRun, RunRow
from onceward.core.retention import (
    Due,
    Ended,
    Keep,
    Needed,
    Retention,
    Rules,
    SubjectPruned,
    What,
    due,
    for_workflow,
    need,
    refuse_pruned,
    refuse_without_payload,
    rules_of,
)
from onceward.core.retention import Pruned as PrunedPage
from onceward.core.states import RunState

DAY = 86_400_000
NOW = 1_750_000_000_000
KEEP = Keep(completed=3 * DAY, failed=5 * DAY, cancelled=None, values=4 * DAY)


def ended(state: RunState = RunState.COMPLETED, *, days: int = 0, ms: int = 0, **more: Any) -> Ended:
    values: dict[str, Any] = {"problem_at": None, "dismissed_at": None, "pruned_at": None, **more}
    at = values.pop("ended_at", NOW - days * DAY - ms)
    return Ended("run_1", values.pop("workflow", "buy"), state, at, **values)


def test_the_rows_of_each_end_have_their_time_and_values_never_stay_longer() -> None:
    assert [KEEP.rows_ms(state) for state in (RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED)] == [
        3 * DAY,
        5 * DAY,
        None,
    ]
    assert KEEP.rows_ms(RunState.HELD) is None
    assert KEEP.values_ms(RunState.COMPLETED) == 3 * DAY
    assert KEEP.values_ms(RunState.FAILED) == KEEP.values_ms(RunState.CANCELLED) == 4 * DAY
    assert Keep().values_ms(RunState.COMPLETED) is None
    assert (KEEP.shortest_ms, Keep(values=2).shortest_ms, Keep().shortest_ms) == (3 * DAY, 2, None)
    assert Keep(cancelled=1, failed=2).shortest_ms == 1


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (ended(days=3), Due.VALUES),
        (ended(days=3, ms=-1), None),
        (ended(days=3, pruned_at=NOW), Due.ROWS),
        (ended(days=3, ms=-1, pruned_at=NOW), None),
        (ended(RunState.FAILED, days=4, dismissed_at=NOW), Due.VALUES),
        (ended(RunState.FAILED, days=4, pruned_at=NOW, dismissed_at=NOW), None),
        (ended(RunState.FAILED, days=5, pruned_at=NOW, dismissed_at=NOW), Due.ROWS),
        (ended(RunState.FAILED, days=99, problem_at=1), None),
        (ended(RunState.CANCELLED, days=99), Due.VALUES),
        (ended(RunState.CANCELLED, days=99, pruned_at=NOW), None),
        (ended(RunState.RUNNING, days=99), None),
        (ended(RunState.COMPLETED, ended_at=None), None),
        (ended(days=99, workflow="other"), None),
    ],
)
def test_what_is_due_by_state_and_age(run: Ended, expected: Due | None) -> None:
    assert due(Rules(KEEP, {"other": Keep()}), run, NOW) is expected


def test_a_run_needs_what_it_has_until_it_is_over_and_no_open_problem() -> None:
    assert need(ended(RunState.WAITING)) is Needed.LIVE
    assert need(ended(ended_at=None)) is Needed.LIVE
    assert need(ended(RunState.FAILED, problem_at=1)) is Needed.PROBLEM
    assert need(ended(RunState.FAILED, problem_at=1, dismissed_at=2)) is None
    assert need(ended()) is None


def test_a_workflow_of_its_own_mind_has_its_own_rules() -> None:
    rules = Rules(KEEP, {"other": Keep(completed=1)})
    only = Rules(KEEP, {"other": Keep(completed=1)}, only="other")

    assert (rules.of("buy"), rules.of("other")) == (KEEP, Keep(completed=1))
    assert (only.of("buy"), only.of("other")) == (Keep(), Keep(completed=1))
    assert (rules.shortest_ms, Rules(KEEP).shortest_ms, Rules().shortest_ms) == (1, 3 * DAY, None)


def test_only_what_has_a_rule_is_looked_through_and_identity_last() -> None:
    everything = rules_of(Retention(*["1d"] * 8), {})

    assert everything.whats == list(What)
    assert Rules().whats == rules_of(None, {}).whats == []
    assert rules_of(Retention(completed="1d"), {}).whats == [What.RUNS, What.EVENTS]
    assert Rules(alone=1).whats == [What.EVENTS]
    for name in ("deliveries", "unparsed", "notices", "identity"):
        assert rules_of(Retention(**{name: "1d"}), {}).whats == [What(name)]


def test_lengths_are_read_where_they_are_written() -> None:
    retention = Retention("1d", "2d", "3d", "4d", "5d", "6d", "7d", "8d")
    rules = rules_of(retention, {"other": KEEP})

    assert retention.keep == Keep(1 * DAY, 2 * DAY, 3 * DAY, 4 * DAY)
    assert [rules.alone, rules.deliveries, rules.unparsed, rules.notices, rules.identity] == [
        4 * DAY,
        5 * DAY,
        6 * DAY,
        7 * DAY,
        8 * DAY,
    ]
    assert rules.of("other") == KEEP
    with pytest.raises(ConfigError, match="retention of notices"):
        Retention(notices="soon")


@pytest.mark.parametrize("name", ["deliveries", "unparsed", "notices", "identity"])
def test_a_workflow_has_no_rule_for_what_belongs_to_none(name: str) -> None:
    with pytest.raises(ConfigError, match=f"something about {name}"):
        for_workflow(Retention(**{name: "1d"}))
    assert for_workflow(Retention(completed="1d")) == Keep(DAY)


def test_a_call_that_found_nothing_counts_nothing_and_was_the_last() -> None:
    assert set(msgspec.to_builtins(PrunedPage()).items()) == {
        ("looked", 0),
        ("values", 0),
        ("rows", 0),
        ("next", None),
    }
    counts = msgspec.to_builtins(SubjectPruned())
    assert (counts.pop("kept"), counts.pop("next")) == ([], None)
    assert set(counts.values()) == {0}


def test_what_has_lost_its_values_does_not_run_again() -> None:
    run = RunRow("run_1", "buy", "stripe", "evt_1", NOW)
    event = EventRow("stripe", "evt_1", "order.paid", None, NOW)
    new = NewRun("run_2", "buy", NOW)

    refuse_pruned(run, "retry")
    refuse_without_payload(event, new, has_payload=True)
    refuse_without_payload(event, NewRun("run_2", "buy", NOW, input="1"), has_payload=False)
    with pytest.raises(Pruned, match="The retry of run run_1 was refused"):
        refuse_pruned(RunRow("run_1", "buy", "stripe", "evt_1", NOW, pruned_at=NOW), "retry")
    with pytest.raises(Pruned, match="payload of event 'evt_1' of source 'stripe'"):
        refuse_without_payload(event, new, has_payload=False)
