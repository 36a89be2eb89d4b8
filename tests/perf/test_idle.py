"""What a process costs that has nothing to do."""

from __future__ import annotations

import asyncio
import contextlib

import psycopg

from tests.engine.running import run_app
from tests.perf.counting import CountedApp, VirtualProcess, three_steps

TRANSACTIONS_PER_S_MAX = 2
WINDOWS = 5


def test_an_idle_process_makes_at_most_two_transactions_a_second() -> None:
    """A look a second and the lease's renewals, over ten virtual minutes."""
    process = VirtualProcess(commit_s=0.001)
    three = three_steps(process.app)
    seconds = 600

    async def scenario() -> int:
        await (await process.app.start(three, 1)).result()
        process.counts.forget()
        await asyncio.sleep(seconds)
        return process.counts.verbs.total()

    assert process.run(scenario) <= TRANSACTIONS_PER_S_MAX * seconds


def test_an_idle_process_leaves_the_server_alone(postgres_dsn: str) -> None:
    """The same as PostgreSQL counts it; backends tell it of what they did within a second."""
    app = CountedApp(postgres_dsn)
    three = three_steps(app)
    seconds = 3
    limit = TRANSACTIONS_PER_S_MAX * (seconds + 1)

    def transactions() -> int:
        with contextlib.closing(psycopg.connect(postgres_dsn, dbname="postgres", autocommit=True)) as outside:
            row = outside.execute(
                "select xact_commit + xact_rollback from pg_stat_database where datname = %s",
                [postgres_dsn.rpartition("/")[2]],
            ).fetchone()
        assert row is not None
        return int(row[0])

    async def scenario() -> int:
        await (await app.start(three, 1)).result()
        await asyncio.sleep(2)
        # The server's own vacuum may fall into a window, or a late report of what came before.
        counts: list[int] = []
        while len(counts) < WINDOWS and min(counts, default=limit + 1) > limit:
            counts.append(await in_a_window())
        return min(counts)

    async def in_a_window() -> int:
        before = await asyncio.to_thread(transactions)
        await asyncio.sleep(seconds)
        return await asyncio.to_thread(transactions) - before

    assert run_app(app, scenario) <= limit
