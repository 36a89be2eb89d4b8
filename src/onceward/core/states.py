"""The states of runs and steps, and what every verb does in each of them.

One table drives the code that acts, the CHECK lists of both schemas, the page in the docs, the
buttons of a dashboard and a test cell by cell (RULINGS 19 to 25).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class RunState(StrEnum):
    """Where a run stands."""

    QUEUED = "queued"
    RUNNING = "running"
    SLEEPING = "sleeping"
    WAITING = "waiting"
    BACKOFF = "backoff"
    CANCELLING = "cancelling"
    HELD = "held"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


TERMINAL = frozenset({RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED})
"""States that only an operator's verb leaves."""

OPEN_PROBLEM = frozenset({RunState.HELD, RunState.FAILED})
"""States that put a run on the list of open problems until it is dismissed."""

MEANING: dict[RunState, str] = {
    RunState.QUEUED: "Ready; the next free process takes it.",
    RunState.RUNNING: "A process holds it and runs its code.",
    RunState.SLEEPING: "Asleep until a fixed time; costs a row.",
    RunState.WAITING: "Waits for an event, a promise or the end of a run that it called; costs a row.",
    RunState.BACKOFF: "An attempt or a try failed; the next begins after a delay.",
    RunState.CANCELLING: "Being cancelled: only clean-up steps start.",
    RunState.HELD: "Stopped for a person, with a named reason; answer it and it goes on.",
    RunState.COMPLETED: "Ended well; its result is saved.",
    RunState.FAILED: "Ended by a failure that nobody caught.",
    RunState.CANCELLED: "Ended from outside.",
}


class StepState(StrEnum):
    """Where a step's record stands; only ``open`` may change."""

    OPEN = "open"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    CUT = "cut"


RUN_AGAIN = frozenset({"run", "transaction", "undo"})
"""Kinds of records of steps with a body, which is tried again while they are open."""


class PromiseState(StrEnum):
    """Where a promise stands; only ``open`` may change."""

    OPEN = "open"
    COMPLETED = "completed"
    FAILED = "failed"
    EXPIRED = "expired"


class NoticeState(StrEnum):
    """Where a notice for one address stands."""

    OWED = "owed"
    TOLD = "told"
    GIVEN_UP = "given_up"


class Move(StrEnum):
    """What changes a run's state from inside: its holder or the passage of time."""

    CLAIM = "claim"
    RELEASE = "release"
    SLEEP = "sleep"
    WAIT = "wait"
    BACK_OFF = "back off"
    HOLD = "hold"
    COMPLETE = "complete"
    FAIL = "fail"
    END_CANCELLED = "end cancelled"
    DISPLACE = "displace"
    TAKE_OVER = "take over"


S = RunState

MOVES: dict[tuple[RunState, Move], RunState] = {
    (S.QUEUED, Move.CLAIM): S.RUNNING,
    (S.QUEUED, Move.DISPLACE): S.CANCELLED,
    (S.SLEEPING, Move.CLAIM): S.RUNNING,
    (S.WAITING, Move.CLAIM): S.RUNNING,
    (S.BACKOFF, Move.CLAIM): S.RUNNING,
    (S.CANCELLING, Move.CLAIM): S.CANCELLING,
    (S.RUNNING, Move.RELEASE): S.QUEUED,
    (S.RUNNING, Move.SLEEP): S.SLEEPING,
    (S.RUNNING, Move.WAIT): S.WAITING,
    (S.RUNNING, Move.BACK_OFF): S.BACKOFF,
    (S.RUNNING, Move.HOLD): S.HELD,
    (S.RUNNING, Move.COMPLETE): S.COMPLETED,
    (S.RUNNING, Move.FAIL): S.FAILED,
    (S.RUNNING, Move.TAKE_OVER): S.QUEUED,
    (S.CANCELLING, Move.RELEASE): S.CANCELLING,
    (S.CANCELLING, Move.SLEEP): S.CANCELLING,
    (S.CANCELLING, Move.WAIT): S.CANCELLING,
    (S.CANCELLING, Move.BACK_OFF): S.CANCELLING,
    (S.CANCELLING, Move.HOLD): S.HELD,
    (S.CANCELLING, Move.COMPLETE): S.CANCELLED,
    (S.CANCELLING, Move.FAIL): S.CANCELLED,
    (S.CANCELLING, Move.END_CANCELLED): S.CANCELLED,
    (S.CANCELLING, Move.TAKE_OVER): S.CANCELLING,
    # A run that kills its process is held at the takeover, by whoever takes over.
}


class Verb(StrEnum):
    """What a person or a program asks of a run from outside."""

    RETRY = "retry"
    RESTART = "restart"
    REPLAY = "replay"
    CANCEL = "cancel"
    ANSWER = "answer"
    DISMISS = "dismiss"


class Effect(StrEnum):
    """What a verb does to a run in one state."""

    NEW_ATTEMPT = "new attempt"
    JOIN = "join"
    BRING_FORWARD = "bring forward"
    NEW_GENERATION = "new generation"
    NEW_RUN = "new run"
    BEGIN_CANCEL = "begin cancel"
    CANCEL_NOW = "cancel now"
    GO_ON = "go on"
    TAKE_OFF_LIST = "take off list"
    NOTHING = "nothing"
    REFUSE = "refuse"


@dataclass(frozen=True)
class Cell:
    """One cell of the table: what happens, what the caller is told."""

    effect: Effect
    reply: str
    hint: str = ""


def _refuse(reply: str, hint: str) -> Cell:
    return Cell(Effect.REFUSE, reply, hint)


UNDONE = _refuse(
    "steps of it were undone, and would count as done", "restart it: every step runs again, with new keys"
)
"""What a retry of a failed run is told whose steps were undone (RULINGS 20)."""

_JOIN_RETRY = Cell(Effect.JOIN, "joined the attempt under way")
_RESTARTED = Cell(Effect.NEW_GENERATION, "restarted: every step runs again")
_REPLAYED = Cell(Effect.NEW_RUN, "replayed as a new run")
_CANCELLING = Cell(Effect.BEGIN_CANCEL, "cancelling: clean-up steps still run")
_NOT_HELD = _refuse("the run is not held", "only a held run waits for an answer; look at its state")
_NOT_OPEN = _refuse(
    "the run is not an open problem", "only a failed run can be dismissed; cancel it to end it"
)

TABLE: dict[tuple[RunState, Verb], Cell] = {
    (S.QUEUED, Verb.RETRY): _JOIN_RETRY,
    (S.RUNNING, Verb.RETRY): _JOIN_RETRY,
    (S.SLEEPING, Verb.RETRY): _JOIN_RETRY,
    (S.WAITING, Verb.RETRY): _JOIN_RETRY,
    (S.BACKOFF, Verb.RETRY): Cell(Effect.BRING_FORWARD, "brought the next attempt forward"),
    (S.CANCELLING, Verb.RETRY): _refuse("the run is being cancelled", "wait for it to end, then restart it"),
    (S.HELD, Verb.RETRY): _refuse(
        "the run is held", "answer it: answer('retry') goes on, answer('fail') gives up"
    ),
    (S.COMPLETED, Verb.RETRY): _refuse(
        "the run is completed", "nothing failed; use restart or replay to run it again"
    ),
    (S.FAILED, Verb.RETRY): Cell(Effect.NEW_ATTEMPT, "retrying: saved steps are kept"),
    (S.CANCELLED, Verb.RETRY): _refuse("the run was cancelled", "use restart or replay to run it again"),
    (S.QUEUED, Verb.RESTART): _RESTARTED,
    (S.RUNNING, Verb.RESTART): _RESTARTED,
    (S.SLEEPING, Verb.RESTART): _RESTARTED,
    (S.WAITING, Verb.RESTART): _RESTARTED,
    (S.BACKOFF, Verb.RESTART): _RESTARTED,
    (S.CANCELLING, Verb.RESTART): _refuse(
        "the run is being cancelled", "wait for it to end, then restart it"
    ),
    (S.HELD, Verb.RESTART): _RESTARTED,
    (S.COMPLETED, Verb.RESTART): _RESTARTED,
    (S.FAILED, Verb.RESTART): _RESTARTED,
    (S.CANCELLED, Verb.RESTART): _RESTARTED,
    **{(state, Verb.REPLAY): _REPLAYED for state in RunState},
    (S.QUEUED, Verb.CANCEL): Cell(Effect.CANCEL_NOW, "cancelled before it began"),
    (S.RUNNING, Verb.CANCEL): _CANCELLING,
    (S.SLEEPING, Verb.CANCEL): _CANCELLING,
    (S.WAITING, Verb.CANCEL): _CANCELLING,
    (S.BACKOFF, Verb.CANCEL): _CANCELLING,
    (S.CANCELLING, Verb.CANCEL): Cell(Effect.JOIN, "already being cancelled"),
    (S.HELD, Verb.CANCEL): _CANCELLING,
    (S.COMPLETED, Verb.CANCEL): Cell(Effect.NOTHING, "already ended: completed"),
    (S.FAILED, Verb.CANCEL): Cell(Effect.NOTHING, "already ended: failed"),
    (S.CANCELLED, Verb.CANCEL): Cell(Effect.JOIN, "already cancelled"),
    **{(state, Verb.ANSWER): _NOT_HELD for state in RunState},
    (S.HELD, Verb.ANSWER): Cell(Effect.GO_ON, "answered"),
    **{(state, Verb.DISMISS): _NOT_OPEN for state in RunState},
    (S.FAILED, Verb.DISMISS): Cell(Effect.TAKE_OFF_LIST, "dismissed"),
}
"""What each verb does in each state. A queued run that already has an attempt behind it is
cancelled like a running one, since its clean-up steps must run; a failed run whose steps were undone
is not retried (`UNDONE`); see ``steer``."""
