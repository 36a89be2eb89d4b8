"""A process that keeps one row in a transactional step, or in an ordinary one, and ends with its run.

The run's id is always the same, so that the next process goes on with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from onceward import App, Context
from tests.engine.ways import WAYS, file_of, plain_dsn

WITHIN_S = 30


def database_of(store: str) -> dict[str, Any]:
    """Give a store's database as Django's settings say it."""
    from psycopg import conninfo

    if store.startswith("sqlite"):
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": file_of(store)}
    parts = conninfo.conninfo_to_dict(plain_dsn(store))
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": str(parts["dbname"]),
        "USER": str(parts["user"]),
        "HOST": str(parts["host"]),
        "PORT": str(parts["port"]),
    }


def django(store: str) -> tuple[Any, Callable[..., Any]]:
    """Set Django up on the store and give its connections, and a function that inserts a row by its cursor."""
    from django import setup
    from django.conf import settings

    settings.configure(DATABASES={"default": database_of(store)})
    setup()

    def insert(connection: Any, thing: str) -> int:
        from django.db import transaction

        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("insert into thing values (%s)", [thing])
            cursor.execute("select count(*) from thing")
            (count,) = cursor.fetchone()
        return int(count)

    return "django", insert


def connected(way: str, store: str) -> tuple[Any, Callable[..., Any]]:
    """Give what gives connections, and what inserts by one."""
    if way == "django":
        return django(store)
    found = next(one for one in WAYS if one.name == way)
    return found.connect(store), found.insert


async def main(store: str, way: str, kind: str) -> None:
    """Start the run, or join it, and wait for its end."""
    connect, insert = connected(way, store)
    instance: dict[str, Any] = {} if store.startswith("sqlite") else {"instance": "keeper"}
    app = App(store, poll="50ms", lease="2s", drain="2s", **instance)
    app.transactions(connect)

    def apart() -> None:
        """Commit by itself, as whoever does not know of transactions would."""
        connection = connect()
        insert(connection, "kept")
        connection.commit()
        connection.close()

    @app.workflow
    async def keep(ctx: Context) -> None:
        if kind == "transaction":
            await ctx.step.transaction("keep", insert, "kept")
        else:
            await ctx.step.run("keep", apart)

    async with asyncio.timeout(WITHIN_S), app:
        run = await app.start(keep, id="the one")
        await run.result()
        (step,) = await run.steps()
        assert (step.kind, step.state) == (kind, "done")
