"""Plans as values: what is told of records that no engine test makes, and what a token stands for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from onceward.core import ids
from onceward.core.choice import NOTHING_KEPT, Choice, choice_of, copies_of, is_named, kept_rows
from onceward.core.effects import StepEffect, effect_of
from onceward.core.errors import ConfigError, StateConflict
from onceward.core.idempotency import composed_key
from onceward.core.model import RunRow, StepKey, StepRow
from onceward.core.plan import (
    Fate,
    Plan,
    check_acknowledged,
    detail_of,
    handed_key,
    make_plan,
    may_hide_steps,
    replayed_of,
    told_of,
)
from onceward.core.states import Effect, RunState, StepState, Verb
from onceward.core.steer import Reply, decide

NOW = 1_750_000_000_000


def run_row(state: RunState = RunState.COMPLETED, **changes: Any) -> RunRow:
    values: dict[str, Any] = {"run_id": "run_1", "event_id": "evt", "started_at": NOW, "fence": 3, **changes}
    return RunRow(workflow="buy", source="start/buy", created_at=NOW, state=state, **values)


def step(name: str, seq: int, state: StepState = StepState.DONE, **changes: Any) -> StepRow:
    values: dict[str, Any] = {"item": "", "ordinal": 1, "kind": "run", "attempt": 1, "started_at": NOW}
    return StepRow(name=name, seq=seq, state=state, **{**values, **changes})


def plan_of(
    run: RunRow,
    rows: list[StepRow],
    choice: Choice = NOTHING_KEPT,
    *,
    now: int = NOW,
    children: Sequence[RunRow] = (),
    **more: Any,
) -> Plan:
    kept = kept_rows(run.run_id, rows, choice, is_for_replay=False)
    reply = decide(Verb.RESTART, run, now=now, actor="a", audit_id="x", copies=kept).reply
    return make_plan(
        Verb.RESTART,
        run,
        rows,
        reply=reply,
        reopened=(),
        kept={row.key for row in kept},
        children=children,
        choice=choice,
        now=now,
        namespace="default",
        **more,
    )


@pytest.mark.parametrize("kind", ["run", "emit", "start", "call", "undo", "of a newer Onceward"])
def test_what_may_reach_others_is_outside(kind: str) -> None:
    assert effect_of(kind, None) is StepEffect.OUTSIDE


def test_what_undid_something_does_not_run_again_by_itself() -> None:
    plan = plan_of(run_row(), [step("charge", 1, StepState.DONE), step("charge (undo)", 2, kind="undo")])

    assert [one.step for one in plan.steps] == ["charge"]


def test_what_a_record_says_wins_and_an_unknown_word_is_outside() -> None:
    assert effect_of("uuid", None) is effect_of("run", "pure") is StepEffect.PURE
    assert effect_of("transaction", None) is StepEffect.OWN_DATABASE
    assert effect_of("uuid", "galactic") is StepEffect.OUTSIDE


@pytest.mark.parametrize("state", list(StepState))
def test_every_record_of_an_outside_step_counts_whatever_its_state(state: StepState) -> None:
    """Open, cut and cancelled ones may have had their effect as well."""
    plan = plan_of(run_row(), [step("charge", 1, state)])

    assert (plan.outside_again, plan.needs_consent) == (["charge"], True)


@pytest.mark.parametrize(
    ("run", "hides"),
    [
        (run_row(RunState.RUNNING), True),
        (run_row(RunState.QUEUED), True),
        (run_row(RunState.QUEUED, started_at=None), False),
        (run_row(RunState.HELD, crashes=4), True),
        (run_row(RunState.SLEEPING), False),
        (run_row(RunState.SLEEPING, crashes=1), True),
        (run_row(RunState.COMPLETED), False),
        (run_row(RunState.FAILED, error='{"type":"ValueError"}'), False),
        (run_row(RunState.FAILED, error='{"type":"onceward.DeadlineExceeded"}'), True),
        (run_row(RunState.FAILED, error="damaged"), False),
        (run_row(RunState.FAILED, error="[]"), False),
        (run_row(RunState.FAILED, error=None), False),
        (run_row(RunState.CANCELLED), False),
    ],
)
def test_a_step_under_way_without_a_record_is_not_forgotten(run: RunRow, hides: bool) -> None:
    assert may_hide_steps(run) is hides
    assert plan_of(run, []).needs_consent is hides


@pytest.mark.parametrize(
    ("fates", "said"),
    [
        ({}, "A step may have begun"),
        ({StepKey("charge", "", 1): Fate.KEPT}, "Another step than those above may"),
    ],
)
def test_a_step_without_a_record_is_another_than_those_that_are_answered(
    fates: dict[StepKey, Fate], said: str
) -> None:
    plan = plan_of(run_row(RunState.RUNNING), [step("charge", 1)], fates=fates)

    assert plan.hides_steps
    assert plan.warnings[0].startswith(said)


@pytest.mark.parametrize(
    ("state", "fates"),
    [
        (RunState.QUEUED, [Fate.GOES_ON, Fate.REOPENED, Fate.KEPT, Fate.KEPT]),
        (RunState.FAILED, [Fate.STOPS, Fate.REOPENED, Fate.KEPT, Fate.KEPT]),
    ],
)
def test_a_step_under_way_goes_on_or_stops_with_the_run(state: RunState, fates: list[Fate]) -> None:
    rows = [
        step("wait", 1, StepState.OPEN),
        step("charge", 2, StepState.FAILED),
        step("mail", 3),
        step("mail (undo)", 4, kind="undo"),
    ]
    run = run_row(RunState.HELD)

    plan = make_plan(
        Verb.ANSWER,
        run,
        rows,
        reply=Reply(run.run_id, Effect.GO_ON, "answered", state, 1, 1),
        reopened={rows[1].key},
        kept=(),
        children=(),
        choice=NOTHING_KEPT,
        now=NOW,
        namespace="default",
    )

    assert [one.fate for one in plan.steps] == fates
    assert plan.hides_steps is (state is RunState.QUEUED)
    assert not plan.needs_consent


def test_a_forgotten_key_is_warned_of_only_where_it_stays_the_same() -> None:
    hour = 3_600_000
    rows = [
        step("charge", 1, key_scope="business", key_memory_ms=hour),
        step("mail", 2, key_memory_ms=hour),
    ]

    fresh, late = (plan_of(run_row(), rows, now=NOW + after) for after in (hour, hour + 1))

    assert [one.is_key_known for one in fresh.steps] == [True, True]
    assert [one.is_key_known for one in late.steps] == [False, False]
    assert fresh.warnings == []
    (warning,) = late.warnings
    assert warning.startswith("The key of 'charge' stays the same")
    assert fresh.token != late.token


def test_a_key_of_the_business_is_the_same_in_every_run_of_the_event() -> None:
    rows = [step("charge", 1, key_scope="business"), step("mail", 2)]

    first, again = (plan_of(run_row(run_id=run_id), rows).steps for run_id in ("run_1", "run_2"))
    other = plan_of(run_row(event_id="evt_2"), rows).steps

    assert [one.keeps_key for one in first] == [True, False]
    assert [one.keeps_key for one in plan_of(run_row(), rows, Choice(keep=("charge",))).steps] == [
        None,
        False,
    ]
    assert [one.keeps_key for one in plan_of(run_row(), [step("call", 1, kind="call")]).steps] == [None]
    assert first[0].key == again[0].key != other[0].key
    parts = ("business", "default", "buy", "event", "start/buy", "evt", "charge", "", 1)
    assert first[0].key == composed_key(*parts), "the key that the step itself hands out"
    assert first[1].key != again[1].key


def test_it_is_said_when_what_is_kept_was_saved_after_what_runs_again() -> None:
    rows = [step("book", 1), step("charge", 2), step("mail", 3)]

    def said(*kept: str) -> list[str]:
        return plan_of(run_row(), rows, Choice(keep=kept)).warnings

    assert said("book", "charge") == []
    (warning,) = said("book", "mail")
    assert warning.startswith("'mail' would be kept though 'charge', saved before, runs again")


def test_it_is_said_when_a_failure_or_what_an_old_payload_made_is_kept() -> None:
    rows = [step("book", 1, StepState.FAILED), step("charge", 2), step("mail", 3)]

    def said(*kept: str, **more: Any) -> str:
        return " ".join(plan_of(run_row(), rows, Choice(keep=kept), **more).warnings)

    assert "The failure of 'book' is kept" in said("book", "charge")
    assert "The failure of" not in said("charge")
    assert "The failure of" not in said("book", "charge", "mail")
    assert "made of the old payload" in said("charge", input_hash="other")
    assert "made of the old payload" not in said("charge") + said(input_hash="other")


def test_the_key_of_a_copy_is_that_of_where_it_was_saved() -> None:
    rows = [step("charge", 1)]
    own = plan_of(run_row(), rows).steps[0].key
    (copy,) = copies_of(run_row(), rows)
    assert copy.origin == ids.composed("run_1", 1)

    assert plan_of(run_row(generation=2), [copy]).steps[0].key == own
    assert copies_of(run_row(generation=2), [copy]) == [copy]
    unreadable = msgspec.structs.replace(copy, origin="by hand")
    assert plan_of(run_row(generation=2), [unreadable]).steps[0].key is None


def test_names_of_steps() -> None:
    key = StepKey("ship", "a", 1)
    assert [is_named(text, key) for text in ("ship", "ship[a]", "ship[a] #1", "ship[a] #2", "shi")] == [
        True,
        True,
        True,
        False,
        False,
    ]
    assert not is_named("ship #1", StepKey("ship", "", 2))


def test_kept_rows_by_choice() -> None:
    states = [StepState.DONE, StepState.FAILED, StepState.DONE, StepState.OPEN, StepState.DONE]
    rows = [step(name, seq, state) for seq, (name, state) in enumerate(zip("abcde", states, strict=True))]

    def names(*choice: Any) -> str:
        return "".join(row.name for row in kept_rows("run_1", rows, choice_of(*choice), is_for_replay=False))

    assert names(None, None, None) == ""
    assert names(None, (), None) == ""
    assert names(None, None, ()) == "ace"
    assert names(None, None, "c") == "ae"
    assert names(None, ["b", "a"], None) == "ab"
    assert names(None, "b", "b") == ""
    assert names("c", None, None) == "a"
    assert names("d", "e", "a") == "ce"
    with pytest.raises(ConfigError, match="no outcome"):
        names(None, "d", None)
    with pytest.raises(ConfigError, match="has no step 'x'"):
        names(None, None, "x")


def replayed(rows: list[StepRow], *choice: Any) -> list[str]:
    kept = kept_rows("run_1", rows, choice_of(*choice), is_for_replay=True)
    return [str(row.key) for row in kept]


@pytest.mark.parametrize(
    ("results", "kept"),
    [
        ([step("ok result", 3, kind="promise")], ["book", "ok", "ok result"]),
        ([step("ok result", 3, StepState.FAILED, kind="promise")], ["book", "ok"]),
        ([step("ok result", 3, StepState.OPEN, kind="promise")], ["book"]),
        ([step("ok result", 3, kind="wait")], ["book", "ok result"]),
        ([], ["book"]),
    ],
)
def test_a_replay_makes_a_promise_anew_that_can_still_be_completed_for_the_run(
    results: list[StepRow], kept: list[str]
) -> None:
    rows = [step("book", 1), step("ok", 2, kind="promise"), *results]

    assert replayed(rows, None, None, ()) == kept
    assert "ok" in [
        row.name for row in kept_rows("run_1", rows, choice_of(None, None, ()), is_for_replay=False)
    ]
    if "ok" not in kept:
        with pytest.raises(ConfigError, match=r"Step 'ok' of run run_1 has no outcome.*promise to that run"):
            replayed(rows, None, "ok", None)


def test_where_steps_were_undone_no_record_is_kept() -> None:
    rows = [step("charge", 1), step("charge (undo)", 2, kind="undo")]

    assert replayed(rows, None, None, None) == []
    for choice in ((None, "charge", None), (None, None, ()), ("charge", None, None)):
        with pytest.raises(StateConflict, match="Steps of run run_1 were undone"):
            replayed(rows, *choice)


@pytest.mark.parametrize("choice", [(7, None, None), (None, [7], None), (None, None, 7)])
def test_a_step_is_chosen_by_a_text(choice: tuple[Any, Any, Any]) -> None:
    with pytest.raises(ConfigError, match="The name of a step 7 is no text"):
        choice_of(*choice)


@pytest.mark.parametrize(("count", "said"), [(0, "are: none."), (20, "'s19'."), (21, "'s19'.")])
def test_a_name_that_is_none_is_answered_with_the_first_twenty_steps(count: int, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        replayed([step(f"s{number}", number) for number in range(count)], None, "x", None)
    assert refused.value.todo.endswith(said)


@pytest.mark.parametrize(
    ("row", "key"),
    [
        (step("charge", 1), ("run_1", 4, "charge", "", 1)),
        (step("charge (undo)", 1, kind="undo"), ("run_1", 4, "charge (undo)", "", 1)),
        (step("charge", 1, origin=ids.composed("run_0", 2)), ("run_0", 2, "charge", "", 1)),
        (
            step("charge", 1, key_scope="business"),
            ("business", "default", "buy", "event", "start/buy", "evt", "charge", "", 1),
        ),
        (step("charge", 1, origin="by hand"), None),
        (step("undo everything", 1, kind="undo"), None),
        (step("undo everything", 1), ("run_1", 4, "undo everything", "", 1)),
        (step("nap", 1, kind="sleep"), None),
    ],
    ids=range(8),
)
def test_a_key_that_was_handed_out_can_be_told_from_the_record(
    row: StepRow, key: tuple[Any, ...] | None
) -> None:
    assert handed_key(row, run_row(), 4, "default") == (None if key is None else composed_key(*key))


def child_row(run_id: str, state: RunState = RunState.RUNNING, *, called: bool = True) -> RunRow:
    return run_row(state, run_id=run_id, is_called=called)


@pytest.mark.parametrize(
    ("verb", "effect", "fates"),
    [
        (Verb.RESTART, Effect.NEW_GENERATION, {"a": "cancelled", "b": "stays", "c": "cancelled"}),
        (Verb.REPLAY, Effect.NEW_RUN, {"a": "stays", "b": "stays", "c": "stays"}),
        (Verb.RETRY, Effect.NEW_ATTEMPT, {"c": "retried", "d": "retried"}),
    ],
)
def test_of_the_runs_that_a_run_made_it_is_told_what_becomes(
    verb: Verb, effect: Effect, fates: dict[str, str]
) -> None:
    rows = [
        step("call a", 1, StepState.OPEN, kind="call", child_run_id="a"),
        step("start b", 2, kind="start", child_run_id="b"),
        step("call c", 3, StepState.FAILED, kind="call", child_run_id="c"),
        step("call d", 4, StepState.FAILED, kind="call", child_run_id="d"),
    ]
    children = [child_row("a"), child_row("b", called=False), child_row("c"), child_row("d", RunState.FAILED)]

    plan = make_plan(
        verb,
        run_row(RunState.FAILED),
        rows,
        reply=Reply("run_1", effect, "", RunState.QUEUED, 1, 1),
        reopened={row.key for row in rows[2:]},
        kept=(),
        children=children,
        choice=NOTHING_KEPT,
        now=NOW,
        namespace="default",
    )

    assert {one.run_id: str(one.fate) for one in plan.children} == fates
    assert any("What was started goes on" in said for said in plan.warnings) is ("stays" in fates.values())


def test_a_call_that_is_reopened_retries_its_run_and_the_copy_of_one_calls_anew() -> None:
    origin = ids.composed("run_0", 1)
    rows = [
        step("own", 1, StepState.FAILED, kind="call", child_run_id="a"),
        step("copy", 2, StepState.FAILED, kind="call", child_run_id="b", origin=origin),
        step("kept copy", 3, StepState.FAILED, kind="call", child_run_id="c", origin=origin),
    ]

    plan = make_plan(
        Verb.RETRY,
        run_row(RunState.FAILED),
        rows,
        reply=Reply("run_1", Effect.NEW_ATTEMPT, "", RunState.QUEUED, 1, 1),
        reopened={row.key for row in rows[:2]},
        kept=(),
        children=[child_row(name, RunState.FAILED) for name in "abc"],
        choice=NOTHING_KEPT,
        now=NOW,
        namespace="default",
    )

    assert [one.happens_again for one in plan.steps] == [False, True, False]
    assert [(one.run_id, str(one.fate)) for one in plan.children] == [("a", "retried")]


def test_what_makes_runs_is_said_to_make_them_again() -> None:
    rows = [step(kind, number, kind=kind) for number, kind in enumerate(("emit", "start", "call", "run"))]

    said = plan_of(run_row(), rows).warnings

    assert said == [
        "'emit' emits its event again.",
        "'start' starts its run again.",
        "'call' calls its run again.",
    ]
    assert plan_of(run_row(), rows, Choice(keep=("emit", "start", "call"))).warnings == []


def test_a_token_stands_for_one_plan_only() -> None:
    rows = [step("charge", 1), step("mail", 2)]
    plans = [
        plan_of(run_row(), rows),
        plan_of(run_row(fence=4), rows),
        plan_of(run_row(generation=2), rows),
        plan_of(run_row(RunState.FAILED), rows),
        plan_of(run_row(), rows[:1]),
        plan_of(run_row(), [rows[0], step("mail", 2, effect="pure")]),
        plan_of(run_row(), rows, Choice(keep=("mail",))),
        plan_of(run_row(), rows, input_hash="other"),
    ]

    assert len({plan.token for plan in plans}) == len(plans)
    for given in plans:
        for plan in plans:
            if given is plan:
                check_acknowledged(given.token, plan)
                continue
            for form in (given, given.token):
                with pytest.raises(StateConflict, match="Make a new plan"):
                    check_acknowledged(form, plan)


def test_a_plan_is_told_in_lines_that_say_what_happens_again_outside() -> None:
    rows = [step("book", 1), step("charge", 2), step("note", 3, kind="transaction")]
    child = run_row(RunState.RUNNING, run_id="run_2", is_called=True)

    told = str(plan_of(run_row(), rows, Choice(keep=("book", "note")), children=(child,)))

    assert told.splitlines()[1:] == [
        "  book    kept        outside",
        "  charge  runs again  outside AGAIN",
        "  note    kept        own database",
        "  run run_2 of 'buy' (running): cancelled",
        "  ! 'note' would be kept though 'charge', saved before, runs again: "
        "what is kept may not fit what comes of it.",
    ]


def test_the_plan_of_another_run_is_none() -> None:
    mine, theirs = (plan_of(msgspec.structs.replace(run_row(), run_id=name), []) for name in ("a", "b"))

    with pytest.raises(StateConflict, match="it is of run b"):
        check_acknowledged(theirs, mine)


def test_what_has_changed_since_a_plan_is_told() -> None:
    rows = [step("book", 1), step("charge", 2)]
    child = run_row(RunState.RUNNING, run_id="run_2")
    old = plan_of(run_row(), rows)

    def said(plan: Plan) -> str:
        with pytest.raises(StateConflict) as refused:
            check_acknowledged(old, plan)
        return str(refused.value)

    assert "saved since: 'mail'" in said(plan_of(run_row(), [*rows, step("mail", 3)]))
    assert "gone: 'charge'" in said(plan_of(run_row(), rows[:1]))
    assert "changed: 'charge'" in said(plan_of(run_row(), [rows[0], step("charge", 2, effect="pure")]))
    assert "something else is to be kept" in said(plan_of(run_row(), rows, Choice(keep=("book",))))
    assert "its called or started runs" in said(plan_of(run_row(), rows, children=(child,)))
    assert "its called or started runs" not in said(plan_of(run_row(), rows[:1]))


def test_what_an_audit_keeps_of_a_restart_comes_back() -> None:
    choice = Choice("book", ("mail",), ())
    assert told_of(detail_of(choice, "token", "r-1")) == ("r-1", choice)
    assert detail_of(NOTHING_KEPT, None, None) is None
    assert replayed_of(detail_of(choice, None, "r-1", replay_of="run_1")) == "run_1"
    assert replayed_of(None) is replayed_of("by hand") is replayed_of("[]") is None
    assert told_of(None) == told_of("by hand") == told_of("[]") == (None, NOTHING_KEPT)
