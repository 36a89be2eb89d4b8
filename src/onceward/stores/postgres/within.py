"""What the PostgreSQL store says on a connection of the user's, in the user's transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from onceward.core import errors
from onceward.core.model import OutboxRow, StepRow
from onceward.core.ports import Ask, Opening, Script

KNOWN_MAX = 64
"""Servers that were found to have the store; more are looked at each time."""


class PostgresWithin:
    """The words for one namespace in one schema of a database.

    Args:
        sql: the named statements of ``within_postgres.sql``.
        namespace: the wall; part of every key.
        schema: where the store's tables are; a checked identifier.
        address: of the store, for people.
        channel: where workers hear of news; None tells them nothing.
    """

    dialect = "postgres"

    def __init__(
        self, sql: Mapping[str, str], *, namespace: str, schema: str, address: str, channel: str | None
    ) -> None:
        self._sql = sql
        self._namespace = namespace
        self._place = f'"{schema}".process'
        self._address = address
        self._channel = channel
        self._known: set[tuple[str, str]] = set()  # process and server

    def checked(self, process_id: str) -> Script[None]:
        """Look whether the connection leads to the store's database."""
        rows = yield Ask(self._sql["where"], {"place": self._place})
        yield from self._refuse_foreign(process_id, rows[0])

    def opened(self, opening: Opening) -> Script[None]:
        """Bound and mark the transaction, and look whether it is in the store's database."""
        values = {"idle": f"{opening.idle_ms}ms", "mark": opening.mark, "place": self._place}
        rows = yield Ask(self._sql["open"], values)
        yield from self._refuse_foreign(opening.process_id, rows[0][-2:])

    def refusal(self, process_id: str) -> None:
        """Refuse none: here processes may be as many as they like."""

    def _refuse_foreign(self, process_id: str, row: Sequence[Any]) -> Script[None]:
        """Refuse a database without our tables, or with those of another store.

        Where the process's own row was found once need not be asked again. Only a store has it, not
        a copy of one: its id is drawn.
        """
        has_tables, server = row
        if (process_id, server) in self._known:
            return
        asked = {"namespace": self._namespace, "process_id": process_id}
        if not has_tables or not (yield Ask(self._sql["is_ours"], asked)):
            raise errors.TransactionMisuse(
                f"The connection does not lead to the database of the store {self._address}.",
                means="Two databases cannot commit together; nothing was written.",
                todo="Connect to the store's database, or let transactions there leave a marker: "
                "app.transactions(…, marker=True).",
            )
        if len(self._known) < KNOWN_MAX:
            self._known.add((process_id, server))

    def seal(self, run_id: str, generation: int, fence: int, step: StepRow, mark: str) -> Script[bool]:
        """Save the checkpoint if the run's fence is still that and the step has no outcome.

        Raises:
            TransactionMisuse: this is another transaction than the one that was opened.
        """
        given = {**msgspec.structs.asdict(step), "generation": generation, "fence": fence}
        values = {
            "namespace": self._namespace,
            "run_id": run_id,
            "step": msgspec.json.encode([given]).decode(),
        }
        saved, found = (yield Ask(self._sql["seal"], values))[0]
        if found != mark:
            raise errors.TransactionMisuse("The transaction was ended by its own body.")
        return bool(saved)

    def is_posted(self, outbox_id: str) -> Script[bool]:
        """Look whether such a row is there for this transaction."""
        rows = yield Ask(self._sql["is_posted"], {"namespace": self._namespace, "outbox_id": outbox_id})
        return len(rows) == 1

    def post(self, row: OutboxRow) -> Script[None]:
        """Write an event for the worker to take in, and wake the workers with the commit."""
        values = {"outbox_id": row.outbox_id, "at": str(row.at), "body": row.body}
        yield Ask(self._sql["post"], {"namespace": self._namespace, **values})
        if self._channel is not None:
            yield Ask(self._sql["hint"], {"channel": self._channel, "namespace": self._namespace})
