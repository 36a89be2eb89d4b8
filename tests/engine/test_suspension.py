"""Runs that wait leave memory: what their code feels of it, and what they cost."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from typing import Any

import pytest

from onceward import Context, RunFailed, RunHandle, RunState, SyncContext
from tests.engine.running import SOON, make_app, result_of, run_app
from tests.helpers import eventually, eventually_async


async def is_in(handle: RunHandle[Any], state: RunState) -> bool:
    return await handle.state() is state


# --- unwinding ----------------------------------------------------------------------------------------


def test_except_exception_does_not_swallow_a_sleep_and_finally_starts_nothing(store_url: str) -> None:
    app = make_app(store_url)
    swallowed: list[Exception] = []
    refused: list[str] = []
    bodies: list[str] = []

    @app.workflow()
    async def flow(ctx: Context) -> str:
        try:
            try:
                await ctx.step.sleep("nap", "150ms")
            except Exception as error:  # noqa: BLE001 - as users' code does
                swallowed.append(error)
        finally:
            try:
                await ctx.step.run("clean up", lambda: bodies.append("clean up"))
                await ctx.step.emit("tell", "cleaned")
            except BaseException as error:
                refused.append(type(error).__name__)
                raise
        return "done"

    async def scenario() -> None:
        handle = await app.start(flow)
        await eventually_async(lambda: is_in(handle, RunState.SLEEPING))
        assert [row.name for row in await handle.steps()] == ["nap"]
        assert bodies == []
        assert await handle.result() == "done"
        assert len(await app.events(type="cleaned")) == 1

    run_app(app, scenario)

    assert swallowed == []
    assert refused == ["Suspended"]
    assert bodies == ["clean up"]


def test_code_that_swallows_even_that_still_starts_nothing(store_url: str) -> None:
    app = make_app(store_url)
    bodies: list[str] = []
    goes = 0

    @app.workflow()
    async def flow(ctx: Context) -> str:
        nonlocal goes
        goes += 1
        with contextlib.suppress(BaseException):
            await ctx.step.sleep("nap", "150ms")
        for name in ("a", "b"):
            with contextlib.suppress(BaseException):
                await ctx.step.run(name, lambda: bodies.append("ran"))
        return "returned"

    async def scenario() -> None:
        handle = await app.start(flow)
        await eventually_async(lambda: is_in(handle, RunState.SLEEPING))
        assert bodies == []
        assert await handle.result() == "returned"

    run_app(app, scenario)

    assert bodies == ["ran", "ran"]
    assert goes == 2


def test_siblings_in_a_task_group_are_parked_not_cut(store_url: str) -> None:
    app = make_app(store_url)
    begun: list[str] = []

    @app.workflow()
    async def flow(ctx: Context) -> list[str]:
        order: list[str] = []

        async def branch(name: str, delay: str) -> None:
            await ctx.step.run(name, lambda: begun.append(name))
            await ctx.step.sleep(f"nap {name}", delay)
            order.append(name)

        async with asyncio.TaskGroup() as group:
            for name, delay in (("c", "260ms"), ("a", "100ms"), ("b", "180ms")):
                group.create_task(branch(name, delay))
        return order

    async def scenario() -> tuple[list[str], list[str]]:
        handle = await app.start(flow)
        return await handle.result(), [row.state.value for row in await handle.steps()]

    assert run_app(app, scenario) == (["a", "b", "c"], ["done"] * 6)
    assert sorted(begun) == ["a", "b", "c"]


def test_a_run_stays_while_one_branch_works(store_url: str) -> None:
    app = make_app(store_url)
    begun: list[int] = []

    @app.workflow()
    async def flow(ctx: Context) -> None:
        async def work() -> None:
            begun.append(1)
            await asyncio.sleep(0.3)

        await asyncio.gather(ctx.step.sleep("nap", "1h"), ctx.step.run("work", work))

    async def scenario() -> None:
        handle = await app.start(flow)
        await eventually_async(lambda: is_in(handle, RunState.SLEEPING))
        rows = {row.name: row.state.value for row in await handle.steps()}
        assert rows == {"nap": "open", "work": "done"}

    run_app(app, scenario)

    assert begun == [1]


def test_a_plain_workflow_sleeps_without_its_except_exception_noticing(store_url: str) -> None:
    app = make_app(store_url)
    swallowed: list[Exception] = []
    cleaned: list[str] = []

    @app.workflow()
    def flow(ctx: SyncContext) -> str:
        try:
            ctx.step.sleep("nap", "150ms")
        except Exception as error:  # noqa: BLE001 - as users' code does
            swallowed.append(error)
        finally:
            ctx.step.run("clean up", lambda: cleaned.append("x"))
        return ctx.step.run("after", lambda: "done")

    async def scenario() -> str:
        handle = await app.start(flow)
        await eventually_async(lambda: is_in(handle, RunState.SLEEPING))
        assert cleaned == []
        return await handle.result()

    assert run_app(app, scenario) == "done"
    assert swallowed == []
    assert cleaned == ["x"]


def test_a_cancelled_branch_does_not_hurt_its_siblings(store_url: str) -> None:
    """Branches share a commit; cutting one off while it waits for that must not cut the others."""
    app = make_app(store_url)

    @app.workflow()
    async def flow(ctx: Context) -> int:
        async def branch(n: int) -> int:
            for k in range(4):
                await ctx.step.run("work", int, k, item=f"{n}/{k}")
            return n

        tasks = [asyncio.create_task(branch(n)) for n in range(6)]
        await ctx.step.run("first", lambda: 0)
        for task in tasks[::2]:
            task.cancel()
        return sum(await asyncio.gather(*tasks[1::2]))

    async def scenario() -> list[int]:
        return [await handle.result() for handle in [await app.start(flow) for _ in range(20)]]

    assert run_app(app, scenario) == [9] * 20


# --- timers of the code's own ---------------------------------------------------------------------------


def test_a_time_limit_of_the_codes_own_ends_a_wait(store_url: str) -> None:
    app = make_app(store_url)

    @app.workflow()
    async def child(ctx: Context) -> None:
        await ctx.step.sleep("nap", "1h")

    @app.workflow()
    async def flow(ctx: Context) -> list[str]:
        ended = []
        for name, wait in (("sleep", ctx.step.sleep("nap", "1h")), ("call", ctx.step.call("call", child))):
            try:
                async with asyncio.timeout(0.2):
                    await wait
            except TimeoutError:
                ended.append(name)
            await ctx.step.run(f"after {name}", lambda: None)
        await ctx.step.sleep("recall from here", "60ms")
        return ended

    async def scenario() -> tuple[list[str], str | None]:
        handle = await app.start(flow)
        return await handle.result("15s"), (await handle.row()).warning

    assert run_app(app, scenario) == (["sleep", "call"], None)


def test_a_branch_in_a_sleep_of_its_own_goes_on(store_url: str) -> None:
    app = make_app(store_url)
    ran = asyncio.Event()

    @app.workflow()
    async def flow(ctx: Context) -> None:
        async def branch() -> None:
            await asyncio.sleep(0.3)
            await ctx.step.run("work", ran.set)

        await asyncio.gather(ctx.step.sleep("nap", "1h"), branch())

    async def scenario() -> None:
        handle = await app.start(flow)
        await eventually_async(lambda: is_in(handle, RunState.SLEEPING))
        assert [row.name for row in await handle.steps() if row.state == "done"] == ["work"]

    run_app(app, scenario)


def test_a_long_timer_of_the_codes_own_is_warned_of(store_url: str, caplog: pytest.LogCaptureFixture) -> None:
    app = make_app(store_url)

    @app.workflow()
    async def flow(ctx: Context) -> None:
        async with asyncio.timeout(3600):
            await ctx.step.sleep("nap", "7200s")

    async def scenario() -> None:
        handle = await app.start(flow)
        await eventually_async(lambda: is_in(handle, RunState.SLEEPING))

    run_app(app, scenario)

    assert "holds a timer of its own that fires in 3600 s" in caplog.text


def test_timers_that_bodies_leave_behind_keep_no_run_in_memory(
    store_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = make_app(store_url)

    @app.workflow()
    async def flow(ctx: Context) -> None:
        async def body() -> None:
            asyncio.get_running_loop().call_later(5, int)  # as a client's keep-alive

        await ctx.step.run("request", body)
        await ctx.step.sleep("nap", "1h")

    async def scenario() -> None:
        handle = await app.start(flow)
        await eventually_async(lambda: is_in(handle, RunState.SLEEPING), within_s=4)

    run_app(app, scenario)

    assert "timer" not in caplog.text


# --- what waiting costs -------------------------------------------------------------------------------


def test_waiting_runs_cost_no_task_and_no_thread(store_url: str) -> None:
    app = make_app(store_url, concurrency=20)

    @app.workflow()
    async def sleeps(ctx: Context) -> None:
        await ctx.step.sleep("nap", "1h")

    @app.workflow()
    def sleeps_plainly(ctx: SyncContext) -> None:
        ctx.step.sleep("nap", "1h")

    @app.workflow()
    async def waits(ctx: Context) -> None:
        await ctx.step.call("wait", sleeps)

    async def scenario() -> None:
        await asyncio.sleep(0.2)
        tasks, threads = len(asyncio.all_tasks()), threading.active_count()
        for workflow in (sleeps, sleeps_plainly, waits):
            for _ in range(40):
                await app.start(workflow)
        await eventually_async(lambda: are_waiting(160), within_s=20)
        await eventually_async(has_left)
        # A pool keeps its threads for the next plain workflows; there are never more than slots.
        await eventually_async(lambda: has_tasks(tasks))
        assert threading.active_count() <= threads + 20 + 5

    async def are_waiting(count: int) -> bool:
        rows = await app.runs(limit=1000)
        states = [row.state for row in rows]
        return states.count(RunState.SLEEPING) + states.count(RunState.WAITING) == count

    async def has_left() -> bool:
        return app.worker.executions == {}

    async def has_tasks(count: int) -> bool:
        return len(asyncio.all_tasks()) <= count + 1

    run_app(app, scenario)


def test_threads_of_suspended_plain_workflows_are_used_again(sqlite_url: str) -> None:
    app = make_app(sqlite_url, concurrency=4, threads=4)

    @app.workflow()
    def flow(ctx: SyncContext, n: int) -> int:
        ctx.step.sleep("nap", "100ms")
        return ctx.step.run("work", lambda: n)

    async def scenario() -> int:
        handles = [await app.start(flow, n) for n in range(40)]
        return sum([await handle.result() for handle in handles])

    before = threading.active_count()
    assert run_app(app, scenario) == sum(range(40))
    eventually(lambda: threading.active_count() <= before, what="threads end with the app")


def test_a_plain_workflow_that_is_steered_away_does_not_go_on(store_url: str) -> None:
    app = make_app(store_url)
    reached: list[int] = []

    @app.workflow()
    def flow(ctx: SyncContext) -> int:
        if ctx.generation == 1:
            ctx.step.run("slow", asyncio.sleep, 600)  # longer than this test may take
            reached.append(ctx.generation)
        return ctx.generation

    async def scenario() -> int:
        handle = await app.start(flow)
        await eventually_async(lambda: has_step_in_flight(handle.run_id))
        await handle.restart(acknowledge=True)
        return await handle.result()

    async def has_step_in_flight(run_id: str) -> bool:
        execution = app.worker.executions.get(run_id)
        return execution is not None and bool(execution.steps_in_flight)

    assert run_app(app, scenario) == 2
    assert reached == []


# --- sleeps -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "delay", [-1, float("nan"), float("inf"), "soon", "-1s", None, True, "1e3s", 10**12, [1]]
)
def test_a_delay_that_is_none_is_refused_with_the_sleeps_name(sqlite_url: str, delay: Any) -> None:
    app = make_app(sqlite_url)

    @app.workflow()
    async def flow(ctx: Context) -> None:
        await ctx.step.sleep("nap", delay)

    @app.workflow()
    def plain_flow(ctx: SyncContext) -> None:
        ctx.step.sleep("nap", delay)

    for workflow in (flow, plain_flow):
        with pytest.raises(RunFailed, match=r"delay of sleep 'nap' cannot be") as failed:
            result_of(app, workflow)
        assert failed.value.error_type == "onceward.ConfigError"


@pytest.mark.parametrize("delay", [0, "0s", 0.0, "30ms", 0.03])
def test_short_sleeps_end(store_url: str, delay: Any) -> None:
    app = make_app(store_url)

    @app.workflow()
    async def flow(ctx: Context) -> str:
        await ctx.step.sleep("nap", delay)
        return "awake"

    assert result_of(app, flow) == "awake"


def test_a_sleeps_deadline_is_fixed_when_it_is_first_reached(store_url: str) -> None:
    app = make_app(store_url)

    async def scenario() -> None:
        handle = await app.start(sleeper)
        await handle.result()

    @app.workflow(retry=SOON)
    async def sleeper(ctx: Context) -> None:
        nap = asyncio.create_task(ctx.step.sleep("nap", 3600 if ctx.attempt > 1 else "400ms"))
        await ctx.step.sleep("short", "60ms", item=ctx.attempt)
        if ctx.attempt < 3:
            raise ValueError("again")
        await nap

    began = time.monotonic()
    run_app(app, scenario)
    took = time.monotonic() - began

    assert 0.39 < took < 10


def test_a_hundred_years_are_a_sleep(store_url: str) -> None:
    app = make_app(store_url)

    @app.workflow()
    async def flow(ctx: Context) -> None:
        await ctx.step.sleep("nap", "36500d")

    async def scenario() -> None:
        handle = await app.start(flow)
        await eventually_async(lambda: is_in(handle, RunState.SLEEPING))
        await handle.cancel()
        await eventually_async(lambda: is_in(handle, RunState.CANCELLED))

    run_app(app, scenario)


def test_a_run_past_its_deadline_ends_whatever_it_does(store_url: str) -> None:
    app = make_app(store_url)

    @app.workflow(deadline="150ms")
    async def sleeps(ctx: Context) -> None:
        await ctx.step.sleep("nap", "1h")

    @app.workflow(deadline="150ms")
    async def works(ctx: Context) -> None:
        await ctx.step.run("slow", asyncio.sleep, 20)

    @app.workflow(deadline="150ms")
    def works_plainly(ctx: SyncContext) -> None:
        ctx.step.run("slow", asyncio.sleep, 20)

    async def scenario() -> None:
        for workflow in (sleeps, works, works_plainly):
            handle = await app.start(workflow)
            with pytest.raises(RunFailed, match="did not end before its deadline"):
                await handle.result("10s")

    run_app(app, scenario)
