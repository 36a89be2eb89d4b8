"""What an operator's verb does to a run: a pure step from what is stored to a guarded commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from onceward.core import errors, unknown
from onceward.core.model import AttemptRow, AuditRow, KeyClaim, Millis, RunRow, StepKey, StepRow
from onceward.core.ports import RunMove, Steer
from onceward.core.states import TABLE, TERMINAL, UNDONE, Cell, Effect, RunState, StepState, Verb

ANSWERS = unknown.TO_OTHER_HOLDS
"""What a held run can be answered: go on with another attempt, or give up."""


@dataclass(frozen=True)
class Reply:
    """What a verb did, as the caller is told.

    Attributes:
        run_id: the run that the verb was about; for a replay, the new run.
        effect: what happened, by the table of states and verbs.
        text: the same for people.
        state: the run's state after it.
        generation: its generation after it.
        attempt: its attempt after it.
        is_done_before: the same request was done before; this one changed nothing.
    """

    run_id: str
    effect: Effect
    text: str
    state: RunState
    generation: int
    attempt: int
    is_done_before: bool = False


@dataclass(frozen=True)
class Decision:
    """What to commit, if anything, and what to reply when it is."""

    reply: Reply
    steer: Steer | None


def refusal(verb: Verb, run: RunRow, cell: Cell) -> errors.StateConflict:
    """Give the error of a verb that does not apply."""
    return errors.StateConflict(
        f"{verb.value} of run {run.run_id} ({run.state.value}) was refused: {cell.reply}.",
        means="Nothing was changed.",
        todo=f"{cell.hint[:1].upper()}{cell.hint[1:]}.",
    )


def cell_of(verb: Verb, state: RunState, *, is_undone: bool) -> Cell:
    """Give what a verb does to a run in a state, where steps of its generation were undone or not."""
    cell = TABLE[state, verb]
    return UNDONE if is_undone and cell.effect is Effect.NEW_ATTEMPT else cell


def decide(
    verb: Verb,
    run: RunRow,
    *,
    now: Millis,
    actor: str,
    audit_id: str,
    steps: Sequence[StepRow] = (),
    failed: Sequence[StepKey] = (),
    answer: str = "",
    about: StepRow | None = None,
    result: str | None = None,
    detail: str | None = None,
    deadline_ms: Millis | None = None,
    was_cancelling: bool = False,
    claim: KeyClaim | None = None,
    copies: Sequence[StepRow] = (),
    expected_sum: int | None = None,
) -> Decision:
    """Decide what *verb* does to *run* as it is stored now.

    Args:
        verb: what was asked; replay is decided by the caller, since it makes a new run.
        run: the run as read; the commit is refused if it changed since.
        now: the store's time.
        actor: who asks, for the audit.
        audit_id: drawn by the caller.
        steps: its records, needed for a retry.
        failed: the steps whose failures ended its last attempt, needed for a retry.
        answer: for an answer: ``retry`` or ``fail``, or what became of a step.
        about: for an answer: the record of the step that it is about; see `unknown.asked_about`.
        result: for an answer: what the step would have returned, as JSON.
        detail: kept in the audit.
        deadline_ms: how long a run of its workflow may take, if it has a deadline.
        was_cancelling: it was held while it was being cancelled, for an answer.
        claim: the key that it must hold if it is to run again.
        copies: records that a restart keeps, as `core.choice.copies_of` gives them.
        expected_sum: of the numbers of the records that were looked at; one more refuses the commit.

    Raises:
        StateConflict: the table refuses the verb in this state.
    """
    cell = cell_of(verb, run.state, is_undone=any(row.kind == "undo" for row in steps))
    effect = cell.effect
    if effect is Effect.REFUSE:
        raise refusal(verb, run, cell)
    text = cell.reply
    is_fresh = run.started_at is None and run.attempt == 1 and run.generation == 1
    if effect is Effect.CANCEL_NOW and not is_fresh:
        # Queued again after it ran: its clean-up steps must run.
        cell = TABLE[RunState.RUNNING, verb]
        effect, text = cell.effect, cell.reply
    if effect is Effect.TAKE_OFF_LIST and run.dismissed_at is not None:
        effect, text = Effect.JOIN, "already dismissed"
    if effect in (Effect.JOIN, Effect.NOTHING):
        return Decision(Reply(run.run_id, effect, text, run.state, run.generation, run.attempt), None)

    move = _move(run, now)
    reopen: list[StepKey] = []
    kept = list(copies) if effect is Effect.NEW_GENERATION else []
    if effect is Effect.NEW_ATTEMPT:
        _go_on(move, run, now, deadline_ms)
        reopen = list(failed)
    elif effect is Effect.BRING_FORWARD:
        move.state, move.due_at = RunState.QUEUED, now
        open_rows = [row for row in steps if row.state is StepState.OPEN]
        reopen = [
            row.key
            for row in open_rows
            if row.kind in ("run", "transaction") or (row.kind == "undo" and row.wake_at is not None)
        ]
    elif effect is Effect.NEW_GENERATION:
        _go_on(move, run, now, deadline_ms)
        move.generation, move.attempt, move.started_at = run.generation + 1, 1, None
        move.log = _log(run, now, "restarted")
        if copies:
            those = "1 saved step is" if len(copies) == 1 else f"{len(copies)} saved steps are"
            text = f"restarted: {those} kept, the others run again"
    elif effect is Effect.BEGIN_CANCEL:
        move.state, move.due_at, move.reason, move.problem_at = RunState.CANCELLING, now, None, None
    elif effect is Effect.CANCEL_NOW:
        move.state, move.ended_at, move.problem_at = RunState.CANCELLED, now, None
    elif effect is Effect.TAKE_OFF_LIST:
        move.dismissed_at = now
    elif effect is Effect.GO_ON:
        if about is None and answer not in ANSWERS:
            raise errors.ConfigError(
                f"A held run cannot be answered {answer!r}.",
                means="Nothing was changed.",
                todo="Answer 'retry' to go on with another attempt, or 'fail' to give up.",
            )
        left: list[str] = []
        if about is not None:
            kept = [unknown.answered(about, answer, result)]
            left = unknown.still_asked(run, steps, kept[0])
        _answer(move, run, now, deadline_ms, answer, left, detail, was_cancelling=was_cancelling)
        text = f"answered: {answer}" + (f"; still held, {move.reason}" if left else "")
        detail = answer_detail(answer, about, result) or detail or answer
    if move.state in TERMINAL and run.state not in TERMINAL and run.is_called:
        move.wakes_run_id = run.parent_run_id
    steer = Steer(
        run_id=run.run_id,
        expected_state=run.state,
        expected_generation=run.generation,
        expected_fence=run.fence,
        move=move,
        audit=AuditRow(audit_id, now, run.run_id, verb.value, actor, detail),
        reopen=reopen,
        copies=kept,
        claim=claim if move.state is RunState.QUEUED and effect in _RUNS_AGAIN else None,
        expected_sum=expected_sum,
    )
    reply = Reply(run.run_id, effect, text, move.state, move.generation, move.attempt)
    return Decision(reply, steer)


def _move(run: RunRow, now: Millis) -> RunMove:
    """Give the run's mutable part as it stands."""
    return RunMove(
        state=run.state,
        generation=run.generation,
        attempt=run.attempt,
        failures=run.failures,
        crashes=run.crashes,
        deadline_at=run.deadline_at,
        started_at=run.started_at,
        ended_at=run.ended_at,
        output=run.output,
        error=run.error,
        reason=run.reason,
        problem_at=run.problem_at,
        dismissed_at=run.dismissed_at,
        warning=run.warning,
        now=now,
        key=key_of(run),
    )


def key_of(run: RunRow) -> tuple[str, str] | None:
    """Give workflow and key of a run, or None if it has no key."""
    return None if run.key is None else (run.workflow, run.key)


def joined(verb: Verb, first: RunRow, run: RunRow) -> Reply | None:
    """Give the reply of a verb that another, at the same time, has already done; None if it was not.

    Two restarts at once are one, and so are two retries: both callers saw the same standing and
    asked for the same, so both get the one attempt that came of it, even if it has ended meanwhile.

    Args:
        verb: what was asked.
        first: the run as the caller found it.
        run: the run now.
    """
    if verb is Verb.RESTART and run.generation > first.generation:
        return join(run, "joined the restart")
    if verb is Verb.RETRY and run.state not in _OUT_OF_REACH:
        attempts = (run.generation, run.attempt), (first.generation, first.attempt)
        is_tried = attempts[0] > attempts[1]
        if first.state is RunState.BACKOFF:
            # Its next attempt is counted already; whoever claimed or steered it began it.
            is_tried = run.fence > first.fence
        if is_tried and first.state in (RunState.FAILED, RunState.BACKOFF):
            return join(run, "joined the attempt under way")
    return None


_RUNS_AGAIN = frozenset({Effect.NEW_ATTEMPT, Effect.NEW_GENERATION, Effect.GO_ON})
"""Effects that need the run's key, which it may have lost."""

_OUT_OF_REACH = frozenset({RunState.HELD, RunState.CANCELLING, RunState.CANCELLED})


def done_before(run: RunRow) -> Reply:
    """Give the reply of a verb whose request was done already; *run* is as it stands now."""
    return replace(join(run, "done before, by the same request"), is_done_before=True)


def is_answered(audits: Sequence[AuditRow], detail: str) -> bool:
    """Say whether one of these entries is the same answer, with the same result."""
    return any(row.verb == Verb.ANSWER and row.detail == detail for row in audits)


def join(run: RunRow, text: str) -> Reply:
    """Give the reply of a verb that another has done."""
    return Reply(run.run_id, Effect.JOIN, text, run.state, run.generation, run.attempt)


def _go_on(move: RunMove, run: RunRow, now: Millis, deadline_ms: Millis | None) -> None:
    """Let the run run again: a fresh budget of failures and crashes, and of time."""
    move.state, move.due_at = RunState.QUEUED, now
    move.attempt = run.attempt + 1
    move.failures = move.crashes = 0
    move.ended_at = move.output = move.error = move.reason = None
    move.problem_at = move.dismissed_at = move.warning = None
    if run.deadline_at is not None:
        # By the workflow's own length: the stored deadline may have been moved by an earlier retry.
        move.deadline_at = now + (deadline_ms or run.deadline_at - run.created_at)


def _answer(
    move: RunMove,
    run: RunRow,
    now: Millis,
    deadline_ms: Millis | None,
    answer: str,
    left: Sequence[str],
    detail: str | None,
    *,
    was_cancelling: bool,
) -> None:
    """Let a held run go on, give it up, or keep it held while *left* are asked about, too."""
    if left:
        move.reason = unknown.reason_of(left)
        return
    if answer == unknown.FAIL:
        move.state, move.ended_at, move.problem_at = RunState.FAILED, now, now
        move.error = detail or '{"type":"Held","message":"an operator gave up on the held run"}'
    else:
        _go_on(move, run, now, deadline_ms)
    # Either way the attempt is over; without its record the next one would leave a gap.
    move.log = _log(run, now, "held")
    if was_cancelling:
        # Its cancel was acknowledged: it may clean up again or end, and nothing else (I17).
        move.state = RunState.CANCELLED if answer == unknown.FAIL else RunState.CANCELLING
        move.problem_at = None


def answer_detail(answer: str, about: StepRow | None, result: str | None) -> str | None:
    """Give what the audit keeps of an answer about a step."""
    if about is None:
        return None
    told = {"answer": answer, "step": str(about.key)}
    if answer == unknown.HAPPENED:
        return msgspec.json.encode({**told, "result": msgspec.Raw((result or "null").encode())}).decode()
    return msgspec.json.encode(told).decode()


def _log(run: RunRow, now: Millis, outcome: str) -> AttemptRow:
    return AttemptRow(run.generation, run.attempt, run.started_at, now, outcome, error=run.error)
