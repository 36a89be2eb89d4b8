"""Events and runs that runs make: exactly once, with the checkpoint that says so."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from onceward import (
    App,
    CallOutsideStep,
    Context,
    Event,
    IdClash,
    Permanent,
    RunFailed,
    RunHandle,
    RunState,
    StepFailed,
    SyncContext,
)
from onceward.runtime.starts import DEPTH_MAX
from tests.engine.running import ONCE, SOON, evict, make_app, run_app
from tests.helpers import eventually_async


async def ended_runs(app: App, workflow: str) -> list[Any]:
    return [row.output for row in reversed(await app.runs(workflow=workflow, state="completed", limit=1000))]


async def all_ended(app: App, workflow: str, count: int) -> bool:
    return len(await ended_runs(app, workflow)) == count


class Shop:
    """An app with a child, a listener, and bodies that emit and start."""

    def __init__(self, url: str, **settings: Any) -> None:
        self.app = app = make_app(url, **settings)

        @app.workflow()
        async def child(ctx: Context, n: int) -> int:
            return await ctx.step.run("double", lambda: 2 * n)

        @app.workflow(on="told")
        async def listener(ctx: Context, event: Event) -> Any:
            return event.payload

        self.child = child
        self.listener = listener


# --- inside a body -----------------------------------------------------------------------------------


def test_emits_and_starts_inside_a_body_commit_with_its_outcome(store_url: str) -> None:
    shop = Shop(store_url)
    app = shop.app
    tries = 0

    @app.workflow()
    async def flow(ctx: Context) -> list[str]:
        async def body() -> list[str]:
            nonlocal tries
            tries += 1
            told = [await app.emit("told", {"n": n, "try": tries}, subject="order 7") for n in range(2)]
            handle = await app.start(shop.child, 10 + tries)
            assert [len(one.runs) for one in told] == [0, 0]
            assert len(await app.events(type="told")) == 0
            if tries < 3:
                raise ConnectionError
            return [handle.run_id, *(one.id for one in told)]

        return await ctx.step.run("tell", body, retry=SOON)

    async def scenario() -> None:
        handle = await app.start(flow)
        child_id, *event_ids = await handle.result()
        assert await app.run(child_id).result() == 26
        await eventually_async(lambda: all_ended(app, "listener", 2))
        assert await ended_runs(app, "listener") == ['{"n":0,"try":3}', '{"n":1,"try":3}']
        events = await app.events(type="told")
        assert sorted(event.id for event in events) == sorted(event_ids)
        assert {(event.source, event.subject) for event in events} == {(f"run/{handle.run_id}", "order 7")}
        assert [row.run_id for row in await handle.children() if row.workflow == "child"] == [child_id]
        assert len(await app.runs(workflow="child")) == 1

    run_app(app, scenario)


def test_a_body_whose_every_try_fails_emits_and_starts_nothing(store_url: str) -> None:
    shop = Shop(store_url)
    app = shop.app

    @app.workflow()
    async def flow(ctx: Context) -> None:
        async def body() -> None:
            await app.emit("told")
            await app.start(shop.child, 1)
            raise Permanent("no")

        await ctx.step.run("tell", body)

    async def scenario() -> None:
        with pytest.raises(RunFailed):
            await (await app.start(flow)).result()
        assert [event.type for event in await app.events()] == ["flow"]

    run_app(app, scenario)


def test_a_plain_body_emits_and_starts_through_the_sync_twin(store_url: str) -> None:
    shop = Shop(store_url)
    app = shop.app

    @app.workflow()
    def flow(ctx: SyncContext) -> list[str]:
        def body() -> list[str]:
            told = app.sync.emit("told", 1, id="mine")
            handle = app.sync.start(shop.child, 4, id="mine")
            again = app.sync.start(shop.child, 5)
            return [told.id, handle.run_id, again.run_id]

        return ctx.step.run("tell", body)

    async def scenario() -> None:
        handle = await app.start(flow)
        told, *children = await handle.result()
        assert told == "mine"
        assert [await app.run(child).result() for child in children] == [8, 10]
        assert {event.source for event in await app.events()} == {
            "emit/told",
            "start/child",
            "start/flow",
            f"run/{handle.run_id}",
        }

    run_app(app, scenario)


def test_an_id_of_the_callers_own_makes_an_emit_inside_a_body_idempotent_everywhere(store_url: str) -> None:
    shop = Shop(store_url)
    app = shop.app

    @app.workflow()
    async def flow(ctx: Context, text: str) -> list[Any]:
        async def body() -> list[Any]:
            told = await app.emit("told", text, id="fact")
            handle = await app.start(shop.child, 7, id="fact")
            return [told.is_duplicate, len(told.runs), handle.is_duplicate, handle.run_id]

        return await ctx.step.run("tell", body, retry=ONCE)

    async def scenario() -> None:
        first = await (await app.start(flow, "x")).result()
        second = await (await app.start(flow, "x")).result()
        assert first[:3] == [False, 0, False]
        assert second == [True, 1, True, first[3]]
        assert (await app.start(shop.child, 7, id="fact")).run_id == first[3]
        assert (await app.emit("told", "x", id="fact")).is_duplicate
        with pytest.raises(RunFailed, match="exists with other content"):
            await (await app.start(flow, "other")).result()
        await eventually_async(lambda: all_ended(app, "child", 1))
        await eventually_async(lambda: all_ended(app, "listener", 1))

    run_app(app, scenario)


def test_what_a_body_leaves_running_cannot_emit(sqlite_url: str) -> None:
    app = make_app(sqlite_url)
    refused: list[str] = []
    go_on = asyncio.Event()

    @app.workflow()
    async def flow(ctx: Context) -> None:
        async def later() -> None:
            await go_on.wait()
            try:
                await app.emit("told")
            except CallOutsideStep as error:
                refused.append(str(error))

        tasks: list[asyncio.Task[None]] = []

        async def body() -> None:
            tasks.append(asyncio.create_task(later()))

        await ctx.step.run("tell", body)
        go_on.set()
        await tasks[0]

    async def scenario() -> None:
        await (await app.start(flow)).result()
        assert await app.events(type="told") == []

    run_app(app, scenario)

    assert "after the body of step 'tell' had ended" in refused[0]


def test_an_emit_or_start_bare_in_a_workflow_is_refused(sqlite_url: str) -> None:
    shop = Shop(sqlite_url)
    app = shop.app

    @app.workflow()
    async def emits(ctx: Context) -> None:
        await app.emit("told")

    @app.workflow()
    async def starts(ctx: Context) -> None:
        await asyncio.gather(app.start(shop.child, 1))

    @app.workflow()
    def emits_plainly(ctx: SyncContext) -> None:
        app.sync.emit("told")

    async def scenario() -> None:
        for workflow, verb in ((emits, "emit"), (starts, "start"), (emits_plainly, "emit")):
            with pytest.raises(RunFailed) as failed:
                await (await app.start(workflow)).result()
            assert failed.value.error_type == "onceward.CallOutsideStep"
            assert f"ctx.step.{verb}(name" in failed.value.message
        assert await app.runs(workflow="child") == []

    run_app(app, scenario)


# --- as steps of their own ----------------------------------------------------------------------------


def test_step_emit_start_and_call_happen_once_however_often_the_run_is_recalled(store_url: str) -> None:
    shop = Shop(store_url)
    app = shop.app

    @app.workflow()
    async def flow(ctx: Context) -> Any:
        told = await ctx.step.emit("tell", "told", {"a": 1}, subject="s")
        started = await ctx.step.start("start", shop.child, 1)
        called = await ctx.step.call("call", shop.child, 2)
        both = await asyncio.gather(*(ctx.step.call("each", shop.child, n, item=n) for n in (3, 4)))
        await ctx.step.sleep("nap", "100ms")
        return [list(told), started, called, *both]

    async def scenario() -> None:
        handle = await app.start(flow)
        for _ in range(5):
            await asyncio.sleep(0.02)
            await evict(app, handle.run_id)
        told, started, *called = await handle.result()
        assert called == [4, 6, 8]
        assert await app.run(started).result() == 2
        assert (await app.event(*told)).payload == {"a": 1}
        assert (await app.event(*told)).subject == "s"
        await eventually_async(lambda: all_ended(app, "listener", 1))
        assert len(await app.runs(workflow="child")) == 4

    run_app(app, scenario)


def test_a_plain_workflow_calls_too(store_url: str) -> None:
    shop = Shop(store_url)
    app = shop.app

    @app.workflow()
    def flow(ctx: SyncContext) -> list[Any]:
        ctx.step.emit("tell", "told", 1)
        return [
            ctx.step.call("call", shop.child, 2),
            ctx.step.call("call plain", plain_child, "x"),
            ctx.step.start("start", shop.child, 3),
        ]

    @app.workflow()
    def plain_child(ctx: SyncContext, text: str) -> str:
        ctx.step.sleep("nap", "80ms")
        return text + ctx.step.run("add", lambda: "!")

    async def scenario() -> None:
        first, second, started = await (await app.start(flow)).result()
        assert (first, second) == (4, "x!")
        assert await app.run(started).result() == 6

    run_app(app, scenario)


def test_the_failure_of_a_called_run_is_the_failure_of_the_step(store_url: str) -> None:
    app = make_app(store_url)

    @app.workflow()
    async def child(ctx: Context) -> None:
        raise ValueError("the child's own words")

    @app.workflow()
    async def cancelled(ctx: Context) -> None:
        await ctx.step.sleep("for ever", "7d")

    @app.workflow()
    async def flow(ctx: Context) -> list[str]:
        messages = []
        for name, workflow in (("fails", child), ("is cancelled", cancelled)):
            try:
                await ctx.step.call(name, workflow)
            except StepFailed as error:
                messages.append(f"{error.step}: {error.error_type}: {error.message}")
        await ctx.step.sleep("nap", "60ms")
        return messages

    async def scenario() -> list[str]:
        handle = await app.start(flow)
        await eventually_async(lambda: is_waiting_for(handle, "cancelled"))
        (row,) = await app.runs(workflow="cancelled")
        await app.run(row.run_id).cancel()
        return await handle.result()

    first, second = run_app(app, scenario)

    assert first == "fails: ValueError: the child's own words"
    assert second.startswith("is cancelled: RunWasCancelled: the called run run_")


async def is_waiting_for(handle: RunHandle[Any], workflow: str) -> bool:
    return any(row.workflow == workflow for row in await handle.children())


def test_a_restart_of_the_parent_cancels_called_children_and_leaves_detached_ones(store_url: str) -> None:
    app = make_app(store_url)
    generations: list[int] = []

    @app.workflow()
    async def child(ctx: Context, seconds: int) -> None:
        await ctx.step.sleep("nap", seconds)

    @app.workflow()
    async def flow(ctx: Context) -> None:
        generations.append(ctx.generation)
        seconds = 3600 if ctx.generation == 1 else 0
        await ctx.step.start("detached", child, seconds)
        await ctx.step.call("called", child, seconds)

    async def scenario() -> Any:
        handle = await app.start(flow)
        await eventually_async(lambda: are_asleep(handle, 2))
        await handle.restart(acknowledge=True)
        await handle.result()

        async def states() -> bool:
            rows = await handle.children()
            return {(row.parent_generation, row.is_called, row.state) for row in rows} == {
                (1, False, RunState.SLEEPING),
                (1, True, RunState.CANCELLED),
                (2, False, RunState.COMPLETED),
                (2, True, RunState.COMPLETED),
            }

        await eventually_async(states)

    run_app(app, scenario)
    assert generations[-1] == 2


async def are_asleep(handle: RunHandle[Any], count: int) -> bool:
    return [row.state for row in await handle.children()].count(RunState.SLEEPING) == count


def test_a_circle_of_runs_ends_with_its_reason(sqlite_url: str) -> None:
    app = make_app(sqlite_url)

    @app.workflow()
    async def calls_itself(ctx: Context, depth: int) -> None:
        await ctx.step.start("again", calls_itself, depth + 1)

    @app.workflow(on="round")
    async def emits_itself(ctx: Context, event: Event) -> None:
        async def body() -> None:
            await app.emit("round")

        await ctx.step.run("again", body)

    async def scenario() -> list[str]:
        await app.start(calls_itself, 0)
        await app.emit("round")
        await eventually_async(lambda: has_failed(app, 2), within_s=25)
        return [str(row.error) for row in await app.runs(state="failed")]

    async def has_failed(app: App, count: int) -> bool:
        return len(await app.runs(state="failed")) == count

    for error in run_app(app, scenario):
        assert f"is {DEPTH_MAX} starts deep" in error
        assert "in a circle" in error


# --- from outside -------------------------------------------------------------------------------------


def test_an_id_makes_an_emit_from_outside_idempotent(store_url: str) -> None:
    shop = Shop(store_url)
    app = shop.app

    async def scenario() -> None:
        first = await app.emit("told", {"a": 1}, id="fact")
        again = await app.emit("told", {"a": 1}, id="fact")
        assert not first.is_duplicate
        assert again.is_duplicate
        assert [run.run_id for run in again.runs] == [run.run_id for run in first.runs]
        with pytest.raises(IdClash, match="'fact' of 'emit/told' exists with other content"):
            await app.emit("told", {"a": 2}, id="fact")
        assert (await app.event("emit/told", "fact")).payload == {"a": 1}
        assert not (await app.emit("other", {"a": 2}, id="fact")).is_duplicate
        at_once = await asyncio.gather(*(app.emit("told", 1, id="many") for _ in range(30)))
        assert len({one.runs[0].run_id for one in at_once}) == 1
        assert sum(not one.is_duplicate for one in at_once) == 1

    run_app(app, scenario)


def test_an_id_makes_a_start_from_outside_idempotent(store_url: str) -> None:
    shop = Shop(store_url)
    app = shop.app

    async def scenario() -> None:
        first = await app.start(shop.child, 4, id="7")
        again = await app.start(shop.child, 4, id="7")
        assert (again.run_id, again.is_duplicate, first.is_duplicate) == (first.run_id, True, False)
        assert await again.result() == 8
        with pytest.raises(IdClash):
            await app.start(shop.child, 5, id="7")

    run_app(app, scenario)


@pytest.mark.parametrize("bad", ["", "x" * 256, "nul\x00", "half \ud800", 7])
def test_an_id_that_cannot_be_one_is_refused_at_once(sqlite_url: str, bad: Any) -> None:
    shop = Shop(sqlite_url)
    app = shop.app

    async def scenario() -> None:
        for attempt in (lambda: app.emit("told", id=bad), lambda: app.start(shop.child, 1, id=bad)):
            with pytest.raises(Exception, match="cannot identify an event"):
                await attempt()
        for attempt in (lambda: app.emit("told", subject="\x00"), lambda: app.emit("told", subject="\ud800")):
            with pytest.raises(Exception, match="subject"):
                await attempt()
        for attempt in (lambda: app.emit(""), lambda: app.emit("a\x00"), lambda: app.emit("x" * 300)):
            with pytest.raises(Exception, match="event type"):
                await attempt()
        assert await app.events() == []

    run_app(app, scenario)


def test_every_subscriber_has_a_run_and_an_event_without_any_is_seen(store_url: str) -> None:
    app = make_app(store_url)

    @app.workflow(on="order.paid")
    async def exact(ctx: Context, event: Event) -> str:
        return event.type

    @app.workflow(on=["order.*", "order.paid"])
    async def prefix(ctx: Context, event: Event) -> str:
        return event.type

    @app.workflow(on="*")
    def everything(ctx: SyncContext, event: Event) -> str:
        return event.type

    @app.workflow(on="order.shipped")
    async def other(ctx: Context, event: Event) -> str:
        return event.type

    async def scenario() -> None:
        when = datetime(2026, 1, 2, tzinfo=UTC)
        paid = await app.emit("order.paid", 1, id="1", subject="7", occurred_at=when)
        rows = [await run.row() for run in paid.runs]
        assert sorted(row.workflow for row in rows) == ["everything", "exact", "prefix"]
        assert [await run.result() for run in paid.runs] == ["order.paid"] * 3
        view = await app.event("emit/order.paid", "1")
        assert (view.subject, view.type, len(view.runs)) == ("7", "order.paid", 3)
        (row,) = await app.events(source="emit/order.paid")
        assert row.occurred_at == when.timestamp() * 1000

        alone = await app.emit("orders", 1)
        assert [(await run.row()).workflow for run in alone.runs] == ["everything"]
        await alone.runs[0].result()

    run_app(app, scenario)


def test_an_event_without_subscribers_is_stored_and_visible(store_url: str) -> None:
    app = make_app(store_url)

    async def scenario() -> None:
        emitted = await app.emit("nobody.listens", {"a": 1})
        assert emitted.runs == []
        (row,) = await app.events()
        assert (row.source, row.type, row.id) == ("emit/nobody.listens", "nobody.listens", emitted.id)
        assert (await app.event(emitted.source, emitted.id)).runs == []

    run_app(app, scenario)


def test_a_workflow_of_another_app_or_none_is_unknown(sqlite_url: str) -> None:
    app, other = make_app(sqlite_url), make_app(sqlite_url)

    @other.workflow()
    async def theirs(ctx: Context) -> None: ...

    async def function(ctx: Context) -> None: ...

    async def scenario() -> None:
        start: Any = app.start
        for unknown, name in ((theirs, "theirs"), (function, "function"), ("text", "text"), (None, "None")):
            with pytest.raises(Exception, match=f"{name}['\"]? is not a workflow of this app"):
                await start(unknown)
        assert await app.events() == []

    run_app(app, scenario)
