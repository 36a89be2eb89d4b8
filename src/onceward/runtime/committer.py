"""Group commit: everything that waits to become durable shares the next transaction.

One committer a process. While a transaction is under way, whatever becomes ready gathers; the
next transaction takes it all. There is no timer: an idle process commits at once, a busy one
batches by itself, so a lone run waits for nobody and a thousand share one sync to disk. How a batch
gets there is the business of `commits`, when it is made that of `pace`.

What must stay true: an operation's future is resolved only when it is durable (or refused); a
run has at most one operation in a batch and its operations keep their order (RULINGS 4, 5); an
operation that cannot be stored fails alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from onceward.core import errors
from onceward.core.awaiting import places_of_batch
from onceward.core.model import EventRow, StepKey, StepRow
from onceward.core.ports import (
    Accept,
    Accepted,
    Advance,
    Batch,
    BatchResult,
    Begun,
    Claim,
    Claimed,
    RunFilter,
    Store,
)
from onceward.runtime.commits import Commits, Writer
from onceward.runtime.pace import Pace

_log = logging.getLogger("onceward.committer")

OPERATIONS_MAX = 512
"""Operations in one batch: enough to share a sync, few enough that nobody waits long for it."""

SURPRISES_MAX = 2
"""How often in a row a batch is tried again as it is, after an error that is not one of ours."""

MAYBE_STORED = "It may have been stored."
"""What it means that a reply was lost and the store cannot tell."""

RETRY_FIRST_S = 0.05
RETRY_CAP_S = 1.0
"""Pauses while the store is away: doubled from the first to the cap, with jitter."""


class _Durable(asyncio.Future[bool]):
    """What all branches of a run wait for: one of them that is cut off must not cut off the others.

    A waiting task that is cancelled hears of it when the commit is over.
    """

    def cancel(self, msg: object = None) -> bool:  # noqa: ARG002 - the signature of futures
        """Refuse."""
        return False


class PendingAdvance:
    """What one run wants committed next; it grows until a batch takes it."""

    __slots__ = ("advance", "confirmed_at", "future", "is_durable", "is_taken", "run_id", "steps")

    def __init__(self, run_id: str, generation: int, fence: int, loop: asyncio.AbstractEventLoop) -> None:
        self.run_id = run_id
        self.advance = Advance(run_id, generation, fence)
        self.steps: dict[StepKey, StepRow] = {}  # of the advance, the last record of each
        self.is_taken = False
        self.is_durable = False
        self.confirmed_at = 0.0  # when the store still said that the run is ours, by `elapsed_s`
        self.future = _Durable(loop=loop)

    def to_advance(self) -> Advance:
        """Freeze what has gathered."""
        self.is_taken = True
        self.advance.steps = list(self.steps.values())
        return self.advance


Taken: TypeAlias = tuple[list[Accepted], float]


class _PendingAccept:
    """Events that are stored together or not at all: they are never spread over two batches."""

    __slots__ = ("accepts", "future")

    def __init__(self, accepts: Sequence[Accept], future: asyncio.Future[Taken]) -> None:
        self.accepts = accepts
        self.future = future


class Committer:
    """Gathers operations and commits them in batches.

    Args:
        store: where to.
        writer: what makes the calls that block.
        batch_ids: draws an id for each batch.
        draw: a number in [0, 1), for the jitter of retries.
        elapsed_s: a clock that only grows, in seconds.
        claims: asked when a batch is made: the claims that should ride along.
        claimed: told about runs that became ours, or None when the claims got no answer.
        routed: asked of each batch by how many registrations it is decided what its events start.
        moved: told that there were more; calls back when they are known.
        evicted: told the process id that may no longer write.
        arrived: told each batch that is committed, and what the store found.
        took: told how many seconds each of them took.
        is_core_full: asked whether this process has as much to do as a core can.
    """

    def __init__(
        self,
        store: Store,
        writer: Writer,
        *,
        batch_ids: Callable[[], str],
        draw: Callable[[], float],
        elapsed_s: Callable[[], float],
        claims: Callable[[], list[Claim]],
        claimed: Callable[[list[Claimed] | None], None],
        routed: Callable[[Batch], int | None],
        moved: Callable[[Callable[[], None]], None],
        evicted: Callable[[str], None],
        arrived: Callable[[Batch, BatchResult], None],
        took: Callable[[float], None],
        is_core_full: Callable[[], bool],
    ) -> None:
        self._store = store
        self._batch_ids = batch_ids
        self._draw = draw
        self._elapsed_s = elapsed_s
        self._claims = claims
        self._claimed = claimed
        self._routed = routed
        self._moved = moved
        self._evicted = evicted
        self._arrived = arrived
        self._took = took
        self._loop = asyncio.get_running_loop()
        self._commits = Commits(store, writer, self._loop)
        self._pace = Pace(elapsed_s, is_core_full)
        self._accepts: list[_PendingAccept] = []
        self._advances: list[PendingAdvance] = []
        self._is_busy = False
        self._is_scheduled = False
        self._is_claim_wanted = False
        self._retry: asyncio.TimerHandle | None = None
        self._retried: list[_Part] = []  # what waits for it
        self._is_closed = False
        self._failures = 0
        self._surprises = 0
        self.process_id = ""
        self.epoch = 0
        self.sent_at = 0.0  # when the last batch was sent, by `elapsed_s`
        self.batches = 0  # begun
        self.settled = 0  # of these, the ones of which we know what happened

    # --- handing in -------------------------------------------------------------------------

    def accept(self, accepts: Sequence[Accept]) -> asyncio.Future[Taken]:
        """Store events with their runs, all in one transaction; resolves when durable.

        Gives what the store found, and when the batch was sent that says so, by `elapsed_s`.
        """
        future: asyncio.Future[Taken] = self._loop.create_future()
        if self._is_closed:
            future.set_exception(_stopping())
            return future
        self._accepts.append(_PendingAccept(accepts, future))
        self._schedule()
        return future

    def add(self, pending: PendingAdvance) -> None:
        """Commit what gathers in *pending* with the next batch.

        Whoever adds it fills it right afterwards, so what goes at once is what was added before it.
        """
        if self._is_closed:
            self._loop.call_soon(self._fail_part, ([], [pending], []), _stopping())
            return
        self._schedule()
        self._advances.append(pending)

    def withdraw(self, pending: PendingAdvance) -> None:
        """Refuse what no batch has taken, of a run that another operation is coming of (RULINGS 4)."""
        if not pending.is_taken and pending in self._advances:
            self._advances.remove(pending)
            pending.is_taken = True
            if not pending.future.done():
                pending.future.set_result(False)

    def claim(self) -> None:
        """Make a batch soon, even if only to claim."""
        self._is_claim_wanted = True
        self._schedule()

    def _schedule(self) -> None:
        if self._is_busy:
            return
        if not self._is_scheduled:
            self._is_scheduled = True
            # The next round of the loop: every task that is ready adds its own operation first.
            self._loop.call_soon(self._flush)
        elif self._pace.is_late():
            self._flush()

    # --- committing -------------------------------------------------------------------------

    def _flush(self) -> None:
        self._is_scheduled = False
        if self._is_busy:
            return
        if self._accepts and self._pace.is_gathering(len(self._accepts)):
            self._is_scheduled = True
            self._loop.call_soon(self._flush)
            return
        taken = _first_few(self._accepts)
        self._pace.took(taken)
        accepts, self._accepts = self._accepts[:taken], self._accepts[taken:]
        advances, self._advances = self._advances[:OPERATIONS_MAX], self._advances[OPERATIONS_MAX:]
        claims = self._claims()
        self._is_claim_wanted = False
        if accepts or advances or claims:
            self._is_busy = True
            self._submit([(accepts, advances, claims)])

    def _submit(self, parts: list[_Part]) -> None:
        """Commit the first part, then the others; a failed batch comes back in halves."""
        self.batches += 1
        accepts, advances, claims = parts[0]
        batch = Batch(
            self._batch_ids(),
            [accept for pending in accepts for accept in pending.accepts],
            [pending.to_advance() for pending in advances],
            claims,
        )
        batch.registrations = self._routed(batch)
        self._commit(batch, parts)

    def _submit_soon(self, parts: list[_Part]) -> None:
        """Commit in the next round of the loop: an answer may be there at once, and hundreds would nest."""
        self._loop.call_soon(self._submit, parts)

    def _commit(self, batch: Batch, parts: list[_Part], is_in_doubt: bool = False) -> None:
        store, process_id, epoch = self._store, self.process_id, self.epoch

        def done(result: BatchResult | None, error: BaseException | None) -> None:
            self._done(process_id, batch, parts, result, error)

        def slowly(begun: Begun | None) -> BatchResult:
            return _apply(store, process_id, epoch, batch, begun, is_in_doubt=is_in_doubt)

        if is_in_doubt:  # its answer may be an old one: `sent_at` stays
            self._commits.make_slowly(slowly, done)
        else:
            self.sent_at = self._elapsed_s()
            self._commits.make(process_id, epoch, batch, slowly, done)

    def _done(
        self,
        process_id: str,
        batch: Batch,
        parts: list[_Part],
        result: BatchResult | None,
        error: BaseException | None,
    ) -> None:
        accepts, advances, claims = parts[0]
        self.settled += not isinstance(error, _InDoubt)
        if error is None and result is not None:
            self._failures = self._surprises = 0
            self._took(self._elapsed_s() - self.sent_at)
            answers = iter(result.accepted)
            for pending in accepts:
                answered = [next(answers) for _ in pending.accepts]
                if not pending.future.done():
                    pending.future.set_result((answered, self.sent_at))
            for advance, held in zip(advances, result.held, strict=True):
                if not advance.future.done():
                    advance.is_durable = held
                    advance.confirmed_at = self.sent_at
                    advance.future.set_result(held)
            if claims:
                # What a registration claimed that has ended since is not ours.
                self._claimed(result.claimed if process_id == self.process_id else None)
            self._arrived(batch, result)
        elif isinstance(error, errors.LeaseLost):
            self._lost(process_id, parts, error)
            return
        elif isinstance(error, errors.StoreUnavailable):
            self._unavailable(batch, parts, error)
            return
        elif isinstance(error, errors.RegistryMoved):
            # Each time there is one registration more, so this does not go round for nothing.
            self._moved(lambda: self._submit(parts))
            return
        elif not isinstance(error, errors.OncewardError) and self._surprises < SURPRISES_MAX:
            # A fault that nobody foresaw, and nothing was written: it may well pass.
            self._surprises += 1
            _log.error("a commit failed, trying again", exc_info=error)
            self._submit(parts)
            return
        elif len(accepts) + len(advances) > 1:
            self._submit_soon([*_halves(accepts, advances, claims), *parts[1:]])
            return
        else:
            self._fail_part(parts[0], error or errors.StoreError("The store gave no result."))
            if claims:
                self._claimed(None)
        if len(parts) > 1:
            self._submit_soon(parts[1:])
            return
        self._rest()

    def _lost(self, process_id: str, parts: list[_Part], error: errors.LeaseLost) -> None:
        """Refuse what an evicted process wanted; if it registered anew meanwhile, only that."""
        tried = error
        if isinstance(error, LeaseLostInDoubt):
            error = error.lost  # only what was tried may be stored
        elif self._surprises:
            tried = LeaseLostInDoubt(error)  # a try that failed oddly may have been committed
            self._surprises = 0
        self._fail_part(parts[0], tried)
        for part in parts[1:]:
            self._fail_part(part, error)
        if any(claims for _, _, claims in parts):
            self._claimed(None)
        if process_id == self.process_id:
            self._fail_all([], error)
            self._evicted(process_id)
        self._rest()

    def _unavailable(self, batch: Batch, parts: list[_Part], error: errors.StoreUnavailable) -> None:
        """Refuse what a sender can send again; keep what only we know until the store is back."""
        # At the end it is closed, perhaps under a claim that is on its way.
        if self._failures == 0 and not self._is_closed:
            _log.warning("the store is away, checkpoints wait for it: %s", error.what)
        self._failures += 1
        self._refuse(self._accepts, error)
        self._accepts = []
        for accepts, _, _ in parts:
            self._refuse(accepts, error)
        pause = min(RETRY_CAP_S, RETRY_FIRST_S * 2 ** min(self._failures, 10)) * (0.5 + self._draw())
        if self._is_closed:
            self._fail_all(parts, error)
        elif isinstance(error, _InDoubt):
            # The same batch under the same id, or a commit that happened would happen twice.
            self._later(pause, parts, self._commit, batch, parts, True)
        else:
            if any(claims for _, _, claims in parts):
                self._claimed(None)
            parts = [([], advances, []) for _, advances, _ in parts if advances]
            if parts:
                self._later(pause, parts, self._submit, parts)
            else:
                self._later(pause, parts, self._rest)

    def _later(self, pause: float, parts: list[_Part], call: Callable[..., None], *args: Any) -> None:
        def now() -> None:
            self._retried = []
            call(*args)

        self._retried = parts
        self._retry = self._loop.call_later(pause, now)

    def _refuse(self, accepts: list[_PendingAccept], error: errors.StoreUnavailable) -> None:
        for pending in accepts:
            if not pending.future.done():
                pending.future.set_exception(_again(error))
                pending.future.exception()  # its sender may have gone

    def _rest(self) -> None:
        self._is_busy = False
        self._pace.over(self.sent_at, overlaps=self._commits.overlaps)
        if (self._accepts or self._advances) and self._pace.is_split():
            self._flush()
        elif self._accepts or self._advances or self._is_claim_wanted:
            self._schedule()
        self._loop.call_soon(self._pace.reacted)

    def _fail_part(self, part: _Part, error: BaseException) -> None:
        futures: list[asyncio.Future[Any]] = [pending.future for pending in part[0]]
        futures += [pending.future for pending in part[1]]
        for future in futures:
            if not future.done():
                future.set_exception(error)
                future.exception()  # a run that ended meanwhile does not wait for it
        # What comes later in a run stands on what came before.
        run_ids = {pending.run_id for pending in part[1]}
        if not run_ids:
            return
        later = [pending for pending in self._advances if pending.run_id in run_ids]
        if later and part[1] is not self._advances:
            self._advances = [pending for pending in self._advances if pending.run_id not in run_ids]
            for pending in later:
                pending.is_taken = True
            self._fail_part(([], later, []), error)

    def _fail_all(self, parts: list[_Part], error: BaseException) -> None:
        for part in (*parts, (self._accepts, self._advances, [])):
            self._fail_part(part, error)
        self._accepts, self._advances = [], []

    def close(self) -> None:
        """Stop; what is not under way is refused, and no longer waits for a store that is away."""
        self._is_busy = self._is_closed = True
        if self._retry is not None:
            self._retry.cancel()
        retried, self._retried = self._retried, []
        self._fail_all(retried, _stopping())
        self._commits.close()

    @property
    def waits_s(self) -> float:
        """Give for how long the commit that is under way has been."""
        is_under_way = self._is_busy and not self._is_closed and not self._retried
        return self._elapsed_s() - self.sent_at if is_under_way else 0.0


_Part = tuple[list[_PendingAccept], list[PendingAdvance], list[Claim]]


class _InDoubt(errors.StoreUnavailable):
    """Whether a batch was committed is not known, and the store cannot be asked now."""


class LeaseLostInDoubt(errors.LeaseLost):
    """The reply to a commit was lost, then the lease: nobody can say any more whether it was written.

    Args:
        lost: what the store said at the next try.
    """

    def __init__(self, lost: errors.LeaseLost) -> None:
        super().__init__(lost.what, means=MAYBE_STORED, todo=lost.todo)
        self.lost = lost


def _first_few(pendings: list[_PendingAccept]) -> int:
    """Give how many deliveries one batch takes: one at least, however many events it has."""
    events = 0
    for number, pending in enumerate(pendings):
        events += len(pending.accepts)
        if events > OPERATIONS_MAX:
            return max(number, 1)
    return len(pendings)


def _stopping() -> errors.StoreUnavailable:
    return errors.StoreUnavailable("This process is stopping.", todo="Send it again.")


def _again(error: errors.StoreUnavailable) -> errors.StoreUnavailable:
    return errors.StoreUnavailable(error.what, means=error.means, todo=error.todo)


def _halves(
    accepts: list[_PendingAccept], advances: list[PendingAdvance], claims: list[Claim]
) -> list[_Part]:
    if len(accepts) + len(advances) == 2 and accepts and advances:
        return [(accepts, [], []), ([], advances, claims)]
    a, b = (len(accepts) + 1) // 2, (len(advances) + 1) // 2
    halves: list[_Part] = [(accepts[:a], advances[:b], []), (accepts[a:], advances[b:], claims)]
    return [half for half in halves if any(half)]


def _apply(
    store: Store, process_id: str, epoch: int, batch: Batch, begun: Begun | None, *, is_in_doubt: bool
) -> BatchResult:
    """Commit, and find out what happened when the reply is lost (RULINGS 1).

    Args:
        store: where to.
        process_id: who writes.
        epoch: its epoch.
        batch: what.
        begun: the same, where it was sent already.
        is_in_doubt: it was tried before, and nobody knows whether it was committed.

    Raises:
        _InDoubt: that is still so.
        LeaseLostInDoubt: that will stay so: this process was evicted, and with it went its last batch's id.
    """
    surprise: Exception | None = None
    try:
        if not is_in_doubt:
            return store.apply(process_id, epoch, batch) if begun is None else begun.finish()
    except errors.ReplyLost:
        pass
    except errors.OncewardError:
        raise
    except Exception as error:  # noqa: BLE001 - nobody knows where it came from: perhaps from after the commit
        surprise = error
    try:
        if store.resolve(process_id, batch.batch_id):
            return recovered(store, batch)
        if surprise is None:
            return store.apply(process_id, epoch, batch)
    except errors.LeaseLost as error:
        raise LeaseLostInDoubt(error) from error
    except (errors.ReplyLost, errors.StoreUnavailable) as error:
        raise _InDoubt(error.what, means=MAYBE_STORED, todo=error.todo) from error
    raise surprise


def recovered(store: Store, batch: Batch) -> BatchResult:
    """Read what a batch did that is known to be committed.

    A claim's rows are not looked for: whatever this process owns and does not run, the worker
    adopts at its next look.
    """
    accepted = []
    seen: set[tuple[str, str]] = set()
    for accept in batch.accepts:
        event: EventRow = accept.event
        runs = {row.workflow: row.run_id for row in _originals(store, event)}
        skipped = {row.workflow: row for row in store.skipped(event.source, event.id)}
        made = runs | {row.workflow: row.run_id for row in skipped.values()}
        ours = {run.workflow: run.run_id for run in accept.runs}
        stored = store.event(event.source, event.id)
        hashes = {event.content_hash, None if stored is None else stored.content_hash}
        # Without a run that tells whose it is, it is ours if it came when ours did, and first in the batch.
        is_ours = made == ours if ours else _is_row(stored, event) and (event.source, event.id) not in seen
        seen.add((event.source, event.id))
        accepted.append(
            Accepted(not is_ours, not is_ours and None not in hashes and len(hashes) == 2, runs, skipped)
        )
    # A fence never falls: equal now means that it was equal then, and the commit was written.
    states = store.states([advance.run_id for advance in batch.advances])
    held = [
        advance.run_id in states and states[advance.run_id].fence == advance.fence
        for advance in batch.advances
    ]
    return BatchResult(accepted, held, [], store.waits_for(places_of_batch(batch)))


def _is_row(stored: EventRow | None, event: EventRow) -> bool:
    """Say whether a stored event is one that was to be stored, as far as its times and trace tell."""
    mine = event.received_at, event.occurred_at, event.content_hash, event.trace
    return stored is not None and mine == (
        stored.received_at,
        stored.occurred_at,
        stored.content_hash,
        stored.trace,
    )


def _originals(store: Store, event: EventRow) -> list[Any]:
    rows = store.runs(RunFilter(source=event.source, event_id=event.id, limit=1000))
    return [row for row in rows if not row.replay_id]
