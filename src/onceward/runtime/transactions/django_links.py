"""A thread's connection of Django, by its alias."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ImproperlyConfigured  # type: ignore[import-untyped,unused-ignore]
from django.db import connections, transaction  # type: ignore[import-untyped,unused-ignore]

from onceward.core import errors
from onceward.runtime.transactions.links import SQLITE_BEGIN, SQLITE_SETUP, Rows
from onceward.runtime.transactions.psycopg_links import pyformat

_DIALECTS = {"postgresql": "postgres", "sqlite": "sqlite"}


def connection_of(alias: str) -> Any:
    """Give this thread's connection to a database of Django's; ``django`` is the default one.

    Raises:
        ConfigError: there is no such alias, or Django has no settings.
    """
    alias = "default" if alias == "django" else alias
    try:
        is_known = alias in connections
    except ImproperlyConfigured as error:
        raise errors.ConfigError(
            f"A connection of Django's was asked for, {alias!r}, and Django has no settings.",
            means="There is nowhere to commit.",
            todo="Set DJANGO_SETTINGS_MODULE and call django.setup() first; without Django, give the connection itself.",
        ) from error
    if not is_known:
        raise errors.ConfigError(
            f"Django has no database {alias!r}.",
            means="There is nowhere to commit.",
            todo=f"Give one of its aliases: {', '.join(connections)}.",
        )
    return connections[alias]


class DjangoLink:
    """A `django.db.connections[alias]`.

    Args:
        connection: this thread's.
    """

    def __init__(self, connection: Any) -> None:
        self.given: Any = connection
        vendor = str(connection.vendor)
        self.dialect: str = _DIALECTS.get(vendor, vendor)
        self._atomic: Any = None

    def is_busy(self) -> bool:
        """Say whether a transaction is open already."""
        return self.given.in_atomic_block  # type: ignore[no-any-return]

    def begins_by_itself(self) -> bool:
        """Say whether the first statement begins a transaction."""
        return not self.given.get_autocommit()

    def begin(self) -> None:
        """Begin as Django does, so that the body's ``atomic`` are savepoints; on SQLite with the lock.

        Raises:
            TransactionMisuse: Django does not commit on this connection.
        """
        self.given.close_if_unusable_or_obsolete()
        if (
            not self.given.get_autocommit()
        ):  # the end of ``atomic`` would commit nothing, and say so to nobody
            raise errors.TransactionMisuse(
                f"Django's database {self.given.alias!r} has AUTOCOMMIT off.",
                means="There the end of an atomic block commits nothing. Nothing was written.",
                todo="Leave AUTOCOMMIT on, or give app.transactions(…) a function that connects.",
            )
        if self.dialect == "sqlite":
            for statement in SQLITE_SETUP:
                self._say(statement)
        self._atomic = transaction.atomic(using=self.given.alias, durable=True)
        self._atomic.__enter__()
        if self.dialect == "sqlite":
            self._say("rollback")
            self._say(SQLITE_BEGIN)

    def _say(self, statement: str) -> None:
        self.given.ensure_connection()
        self.given.connection.execute(statement).close()

    def flush(self) -> None:
        """Refuse what the body marked as broken; Django would roll it back and say nothing."""
        if self.given.needs_rollback:
            raise errors.TransactionMisuse(
                "The body caught a database error inside its transaction.",
                means="Django rolls such a transaction back, so it was.",
                todo="Let the error pass, or wrap what may fail in transaction.atomic().",
            )

    def execute(self, sql: str, values: Mapping[str, Any]) -> Rows:
        """Run one statement."""
        with self.given.cursor() as cursor:
            cursor.execute(pyformat(sql), dict(values))
            rows: Rows = [] if cursor.description is None else cursor.fetchall()
            return rows

    def commit(self) -> None:
        """Commit; then Django runs what was registered with ``on_commit``."""
        atomic, self._atomic = self._atomic, None
        atomic.__exit__(None, None, None)

    def rollback(self) -> None:
        """Take everything back, unless a commit was tried."""
        if self._atomic is not None:
            error = RuntimeError("rolled back")
            self._atomic.__exit__(RuntimeError, error, None)
