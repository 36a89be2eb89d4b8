"""What the SQLite store decides about a run before it is made: whether its event is stale.

Inside the transaction that inserts the event, so that two events of one subject are judged one
after the other, and a redelivery finds what was decided.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

import msgspec

from onceward.core.model import EventRow, NewRun, Skip, SkippedRow
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
        """Give the run as it is to be made, or why there is none; that is written already."""
        if run.version is None or event.subject is None:
            return run
        place = (self._namespace, run.workflow, event.subject)
        raised = connection.execute(
            self._sql["raise_version"], (*place, run.version, event.source, event.id)
        ).rowcount
        if raised == 1:
            return run
        if not run.drops_stale:
            return msgspec.structs.replace(run, is_stale=True)
        (newest,) = connection.execute(self._sql["newest"], place).fetchone()
        skipped = SkippedRow(
            workflow=run.workflow,
            source=event.source,
            event_id=event.id,
            reason=Skip.STALE,
            run_id=run.run_id,
            at=run.created_at,
            version=run.version,
            newest=newest,
        )
        self._insert_skipped(connection, skipped)
        return skipped

    def skipped(self, connection: sqlite3.Connection, event: EventRow) -> dict[str, SkippedRow]:
        """Give what was decided when the event was accepted, by workflow."""
        rows = connection.execute(self._sql["skipped_of"], (self._namespace, event.source, event.id))
        return {row.workflow: row for row in to_values(SkippedRow, rows)}

    def _insert_skipped(self, connection: sqlite3.Connection, row: SkippedRow) -> None:
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
            ),
        )
