"""The outcomes of one run's steps, handed out one by one in the order in which they were saved.

The next one is handed out when the code is quiet, a new outcome like one that is recalled. So
``asyncio.wait``, ``as_completed`` and races see each of them alone, and decide at every recall as
they did the first time. What is not saved yet begins when all saved outcomes are handed out, since
it came after them (RULINGS 17). Code that no longer asks for what is next was changed by a deploy:
after some patience it gets its outcomes as it asks for them. What a restart or a replay kept has
its place in that order once the code asks for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sized
from contextvars import Context

from onceward.core.model import Millis, StepKey, StepRow
from onceward.core.states import StepState
from onceward.runtime.branches import Branches

QUIET_ROUNDS = 8
"""Rounds of the event loop without a verb after which the code counts as quiet. A finished task
inside a gather inside a task group is heard of by its parent's parent within six."""

THREAD_QUIET_S = 0.005
"""The same for threads, which need not run between two rounds of the loop."""

PATIENCE_MS_MIN, PATIENCE_MS_MAX = 100, 5_000
"""How long the next saved outcome may stay unasked for: twice the time that the code took to ask
for it when it was new, within these bounds."""


class Recall:
    """The saved records of a run while its code runs.

    Args:
        history: the records in saved order.
        branches: the code's branches.
        loop: the run's event loop.
        context: of timers that are not the code's.
        quiet: called when the code is quiet and nothing saved is left to hand out.
    """

    __slots__ = (
        "_activity",
        "_asked",
        "_branches",
        "_context",
        "_fresh",
        "_gone",
        "_has_begun_anew",
        "_has_diverged",
        "_is_closed",
        "_is_settled",
        "_is_ticking",
        "_last_ended_at",
        "_left",
        "_loop",
        "_newcomers",
        "_on_quiet",
        "_patience",
        "_records",
        "_rounds",
        "_waiting",
    )

    def __init__(
        self,
        history: list[StepRow],
        branches: Branches,
        loop: asyncio.AbstractEventLoop,
        context: Context,
        quiet: Callable[[], None],
    ) -> None:
        self._records = {row.key: row for row in history}
        # The saved outcomes that were not handed out yet, the next one last.
        self._left = [row for row in reversed(history) if row.state is not StepState.OPEN]
        self._gone: set[int] = set()  # of these, the ones whose turn is over
        self._branches = branches
        self._loop = loop
        self._context = context
        self._on_quiet = quiet
        self._asked: set[StepKey] = set()
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._fresh: list[asyncio.Future[None]] = []
        self._newcomers: list[asyncio.Future[None]] = []
        self._is_settled = True  # the code was quiet since the last outcome
        self._patience: asyncio.TimerHandle | None = None
        self._last_ended_at: Millis | None = None
        self._has_diverged = False
        self._has_begun_anew = False  # the code asked for a step of which nothing is saved
        self._activity = 0
        self._rounds = 0
        self._is_ticking = False
        self._is_closed = False

    def is_needed(self, is_cancelling: bool) -> bool:
        """Say whether a record may answer at all: a fresh run has none."""
        return bool(self._records) or is_cancelling

    def keys(self) -> Iterable[StepKey]:
        """Give the steps that have a record."""
        return self._records.keys()

    def record(self, key: StepKey) -> StepRow | None:
        """Give what is saved of a step."""
        return self._records.get(key)

    def asked(self, key: StepKey) -> None:
        """Hear that the code asks for a step."""
        self._activity += 1
        if self._records:
            self._asked.add(key)

    def begins_anew(self) -> None:
        """Hear that a step begins of which nothing is saved."""
        self._has_begun_anew = True

    def is_behind(self) -> bool:
        """Say whether the code was further already: something saved was not asked for yet, or not handed out.

        Asked from any thread, so it only looks.
        """
        if self._has_begun_anew or self._has_diverged or not self._records:
            return False
        if any(row.seq not in self._gone for row in self._left):
            return True
        return any(key not in self._asked for key in self._records)

    def unreached(self) -> list[str]:
        """Give saved steps that were not asked for by the code."""
        return [str(key) for key in self._records if key not in self._asked]

    def missed(self, kinds: Collection[str], before: int | None) -> list[str]:
        """Give the results of this run of these kinds, saved before a number, that the code did not ask for."""
        return [
            str(row.key)
            for row in self._records.values()
            if row.kind in kinds and row.state is StepState.DONE and row.origin is None
            if (before is None or row.seq < before) and row.key not in self._asked
        ]

    def set_aside(self, kind: str, after: int) -> None:
        """Hand the outcomes of a kind that were saved after a number out to nobody: the code is over there."""
        self._left = [row for row in self._left if row.kind != kind or row.seq < after]

    # --- saved order -----------------------------------------------------------------------------

    async def hand_out(self, record: StepRow) -> None:
        """Return when it is this outcome's turn."""
        if self._take_if_next(record):
            return
        future = self._waiting[record.seq] = self._loop.create_future()
        self.look_when_quiet()
        try:
            await future
        finally:
            # Handed out, or cut off by the code, as it was when it was saved.
            self._waiting.pop(record.seq, None)
            self._gone.add(record.seq)

    def _take_if_next(self, record: StepRow) -> bool:
        """Hand out at once where only one branch exists and the outcome is the next."""
        if not self._branches.is_single() or self._waiting or self._newcomers or not self._is_settled:
            return False
        if self._next() is not record:
            return False
        self._left.pop()
        self._last_ended_at = record.ended_at
        return True

    def _next(self) -> StepRow | None:
        while self._left and self._left[-1].seq in self._gone:
            self._gone.discard(self._left.pop().seq)
        return self._left[-1] if self._left else None

    def _following(self) -> StepRow | None:
        """Give the outcome that is to be handed out next.

        What a restart or a replay kept may be behind a step that runs again. So nothing waits for it
        where the code has not come to it.
        """
        following = self._next()
        if following is None or not self._is_kept_behind(following):
            return following
        return next(
            (
                row
                for row in reversed(self._left)
                if row.seq not in self._gone and not self._is_kept_behind(row)
            ),
            None,
        )

    def _is_kept_behind(self, row: StepRow) -> bool:
        return row.origin is not None and row.seq not in self._waiting

    def has_queue(self) -> bool:
        """Say whether a new outcome must take its turn: other branches may be about to react."""
        if self._branches.has_threads:
            return False
        return not (self._is_settled and self._branches.is_single())

    async def take_turn(self) -> None:
        """Return when it is the turn of an outcome that was just saved, and saved last."""
        if self._is_settled and not self._waiting and not self._fresh:
            self._is_settled = False
            self.look_when_quiet()
            return
        future: asyncio.Future[None] = self._loop.create_future()
        self._fresh.append(future)
        self.look_when_quiet()
        await future

    async def caught_up(self) -> None:
        """Return when everything saved was handed out, so that something new may begin."""
        if self._has_diverged or self._next() is None:
            return
        future: asyncio.Future[None] = self._loop.create_future()
        self._newcomers.append(future)
        self.look_when_quiet()
        await future

    def look_when_quiet(self) -> None:
        """Hand the next outcome out, or report quiet, once the code has nothing more to do now."""
        self._activity += 1
        if not self._is_ticking and not self._is_closed:
            self._is_ticking = True
            self._begin_round()

    def _begin_round(self) -> None:
        if self._branches.has_threads:
            self._rounds = 0
            self._loop.call_later(THREAD_QUIET_S, self._tick, self._activity, context=self._context)
        else:
            self._rounds = QUIET_ROUNDS
            self._loop.call_soon(self._tick, self._activity)

    def _tick(self, seen: int) -> None:
        if self._is_closed:
            self._is_ticking = False
        elif seen != self._activity:
            self._begin_round()
        elif self._rounds > 0 and not self._is_idle():
            self._rounds -= 1
            self._loop.call_soon(self._tick, seen)
        else:
            self._is_ticking = self._hand_out_next()
            if self._is_ticking:
                self._activity += 1
                self._begin_round()

    def _is_idle(self) -> bool:
        """Say whether nothing is under way at all: the loop has nothing to run next.

        uvloop does not show it, so there, and where other runs are busy, rounds are counted.
        """
        ready: Sized | None = getattr(self._loop, "_ready", None)
        return ready is not None and not ready

    def _hand_out_next(self) -> bool:
        """Let one branch go on, or all newcomers; False when there was nothing to do now."""
        following = self._following()
        if following is not None and following.seq not in self._waiting and not self._has_diverged:
            if self._patience is None:
                self._patience = self._loop.call_later(
                    self._patience_ms(following) / 1000, self._lose_patience, following, context=self._context
                )
            return False
        self._stop_patience()
        seq = min(self._waiting, default=None) if self._has_diverged or following is None else following.seq
        if seq is not None:
            future = self._waiting.pop(seq)
            if not future.done():
                future.set_result(None)
            self._last_ended_at = None if following is None else following.ended_at
            self._is_settled = False
            return True
        while self._fresh:
            future = self._fresh.pop(0)
            if not future.done():
                future.set_result(None)
                self._is_settled = False
                return True
        self._is_settled = True
        if self._newcomers:
            newcomers, self._newcomers = self._newcomers, []
            for future in newcomers:
                if not future.done():
                    future.set_result(None)
            return True
        self._on_quiet()
        return False

    def _patience_ms(self, following: StepRow) -> Millis:
        gap = 0 if self._last_ended_at is None else following.started_at - self._last_ended_at
        return max(PATIENCE_MS_MIN, min(2 * gap, PATIENCE_MS_MAX))

    def _lose_patience(self, following: StepRow) -> None:
        """Take the code for changed, since it does not ask for what comes next."""
        self._patience = None
        if self._following() is following and following.seq not in self._waiting:
            self._has_diverged = True
        self.look_when_quiet()

    def _stop_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def close(self) -> None:
        """Stop handing out; the run is gone from memory."""
        self._is_closed = True
        self._on_quiet = _nothing
        self._stop_patience()
        for future in (*self._waiting.values(), *self._fresh, *self._newcomers):
            future.cancel()


def _nothing() -> None:
    """Do nothing: nobody listens any more."""
