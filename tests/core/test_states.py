"""The table of states: complete, closed, the same in the schema, and what ``decide`` does."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward.core import credentials, errors, plan, retention
from onceward.core.effects import StepEffect
from onceward.core.model import Millis, RunRow, Skip, StepRow
from onceward.core.states import (
    MEANING,
    MOVES,
    OPEN_PROBLEM,
    TABLE,
    TERMINAL,
    Effect,
    Move,
    NoticeState,
    PromiseState,
    RunState,
    StepState,
    Verb,
)
from onceward.core.steer import ANSWERS, Decision, decide
from onceward.core.takeover import CRASH_LIMIT, SUSPECT_FROM, lost_run
from onceward.stores.statements import SQLITE_MACROS, postgres_macros, read_sql, render
from onceward.testing.invariants import COLUMNS

S = RunState
NOW: Millis = 1_750_000_000_000
CELLS = list(itertools.product(RunState, Verb))

# What every verb does in each state, written out a second time: a change of the table is a
# change of the contract and has to be made here as well (RULINGS 19 to 25).
EXPECTED = """
              retry          restart         replay   cancel        answer   dismiss
queued        join           new generation  new run  cancel now    refuse   refuse
running       join           new generation  new run  begin cancel  refuse   refuse
sleeping      join           new generation  new run  begin cancel  refuse   refuse
waiting       join           new generation  new run  begin cancel  refuse   refuse
backoff       bring forward  new generation  new run  begin cancel  refuse   refuse
cancelling    refuse         refuse          new run  join          refuse   refuse
held          refuse         new generation  new run  begin cancel  go on    refuse
completed     refuse         new generation  new run  nothing       refuse   refuse
failed        new attempt    new generation  new run  nothing       refuse   take off list
cancelled     refuse         new generation  new run  join          refuse   refuse
"""

BECOMES = {
    Effect.NEW_ATTEMPT: S.QUEUED,
    Effect.BRING_FORWARD: S.QUEUED,
    Effect.NEW_GENERATION: S.QUEUED,
    Effect.BEGIN_CANCEL: S.CANCELLING,
    Effect.CANCEL_NOW: S.CANCELLED,
    Effect.GO_ON: S.QUEUED,
    Effect.TAKE_OFF_LIST: S.FAILED,
}
"""The state after a verb that changes one."""


def _run(state: RunState, **changes: object) -> RunRow:
    """Give a run as it stands in a state, its columns as that state wants them."""
    run = RunRow("run_1", "fulfil", "stripe", "evt_1", NOW, state=state, fence=1, started_at=NOW)
    if state is S.QUEUED:
        run.fence, run.started_at = 0, None
    if state in TERMINAL:
        run.ended_at = NOW
    if state in OPEN_PROBLEM:
        run.problem_at, run.reason, run.error = NOW, "a person must look", '{"type":"Declined"}'
    if state is S.COMPLETED:
        run.output = "1"
    for name, value in changes.items():
        setattr(run, name, value)
    return run


def _decided(verb: Verb, run: RunRow, *, answer: str = "retry") -> Decision:
    return decide(verb, run, now=NOW + 5, actor="ada", audit_id="aud_1", answer=answer)


# --- the table ------------------------------------------------------------------------------------


def test_every_state_and_verb_has_a_cell_with_a_reply() -> None:
    assert set(TABLE) == set(CELLS)
    for (state, verb), cell in TABLE.items():
        assert cell.reply, (state, verb)
        assert cell.reply[0].islower(), "replies are parts of sentences"
        if cell.effect is Effect.REFUSE:
            assert cell.reply.startswith("the run "), "first how it stands, then what to do"
            assert cell.hint, f"{verb} in {state} refuses and says not what to do"
        else:
            assert not cell.hint, "there is nothing left to do"


def test_the_table_is_the_one_that_was_agreed() -> None:
    header, *lines = [re.split(r"\s{2,}", line.strip()) for line in EXPECTED.strip().splitlines()]
    assert header == [verb.value for verb in Verb]
    found = {line[0]: line[1:] for line in lines}
    assert found == {state.value: [TABLE[state, verb].effect.value for verb in Verb] for state in RunState}


def test_every_state_has_a_meaning_and_columns() -> None:
    assert set(MEANING) == set(RunState)
    assert all(text.endswith(".") for text in MEANING.values())
    assert set(COLUMNS) == set(RunState)


@pytest.mark.parametrize(
    ("state", "verb", "reply"),
    [
        (S.HELD, Verb.ANSWER, "answered"),
        (S.FAILED, Verb.DISMISS, "dismissed"),
        (S.QUEUED, Verb.CANCEL, "cancelled before it began"),
        (S.FAILED, Verb.CANCEL, "already ended: failed"),
        (S.COMPLETED, Verb.CANCEL, "already ended: completed"),
        (S.CANCELLED, Verb.CANCEL, "already cancelled"),
    ],
)
def test_a_verb_says_what_it_did(state: RunState, verb: Verb, reply: str) -> None:
    assert TABLE[state, verb].reply == reply


@pytest.mark.parametrize(
    ("kinds", "words"),
    [
        (StepState, "open done failed cancelled cut"),
        (PromiseState, "open completed failed expired"),
        (NoticeState, "owed told given_up"),
        (Skip, "stale returned rejected"),
        (credentials.Kind, "user token link"),
        (StepEffect, "pure own_database outside"),
        (retention.Needed, "live problem family waits taken"),
        (plan.Fate, "kept runs_again reopened goes_on stops"),
        (plan.ChildFate, "cancelled retried stays"),
    ],
)
def test_rows_and_callers_have_words_that_stay(kinds: Iterable[str], words: str) -> None:
    """A row of an earlier release, or a program that asks the API, knows no others."""
    assert [str(word).replace(" ", "_") for word in kinds] == words.split()


def test_every_effect_is_used() -> None:
    assert {cell.effect for cell in TABLE.values()} == set(Effect)


def test_every_verb_is_of_use_somewhere() -> None:
    for verb in Verb:
        assert any(TABLE[state, verb].effect is not Effect.REFUSE for state in RunState), verb


def test_every_open_problem_has_a_verb_that_takes_it_off_the_list() -> None:
    effects = {state: {TABLE[state, verb].effect for verb in Verb} for state in OPEN_PROBLEM}
    assert Effect.TAKE_OFF_LIST in effects[S.FAILED]
    assert Effect.GO_ON in effects[S.HELD]


# --- what decide makes of a cell -------------------------------------------------------------------


@pytest.mark.parametrize(("state", "verb"), [cell for cell in CELLS if cell[1] is not Verb.REPLAY])
def test_decide_does_what_the_cell_says(state: RunState, verb: Verb) -> None:
    run, cell = _run(state), TABLE[state, verb]
    if cell.effect is Effect.REFUSE:
        with pytest.raises(errors.StateConflict) as refused:
            _decided(verb, run)
        assert cell.reply in str(refused.value)
        assert run.run_id in str(refused.value)
        return

    decision = _decided(verb, run)

    assert decision.reply.effect is cell.effect
    assert decision.reply.text.startswith(cell.reply)
    if cell.effect in (Effect.JOIN, Effect.NOTHING):
        assert decision.steer is None
        assert decision.reply.state is state
        return
    steer = decision.steer
    assert steer is not None
    assert steer.move.state is decision.reply.state is BECOMES[cell.effect]
    assert (steer.expected_state, steer.expected_generation, steer.expected_fence) == (state, 1, run.fence)
    assert (steer.audit.verb, steer.audit.actor, steer.audit.run_id) == (verb.value, "ada", "run_1")


@pytest.mark.parametrize(("state", "verb"), CELLS)
def test_a_verb_leaves_columns_that_fit_the_new_state(state: RunState, verb: Verb) -> None:
    if verb is Verb.REPLAY or TABLE[state, verb].effect is Effect.REFUSE:
        return
    decision = _decided(verb, _run(state))
    if decision.steer is None:
        return
    move = decision.steer.move

    shape = COLUMNS[move.state]
    assert all(getattr(move, column) is not None for column in shape.filled)
    assert all(getattr(move, column) is None for column in shape.empty)
    is_off_queue = move.state in TERMINAL or move.state is S.HELD
    assert is_off_queue or move.due_at == NOW + 5, "whoever is steered is due at once"


@pytest.mark.parametrize("state", RunState)
def test_leaving_a_terminal_state_adds_an_attempt_or_a_generation(state: RunState) -> None:
    for verb in Verb:
        if state not in TERMINAL or verb is Verb.REPLAY or TABLE[state, verb].effect is Effect.REFUSE:
            continue
        run = _run(state)
        decision = _decided(verb, run)
        if decision.steer is None or decision.steer.move.state is state:
            continue
        move = decision.steer.move
        assert (move.generation, move.attempt) > (run.generation, run.attempt)


def test_a_queued_run_that_ran_before_is_cancelled_with_its_clean_up() -> None:
    for again in (
        _run(S.QUEUED, started_at=NOW, fence=1),
        _run(S.QUEUED, attempt=2),
        _run(S.QUEUED, generation=2),
    ):
        assert _decided(Verb.CANCEL, again).reply.effect is Effect.BEGIN_CANCEL
    assert _decided(Verb.CANCEL, _run(S.QUEUED)).reply.effect is Effect.CANCEL_NOW


def test_dismissing_twice_joins() -> None:
    decision = _decided(Verb.DISMISS, _run(S.FAILED, dismissed_at=NOW))

    assert (decision.reply.effect, decision.steer) == (Effect.JOIN, None)


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_answer_logs_the_attempt_that_it_ends(answer: str) -> None:
    steer = _decided(Verb.ANSWER, _run(S.HELD, attempt=3), answer=answer).steer

    assert steer is not None
    assert steer.move.log is not None, "the next attempt would leave a gap"
    assert steer.move.log.attempt == 3


def test_an_answer_that_there_is_not_changes_nothing() -> None:
    with pytest.raises(errors.ConfigError, match="'maybe'"):
        _decided(Verb.ANSWER, _run(S.HELD), answer="maybe")


def test_an_end_by_a_verb_wakes_the_parent_that_waits() -> None:
    child = _run(S.QUEUED, parent_run_id="run_0", is_called=True)
    detached = _run(S.QUEUED, parent_run_id="run_0", is_called=False)

    for run, woken in ((child, "run_0"), (detached, None)):
        steer = _decided(Verb.CANCEL, run).steer
        assert steer is not None
        assert steer.move.wakes_run_id == woken


# --- moves from inside -----------------------------------------------------------------------------


def test_moves_leave_only_states_that_are_not_terminal() -> None:
    assert all(state not in TERMINAL and state is not S.HELD for state, _ in MOVES)
    assert {move for _, move in MOVES} == set(Move)


def test_every_state_that_is_not_terminal_has_a_way_on() -> None:
    for state in RunState:
        inside = any(source is state for source, _ in MOVES)
        outside = any(TABLE[state, verb].effect in BECOMES for verb in Verb)
        assert inside or (outside and state in TERMINAL | {S.HELD}), state


def test_a_claim_is_the_only_way_into_running() -> None:
    into = {move for (_, move), becomes in MOVES.items() if becomes is S.RUNNING}
    assert into == {Move.CLAIM}


def test_a_cancelled_run_never_comes_back_by_itself() -> None:
    for (state, move), becomes in MOVES.items():
        if state is S.CANCELLING:
            assert becomes in (S.CANCELLING, S.CANCELLED, S.HELD), move


def test_every_state_is_reached_from_a_new_run() -> None:
    seen, todo = {S.QUEUED}, [S.QUEUED]
    while todo:
        state = todo.pop()
        following = {becomes for (source, _), becomes in MOVES.items() if source is state}
        following |= {
            BECOMES[TABLE[state, verb].effect] for verb in Verb if TABLE[state, verb].effect in BECOMES
        }
        todo += following - seen
        seen |= following
    assert seen == set(RunState)


def test_from_every_state_an_end_can_be_reached_from_inside_or_by_a_verb() -> None:
    reaches = set(TERMINAL)
    for _ in RunState:
        reaches |= {source for (source, _), becomes in MOVES.items() if becomes in reaches}
        reaches |= {
            state for state, verb in CELLS if BECOMES.get(TABLE[state, verb].effect, state) in reaches
        }
    assert reaches == set(RunState)


# --- random walks ----------------------------------------------------------------------------------


def _apply(run: RunRow, move: Move) -> None:
    """Do to a row what the engine does for a move."""
    run.state = MOVES[run.state, move]
    if move is Move.CLAIM:
        run.fence += 1
        run.started_at = run.started_at or NOW
    if move is Move.BACK_OFF:
        run.attempt += 1
    if move is Move.TAKE_OVER:
        run.attempt += 1
        run.fence += 1
    run.ended_at = NOW if run.state in TERMINAL else None
    run.problem_at = NOW if run.state in OPEN_PROBLEM else None
    run.reason = "a reason" if run.state is S.HELD else None
    run.error = "{}" if run.state is S.FAILED else None
    run.output = "1" if run.state is S.COMPLETED else None


@given(st.lists(st.integers(0, 10_000), max_size=60), st.sampled_from(ANSWERS))
def test_a_random_walk_stays_in_the_table_and_its_numbers_only_grow(draws: list[int], answer: str) -> None:
    """Each draw picks one of the moves and verbs that apply where the run stands."""
    run, audits = _run(S.QUEUED), 0
    ended: set[tuple[int, int]] = set()  # attempts that have a record of their end
    for draw in draws:
        moves = [move for state, move in MOVES if state is run.state]
        verbs = [verb for verb in Verb if TABLE[run.state, verb].effect in BECOMES]
        choices: list[Move | Verb] = [*moves, *verbs]
        action = choices[draw % len(choices)]
        life, fence, state = (run.generation, run.attempt), run.fence, run.state
        if isinstance(action, Move):
            if action in (Move.BACK_OFF, Move.FAIL, Move.TAKE_OVER):
                ended.add(life)
            _apply(run, action)
        else:
            steer = _decided(action, run, answer=answer).steer
            if steer is None:
                continue
            audits += 1
            if steer.move.log is not None:
                ended.add(life)
            for field in set(steer.move.__struct_fields__) & set(run.__struct_fields__):
                setattr(run, field, getattr(steer.move, field))
            run.fence += 1

        assert (run.generation, run.attempt) >= life
        assert run.fence >= fence
        shape = COLUMNS[run.state]
        assert all(getattr(run, column) is not None for column in shape.filled), (action, run.state)
        assert all(getattr(run, column) is None for column in shape.empty), (action, run.state)
        logged = {attempt for generation, attempt in ended if generation == run.generation}
        assert logged in (set(range(1, run.attempt)), set(range(1, run.attempt + 1))), action
        if state in TERMINAL and run.state is not state:
            assert isinstance(action, Verb)
            assert (run.generation, run.attempt) > life
    assert audits >= run.generation - 1


@given(st.sampled_from(RunState), st.integers(0, 6), st.integers(1, 6))
def test_a_lost_run_is_tried_again_until_the_limit(state: RunState, crashes: int, limit: int) -> None:
    lost = lost_run(_run(state, crashes=crashes), NOW, process_id="p1", crash_limit=limit)

    assert lost.crashes == crashes + 1
    # One that is being cancelled is not held: answered, it could go on after its cancel (I17).
    assert (lost.state is S.HELD) is (lost.crashes >= limit and state is not S.CANCELLING)
    assert (lost.reason is None) is (lost.problem_at is None) is (lost.state is not S.HELD)
    if lost.state is not S.HELD:
        assert lost.state is (S.CANCELLING if state is S.CANCELLING else S.QUEUED)
        assert lost.attempt == 2
    assert (lost.log.attempt, lost.log.outcome, lost.log.process_id) == (1, "lost", "p1")


def test_a_killer_is_tried_alone_before_it_is_held() -> None:
    assert 1 < SUSPECT_FROM < CRASH_LIMIT


# --- the schema --------------------------------------------------------------------------------------


@pytest.mark.parametrize("macros", [SQLITE_MACROS, postgres_macros("onceward")], ids=["sqlite", "postgres"])
def test_the_check_lists_of_the_schema_are_the_enums(macros: dict[str, str]) -> None:
    schema = render(read_sql("migrations/0001_initial.sql"), macros)

    lists = re.findall(r"check \((state (?:in|=) .*)\)", schema)

    assert [re.findall(r"'(\w+)'", found) for found in lists] == [
        [state.value for state in RunState],
        [state.value for state in StepState],
        [state.value for state in PromiseState],
        [state.value for state in NoticeState],
    ]


def test_a_failed_run_of_which_steps_were_undone_is_not_retried() -> None:
    run = RunRow("run_1", "fulfil", "stripe", "evt_1", NOW, state=RunState.FAILED, ended_at=NOW, error="{}")
    undone = StepRow("charge (undo)", "", 1, 2, "undo", StepState.DONE, 1, 0, 1)

    with pytest.raises(errors.StateConflict, match=r"steps of it were undone.* Restart it"):
        decide(Verb.RETRY, run, now=NOW, actor="a", audit_id="x", steps=[undone])
