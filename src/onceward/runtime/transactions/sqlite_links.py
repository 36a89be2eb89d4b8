"""Connections of sqlite3, and of aiosqlite, which has one in a thread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onceward.runtime.transactions.links import SQLITE_BEGIN, SQLITE_SETUP, Rows


class _Sqlite:
    dialect = "sqlite"

    def __init__(self, connection: Any) -> None:
        self.given: Any = connection

    def is_busy(self) -> bool:
        return self.given.in_transaction  # type: ignore[no-any-return]

    def begins_by_itself(self) -> bool:
        return self.given.isolation_level is not None


class SqliteLink(_Sqlite):
    """A `sqlite3.Connection`."""

    def begin(self) -> None:
        """Begin with the lock."""
        for statement in (*SQLITE_SETUP, SQLITE_BEGIN):
            self.execute(statement, {})

    def flush(self) -> None:
        """Do nothing."""

    def execute(self, sql: str, values: Mapping[str, Any]) -> Rows:
        """Run one statement."""
        cursor = self.given.cursor()
        try:
            cursor.row_factory = None
            return cursor.execute(sql, values).fetchall()  # type: ignore[no-any-return]
        finally:
            cursor.close()

    def commit(self) -> None:
        """Commit."""
        self.given.execute("commit").close()

    def rollback(self) -> None:
        """Take everything back; SQLite may have done it already."""
        if self.given.in_transaction:
            self.given.execute("rollback").close()


class AiosqliteLink(_Sqlite):
    """An `aiosqlite.Connection`."""

    async def begin(self) -> None:
        """Begin with the lock."""
        for statement in (*SQLITE_SETUP, SQLITE_BEGIN):
            await self.execute(statement, {})

    async def flush(self) -> None:
        """Do nothing."""

    async def execute(self, sql: str, values: Mapping[str, Any]) -> Rows:
        """Run one statement."""
        async with self.given.cursor() as cursor:
            cursor.row_factory = None
            await cursor.execute(sql, values)
            return list(await cursor.fetchall())

    async def commit(self) -> None:
        """Commit."""
        await self.execute("commit", {})

    async def rollback(self) -> None:
        """Take everything back."""
        if self.given.in_transaction:
            await self.execute("rollback", {})
