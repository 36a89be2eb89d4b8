"""What one transaction of the SQLite store writes: accepts, advances, claims, lost holders.

Every function here runs inside a transaction that began immediate, so what it has read is still
true when it writes. Nothing here begins or ends a transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from onceward.core import errors
from onceward.core.model import (
    DELIVERIES_KEPT_MAX,
    AttemptRow,
    AuditRow,
    DeliveryRow,
    EventRow,
    KeyClaim,
    Millis,
    NewRun,
    RunRow,
    SkippedRow,
    StepRow,
    WorkflowRow,
)
from onceward.core.ports import Accept, Accepted, Advance, Claim, Claimed, RunMove, Steer
from onceward.core.states import TERMINAL, RunState
from onceward.core.takeover import SUSPECT_FROM, lost_runs
from onceward.stores.rows import to_claimed, to_value
from onceward.stores.sqlite.judging import SqliteJudging
from onceward.stores.sqlite.rows_at_once import RowsAtOnce, portions
from onceward.stores.sqlite.wait_rows import write_waits

_fences = msgspec.json.Decoder(dict[str, int]).decode

# The driver looks for an adapter of whatever is not a plain str.
_HELD, _RUNNING, _QUEUED = str(RunState.HELD), str(RunState.RUNNING), str(RunState.QUEUED)


def json_list(values: Sequence[str]) -> str:
    """Give the JSON text that ``json_each`` takes apart again."""
    return msgspec.json.encode(list(values)).decode()


def _step_parameters(run_id: str, generation: int, step: StepRow) -> tuple[Any, ...]:
    return (
        run_id,
        generation,
        step.name,
        step.item,
        step.ordinal,
        step.seq,
        step.kind,
        str(step.state),  # the driver looks for an adapter of whatever is not a plain str
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
        step.effect,
        step.key_scope,
        step.key_memory_ms,
        step.begun,
    )


def _move_parameters(move: RunMove) -> tuple[Any, ...]:
    return (
        str(move.state),
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
    )


def _is_off_queue(state: RunState) -> bool:
    return state in TERMINAL or state is RunState.HELD


def _is_plain(accept: Accept) -> bool:
    """Say whether an accept of a new event is written as it is, whatever else is stored."""
    if accept.by_run is not None or len(accept.deliveries) > 1:
        return False
    for run in accept.runs:
        if run.version is not None or (run.key is not None and run.once is not None):
            return False
    return True


def _is_suspect(move: RunMove) -> int:
    return int(move.crashes >= SUSPECT_FROM)


class SqliteWrites:
    """The writes of one namespace.

    Args:
        sql: the named statements of ``sqlite.sql``.
        namespace: the wall; part of every key.
    """

    def __init__(self, sql: Mapping[str, str], namespace: str) -> None:
        self._sql = sql
        self._namespace = namespace
        self._judging = SqliteJudging(sql, namespace)
        self._save_workflows = RowsAtOnce(sql["save_workflow"], namespace)
        self._save_steps = RowsAtOnce(sql["save_step"], namespace)
        self._move_runs = RowsAtOnce(sql["move_run"], namespace)
        self._insert_event = RowsAtOnce(sql["insert_event"], namespace)
        self._insert_events = RowsAtOnce(sql["insert_new_events"], namespace)
        self._insert_runs = RowsAtOnce(sql["insert_run"], namespace)
        self._insert_queue = RowsAtOnce(sql["insert_queue"], namespace)
        self._insert_deliveries = RowsAtOnce(sql["insert_delivery"], namespace)

    def save_workflows(self, connection: sqlite3.Connection, workflows: Sequence[WorkflowRow]) -> None:
        """Register workflows, or write what they are now."""
        rows = [
            (row.name, row.triggers, row.seen_at, row.deadline_ms, row.rules, row.retention, row.tags)
            for row in workflows
        ]
        self._save_workflows.execute(connection, rows)

    # --- from inside a run -------------------------------------------------------------------

    def advance(
        self, connection: sqlite3.Connection, process_id: str, advances: Sequence[Advance]
    ) -> list[bool]:
        """Write what holders commit, each whole or, with an old fence, not at all.

        Returns:
            For each whether its fence held.
        """
        fences = self._fences(connection, [advance.run_id for advance in advances])
        held = [fences.get(advance.run_id) == advance.fence for advance in advances]
        steps: list[tuple[Any, ...]] = []
        moves: list[tuple[str, RunMove]] = []
        for advance, holds in zip(advances, held, strict=True):
            if not holds:
                continue
            run_id, generation = advance.run_id, advance.generation
            steps += [_step_parameters(run_id, generation, step) for step in advance.steps]
            for accept in advance.accepts:
                self._insert(connection, process_id, accept)
            if advance.waits or advance.done_waits or advance.promises:
                write_waits(connection, self._sql, self._namespace, advance)
            if advance.move is not None:
                moves.append((run_id, advance.move))
        self._save_steps.execute(connection, steps)
        self._move(connection, moves)
        return held

    def _fences(self, connection: sqlite3.Connection, run_ids: Sequence[str]) -> dict[str, int]:
        if not run_ids:
            return {}
        row = connection.execute(self._sql["fences"], (self._namespace, json_list(run_ids))).fetchone()
        return _fences(row[0])

    def _move(self, connection: sqlite3.Connection, moves: Sequence[tuple[str, RunMove]]) -> None:
        namespace = self._namespace
        self._move_runs.execute(connection, [(run_id, *_move_parameters(move)) for run_id, move in moves])
        off = [run_id for run_id, move in moves if _is_off_queue(move.state)]
        if off:
            connection.execute(self._sql["all_leave_queue"], (namespace, json_list(off)))
        self._add_notices(connection, [run_id for run_id, move in moves if move.problem_at is not None])
        for run_id, move in moves:
            if not _is_off_queue(move.state):
                self._place(connection, run_id, move)
            self.follow_up(connection, run_id, move)

    def _add_notices(self, connection: sqlite3.Connection, run_ids: Sequence[str]) -> None:
        """Write what is to be told of runs that failed or are held by now; most transactions have none."""
        if run_ids:
            values = {"namespace": self._namespace, "ids": json_list(run_ids)}
            connection.execute(self._sql["add_notices"], values)

    def save_steps(
        self, connection: sqlite3.Connection, run_id: str, generation: int, steps: Sequence[StepRow]
    ) -> None:
        """Write checkpoints; a record that has its outcome stays as it is."""
        self._save_steps.execute(connection, [_step_parameters(run_id, generation, step) for step in steps])

    def _place(self, connection: sqlite3.Connection, run_id: str, move: RunMove) -> None:
        """Put a run that goes on where its state wants it in the queue."""
        sql, namespace, suspect = self._sql, self._namespace, _is_suspect(move)
        if move.due_at is not None:
            connection.execute(sql["release"], (namespace, run_id, move.due_at, move.now, suspect))
        else:
            connection.execute(sql["mark_suspect"], (namespace, run_id, suspect))

    def follow_up(self, connection: sqlite3.Connection, run_id: str, move: RunMove) -> None:
        """Log the attempt that a move ends, wake the parent that waits for it, give the key free."""
        self._judging.end(connection, run_id, move)
        if move.has_waits and move.state in TERMINAL:
            self._end_waits(connection, run_id)
        if move.log is not None:
            self.insert_attempt(connection, run_id, move.log)
        if move.wakes_run_id is not None:
            connection.execute(self._sql["wake"], (self._namespace, move.wakes_run_id, move.now))

    def _end_waits(self, connection: sqlite3.Connection, run_id: str) -> None:
        connection.execute(self._sql["end_waits"], (self._namespace, run_id))
        connection.execute(self._sql["end_offers"], (self._namespace, run_id))

    # --- events and their runs -----------------------------------------------------------------

    def accept(
        self, connection: sqlite3.Connection, process_id: str, accepts: Sequence[Accept]
    ) -> list[Accepted]:
        """Insert events with their runs, or find what the first accept of each made.

        Those that need no look at what is stored are inserted together, if all of them are new.
        """
        plain: dict[tuple[str, str], int] = {}
        for place, accept in enumerate(accepts):
            if _is_plain(accept):
                plain.setdefault((accept.event.source, accept.event.id), place)
        places = list(plain.values())
        new = self._insert_new_events(connection, accepts, places) if len(places) > 1 else []
        self._insert_what_they_bring(connection, process_id, [accepts[place] for place in new])
        inserted = set(new)
        answers = []
        for place, accept in enumerate(accepts):
            if place in inserted:
                runs = {}
                for run in accept.runs:
                    runs[run.workflow] = run.run_id
                answers.append(Accepted(False, False, runs))
            else:
                answers.append(self._accept(connection, process_id, accept))
        return answers

    def _insert_new_events(
        self, connection: sqlite3.Connection, accepts: Sequence[Accept], places: Sequence[int]
    ) -> list[int]:
        """Insert the events of the accepts at *places*; give the places of those that are inserted.

        A portion with an event that is there already is left to be inserted one by one.
        """
        inserted: list[int] = []
        at = 0
        for count in portions(len(places)):
            portion = places[at : at + count]
            at += count
            rows = [self._event_parameters(accepts[place].event) for place in portion]
            try:
                self._insert_events.execute(connection, rows)
            except sqlite3.IntegrityError:
                continue
            inserted += portion
        return inserted

    def _insert_what_they_bring(
        self, connection: sqlite3.Connection, process_id: str, accepts: Sequence[Accept]
    ) -> None:
        """Insert the runs and deliveries of events that are new."""
        runs: list[tuple[Any, ...]] = []
        queued: list[tuple[Any, ...]] = []
        held: list[str] = []
        deliveries: list[tuple[Any, ...]] = []
        for accept in accepts:
            for run in accept.runs:
                runs.append(self._run_parameters(accept.event, run))
                if run.hold_reason is None:
                    queued.append(self._queue_parameters(process_id, run))
                else:
                    held.append(run.run_id)
            deliveries += [self._delivery_parameters(row, "accepted") for row in accept.deliveries]
        self._insert_runs.execute(connection, runs)
        self._insert_queue.execute(connection, queued)
        self._add_notices(connection, held)
        self._insert_deliveries.execute(connection, deliveries)

    def _accept(self, connection: sqlite3.Connection, process_id: str, accept: Accept) -> Accepted:
        if accept.by_run is not None:
            fences = self._fences(connection, [accept.by_run])
            if fences.get(accept.by_run) != accept.by_fence:
                return Accepted(False, False, {}, is_refused=True)
        return self._insert(connection, process_id, accept)

    def _insert(self, connection: sqlite3.Connection, process_id: str, accept: Accept) -> Accepted:
        sql, namespace, event = self._sql, self._namespace, accept.event
        won = self._insert_event.execute(connection, [self._event_parameters(event)]) == 1
        is_clash = False
        skipped: dict[str, SkippedRow] = {}
        if won:
            runs = {}
            for wanted in accept.runs:
                run = self._judging.judge(connection, event, wanted)
                if isinstance(run, SkippedRow):
                    skipped[run.workflow] = run
                else:
                    self.insert_run(connection, process_id, event, run)
                    runs[run.workflow] = run.run_id
        else:
            rows = connection.execute(sql["winner"], (namespace, event.source, event.id)).fetchall()
            runs = dict(rows)
            skipped = self._judging.skipped(connection, event)
            if event.content_hash is not None:
                first = connection.execute(
                    sql["content_hash"], (namespace, event.source, event.id)
                ).fetchone()
                is_clash = first is not None and first[0] is not None and first[0] != event.content_hash
        for number, delivery in enumerate(accept.deliveries):
            if won and number == 0:
                self._insert_delivery(connection, delivery, "accepted")
            else:
                self._insert_another(connection, delivery, "clash" if is_clash else "duplicate")
        return Accepted(not won, is_clash, runs, skipped)

    def insert_run(
        self, connection: sqlite3.Connection, process_id: str, event: EventRow, run: NewRun
    ) -> bool:
        """Insert a run and its place in the queue; False when its identity is taken."""
        is_new = self._insert_runs.execute(connection, [self._run_parameters(event, run)]) == 1
        if is_new and run.hold_reason is None:
            self._insert_queue.execute(connection, [self._queue_parameters(process_id, run)])
        elif is_new:
            self._add_notices(connection, [run.run_id])
        return is_new

    def _event_parameters(self, event: EventRow) -> tuple[Any, ...]:
        return (
            event.source,
            event.id,
            event.type,
            event.payload,
            event.received_at,
            event.subject,
            event.occurred_at,
            event.content_hash,
            int(event.id_is_signed),
            event.trace,
        )

    def _run_parameters(self, event: EventRow, run: NewRun) -> tuple[Any, ...]:
        claimed = run.is_claimed
        is_held = run.hold_reason is not None
        return (
            run.run_id,
            run.workflow,
            event.source,
            event.id,
            run.replay_id,
            _HELD if is_held else _RUNNING if claimed else _QUEUED,
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
            int(run.is_stale),
            run.key,
            run.hold_reason or run.reason,
            run.created_at if is_held else None,
        )

    def _queue_parameters(self, process_id: str, run: NewRun) -> tuple[Any, ...]:
        due_at = run.created_at if run.due_at is None else run.due_at
        return (run.run_id, run.workflow, due_at, process_id if run.is_claimed else None)

    def _insert_another(self, connection: sqlite3.Connection, row: DeliveryRow, outcome: str) -> None:
        """Keep a delivery of an event that has one already; where it has enough, only count it."""
        key = (self._namespace, row.source, row.event_id)
        ((kept,),) = connection.execute(self._sql["kept_deliveries"], key)
        if kept < DELIVERIES_KEPT_MAX:
            self._insert_delivery(connection, row, outcome)
        else:
            connection.execute(self._sql["add_surplus"], (*key, row.received_at))

    def claim_key(self, connection: sqlite3.Connection, run: NewRun) -> None:
        """Let the run of a replay hold its key, if it is to have it.

        Raises:
            KeyTaken: another run holds it.
        """
        if run.key is not None and run.once is not None:
            claim = KeyClaim(run.workflow, run.key, run.once, run.payload_hash, run.window_ms)
            self._judging.reclaim(connection, run.run_id, claim, run.created_at)

    def _insert_delivery(self, connection: sqlite3.Connection, row: DeliveryRow, outcome: str) -> None:
        self._insert_deliveries.execute(connection, [self._delivery_parameters(row, outcome)])

    def _delivery_parameters(self, row: DeliveryRow, outcome: str) -> tuple[Any, ...]:
        return (
            row.source,
            row.event_id,
            row.delivery_id,
            row.part,
            row.received_at,
            outcome,
            row.content_hash,
            row.secret_index,
            row.sent_at,
            row.request,
            row.body,
        )

    # --- claims and lost holders -----------------------------------------------------------------

    def insert_attempt(self, connection: sqlite3.Connection, run_id: str, row: AttemptRow) -> None:
        """Log an attempt; the first record of it stays."""
        connection.execute(
            self._sql["insert_attempt"],
            (
                self._namespace,
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

    def insert_audit(self, connection: sqlite3.Connection, row: AuditRow) -> None:
        """Log what an operator did."""
        connection.execute(self._sql["insert_audit"], (self._namespace, *_audit_parameters(row)))

    def add_audit(self, connection: sqlite3.Connection, row: AuditRow) -> bool:
        """Log what is written by itself; False if its request has an entry."""
        done = connection.execute(self._sql["add_audit"], (self._namespace, *_audit_parameters(row)))
        return done.rowcount == 1

    def claim(self, connection: sqlite3.Connection, process_id: str, claim: Claim) -> Iterator[Claimed]:
        """Make due runs this process's own; one that cannot be read is held, the others go on."""
        sql, namespace = self._sql, self._namespace
        due = connection.execute(
            sql["due"], (namespace, claim.now, int(claim.suspects), json_list(claim.workflows), claim.limit)
        ).fetchall()
        if not due:
            return
        run_ids = json_list([run_id for (run_id,) in due])
        connection.execute(sql["own"], (namespace, run_ids, process_id))
        connection.execute(sql["claim_runs"], (namespace, run_ids, claim.now))
        rows = {row[0]: row for row in connection.execute(sql["claimed"], (namespace, run_ids))}
        for (run_id,) in due:
            try:
                claimed = to_claimed(run_id, rows.get(run_id))
            except errors.StoreDamaged as error:
                self._hold_damaged(connection, run_id, claim.now, error)
                self._add_notices(connection, [run_id])
            else:
                yield claimed

    def lose(
        self, connection: sqlite3.Connection, process_id: str, now: Millis, *, crash_limit: int
    ) -> tuple[int, list[str]]:
        """Shut a process out and put its runs back, charging each one crash.

        Returns:
            How many are due again, and the ids of those that are held.
        """
        sql, namespace = self._sql, self._namespace
        connection.execute(sql["shut_out"], (namespace, process_id))
        connection.execute(sql["forget_process"], (namespace, process_id))
        released, held, runs = 0, [], []
        for row in connection.execute(sql["owned_runs"], (namespace, process_id)).fetchall():
            try:
                runs.append(to_value(RunRow, row))
            except errors.StoreDamaged as error:
                self._hold_damaged(connection, row[0], now, error)
                held.append(row[0])
        losses = lost_runs(runs, now, process_id=process_id, crash_limit=crash_limit)
        for run_id, lost in zip((run.run_id for run in runs), losses, strict=True):
            connection.execute(
                sql["lose_run"],
                (namespace, run_id, lost.state, lost.attempt, lost.crashes, lost.reason, lost.problem_at),
            )
            self.insert_attempt(connection, run_id, lost.log)
            if lost.state is RunState.HELD:
                held.append(run_id)
                connection.execute(sql["leave_queue"], (namespace, run_id))
            else:
                released += 1
                connection.execute(
                    sql["release"], (namespace, run_id, now, now, int(lost.crashes >= SUSPECT_FROM))
                )
        self._add_notices(connection, held)
        return released, held

    def _hold_damaged(
        self, connection: sqlite3.Connection, run_id: str, now: Millis, error: errors.StoreDamaged
    ) -> None:
        # Left in the queue it would come up in every claim and take the whole batch with it (F27).
        connection.execute(
            self._sql["hold_damaged"], (self._namespace, run_id, f"damaged: {error.what}", now)
        )
        connection.execute(self._sql["leave_queue"], (self._namespace, run_id))

    # --- operators ---------------------------------------------------------------------------------

    def steer(self, connection: sqlite3.Connection, steer: Steer) -> bool:
        """Write an operator's action if the run is still as it was read."""
        sql, namespace, run_id, move = self._sql, self._namespace, steer.run_id, steer.move
        seen = (steer.expected_state, steer.expected_generation, steer.expected_fence)
        claimed = None if steer.claim is None else steer.claim.key
        parameters = (namespace, run_id, *seen, *_move_parameters(move), claimed)
        if steer.expected_sum is not None:
            ((seq,),) = connection.execute(sql["sum_of_seq"], (namespace, run_id, steer.expected_generation))
            if seq != steer.expected_sum:
                return False
        done = connection.execute(sql["steer_run"], parameters)
        if done.rowcount != 1:
            return False
        if steer.claim is not None:
            self._judging.reclaim(connection, run_id, steer.claim, move.now)
        if move.state in TERMINAL or move.generation != steer.expected_generation:
            self._end_waits(connection, run_id)
        self._judging.cancelling(connection, run_id, move)
        if _is_off_queue(move.state):
            connection.execute(sql["leave_queue"], (namespace, run_id))
        else:
            # Without a time it is due at once: an owner with the old fence could not go on anyway.
            due_at = move.now if move.due_at is None else move.due_at
            connection.execute(sql["requeue"], (namespace, run_id, due_at, _is_suspect(move)))
        for key in steer.reopen:
            connection.execute(
                sql["reopen"],
                (namespace, run_id, steer.expected_generation, *key, move.now),
            )
        self.save_steps(connection, run_id, move.generation, steer.copies)
        self.follow_up(connection, run_id, move)
        if move.problem_at is not None:
            self._add_notices(connection, [run_id])
        self.insert_audit(connection, steer.audit)
        return True


def _audit_parameters(row: AuditRow) -> tuple[Any, ...]:
    return (row.run_id, row.audit_id, row.at, row.verb, row.actor, row.detail, row.request_id)
