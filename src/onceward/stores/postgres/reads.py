"""What the PostgreSQL store reads: one statement a question, and only what is committed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onceward.core.ports import Look
from onceward.stores.console_reads import excerpt_statement
from onceward.stores.postgres.connection import Link
from onceward.stores.postgres.session import BEGIN_SNAPSHOT, Session
from onceward.stores.postgres.statements import Call, Parameter, Statement, parameter, statement, text_array
from onceward.stores.reads import StoredReads, listed
from onceward.stores.rows import TABLES

# Between two statements what a table gave is made into rows, which takes longer than half a lease where there are
# many. Nobody waits for a transaction that only reads; one of a stopped process should not keep old rows for ever.
_UNHURRIED = statement(
    "unhurried",
    """
    select set_config(name, case name when 'transaction_timeout' then '0' else '10min' end, true)
    from pg_catalog.pg_settings
    where name in ('idle_in_transaction_session_timeout', 'transaction_timeout')
    """,
)


class PostgresReads(StoredReads):
    """The reading half of the PostgreSQL store.

    Args:
        statements: those of the files that the store loads.
        schema: where the tables are; a checked identifier.
        namespace: the wall; part of every key.
    """

    def __init__(self, statements: Mapping[str, Statement], *, schema: str, namespace: str) -> None:
        self._statements = statements
        self.schema_name = schema
        self.namespace = namespace

    @property
    def _reader(self) -> Link:
        raise NotImplementedError

    def _call(self, name: str, **values: Parameter) -> Call:
        return self._statements[name].bind({"namespace": self.namespace.encode(), **values})

    def _read(self, name: str, **values: str | int | None) -> list[tuple[Any, ...]]:
        call = self._call(name, **{key: parameter(value) for key, value in values.items()})
        return self._reader.run(lambda session: session.execute(call))

    def _read_lists(self, name: str, **values: Sequence[str]) -> list[tuple[Any, ...]]:
        call = self._call(name, **{key: text_array(value) for key, value in values.items()})
        return self._reader.run(lambda session: session.execute(call))

    def look(self, process_id: str, workflows: Sequence[str], addresses: Sequence[str] = ()) -> Look:
        """Give what a process wants to know once a poll, with one query."""
        call = self._call(
            "look",
            process_id=parameter(process_id),
            workflows=text_array(workflows),
            addresses=text_array(addresses),
        )
        due, lease, owned, woken, replaced, has_outbox, notice_due, registrations = self._reader.run(
            lambda session: session.execute(call)
        )[0]
        return Look(due, lease, owned, listed(woken), listed(replaced), has_outbox, notice_due, registrations)

    def changes(self) -> Any:
        """Give None: PostgreSQL cannot tell cheaply; its notifications can."""
        return None

    # --- checkers --------------------------------------------------------------------------------

    def dump(self, *tables: str) -> dict[str, list[dict[str, Any]]]:
        """Give all rows of some tables as stored, all seen at one moment."""
        dumps = {table: self._dump_statement(table) for table in tables}

        def read(session: Session) -> dict[str, list[dict[str, Any]]]:
            with session.transaction(BEGIN_SNAPSHOT, _UNHURRIED):
                return {
                    table: session.execute_named(made.bind({"namespace": self.namespace.encode()}))
                    for table, made in dumps.items()
                }

        return self._reader.run(read)

    def excerpt(self, tables: Sequence[str], run_ids: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
        """Give the rows of some tables that belong to some runs, all seen at one moment."""
        texts = {
            table: excerpt_statement(
                table, f'"{self.schema_name}".', "select unnest(cast(:run_ids as text[]))"
            )
            for table in tables
        }
        values = {"namespace": self.namespace.encode(), "run_ids": text_array(list(run_ids))}

        def read(session: Session) -> dict[str, list[dict[str, Any]]]:
            with session.transaction(BEGIN_SNAPSHOT, _UNHURRIED):
                return {
                    table: []
                    if text is None
                    else session.execute_named(statement(f"excerpt_{table}", text).bind(values))
                    for table, text in texts.items()
                }

        return self._reader.run(read)

    def _dump_statement(self, table: str) -> Statement:
        if table not in TABLES:
            raise ValueError(f"There is no table {table!r}; there are {', '.join(TABLES)}.")
        text = f'select * from "{self.schema_name}".{table} where namespace = :namespace'  # noqa: S608
        return statement(f"dump_{table}", text)
