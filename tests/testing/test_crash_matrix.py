"""The crash matrix finds every planted double effect, with its step and its tool, and no other."""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from onceward import AUTO, App, Context, IdempotencyKey, Retry, StepFailed
from onceward.core import failpoints
from onceward.core.errors import ConfigError
from onceward.testing import Outside, Unending, Unrepeatable, crash_matrix, delivery, emitted, started
from tests.testing import twins

PAID = delivery("stripe", twins.PAID, set={"data.object.client_reference_id": "A-1"})


@pytest.fixture
def outside() -> Outside:
    outside = Outside()
    twins.services(outside)
    return outside


@pytest.fixture
def connect(tmp_path: Path, outside: Outside) -> Callable[[], sqlite3.Connection]:
    found = twins.database(tmp_path / "shop.db")
    for table in ("stock", "invoice", "once"):
        outside.table(found, table)
    return found


def test_every_planted_double_effect_is_found_with_its_step_and_its_tool(
    tmp_path: Path, outside: Outside, connect: Callable[[], sqlite3.Connection]
) -> None:
    app, fulfil = twins.unsafe(outside, connect)

    report = crash_matrix(
        app, fulfil, PAID, outside=outside, fresh=lambda: twins.database(tmp_path / "shop.db")
    )

    assert {(one.step, one.effect): one.advice.tool for one in report.findings} == twins.PLANTED
    assert all(one.times > one.expected for one in report.findings)
    assert report.ends == ("fulfil: completed",)
    with pytest.raises(AssertionError, match=r"charge .* 2 for 1"):
        report.assert_safe()
    assert not Path("never-made.db").exists()


def test_the_safe_twin_raises_no_alarm(
    tmp_path: Path, outside: Outside, connect: Callable[[], sqlite3.Connection]
) -> None:
    app, fulfil = twins.safe(outside, connect)

    report = crash_matrix(
        app,
        fulfil,
        PAID,
        outside=outside,
        again=PAID.under_new_id(),
        fresh=lambda: twins.database(tmp_path / "shop.db"),
    )

    report.assert_safe()
    assert report.is_safe
    assert {name for _, name, _ in report.effects} == {
        f"POST {twins.PAY}/charges",
        f"POST {twins.PAY}/refunds",
        f"POST {twins.POST}/letters",
        "mail",
        "rows of invoice",
        f"PUT {twins.LABEL}/labels/*",
        "rows of once",
    }
    assert {end for outcome in report.outcomes for end in outcome.ends} == {"fulfil: completed"}
    assert [len(outcome.ends) for outcome in report.outcomes] == [1] * (len(report.outcomes) - 1) + [2]
    assert report.outcomes[-1].moment == "replayed by an operator"


def test_plain_functions_in_threads_are_killed_and_counted_as_well(outside: Outside) -> None:
    app, parcel = twins.plain(outside)

    report = crash_matrix(app, parcel, started("A-1"), outside=outside)

    assert [(one.step, one.effect, one.advice.tool) for one in report.findings] == [
        ("pack", "packed", "key-or-ensure")
    ]
    assert ("thanks", "told", 1) in report.effects
    moments = [outcome.moment for outcome in report.outcomes]
    assert moments.count("while everything sleeps or waits") >= 2
    assert (
        "in the end of the run, before its commit" in moments
        or "in the save of thanks, before its commit" in moments
    )


def test_two_runs_for_one_order_are_found(
    outside: Outside, connect: Callable[[], sqlite3.Connection]
) -> None:
    app, parcel = twins.plain(outside)
    event = started("A-1")

    report = crash_matrix(app, parcel, event, outside=outside, again=event.under_new_id())

    assert {(one.step, one.advice.tool) for one in report.findings} == {
        ("pack", "key-or-ensure"),
        ("parcel", "key"),
    }


def test_a_source_that_gives_a_redelivery_another_id_is_found(outside: Outside) -> None:
    app, hear = twins.forgetful(outside)

    report = crash_matrix(app, hear, delivery("shop", body={}), outside=outside)

    assert {(one.step, one.effect, one.advice.tool) for one in report.findings} == {
        ("hear", "a second run", "event-id")
    }


def test_a_restart_repeats_effects_with_keys_of_steps_and_is_only_told_of_when_asked(
    outside: Outside,
) -> None:
    app = App("sqlite:///never-made.db")

    @app.workflow
    async def one(ctx: Context) -> None:
        await ctx.step.run("tell", lambda: outside.happened("told", key=ctx.idempotency_key))

    assert crash_matrix(app, one, started(), outside=outside).is_safe
    (found,) = crash_matrix(app, one, started(), outside=outside, restart=True).findings
    assert (found.step, found.advice.tool, found.moments) == (
        "tell",
        "key_scope",
        ("restarted by an operator",),
    )


def test_it_is_the_same_report_each_time(outside: Outside) -> None:
    app, parcel = twins.plain(outside)

    first, second = (crash_matrix(app, parcel, started("A-1"), outside=outside) for _ in range(2))

    assert first.to_json() == second.to_json()
    assert json.loads(first.to_json())["findings"][0]["advice"]["tool"] == "key-or-ensure"


def test_a_workflow_that_goes_another_way_each_time_is_refused(outside: Outside) -> None:
    app = App("sqlite:///never-made.db")
    ways = iter(range(1_000))

    @app.workflow
    async def fickle(ctx: Context) -> None:
        if next(ways) < 3:
            await ctx.step.run("odd", outside.happened, "odd")
        else:
            await ctx.step.run("even", outside.happened, "even")

    with pytest.raises(Unrepeatable, match=r"went another way .*ctx\.step\.random"):
        crash_matrix(app, fickle, started(), outside=outside)


def test_a_workflow_that_ends_badly_without_a_crash_is_not_called_safe(outside: Outside) -> None:
    app = App("sqlite:///never-made.db")

    @app.workflow
    async def broken(ctx: Context) -> None:
        outside.happened("begun", key="1")
        raise ValueError("no stock")

    (found,) = crash_matrix(app, broken, started(), outside=outside).findings
    assert (found.effect, found.advice.tool) == ("the run is failed", "first")
    assert found.examples == ("ValueError: no stock",)
    assert "broken does not end as it should with nothing going wrong" in str(
        crash_matrix(app, broken, started(), outside=outside)
    )
    crash_matrix(app, broken, started(), outside=outside, ends="failed").assert_safe()


def test_a_watched_table_that_never_was_is_no_proof(outside: Outside, tmp_path: Path) -> None:
    app = App("sqlite:///never-made.db")

    @app.workflow
    async def noted(ctx: Context) -> None:
        await ctx.step.run("note", outside.happened, "note", key="1")

    outside.table(lambda: sqlite3.connect(tmp_path / "other.db"), "misspelt")
    with pytest.raises(ConfigError, match="'misspelt', and there was none"):
        crash_matrix(app, noted, started(), outside=outside)


def test_what_is_neither_a_workflow_nor_an_event_is_refused_by_name(outside: Outside) -> None:
    app = App("sqlite:///never-made.db")

    @app.workflow
    async def noted(ctx: Context) -> None: ...

    with pytest.raises(ConfigError, match=r"given <function .* as the workflow.*@app\.workflow"):
        crash_matrix(app, cast("Any", noted.function), started(), outside=outside)
    with pytest.raises(ConfigError, match=r"given \{'id': 1\} as its event.*delivery"):
        crash_matrix(app, noted, cast("Any", {"id": 1}), outside=outside)


def test_a_run_that_waits_for_ever_is_told_what_it_needs(outside: Outside) -> None:
    app = App("sqlite:///never-made.db")

    @app.workflow
    async def waits(ctx: Context) -> None:
        await ctx.step.wait_for("packed", "warehouse.packed")

    with pytest.raises(Unending, match=r"waits for an event .* as a second event"):
        crash_matrix(app, waits, started(), outside=outside)


def test_a_transaction_in_the_apps_own_file_is_led_to_the_store_of_the_test(
    outside: Outside, tmp_path: Path
) -> None:
    app = App(f"sqlite:///{tmp_path}/orders.db")
    app.transactions(lambda: sqlite3.connect(tmp_path / "orders.db"))

    @app.transaction
    def book(connection: sqlite3.Connection) -> None:
        connection.execute("create table booking (order_no text)")

    @app.workflow
    async def sell(ctx: Context) -> None:
        await ctx.step.run("book", book)

    (found,) = crash_matrix(app, sell, started(), outside=outside).findings

    assert "connect to app.settings.store" in found.advice.text


def test_a_test_that_sees_nothing_outside_proves_nothing() -> None:
    app = App("sqlite:///never-made.db")

    @app.workflow
    async def silent(ctx: Context) -> None:
        await ctx.step.run("nothing", lambda: None)

    with pytest.raises(AssertionError, match="nothing is proven"):
        crash_matrix(app, silent, started()).assert_safe()


def test_a_request_that_nobody_answers_is_named_and_does_not_leave(outside: Outside) -> None:
    app = App("sqlite:///never-made.db")

    @app.workflow
    async def ask(ctx: Context) -> None:
        await ctx.step.run("ask", lambda: httpx.post("https://unknown.example/things", timeout=1))

    (found, *_) = crash_matrix(app, ask, started(), outside=outside).findings
    assert 'outside.http.route("POST", "https://unknown.example/things"' in found.examples[0]


def test_events_come_when_the_run_waits_for_them_and_in_the_other_order(outside: Outside) -> None:
    app = App("sqlite:///never-made.db")

    @app.workflow(on="order.paid")
    async def pack(ctx: Context, event: object) -> None:
        await ctx.step.run("pack", lambda: outside.happened("pack", key="A-1"))

    @app.workflow(on="order.shipped")
    async def tell(ctx: Context, event: object) -> None:
        await ctx.step.run("tell", lambda: outside.happened("tell", key="A-1"))

    report = crash_matrix(app, pack, [emitted("order.paid"), emitted("order.shipped")], outside=outside)

    report.assert_safe()
    assert "delivered in the other order" in {outcome.moment for outcome in report.outcomes}
    assert {name for _, name, _ in report.effects} == {"pack", "tell"}


def test_the_app_is_given_back_as_it_was(outside: Outside) -> None:
    app, parcel = twins.plain(outside)
    settings, drawn = app.settings, random.getstate()

    crash_matrix(app, parcel, started("A-1"), outside=outside)

    assert app.settings is settings
    assert random.getstate() == drawn
    assert not app.is_open
    assert not failpoints.is_armed()


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ((), "no event"),
        (delivery("stripe", "x"), "no source 'stripe'"),
    ],
)
def test_what_cannot_be_tried_is_refused(events: object, message: str, outside: Outside) -> None:
    app, parcel = twins.plain(outside)

    with pytest.raises(ConfigError, match=message):
        crash_matrix(app, parcel, events, outside=outside)  # type: ignore[arg-type]


def test_it_is_not_called_inside_an_event_loop_nor_with_an_open_app(outside: Outside) -> None:
    app, parcel = twins.plain(outside)

    async def inside() -> None:
        with pytest.raises(ConfigError, match="plain `def` test"):
            crash_matrix(app, parcel, started("A-1"))

    asyncio.run(inside())
    app.configure(store="sqlite:///:memory:")
    with app.sync, pytest.raises(ConfigError, match="open"):
        crash_matrix(app, parcel, started("A-1"))


def test_steps_side_by_side_in_threads_and_tasks_are_repeatable(outside: Outside) -> None:
    app = App("sqlite:///never-made.db")

    def in_thread(name: str, key: IdempotencyKey = AUTO) -> str:
        outside.happened(name, key=key)
        app.sync.emit("noted", {"name": name})
        return name

    async def in_task(name: str, key: IdempotencyKey = AUTO) -> str:
        await asyncio.to_thread(outside.happened, name, key=key)
        await asyncio.sleep(0.2)
        return name

    @app.workflow
    async def fan(ctx: Context) -> list[str]:
        calls = [
            *(ctx.step.run(f"thread {n}", in_thread, f"thread {n}") for n in range(3)),
            *(ctx.step.run(f"task {n}", in_task, f"task {n}") for n in range(3)),
        ]
        return sorted(await asyncio.gather(*calls))

    report = crash_matrix(app, fan, started(), outside=outside)

    report.assert_safe()
    assert len(report.effects) == 6
    assert len(report.outcomes) > 20


def test_a_run_that_is_held_for_a_person_did_nothing_twice_and_is_told_of(outside: Outside) -> None:
    app = App("sqlite:///never-made.db")

    @app.step(key_memory="1s", retry=Retry(base="30d", cap="30d", max_tries=3))
    async def slow(key: IdempotencyKey = AUTO) -> None:
        outside.happened("asked", key=key)
        if outside.count("asked") < 2:
            raise ValueError("no answer")

    @app.workflow
    async def ask(ctx: Context) -> None:
        await slow()

    report = crash_matrix(app, ask, started(), outside=outside, ends="held")

    report.assert_safe()
    assert report.ends == ("ask: held",)


def test_a_step_that_asks_a_person_when_nobody_knows_is_safe(outside: Outside) -> None:
    app = App("sqlite:///never-made.db")

    @app.step(unknown="ask")
    async def letter() -> None:
        outside.happened("letter")

    @app.workflow
    async def remind(ctx: Context) -> None:
        await letter()

    report = crash_matrix(app, remind, started(), outside=outside)

    report.assert_safe()
    held = [outcome.moment for outcome in report.outcomes if outcome.ends == ("remind: held",)]
    assert "between the effect and the save of letter" in held
    assert f"{len(held)} of them leave the run held" in str(report)


def test_rows_that_commit_with_the_checkpoint_are_written_once(outside: Outside) -> None:
    app = App("sqlite:///never-made.db")

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(str(app.settings.store).removeprefix("sqlite:///"))  # the test's own

    def tables() -> None:
        connection = connect()
        connection.execute("create table booking (order_no text)")
        connection.close()

    app.transactions(connect)

    @app.transaction
    def book(connection: sqlite3.Connection, order: str) -> None:
        connection.execute("insert into booking values (?)", (order,))

    @app.workflow
    async def sell(ctx: Context, order: str) -> None:
        await ctx.step.run("book", book, order)
        await ctx.step.sleep("a day", "1d")

    outside.table(connect, "booking")
    report = crash_matrix(app, sell, started("A-1"), outside=outside, fresh=tables)

    report.assert_safe()
    assert report.effects == (("", "rows of booking", 1),)


def test_a_step_that_may_not_run_twice_fails_by_design_and_another_way_once_is_no_double(
    outside: Outside,
) -> None:
    app = App("sqlite:///never-made.db")

    @app.step(retry=Retry(max_tries=1))
    async def dangerous() -> None:
        outside.happened("danger")

    @app.workflow
    async def careful(ctx: Context) -> None:
        try:
            await dangerous()
        except StepFailed:
            await ctx.step.run("tell", lambda: outside.happened("told", key="1"))
            raise

    report = crash_matrix(app, careful, started(), outside=outside)

    report.assert_safe()
    assert ("careful: failed",) in {outcome.ends for outcome in report.outcomes}
