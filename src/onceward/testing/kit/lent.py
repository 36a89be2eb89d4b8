"""Connections of the app's transactions in one life: none outlives it, as none outlives a process.

Pools of asynchronous drivers belong to one event loop, and each life has a loop of its own. What such
a pool was made with connects in every life instead; an asynchronous engine forgets its connections.
They talk with the database one after the other: which reply comes first is nothing that a seed decides.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from onceward.authoring.options import Database
from onceward.runtime.transactions.outbox import Transactions
from onceward.runtime.transactions.recognise import names_of

if TYPE_CHECKING:
    from onceward.runtime.worker import Worker


class LifeTransactions(Transactions):
    """Where an app's transactions are, in one life.

    Args:
        worker: of the life.
        markers_namespace: no other test's, since runs of the same seed have the same ids, and the markers
            of one would tell the next that all was committed.
    """

    def __init__(self, worker: Worker, markers_namespace: str) -> None:
        super().__init__(worker)
        self._markers_namespace = markers_namespace
        self._known: dict[int, tuple[Any, Database]] = {}
        self._engines: list[Any] = []
        self._turn = asyncio.Lock()

    @property
    def is_talking(self) -> bool:
        """Say whether one waits for its database."""
        return self._turn.locked()

    @property
    def markers_namespace(self) -> str:
        """Give the namespace that markers in other databases are kept under."""
        return self._markers_namespace

    def turn(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Give what lets one transaction in, in the order in which they come."""
        return self._turn

    def database(self, database: Database, what: str) -> Database:
        """Give where a transaction is; see the base."""
        found = super().database(database, what)
        known = self._known.get(id(found.connect))
        if known is None:
            known = found.connect, dataclasses.replace(found, connect=self._own(found.connect))
            self._known[id(found.connect)] = known
        return known[1]

    def _own(self, connect: Any) -> Any:
        """Give what connects in the loop of this life."""
        names = names_of(connect)
        if "asyncpg.Pool" in names:
            return _from_asyncpg(connect)
        if "psycopg_pool.AsyncConnectionPool" in names:
            return _from_psycopg(connect)
        engine = connect.kw.get("bind") if "sqlalchemy.async_sessionmaker" in names else connect
        if "sqlalchemy.AsyncEngine" in names_of(engine):
            self._engines.append(engine)
        return connect

    async def close(self) -> None:
        """Close what engines keep."""
        for engine in self._engines:
            await engine.dispose()


def _from_asyncpg(pool: Any) -> Callable[[], Coroutine[Any, Any, Any]]:
    async def connect() -> Any:
        connection = await pool._connect(*pool._connect_args, **pool._connect_kwargs)
        for prepare in (pool._init, pool._setup):
            if prepare is not None:
                await prepare(connection)
        return connection

    return connect


def _from_psycopg(pool: Any) -> Callable[[], Coroutine[Any, Any, Any]]:
    async def connect() -> Any:
        connection = await pool.connection_class.connect(pool.conninfo, **(pool.kwargs or {}))
        if pool._configure is not None:
            await pool._configure(connection)
        return connection

    return connect
