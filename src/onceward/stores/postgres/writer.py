"""Batches to PostgreSQL and what became of them, also when the reply was lost.

A process commits one batch after the other, and each names the one before it in the committer's
row. So whoever does not know whether a batch is committed reads that row under its lock, and puts
a marker there if it is not: the lost batch, wherever it is held up, has no predecessor any more.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import psycopg

from onceward.core import errors, failpoints
from onceward.core.model import SkippedRow, WaitRow
from onceward.core.ports import Batch, BatchResult, Claimed
from onceward.stores.postgres.batch import DeliveryKey, EventKey, Outcome, PackedBatch, Winner
from onceward.stores.postgres.connection import Link
from onceward.stores.postgres.errors import Fault, evicted, fault_of
from onceward.stores.postgres.processes import LostColumns, PostgresProcesses, damaged_columns
from onceward.stores.postgres.rows import HolderColumns
from onceward.stores.postgres.session import Carried, Result, Session
from onceward.stores.postgres.statements import (
    Call,
    Parameter,
    Statement,
    encode_rows,
    parameter,
    unwritable,
    wire_text,
)
from onceward.stores.rows import RUN_WIDTH, check_registrations, to_claimed, to_value, to_values

CATCH_UPS_MAX = 2
"""How often a batch is sent anew because the row names another predecessor than this store knew."""


@dataclass
class _Progress:
    """How far a batch has come, over several tries."""

    is_in_doubt: bool = False  # sent, and the reply lost
    is_committed: bool = False
    outcome: Outcome | None = None  # None with a commit: its replies were lost


class BatchWriter:
    """Commits the batches of one store on one link.

    Args:
        link: used by nothing else.
        statements: those of ``postgres.sql``.
        processes: for runs that turn out to be damaged.
        namespace: the wall; part of every key.
        channel: where others are told that there is something to do; None tells nobody.
    """

    def __init__(
        self,
        link: Link,
        statements: Mapping[str, Statement],
        processes: PostgresProcesses,
        *,
        namespace: str,
        channel: str | None,
    ) -> None:
        self._link = link
        self._statements = statements
        self._processes = processes
        self._namespace = namespace.encode()
        self._channel = channel
        self._last: dict[str, str | None] = {}  # process id to what its committer row names

    def apply(self, process_id: str, epoch: int, batch: Batch) -> BatchResult:
        """Commit a batch.

        Raises:
            LeaseLost: the process was evicted; nothing was written.
            StoreError: the database refuses something in it; nothing was written.
            StoreUnavailable: it cannot be reached; whether the batch is committed, ``resolve`` says.
        """
        return _Commit(self, self._link, process_id, epoch, batch).finish()

    def begin(self, process_id: str, epoch: int, batch: Batch) -> _Commit | None:
        """Send a batch and do not wait for the reply; None where even that would take time.

        Raises:
            StoreError: something in it cannot be sent; nothing was written.
        """
        if failpoints.is_armed():
            return None
        session = self._link.borrow()
        if session is None:
            return None
        try:
            commit = _Commit(self, self._link, process_id, epoch, batch)
        except BaseException:
            self._link.give_back()
            raise
        commit.send(session)
        return commit

    def resolve(self, process_id: str, batch_id: str) -> bool:
        """Say whether a batch is committed; if it is not, it cannot be any more."""
        return bool(self._link.run(lambda session: self._look_up(session, process_id, batch_id)))

    def _call(self, name: str, **values: Parameter) -> Call:
        return self._statements[name].bind({"namespace": self._namespace, **values})

    def pack(self, process_id: str, batch: Batch) -> PackedBatch:
        """Give the calls of a batch.

        Raises:
            StoreError: something in it cannot be sent.
        """
        common = {"namespace": self._namespace, "process_id": wire_text(process_id)}
        try:
            return PackedBatch(self._statements, common, batch)
        except (UnicodeError, OverflowError) as error:
            raise unwritable(error) from error

    # --- the commit ----------------------------------------------------------------------------

    def commit(
        self,
        session: Session,
        process_id: str,
        epoch: int,
        batch: Batch,
        packed: PackedBatch,
        progress: _Progress,
    ) -> None:
        """Send a batch and wait for its replies."""
        kinds = failpoints.kinds(batch) if failpoints.is_armed() else ()
        for _ in range(CATCH_UPS_MAX):
            guard = self.guard(process_id, epoch, batch)
            try:
                progress.is_in_doubt = True
                results = _send(session, [guard, *packed.calls], packed.after, kinds)
            except psycopg.errors.DivisionByZero:
                progress.is_in_doubt = False
                if self._catch_up(session, process_id, epoch, batch):
                    progress.is_committed = True
                    return
            except psycopg.Error as error:
                progress.is_in_doubt = fault_of(error) is Fault.LOST
                raise
            else:
                break
        else:
            raise psycopg.errors.SerializationFailure("another writer of this process was quicker")
        self.committed(session, process_id, batch, packed, progress, results)
        for kind in kinds:
            failpoints.hit(f"{kind}.after_commit")

    def guard(self, process_id: str, epoch: int, batch: Batch) -> Call:
        """Give the call that refuses the batch of an evicted process, or one that came out of turn."""
        return self._call(
            "guard",
            process_id=wire_text(process_id),
            epoch=parameter(epoch),
            batch_id=wire_text(batch.batch_id),
            previous=parameter(self._last.get(process_id)),
            registrations=parameter(batch.registrations),
        )

    def committed(
        self,
        session: Session,
        process_id: str,
        batch: Batch,
        packed: PackedBatch,
        progress: _Progress,
        results: list[Result],
    ) -> None:
        """Take in what a committed batch did, and tell the others."""
        progress.is_in_doubt, progress.is_committed = False, True
        progress.outcome = outcome = packed.read(results[1:], session.rows)
        self._last[process_id] = batch.batch_id
        if packed.concerns_others(outcome):
            self._tell_others(session, process_id)

    def _tell_others(self, session: Session, process_id: str) -> None:
        if self._channel is not None:
            call = self._call("notify", channel=wire_text(self._channel), process_id=wire_text(process_id))
            with contextlib.suppress(psycopg.Error):  # the next use of the session will see it
                session.hint(call)

    def _catch_up(self, session: Session, process_id: str, epoch: int, batch: Batch) -> bool:
        """Find out why the guard refused; True when this very batch is committed.

        Raises:
            LeaseLost: the process, or its epoch, is no longer registered.
            RegistryMoved: there were more registrations than the batch knows of.
        """
        rows = session.execute(self._call("lock_committer", process_id=wire_text(process_id)))
        if not rows or rows[0][0] != epoch:
            raise evicted(process_id)
        self._last[process_id] = rows[0][1]
        if rows[0][1] == batch.batch_id:
            return True
        if batch.registrations is not None:
            check_registrations(batch, session.execute(self._call("registrations"))[0][0])
        return False

    # --- in doubt ------------------------------------------------------------------------------

    def must_look_up(self, session: Session, process_id: str, batch_id: str) -> bool:
        """Say whether a batch in doubt is committed, and shut it out if not."""
        found = self._look_up(session, process_id, batch_id)
        if found is None:
            raise evicted(process_id)
        return found

    def _look_up(self, session: Session, process_id: str, batch_id: str) -> bool | None:
        """Say whether a batch is committed, and shut it out if not; None without the process."""
        mine = {"process_id": wire_text(process_id)}
        marker = f"not {batch_id}"
        try:
            with session.transaction():
                rows = session.execute(self._call("lock_committer", **mine))
                if not rows:
                    return None
                if rows[0][1] == batch_id:
                    self._last[process_id] = batch_id
                    return True
                session.execute(self._call("shut_batch_out", marker=wire_text(marker), **mine))
        except psycopg.errors.LockNotAvailable:
            self._processes.cut_off(session, process_id)
            raise
        self._last[process_id] = marker
        return False

    # --- the answer ----------------------------------------------------------------------------

    def answer(self, session: Session, batch: Batch, packed: PackedBatch, progress: _Progress) -> BatchResult:
        """Give the result of a committed batch, with what has to be read for it."""
        outcome = progress.outcome
        if outcome is None:
            outcome = self._read_again(session, batch, packed)
        taken = packed.lost_keys(outcome)
        winners = self._winners(session, taken) if taken else {}
        claimed = self._claimed(session, batch, outcome.claimed) if outcome.claimed else []
        return BatchResult(packed.accepted(outcome, winners), packed.held(outcome), claimed, outcome.waits)

    def _winners(self, session: Session, keys: Iterable[EventKey]) -> dict[EventKey, Winner]:
        wanted = encode_rows([{"source": source, "id": event_id} for source, event_id in sorted(keys)])
        winners, skips = session.execute_both(
            self._call("winners", keys=wanted), self._call("skipped_of", keys=wanted)
        )
        found: dict[EventKey, Winner] = {}
        for source, event_id, content_hash, received_at, workflow, run_id in winners:
            winner = found.setdefault((source, event_id), Winner(content_hash, received_at, {}, {}))
            if run_id is not None:
                winner.runs[workflow] = run_id
        for row in skips:
            skipped = to_value(SkippedRow, row)
            found[skipped.source, skipped.event_id].skipped[skipped.workflow] = skipped
        return found

    def _claimed(self, session: Session, batch: Batch, rows: list[tuple[Any, ...]]) -> list[Claimed]:
        claimed: list[Claimed] = []
        damaged: list[LostColumns] = []
        for row in rows:
            try:
                has_event = row[RUN_WIDTH] is not None
                claimed.append(to_claimed(row[0], row if has_event else None))
            except errors.StoreDamaged as error:
                damaged.append(damaged_columns(row[0], batch.claims[0].now, error))
        if damaged:
            with session.transaction():
                self._processes.hold_damaged(session, damaged)
        return claimed

    def _read_again(self, session: Session, batch: Batch, packed: PackedBatch) -> Outcome:
        """Make out what a committed batch did whose replies were lost.

        Its claims are not among it: the worker adopts what it owns.
        """
        outcome = Outcome()
        holders = [HolderColumns(advance.run_id, advance.fence) for advance in batch.advances]
        holders += [
            HolderColumns(accept.by_run, accept.by_fence)
            for accept in batch.accepts
            if accept.by_run is not None and accept.by_fence is not None
        ]
        if holders:
            outcome.lost_fences.update(session.execute(self._call("fences", holders=encode_rows(holders))))
        for call in packed.after:
            outcome.waits = to_values(WaitRow, session.execute(call))
        keys = packed.wanted_keys()
        if keys:
            winners = self._winners(session, keys)
            accepted = self._accepted_deliveries(session, packed, keys)
            outcome.lost_events = {
                key for key in keys if not packed.is_winner(key, winners.get(key), accepted)
            }
            outcome.skipped = {key: winner.skipped for key, winner in winners.items()}
        return outcome

    def _accepted_deliveries(
        self, session: Session, packed: PackedBatch, keys: Iterable[EventKey]
    ) -> set[DeliveryKey]:
        wanted = [
            {"source": row.source, "event_id": row.event_id, "delivery_id": row.delivery_id}
            for key in sorted(keys)
            for row in packed.firsts[key].deliveries[:1]
        ]
        if not wanted:
            return set()
        call = self._call("accepted_deliveries", keys=encode_rows(wanted))
        return set(session.execute(call))


class _Commit:
    """One batch on its way: sent and answered by turns, or carried to its end at once.

    Args:
        writer: whose.
        link: by which.
        process_id: who writes.
        epoch: its epoch.
        batch: what.

    Raises:
        StoreError: something in it cannot be sent.
    """

    def __init__(self, writer: BatchWriter, link: Link, process_id: str, epoch: int, batch: Batch) -> None:
        self._writer = writer
        self._link = link
        self._process_id = process_id
        self._epoch = epoch
        self._batch = batch
        self._packed = writer.pack(process_id, batch)
        self._progress = _Progress()
        self._on_loan: tuple[Session, Carried[list[Result]]] | None = None
        self._is_stuck = False  # the server takes no more, so it is not enough to listen to it

    @property
    def fileno(self) -> int | None:
        """The session's socket; None when everything is here, or when listening is not enough."""
        return None if self._on_loan is None or self._is_stuck else self._on_loan[0].fileno

    @property
    def is_ready(self) -> bool:
        """Whether all that `finish` needs is here."""
        outcome = self._progress.outcome
        return (
            self._on_loan is None
            and outcome is not None
            and not outcome.claimed
            and not self._packed.lost_keys(outcome)
        )

    def send(self, session: Session) -> None:
        """Send it on a borrowed session, which goes back when everything is here."""
        call = self._writer.guard(self._process_id, self._epoch, self._batch)
        self._on_loan = session, session.transacting([call, *self._packed.calls], self._packed.after)
        self._progress.is_in_doubt = True
        self._go_on(lambda _, work: _results_now(work))
        self._is_stuck = self._on_loan is not None and not session.is_sent()

    def advance(self) -> bool:
        """Take in what came; True when there is no more to come."""

        def take_in(session: Session, work: Carried[list[Result]]) -> list[Result] | None:
            session.take_in()
            return _results_now(work)

        self._go_on(take_in)
        return self._on_loan is None

    def _go_on(self, results_of: _ResultsOf) -> None:
        if self._on_loan is None:
            return
        session, work = self._on_loan
        try:
            results = results_of(session, work)
            if results is None:
                return
            self._writer.committed(
                session, self._process_id, self._batch, self._packed, self._progress, results
            )
        except psycopg.Error as error:
            # Refused by its guard, or lost: `finish` begins with what is known.
            is_refused = isinstance(error, psycopg.errors.DivisionByZero)
            self._progress.is_in_doubt = not is_refused and fault_of(error) is Fault.LOST
        except BaseException:
            self._give_back()
            raise
        self._give_back()

    def _give_back(self) -> None:
        self._on_loan = None
        self._link.give_back()

    def finish(self) -> BatchResult:
        """Carry it to its end, over faults and lost replies; as `BatchWriter.apply`."""
        writer, progress, batch, packed = self._writer, self._progress, self._batch, self._packed
        self._go_on(lambda session, work: session.carry(work))
        if self.is_ready and progress.outcome is not None:
            outcome = progress.outcome
            return BatchResult(packed.accepted(outcome, {}), packed.held(outcome), [], outcome.waits)

        def carry_out(session: Session) -> BatchResult:
            if progress.is_in_doubt:
                progress.is_committed = writer.must_look_up(session, self._process_id, batch.batch_id)
                progress.is_in_doubt = False
            if not progress.is_committed:
                writer.commit(session, self._process_id, self._epoch, batch, packed, progress)
            return writer.answer(session, batch, packed, progress)

        return self._link.run(carry_out)


_ResultsOf = Callable[[Session, Carried[list[Result]]], list[Result] | None]


def _results_now(work: Carried[list[Result]]) -> list[Result] | None:
    """Go on with what is here; give the results if that is all."""
    try:
        next(work)
    except StopIteration as over:
        results: list[Result] = over.value
        return results
    return None


def _send(session: Session, calls: list[Call], after: list[Call], kinds: tuple[str, ...]) -> list[Result]:
    if not kinds:
        return session.transact(calls, after)

    def before_commit() -> None:
        for kind in kinds:
            failpoints.hit(f"{kind}.before_commit")

    return session.transact_slowly(calls, before_commit) + session.look(after)
