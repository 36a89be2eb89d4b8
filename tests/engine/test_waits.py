"""Waits for events: which events count, which wait takes which, and what outlives a run's stay in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from onceward import (
    App,
    ConfigError,
    Context,
    Event,
    Expect,
    Retry,
    RunFailed,
    RunHandle,
    RunState,
    StepMisuse,
    SyncContext,
    WaitTimedOut,
)
from onceward import event as e
from onceward.core.triggers import Trigger
from tests.engine.running import evict, make_app, open_store, result_of, run_app
from tests.helpers import eventually_async


async def is_waiting(handle: RunHandle[Any]) -> bool:
    return await handle.state() is RunState.WAITING


async def has_left(app: App, handle: RunHandle[Any]) -> bool:
    return await is_waiting(handle) and handle.run_id not in app.worker.executions


async def next_moment(app: App) -> None:
    """Return in a later millisecond, so that what comes next comes after what came before."""
    now = app.worker.now_ms()
    await eventually_async(lambda: _is_over(app, now))


async def _is_over(app: App, moment: int) -> bool:
    return app.worker.now_ms() > moment


@asynccontextmanager
async def other_process(url: str, **settings: Any) -> AsyncIterator[App]:
    """A second process, as far as the store can tell, that runs nothing."""
    app = make_app(url, **settings)
    await app.open(runs=False)
    try:
        yield app
    finally:
        await app.close()


def left_over(url: str) -> list[int]:
    with open_store(url) as store:
        return [len(rows) for rows in store.dump("wait", "offer").values()]


# --- which events count -------------------------------------------------------------------------------


def test_an_event_that_comes_while_the_run_waits_ends_the_wait(store_url: str) -> None:
    app = make_app(store_url)

    @app.workflow()
    async def flow(ctx: Context, order: str) -> Any:
        packed = await ctx.step.wait_for("packed", "warehouse.packed", subject=order, timeout="7d")
        assert isinstance(packed, Event)
        return [packed.type, packed.subject, packed.source, packed.payload]

    async def scenario() -> Any:
        handle = await app.start(flow, "o-1")
        await eventually_async(lambda: has_left(app, handle))
        assert (await handle.row()).reason == "waits for warehouse.packed of o-1"
        await app.emit("warehouse.packed", {"boxes": 2}, subject="o-2")
        await app.emit("warehouse.packed", {"boxes": 3}, subject="o-1")
        return await handle.result("10s")

    found = run_app(app, scenario)

    assert found == ["warehouse.packed", "o-1", "emit/warehouse.packed", {"boxes": 3}]
    assert left_over(store_url) == [0, 0]


@pytest.mark.parametrize("subject", ["o-1", None])
def test_an_event_counts_that_came_before_the_wait_but_not_before_the_run(
    store_url: str, subject: str | None
) -> None:
    app = make_app(store_url)

    @app.workflow()
    async def flow(ctx: Context) -> Any:
        await ctx.step.wait_for("go", "go", timeout="1m")
        return (await ctx.step.wait_for("packed", "packed", subject=subject, timeout="1m")).payload

    async def scenario() -> Any:
        await app.emit("packed", "before the run", subject="o-1")
        await next_moment(app)
        handle = await app.start(flow)
        await eventually_async(lambda: has_left(app, handle))
        await app.emit("packed", "before the wait", subject="o-1")
        await next_moment(app)
        await app.emit("packed", "too late", subject="o-1")
        await app.emit("go")
        return await handle.result("10s")

    assert run_app(app, scenario) == "before the wait"


def test_an_event_from_another_process_ends_the_wait_whether_the_run_is_in_memory_or_not(
    store_url: str,
) -> None:
    app = make_app(store_url, linger="10s")

    @app.workflow()
    async def flow(ctx: Context, within: str | None) -> Any:
        return (await ctx.step.wait_for("packed", "packed", timeout=within, subject="o-1")).payload

    async def scenario() -> list[Any]:
        away, here = await app.start(flow, "1h"), await app.start(flow, None)
        await eventually_async(lambda: has_left(app, away))
        await eventually_async(lambda: has_open_wait(here))
        assert here.run_id in app.worker.executions
        async with other_process(store_url) as other:
            await other.emit("packed", "elsewhere", subject="o-1")
        return [await away.result("10s"), await here.result("10s")]

    async def has_open_wait(handle: RunHandle[Any]) -> bool:
        return bool(await handle.steps())

    assert run_app(app, scenario) == ["elsewhere", "elsewhere"]


def test_a_condition_is_asked_of_each_event(store_url: str) -> None:
    app = make_app(store_url)

    @app.workflow()
    async def flow(ctx: Context) -> Any:
        large = await ctx.step.wait_for("large", "paid", timeout="1m", where=e.payload["amount"] >= 100)
        return large.payload["amount"]

    async def scenario() -> Any:
        handle = await app.start(flow)
        await eventually_async(lambda: has_left(app, handle))
        for payload in ({"amount": 99}, {"other": 1}, None, {"amount": "100"}, {"amount": 250}):
            await app.emit("paid", payload)
        return await handle.result("10s")

    assert run_app(app, scenario) == 250


def test_only_the_named_source_can_end_a_wait(store_url: str) -> None:
    """An event of our own cannot be taken for a provider's, nor a provider's for one of our own."""
    app = make_app(store_url)

    @app.workflow()
    async def flow(ctx: Context, source: str | None) -> Any:
        got = await ctx.step.wait_for("paid", "paid", source=source, timeout="300ms", default=None)
        return got and got.source

    async def scenario() -> list[Any]:
        await app.emit("paid")
        own, theirs = await app.start(flow, None), await app.start(flow, "stripe")
        await eventually_async(lambda: has_left(app, theirs))
        await app.emit("paid")
        return [await own.result("10s"), await theirs.result("10s")]

    assert run_app(app, scenario) == ["emit/paid", None]


def test_what_a_run_emits_itself_ends_its_wait(store_url: str) -> None:
    app = make_app(store_url)

    @app.workflow()
    async def flow(ctx: Context) -> Any:
        await ctx.step.emit("tell", "told", {"n": 1}, subject="me")
        return (await ctx.step.wait_for("told", "told", subject="me", timeout="1m")).payload

    assert result_of(app, flow) == {"n": 1}


def test_a_start_of_a_workflow_is_no_event_to_wait_for(store_url: str) -> None:
    app = make_app(store_url)

    @app.workflow()
    async def other(ctx: Context) -> None: ...

    @app.workflow()
    async def flow(ctx: Context) -> Any:
        await ctx.step.call("call", other)
        return await ctx.step.wait_for("started", "other", timeout="100ms", default="nothing")

    assert result_of(app, flow) == "nothing"


# --- which wait takes which ---------------------------------------------------------------------------


def test_each_event_ends_one_wait_of_a_run_the_oldest_event_first(store_url: str) -> None:
    app = make_app(store_url)

    @app.workflow()
    async def flow(ctx: Context) -> list[Any]:
        first, second = await asyncio.gather(
            *(ctx.step.wait_for("line", "line", subject="o", item=n, timeout="1m") for n in ("a", "b"))
        )
        third = await ctx.step.wait_for("third", "line", subject="o", timeout="1m")
        return [first.payload, second.payload, third.payload]

    async def scenario() -> list[Any]:
        handle = await app.start(flow)
        await eventually_async(lambda: has_left(app, handle))
        for number in range(3):
            await app.emit("line", number, subject="o")
            await next_moment(app)
        return await handle.result("10s")

    found = run_app(app, scenario)

    assert sorted(found[:2]) == [0, 1]
    assert found[2] == 2


def test_two_runs_each_get_the_same_event(store_url: str) -> None:
    app = make_app(store_url)

    @app.workflow()
    async def flow(ctx: Context) -> Any:
        return (await ctx.step.wait_for("go", "go", timeout="1m")).payload

    async def scenario() -> list[Any]:
        handles = [await app.start(flow) for _ in range(5)]
        for handle in handles:
            await eventually_async(lambda handle=handle: has_left(app, handle))  # type: ignore[misc]
        await app.emit("go", 7)
        return [await handle.result("10s") for handle in handles]

    assert run_app(app, scenario) == [7] * 5


def test_the_first_of_several_events_is_told_by_its_label(store_url: str) -> None:
    app = make_app(store_url)

    @app.workflow()
    async def flow(ctx: Context) -> list[Any]:
        label, event = await ctx.step.wait_any(
            "decision",
            {"yes": Expect("approved", subject="o"), "no": Expect("refused", subject="o")},
            timeout="1m",
        )
        place, other = await ctx.step.wait_any("next", [Expect("a"), Expect("b")], timeout="1m")
        never = await ctx.step.wait_any("never", [Expect("c")], timeout="50ms", default=None)
        return [label, event.payload, place, other.payload, never]

    async def scenario() -> list[Any]:
        handle = await app.start(flow)
        await eventually_async(lambda: has_left(app, handle))
        await app.emit("refused", "no stock", subject="o")
        await app.emit("b", 2)
        return await handle.result("10s")

    assert run_app(app, scenario) == ["no", "no stock", 1, 2, None]
    assert left_over(store_url) == [0, 0]


def test_a_race_of_waits_decides_the_same_when_the_run_comes_back(store_url: str) -> None:
    app = make_app(store_url)

    @app.workflow()
    async def flow(ctx: Context) -> list[Any]:
        tasks = {
            name: asyncio.create_task(ctx.step.wait_for(name, name, timeout="4h")) for name in ("a", "b")
        }
        done, pending = await asyncio.wait(tasks.values(), return_when=asyncio.FIRST_COMPLETED)
        winner = [name for name, task in tasks.items() if task in done]
        for task in pending:
            task.cancel()
        await ctx.step.sleep("nap", "300ms")
        return winner

    async def scenario() -> list[Any]:
        handle = await app.start(flow)
        await eventually_async(lambda: has_left(app, handle))
        await app.emit("b")
        await eventually_async(lambda: is_asleep(handle))
        await evict(app, handle.run_id)
        await app.emit("a")
        return await handle.result("10s")

    async def is_asleep(handle: RunHandle[Any]) -> bool:
        return await handle.state() is RunState.SLEEPING

    assert run_app(app, scenario) == ["b"]
    assert left_over(store_url) == [0, 0]


def test_a_run_whose_race_is_decided_ends_at_once(store_url: str) -> None:
    app = make_app(store_url)

    @app.workflow()
    async def flow(ctx: Context) -> str:
        slow = asyncio.create_task(ctx.step.wait_for("slow", "never", timeout="4h"))
        quick = asyncio.create_task(ctx.step.wait_for("quick", "quick", timeout="4h"))
        await asyncio.wait([slow, quick], return_when=asyncio.FIRST_COMPLETED)
        return "decided"

    async def scenario() -> str:
        handle = await app.start(flow)
        await eventually_async(lambda: has_left(app, handle))
        await app.emit("quick")
        return await handle.result("10s")

    assert run_app(app, scenario) == "decided"
    assert left_over(store_url) == [0, 0]


# --- time-outs ----------------------------------------------------------------------------------------


def test_a_time_out_is_an_exception_or_a_value_as_asked(store_url: str) -> None:
    app = make_app(store_url)

    @app.workflow()
    async def flow(ctx: Context) -> list[Any]:
        given = await ctx.step.wait_for("given", "never", timeout="20ms", default="too late")
        try:
            await ctx.step.wait_for("raised", "never", subject="o-1", timeout="20ms")
        except WaitTimedOut as error:
            told = str(error)
        await ctx.step.sleep("nap", "150ms")
        return [given, told]

    given, told = result_of(app, flow)

    assert given == "too late"
    assert "raised" in told
    assert "never of o-1" in told


def test_a_deadline_is_fixed_when_it_is_first_reached(store_url: str) -> None:
    app = make_app(store_url)

    @app.workflow()
    async def flow(ctx: Context) -> Any:
        never, poke = await asyncio.gather(
            ctx.step.wait_for("never", "never", timeout="700ms", default="over"),
            ctx.step.wait_for("poke", "poke", timeout="1h"),
        )
        return [never, poke.payload]

    async def scenario() -> list[Any]:
        handle = await app.start(flow)
        await eventually_async(lambda: has_left(app, handle))
        deadline = (await handle.steps())[0].wake_at
        await next_moment(app)
        await app.emit("poke", 1)  # it comes to memory, and leaves it again
        result = await handle.result("10s")
        (row,) = [row for row in await handle.steps() if row.name == "never"]
        return [result, row.wake_at == deadline, (row.ended_at or 0) >= (deadline or 0)]

    assert run_app(app, scenario) == [["over", 1], True, True]


def test_a_retry_of_a_run_that_a_time_out_ended_waits_anew(store_url: str) -> None:
    app = make_app(store_url)

    @app.workflow()
    async def flow(ctx: Context) -> Any:
        return (await ctx.step.wait_for("packed", "packed", timeout="200ms")).payload

    async def scenario() -> Any:
        handle = await app.start(flow)
        with pytest.raises(RunFailed):
            await handle.result("10s")
        assert [row.state for row in await handle.steps()] == ["failed"]
        await app.emit("packed", "after all")
        await handle.retry()
        return await handle.result("10s")

    assert run_app(app, scenario) == "after all"


def test_asyncio_timeout_cuts_a_wait_off_as_any_other(store_url: str) -> None:
    app = make_app(store_url)

    @app.workflow()
    async def flow(ctx: Context) -> str:
        try:
            async with asyncio.timeout(0.05):
                await ctx.step.wait_for("packed", "packed")
        except TimeoutError:
            await ctx.step.sleep("nap", "150ms")
            return "cut"
        return "packed"

    assert result_of(app, flow) == "cut"
    assert left_over(store_url) == [0, 0]


# --- what becomes of a run ----------------------------------------------------------------------------


def test_a_restart_takes_the_events_anew_and_a_replay_has_the_window_of_its_original(store_url: str) -> None:
    app = make_app(store_url)

    @app.workflow()
    async def flow(ctx: Context) -> list[Any]:
        got = [
            await ctx.step.wait_for("line", "line", subject="o", item=number, timeout="1h", default=None)
            for number in range(2)
        ]
        return [one and one.payload for one in got]

    async def scenario() -> list[Any]:
        handle = await app.start(flow)
        await eventually_async(lambda: has_left(app, handle))
        await app.emit("line", 1, subject="o")
        await next_moment(app)
        await app.emit("line", 2, subject="o")
        first = await handle.result("10s")
        await handle.restart()
        second = await handle.result("10s")
        third = await (await handle.replay()).result("10s")
        return [first, second, third]

    assert run_app(app, scenario) == [[1, 2]] * 3


def test_a_cancelled_run_is_told_in_its_wait(store_url: str) -> None:
    app = make_app(store_url)
    cleaned: list[str] = []

    @app.workflow()
    async def flow(ctx: Context) -> None:
        try:
            await ctx.step.wait_for("packed", "packed", timeout="7d")
        finally:
            await ctx.step.run("clean up", lambda: cleaned.append("up"))

    async def scenario() -> None:
        handle = await app.start(flow)
        await eventually_async(lambda: has_left(app, handle))
        await handle.cancel()
        await eventually_async(lambda: is_cancelled(handle))

    async def is_cancelled(handle: RunHandle[Any]) -> bool:
        return await handle.state() is RunState.CANCELLED

    run_app(app, scenario)

    assert cleaned == ["up"]
    assert left_over(store_url) == [0, 0]


def test_a_failing_run_that_is_tried_again_keeps_the_event_that_it_got(store_url: str) -> None:
    app = make_app(store_url)
    goes: list[Any] = []

    @app.workflow(retry=Retry(max_tries=2, base="10ms"))
    async def flow(ctx: Context) -> Any:
        got = await ctx.step.wait_for("line", "line", timeout="1m")
        goes.append(got.payload)
        if len(goes) == 1:
            raise ValueError("once")
        return got.payload

    async def scenario() -> Any:
        handle = await app.start(flow)
        await eventually_async(lambda: has_left(app, handle))
        await app.emit("line", 1)
        await next_moment(app)
        await app.emit("line", 2)
        return await handle.result("10s")

    assert run_app(app, scenario) == 1
    assert goes == [1, 1]


def test_a_plain_workflow_waits_in_its_thread(store_url: str) -> None:
    app = make_app(store_url)

    @app.workflow()
    def flow(ctx: SyncContext, order: str) -> list[Any]:
        packed = ctx.step.wait_for("packed", "packed", subject=order, timeout="1m")
        label, other = ctx.step.wait_any("any", {"a": Expect("a")}, timeout="1m")
        late = ctx.step.wait_for("late", "never", timeout="20ms", default=None)
        return [packed.payload, label, other.payload, late]

    async def scenario() -> list[Any]:
        handle = await app.start(flow, "o-1")
        await eventually_async(lambda: has_left(app, handle))
        await app.emit("packed", 1, subject="o-1")
        await app.emit("a", 2)
        return await handle.result("10s")

    assert run_app(app, scenario) == [1, "a", 2, None]


# --- what is refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "part"),
    [
        ({"on": "order.*"}, "pattern"),
        ({"subject": ""}, "empty subject"),
        ({"where": e.payload["ok"]}, "condition"),
        ({"where": lambda event: True}, "condition"),
        ({"on": Trigger("stripe", "paid"), "source": "github"}, "too"),
        ({"timeout": "-1s"}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"on": ""}, "event type"),
    ],
)
def test_a_wait_that_nothing_could_end_is_refused_where_it_is_written(
    sqlite_url: str, wrong: dict[str, Any], part: str
) -> None:
    app = make_app(sqlite_url)

    @app.workflow()
    async def flow(ctx: Context) -> str:
        with pytest.raises(ConfigError) as caught:
            await ctx.step.wait_for("packed", **{"on": "packed", "timeout": "1s", **wrong})
        return str(caught.value)

    assert part in result_of(app, flow)


def test_a_strict_app_refuses_a_wait_without_an_end(sqlite_url: str) -> None:
    app = make_app(sqlite_url, strict=True)

    @app.workflow()
    async def flow(ctx: Context) -> list[str]:
        told = []
        for verb in (
            lambda: ctx.step.wait_for("packed", "packed"),
            lambda: ctx.step.wait_any("any", [Expect("packed")]),
            lambda: ctx.step.promise("approval"),
        ):
            with pytest.raises(ConfigError) as caught:
                await verb()
            told.append(str(caught.value))
        return told

    told = result_of(app, flow)

    assert len(told) == 3
    assert all("strict" in one and 'timeout="7d"' in one for one in told)


def test_a_wait_inside_a_step_is_refused(sqlite_url: str) -> None:
    app = make_app(sqlite_url)

    @app.workflow()
    async def flow(ctx: Context) -> str:
        async def body() -> str:
            with pytest.raises(StepMisuse) as caught:
                await ctx.step.wait_for("packed", "packed")
            return str(caught.value)

        return await ctx.step.run("body", body)

    assert "inside the body of step 'body'" in result_of(app, flow)


@pytest.mark.parametrize("verb", ["wait_for", "promise", "result"])
def test_a_forgotten_await_is_told_as_it_is_written(sqlite_url: str, verb: str) -> None:
    app = make_app(sqlite_url, promise_secret="0123456789" * 4)

    @app.workflow()
    async def flow(ctx: Context) -> None:
        if verb == "wait_for":
            ctx.step.wait_for("packed", "packed")  # type: ignore[unused-coroutine]
        elif verb == "promise":
            ctx.step.promise("approval")  # type: ignore[unused-coroutine]
        else:
            (await ctx.step.promise("approval")).result()  # type: ignore[unused-coroutine]

    with pytest.raises(RunFailed) as caught:
        result_of(app, flow)

    written = "promise.result()" if verb == "result" else f"ctx.step.{verb}("
    assert written in str(caught.value)


# --- processes that die -------------------------------------------------------------------------------


@pytest.mark.parametrize("pays", [True, False])
def test_a_look_that_a_dead_process_owes_is_made_by_who_takes_over(store_url: str, pays: bool) -> None:
    """It died after it stored the event and before it looked who waits; nobody else would be told."""
    app = make_app(store_url, lease="500ms")

    @app.workflow()
    async def flow(ctx: Context) -> Any:
        line = await ctx.step.wait_for(
            "line", "line", where=e.payload["n"] == 1, timeout="1m", default="lost"
        )
        return line.payload if isinstance(line, Event) else line

    async def scenario() -> Any:
        if not pays:
            app.worker.matching.owe = lambda leased_until: None  # type: ignore[method-assign]
        handle = await app.start(flow)
        await eventually_async(lambda: has_left(app, handle))
        async with other_process(store_url, lease="500ms") as other:
            other.worker.committer._arrived = lambda *_: None  # it dies here
            await other.emit("line", {"n": 1})
            for task in other.worker._tasks:
                task.cancel()
            assert other.worker._heartbeat is not None
            await asyncio.to_thread(other.worker._heartbeat.stop)
            other.worker.evicted = lambda process_id: None  # type: ignore[method-assign]
            if pays:
                return await handle.result("20s")
            await eventually_async(lambda: is_taken_over(app))
            return await handle.state()

    async def is_taken_over(app: App) -> bool:
        return len(await app.processes()) == 1

    found = run_app(app, scenario)

    assert found == ({"n": 1} if pays else RunState.WAITING)
