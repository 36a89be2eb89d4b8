"""Runs that may have killed their holders: when the next of them may be tried here (RULINGS 6).

When a process dies, all its runs are suspects alike, and most of them are innocent. A new
checkpoint clears a run. Until then suspects are begun one after the other, so that the next death
tells more than the last; but not one by one to their ends, or twenty long steps would wait for
each other. Only a run that is suspected strongly is tried with no other suspect beside it.
"""

from __future__ import annotations

from collections.abc import Callable

from onceward.core.model import RunRow
from onceward.core.takeover import ALONE_FROM

GAP_S = 1.0
"""Between the beginnings of two suspects: a killer kills, as a rule, soon after it begins."""


class Suspects:
    """The suspects of one worker.

    Args:
        time: the event loop's clock, in seconds.
    """

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._on_trial: dict[str, int] = {}  # run id -> lost holders in a row
        self._begun_at = 0.0
        self._is_asked_for = False
        self._is_wanted = True

    def want(self) -> None:
        """Let the next claim ask for one, if none stands against it."""
        self._is_wanted = True

    def ask(self) -> bool:
        """Say whether a claim may ask for one more, and count on its answer."""
        if not self._is_wanted or self._is_asked_for or not self._may_begin_another():
            return False
        self._is_asked_for, self._is_wanted = True, False
        return True

    def answered(self, run: RunRow | None) -> None:
        """Hear which one the claim brought, if it asked for any."""
        self._is_asked_for = False
        if run is not None:
            self._on_trial[run.run_id] = run.crashes
            self._begun_at = self._time()

    def must_wait(self, run: RunRow) -> bool:
        """Say whether a claimed suspect may not begin yet, since others are on trial."""
        return run.crashes >= ALONE_FROM and self._on_trial.keys() - {run.run_id} != set()

    def over(self, run_id: str) -> bool:
        """Hear that a run made a checkpoint or left memory; say whether it was on trial."""
        if self._on_trial.pop(run_id, None) is None:
            return False
        self._is_wanted = True
        return True

    def _may_begin_another(self) -> bool:
        if not self._on_trial:
            return True
        is_strong = any(crashes >= ALONE_FROM for crashes in self._on_trial.values())
        return not is_strong and self._time() - self._begun_at >= GAP_S
