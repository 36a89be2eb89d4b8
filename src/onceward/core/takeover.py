"""What becomes of a run whose holder was lost: the rule of poison (RULINGS 6)."""

from __future__ import annotations

from dataclasses import dataclass

from onceward.core.model import AttemptRow, Millis, RunRow
from onceward.core.states import RunState

SUSPECT_FROM = 2
"""Lost holders in a row, without a new checkpoint, from which a run is claimed alone."""

CRASH_LIMIT = 4
"""Lost holders in a row at which a run is held. Two tell a killer from its neighbours, who all
die with it; from then on each is tried alone, and only a run that kills alone reaches the limit."""


@dataclass(frozen=True)
class LostRun:
    """The run's next standing."""

    state: RunState
    attempt: int
    crashes: int
    reason: str | None
    problem_at: Millis | None
    log: AttemptRow


def lost_run(run: RunRow, now: Millis, *, process_id: str, crash_limit: int | None) -> LostRun:
    """Decide what a run becomes when its holder is gone.

    Args:
        run: as stored.
        now: the store's time.
        process_id: the lost holder, for the attempt's record.
        crash_limit: lost holders in a row at which the run is held; None holds never.
    """
    crashes = run.crashes + 1
    is_cancelling = run.state is RunState.CANCELLING
    # A run that is being cancelled is not held: an answer would let it go on. At the limit its next
    # holder ends it without another go at its clean-up.
    is_poison = crash_limit is not None and crashes >= crash_limit and not is_cancelling
    state = RunState.CANCELLING if is_cancelling else RunState.QUEUED
    return LostRun(
        state=RunState.HELD if is_poison else state,
        attempt=run.attempt if is_poison else run.attempt + 1,
        crashes=crashes,
        reason=f"poison: its process was lost {crashes} times in a row without a new checkpoint"
        if is_poison
        else None,
        problem_at=now if is_poison else None,
        log=AttemptRow(
            generation=run.generation,
            attempt=run.attempt,
            started_at=run.started_at,
            ended_at=now,
            outcome="lost",
            process_id=process_id,
        ),
    )
