"""A connection for one transaction, from whatever the app was told to take it from.

An engine, a session maker, a pool, or a function that connects: the connection is given back, or
closed, when the transaction is over.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, NoReturn

from onceward.core import errors
from onceward.core.shown import shown
from onceward.runtime.transactions.links import AsyncLink, Link
from onceward.runtime.transactions.recognise import link_of, names_of

_ASYNC_ONLY = {
    "sqlalchemy.AsyncEngine",
    "sqlalchemy.async_sessionmaker",
    "psycopg_pool.AsyncConnectionPool",
    "asyncpg.Pool",
}
_BLOCKING_ONLY = {"sqlalchemy.Engine", "sqlalchemy.sessionmaker", "psycopg_pool.ConnectionPool"}
_OPENERS = {
    "sqlalchemy.Engine": "connect",
    "sqlalchemy.AsyncEngine": "connect",
    "psycopg_pool.ConnectionPool": "connection",
    "psycopg_pool.AsyncConnectionPool": "connection",
    "asyncpg.Pool": "acquire",
}


def check_connect(connect: Any) -> None:
    """Refuse what gives no connection before a transaction needs one.

    Raises:
        ConfigError: it is nothing that is known.
    """
    if link_of(connect) is not None:
        raise errors.ConfigError(
            f"app.transactions was given {shown(connect)}, which is one open connection.",
            means="Transactions run side by side, and each needs a connection of its own.",
            todo="Give an engine, a session maker, a pool, or a function that connects.",
        )
    if not isinstance(connect, str) and not callable(connect) and not names_of(connect) & _OPENERS.keys():
        raise errors.ConfigError(
            f"app.transactions was given {shown(connect)}, from which no connection can be had.",
            means="A transactional step could not begin.",
            todo="Give an engine or session maker of SQLAlchemy, a pool of psycopg or asyncpg, a function that "
            'connects, or "django", or the alias of a database of Django\'s.',
        )


def _opened(connect: Any) -> Any:
    """Give what an engine, a maker, a pool or a function of the user's gives first."""
    names = names_of(connect)
    for name, opener in _OPENERS.items():
        if name in names:
            return getattr(connect, opener)()
    return connect()


@contextlib.contextmanager
def lend(connect: Any, what: str) -> Iterator[Link]:
    """Lend a connection that blocks, in this thread.

    Args:
        connect: as `App.transactions` takes it.
        what: for whom, in errors.

    Raises:
        TransactionMisuse: only one that does not block can be had.
    """
    if isinstance(connect, str):
        from onceward.runtime.transactions.django_links import DjangoLink, connection_of

        connection = connection_of(connect)
        try:
            yield DjangoLink(connection)
        finally:
            connection.close_if_unusable_or_obsolete()
        return
    if names_of(connect) & _ASYNC_ONLY:
        _refuse_async(what, connect)
    given = _opened(connect)
    if names_of(given) & _OPENERS.keys():
        given = _opened(given)
    if inspect.iscoroutine(given):
        given.close()
        _refuse_async(what, connect)
    with contextlib.ExitStack() as stack:
        link = link_of(given)
        if link is not None:
            stack.callback(given.close)
        elif hasattr(given, "__enter__"):
            link = link_of(stack.enter_context(given))
        if link is None:
            _refuse_unknown(what, given)
        if inspect.iscoroutinefunction(link.execute):
            _refuse_async(what, given)
        yield link  # type: ignore[misc]  # it blocks


@contextlib.asynccontextmanager
async def lend_async(connect: Any, what: str) -> AsyncIterator[AsyncLink]:
    """Lend a connection that does not block.

    Args:
        connect: as `App.transactions` takes it.
        what: for whom, in errors.

    Raises:
        TransactionMisuse: only one that blocks can be had.
    """
    if isinstance(connect, str) or names_of(connect) & _BLOCKING_ONLY:
        _refuse_blocking(what, connect)
    given = _opened(connect)
    if names_of(given) & _OPENERS.keys():
        given = _opened(given)
    async with contextlib.AsyncExitStack() as stack:
        is_lent = False
        if hasattr(given, "__aenter__") and names_of(given) & {
            "asyncpg.PoolAcquireContext",
            "sqlalchemy.AsyncConnection",
            "aiosqlite.Connection",
        }:
            given, is_lent = await stack.enter_async_context(given), True
        elif inspect.isawaitable(given):
            given = await given
        link = link_of(given)
        if link is None and hasattr(given, "__aenter__"):
            given, is_lent = await stack.enter_async_context(given), True
            link = link_of(given)
        if link is None:
            _refuse_unknown(what, given)
        if not inspect.iscoroutinefunction(link.execute):
            given.close()
            _refuse_blocking(what, given)
        if not is_lent:
            stack.push_async_callback(given.close)
        yield link  # type: ignore[misc]  # it does not block


def _refuse_async(what: str, given: Any) -> NoReturn:
    raise errors.TransactionMisuse(
        f"{what} is a plain function, and {shown(given)} gives connections that must be awaited.",
        means="Nothing was written.",
        todo="Make its body async def, or give app.transactions(…) a driver that blocks.",
    )


def _refuse_blocking(what: str, given: Any) -> NoReturn:
    raise errors.TransactionMisuse(
        f"{what} is an async function, and {shown(given)} gives connections that block.",
        means="They would hold up every other run of this process; nothing was written.",
        todo="Make its body a plain def, which runs in a thread, and call it with "
        "`await ctx.step.transaction(name, function, …)`; or give app.transactions(…) an async driver.",
    )


def _refuse_unknown(what: str, given: Any) -> NoReturn:
    raise errors.TransactionMisuse(
        f"For {what} {shown(given)} was given, which is no connection that Onceward knows.",
        means="Nothing was written.",
        todo="Connect with psycopg 3, asyncpg, sqlite3, aiosqlite, SQLAlchemy or Django.",
    )


Connect = Callable[[], Any]
