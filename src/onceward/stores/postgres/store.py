"""The store on PostgreSQL: any number of processes on one database.

A batch goes out whole, from BEGIN to COMMIT in one pipelined round trip, and costs the client a
few microseconds a row. Nothing but speed depends on session state, so a pooler in transaction
mode may be in between; passing faults are tried again, and a commit whose reply was lost is
looked up, never guessed (RULINGS 1 to 4).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import psycopg

from onceward.core import failpoints
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
from onceward.core.ports import Accept, Accepted, Batch, BatchResult, Begun, Steer, TakenOver
from onceward.stores.access import Asked
from onceward.stores.bulks import StoredBulks
from onceward.stores.notices import StoredNotices
from onceward.stores.postgres.clock import ServerClock
from onceward.stores.postgres.connection import Database, Link
from onceward.stores.postgres.errors import Fault, evicted, fault_of
from onceward.stores.postgres.listen import Listener
from onceward.stores.postgres.operators import Changed, PostgresOperators
from onceward.stores.postgres.processes import PostgresProcesses
from onceward.stores.postgres.schema import PostgresSchema, checked_schema
from onceward.stores.postgres.session import Session
from onceward.stores.postgres.statements import Call, encode_rows, load_statements, parameters, text_array
from onceward.stores.postgres.waits import PostgresWaits
from onceward.stores.postgres.within import PostgresWithin
from onceward.stores.postgres.writer import BatchWriter
from onceward.stores.retention import StoredRetention
from onceward.stores.rows import to_value
from onceward.stores.statements import load, postgres_macros
from onceward.stores.subjects import Do

T = TypeVar("T")

LEASE_MS = 10_000
TAKE_OVER_TRIES_MAX = 2


class PostgresStore(PostgresWaits, StoredBulks, StoredNotices, StoredRetention):
    """Keeps one namespace in one PostgreSQL database.

    Args:
        dsn: libpq's URL or key-value text.
        namespace: the wall; part of every key.
        monotonic_ms: this host's time since whenever, in milliseconds; it only grows.
        draw: gives numbers in [0, 1), for jitter.
        sleep: waits for some seconds.
        lease_ms: how long a lease is; nothing on the server waits or stands still for longer.
        schema: where the tables are.
        pooler: whether a pooler that shares connections by transaction is in between; None finds
            out. Without one statements are prepared once.
        notify: whether other processes are told when there is something to do.
        skip_locked: whether claims pass over rows that another claim has locked; tests take it out.

    Raises:
        ConfigError: the DSN or the schema's name cannot be used.
    """

    kind = "postgres"

    def __init__(
        self,
        dsn: str,
        *,
        namespace: str,
        monotonic_ms: Callable[[], float],
        draw: Callable[[], float],
        sleep: Callable[[float], None],
        lease_ms: int = LEASE_MS,
        schema: str = "onceward",
        pooler: bool | None = None,
        notify: bool = True,
        skip_locked: bool = True,
    ) -> None:
        schema = checked_schema(schema)
        statements = {
            **load_statements("reads.sql", schema, skip_locked=skip_locked),
            **load_statements("looks.sql", schema, skip_locked=skip_locked),
            **load_statements("access.sql", schema, skip_locked=skip_locked),
            **load_statements("bulk.sql", schema, skip_locked=skip_locked),
            **load_statements("retention.sql", schema, skip_locked=skip_locked),
            **load_statements("notices.sql", schema, skip_locked=skip_locked),
            **load_statements("postgres.sql", schema, skip_locked=skip_locked),
        }
        super().__init__(statements, schema=schema, namespace=namespace)
        self._draw = draw
        self._channel = schema
        self._notify = notify
        self._database = Database(
            dsn, lease_ms=lease_ms, pooler=pooler, monotonic_ms=monotonic_ms, draw=draw, sleep=sleep
        )
        self._schema = PostgresSchema(schema, self._database.address)
        self._clock = ServerClock(monotonic_ms)
        self._processes = PostgresProcesses(statements, namespace)
        self._operators = PostgresOperators(statements, namespace)
        self._listeners: list[Listener] = []
        self._make_links()

    @property
    def _controller(self) -> Link:
        return self._control_link

    def _make_links(self) -> None:
        database = self._database
        self._write_link, self._pulse_link = Link(database, is_hot=True), Link(database, is_hot=True)
        self._read_link, self._control_link = Link(database), Link(database)
        self._writer = BatchWriter(
            self._write_link,
            self._statements,
            self._processes,
            namespace=self.namespace,
            channel=self._channel if self._notify else None,
        )

    @property
    def _links(self) -> tuple[Link, ...]:
        return (self._write_link, self._read_link, self._pulse_link, self._control_link)

    @property
    def _reader(self) -> Link:
        return self._read_link

    # --- upkeep ----------------------------------------------------------------------------

    def open(self, *, migrate: bool) -> None:
        """Connect, check the schema's version, migrate if asked; once more in a child after a fork."""
        if self._database.is_forked:
            for link in self._links:
                link.abandon()
            self._listeners.clear()
            self._make_links()
            self._database.forget_fork()
        self._database.is_closed = False
        work = self._migrate if migrate else self._schema.check
        try:
            self._control_link.run(work)
        except BaseException:
            self.close()
            raise

    def _migrate(self, session: Session) -> None:
        self._clock.measure(lambda: self._server_ms(session))
        self._schema.migrate(session, self._clock.now_ms())

    def close(self) -> None:
        """Close every connection; safe to call twice and from any thread."""
        self._database.is_closed = True
        if self._database.is_forked:
            return
        while self._listeners:
            self._listeners.pop().close()
        for link in self._links:
            link.close()

    def now_ms(self) -> Millis:
        """Give the server's time."""
        if not self._clock.is_set:
            self._pulse_link.run(lambda session: self._clock.measure(lambda: self._server_ms(session)))
        return self._clock.now_ms()

    def _server_ms(self, session: Session) -> float:
        ((server_ms,),) = session.execute(self._call("clock"))
        return float(server_ms)

    def describe(self) -> Mapping[str, str]:
        """Give what the start-up banner says about this store."""
        durability = self._read_link.run(self._schema.durability)
        version = self._database.server_version
        pooled = "through a pooler, statements are parsed each time"
        return {
            "store": f"{self._database.address} (schema {self.schema_name})",
            "durability": durability,
            "version": f"PostgreSQL {version // 10000}.{version % 10000}",
            "connection": pooled if self._database.has_pooler else "direct, statements are prepared",
        }

    def schema(self) -> str:
        """Give the whole schema as text, for comparing a migrated store with a fresh one."""
        return self._read_link.run(self._schema.text)

    # --- processes ---------------------------------------------------------------------------

    def join(self, process: ProcessRow, workflows: Sequence[WorkflowRow]) -> None:
        """Register this process; an older holder of the same instance name is evicted."""

        def work(session: Session) -> None:
            try:
                with session.transaction():
                    self._processes.join(session, process, workflows)
            except psycopg.errors.LockNotAvailable:
                for process_id in self._processes.same_instance(session, process):
                    self._processes.cut_off(session, process_id)
                raise

        self._control_link.run(work)

    def heartbeat(self, process_id: str, epoch: int, lease_until: Millis) -> None:
        """Renew the lease and measure the server's clock, on a connection of its own."""
        call = self._call(
            "heartbeat", **parameters(process_id=process_id, epoch=epoch, lease_until=lease_until)
        )

        def beat(session: Session) -> float:
            rows = session.execute(call)
            if not rows:
                raise evicted(process_id)
            return float(rows[0][0])

        self._pulse_link.run(lambda session: self._clock.measure(lambda: beat(session)))

    def leave(self, process_id: str, now: Millis) -> None:
        """Give everything back; the next claim goes on with the same attempt."""

        def work(session: Session) -> None:
            with session.transaction():
                self._processes.leave(session, process_id, now)
            self._tell(session, process_id)

        self._control_link.run(work)

    def forget_workflow(self, name: str) -> bool:
        """Delete a workflow's registration; its runs stay."""

        def work(session: Session) -> bool:
            with session.transaction():
                return self._processes.forget_workflow(session, name)

        return self._control_link.run(work)

    def take_over(self, now: Millis, *, crash_limit: int, skip: str) -> TakenOver:
        """Free the runs of processes whose lease ended, one process a transaction."""
        call = self._call("expired", **parameters(skip=skip, now=now))
        expired = self._control_link.run(lambda session: session.execute(call))
        processes: list[str] = []
        released, held = 0, []
        leases = []
        for process_id, leased_until in expired:
            taken = self._take_over_one(process_id, now, crash_limit=crash_limit, skip=skip)
            if taken is not None:
                processes.append(process_id)
                leases += [] if leased_until is None else [leased_until]
                released += taken[0]
                held += taken[1]
        return TakenOver(tuple(processes), released, tuple(held), min(leases, default=None))

    def _take_over_one(
        self, process_id: str, now: Millis, *, crash_limit: int, skip: str
    ) -> tuple[int, list[str]] | None:
        """Give how many runs are due again and which are held; None if the process is not to be had."""
        in_doubt: tuple[int, list[str]] | None = None

        def work(session: Session) -> tuple[int, list[str]] | None:
            nonlocal in_doubt
            try:
                with session.transaction():
                    if not self._processes.is_dead(session, process_id, now):
                        # It renewed, or is gone already: by us, if the reply to our commit was lost.
                        return in_doubt
                    taken = self._processes.lose(session, process_id, now, crash_limit=crash_limit)
                    failpoints.hit("takeover.before_commit")
                    in_doubt = taken
            except psycopg.Error as error:
                if fault_of(error) is not Fault.LOST:
                    in_doubt = None
                raise
            self._tell(session, skip)
            failpoints.hit("takeover.after_commit")
            return taken

        for _ in range(TAKE_OVER_TRIES_MAX):
            taken, was_locked = self._control_link.run(
                lambda session: self._processes.unless_locked(session, process_id, work)
            )
            if not was_locked:
                return taken
        return None

    # --- the hot path --------------------------------------------------------------------------

    def apply(self, process_id: str, epoch: int, batch: Batch) -> BatchResult:
        """Commit a batch in one transaction and one round trip; see the protocol."""
        return self._writer.apply(process_id, epoch, batch)

    def begin(self, process_id: str, epoch: int, batch: Batch) -> Begun | None:
        """Send a batch without waiting for the reply; None where even that would take time."""
        return self._writer.begin(process_id, epoch, batch)

    def resolve(self, process_id: str, batch_id: str) -> bool:
        """Say whether a batch whose reply was lost is committed; if not, it cannot be any more."""
        return self._writer.resolve(process_id, batch_id)

    def give_back(self, process_id: str, run_ids: Sequence[str], now: Millis) -> None:
        """Make owned runs due again that this process does not have in memory."""
        call = self._call(
            "give_back", run_ids=text_array(sorted(run_ids)), **parameters(process_id=process_id, now=now)
        )

        def work(session: Session) -> None:
            with session.transaction():
                session.execute(call)
            self._tell(session, process_id)

        self._control_link.run(work)

    # --- transactions of the user's -----------------------------------------------------------

    def within(self) -> PostgresWithin:
        """Give what is said on connections of the user's."""
        return PostgresWithin(
            load("within_postgres.sql", postgres_macros(self.schema_name)),
            namespace=self.namespace,
            schema=self.schema_name,
            address=self._database.address,
            channel=self._channel if self._notify else None,
        )

    def alone(self) -> contextlib.AbstractContextManager[None]:
        """Keep nobody away: rows have locks of their own."""
        return contextlib.nullcontext()

    def settled(self, run_id: str, generation: int, key: StepKey) -> StepRow | None:
        """Give a step's record; under the run's lock, which a transaction that seals it has to its end."""
        lock = self._call("lock_run", **parameters(run_id=run_id))
        place = parameters(
            run_id=run_id, generation=generation, step_name=key.name, item=key.item, ordinal=key.ordinal
        )
        read = self._call("step", **place)

        def work(session: Session) -> list[tuple[Any, ...]]:
            with session.transaction():
                session.execute(lock)
                return session.execute(read)

        rows = self._control_link.run(work)
        return to_value(StepRow, rows[0]) if rows else None

    def forget_posted(self, outbox_ids: Sequence[str]) -> None:
        """Drop events from the outbox that were taken in."""
        self._control(self._call("forget_posted", outbox_ids=text_array(sorted(outbox_ids))))

    # --- deliveries ----------------------------------------------------------------------------

    def keep_body(self, delivery_id: str, body: bytes) -> None:
        """Add the body to a delivery whose event has another payload than it brought."""
        row = {"delivery_id": delivery_id, "body": body}
        self._control(self._call("keep_body", rows=encode_rows([row])))

    def first_under(self, source: str, proof: LooseProof, now: Millis) -> str:
        """Give the hash of what came first under a signature, which is remembered now if it is new."""
        new = parameters(
            source=source,
            proof_hash=proof.proof_hash,
            content_hash=proof.content_hash,
            until_at=proof.until_ms,
        )
        forget = self._call("forget_proofs", **parameters(before=now - PROOF_MARGIN_MS))
        first = self._call("first_under", **new)
        _, ((found,),) = self._control_link.run(lambda session: session.execute_both(forget, first))
        return str(found)

    def keep_unparsed(self, row: UnparsedRow) -> None:
        """Keep a delivery that cannot be read, or count it where it is kept already."""
        self._control(self._call("keep_unparsed", rows=encode_rows([row])))

    def forget_unparsed(self, row: UnparsedRow) -> None:
        """Drop an unparsed delivery that was read."""
        key = parameters(source=row.source, content_hash=row.content_hash)
        self._control(self._call("forget_unparsed", **key))

    def add_refusals(self, rows: Sequence[RefusalRow]) -> None:
        """Add to the counts of refused deliveries."""
        self._control(self._call("add_refusals", rows=encode_rows(rows)))

    def _control(self, call: Call) -> None:
        self._control_link.run(lambda session: session.execute(call))

    # --- operators -----------------------------------------------------------------------------

    def steer(self, steer: Steer) -> bool:
        """Commit an operator's action if the run is still as it was read."""
        kind = failpoints.steer_kind(steer)

        def work(session: Session) -> bool:
            with session.transaction():
                if not self._operators.steer(session, steer):
                    # Changed since it was read: by this very action, if its reply was lost.
                    return self._operators.has_audit(session, steer.audit)
                failpoints.hit(f"{kind}.before_commit")
            self._tell(session, "")
            failpoints.hit(f"{kind}.after_commit")
            return True

        try:
            return self._control_link.run(work)
        except Changed:
            return False

    def replay(self, accept: Accept, copies: Sequence[StepRow], audit: AuditRow) -> Accepted:
        """Add a run to an existing event; the same request id gives the same run (RULINGS 11)."""

        def work(session: Session) -> Accepted:
            with session.transaction():
                accepted, is_new = self._operators.replay(session, accept, copies, audit)
                if not is_new:
                    return accepted
                failpoints.hit("steer.before_commit")
            self._tell(session, "")
            failpoints.hit("steer.after_commit")
            return accepted

        return self._control_link.run(work)

    def add_audit(self, row: AuditRow) -> bool:
        """Log what changes no run; False if its request has an entry."""
        call = self._call("add_audit", **parameters(**msgspec.structs.asdict(row)))

        def work(session: Session) -> bool:
            # Written already: by this very call, if its reply was lost.
            return bool(session.execute(call)) or self._operators.has_audit(session, row)

        return self._control_link.run(work)

    # --- who may come in -----------------------------------------------------------------------

    def _look(self, name: str, **values: str | int | None) -> list[tuple[Any, ...]]:
        return self._read(name, **values)

    def _change(self, *asked: Asked) -> list[list[tuple[Any, ...]]]:
        own = parameters(namespace=self.namespace)
        calls = [self._statements[name].bind({**own, **parameters(**values)}) for name, values in asked]

        def work(session: Session) -> list[list[tuple[Any, ...]]]:
            with session.transaction():
                found = [session.execute(calls[0])]
                if found[0]:
                    found += [session.execute(call) for call in calls[1:]]
            return found

        return self._control_link.run(work)

    # --- retention -----------------------------------------------------------------------------

    def _transact(self, work: Callable[[Do], T]) -> T:
        own = parameters(namespace=self.namespace)

        def transaction(session: Session) -> T:
            def do(name: str, /, **values: str | int | None) -> list[tuple[Any, ...]]:
                return session.execute(self._statements[name].bind({**own, **parameters(**values)}))

            with session.transaction():
                return work(do)

        return self._control_link.run(transaction)

    # --- hints ---------------------------------------------------------------------------------

    def listen(self, callback: Callable[[], object]) -> Listener:
        """Call *callback* when another process says that there is something to do.

        In a thread of its own, for ever, until the listener or the store is closed. Where
        notifications do not arrive it says so once and ends; polling finds everything anyway.
        """
        self._database.check_usable()
        listener = Listener(
            self._database,
            channel=self._channel,
            namespace=self.namespace,
            callback=callback,
            is_own=lambda pid: pid == self._write_link.backend_pid,
            notify=self._send_hint,
            draw=self._draw,
        )
        self._listeners.append(listener)
        return listener

    def _send_hint(self, payload: str) -> None:
        call = self._call("hint", **parameters(channel=self._channel, payload=payload))
        self._control_link.run(lambda session: session.execute(call))

    def _tell(self, session: Session, process_id: str) -> None:
        """Tell the processes other than *process_id* that there is something to do."""
        if self._notify:
            call = self._call("notify", **parameters(channel=self._channel, process_id=process_id))
            with contextlib.suppress(psycopg.Error):  # the next use of the session will see it
                session.hint(call)
