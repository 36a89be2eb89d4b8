"""What the crash matrix says of lost effects, threads, counters, operators and tables that are not as they were."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from pathlib import Path

import pytest

from onceward import AUTO, App, Context, IdempotencyKey, Permanent
from onceward.core.errors import ConfigError
from onceward.testing import Outside, Report, crash_matrix, started


@pytest.fixture
def app() -> App:
    return App("sqlite:///never-made.db")


def found(report: Report) -> list[tuple[str, str, int, int, str]]:
    return [(one.step, one.effect, one.times, one.expected, one.advice.tool) for one in report.findings]


def test_what_a_crash_keeps_from_happening_is_found(app: App) -> None:
    outside, tasks = Outside(), set[asyncio.Task[None]]()

    async def later() -> None:
        await asyncio.sleep(0.01)
        outside.happened("told", key="1")

    async def tell() -> None:
        tasks.add(asyncio.create_task(later()))  # outlives the body

    @app.workflow
    async def forgetful(ctx: Context) -> None:
        await ctx.step.run("tell", tell)
        await ctx.step.sleep("a day", "1d")

    report = crash_matrix(app, forgetful, started(), outside=outside)

    assert found(report) == [("tell", "told", 0, 1, "await")]
    assert report.findings[0].moments[0] == "after the save of tell"
    assert "did something again, or not at all" in str(report)


def test_a_thread_of_a_bodys_own_is_that_steps_and_its_death_says_nothing(app: App) -> None:
    outside = Outside()

    def in_a_thread(name: str) -> None:
        thread = threading.Thread(target=outside.happened, args=(name,))
        thread.start()
        thread.join()

    @app.workflow
    async def shop(ctx: Context) -> None:
        await ctx.step.run("alone", in_a_thread, "one")

    report = crash_matrix(app, shop, started(), outside=outside)

    assert found(report) == [("alone", "one", 2, 1, "key-or-ensure")]


def test_a_counter_that_is_raised_again_is_to_be_committed_with_its_step(app: App, tmp_path: Path) -> None:
    outside, path = Outside(), tmp_path / "shop.db"

    def sql(*statements: str) -> None:
        connection = sqlite3.connect(path)
        for statement in statements:
            connection.execute(statement)
        connection.commit()
        connection.close()

    @app.workflow
    async def shop(ctx: Context) -> None:
        await ctx.step.run("points", sql, "update points set n = n + 10")

    def fresh() -> None:
        sql("drop table if exists points", "create table points (n integer)", "insert into points values (0)")

    outside.table(lambda: sqlite3.connect(path), "points")
    report = crash_matrix(app, shop, started(), outside=outside, fresh=fresh)

    assert found(report) == [("points", "rows of points", 2, 1, "transaction")]
    assert report.findings[0].examples == ("10", "20")


def test_rows_that_one_variant_leaves_for_the_next_are_refused_unless_they_are_deleted(
    app: App, tmp_path: Path
) -> None:
    path = tmp_path / "shop.db"

    def write() -> None:
        connection = sqlite3.connect(path)
        with connection:
            connection.execute("create table if not exists once (id text primary key)")
            connection.execute("insert into once values ('A-1') on conflict do nothing")
        connection.close()

    @app.workflow
    async def shop(ctx: Context) -> None:
        await ctx.step.run("write", write)

    for is_emptied in (True, False):
        path.unlink(missing_ok=True)
        outside = Outside()
        outside.table(lambda: sqlite3.connect(path), "once", empty=is_emptied)
        if is_emptied:
            crash_matrix(app, shop, started(), outside=outside).assert_safe()
        else:
            with pytest.raises(ConfigError, match=r"an earlier one left, such as 'A-1'\..*empty=True"):
                crash_matrix(app, shop, started(), outside=outside)


@pytest.mark.parametrize("hands_out_its_key", [True, False])
def test_a_step_of_the_business_does_nothing_again_whatever_an_operator_does(
    app: App, hands_out_its_key: bool
) -> None:
    outside = Outside()

    @app.step(key_scope="business")
    def charge(run_id: str, key: IdempotencyKey = AUTO) -> None:
        outside.happened("charged", key=key if hands_out_its_key else run_id)

    def mail(key: IdempotencyKey = AUTO) -> None:
        outside.happened("mailed", key=key)

    @app.workflow
    async def shop(ctx: Context) -> None:
        await ctx.step.run("charge", charge, ctx.run_id)
        await ctx.step.run("mail", mail)

    report = crash_matrix(app, shop, started(), outside=outside)

    told = [] if hands_out_its_key else [("charge", "charged", 2, 1, "key_scope")]
    assert found(report) == told  # the mail of a replay is what the operator wants
    assert all(finding.moments == ("replayed by an operator",) for finding in report.findings)
    if hands_out_its_key:
        strict = crash_matrix(app, shop, started(), outside=outside, replay=True)
        assert found(strict) == [("mail", "mailed", 2, 1, "key_scope")]


def test_an_operators_retry_repeats_nothing_that_is_saved_and_undone_runs_are_not_retried(app: App) -> None:
    outside = Outside()

    def told(name: str, key: IdempotencyKey = AUTO) -> None:
        outside.happened(name, key=key)

    def refuse() -> None:
        raise Permanent("sold out")

    @app.workflow
    async def ships(ctx: Context) -> None:
        try:
            await ctx.step.run("book", told, "booked")
            await ctx.step.run("ship", told, "shipped")
        except Exception:
            outside.happened("alarm")  # at every attempt
            raise

    @app.workflow(undo="on_failure")
    async def refused(ctx: Context) -> None:
        await ctx.step.run("book", told, "booked")
        await ctx.step.run("refuse", refuse)

    report = crash_matrix(app, ships, started(), outside=outside)
    (outcome,) = [one for one in report.outcomes if "operator retries" in one.moment]
    assert outcome.moment == "ship fails for good, and an operator retries the run"
    assert (outcome.ends, outcome.is_safe) == (("ships: completed",), True)
    crash_matrix(app, refused, started(), outside=outside, ends="failed").assert_safe()


def test_a_promise_needs_no_secret_of_its_own_in_a_test(app: App) -> None:
    outside = Outside()

    @app.workflow
    async def asks(ctx: Context) -> None:
        promise = await ctx.step.promise("approval", timeout="1d")
        await ctx.step.run("ask", outside.happened, "asked", key=promise.token)
        await promise.result(default=None)

    crash_matrix(app, asks, started(), outside=outside).assert_safe()
