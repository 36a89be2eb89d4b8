"""What one run has saved in this go, and what it wants saved next.

Records gather in one operation until a batch takes it; nobody waits for a commit but those whose
next effect must not come before it.

What must stay true: what comes later never becomes durable before what came earlier; nothing is
saved after the run's last commit was handed over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from onceward.core import errors
from onceward.core.model import DoneWait, Millis, RunRow, StepKey, StepRow
from onceward.core.ports import Accept
from onceward.core.states import StepState
from onceward.runtime import ending
from onceward.runtime.committer import PendingAdvance
from onceward.runtime.recall import Recall

if TYPE_CHECKING:
    from onceward.runtime.worker import Worker


CONFIRMED_S = 0.05
"""A body begins only if the store said within this time that the run is still ours. An operator's
verb on a run that another process holds is answered after a little more: then nothing of what the run
did before can begin any more, and nobody had to tell its holder (I17)."""


AHEAD = 64
"""How far ahead a checkpoint is numbered that somebody's transaction commits: what other branches save
until the code sees it comes before it, as they do."""


NOTHING_RECORDED: Mapping[str, Any] = {}
"""What the records of a step with default options say of them."""


class Journal:
    """The writing half of a loaded run.

    Args:
        worker: whose clock and committer it uses.
        run: as claimed.
        history: its saved records in saved order.
        confirmed_at: when the store said that the run is ours, by the worker's `elapsed_s`.

    Attributes:
        is_ending: its code is over, its last commit is on its way.
        has_waits: it may have open waits in the store.
        stopping: why its code unwinds: suspend, hold, release, deadline, lost; None while it runs.
        hold_reason: why it is to be held, if it is.
        hold_record: the record that is saved with the hold, so that a crash cannot part them.
    """

    __slots__ = (
        "_ahead",
        "_confirmed_at",
        "_latest",
        "_pending",
        "_previous",
        "_seq",
        "_window",
        "attempt",
        "generation",
        "has_waits",
        "hold_reason",
        "hold_record",
        "is_ending",
        "loop",
        "run",
        "run_id",
        "stopping",
        "whole",
        "worker",
        "workflow_name",
    )

    recall: Recall

    def __init__(self, worker: Worker, run: RunRow, history: list[StepRow], confirmed_at: float) -> None:
        self.worker = worker
        self.loop = worker.loop
        self.run = run
        self.run_id = run.run_id
        self.generation = run.generation
        self.attempt = run.attempt
        self.workflow_name = run.workflow
        self.is_ending = False
        self.stopping: str | None = None
        self.hold_reason: str | None = None
        self._confirmed_at = confirmed_at
        self.hold_record: StepRow | None = None
        self.has_waits = any(row.kind == "wait" for row in history)
        self._seq = max(row.seq for row in history) if history else 0
        self._ahead = 0  # the number of a checkpoint that is being committed elsewhere
        self._window: asyncio.Lock | None = None
        self._pending: PendingAdvance | None = None
        self._previous: PendingAdvance | None = None  # the one before, until it is durable
        self._latest: dict[StepKey, StepRow | None] = {}  # records of this go; None for results
        self.whole: set[StepKey] = set()  # steps of which results are kept, too

    @property
    def is_recalling(self) -> bool:
        """Say whether the code is where it was before: saved answers are ahead of it; from any thread."""
        return self.recall.is_behind()

    def stop(self, why: str) -> None:
        """Unwind the run's code."""
        raise NotImplementedError

    def operation(self) -> PendingAdvance:
        """Give the operation that gathers, a new one if the last was taken by a batch."""
        pending = self._pending
        if pending is None or pending.is_taken:
            if pending is not None and not pending.is_durable and not self._has_failed_before():
                self._previous = pending
            pending = self._pending = PendingAdvance(self.run_id, self.generation, self.run.fence, self.loop)
            self.worker.committer.add(pending)
        return pending

    def _has_failed_before(self) -> bool:
        """Say whether the one before the last was not stored; one that was need not be waited for."""
        return self._previous is not None and not self._previous.is_durable

    def check_saved(self) -> None:
        """Raise what a commit failed with that nobody waited for: what comes now would stand on it."""
        for pending in (self._previous, self._pending):
            if pending is not None and pending.future.done() and not pending.future.result():
                raise errors.LeaseLost("The run was taken over or steered by an operator.")

    def forget_refused(self) -> None:
        """Let what could not be stored go: what comes now says so, and does not stand on it."""
        self._previous = None
        if self._pending is not None and self._pending.future.done():
            self._pending = None

    def withdraw(self) -> None:
        """Take back what waits for a batch: the run is ours by a newer claim, with an operation of its own."""
        if self._pending is not None:
            self.worker.committer.withdraw(self._pending)

    def save(self, row: StepRow, accepts: list[Accept] | None = None) -> None:
        """Hand a record over to be committed; nobody waits for it yet.

        Raises:
            Suspended: the run's last commit is on its way. What a branch that nobody awaited saves
                now would come after it, and could take the end back.
        """
        if self.is_ending:
            raise errors.Suspended("the run has ended; let this exception pass")
        pending, key = self.operation(), row.key
        pending.steps[key] = row
        is_whole = row.state is not StepState.DONE or key in self.whole
        self._latest[key] = row if is_whole else None
        gathered = pending.advance.accepts
        for accept in accepts or ():
            # One commit brings an event once (RULINGS 4). What a step beside this one said under an id
            # of theirs stays, as it would if that were committed already.
            if accept.event.content_hash is None or not any(map(accept.is_same_event, gathered)):
                gathered.append(accept)
        if row.state is not StepState.OPEN:
            self._progressed()

    def _progressed(self) -> None:
        if self.run.crashes:
            self.run.crashes = 0  # a new checkpoint: it is not what kills its holders
            pending = self.operation()
            pending.advance.move = ending.move_of(self, self.run.state)
            pending.future.add_done_callback(lambda _: self.worker.cleared(self.run_id))

    async def durable(self) -> None:
        """Return when everything that the run saved is durable, the lease stands and the run is ours."""
        for pending in (self._previous, self._pending):
            if pending is not None:
                if not pending.is_durable:
                    await self._commit(pending)
                self._confirmed_at = max(self._confirmed_at, pending.confirmed_at)
        self._previous = None
        if not self.worker.has_lease():
            await self.worker.may_start_steps()
        if not self._is_confirmed():
            self._confirm(*await self.worker.confirming.ask(self.run_id))
        self.check_usable()

    async def confirmed(self) -> None:
        """Return when the store has said anew that the run is ours, and everything is durable."""
        self._confirmed_at = float("-inf")
        await self.durable()

    def _is_confirmed(self) -> bool:
        """Say whether the store said a moment ago that the run is ours."""
        return self.worker.elapsed_s() - self._confirmed_at <= CONFIRMED_S

    def _confirm(self, asked_at: float, states: Mapping[str, RunRow]) -> None:
        """Take note of what the store says about the run, asked at *asked_at*."""
        run = states.get(self.run_id)
        if run is not None and run.fence == self.run.fence:
            self._confirmed_at = max(self._confirmed_at, asked_at)
        else:
            self.stop("lost")

    async def _commit(self, pending: PendingAdvance) -> None:
        try:
            if not await pending.future:
                self.stop("lost")
        except errors.OncewardError as error:
            if isinstance(error, errors.StoreUnavailable):  # this process stops, nothing is saved any more
                self.stop("lost")
            elif not isinstance(error, errors.LeaseLost):
                self.hold_reason = ending.unstorable_text(error)
                self.stop("hold")
            raise errors.Suspended("the run leaves memory; let this exception pass") from error

    def may_begin(self) -> bool:
        """Say, in the thread of a body, whether it may begin right now; it may have waited long."""
        if not self._is_confirmed():
            asked_at = self.worker.elapsed_s()
            try:
                states = self.worker.store.states([self.run_id])
            except errors.OncewardError:
                return False  # asked again on the event loop, with patience
            self.loop.call_soon_threadsafe(self._confirm, asked_at, states)
            if states[self.run_id].fence != self.run.fence:
                return False
        return self.stopping is None and not self.is_ending and self.worker.has_lease()

    def check_usable(self) -> None:
        """Refuse to go on while the run unwinds."""
        if self.stopping is not None or self.is_ending:
            raise errors.Suspended("the run leaves memory; let this exception pass")

    def is_from_outside(self, error: BaseException) -> bool:
        """Say whether a cancellation comes from outside the body; if the run unwinds, pass it on."""
        if self.stopping is not None:
            raise errors.Suspended("the run leaves memory; let this exception pass") from error
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0

    def row(
        self,
        key: StepKey,
        kind: str,
        state: StepState,
        started_at: Millis,
        *,
        record: StepRow | None = None,
        tries: int = 1,
        output: str | None = None,
        error: str | None = None,
        wake_at: Millis | None = None,
        child_run_id: str | None = None,
        begun: str | None = None,
        recorded: Mapping[str, Any] = NOTHING_RECORDED,
    ) -> StepRow:
        """Give a step's next record; it goes on from *record*, if there is one.

        Args:
            key: which step.
            kind: of the step.
            state: what became of it.
            started_at: when it began; of a step with a record that says when.
            record: the one before.
            tries: how often it was tried.
            output: its result as JSON text.
            error: of its last failed try, likewise.
            wake_at: until when it waits.
            child_run_id: the run that it started or called; by default that of *record*.
            begun: what is kept of a try without a saved end; by default that of *record*.
            recorded: what its records say of its options; by default what *record* says.
        """
        if record is not None:
            started_at = record.started_at
            child_run_id = child_run_id or record.child_run_id
            begun = begun or record.begun
            recorded = recorded or _kept_facts(record)
        self._seq += 1
        if self._seq == self._ahead:
            self._seq += 1
        row = StepRow(
            name=key.name,
            item=key.item,
            ordinal=key.ordinal,
            seq=self._seq,
            kind=kind,
            state=state,
            attempt=self.attempt,
            started_at=started_at,
            ended_at=None if state is StepState.OPEN else self.worker.now_ms(),
            tries=tries,
            output=output,
            error=error,
            wake_at=wake_at,
            child_run_id=child_run_id,
            begun=begun,
        )
        return msgspec.structs.replace(row, **recorded) if recorded else row

    def maker_of(self, record: StepRow | None) -> tuple[str, int]:
        """Give the run and generation that made what a record tells of: of a copy not this one."""
        if record is None or record.origin is None:
            return self.run_id, self.generation
        run_id, generation = msgspec.json.decode(record.origin, type=tuple[str, int])
        return run_id, generation

    @property
    def window(self) -> asyncio.Lock:
        """Give what transactions of this run take turns by to commit: they are seen in that order."""
        if self._window is None:
            self._window = asyncio.Lock()
        return self._window

    def sealing(self, key: StepKey, kind: str, started_at: Millis, tries: int, output: str) -> StepRow:
        """Give the checkpoint that a transaction of the user's will commit; in the window."""
        seq = self._seq
        self._seq += AHEAD
        row = self.row(key, kind, StepState.DONE, started_at, tries=tries, output=output)
        self._seq, self._ahead = seq, row.seq
        return row

    def sealed(self, row: StepRow) -> None:
        """Take note that a transaction of the user's has committed a checkpoint."""
        self._seq = max(self._seq, row.seq)
        self._latest[row.key] = row if row.key in self.whole else None
        self._progressed()

    def latest(self, key: StepKey) -> StepRow | None:
        """Give the newest record of a step, if it is no result."""
        if key in self._latest:
            return self._latest[key]
        return self.recall.record(key)

    def cut_after(self, seq: int) -> list[StepRow]:
        """Give what the code cut off after the outcome with that number."""
        rows = [self.latest(key) for key in {**dict.fromkeys(self.recall.keys()), **self._latest}]
        return [row for row in rows if row is not None and row.state is StepState.CUT and row.seq > seq]

    def _note_cut(self, key: StepKey, kind: str, error: asyncio.CancelledError) -> None:
        """Save that the code cut a step off before its body, in a back-off or in another wait.

        What the code does then is decided by it, so a later go must do the same (RULINGS 17).
        """
        if not self.is_from_outside(error):
            return
        record = self.latest(key)
        if key in self._latest and record is None:
            return  # it was done already
        if record is None or record.state is StepState.OPEN:
            now = self.worker.now_ms()
            tries = 1 if record is None else max(1, record.tries)
            wake_at = record.wake_at if record is not None and kind == "sleep" else None
            self.save(self.row(key, kind, StepState.CUT, now, record=record, tries=tries, wake_at=wake_at))
            if kind == "wait":
                self.operation().advance.done_waits.append(DoneWait(key))


def _kept_facts(record: StepRow) -> dict[str, Any]:
    """Give what a record says of its step's options, for the next record of the step."""
    if record.effect is None and record.key_scope is None and record.key_memory_ms is None:
        return {}
    return {
        "effect": record.effect,
        "key_scope": record.key_scope,
        "key_memory_ms": record.key_memory_ms,
    }
