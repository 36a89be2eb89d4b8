"""What becomes of a run whose holder was lost: the rule of poison (RULINGS 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onceward.core.model import AttemptRow, Millis, RunRow
from onceward.core.states import RunState

SUSPECT_FROM = 2
"""Lost holders in a row, without a new checkpoint, from which a run is claimed after the others."""

ALONE_FROM = 3
"""Lost holders in a row from which a run is tried with no other suspect beside it."""

CRASH_LIMIT = 4
"""Lost holders in a row at which a run is held, if it was the only one under suspicion in the last.
The first two tell a killer from the neighbours that die with it; a third that it kills by itself."""

COMPANY_FACTOR = 2
"""How many times the limit it takes where other runs were under suspicion each time."""


@dataclass(frozen=True)
class LostRun:
    """The run's next standing."""

    state: RunState
    attempt: int
    crashes: int
    reason: str | None
    problem_at: Millis | None
    log: AttemptRow


def lost_runs(
    runs: Sequence[RunRow], now: Millis, *, process_id: str, crash_limit: int | None
) -> list[LostRun]:
    """Decide what all runs of one process become when it is gone.

    A run is held only if the death can be laid at its door: if no other run of the process had lost
    a holder before and made no checkpoint since. Otherwise a killer that comes again and again
    beside a slow innocent run would have both held.

    Args:
        runs: as stored.
        now: the store's time.
        process_id: the lost holder, for the attempts' records.
        crash_limit: lost holders in a row at which a run is held; None holds never.
    """
    suspected = sum(run.crashes > 0 for run in runs)
    return [
        lost_run(
            run,
            now,
            process_id=process_id,
            crash_limit=crash_limit,
            is_alone=suspected - (run.crashes > 0) == 0,
        )
        for run in runs
    ]


def lost_run(
    run: RunRow, now: Millis, *, process_id: str, crash_limit: int | None, is_alone: bool = True
) -> LostRun:
    """Decide what one run becomes when its holder is gone.

    Args:
        run: as stored.
        now: the store's time.
        process_id: the lost holder, for the attempt's record.
        crash_limit: lost holders in a row at which the run is held; None holds never.
        is_alone: no other run of the holder was under suspicion.
    """
    crashes = run.crashes + 1
    if crash_limit is not None and not is_alone:
        crash_limit *= COMPANY_FACTOR
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
