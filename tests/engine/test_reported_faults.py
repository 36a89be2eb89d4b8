"""Faults that others reported of systems like ours, each tried here; see the list in the contract."""

from __future__ import annotations

import asyncio
import datetime as dt
import math
from collections import Counter
from typing import Any

import pytest

from onceward import Context, Retry, RetryLater, RunFailed, RunHandle, RunState
from tests.engine.running import ONCE, evict, make_app, result_of, run_app
from tests.helpers import eventually_async


async def is_in(handle: RunHandle[Any], state: RunState) -> bool:
    return await handle.state() is state


def test_a_run_that_fails_twice_has_its_three_children_once(store_url: str) -> None:
    """B028: each attempt gets the same ids."""
    app = make_app(store_url)
    seen: list[list[str]] = []

    @app.workflow
    async def child(ctx: Context, n: int) -> int:
        return n

    @app.workflow(retry=Retry(max_tries=3, base="10ms", cap="10ms"))
    async def parent(ctx: Context) -> None:
        seen.append([await ctx.step.start(f"start {n}", child, n) for n in range(3)])
        if ctx.attempt < 3:
            raise ValueError("again")

    result_of(app, parent)

    async def count() -> int:
        return len(await app.runs(workflow="child"))

    assert run_app(app, count) == 3
    assert len(seen) == 3
    assert seen[0] == seen[1] == seen[2]
    assert len(set(seen[0])) == 3


def test_sleepers_and_runs_that_wait_for_a_retry_hold_no_lease(store_url: str) -> None:
    """B008: three processes, waits of many leases; each run goes on once and nothing is charged."""
    apps = [make_app(store_url, lease="500ms", poll="50ms", concurrency=8) for _ in range(3)]
    after: Counter[str] = Counter()
    for app in apps:

        @app.workflow
        async def flow(ctx: Context, n: int) -> None:
            async def flaky() -> None:
                after[f"try {ctx.try_number} of {n}"] += 1
                if ctx.try_number == 1:
                    raise RetryLater("1600ms")

            if n % 2:
                await ctx.step.sleep("nap", "1600ms")
            else:
                await ctx.step.run("flaky", flaky, retry=Retry(max_tries=2))
            await ctx.step.run("after", lambda: after.update([f"after {n}"]))

    count = 60

    async def scenario() -> list[int]:
        async with apps[1], apps[2]:
            workflow = apps[0].workflows["flow"]
            handles = [await apps[0].start(workflow, n) for n in range(count)]
            await asyncio.gather(*(handle.result("25s") for handle in handles))
            return [row.attempt for row in await apps[0].runs(limit=1_000)]

    assert run_app(apps[0], scenario) == [1] * count
    assert after == Counter(
        [f"after {n}" for n in range(count)]
        + [f"try {number} of {n}" for n in range(0, count, 2) for number in (1, 2)]
    )


def test_the_branch_that_lost_a_race_does_not_keep_the_run(store_url: str) -> None:
    """B059: the run has ended when its code returns, and the wait of the loser is closed."""
    app = make_app(store_url)

    @app.workflow
    async def flow(ctx: Context) -> str:
        waits = asyncio.create_task(ctx.step.sleep("four hours", "4h"))
        works = asyncio.create_task(ctx.step.run("work", lambda: "won"))
        await asyncio.wait([waits, works], return_when=asyncio.FIRST_COMPLETED)
        return works.result()

    async def scenario() -> tuple[str, RunState, str | None]:
        handle = await app.start(flow)
        result = await handle.result("10s")
        row = await handle.row()
        return result, row.state, row.reason

    assert run_app(app, scenario) == ("won", RunState.COMPLETED, None)


@pytest.mark.parametrize("kib", [255, 256, 257, 1000])
def test_big_results_are_the_same_after_a_recall(store_url: str, kib: int) -> None:
    """B038: also where a fan-out is large in total."""
    app = make_app(store_url)
    seen: list[list[int]] = []
    runs: list[list[str]] = []

    @app.workflow
    async def flow(ctx: Context) -> None:
        async def one(n: int) -> str:
            return await ctx.step.run("big", lambda: chr(97 + n) * (kib * 1024 - 100), item=n)

        results = await asyncio.gather(*(one(n) for n in range(12)))
        seen.append([len(result) for result in results])
        runs.append([result[0] for result in results])
        await ctx.step.sleep("nap", "100ms")

    result_of(app, flow)

    assert len(seen) == 2
    assert seen[0] == seen[1] == [kib * 1024 - 100] * 12
    assert runs[0] == runs[1] == list("abcdefghijkl")


ODD: dict[str, Any] = {
    "minus one": -1,
    "nan": math.nan,
    "infinity": math.inf,
    "1e308": 1e308,
    "P-1D": "P-1D",
    "longest": dt.timedelta.max,
    "negative": dt.timedelta(microseconds=-1),
    "a huge integer": 10**400,
    "true": True,
    "a list": [1],
}


@pytest.mark.parametrize("name", ODD)
def test_odd_durations_are_refused_by_name_and_no_run_hangs(sqlite_url: str, name: str) -> None:
    """B031: of a try, of a sleep, of a request to be tried later, of policies and deadlines."""
    odd = ODD[name]
    app = make_app(sqlite_url)

    @app.workflow
    async def limits(ctx: Context) -> None:
        await ctx.step.run("limited", int, timeout=odd)

    @app.workflow
    async def sleeps(ctx: Context) -> None:
        await ctx.step.sleep("nap", odd)

    @app.workflow
    async def asks(ctx: Context) -> int:
        async def body() -> int:
            if ctx.try_number == 1:
                raise RetryLater(odd)
            return ctx.try_number

        return await ctx.step.run("asks", body, retry=Retry(base="1ms", cap="1ms"))

    for workflow, what in ((limits, "timeout of step 'limited'"), (sleeps, "delay of sleep 'nap'")):
        with pytest.raises(RunFailed, match=what) as failed:
            result_of(app, workflow)
        assert failed.value.error_type == "onceward.ConfigError"
    assert result_of(app, asks) == 2

    for refused in (
        lambda: Retry(base=odd),
        lambda: Retry(cap=odd),
        lambda: Retry(total=odd),
        lambda: app.step(timeout=odd),
        lambda: app.workflow(deadline=odd),
        lambda: make_app(sqlite_url, poll=odd),
        lambda: make_app(sqlite_url, lease=odd),
        lambda: make_app(sqlite_url, drain=odd),
    ):
        with pytest.raises(Exception) as told:
            refused()
        assert type(told.value).__name__ == "ConfigError", told.value


@pytest.mark.parametrize("none", [0, "0s", 0.0, dt.timedelta(0)])
def test_durations_of_nothing_end_at_once(store_url: str, none: Any) -> None:
    """B031: nothing hangs on a length of zero."""
    app = make_app(store_url)

    @app.workflow
    async def flow(ctx: Context) -> int:
        async def body() -> int:
            if ctx.try_number == 1:
                raise RetryLater(none)
            return ctx.try_number

        await ctx.step.sleep("nap", none)
        return await ctx.step.run("asks", body, retry=Retry(base=none, cap=none))

    assert result_of(app, flow) == 2


def test_a_step_that_can_never_begin_in_its_time_says_so(sqlite_url: str) -> None:
    """B031: a try that may take no time at all is a time-out, not a stuck run."""
    app = make_app(sqlite_url)

    @app.workflow
    async def flow(ctx: Context) -> None:
        await ctx.step.run("limited", asyncio.sleep, 5, timeout=0, retry=ONCE)

    with pytest.raises(RunFailed, match="limited"):
        result_of(app, flow)


def test_a_thrown_out_race_runs_each_body_once(store_url: str) -> None:
    """B037: a slow sibling is not run again because a quick one went on."""
    app = make_app(store_url)
    begun: Counter[str] = Counter()
    go_on = asyncio.Event()

    @app.workflow
    async def flow(ctx: Context) -> list[str]:
        async def body(name: str) -> str:
            begun[name] += 1
            if name == "slow":
                await go_on.wait()
            return name

        async def quick() -> str:
            await ctx.step.run("quick", body, "quick")
            return await ctx.step.run("next", body, "next")

        results = list(await asyncio.gather(quick(), ctx.step.run("slow", body, "slow")))
        await ctx.step.sleep("nap", "100ms")
        return results

    async def scenario() -> list[str]:
        handle = await app.start(flow)
        await eventually_async(lambda: _has(begun, "next"))
        go_on.set()
        await eventually_async(lambda: is_in(handle, RunState.SLEEPING))
        await evict(app, handle.run_id)
        return await handle.result("10s")

    assert run_app(app, scenario) == ["next", "slow"]
    assert begun == {"quick": 1, "next": 1, "slow": 1}


async def _has(begun: Counter[str], name: str) -> bool:
    return begun[name] > 0


def test_steps_of_nested_tasks_and_threads_belong_to_their_own_run(store_url: str) -> None:
    """B058: twenty runs at once, each body knows its own run and step."""
    app = make_app(store_url, concurrency=20)

    @app.workflow
    async def flow(ctx: Context) -> list[str]:
        async def body() -> str:
            return await asyncio.to_thread(lambda: ctx.idempotency_key)

        async def nested(n: int) -> list[str]:
            inner = asyncio.create_task(ctx.step.run("inner", body, item=n))
            async with asyncio.TaskGroup() as group:
                grouped = group.create_task(ctx.step.run("grouped", body, item=n))
            return [await inner, grouped.result()]

        return [key for keys in await asyncio.gather(*(nested(n) for n in range(3))) for key in keys]

    async def scenario() -> tuple[list[list[str]], list[set[str]]]:
        handles = [await app.start(flow) for _ in range(20)]
        keys = [await handle.result() for handle in handles]
        return keys, [{str(row.key) for row in await handle.steps()} for handle in handles]

    keys, steps = run_app(app, scenario)

    assert len({key for of_run in keys for key in of_run}) == 20 * 6
    assert steps == [{f"{name}[{n}]" for name in ("inner", "grouped") for n in range(3)}] * 20
