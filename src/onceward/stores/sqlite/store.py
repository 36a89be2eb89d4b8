"""The store on one SQLite file: one connection writes, one reads, everything in WAL mode.

All writes of a process go through one connection behind one lock, so no lock of the database is
contended within a process and SQLite's WAL-reset fault (before 3.51.3: two connections that write
or checkpoint at the same instant) cannot be met by one process. Between processes a file lock
lets one at a time checkpoint. ``synchronous=FULL``: a commit that returned survives power loss.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

from onceward.core import errors, failpoints
from onceward.core.arrival import PROOF_MARGIN_MS, LooseProof
from onceward.core.model import (
    AuditRow,
    Millis,
    ProcessRow,
    RefusalRow,
    StepKey,
    StepRow,
    UnparsedRow,
    WorkflowRow,
)
from onceward.core.ports import Accept, Accepted, Ask, Batch, BatchResult, Steer, TakenOver
from onceward.core.retention import refuse_without_payload
from onceward.core.takeover import CRASH_LIMIT
from onceward.stores import migrate
from onceward.stores.access import Asked
from onceward.stores.bulks import StoredBulks
from onceward.stores.notices import StoredNotices
from onceward.stores.retention import StoredRetention
from onceward.stores.rows import COLUMN_MACROS, check_registrations, to_value, to_values
from onceward.stores.sqlite import host_clock as host_clock
from onceward.stores.sqlite.connection import Connections
from onceward.stores.sqlite.host_clock import HostClock
from onceward.stores.sqlite.wait_rows import waits_of_batch
from onceward.stores.sqlite.waits import SqliteWaits
from onceward.stores.sqlite.within import SqliteWithin
from onceward.stores.sqlite.writes import SqliteWrites
from onceward.stores.statements import SQLITE_MACROS, load, render
from onceward.stores.subjects import Do

T = TypeVar("T")

_MACROS = {**SQLITE_MACROS, **COLUMN_MACROS}


def _evicted(process_id: str) -> errors.LeaseLost:
    return errors.LeaseLost(
        f"Process {process_id} is no longer registered in the store.",
        means="Its lease ended and another process took its runs over; nothing of this commit was written.",
        todo="It registers anew by itself. If this happens often, give `lease` more time.",
    )


class SqliteStore(SqliteWaits, StoredBulks, StoredNotices, StoredRetention):
    """Keeps one namespace in one SQLite file.

    Args:
        path: the file, or ``:memory:``.
        namespace: the wall; part of every key.
        now_ms: the host's time in Unix milliseconds.
        connection: an open in-memory database to share, for simulations of several processes.
        host: this host's own clock, by which processes that share the file agree on the time.
        lock: what the stores that share a connection take turns by, where they run in threads.
    """

    kind = "sqlite"

    def __init__(
        self,
        path: str,
        *,
        namespace: str,
        now_ms: Callable[[], Millis],
        connection: sqlite3.Connection | None = None,
        host: HostClock | None = None,
        lock: threading.RLock | None = None,
    ) -> None:
        notices = load("notices.sql", _MACROS)
        sql = {**load("sqlite.sql", _MACROS), **notices}
        connections = Connections(path, shared=connection, lock=lock)
        reads = {
            **load("reads.sql", _MACROS),
            **load("looks.sql", _MACROS),
            **notices,
            **load("access.sql", _MACROS),
            **load("bulk.sql", _MACROS),
            **load("retention.sql", _MACROS),
        }
        super().__init__(connections, sql, reads, namespace)
        self.path = path
        self._wall_ms = now_ms
        self._host = host if host is not None and host.boot_id else None
        self._offset_ms: Millis | None = None
        self._writes = SqliteWrites(sql, namespace)

    # --- upkeep ----------------------------------------------------------------------------

    def open(self, *, migrate: bool) -> None:
        """Open the file, create it if it is missing, and bring the schema up to date if asked."""
        if not migrate:
            self._refuse_to_create()
        self._connections.open(lambda connection: self._migrate(connection, apply=migrate))

    def now_ms(self) -> Millis:
        """Give the file's time; before it is open, the host's."""
        if self._host is None or self._offset_ms is None:
            return self._wall_ms()
        return self._host.since_boot_ms() + self._offset_ms

    def _agree_on_time(self, connection: sqlite3.Connection) -> None:
        """Take the offset that the first process after this boot left, or leave ours."""
        if self._host is None or self._offset_ms is not None:
            return
        offset = self._wall_ms() - self._host.since_boot_ms()
        connection.execute(host_clock.TABLE)
        connection.execute(host_clock.REMEMBER, (self._host.boot_id, offset))
        self._offset_ms = connection.execute(host_clock.RECALL, (self._host.boot_id,)).fetchone()[0]
        self._host.compare(self.now_ms(), self._wall_ms(), self.path)

    def close(self) -> None:
        """Close both connections; what is committed stays."""
        self._connections.close()

    def _refuse_to_create(self) -> None:
        """Leave no empty file behind where somebody only looks."""
        if not self._connections.is_memory and not Path(self.path).exists():
            raise errors.SchemaOutdated(
                f"There is no file {Path(self.path).absolute()}.",
                means=f"An empty store in its place would lack {migrate.NAMES[0]!r}; nothing was made.",
                todo="Name the file that the app uses, or make it: `onceward migrate MODULE:APP`, or with --store.",
            )

    def _migrate(self, connection: sqlite3.Connection, *, apply: bool) -> None:
        known = migrate.migrations(_MACROS)
        if (
            not apply
            and not connection.execute(
                "select 1 from sqlite_master where name = 'onceward_migration'"
            ).fetchone()
        ):
            raise self._outdated(known)
        self._connections.begin(connection)
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
            self._agree_on_time(connection)
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
            todo="Run `onceward migrate MODULE:APP`, or with --store.",
        )

    def schema(self) -> str:
        """Give the whole schema as text, for comparing a migrated store with a fresh one."""
        with self._connections.reading() as connection:
            rows = connection.execute(
                "select sql from sqlite_master where name like 'onceward_%' and sql is not null order by name"
            )
            return "\n".join(row[0] for row in rows)

    def describe(self) -> Mapping[str, str]:
        """Give what the start-up banner says about this store."""
        in_memory = self._connections.is_memory
        return {
            "store": f"sqlite {self.path if in_memory else Path(self.path).absolute()}",
            "durability": "in memory, lost at exit" if in_memory else "WAL, synchronous=FULL",
            "version": f"SQLite {sqlite3.sqlite_version}",
        }

    # --- processes ---------------------------------------------------------------------------

    def join(self, process: ProcessRow, workflows: Sequence[WorkflowRow]) -> None:
        """Register this process; an older holder of the same instance name is evicted."""
        # Held before the row is there: a row whose lock file is free means a dead process.
        self._connections.hold(process.process_id)
        sql, namespace = self._sql, self.namespace
        with self._connections.writing() as connection:
            if process.instance is not None:
                older = connection.execute(sql["same_instance"], (namespace, process.instance)).fetchall()
                for (process_id,) in older:
                    self._writes.lose(connection, process_id, process.started_at, crash_limit=CRASH_LIMIT)
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
            self._writes.save_workflows(connection, workflows)
            if workflows:
                connection.execute(sql["count_registration"], (namespace,))

    def heartbeat(self, process_id: str, epoch: int, lease_until: Millis) -> None:
        """Renew the lease; from any thread, since it shares the writer behind its lock."""
        with self._connections.writing() as connection:
            done = connection.execute(
                self._sql["heartbeat"], (lease_until, self.namespace, process_id, epoch)
            ).rowcount
            if done != 1:
                raise _evicted(process_id)
            self._connections.hold(process_id)  # again, should somebody have removed the file
            self._connections.checkpoint_if_ours(connection)

    def leave(self, process_id: str, now: Millis) -> None:
        """Give everything back; the next claim goes on with the same attempt."""
        sql, namespace = self._sql, self.namespace
        with self._connections.writing() as connection:
            connection.execute(sql["put_back"], (namespace, process_id))
            connection.execute(sql["put_back_queue"], (namespace, process_id, now))
            connection.execute(sql["shut_out"], (namespace, process_id))
            connection.execute(sql["forget_process"], (namespace, process_id))
        if self._connections.locks is not None:
            self._connections.locks.release(process_id)

    def take_over(self, now: Millis, *, crash_limit: int, skip: str) -> TakenOver:
        """Free the runs of dead processes: a free lock file, or a lease that ended."""

        def is_dead(row: ProcessRow) -> bool:
            return row.lease_until < now or self._connections.is_free(row.process_id)

        suspects = {row.process_id for row in self.processes() if row.process_id != skip and is_dead(row)}
        unregistered = self._select("unregistered")
        if not suspects and not unregistered:
            return TakenOver((), 0, ())
        released, held, leased_until = 0, [], None
        with self._connections.writing() as connection:
            # Judged again inside the transaction: a heartbeat may have come meanwhile (RULINGS 9).
            rows = connection.execute(self._reads["processes"], {"namespace": self.namespace}).fetchall()
            processes = to_values(ProcessRow, rows)
            dead = [row.process_id for row in processes if row.process_id in suspects and is_dead(row)]
            leases = [row.lease_until for row in processes if row.process_id in dead]
            leased_until = min(leases, default=None)
            unregistered = connection.execute(self._sql["unregistered"], (self.namespace,)).fetchall()
            dead += [process_id for (process_id,) in unregistered if process_id != skip]
            for process_id in dead:
                freed, stopped = self._writes.lose(connection, process_id, now, crash_limit=crash_limit)
                released += freed
                held += stopped
            if dead:
                failpoints.hit("takeover.before_commit")
        if dead:
            failpoints.hit("takeover.after_commit")
        if self._connections.locks is not None:
            for process_id in dead:
                self._connections.locks.forget(process_id)
        return TakenOver(tuple(dead), released, tuple(held), leased_until)

    def give_back(self, process_id: str, run_ids: Sequence[str], now: Millis) -> None:
        """Make owned runs due again that this process does not have in memory."""
        with self._connections.writing() as connection:
            for run_id in run_ids:
                parameters = (self.namespace, process_id, run_id, now)
                if connection.execute(self._sql["give_back"], parameters).rowcount == 1:
                    connection.execute(self._sql["give_back_run"], (self.namespace, run_id))

    def forget_workflow(self, name: str) -> bool:
        """Delete a workflow's registration; its runs stay."""
        with self._connections.writing() as connection:
            deleted = connection.execute(self._sql["forget_workflow"], (self.namespace, name)).rowcount
            connection.execute(self._sql["count_registration"], (self.namespace,))
        return deleted == 1

    # --- the hot path --------------------------------------------------------------------------

    def apply(self, process_id: str, epoch: int, batch: Batch) -> BatchResult:
        """Commit a batch in one transaction; see the protocol."""
        kinds = failpoints.kinds(batch) if failpoints.is_armed() else ()
        writes = self._writes
        with self._connections.writing() as connection:
            guarded = connection.execute(
                self._sql["guard"], (batch.batch_id, self.namespace, process_id, epoch)
            ).rowcount
            if guarded != 1:
                raise _evicted(process_id)
            if batch.registrations is not None:
                asked = connection.execute(self._reads["registrations"], {"namespace": self.namespace})
                check_registrations(batch, asked.fetchone()[0])
            held = writes.advance(connection, process_id, batch.advances)
            accepted = writes.accept(connection, process_id, batch.accepts)
            claimed = [run for claim in batch.claims for run in writes.claim(connection, process_id, claim)]
            # In the transaction, which begins after every other has ended: what it sees is all there is.
            waits = waits_of_batch(connection, self._sql, self.namespace, batch)
            for kind in kinds:
                failpoints.hit(f"{kind}.before_commit")
        for kind in kinds:
            failpoints.hit(f"{kind}.after_commit")
        return BatchResult(accepted, held, claimed, waits)

    def begin(self, process_id: str, epoch: int, batch: Batch) -> None:  # noqa: ARG002 - the protocol's
        """Give None: a commit waits for the disk, which no event loop can listen to."""
        return

    def resolve(self, process_id: str, batch_id: str) -> bool:
        """Say whether a batch whose reply was lost is committed.

        Inside a transaction that holds the write lock: the lost one has ended, either way.
        """
        with self._connections.writing() as connection:
            row = connection.execute(self._sql["last_batch"], (self.namespace, process_id)).fetchone()
            return row is not None and row[0] == batch_id

    # --- transactions of the user's -----------------------------------------------------------

    def within(self) -> SqliteWithin:
        """Give what is said on connections of the user's."""
        sql = load("within_sqlite.sql", _MACROS)

        def answer(ask: Ask) -> Sequence[Sequence[Any]]:
            with self._connections.reading() as connection:
                return connection.execute(ask.sql, ask.values).fetchall()

        return SqliteWithin(sql, self.namespace, self.path, self._connections.is_free, answer)

    def alone(self) -> AbstractContextManager[None]:
        """Keep the writer and the heartbeat from waiting for the file's lock, which they would hold up."""
        return self._connections.alone()

    def settled(self, run_id: str, generation: int, key: StepKey) -> StepRow | None:
        """Give a step's record; under the file's lock, so that no transaction is under way."""
        values = {
            "namespace": self.namespace,
            "run_id": run_id,
            "generation": generation,
            "step_name": key.name,
            "item": key.item,
            "ordinal": key.ordinal,
        }
        with self._connections.writing() as connection:
            row = connection.execute(self._reads["step"], values).fetchone()
        return None if row is None else to_value(StepRow, row)

    def forget_posted(self, outbox_ids: Sequence[str]) -> None:
        """Drop events from the outbox that were taken in."""
        with self._connections.writing() as connection:
            connection.executemany(
                self._sql["forget_posted"], [(self.namespace, outbox_id) for outbox_id in outbox_ids]
            )

    # --- deliveries ----------------------------------------------------------------------------

    def keep_body(self, delivery_id: str, body: bytes) -> None:
        """Add the body to a delivery whose event has another payload than it brought."""
        with self._connections.writing() as connection:
            connection.execute(self._sql["keep_body"], (self.namespace, delivery_id, body))

    def first_under(self, source: str, proof: LooseProof, now: Millis) -> str:
        """Give the hash of what came first under a signature, which is remembered now if it is new."""
        with self._connections.writing() as connection:
            connection.execute(self._sql["forget_proofs"], (self.namespace, now - PROOF_MARGIN_MS))
            new = (self.namespace, source, proof.proof_hash, proof.content_hash, proof.until_ms)
            ((first,),) = connection.execute(self._sql["first_under"], new).fetchall()
            return str(first)

    def keep_unparsed(self, row: UnparsedRow) -> None:
        """Keep a delivery that cannot be read, or count it where it is kept already."""
        with self._connections.writing() as connection:
            connection.execute(
                self._sql["keep_unparsed"],
                (
                    self.namespace,
                    row.source,
                    row.content_hash,
                    row.delivery_id,
                    row.received_at,
                    row.last_at,
                    row.copies,
                    row.error,
                    row.request,
                    row.body,
                    row.secret_index,
                    row.sent_at,
                ),
            )

    def forget_unparsed(self, row: UnparsedRow) -> None:
        """Drop an unparsed delivery that was read."""
        with self._connections.writing() as connection:
            connection.execute(self._sql["forget_unparsed"], (self.namespace, row.source, row.content_hash))

    def add_refusals(self, rows: Sequence[RefusalRow]) -> None:
        """Add to the counts of refused deliveries."""
        with self._connections.writing() as connection:
            connection.executemany(
                self._sql["add_refusal"],
                [
                    (
                        self.namespace,
                        row.source,
                        row.reason,
                        row.count,
                        row.first_at,
                        row.last_at,
                        row.samples,
                    )
                    for row in rows
                ],
            )

    # --- operators -----------------------------------------------------------------------------

    def steer(self, steer: Steer) -> bool:
        """Commit an operator's action if the run is still as it was read."""
        kind = failpoints.steer_kind(steer)
        with self._connections.writing() as connection:
            if not self._writes.steer(connection, steer):
                return False
            failpoints.hit(f"{kind}.before_commit")
        failpoints.hit(f"{kind}.after_commit")
        return True

    def replay(self, accept: Accept, copies: Sequence[StepRow], audit: AuditRow) -> Accepted:
        """Add a run to an existing event; the same request id gives the same run (RULINGS 11)."""
        (run,) = accept.runs
        event = accept.event
        with self._connections.writing() as connection:
            found = connection.execute(
                self._sql["has_event"], (self.namespace, event.source, event.id)
            ).fetchone()
            if found is None:
                raise errors.NotFound(
                    f"There is no event {event.id!r} of source {event.source!r}.",
                    means="Nothing can be replayed; nothing was written.",
                    todo="Look for the event in this namespace.",
                )
            if not self._writes.insert_run(connection, "", event, run):
                row = connection.execute(
                    self._sql["replayed"],
                    (self.namespace, event.source, event.id, run.workflow, run.replay_id),
                ).fetchone()
                return Accepted(True, False, {run.workflow: row[0]})
            refuse_without_payload(event, run, has_payload=bool(found[0]))
            self._writes.claim_key(connection, run)
            self._writes.save_steps(connection, run.run_id, 1, copies)
            self._writes.insert_audit(connection, audit)
            failpoints.hit("steer.before_commit")
        failpoints.hit("steer.after_commit")
        return Accepted(False, False, {run.workflow: run.run_id})

    def add_audit(self, row: AuditRow) -> bool:
        """Log what changes no run; False if its request has an entry."""
        with self._connections.writing() as connection:
            return self._writes.add_audit(connection, row)

    # --- who may come in -----------------------------------------------------------------------

    def _look(self, name: str, **values: str | int | None) -> list[tuple[Any, ...]]:
        return self._read(name, **values)

    def _change(self, *asked: Asked) -> list[list[tuple[Any, ...]]]:
        found: list[list[tuple[Any, ...]]] = []
        with self._connections.writing() as connection:
            for name, values in asked:
                parameters = {**values, "namespace": self.namespace}
                found.append(connection.execute(self._reads[name], parameters).fetchall())
                if not found[0]:
                    break
        return found

    # --- retention -----------------------------------------------------------------------------

    def _transact(self, work: Callable[[Do], T]) -> T:
        with self._connections.writing() as connection:

            def do(name: str, /, **values: str | int | None) -> list[tuple[Any, ...]]:
                parameters = {**values, "namespace": self.namespace}
                return connection.execute(self._reads[name], parameters).fetchall()

            return work(do)

    def listen(self, callback: Callable[[], object]) -> None:
        """Do nothing: processes that share a file look at `changes` instead."""
