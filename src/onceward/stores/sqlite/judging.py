"""What the SQLite store decides about a run before it is made: whether its event is stale, its key held.

Inside the transaction that inserts the event, so that two events of one subject are judged one
after the other, and a redelivery finds what was decided.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

import msgspec

from onceward.core import errors
from onceward.core.claims import Fate, Freed, Holder, displaced_text, fate_of, freed, is_free
from onceward.core.model import EventRow, KeyClaim, Millis, NewRun, Skip, SkippedRow
from onceward.core.ports import RunMove
from onceward.core.rules import FAR_MS, WAITS_FOR_KEY
from onceward.core.states import TERMINAL, RunState
from onceward.stores.rows import to_values


class SqliteJudging:
    """The decisions about new runs of one namespace.

    Args:
        sql: the named statements of ``sqlite.sql``.
        namespace: the wall; part of every key.
    """

    def __init__(self, sql: Mapping[str, str], namespace: str) -> None:
        self._sql = sql
        self._namespace = namespace

    def judge(self, connection: sqlite3.Connection, event: EventRow, run: NewRun) -> NewRun | SkippedRow:
        """Give the run as it is to be made, or why there is none; what follows is written already."""
        if run.version is not None and event.subject is not None:
            place = (self._namespace, run.workflow, event.subject)
            raised = connection.execute(
                self._sql["raise_version"], (*place, run.version, event.source, event.id)
            ).rowcount
            if raised == 0 and run.drops_stale:
                (newest,) = connection.execute(self._sql["newest"], place).fetchone()
                return self._skip(
                    connection, event, run, reason=Skip.STALE, version=run.version, newest=newest
                )
            run = msgspec.structs.replace(run, is_stale=raised == 0)
        if run.key is None or run.once is None:
            return run
        return self._claim(connection, event, run, run.key, run.once)

    def _claim(
        self, connection: sqlite3.Connection, event: EventRow, run: NewRun, key: str, once: str
    ) -> NewRun | SkippedRow:
        sql, place = self._sql, (self._namespace, run.workflow, key)
        holder = self.holder(connection, run.workflow, key)
        fate = fate_of(run, holder)
        if holder is None or fate is Fate.CLAIM:
            self._hold(connection, run, key, once, run.created_at)
            return run
        if fate is Fate.SLOT:
            due_at = holder.claimed_at + (run.window_ms or 0)
            self._hold(connection, run, key, once, due_at)
            return msgspec.structs.replace(run, due_at=due_at, reason=WAITS_FOR_KEY)
        if fate is Fate.WAIT:
            if run.clash == "replace":
                self._displace(connection, run, key)
                connection.execute(sql["replace_holder"], (*place, 1))
            connection.execute(sql["line_up"], (*place, run.run_id, run.payload_hash))
            return msgspec.structs.replace(run, due_at=run.created_at + FAR_MS, reason=WAITS_FOR_KEY)
        return self._skip(
            connection,
            event,
            run,
            reason=Skip(fate.value),
            key=key,
            holder_run_id=holder.run_id,
            is_other_payload=holder.payload_hash != run.payload_hash,
            parent_run_id=run.parent_run_id if run.is_called and fate is Fate.RETURNED else None,
        )

    def holder(self, connection: sqlite3.Connection, workflow: str, key: str) -> Holder | None:
        """Give who holds a key, or None."""
        row = connection.execute(self._sql["holder_of"], (self._namespace, workflow, key)).fetchone()
        if row is None:
            return None
        run_id, claimed_at, payload_hash, state, once, window_ms = row
        return Holder(
            run_id, claimed_at, payload_hash, None if state is None else RunState(state), once, window_ms
        )

    def reclaim(self, connection: sqlite3.Connection, run_id: str, claim: KeyClaim, now: Millis) -> None:
        """Let a run that is to run again hold its key.

        Raises:
            KeyTaken: another run holds it.
        """
        holder = self.holder(connection, claim.workflow, claim.key)
        if holder is not None:
            if holder.run_id == run_id:
                return
            if not is_free(claim.once, claim.window_ms, "reject", holder, now):
                raise errors.KeyTaken(claim.workflow, claim.key, holder.run_id)
        run = NewRun(run_id, claim.workflow, now, window_ms=claim.window_ms, payload_hash=claim.payload_hash)
        self._hold(connection, run, claim.key, claim.once, now)

    def _hold(
        self, connection: sqlite3.Connection, run: NewRun, key: str, once: str, claimed_at: Millis
    ) -> None:
        connection.execute(
            self._sql["hold_key"],
            (
                self._namespace,
                run.workflow,
                key,
                run.run_id,
                once,
                run.window_ms,
                claimed_at,
                run.payload_hash,
            ),
        )

    def _displace(self, connection: sqlite3.Connection, by: NewRun, key: str) -> None:
        """Cancel whoever waits for the key already: it has not begun, so there is nothing to clean up."""
        sql, namespace, now = self._sql, self._namespace, by.created_at
        place = (namespace, by.workflow, key)
        for run_id, _, parent_run_id, is_called in connection.execute(sql["waiters"], place).fetchall():
            connection.execute(sql["displace"], (namespace, run_id, now, displaced_text(by.run_id)))
            connection.execute(sql["leave_queue"], (namespace, run_id))
            connection.execute(sql["leave_line"], (*place, run_id))
            if is_called:
                connection.execute(sql["wake"], (namespace, parent_run_id, now))

    def end(self, connection: sqlite3.Connection, run_id: str, move: RunMove) -> None:
        """Give the key of a run that has ended to the next that waits, or free; nothing if it has none.

        Whoever called for another run of its key waits for its end, and is woken.
        """
        if move.key is None or move.state not in TERMINAL:
            return
        sql, namespace = self._sql, self._namespace
        for (parent_run_id,) in connection.execute(sql["joined"], (namespace, run_id)).fetchall():
            connection.execute(sql["wake"], (namespace, parent_run_id, move.now))
        place = (namespace, *move.key)
        connection.execute(sql["leave_line"], (*place, run_id))
        holder = self.holder(connection, *move.key)
        if holder is None:
            return
        waiting = connection.execute(sql["waiters"], place).fetchone()
        if holder.run_id != run_id:
            if waiting is None:  # for whom the holder was to make room
                connection.execute(sql["replace_holder"], (*place, 0))
            return
        if waiting is not None:
            next_run_id, payload_hash, *_ = waiting
            run = NewRun(
                next_run_id, move.key[0], move.now, window_ms=holder.window_ms, payload_hash=payload_hash
            )
            self._hold(connection, run, move.key[1], holder.once, move.now)
            connection.execute(sql["leave_line"], (*place, next_run_id))
            connection.execute(sql["promote"], (namespace, next_run_id, move.now))
            connection.execute(sql["forget_reason"], (namespace, next_run_id))
            return
        fate = freed(holder.once, move.state)
        if fate is Freed.RELEASED:
            connection.execute(sql["release_key"], place)
        elif fate is Freed.GIVEN_BACK:
            connection.execute(sql["give_window_back"], place)

    def cancelling(self, connection: sqlite3.Connection, run_id: str, move: RunMove) -> None:
        """Note that a run that a newer one replaces is being cancelled, so that nobody asks again."""
        if move.key is not None and move.state is RunState.CANCELLING:
            holder = self.holder(connection, *move.key)
            if holder is not None and holder.run_id == run_id:
                connection.execute(self._sql["replace_holder"], (self._namespace, *move.key, 0))

    def skipped(self, connection: sqlite3.Connection, event: EventRow) -> dict[str, SkippedRow]:
        """Give what was decided when the event was accepted, by workflow."""
        rows = connection.execute(self._sql["skipped_of"], (self._namespace, event.source, event.id))
        return {row.workflow: row for row in to_values(SkippedRow, rows)}

    def _skip(self, connection: sqlite3.Connection, event: EventRow, run: NewRun, **why: Any) -> SkippedRow:
        row = SkippedRow(
            workflow=run.workflow,
            source=event.source,
            event_id=event.id,
            run_id=run.run_id,
            at=run.created_at,
            **why,
        )
        connection.execute(
            self._sql["insert_skipped"],
            (
                self._namespace,
                row.workflow,
                row.source,
                row.event_id,
                row.reason,
                row.run_id,
                row.at,
                row.version,
                row.newest,
                row.key,
                row.holder_run_id,
                int(row.is_other_payload),
                row.parent_run_id,
            ),
        )
        return row
