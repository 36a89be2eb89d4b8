"""Transactional steps on Django's connections whose bodies do what they should not, and what they are told.

Started as ``python -m tests.engine.django_bodies STORE``, since Django can be set up once in a process.
Prints a JSON object: of each case how its run ended, then the rows that are there.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
import sys
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.db import close_old_connections, transaction
from django.db.backends.signals import connection_created

from onceward import Context, RunFailed
from tests.engine.running import SOON, make_app
from tests.engine.ways import make_table, things
from tests.lifecycle.transacting import database_of


def insert(connection: Any, thing: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("insert into thing values (%s)", [thing])


def fail() -> None:
    raise ValueError("after the commit")


def in_a_savepoint(connection: Any) -> None:
    insert(connection, "kept")
    try:
        with transaction.atomic():
            insert(connection, "taken back")
            fail()
    except ValueError:
        pass


def close(connection: Any) -> None:
    insert(connection, "closed")
    connection.close()


def close_old(connection: Any) -> None:
    close_old_connections()
    insert(connection, "closed")


def after_the_commit(connection: Any) -> None:
    transaction.on_commit(fail)
    insert(connection, "kept too")


def without_autocommit(connection: Any) -> None:
    insert(connection, "lost")


CASES: dict[str, tuple[Callable[[Any], None], str]] = {
    body.__name__: (body, alias)
    for body, alias in (
        (in_a_savepoint, "default"),
        (close, "default"),
        (close_old, "default"),
        (after_the_commit, "default"),
        (without_autocommit, "off"),
    )
}


async def main(store: str) -> dict[str, str]:
    app = make_app(store, concurrency=1)  # one thread, and so one connection of an alias
    app.transactions("default")

    @app.workflow
    async def play(ctx: Context, case: str) -> str:
        body, alias = CASES[case]
        await ctx.step.transaction("keep", body, connect=alias, retry=SOON)
        return "done"

    told = {}
    async with asyncio.timeout(50), app:
        for case in CASES:
            run = await app.start(play, case)
            try:
                told[case] = await run.result()
            except RunFailed as error:
                told[case] = error.message
    return told


def refuse_one_begin(connection: Any, **_: Any) -> None:
    """Let the second BEGIN of a connection to SQLite fail, as for a lock that somebody holds too long."""
    begun = 0

    def judge(action: int, word: str | None, *_: object) -> int:
        nonlocal begun
        begun += action == sqlite3.SQLITE_TRANSACTION and word == "BEGIN"
        return sqlite3.SQLITE_DENY if begun == 2 else sqlite3.SQLITE_OK

    connection.connection.set_authorizer(judge)
    connection_created.disconnect(refuse_one_begin)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    url = sys.argv[1]
    database = database_of(url)
    settings.configure(DATABASES={"default": database, "off": {**database, "AUTOCOMMIT": False}})
    make_table(url)
    if url.startswith("sqlite"):
        connection_created.connect(refuse_one_begin)
    print(json.dumps({"told": asyncio.run(main(url)), "things": things(url)}))
