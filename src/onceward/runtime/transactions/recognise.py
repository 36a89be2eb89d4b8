"""Which driver an object of the user's belongs to, told by its class; none is imported to find out."""

from __future__ import annotations

from typing import Any

from onceward.core import errors
from onceward.core.shown import shown
from onceward.runtime.transactions.links import AsyncLink, Link, is_closed


def names_of(thing: object) -> set[str]:
    """Give ``driver.Class`` of its class and of those that it is made of, without the modules between."""
    return {f"{cls.__module__.partition('.')[0]}.{cls.__qualname__}" for cls in type(thing).__mro__}


def link_of(thing: Any) -> Link | AsyncLink | None:
    """Give what speaks with an open connection; None where it is not one that is known."""
    names = names_of(thing)
    if "psycopg.Connection" in names or "psycopg.AsyncConnection" in names:
        from onceward.runtime.transactions.psycopg_links import AsyncPsycopgLink, PsycopgLink

        return PsycopgLink(thing) if "psycopg.Connection" in names else AsyncPsycopgLink(thing)
    if "asyncpg.Connection" in names or "asyncpg.PoolConnectionProxy" in names:
        from onceward.runtime.transactions.asyncpg_links import AsyncpgLink

        return AsyncpgLink(thing)
    if "sqlite3.Connection" in names or "aiosqlite.Connection" in names:
        from onceward.runtime.transactions.sqlite_links import AiosqliteLink, SqliteLink

        return SqliteLink(thing) if "sqlite3.Connection" in names else AiosqliteLink(thing)
    if names & {"sqlalchemy.Connection", "sqlalchemy.Session", "sqlalchemy.scoped_session"}:
        from onceward.runtime.transactions.sqlalchemy_links import SqlalchemyLink

        return SqlalchemyLink(thing() if "sqlalchemy.scoped_session" in names else thing)
    if names & {"sqlalchemy.AsyncConnection", "sqlalchemy.AsyncSession"}:
        from onceward.runtime.transactions.sqlalchemy_links import AsyncSqlalchemyLink

        return AsyncSqlalchemyLink(thing)
    if "django.BaseDatabaseWrapper" in names or "django.ConnectionProxy" in names:
        from onceward.runtime.transactions.django_links import DjangoLink

        return DjangoLink(thing)
    return None


def link_for_within(given: Any) -> Link | AsyncLink:
    """Give what speaks with the connection that ``within=`` names, in whose transaction its caller is.

    Raises:
        TransactionMisuse: it is no connection that is known, or is closed.
    """
    link = _django(given) if isinstance(given, str) else link_of(given)
    if link is None:
        raise errors.TransactionMisuse(
            f"within= was given {shown(given)}, which is no open connection that Onceward knows.",
            means="Nothing was written.",
            todo="Give the connection or session in whose transaction you are: of psycopg 3, asyncpg, sqlite3, "
            'aiosqlite or SQLAlchemy; or "django", or the alias of a database of Django\'s.',
        )
    if is_closed(link):
        raise errors.TransactionMisuse(
            f"within= was given {shown(given)}, which is closed.",
            means="It has no transaction that the event could belong to. Nothing was written.",
            todo="Emit or start before the commit that is to bring it, while the connection is open.",
        )
    return link


def _django(alias: str) -> Link:
    from onceward.runtime.transactions.django_links import DjangoLink, connection_of

    return DjangoLink(connection_of(alias))
