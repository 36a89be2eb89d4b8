"""What becomes of a run whose key may be held: one decision, which every store carries out.

PostgreSQL decides the same in its own words, since a batch goes out whole; the store suite holds the
two together.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from onceward.core.model import Millis, NewRun
from onceward.core.rules import ACTIVE, EVER, WINDOW
from onceward.core.states import TERMINAL, RunState


class Fate(StrEnum):
    """What becomes of a new run with a key."""

    CLAIM = "claim"  # it holds the key and begins
    RETURNED = "returned"  # there is no run; the holder answers for it
    REJECTED = "rejected"  # there is no run
    SLOT = "slot"  # it holds the key from the end of the window on
    WAIT = "wait"  # it begins when the key is free


class Freed(StrEnum):
    """What becomes of a key whose holder has ended while nobody waits."""

    RELEASED = "released"
    GIVEN_BACK = "given back"  # the window counts as if the run had never been
    KEPT = "kept"


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a key.

    Attributes:
        run_id: the run.
        claimed_at: since when; for a run that waits for its window, from when on.
        payload_hash: of its event.
        state: of the run; None where it is gone.
        once: how long it holds the key.
        window_ms: how long after the claim.
    """

    run_id: str
    claimed_at: Millis
    payload_hash: str | None
    state: RunState | None
    once: str
    window_ms: Millis | None

    @property
    def has_ended(self) -> bool:
        """Say whether nothing of it can happen any more."""
        return self.state is None or self.state in TERMINAL


def fate_of(run: NewRun, holder: Holder | None) -> Fate:
    """Decide what becomes of a new run (RULINGS 14).

    Args:
        run: with its key and its workflow's policy.
        holder: who holds the key, if anybody does.
    """
    if holder is None or is_free(run.once or EVER, run.window_ms, run.clash, holder, run.created_at):
        return Fate.CLAIM
    if run.clash == "return":
        return Fate.RETURNED
    if run.clash == "reject":
        return Fate.REJECTED
    return Fate.SLOT if run.clash == "queue" and run.once == WINDOW else Fate.WAIT


def is_free(once: str, window_ms: Millis | None, clash: str, holder: Holder, now: Millis) -> bool:
    """Say whether a key may be claimed that has a holder: it is only remembered, or not even that."""
    if holder.state is None:
        return True
    if holder.has_ended and (once == ACTIVE or clash == "replace"):
        return True
    return once == WINDOW and holder.claimed_at + (window_ms or 0) <= now


def freed(once: str, state: RunState) -> Freed:
    """Decide what becomes of a key when its holder has ended in *state* and nobody waits for it."""
    if once == ACTIVE or (once == EVER and state is RunState.CANCELLED):
        return Freed.RELEASED
    return Freed.GIVEN_BACK if once == WINDOW and state is RunState.CANCELLED else Freed.KEPT


def displaced_text(by_run_id: str) -> str:
    """Give why a run was cancelled that waited for its key: a newer one took its place."""
    return f"displaced by run {by_run_id}"
