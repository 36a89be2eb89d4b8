"""Processes that come, go and are lost: the rows that hold leases, and the runs that hang on them.

Every function works inside a transaction that its caller began. Locks are taken as everywhere:
the committer's row first, which waits for a batch under way and keeps the next one out, then the
process, then its places in the queue by key, then its runs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
import psycopg

from onceward.core import errors
from onceward.core.model import Millis, ProcessRow, RunRow, WorkflowRow
from onceward.core.states import RunState
from onceward.core.takeover import CRASH_LIMIT, LostRun, lost_runs
from onceward.stores.postgres.rows import AttemptColumns, attempt_columns, is_suspect
from onceward.stores.postgres.session import Session
from onceward.stores.postgres.statements import (
    Parameter,
    Statement,
    encode_rows,
    parameter,
    parameters,
    text_array,
)
from onceward.stores.rows import to_value

T = TypeVar("T")


class LostColumns(msgspec.Struct):
    """A run whose holder was lost, as ``lose_runs`` and ``hold_damaged`` take it."""

    run_id: str
    state: str
    attempt: int
    crashes: int
    reason: str | None
    problem_at: Millis | None


class PlaceColumns(msgspec.Struct):
    """A run that is due again, as ``requeue_lost`` takes it."""

    run_id: str
    is_suspect: int


@dataclass
class Losses:
    """What becomes of the runs of one lost process, as rows to write."""

    lost: list[LostColumns] = field(default_factory=list)
    attempts: list[AttemptColumns] = field(default_factory=list)
    released: list[PlaceColumns] = field(default_factory=list)
    damaged: list[LostColumns] = field(default_factory=list)
    held: list[str] = field(default_factory=list)  # run ids, damaged ones among them

    def add(self, run: RunRow, lost: LostRun) -> None:
        """Add a run that could be read."""
        self.lost.append(
            LostColumns(run.run_id, lost.state, lost.attempt, lost.crashes, lost.reason, lost.problem_at)
        )
        self.attempts.append(attempt_columns(run.run_id, run.fence + 1, lost.log))
        if lost.state is RunState.HELD:
            self.held.append(run.run_id)
        else:
            self.released.append(PlaceColumns(run.run_id, is_suspect(lost.crashes)))

    def add_damaged(self, run_id: str, now: Millis, error: errors.StoreDamaged) -> None:
        """Add a run that could not be read: it is held, whatever else is in its row."""
        self.damaged.append(damaged_columns(run_id, now, error))
        self.held.append(run_id)


def damaged_columns(run_id: str, now: Millis, error: errors.StoreDamaged) -> LostColumns:
    """Give a run that cannot be read as ``hold_damaged`` takes it."""
    return LostColumns(run_id, RunState.HELD, 0, 0, f"damaged: {error.what}", now)


class PostgresProcesses:
    """What transactions about processes write.

    Args:
        statements: those of ``postgres.sql``.
        namespace: the wall; part of every key.
    """

    def __init__(self, statements: Mapping[str, Statement], namespace: str) -> None:
        self._statements = statements
        self._namespace = namespace.encode()

    def _do(self, session: Session, name: str, **values: Parameter) -> list[tuple[Any, ...]]:
        return session.execute(self._statements[name].bind({"namespace": self._namespace, **values}))

    def join(self, session: Session, process: ProcessRow, workflows: Sequence[WorkflowRow]) -> None:
        """Register a process; an older one of the same instance is evicted.

        Raises:
            StoreError: the id is taken by another epoch.
        """
        mine = {field: parameter(value) for field, value in msgspec.structs.asdict(process).items()}
        for process_id in self.same_instance(session, process):
            self.lose(session, process_id, process.started_at, crash_limit=CRASH_LIMIT)
        if not self._do(session, "insert_process", **mine):
            raise errors.StoreError(
                f"Process {process.process_id} is already registered with another epoch than {process.epoch}.",
                means="Two processes have the same id, or one registers again without having left.",
                todo="Register with a new id.",
            )
        self._do(session, "insert_committer", **mine)
        if workflows:
            named = {row.name: row for row in workflows}
            self._do(
                session, "save_workflows", workflows=encode_rows([named[name] for name in sorted(named)])
            )
            self._do(session, "count_registration")

    def forget_workflow(self, session: Session, name: str) -> bool:
        """Delete a workflow's registration; False if there is none."""
        is_deleted = bool(self._do(session, "forget_workflow", **parameters(workflow=name)))
        self._do(session, "count_registration")
        return is_deleted

    def same_instance(self, session: Session, process: ProcessRow) -> list[str]:
        """Give the other processes that have this one's instance name."""
        if process.instance is None:
            return []
        mine = parameters(instance=process.instance, process_id=process.process_id)
        return [process_id for (process_id,) in self._do(session, "same_instance", **mine)]

    def leave(self, session: Session, process_id: str, now: Millis) -> None:
        """Give everything back; the next claim goes on with the same attempt."""
        mine = parameters(process_id=process_id, now=now)
        for name in ("shut_out", "forget_process", "lock_owned", "put_back", "put_back_queue"):
            self._do(session, name, **mine)

    def is_dead(self, session: Session, process_id: str, now: Millis) -> bool:
        """Lock a process's rows and judge its lease once more: a heartbeat may have come meanwhile.

        One that is not registered and still owns runs has no lease at all.
        """
        mine = parameters(process_id=process_id)
        self._do(session, "lock_committer", **mine)
        rows = self._do(session, "lock_process", **mine)
        if not rows:
            return bool(self._do(session, "owns_any", **mine))
        return bool(rows[0][0] < now)

    def unless_locked(
        self, session: Session, process_id: str, work: Callable[[Session], T]
    ) -> tuple[T | None, bool]:
        """Do *work*; True beside it if the process's rows were locked for so long that it gave up.

        Whoever holds them then is cut off: a batch of a process that stopped half-way, or whose
        rest the network swallowed.
        """
        try:
            return work(session), False
        except psycopg.errors.LockNotAvailable:
            self.cut_off(session, process_id)
            return None, True

    def cut_off(self, session: Session, process_id: str) -> None:
        """End the connection that holds the committer's row."""
        with contextlib.suppress(psycopg.errors.InsufficientPrivilege):
            self._do(session, "cut_off", **parameters(process_id=process_id))

    def lose(
        self, session: Session, process_id: str, now: Millis, *, crash_limit: int
    ) -> tuple[int, list[str]]:
        """Shut a process out and put its runs back, charging each one crash.

        Returns:
            How many are due again, and the ids of those that are held.
        """
        mine = parameters(process_id=process_id)
        self._do(session, "shut_out", **mine)
        self._do(session, "forget_process", **mine)
        losses, runs = Losses(), []
        for row in self._do(session, "owned_runs", **mine):
            try:
                runs.append(to_value(RunRow, row))
            except errors.StoreDamaged as error:
                losses.add_damaged(row[0], now, error)
        lost = lost_runs(runs, now, process_id=process_id, crash_limit=crash_limit)
        for run, standing in zip(runs, lost, strict=True):
            losses.add(run, standing)
        self._write(session, losses, now)
        return len(losses.released), losses.held

    def hold_damaged(self, session: Session, damaged: list[LostColumns]) -> None:
        """Hold runs that cannot be read: in the queue they would come up in every claim (F27)."""
        losses = Losses(damaged=damaged, held=[row.run_id for row in damaged])
        self._write(session, losses, 0)

    def _write(self, session: Session, losses: Losses, now: Millis) -> None:
        if losses.held:
            self._do(session, "leave_queue", run_ids=text_array(sorted(losses.held)))
        if losses.released:
            self._do(session, "requeue_lost", released=encode_rows(losses.released), now=parameter(now))
        if losses.damaged:
            self._do(session, "hold_damaged", lost=encode_rows(losses.damaged))
        if losses.lost:
            self._do(session, "lose_runs", lost=encode_rows(losses.lost))
            self._do(session, "log_attempts", attempts=encode_rows(losses.attempts))
        if losses.held:
            self._do(session, "add_notices", ids=encode_rows(sorted(losses.held)))
