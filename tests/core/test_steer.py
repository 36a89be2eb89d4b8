"""What a verb changes of a run, and what it leaves: the table says whether, this says how."""

from __future__ import annotations

import json
from typing import Any

import pytest

from onceward.core import unknown
from onceward.core.errors import ConfigError, StateConflict
from onceward.core.model import KeyClaim, RunRow, StepKey, StepRow
from onceward.core.states import Effect, RunState, StepState, Verb
from onceward.core.steer import Decision, decide, done_before, is_answered, joined

NOW = 1_750_000_000_000
HOUR = 3_600_000
CLAIM = KeyClaim("buy", "k", "active", None)


def run_row(state: RunState, **more: Any) -> RunRow:
    values: dict[str, Any] = {"started_at": NOW - 50, "fence": 7, "generation": 2, "attempt": 3, **more}
    return RunRow("run_1", "buy", "start/buy", "evt_1", NOW - 100, state, **values)


def failed_run(**more: Any) -> RunRow:
    values = {"failures": 2, "crashes": 1, "error": "{}", "problem_at": NOW - 5, "ended_at": NOW - 5, **more}
    return run_row(RunState.FAILED, warning="{}", **values)


def step(name: str, state: StepState = StepState.OPEN, **more: Any) -> StepRow:
    values: dict[str, Any] = {"kind": "run", "item": "", "ordinal": 1, "seq": 1, "attempt": 1, **more}
    return StepRow(name=name, state=state, started_at=NOW - 40, **values)


def asking(name: str, **more: Any) -> StepRow:
    begun = unknown.Begun(NOW - 40, 1, 3, "prc_1", "ow_1", why="lost", is_asked=True)
    return step(name, begun=begun.to_text(), **more)


def decided(verb: Verb, run: RunRow, **more: Any) -> Decision:
    return decide(verb, run, now=NOW, actor="ann", audit_id="aud_1", **more)


def moved(verb: Verb, run: RunRow, **more: Any) -> Any:
    steer = decided(verb, run, **more).steer
    assert steer is not None
    return steer.move


def test_a_retry_gives_a_fresh_budget_and_opens_what_failed() -> None:
    keys = [StepKey("charge", "", 1)]

    decision = decided(Verb.RETRY, failed_run(), failed=keys, claim=CLAIM)

    steer = decision.steer
    assert steer is not None
    move = steer.move
    assert (move.state, move.due_at, move.generation, move.attempt) == (RunState.QUEUED, NOW, 2, 4)
    assert (move.failures, move.crashes) == (0, 0)
    assert [move.ended_at, move.error, move.problem_at, move.dismissed_at, move.warning] == [None] * 5
    assert (steer.reopen, steer.claim, steer.copies) == (keys, CLAIM, [])
    assert (steer.expected_state, steer.expected_generation, steer.expected_fence) == (RunState.FAILED, 2, 7)
    assert (steer.audit.verb, steer.audit.actor, steer.audit.detail) == ("retry", "ann", None)
    assert (decision.reply.state, decision.reply.attempt) == (RunState.QUEUED, 4)


@pytest.mark.parametrize(
    ("deadline_at", "deadline_ms", "expected"),
    [(None, HOUR, None), (NOW - 40, HOUR, NOW + HOUR), (NOW - 40, None, NOW + 60)],
)
def test_who_runs_again_has_its_whole_time_again(
    deadline_at: int | None, deadline_ms: int | None, expected: int | None
) -> None:
    run = failed_run(deadline_at=deadline_at)

    for verb in (Verb.RETRY, Verb.RESTART):
        assert moved(verb, run, deadline_ms=deadline_ms).deadline_at == expected


def test_a_restart_begins_the_next_generation_and_keeps_what_was_chosen() -> None:
    kept = [step("charge", StepState.DONE), step("mail", StepState.DONE)]
    plain, one, two = (decided(Verb.RESTART, failed_run(), copies=kept[:count]) for count in (0, 1, 2))

    assert two.steer is not None
    move = two.steer.move
    assert (move.generation, move.attempt, move.started_at) == (3, 1, None)
    assert move.log is not None
    assert (move.log.generation, move.log.attempt, move.log.outcome) == (2, 3, "restarted")
    assert two.steer.copies == kept
    assert plain.reply.text == "restarted: every step runs again"
    assert one.reply.text.startswith("restarted: 1 saved step is kept")
    assert two.reply.text.startswith("restarted: 2 saved steps are kept")


def test_a_back_off_brought_forward_opens_what_waits_for_its_next_try() -> None:
    rows = [
        step("charge"),
        step("book", kind="transaction"),
        step("mail", StepState.DONE),
        step("sleep", kind="sleep", wake_at=NOW + 9),
        step("charge (undo)", kind="undo", wake_at=NOW + 9),
        step("book (undo)", kind="undo"),
    ]

    steer = decided(Verb.RETRY, run_row(RunState.BACKOFF), steps=rows, claim=CLAIM).steer

    assert steer is not None
    assert (steer.move.state, steer.move.due_at, steer.move.attempt) == (RunState.QUEUED, NOW, 3)
    assert [key.name for key in steer.reopen] == ["charge", "book", "charge (undo)"]
    assert steer.claim is None


@pytest.mark.parametrize(
    ("more", "effect", "state"),
    [
        ({"started_at": None, "attempt": 1, "generation": 1}, Effect.CANCEL_NOW, RunState.CANCELLED),
        ({"started_at": NOW, "attempt": 1, "generation": 1}, Effect.BEGIN_CANCEL, RunState.CANCELLING),
        ({"started_at": None, "attempt": 2, "generation": 1}, Effect.BEGIN_CANCEL, RunState.CANCELLING),
        ({"started_at": None, "attempt": 1, "generation": 2}, Effect.BEGIN_CANCEL, RunState.CANCELLING),
    ],
)
def test_a_queued_run_that_has_run_is_cancelled_with_its_clean_up(
    more: dict[str, Any], effect: Effect, state: RunState
) -> None:
    decision = decided(Verb.CANCEL, run_row(RunState.QUEUED, **more))

    assert (decision.reply.effect, decision.reply.state) == (effect, state)
    assert decision.steer is not None
    move = decision.steer.move
    assert (move.ended_at, move.due_at) == ((NOW, None) if state is RunState.CANCELLED else (None, NOW))


def test_a_parent_is_woken_by_the_end_of_what_it_called_and_by_nothing_else() -> None:
    fresh: dict[str, Any] = {"started_at": None, "attempt": 1, "generation": 1, "parent_run_id": "run_0"}

    called, started = (
        moved(Verb.CANCEL, run_row(RunState.QUEUED, **fresh, is_called=called)) for called in (True, False)
    )
    assert (called.wakes_run_id, started.wakes_run_id) == ("run_0", None)
    running = run_row(RunState.RUNNING, parent_run_id="run_0", is_called=True)
    assert moved(Verb.CANCEL, running).wakes_run_id is None
    assert moved(Verb.DISMISS, failed_run(parent_run_id="run_0", is_called=True)).wakes_run_id is None


def test_what_is_dismissed_already_is_not_dismissed_again() -> None:
    first = decided(Verb.DISMISS, failed_run())
    again = decided(Verb.DISMISS, failed_run(dismissed_at=NOW - 1))

    assert first.steer is not None
    assert (first.steer.move.dismissed_at, first.reply.effect) == (NOW, Effect.TAKE_OFF_LIST)
    assert (again.steer, again.reply.effect, again.reply.text) == (None, Effect.JOIN, "already dismissed")


def test_a_failed_run_whose_steps_were_undone_is_not_retried() -> None:
    with pytest.raises(StateConflict, match="steps of it were undone"):
        decided(Verb.RETRY, failed_run(), steps=[step("charge (undo)", StepState.DONE, kind="undo")])


@pytest.mark.parametrize(
    ("answer", "was_cancelling", "state", "attempt"),
    [
        ("retry", False, RunState.QUEUED, 4),
        ("retry", True, RunState.CANCELLING, 4),
        ("fail", False, RunState.FAILED, 3),
        ("fail", True, RunState.CANCELLED, 3),
    ],
)
def test_a_held_run_goes_on_or_is_given_up(
    answer: str, was_cancelling: bool, state: RunState, attempt: int
) -> None:
    held = run_row(RunState.HELD, reason="poison", problem_at=NOW - 5)

    decision = decided(Verb.ANSWER, held, answer=answer, was_cancelling=was_cancelling, claim=CLAIM)

    assert decision.steer is not None
    move = decision.steer.move
    assert (move.state, move.attempt) == (state, attempt)
    assert move.problem_at == (NOW if state is RunState.FAILED else None)
    assert move.ended_at == (NOW if answer == "fail" else None)
    assert move.log is not None
    assert (move.log.attempt, move.log.outcome) == (3, "held")
    assert ("gave up on the held run" in (move.error or "")) is (answer == "fail")
    assert (decision.steer.audit.detail, decision.reply.text) == (answer, f"answered: {answer}")
    assert (decision.steer.claim is CLAIM) is (state is RunState.QUEUED)


def test_an_answer_that_there_is_not_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot be answered 'maybe'"):
        decided(Verb.ANSWER, run_row(RunState.HELD), answer="maybe")


def test_a_run_stays_held_until_every_step_is_answered_for() -> None:
    held = run_row(RunState.HELD, reason="outcome unknown", problem_at=NOW - 5)
    rows = [asking("charge"), asking("mail")]

    first = decided(Verb.ANSWER, held, answer="happened", about=rows[0], result='{"id":1}', steps=rows)
    last = decided(Verb.ANSWER, held, answer="did_not_happen", about=rows[1], steps=rows[1:])

    assert first.steer is not None
    assert last.steer is not None
    assert (first.steer.move.state, first.steer.move.log) == (RunState.HELD, None)
    assert first.steer.move.reason == "outcome unknown: step 'mail'"
    assert first.reply.text == "answered: happened; still held, outcome unknown: step 'mail'"
    (copy,) = first.steer.copies
    kept = unknown.begun_of(copy)
    assert kept is not None
    assert (copy.key, kept.answer, bytes(kept.result)) == (rows[0].key, "happened", b'{"id":1}')
    assert json.loads(first.steer.audit.detail or "") == {
        "answer": "happened",
        "step": "charge",
        "result": {"id": 1},
    }
    assert (last.steer.move.state, last.reply.text) == (RunState.QUEUED, "answered: did_not_happen")
    assert json.loads(last.steer.audit.detail or "") == {"answer": "did_not_happen", "step": "mail"}
    assert is_answered([first.steer.audit], first.steer.audit.detail or "")
    assert not is_answered([first.steer.audit], last.steer.audit.detail or "")


@pytest.mark.parametrize(
    ("verb", "first", "now", "text"),
    [
        (
            Verb.RESTART,
            run_row(RunState.FAILED),
            run_row(RunState.COMPLETED, generation=3),
            "joined the restart",
        ),
        (Verb.RESTART, run_row(RunState.FAILED), run_row(RunState.QUEUED), None),
        (Verb.RETRY, failed_run(), run_row(RunState.RUNNING, attempt=4), "joined the attempt under way"),
        (Verb.RETRY, failed_run(), run_row(RunState.RUNNING), None),
        (Verb.RETRY, failed_run(), run_row(RunState.HELD, attempt=4), None),
        (
            Verb.RETRY,
            run_row(RunState.BACKOFF),
            run_row(RunState.RUNNING, fence=8),
            "joined the attempt under way",
        ),
        (Verb.RETRY, run_row(RunState.BACKOFF), run_row(RunState.RUNNING, attempt=4), None),
        (Verb.RETRY, run_row(RunState.RUNNING), run_row(RunState.FAILED, attempt=4), None),
        (Verb.CANCEL, run_row(RunState.RUNNING), run_row(RunState.RUNNING, generation=3, attempt=4), None),
    ],
)
def test_two_who_ask_for_the_same_at_once_get_the_one_attempt_that_came_of_it(
    verb: Verb, first: RunRow, now: RunRow, text: str | None
) -> None:
    reply = joined(verb, first, now)

    assert (reply and reply.text) == text
    if reply is not None:
        assert (reply.effect, reply.state, reply.attempt) == (Effect.JOIN, now.state, now.attempt)


def test_a_request_that_was_done_before_says_so_and_how_the_run_stands() -> None:
    reply = done_before(run_row(RunState.COMPLETED))

    assert (reply.is_done_before, reply.effect, reply.state) == (True, Effect.JOIN, RunState.COMPLETED)
    assert (reply.generation, reply.attempt) == (2, 3)
