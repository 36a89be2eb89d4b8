"""Connections of asyncpg; of its objects alone, so that nothing is imported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onceward.runtime.transactions.links import Rows
from onceward.stores.postgres.statements import statement


class AsyncpgLink:
    """An `asyncpg.Connection`, or one of a pool."""

    dialect = "postgres"

    def __init__(self, connection: Any) -> None:
        self.given: Any = connection
        self._transaction: Any = None

    def is_busy(self) -> bool:
        """Say whether a transaction is open already."""
        return self.given.is_in_transaction()  # type: ignore[no-any-return]

    def begins_by_itself(self) -> bool:
        """Say no: outside a transaction each statement is its own."""
        return False

    async def begin(self) -> None:
        """Begin."""
        self._transaction = self.given.transaction()
        await self._transaction.start()

    async def flush(self) -> None:
        """Do nothing."""

    async def execute(self, sql: str, values: Mapping[str, Any]) -> Rows:
        """Run one statement."""
        made = statement("within", sql)
        return await self.given.fetch(made.sql.decode(), *(values[name] for name in made.parameters))  # type: ignore[no-any-return]

    async def commit(self) -> None:
        """Commit."""
        transaction, self._transaction = self._transaction, None
        await transaction.commit()

    async def rollback(self) -> None:
        """Take everything back, unless a commit was tried."""
        if self._transaction is not None:
            await self._transaction.rollback()
