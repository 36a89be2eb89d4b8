"""Connections and sessions of SQLAlchemy 2, blocking and not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import text
from sqlalchemy.orm import Session

from onceward.runtime.transactions.links import SQLITE_BEGIN, SQLITE_SETUP, Rows

_DIALECTS = {"postgresql": "postgres", "sqlite": "sqlite"}


class SqlalchemyLink:
    """A `sqlalchemy.Connection`, or an ORM session.

    Args:
        given: the one or the other.
    """

    def __init__(self, given: Any) -> None:
        self.given: Any = given
        self._is_session = isinstance(given, Session)
        dialect = str((given.get_bind() if self._is_session else given).dialect.name)
        self.dialect: str = _DIALECTS.get(dialect, dialect)

    @property
    def _connection(self) -> Any:
        return self.given.connection() if self._is_session else self.given

    def is_busy(self) -> bool:
        """Say whether a transaction is open already."""
        return self.given.in_transaction()  # type: ignore[no-any-return]

    def begins_by_itself(self) -> bool:
        """Say whether the first statement begins a transaction."""
        options = self._connection.get_execution_options()
        return bool(options.get("isolation_level") != "AUTOCOMMIT")

    def begin(self) -> None:
        """Begin; on SQLite with the lock, whatever the driver or a listener began with."""
        self.given.begin()
        connection = self._connection
        if self.dialect != "sqlite":
            return
        pooled = connection.connection
        cursor = pooled.cursor()
        try:
            if pooled.driver_connection.in_transaction:
                cursor.execute("rollback")
            for statement in (*SQLITE_SETUP, SQLITE_BEGIN):
                cursor.execute(statement)
        finally:
            cursor.close()

    def flush(self) -> None:
        """Send what a session still keeps."""
        if self._is_session:
            self.given.flush()

    def execute(self, sql: str, values: Mapping[str, Any]) -> Rows:
        """Run one statement."""
        result = self._connection.execute(text(sql), dict(values))
        return [tuple(row) for row in result.fetchall()] if result.returns_rows else []

    def commit(self) -> None:
        """Commit."""
        self.given.commit()

    def rollback(self) -> None:
        """Take everything back."""
        self.given.rollback()


class AsyncSqlalchemyLink:
    """An `AsyncConnection` or `AsyncSession`: the same, through its bridge."""

    def __init__(self, given: Any) -> None:
        self.given: Any = given
        self._link = SqlalchemyLink(getattr(given, "sync_session", None) or given.sync_connection)
        self.dialect: str = self._link.dialect

    async def _do(self, act: Callable[..., Any], *args: Any) -> Any:
        return await self.given.run_sync(lambda _: act(*args))

    def is_busy(self) -> bool:
        """Say whether a transaction is open already."""
        return self._link.is_busy()

    def begins_by_itself(self) -> bool:
        """Say yes: what is not to begin by itself is not asked for here."""
        return True

    async def begin(self) -> None:
        """Begin."""
        await self._do(self._link.begin)

    async def flush(self) -> None:
        """Send what a session still keeps."""
        await self._do(self._link.flush)

    async def execute(self, sql: str, values: Mapping[str, Any]) -> Rows:
        """Run one statement."""
        return await self._do(self._link.execute, sql, values)  # type: ignore[no-any-return]

    async def commit(self) -> None:
        """Commit."""
        await self._do(self._link.commit)

    async def rollback(self) -> None:
        """Take everything back."""
        await self._do(self._link.rollback)
