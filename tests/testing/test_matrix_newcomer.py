"""What somebody who tries the crash matrix for the first time trips over: what it does not reach, it says."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from onceward import App, Context
from onceward.testing import Outside, crash_matrix, started


@pytest.fixture
def app() -> App:
    return App("sqlite:///never-made.db")


@pytest.fixture
def connect(tmp_path: Path) -> Callable[[], sqlite3.Connection]:
    def opened() -> sqlite3.Connection:
        connection = sqlite3.connect(tmp_path / "shop.db")
        connection.execute("create table if not exists sold (name text primary key, n integer)")
        return connection

    return opened


SOLD = "insert into sold values ('all', 1) on conflict (name) do update set n = n + 1"


def test_what_is_never_reached_is_named_also_where_all_else_is_safe(
    app: App, connect: Callable[[], sqlite3.Connection]
) -> None:
    outside = Outside()
    outside.http.post("https://pay.example/charges", {"id": "ch_1"})
    outside.table(connect, "sold", empty=True)

    @app.workflow
    async def asks(ctx: Context) -> None:
        await ctx.step.run("ask", outside.happened, "asked", key="1")  # and nobody answers

    report = crash_matrix(app, asks, started(), outside=outside)

    assert report.unseen == ("POST https://pay.example/charges", "rows of sold")
    assert report.as_dict()["unseen"] == report.unseen
    assert "never came to: POST https://pay.example/charges, rows of sold." in str(report)
    report.assert_safe()  # other tests of the same world may come there


def test_a_link_is_clicked_by_the_fake_that_gets_it(app: App) -> None:
    outside = Outside()

    def mail(token: str) -> None:
        outside.happened("mail", key=token)
        app.sync.complete_promise(token, {"by": "ann"})

    @app.workflow
    async def refund(ctx: Context) -> None:
        approval = await ctx.step.promise("approval", timeout="3d")
        await ctx.step.run("ask", mail, approval.token)
        if await approval.result(default=None):
            await ctx.step.run("pay", outside.happened, "paid", key="1")

    report = crash_matrix(app, refund, started(), outside=outside)

    report.assert_safe()
    assert report.effects == (("ask", "mail", 1), ("pay", "paid", 1))


def test_a_counter_that_makes_its_row_and_then_raises_it_is_told_of_the_transaction(
    app: App, connect: Callable[[], sqlite3.Connection]
) -> None:
    outside = Outside()
    outside.table(connect, "sold", empty=True)

    def count() -> None:
        connection = connect()
        connection.execute(SOLD)
        connection.commit()
        connection.close()

    @app.workflow
    async def sell(ctx: Context) -> None:
        await ctx.step.run("count", count)

    (finding,) = crash_matrix(app, sell, started(), outside=outside).findings

    assert finding.advice.tool == "transaction"


def test_markers_of_one_try_do_not_tell_the_next_that_all_is_done_and_connect_names_their_place(
    app: App, connect: Callable[[], sqlite3.Connection]
) -> None:
    outside = Outside()
    outside.table(connect, "sold", empty=True)
    app.transactions(lambda: sqlite3.connect(":memory:"))  # the default is another
    app.transactions(connect, marker=True)

    @app.transaction(connect=connect)  # and not what the line above gave
    def count(connection: sqlite3.Connection) -> None:
        connection.execute(SOLD)

    @app.workflow
    async def sell(ctx: Context) -> None:
        await ctx.step.run("count", count)

    for _ in range(2):  # a second test run begins with what the first left
        report = crash_matrix(app, sell, started(), outside=outside)

        report.assert_safe()
        assert report.effects == (("", "rows of sold", 1),)
