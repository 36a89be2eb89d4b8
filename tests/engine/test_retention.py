"""Retention in a running app: what goes by itself, what says so, and what never goes."""

from __future__ import annotations

import asyncio

import pytest

from onceward import App, Context, Event, Pruned, Retention
from onceward import event as e
from onceward.core.errors import ConfigError
from onceward.core.retention import Keep, Rules, What, rules_of
from onceward.core.states import TERMINAL
from onceward.testing import AppInTest, check_invariants
from tests.engine.running import make_app, run_app
from tests.helpers import eventually_async


def _shop(
    retention: Retention | None, own: Retention | None = None, url: str = "sqlite:///never-made.db"
) -> App:
    app = App(url, retention=retention, poll="50ms", linger="20ms", drain="2s")

    @app.workflow(on="order.paid", retention=own)
    async def fulfil(ctx: Context, event: Event) -> str:
        return await ctx.step.run("charge", _charge)

    @app.workflow(on="order.slow")
    async def slow(ctx: Context, event: Event) -> str:
        await ctx.step.sleep("long", "2d")
        return str(event.payload["order"])

    return app


async def _charge() -> str:
    return "charged"


def _prune(app: App, rules: Rules) -> None:
    for what in What:
        after: str | None = ""
        while after is not None:
            after = app.worker.store.prune(what, rules, app.worker.now_ms(), after=after).next


def test_values_go_by_themselves_in_a_running_app(store_url: str) -> None:
    """On real stores: result and payload go, the run is told as before, and its event still deduplicates."""
    app = _shop(Retention(payloads="1ms"), url=store_url)

    async def scenario() -> None:
        emitted = await app.emit("order.paid", {"order": 7}, id="order-7")
        (run,) = emitted.runs
        await run.result()

        async def is_pruned() -> bool:
            event = await app.event("emit/order.paid", "order-7")
            return (await run.row()).pruned_at is not None and event.payload is None

        await eventually_async(is_pruned)
        with pytest.raises(Pruned, match="was pruned"):
            await run.result()
        for refused in (run.restart(acknowledge=True), run.replay()):
            with pytest.raises(Pruned, match="retention took its values"):
                await refused
        again = await app.emit("order.paid", {"order": 7}, id="order-7")
        assert (again.is_duplicate, [one.run_id for one in again.runs]) == (True, [run.run_id])
        replayed = await run.replay(payload={"order": 8})
        assert await replayed.result() == "charged"

    run_app(app, scenario)


def test_a_run_that_sleeps_for_days_keeps_its_payload() -> None:
    """And events that came while it slept keep theirs, until it has ended."""
    app = _shop(Retention(completed="9h", payloads="6h"))
    with AppInTest(app) as test:
        slow = test.wait(app.emit("order.slow", {"order": 1}, id="a"))
        (run,) = slow.runs
        test.advance("36h")
        assert test.wait(app.event("emit/order.slow", "a")).payload == {"order": 1}
        test.advance("13h")
        assert test.wait(run.result()) == "1"
        test.advance("14h")
        assert test.wait(app.event("emit/order.slow", "a")).payload is None


def test_where_there_is_something_to_take_page_follows_page() -> None:
    """A store that gets many events would grow for good at a page every two seconds."""
    app = _shop(Retention(payloads="6h"))
    with AppInTest(app) as test:

        async def many() -> None:
            await asyncio.gather(*(app.emit("order.paid", {"order": n}, id=str(n)) for n in range(500)))

        test.wait(many())
        test.settle()
        test.advance("7h")
        taken = [run.pruned_at for run in test.runs("fulfil") if run.pruned_at is not None]

    assert len(taken) == 500
    assert max(taken) - min(taken) < 1_000  # in three pages


def test_a_workflow_has_its_own_word_and_any_process_reads_it(store_url: str) -> None:
    """The registration carries it, so that a process without the code prunes alike."""
    app = _shop(None, own=Retention(completed="30d", payloads="7d"), url=store_url)

    async def scenario() -> dict[str, str | None]:
        return {row.name: row.retention for row in await app.worker.read(app.worker.store.workflows)}

    found = run_app(app, scenario)
    assert found["slow"] is None
    day = 86_400_000
    assert app.workflows["fulfil"].policies.keep == Keep(completed=30 * day, values=7 * day)
    assert found["fulfil"] is not None


def test_what_cannot_be_a_retention_is_refused_where_it_is_written() -> None:
    with pytest.raises(ConfigError, match="retention of payloads"):
        Retention(payloads="soon")
    with pytest.raises(ConfigError, match="deliveries"):
        _shop(None, own=Retention(deliveries="1d"))


def test_without_retention_nothing_is_looked_for(sqlite_url: str) -> None:
    """No page is ever asked of the store."""
    app = make_app(sqlite_url)

    @app.workflow
    async def nothing(ctx: Context) -> None:
        return None

    async def scenario() -> bool:
        await (await app.start(nothing)).result()
        return app.worker.pruning.is_active

    assert run_app(app, scenario) is False


def test_what_retention_took_is_no_broken_promise(store_url: str) -> None:
    """Children, emits, replays and what operators did outlive each other's rows; ``doctor`` finds nothing in that."""
    app = make_app(store_url)

    @app.workflow
    async def child(ctx: Context, order: int) -> str:
        return await ctx.step.run("charge", _charge)

    @app.workflow(on="order.told", version=e.payload["order"])
    async def told(ctx: Context, event: Event) -> None:
        await ctx.step.run("charge", _charge)

    @app.workflow
    async def parent(ctx: Context, order: int) -> None:
        await ctx.step.call("child", child, order)
        await ctx.step.start("other child", child, order)
        await ctx.step.emit("tell", "order.told", {"order": order}, subject="all")

    async def scenario() -> None:
        runs = [await app.start(parent, order) for order in range(3)]
        for run in runs:
            await run.result()
        await runs[0].restart(acknowledge=True)
        await runs[0].result()
        await (await runs[1].replay()).result()

        await eventually_async(is_over)
        values, whole = Retention(payloads="1ms"), Keep(completed=1, values=1)
        in_turn = [
            (rules_of(values, {}), {"child", "parent", "told"}),
            (rules_of(values, {"child": whole}), {"parent", "told"}),
            (rules_of(values, {"child": whole, "parent": whole}), {"told"}),
            (rules_of(Retention(completed="1ms", identity="1ms"), {}), set()),
        ]
        for rules, left in in_turn:
            await asyncio.to_thread(_prune, app, rules)

            found = await asyncio.to_thread(check_invariants, app.worker.store)
            assert [str(violation) for violation in found] == []
            assert {row.workflow for row in await app.runs()} == left

    async def is_over() -> bool:
        return all(row.state in TERMINAL for row in await app.runs())

    run_app(app, scenario)


def test_the_newest_version_runs_again_whose_event_retention_took(store_url: str) -> None:
    """Its id was given up, so it is an event like the first time; another of the same version is still not newer."""
    app = make_app(store_url)

    @app.workflow(on="order.told", version=e.payload["version"], stale="drop")
    async def told(ctx: Context, event: Event) -> str:
        return event.id

    async def emit(event_id: str, version: int) -> list[str]:
        emitted = await app.emit("order.told", {"version": version}, subject="order-7", id=event_id)
        return [await run.result() for run in emitted.runs]

    async def scenario() -> None:
        assert await emit("first", 5) == ["first"]

        async def is_gone() -> bool:
            await asyncio.to_thread(_prune, app, rules_of(Retention(completed="1ms", identity="1ms"), {}))
            return not await app.events()

        await eventually_async(is_gone)
        assert await emit("other", 5) == []
        assert await emit("first", 5) == ["first"]
        assert await emit("older", 4) == []

    run_app(app, scenario)
