"""What a run leaves in the store, counted in bytes and in updates."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.payload import payload
from onceward import Context
from tests.engine.running import run_app
from tests.helpers import eventually
from tests.perf.counting import CountedApp

RUNS = 1_500
BYTES_MAX = {"sqlite": 1_200, "postgres": 2_000}
WARM_UP_RUNS = 64


async def nothing() -> None: ...


def app_of(url: str) -> tuple[CountedApp, Any]:
    """An app with the benchmark's workflow: 300 bytes of payload and three small results."""
    app = CountedApp(url)

    @app.step
    async def first(event: dict[str, Any]) -> dict[str, int]:
        return {"ok": 1}

    @app.step
    async def second(event: dict[str, Any]) -> dict[str, int]:
        return {"ok": 2}

    @app.step
    async def third(event: dict[str, Any]) -> dict[str, int]:
        return {"ok": 3}

    @app.workflow
    async def three(ctx: Context, event: dict[str, Any]) -> dict[str, Any]:
        await first(event)
        await second(event)
        await third(event)
        return {"done": event["id"]}

    return app, three


def run_many(url: str, runs: int, warm: Callable[[], object] = lambda: None) -> None:
    """Carry runs to their ends, 64 at a time; *warm* is called when the first of them have ended."""
    app, three = app_of(url)

    async def some(count: int) -> None:
        todo = iter(range(count))

        async def client() -> None:
            for number in todo:
                await (await app.start(three, payload(number))).result()

        await asyncio.gather(*(client() for _ in range(64)))

    async def scenario() -> None:
        # Accepts come claimed once the claim that every process begins with has found nothing.
        await (await app.start(three, payload(0))).result()
        await some(WARM_UP_RUNS)
        await asyncio.to_thread(warm)
        await some(runs)

    run_app(app, scenario, within_s=100)


def size(url: str) -> int:
    """The store's bytes, once deleted rows are space again and the log is copied into the file."""
    if url.startswith("postgres"):
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("vacuum")
            row = connection.execute("select pg_database_size(current_database())").fetchone()
        assert row is not None
        return int(row[0])
    path = url.removeprefix("sqlite:///")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("pragma wal_checkpoint(truncate)")
    return Path(path).stat().st_size


def test_a_run_of_three_steps_takes_little_room(url: str) -> None:
    before = []
    run_many(url, RUNS, warm=lambda: before.append(size(url)))

    assert (size(url) - before[0]) / RUNS <= BYTES_MAX["postgres" if url.startswith("postgres") else "sqlite"]


def updates(url: str) -> tuple[int, int]:
    """How many rows of runs were updated and how many of them in place."""
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relname = 'run'"
        ).fetchone()
    assert row is not None
    updated, in_place = row
    return updated, in_place


def test_no_update_of_a_run_touches_an_index(postgres_dsn: str) -> None:
    """HOT: from the claimed insert to the end.

    With room for every version in its page. How much the store's own fill factor leaves at a time hangs on
    when an old snapshot, such as that of a vacuum, lets go of dead rows.
    """
    run_app(CountedApp(postgres_dsn), nothing)
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute("alter table onceward.run set (fillfactor = 10)")
    run_many(postgres_dsn, RUNS)

    # The server hears of the last ones a moment later.
    eventually(lambda: updates(postgres_dsn)[0] >= RUNS + WARM_UP_RUNS)
    updated, in_place = updates(postgres_dsn)

    assert in_place == updated
