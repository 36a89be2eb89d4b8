"""What the SQLite store reads: one statement a question, and only what is committed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onceward.core.ports import Look
from onceward.stores.console_reads import excerpt_statement
from onceward.stores.reads import StoredReads, listed
from onceward.stores.rows import TABLES
from onceward.stores.sqlite.connection import Connections
from onceward.stores.sqlite.writes import json_list


class SqliteReads(StoredReads):
    """The reading half of the SQLite store.

    Args:
        connections: whose reader is used.
        sql: the named statements of ``sqlite.sql``, with ``?`` for values.
        reads: those of the files that both databases share, with names for values.
        namespace: the wall; part of every key.
    """

    def __init__(
        self, connections: Connections, sql: Mapping[str, str], reads: Mapping[str, str], namespace: str
    ) -> None:
        self._connections = connections
        self._sql = sql
        self._reads = reads
        self.namespace = namespace

    def _read(self, name: str, **parameters: Any) -> list[tuple[Any, ...]]:
        with self._connections.reading() as connection:
            parameters["namespace"] = self.namespace
            return connection.execute(self._reads[name], parameters).fetchall()

    def _select(self, name: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with self._connections.reading() as connection:
            return connection.execute(self._sql[name], (self.namespace, *parameters)).fetchall()

    def _read_lists(self, name: str, **lists: Sequence[str]) -> list[tuple[Any, ...]]:
        return self._select(name, *map(json_list, lists.values()))

    def look(self, process_id: str, workflows: Sequence[str], addresses: Sequence[str] = ()) -> Look:
        """Give what a process wants to know once a poll, with one query."""
        ((due, lease, owned, woken, others, replaced, has_outbox, notice_due, registrations),) = self._select(
            "look", process_id, json_list(workflows), json_list(addresses)
        )
        if others and any(self._connections.is_free(other) for other in others.split(",")):
            lease = 0
        return Look(
            due, lease, owned, listed(woken), listed(replaced), bool(has_outbox), notice_due, registrations
        )

    def changes(self) -> Any:
        """Give a token that differs after another process committed."""
        if self._connections.is_memory:
            return None
        with self._connections.reading() as connection:
            return connection.execute("pragma data_version").fetchone()[0]

    # --- checkers ----------------------------------------------------------------------------------

    def dump(self, *tables: str) -> dict[str, list[dict[str, Any]]]:
        """Give all rows of some tables as stored, all seen at one moment."""
        found = {}
        with self._connections.snapshot() as connection:
            for table in tables:
                cursor = connection.execute(_dump_statement(table), (self.namespace,))
                names = [column[0] for column in cursor.description]
                found[table] = [dict(zip(names, row, strict=True)) for row in cursor]
        return found

    def excerpt(self, tables: Sequence[str], run_ids: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
        """Give the rows of some tables that belong to some runs, all seen at one moment."""
        found: dict[str, list[dict[str, Any]]] = {}
        values = {"namespace": self.namespace, "run_ids": json_list(list(run_ids))}
        with self._connections.snapshot() as connection:
            for table in tables:
                text = excerpt_statement(table, "onceward_", "select value from json_each(:run_ids)")
                found[table] = []
                if text is not None:
                    cursor = connection.execute(text, values)
                    names = [column[0] for column in cursor.description]
                    found[table] = [dict(zip(names, row, strict=True)) for row in cursor]
        return found


def _dump_statement(table: str) -> str:
    if table not in TABLES:
        raise ValueError(f"There is no table {table!r}; there are {', '.join(TABLES)}.")
    return f"select * from onceward_{table} where namespace = ?"  # noqa: S608 - one of our own names
