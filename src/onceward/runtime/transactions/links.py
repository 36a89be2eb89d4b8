"""What is asked of a user's open connection, whatever its driver; and how a store's words are said on it."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from onceward.core import errors
from onceward.core.ports import Script

T = TypeVar("T")
Rows = Sequence[Sequence[Any]]

SQLITE_SETUP = (
    "pragma wal_autocheckpoint = 0",  # one process's one connection copies the log (RULINGS 9)
    "pragma synchronous = full",  # what the next step stands on must survive a power loss
    "pragma busy_timeout = 10000",
)
"""Said on a user's SQLite connection before a transaction in which they could not be."""

SQLITE_BEGIN = "begin immediate"
"""Locks at the beginning; what waits for the lock in the middle of a transaction may not get it."""


class Link(Protocol):
    """A user's connection whose driver blocks.

    Attributes:
        given: what a body gets: the connection, or the session.
        dialect: ``sqlite`` or ``postgres``, or what else it is.
    """

    given: Any
    dialect: str

    def is_busy(self) -> bool:
        """Say whether a transaction is open already."""
        ...

    def begins_by_itself(self) -> bool:
        """Say whether the first statement begins a transaction."""
        ...

    def begin(self) -> None:
        """Begin one."""
        ...

    def flush(self) -> None:
        """Send what the body left to be sent."""
        ...

    def execute(self, sql: str, values: Mapping[str, Any]) -> Rows:
        """Run one statement with named ``:parameters`` and give its rows."""
        ...

    def commit(self) -> None:
        """Commit."""
        ...

    def rollback(self) -> None:
        """Take everything back."""
        ...


class AsyncLink(Protocol):
    """A user's connection whose driver does not block; see `Link`."""

    given: Any
    dialect: str

    def is_busy(self) -> bool:
        """Say whether a transaction is open already."""
        ...

    def begins_by_itself(self) -> bool:
        """Say whether the first statement begins a transaction."""
        ...

    def begin(self) -> Awaitable[None]:
        """Begin one."""
        ...

    def flush(self) -> Awaitable[None]:
        """Send what the body left to be sent."""
        ...

    def execute(self, sql: str, values: Mapping[str, Any]) -> Awaitable[Rows]:
        """Run one statement with named ``:parameters`` and give its rows."""
        ...

    def commit(self) -> Awaitable[None]:
        """Commit."""
        ...

    def rollback(self) -> Awaitable[None]:
        """Take everything back."""
        ...


def play(link: Link, script: Script[T]) -> T:
    """Say a script on a connection that blocks, and give what it comes to."""
    rows: Rows | None = None
    while True:
        try:
            ask = script.send(rows)  # type: ignore[arg-type]  # None begins it
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        rows = link.execute(ask.sql, ask.values)


async def play_async(link: AsyncLink, script: Script[T]) -> T:
    """Say a script on a connection that does not block, and give what it comes to."""
    rows: Rows | None = None
    while True:
        try:
            ask = script.send(rows)  # type: ignore[arg-type]
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        rows = await link.execute(ask.sql, ask.values)


def check_idle(link: Link | AsyncLink, what: str) -> None:
    """Refuse a connection on which a transaction is open already.

    Raises:
        TransactionMisuse: it would be one inside another.
    """
    if link.is_busy():
        raise errors.TransactionMisuse(
            f"{what} got a connection with an open transaction.",
            means="One inside another commits when the outer one does, and its checkpoint could not be told.",
            todo="Give each transaction a connection of its own: a pool, or a function that connects.",
        )


def is_closed(link: Link | AsyncLink) -> bool:
    """Say whether a connection is closed, or was given back to its pool; drivers say it each in its own way."""
    given = link.given
    if hasattr(given, "is_closed"):  # asyncpg; one that is back in its pool knows nothing any more
        try:
            return bool(given.is_closed())
        except Exception:  # noqa: BLE001 - of each driver its own
            return True
    if is_closed_inside(link):
        return True
    closed = getattr(given, "closed", False)  # psycopg, SQLAlchemy
    if closed is True:
        return True
    if link.dialect != "sqlite" or not hasattr(type(given), "total_changes"):
        return False
    try:  # sqlite3 and aiosqlite have no word for it
        _ = given.total_changes
    except Exception:  # noqa: BLE001 - of each driver its own
        return True
    return False


def is_closed_inside(link: Link | AsyncLink) -> bool:
    """Say whether it was closed in the middle of its transaction, and by code: only Django's connections know."""
    return getattr(link.given, "closed_in_transaction", False) is True and link.is_busy()


def check_open(link: Link | AsyncLink) -> None:
    """Refuse to write an event where it would be committed by itself.

    Raises:
        TransactionMisuse: no transaction is open, and the first statement would not begin one.
    """
    if not link.is_busy() and not link.begins_by_itself():
        raise errors.TransactionMisuse(
            "The connection that within= was given has no open transaction.",
            means="Each statement on it commits by itself, so the event would not hang on your rows.",
            todo="Begin a transaction first, and pass its connection.",
        )


ABORTED = "25P02"
"""The SQLSTATE of every statement in a PostgreSQL transaction of which one failed."""


def is_aborted(error: BaseException | None) -> bool:
    """Say whether a statement was refused because an earlier one of its transaction had failed."""
    while error is not None:
        if ABORTED in (getattr(error, "sqlstate", None), getattr(error, "pgcode", None)):
            return True
        # SQLAlchemy keeps the driver's error in `orig`; it and Django name it as the cause, too.
        error = getattr(error, "orig", None) or error.__cause__
    return False


def aborted(error: BaseException) -> BaseException:
    """Give what to raise for an error of a user's transaction: a plain word, where it is aborted."""
    if not is_aborted(error):
        return error
    return errors.TransactionMisuse(
        "The transaction of the connection that within= was given is aborted: a statement in it failed.",
        means="PostgreSQL takes nothing more in it and will roll it back; no event was written.",
        todo="Roll back and do it anew; or let what may fail have a savepoint of its own, as "
        "`with connection.transaction():` inside the outer one.",
    )


def check_dialect(link: Link | AsyncLink, dialect: str) -> None:
    """Refuse a connection to another kind of database than the store's.

    Raises:
        TransactionMisuse: it is one.
    """
    if link.dialect != dialect:
        raise errors.TransactionMisuse(
            f"The connection is one to {link.dialect}, and the store is on {dialect}.",
            means="Two databases cannot commit together; nothing was written.",
            todo="Connect to the store's database, or let transactions there leave a marker: "
            "app.transactions(…, marker=True).",
        )
