"""The store on one SQLite file: one connection writes, one reads, everything in WAL mode.

All writes of a process go through one connection behind one lock, so no lock of the database is
contended within a process and SQLite's WAL-reset fault (before 3.51.3: two connections that write
or checkpoint at the same instant) cannot be met by one process. Between processes a file lock
lets one at a time checkpoint. ``synchronous=FULL``: a commit that returned survives power loss.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from onceward.core import errors, failpoints
from onceward.core.model import (
    AttemptRow,
    AuditRow,
    DeliveryRow,
    EventRow,
    Millis,
    ProcessRow,
    RunRow,
    StepRow,
    WorkflowRow,
)
from onceward.core.ports import (
    Accept,
    Accepted,
    Advance,
    Batch,
    BatchResult,
    Claim,
    Claimed,
    EventFilter,
    Look,
    RunFilter,
    Steer,
    TakenOver,
)
from onceward.core.states import TERMINAL, RunState
from onceward.core.takeover import SUSPECT_FROM, lost_run
from onceward.stores import migrate
from onceward.stores.lockfiles import LockFiles
from onceward.stores.rows import COLUMN_MACROS, RUN_WIDTH, to_value, to_values
from onceward.stores.statements import SQLITE_MACROS, load, render

BUSY_TIMEOUT_MS = 10_000
"""How long a statement waits for another process's write before the store counts as busy."""

WAL_PAGES_MAX = 4_000
"""Pages after which the checkpointing process copies the log into the file (16 MB)."""

_MACROS = {**SQLITE_MACROS, **COLUMN_MACROS}


def _json(values: Sequence[str]) -> str:
    return msgspec.json.encode(list(values)).decode()


def _evicted(process_id: str) -> errors.LeaseLost:
    return errors.LeaseLost(
        f"Process {process_id} is no longer registered in the store.",
        means="Its lease ended and another process took its runs over; nothing of this commit was written.",
        todo="It registers anew by itself. If this happens often, give `lease` more time.",
    )


def _step_parameters(namespace: str, run_id: str, generation: int, step: StepRow) -> tuple[Any, ...]:
    return (
        namespace,
        run_id,
        generation,
        step.name,
        step.item,
        step.ordinal,
        step.seq,
        step.kind,
        step.state,
        step.attempt,
        step.tries,
        step.started_at,
        step.ended_at,
        step.output,
        step.error,
        step.wake_at,
        step.child_run_id,
        step.origin,
        step.inputs_hash,
    )


class SqliteStore:
    """Keeps one namespace in one SQLite file.

    Args:
        path: the file, or ``:memory:``.
        namespace: the wall; part of every key.
        now_ms: the host's time in Unix milliseconds.
        connection: an open in-memory database to share, for simulations of several processes.
    """

    kind = "sqlite"

    def __init__(
        self,
        path: str,
        *,
        namespace: str,
        now_ms: Callable[[], Millis],
        connection: sqlite3.Connection | None = None,
    ) -> None:
        self.path = path
        self.namespace = namespace
        self.now_ms = now_ms
        self._memory = path == ":memory:"
        self._shared = connection
        self._sql = load("sqlite.sql", _MACROS)
        self._reads = load("reads.sql", _MACROS)
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._write_lock = threading.RLock()
        self._read_lock = threading.RLock()
        self._pid = os.getpid()
        self._locks = None if self._memory else LockFiles(Path(f"{path}-onceward"))

    # --- connections -------------------------------------------------------------------------

    def open(self, *, migrate: bool) -> None:
        """Open the file, create it if it is missing, and bring the schema up to date if asked."""
        with self._write_lock, self._mapped():
            self._pid = os.getpid()
            if self._writer is None:
                self._writer = self._shared or self._connect()
            self._migrate(self._writer, apply=migrate)

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
            timeout=BUSY_TIMEOUT_MS / 1000,
        )
        connection.execute("pragma journal_mode = wal")
        connection.execute("pragma synchronous = full")
        connection.execute("pragma wal_autocheckpoint = 0")
        connection.execute("pragma foreign_keys = off")
        if not self._memory and connection.execute("pragma journal_mode").fetchone()[0] != "wal":
            raise errors.StoreUnavailable(
                f"The file {self.path} cannot be put into WAL mode.",
                means="Readers would block the writer, and a commit would cost several syncs.",
                todo="Keep the file on a local disk, not on a network file system.",
            )
        self._checkpoint_if_ours(connection)
        if not self._memory and os.name == "posix":
            os.chmod(self.path, os.stat(self.path).st_mode & 0o770)  # nobody else's business (F49)
        return connection

    def _checkpoint_if_ours(self, connection: sqlite3.Connection) -> None:
        if self._locks is not None and self._locks.hold("checkpoint"):
            connection.execute(f"pragma wal_autocheckpoint = {WAL_PAGES_MAX}")

    def close(self) -> None:
        """Close both connections; what is committed stays."""
        with self._write_lock, self._read_lock:
            if self._pid == os.getpid():
                for connection in (self._reader, self._writer):
                    if connection is not None and connection is not self._shared:
                        connection.close()
                if self._locks is not None:
                    self._locks.release_all()
            self._reader = self._writer = None

    def _write_connection(self) -> sqlite3.Connection:
        if self._pid != os.getpid():
            raise errors.StoreForked(
                f"The store {self.path} was opened by process {self._pid} and is used by its child {os.getpid()}.",
                means="Sharing a SQLite connection over a fork corrupts the file.",
                todo="Open the app after the fork: leave it to the web server's start-up, or call open() in the child.",
            )
        if self._writer is None:
            self._writer = self._shared or self._connect()
        return self._writer

    def _read_connection(self) -> sqlite3.Connection:
        if self._memory:
            return self._write_connection()
        self._write_connection()
        if self._reader is None:
            self._reader = sqlite3.connect(
                self.path,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=64,
                timeout=BUSY_TIMEOUT_MS / 1000,
            )
            self._reader.execute("pragma query_only = on")
            self._reader.execute("pragma wal_autocheckpoint = 0")
        return self._reader

    @contextlib.contextmanager
    def _mapped(self) -> Iterator[None]:
        """Turn the driver's errors into ours."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._translated(error) from error

    def _translated(self, error: sqlite3.Error) -> errors.OncewardError:
        name = getattr(error, "sqlite_errorname", "") or type(error).__name__
        if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
            return errors.StoreDamaged(
                f"The file {self.path} is not a healthy SQLite database ({name}: {error}).",
                means="Nothing was written.",
                todo="Restore a backup, or recover the file with the sqlite3 command's .recover.",
            )
        if name.startswith(("SQLITE_IOERR", "SQLITE_FULL")):
            self._writer = None  # after a failed sync the connection is not trusted (F15)
        transient = (
            "SQLITE_BUSY",
            "SQLITE_LOCKED",
            "SQLITE_FULL",
            "SQLITE_IOERR",
            "SQLITE_READONLY",
            "SQLITE_CANTOPEN",
            "SQLITE_PROTOCOL",
        )
        if name.startswith(transient):
            return errors.StoreUnavailable(
                f"The file {self.path} cannot be used now ({name}: {error}).",
                means="Nothing of this commit was written.",
                todo="Check free space, permissions and other programs that hold the file; Onceward tries again.",
            )
        return errors.StoreError(
            f"SQLite refused a statement ({name}: {error}).", means="Nothing was written."
        )

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction that holds the write lock from its start, so reads in it stay true."""
        with self._write_lock, self._mapped():
            connection = self._write_connection()
            connection.execute("begin immediate")
            try:
                yield connection
                connection.execute("commit")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("rollback")
                raise

    def _read(self, name: str, **parameters: Any) -> list[tuple[Any, ...]]:
        with self._read_lock, self._mapped():
            cursor = self._read_connection().execute(
                self._reads[name], {"namespace": self.namespace, **parameters}
            )
            return cursor.fetchall()

    def _select(self, name: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with self._read_lock, self._mapped():
            return self._read_connection().execute(self._sql[name], parameters).fetchall()

    # --- upkeep ----------------------------------------------------------------------------

    def _migrate(self, connection: sqlite3.Connection, *, apply: bool) -> None:
        known = migrate.migrations(_MACROS)
        if (
            not apply
            and not connection.execute(
                "select 1 from sqlite_master where name = 'onceward_migration'"
            ).fetchone()
        ):
            raise self._outdated(known)
        connection.execute("begin immediate")
        try:
            if apply:
                connection.execute(render(migrate.VERSION_TABLE, _MACROS))
            rows = connection.execute("select version, name, checksum from onceward_migration").fetchall()
            missing = migrate.pending(known, {v: (n, c) for v, n, c in rows}, store=self.path)
            if missing and not apply:
                raise self._outdated(missing)
            for migration in missing:
                for number, statement in enumerate(migration.statements, start=1):
                    connection.execute(statement)
                    failpoints.hit("migrate.statement", f"{migration.name}:{number}")
                connection.execute(migrate.record(migration, _MACROS, now_ms=self.now_ms()))
            failpoints.hit("migrate.before_commit")
            connection.execute("commit")
        except BaseException:
            if connection.in_transaction:
                connection.execute("rollback")
            raise

    def _outdated(self, missing: Sequence[migrate.Migration]) -> errors.SchemaOutdated:
        return errors.SchemaOutdated(
            f"The store {self.path} lacks migration {missing[0].name!r}.",
            means="This Onceward cannot use it yet.",
            todo="Run `onceward migrate`.",
        )

    def schema(self) -> str:
        """Give the whole schema as text, for comparing a migrated store with a fresh one."""
        with self._read_lock, self._mapped():
            rows = self._read_connection().execute(
                "select sql from sqlite_master where name like 'onceward_%' and sql is not null order by name"
            )
            return "\n".join(row[0] for row in rows)

    def describe(self) -> Mapping[str, str]:
        """Give what the start-up banner says about this store."""
        return {
            "store": f"sqlite {self.path}",
            "durability": "in memory, lost at exit" if self._memory else "WAL, synchronous=FULL",
            "version": f"SQLite {sqlite3.sqlite_version}",
        }

    # --- processes ---------------------------------------------------------------------------

    def join(self, process: ProcessRow, workflows: Sequence[WorkflowRow]) -> None:
        """Register this process; an older holder of the same instance name is evicted."""
        if self._locks is not None:
            self._locks.hold(process.process_id)
        sql, namespace = self._sql, self.namespace
        with self._writing() as connection:
            if process.instance is not None:
                older = connection.execute(sql["same_instance"], (namespace, process.instance)).fetchall()
                for (process_id,) in older:
                    self._lose(connection, process_id, process.started_at, crash_limit=None)
            connection.execute(
                sql["insert_process"],
                (
                    namespace,
                    process.process_id,
                    process.epoch,
                    process.instance,
                    process.host,
                    process.pid,
                    process.version,
                    process.started_at,
                    process.lease_until,
                ),
            )
            connection.execute(sql["insert_committer"], (namespace, process.process_id, process.epoch))
            for row in workflows:
                connection.execute(
                    sql["save_workflow"], (namespace, row.name, row.triggers, row.seen_at, row.deadline_ms)
                )

    def heartbeat(self, process_id: str, epoch: int, lease_until: Millis) -> None:
        """Renew the lease; from any thread, since it shares the writer behind its lock."""
        with self._writing() as connection:
            done = connection.execute(
                self._sql["heartbeat"], (lease_until, self.namespace, process_id, epoch)
            ).rowcount
            if done != 1:
                raise _evicted(process_id)
            self._checkpoint_if_ours(connection)

    def leave(self, process_id: str, now: Millis) -> None:
        """Give everything back; the next claim goes on with the same attempt."""
        sql, namespace = self._sql, self.namespace
        with self._writing() as connection:
            connection.execute(sql["put_back"], (namespace, process_id))
            connection.execute(sql["put_back_queue"], (namespace, process_id, now))
            connection.execute(sql["shut_out"], (namespace, process_id))
            connection.execute(sql["forget_process"], (namespace, process_id))
        if self._locks is not None:
            self._locks.release(process_id)

    def take_over(self, now: Millis, *, crash_limit: int, skip: str) -> TakenOver:
        """Free the runs of dead processes: a free lock file, or a lease that ended."""
        suspects = [
            row.process_id
            for row in self.processes()
            if row.process_id != skip and (row.lease_until < now or self._is_free(row.process_id))
        ]
        if not suspects:
            return TakenOver((), 0, ())
        with self._writing() as connection:
            # Judged again inside the transaction: a heartbeat may have come meanwhile (RULINGS 9).
            rows = connection.execute(self._reads["processes"], {"namespace": self.namespace}).fetchall()
            dead = [
                row.process_id
                for row in to_values(ProcessRow, rows)
                if row.process_id in suspects and (row.lease_until < now or self._is_free(row.process_id))
            ]
            released, held = 0, []
            for process_id in dead:
                counts = self._lose(connection, process_id, now, crash_limit=crash_limit)
                released += counts[0]
                held += counts[1]
            if dead:
                failpoints.hit("takeover.before_commit")
        if dead:
            failpoints.hit("takeover.after_commit")
        if self._locks is not None:
            for process_id in dead:
                self._locks.forget(process_id)
        return TakenOver(tuple(dead), released, tuple(held))

    def _is_free(self, process_id: str) -> bool:
        return self._locks is not None and self._locks.is_free(process_id)

    def _lose(
        self, connection: sqlite3.Connection, process_id: str, now: Millis, *, crash_limit: int | None
    ) -> tuple[int, list[str]]:
        """Shut a process out and put its runs back, charging each one crash."""
        sql, namespace = self._sql, self.namespace
        connection.execute(sql["shut_out"], (namespace, process_id))
        connection.execute(sql["forget_process"], (namespace, process_id))
        runs = to_values(RunRow, connection.execute(sql["owned_runs"], (namespace, process_id)).fetchall())
        held = []
        for run in runs:
            lost = lost_run(run, now, process_id=process_id, crash_limit=crash_limit)
            connection.execute(
                sql["lose_run"],
                (namespace, run.run_id, lost.state, lost.attempt, lost.crashes, lost.reason, lost.problem_at),
            )
            self._insert_attempt(connection, run.run_id, lost.log)
            if lost.state is RunState.HELD:
                held.append(run.run_id)
                connection.execute(sql["leave_queue"], (namespace, run.run_id))
            else:
                connection.execute(
                    sql["release"], (namespace, run.run_id, now, now, int(lost.crashes >= SUSPECT_FROM))
                )
        return len(runs) - len(held), held

    # --- the hot path --------------------------------------------------------------------------

    def apply(self, process_id: str, epoch: int, batch: Batch) -> BatchResult:
        """Commit a batch in one transaction; see the protocol."""
        kinds = failpoints.kinds(batch) if failpoints.is_armed() else ()
        with self._writing() as connection:
            guarded = connection.execute(
                self._sql["guard"], (batch.batch_id, self.namespace, process_id, epoch)
            ).rowcount
            if guarded != 1:
                raise _evicted(process_id)
            held = [self._advance(connection, process_id, advance) for advance in batch.advances]
            accepted = [self._accept(connection, process_id, accept) for accept in batch.accepts]
            claimed = [row for claim in batch.claims for row in self._claim(connection, process_id, claim)]
            for kind in kinds:
                failpoints.hit(f"{kind}.before_commit")
        for kind in kinds:
            failpoints.hit(f"{kind}.after_commit")
        return BatchResult(accepted, held, claimed)

    def resolve(self, process_id: str, batch_id: str) -> bool:
        """Say whether a batch whose reply was lost is committed."""
        with self._write_lock, self._mapped():
            row = (
                self._write_connection()
                .execute(
                    "select last_batch from onceward_committer where namespace = ? and process_id = ?",
                    (self.namespace, process_id),
                )
                .fetchone()
            )
            return row is not None and row[0] == batch_id

    def _advance(self, connection: sqlite3.Connection, process_id: str, advance: Advance) -> bool:
        sql, namespace, run_id = self._sql, self.namespace, advance.run_id
        row = connection.execute(sql["fence"], (namespace, run_id)).fetchone()
        if row is None or row[0] != advance.fence:
            return False
        if advance.steps:
            generation = advance.generation
            connection.executemany(
                sql["save_step"],
                [_step_parameters(namespace, run_id, generation, step) for step in advance.steps],
            )
        for accept in advance.accepts:
            self._accept(connection, process_id, accept)
        move = advance.move
        if move is not None:
            connection.execute(
                sql["move_run"],
                (
                    namespace,
                    run_id,
                    move.state,
                    move.generation,
                    move.attempt,
                    move.failures,
                    move.crashes,
                    move.deadline_at,
                    move.started_at,
                    move.ended_at,
                    move.output,
                    move.error,
                    move.reason,
                    move.problem_at,
                    move.dismissed_at,
                    move.warning,
                ),
            )
            self._place(connection, run_id, move.state, move.due_at, move.crashes, move.now)
            if move.log is not None:
                self._insert_attempt(connection, run_id, move.log)
            if move.wakes_run_id is not None:
                connection.execute(sql["wake"], (namespace, move.wakes_run_id, move.now))
        return True

    def _place(
        self,
        connection: sqlite3.Connection,
        run_id: str,
        state: RunState,
        due_at: Millis | None,
        crashes: int,
        now: Millis,
    ) -> None:
        """Put the run where its state wants it in the queue."""
        if state in TERMINAL or state is RunState.HELD:
            connection.execute(self._sql["leave_queue"], (self.namespace, run_id))
        elif due_at is not None:
            suspect = int(crashes >= SUSPECT_FROM)
            connection.execute(self._sql["release"], (self.namespace, run_id, due_at, now, suspect))
        else:
            connection.execute(
                self._sql["mark_suspect"], (self.namespace, run_id, int(crashes >= SUSPECT_FROM))
            )

    def _accept(self, connection: sqlite3.Connection, process_id: str, accept: Accept) -> Accepted:
        sql, namespace, event = self._sql, self.namespace, accept.event
        won = (
            connection.execute(
                sql["insert_event"],
                (
                    namespace,
                    event.source,
                    event.id,
                    event.type,
                    event.payload,
                    event.received_at,
                    event.subject,
                    event.occurred_at,
                    event.content_hash,
                ),
            ).rowcount
            == 1
        )
        is_clash = False
        if won:
            for run in accept.runs:
                self._insert_run(connection, process_id, event, run)
            runs = {run.workflow: run.run_id for run in accept.runs}
        else:
            rows = connection.execute(sql["winner"], (namespace, event.source, event.id)).fetchall()
            runs = dict(rows)
            if event.content_hash is not None:
                first = connection.execute(
                    sql["content_hash"], (namespace, event.source, event.id)
                ).fetchone()
                is_clash = first is not None and first[0] is not None and first[0] != event.content_hash
        for number, delivery in enumerate(accept.deliveries):
            outcome = "clash" if is_clash else "accepted" if won and number == 0 else "duplicate"
            self._insert_delivery(connection, delivery, outcome)
        return Accepted(not won, is_clash, runs)

    def _insert_run(self, connection: sqlite3.Connection, process_id: str, event: EventRow, run: Any) -> bool:
        claimed = run.is_claimed
        done = connection.execute(
            self._sql["insert_run"],
            (
                self.namespace,
                run.run_id,
                run.workflow,
                event.source,
                event.id,
                run.replay_id,
                RunState.RUNNING if claimed else RunState.QUEUED,
                1 if claimed else 0,
                run.created_at,
                run.created_at if claimed else None,
                run.deadline_at,
                run.replay_of,
                run.parent_run_id,
                run.parent_generation,
                int(run.is_called),
                run.depth,
                run.input,
            ),
        ).rowcount
        if done == 1:
            connection.execute(
                self._sql["insert_queue"],
                (self.namespace, run.run_id, run.workflow, run.created_at, process_id if claimed else None),
            )
        return done == 1

    def _insert_delivery(self, connection: sqlite3.Connection, row: DeliveryRow, outcome: str) -> None:
        connection.execute(
            self._sql["insert_delivery"],
            (
                self.namespace,
                row.source,
                row.event_id,
                row.delivery_id,
                row.received_at,
                outcome,
                row.content_hash,
                row.secret_index,
                row.request,
                row.body,
            ),
        )

    def _insert_attempt(self, connection: sqlite3.Connection, run_id: str, row: AttemptRow) -> None:
        connection.execute(
            self._sql["insert_attempt"],
            (
                self.namespace,
                run_id,
                row.generation,
                row.attempt,
                row.started_at,
                row.ended_at,
                row.outcome,
                row.error,
                row.process_id,
                row.failed_steps,
            ),
        )

    def _claim(self, connection: sqlite3.Connection, process_id: str, claim: Claim) -> Iterator[Claimed]:
        sql, namespace = self._sql, self.namespace
        due = connection.execute(
            sql["due"], (namespace, claim.now, int(claim.suspects), _json(claim.workflows), claim.limit)
        ).fetchall()
        for (run_id,) in due:
            connection.execute(sql["own"], (namespace, run_id, process_id))
            connection.execute(sql["claim_run"], (namespace, run_id, claim.now))
            row = connection.execute(sql["claimed"], (namespace, run_id)).fetchone()
            yield Claimed(to_value(RunRow, row[:RUN_WIDTH]), to_value(EventRow, row[RUN_WIDTH:]))

    def give_back(self, process_id: str, run_ids: Sequence[str], now: Millis) -> None:
        """Make owned runs due again that this process does not have in memory."""
        with self._writing() as connection:
            for run_id in run_ids:
                parameters = (self.namespace, process_id, run_id, now)
                if connection.execute(self._sql["give_back"], parameters).rowcount == 1:
                    connection.execute(self._sql["give_back_run"], (self.namespace, run_id))

    # --- operators -----------------------------------------------------------------------------

    def steer(self, steer: Steer) -> bool:
        """Commit an operator's action if the run is still as it was read."""
        sql, namespace, run_id, move = self._sql, self.namespace, steer.run_id, steer.move
        kind = failpoints.steer_kind(steer)
        with self._writing() as connection:
            done = connection.execute(
                sql["steer_run"],
                (
                    namespace,
                    run_id,
                    steer.expected_state,
                    steer.expected_generation,
                    steer.expected_fence,
                    move.state,
                    move.generation,
                    move.attempt,
                    move.failures,
                    move.crashes,
                    move.deadline_at,
                    move.started_at,
                    move.ended_at,
                    move.output,
                    move.error,
                    move.reason,
                    move.problem_at,
                    move.dismissed_at,
                    move.warning,
                ),
            ).rowcount
            if done != 1:
                return False
            if move.state in TERMINAL or move.state is RunState.HELD:
                connection.execute(sql["leave_queue"], (namespace, run_id))
            elif move.due_at is not None:
                connection.execute(sql["requeue"], (namespace, run_id, move.due_at))
            for key in steer.reopen:
                connection.execute(
                    sql["reopen"],
                    (namespace, run_id, steer.expected_generation, key.name, key.item, key.ordinal),
                )
            for step in steer.copies:
                connection.execute(
                    sql["save_step"], _step_parameters(namespace, run_id, move.generation, step)
                )
            if move.log is not None:
                self._insert_attempt(connection, run_id, move.log)
            if move.wakes_run_id is not None:
                connection.execute(sql["wake"], (namespace, move.wakes_run_id, move.now))
            self._insert_audit(connection, steer.audit)
            failpoints.hit(f"{kind}.before_commit")
        failpoints.hit(f"{kind}.after_commit")
        return True

    def replay(self, accept: Accept, copies: Sequence[StepRow], audit: AuditRow) -> Accepted:
        """Add a run to an existing event; the same request id gives the same run (RULINGS 11)."""
        (run,) = accept.runs
        event = accept.event
        with self._writing() as connection:
            if self._insert_run(connection, "", event, run):
                for step in copies:
                    connection.execute(
                        self._sql["save_step"], _step_parameters(self.namespace, run.run_id, 1, step)
                    )
                self._insert_audit(connection, audit)
                return Accepted(False, False, {run.workflow: run.run_id})
            row = connection.execute(
                self._sql["replayed"], (self.namespace, event.source, event.id, run.workflow, run.replay_id)
            ).fetchone()
            return Accepted(True, False, {run.workflow: row[0]})

    def _insert_audit(self, connection: sqlite3.Connection, row: AuditRow) -> None:
        connection.execute(
            self._sql["insert_audit"],
            (self.namespace, row.run_id, row.audit_id, row.at, row.verb, row.actor, row.detail),
        )

    # --- reads -----------------------------------------------------------------------------------

    def workflows(self) -> list[WorkflowRow]:
        """Give every workflow that any process registered."""
        return to_values(WorkflowRow, self._read("workflows"))

    def run(self, run_id: str) -> RunRow | None:
        """Give one run, or None."""
        rows = self._read("run", run_id=run_id)
        return to_value(RunRow, rows[0]) if rows else None

    def runs(self, where: RunFilter) -> list[RunRow]:
        """Give runs, newest first."""
        parameters: dict[str, Any] = {"workflow": where.workflow, "state": where.state, "limit": where.limit}
        if where.source is not None and where.event_id is not None:
            return to_values(
                RunRow,
                self._read("runs_of_event", source=where.source, event_id=where.event_id, **parameters),
            )
        name = "problems" if where.problems else "runs"
        return to_values(RunRow, self._read(name, before=where.before, **parameters))

    def event(self, source: str, event_id: str) -> EventRow | None:
        """Give one event, or None."""
        rows = self._read("event", source=source, event_id=event_id)
        return to_value(EventRow, rows[0]) if rows else None

    def events(self, where: EventFilter) -> list[EventRow]:
        """Give events, newest first."""
        before = where.before or (None, "", "")
        return to_values(
            EventRow,
            self._read(
                "events",
                before_at=before[0],
                before_source=before[1],
                before_id=before[2],
                source=where.source,
                type=where.type,
                subject=where.subject,
                limit=where.limit,
            ),
        )

    def deliveries(self, source: str, event_id: str) -> list[DeliveryRow]:
        """Give the deliveries of an event, oldest first."""
        return to_values(DeliveryRow, self._read("deliveries", source=source, event_id=event_id))

    def steps(self, run_id: str, generation: int | None = None) -> list[StepRow]:
        """Give a generation's records in saved order."""
        if generation is None:
            rows = self._read("generation", run_id=run_id)
            generation = rows[0][0] if rows else 1
        return to_values(StepRow, self._read("steps", run_id=run_id, generation=generation))

    def histories(self, run_ids: Sequence[str]) -> dict[str, list[StepRow]]:
        """Give the records of several runs with one query."""
        found: dict[str, list[StepRow]] = {run_id: [] for run_id in run_ids}
        for row in self._select("histories", self.namespace, _json(run_ids)):
            found[row[0]].append(to_value(StepRow, row[1:]))
        return found

    def attempts(self, run_id: str) -> list[AttemptRow]:
        """Give the attempts that ended without ending their generation well."""
        return to_values(AttemptRow, self._read("attempts", run_id=run_id))

    def audits(self, run_id: str) -> list[AuditRow]:
        """Give what operators did to a run, oldest first."""
        return to_values(AuditRow, self._read("audits", run_id=run_id))

    def children(self, run_id: str) -> list[RunRow]:
        """Give the runs that a run started or called."""
        return to_values(RunRow, self._read("children", run_id=run_id))

    def states(self, run_ids: Iterable[str]) -> dict[str, RunRow]:
        """Give several runs by id with one query."""
        rows = to_values(RunRow, self._select("states", self.namespace, _json(list(run_ids))))
        return {row.run_id: row for row in rows}

    def owned(self, process_id: str) -> dict[str, bool]:
        """Give what a process owns, with whether something woke each."""
        return {run_id: bool(woken) for run_id, woken in self._read("owned", process_id=process_id)}

    def look(self, process_id: str, workflows: Sequence[str]) -> Look:
        """Give what a process wants to know once a poll, with one query."""
        due, lease, owned, woken, others = self._select("look", self.namespace, process_id, _json(workflows))[
            0
        ]
        if others and any(self._is_free(other) for other in others.split(",")):
            lease = 0
        return Look(due, lease, owned, tuple(woken.split(",")) if woken else ())

    def processes(self) -> list[ProcessRow]:
        """Give every registered process."""
        return to_values(ProcessRow, self._read("processes"))

    def changes(self) -> Any:
        """Give a token that differs after another process committed."""
        if self._memory:
            return None
        with self._read_lock, self._mapped():
            return self._read_connection().execute("pragma data_version").fetchone()[0]
