"""Connections of psycopg 3, blocking and not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg import pq
from psycopg.rows import tuple_row

from onceward.runtime.transactions.links import Rows

_NAMED = re.compile(r"(?<![:\w]):([a-z_]+)")


def pyformat(sql: str) -> str:
    """Give a statement with its ``:parameters`` as psycopg and Django write them."""
    return _NAMED.sub(r"%(\1)s", sql.replace("%", "%%"))


class _Psycopg:
    dialect = "postgres"

    def __init__(self, connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
        self.given: Any = connection
        self._transaction: Any = None

    def is_busy(self) -> bool:
        return self.given.info.transaction_status != pq.TransactionStatus.IDLE  # type: ignore[no-any-return]

    def begins_by_itself(self) -> bool:
        return not self.given.autocommit

    def _taken(self) -> Any:
        """Give what ends the transaction, once: after a commit that failed there is nothing to take back."""
        transaction, self._transaction = self._transaction, None
        return transaction


class PsycopgLink(_Psycopg):
    """A `psycopg.Connection`."""

    def begin(self) -> None:
        """Begin, as psycopg does it: the body cannot commit inside."""
        self._transaction = self.given.transaction()
        self._transaction.__enter__()

    def flush(self) -> None:
        """Do nothing: every statement was sent."""

    def execute(self, sql: str, values: Mapping[str, Any]) -> Rows:
        """Run one statement."""
        with self.given.cursor(row_factory=tuple_row) as cursor:
            cursor.execute(pyformat(sql), values)
            return [] if cursor.description is None else cursor.fetchall()

    def commit(self) -> None:
        """Commit."""
        self._taken().__exit__(None, None, None)

    def rollback(self) -> None:
        """Take everything back."""
        if self._transaction is not None:
            error = psycopg.Rollback()
            self._taken().__exit__(psycopg.Rollback, error, None)


class AsyncPsycopgLink(_Psycopg):
    """A `psycopg.AsyncConnection`."""

    async def begin(self) -> None:
        """Begin."""
        self._transaction = self.given.transaction()
        await self._transaction.__aenter__()

    async def flush(self) -> None:
        """Do nothing."""

    async def execute(self, sql: str, values: Mapping[str, Any]) -> Rows:
        """Run one statement."""
        async with self.given.cursor(row_factory=tuple_row) as cursor:
            await cursor.execute(pyformat(sql), values)
            return [] if cursor.description is None else await cursor.fetchall()

    async def commit(self) -> None:
        """Commit."""
        await self._taken().__aexit__(None, None, None)

    async def rollback(self) -> None:
        """Take everything back."""
        if self._transaction is not None:
            error = psycopg.Rollback()
            await self._taken().__aexit__(psycopg.Rollback, error, None)
