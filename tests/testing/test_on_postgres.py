"""On PostgreSQL the crash matrix finds what it finds on SQLite, with transactions of every kind of driver."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from psycopg_pool import AsyncConnectionPool
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

from onceward import App, Context
from onceward.core.errors import ConfigError
from onceward.testing import AppInTest, Outside, Report, crash_matrix, started

pytestmark = pytest.mark.postgres

TABLE = "create table booking (order_no text)"
WRITE = "insert into booking values ('A-1')"


@pytest.fixture
def dsn(postgres_dsn: str) -> Iterator[str]:
    with psycopg.connect(postgres_dsn) as connection:
        connection.execute(TABLE)
    yield postgres_dsn
    with psycopg.connect(postgres_dsn) as connection:
        left = connection.execute("select nspname from pg_namespace where nspname like 'onceward%'")
        assert left.fetchall() == []


def watched(dsn: str) -> Outside:
    outside = Outside()
    outside.table(lambda: psycopg.connect(dsn), "booking", empty=True)
    return outside


def test_rows_beside_the_checkpoint_are_found_and_rows_with_it_are_not(dsn: str) -> None:
    app = App("sqlite:///never-made.db")
    app.transactions(lambda: psycopg.connect(dsn))

    @app.transaction
    def book(connection: psycopg.Connection[Any]) -> None:
        connection.execute(WRITE)

    def beside() -> None:
        with psycopg.connect(dsn) as connection:
            connection.execute("insert into booking values ('A-2')")

    @app.workflow
    async def sell(ctx: Context) -> None:
        await ctx.step.run("book", book)
        await ctx.step.sleep("a day", "1d")
        await ctx.step.run("beside", beside)

    report = crash_matrix(app, sell, started(), outside=watched(dsn), store=dsn)

    (found,) = report.findings
    assert (found.step, found.effect, found.advice.tool) == ("beside", "rows of booking", "upsert")
    assert found.moments[0] == "between the effect and the save of beside"
    moments = {outcome.moment: outcome for outcome in report.outcomes}
    for moment in ("before the commit", "after the commit"):
        assert moments[f"{moment} of the transaction book"].is_safe
    assert moments["after the commit of the transaction book, whose reply is lost"].is_safe
    assert report.ends == ("sell: completed",)


def asyncpg_pool(dsn: str) -> Any:
    async def make() -> Any:
        return await asyncpg.create_pool(dsn, min_size=0)

    return asyncio.run(make())


def psycopg_pool(dsn: str) -> Any:
    return AsyncConnectionPool(dsn, open=False)


def sessions(dsn: str) -> Any:
    return async_sessionmaker(create_async_engine(dsn.replace("postgresql:", "postgresql+asyncpg:")))


@pytest.mark.parametrize("make", [asyncpg_pool, psycopg_pool, sessions])
def test_a_pool_of_an_async_driver_serves_every_life_and_replies_have_one_order(
    make: Callable[[str], Any], dsn: str
) -> None:
    app = App("sqlite:///never-made.db")
    app.transactions(make(dsn))

    @app.transaction
    async def book(connection: Any) -> None:
        await connection.execute(WRITE if make is not sessions else sqlalchemy.text(WRITE))

    @app.workflow
    async def sell(ctx: Context) -> None:
        both: list[Coroutine[Any, Any, None]] = [ctx.step.run(f"book {n}", book) for n in range(2)]
        await asyncio.gather(*both)

    report: Report = crash_matrix(app, sell, started(), outside=watched(dsn), store=dsn)

    report.assert_safe()
    assert report.effects == (("", "rows of booking", 2),)
    assert {end for outcome in report.outcomes for end in outcome.ends} == {"sell: completed"}


def test_an_app_in_a_test_lives_on_postgres_and_goes_on_after_a_crash(dsn: str) -> None:
    app = App("sqlite:///never-made.db")
    app.transactions(lambda: psycopg.connect(dsn))

    @app.transaction
    def book(connection: psycopg.Connection[Any]) -> None:
        connection.execute(WRITE)

    @app.workflow
    async def sell(ctx: Context) -> str:
        await ctx.step.run("book", book)
        await ctx.step.sleep("a month", "40d")
        return "sold"

    with AppInTest(app, outside=watched(dsn), store=dsn) as shop:
        run = shop.wait(app.start(sell))
        shop.crash()
        shop.advance("41d")
        assert shop.wait(app.run(run.run_id).result()) == "sold"


def test_a_file_is_no_store_for_a_test() -> None:
    app = App("sqlite:///never-made.db")

    @app.workflow
    async def sell(ctx: Context) -> None: ...

    with pytest.raises(ConfigError, match=r"never-made\.db.*Leave store= out"):
        crash_matrix(app, sell, started(), store="sqlite:///never-made.db")
