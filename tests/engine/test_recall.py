"""Recall: saved answers come back after the code left memory, in the order in which they were saved."""

from __future__ import annotations

import asyncio
import functools
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

from onceward import App, Context, RunFailed, RunHandle, RunState, SyncContext
from tests.engine.running import SOON, evict, make_app, run_app
from tests.helpers import eventually_async

Flow = Callable[[Context], Awaitable[Any]]


class Ledger:
    """Counts bodies, outside of any store."""

    def __init__(self) -> None:
        self.begun: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()

    async def work(self, name: str, seconds: float = 0.0) -> str:
        self.begun[name] += 1
        await asyncio.sleep(seconds)
        self.ended[name] += 1
        return name

    def work_plainly(self, name: str) -> str:
        self.begun[name] += 1
        self.ended[name] += 1
        return name


def test_saved_results_answer_in_another_process(store_url: str) -> None:
    ledger = Ledger()

    def build() -> tuple[App, Any]:
        app = make_app(store_url)

        @app.workflow()
        async def flow(ctx: Context) -> list[Any]:
            first = await ctx.step.run("first", ledger.work, "first")
            drawn = [await ctx.step.uuid("id"), await ctx.step.now("now"), await ctx.step.random("draw")]
            await ctx.step.sleep("nap", "300ms")
            again = await ctx.step.run("second", ledger.work_plainly, "second")
            return [first, again, *(str(one) for one in drawn)]

        return app, flow

    app, flow = build()

    async def until_asleep() -> tuple[str, list[Any]]:
        handle = await app.start(flow)
        await eventually_async(lambda: is_in(handle, RunState.SLEEPING))
        return handle.run_id, [row.output for row in await handle.steps()]

    run_id, saved = run_app(app, until_asleep)
    app, _ = build()
    result = run_app(app, lambda: app.run(run_id).result())

    assert result[:2] == ["first", "second"]
    assert [str(result[2])] == [text.strip('"') for text in saved[1:2]]
    assert float(result[4]) == float(saved[3])
    assert ledger.begun == {"first": 1, "second": 1}


async def is_in(handle: RunHandle[Any], state: RunState) -> bool:
    return await handle.state() is state


# --- decisions ---------------------------------------------------------------------------------------


async def first_completed(ctx: Context, ledger: Ledger, delays: list[float]) -> Any:
    tasks = {
        asyncio.create_task(ctx.step.run(name, ledger.work, name, delay), name=name)
        for name, delay in zip("abcde", delays, strict=True)
    }
    order = []
    while tasks:
        done, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        winners = sorted(task.get_name() for task in done)
        order += winners
        await ctx.step.run(f"after {'+'.join(order)}", ledger.work, f"after {'+'.join(order)}")
    return order


async def as_completed(ctx: Context, ledger: Ledger, delays: list[float]) -> Any:
    steps = [
        ctx.step.run(name, ledger.work, name, delay) for name, delay in zip("abcde", delays, strict=True)
    ]
    order: list[str] = []
    for each in asyncio.as_completed(steps):
        order.append(await each)
        await ctx.step.run(f"after {'+'.join(order)}", ledger.work, f"after {'+'.join(order)}")
    return order


async def race(ctx: Context, ledger: Ledger, delays: list[float]) -> Any:
    """A then B, against C: the loser is cut off (B037)."""

    async def chain() -> str:
        first = await ctx.step.run("a", ledger.work, "a", delays[0])
        return first + await ctx.step.run("b", ledger.work, "b", delays[1])

    tasks = [
        asyncio.create_task(chain()),
        asyncio.create_task(ctx.step.run("c", ledger.work, "c", delays[2])),
    ]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    winner = sorted(task.result() for task in done)
    await ctx.step.run(f"after {winner}", ledger.work, f"after {winner}")
    return winner


async def timed_out(ctx: Context, ledger: Ledger, delays: list[float]) -> Any:
    order = []
    for name, delay in zip("abcde", delays, strict=True):
        try:
            async with asyncio.timeout(0.03):
                order.append(await ctx.step.run(name, ledger.work, name, delay))
        except TimeoutError:
            order.append(f"no {name}")
        await ctx.step.run(f"after {order[-1]}", ledger.work, f"after {order[-1]}")
    return order


async def grouped(ctx: Context, ledger: Ledger, delays: list[float]) -> Any:
    order: list[str] = []

    async def branch(name: str, delay: float) -> None:
        await ctx.step.run(name, ledger.work, name, delay)
        order.append(name)
        await ctx.step.run("after", ledger.work, f"after {'+'.join(order)}", item="+".join(order))

    async with asyncio.TaskGroup() as group:
        for name, delay in zip("abcde", delays, strict=True):
            group.create_task(branch(name, delay))
    return order


async def gathered(ctx: Context, ledger: Ledger, delays: list[float]) -> Any:
    async def branch(name: str, delay: float) -> str:
        first = await ctx.step.run(name, ledger.work, name, delay)
        return first + await ctx.step.run(f"{name}2", ledger.work, f"{name}2", delay / 2)

    return await asyncio.gather(*(branch(name, delay) for name, delay in zip("abcde", delays, strict=True)))


FLOWS: list[Any] = [first_completed, as_completed, race, timed_out, grouped, gathered]


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.__name__)
def test_code_decides_the_same_after_a_recall_at_any_point(store_url: str, flow: Any) -> None:
    """Runs are thrown out of memory at random moments; what code decided before, it decides again."""
    decide_again_and_again(store_url, flow, None)


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.__name__)
def test_code_decides_the_same_in_a_loop_that_does_not_show_what_is_ready(sqlite_url: str, flow: Any) -> None:
    decide_again_and_again(sqlite_url, flow, uvloop.new_event_loop)


def decide_again_and_again(url: str, flow: Any, loop_factory: Any) -> None:
    draw = random.Random(flow.__name__)
    app = make_app(url, concurrency=40)
    ledger = Ledger()

    @app.workflow()
    async def decide(ctx: Context, delays: list[float]) -> tuple[Any, Any]:
        decided = await flow(ctx, ledger, delays)
        saved = await ctx.step.run("decided", lambda: decided)
        await ctx.step.sleep("recall once more", "30ms")
        return decided, saved

    async def one() -> None:
        delays = [draw.choice([0.0, 0.01, 0.02, 0.04, 0.06]) for _ in range(5)]
        handle = await app.start(decide, delays)
        for _ in range(6):
            await asyncio.sleep(draw.uniform(0, 0.06))
            await evict(app, handle.run_id)
        decided, saved = await handle.result("20s")
        assert list(decided) == list(saved)
        assert (await handle.row()).warning is None

    async def scenario() -> None:
        await asyncio.gather(*(one() for _ in range(12)))

    run_app(app, scenario, within_s=60, loop_factory=loop_factory)


def test_bodies_whose_results_are_saved_never_run_again(store_url: str) -> None:
    draw = random.Random(1)
    app = make_app(store_url, concurrency=40)
    started_after_saved: list[str] = []
    saved: set[tuple[str, str]] = set()

    @app.workflow()
    async def flow(ctx: Context) -> None:
        async def body(name: str, delay: float) -> str:
            if (ctx.run_id, name) in saved:
                started_after_saved.append(name)
            await asyncio.sleep(delay)
            return name

        async def branch(name: str) -> None:
            for n in range(3):
                await ctx.step.run(f"{name}{n}", body, f"{name}{n}", draw.choice([0.0, 0.005, 0.01]))

        await asyncio.gather(*(branch(name) for name in "abc"))

    async def one() -> None:
        handle = await app.start(flow)
        for count in range(1, 9):
            await eventually_async(functools.partial(has_saved, handle, count))
            saved.update((handle.run_id, row.name) for row in await handle.steps() if row.state == "done")
            await evict(app, handle.run_id)
        await handle.result("20s")

    async def scenario() -> None:
        await asyncio.gather(*(one() for _ in range(12)))

    run_app(app, scenario, within_s=60)

    assert len(saved) >= 12 * 8
    assert started_after_saved == []


def test_what_is_new_begins_after_what_is_saved(store_url: str) -> None:
    """A live step that takes no time must not overtake saved outcomes of its sisters."""
    app = make_app(store_url)
    is_first_go = True
    seen: list[list[str]] = []

    @app.workflow()
    async def flow(ctx: Context) -> list[str]:
        order: list[str] = []
        seen.append(order)

        async def body(name: str) -> str:
            if name == "slow":
                await asyncio.sleep(30 if is_first_go else 0)
            return name

        async def branch(name: str) -> None:
            for _ in range(20 if name == "late" else 0):
                await asyncio.sleep(0)
            await ctx.step.run(name, body, name)
            order.append(name)

        # The slow one is asked for first, and at the second go it takes no time at all.
        await asyncio.gather(branch("slow"), branch("late"), branch("quick"))
        return order

    async def scenario() -> list[str]:
        nonlocal is_first_go
        handle = await app.start(flow)
        await eventually_async(lambda: has_saved(handle, 2))
        is_first_go = False
        await evict(app, handle.run_id)
        return await handle.result()

    result = run_app(app, scenario)

    assert seen[0] == result[:2]
    assert result[2] == "slow"


def test_a_step_that_was_kept_behind_one_that_runs_again_holds_nobody_up(store_url: str) -> None:
    """The code is not taken for changed because it comes to a kept step late, now and at a later recall."""
    app, ledger, seen = make_app(store_url), Ledger(), list[tuple[str, int, bool, bool]]()

    @app.workflow
    async def flow(ctx: Context) -> list[str]:
        async def work(name: str) -> str:
            (execution,) = app.worker.executions.values()
            recall = execution.recall
            seen.append((name, ctx.generation, recall._has_diverged, recall._patience is not None))
            return await ledger.work(name)

        first = await ctx.step.run("first", work, "first")
        await ctx.step.sleep("nap", "60ms")  # it leaves memory
        pair = await asyncio.gather(*(ctx.step.run("pair", work, one, item=one) for one in "ab"))
        return [first, *pair, await ctx.step.run("last", work, "last")]

    async def scenario() -> list[str]:
        handle = await app.start(flow)
        await handle.result("20s")
        seen.clear()
        await handle.restart(keep=["pair[a]", "last"], acknowledge=True)
        return await handle.result("20s")

    assert run_app(app, scenario) == ["first", "a", "b", "last"]
    assert seen == [("first", 2, False, False), ("b", 2, False, False)]
    assert ledger.ended == {"first": 2, "a": 1, "b": 2, "last": 1}


async def has_saved(handle: RunHandle[Any], count: int) -> bool:
    return len([row for row in await handle.steps() if row.state == "done"]) >= count


# --- changed code -----------------------------------------------------------------------------------


def deploy(url: str, before: Flow, after: Flow) -> tuple[App, Any]:
    """Run *before* until it sleeps, then give an app whose code is *after*, and the run."""
    old = make_app(url)

    @old.workflow(name="flow")
    async def old_flow(ctx: Context) -> Any:
        return await before(ctx)

    async def until_asleep() -> str:
        handle = await old.start(old_flow)
        await eventually_async(lambda: is_in(handle, RunState.SLEEPING))
        return handle.run_id

    run_id = run_app(old, until_asleep)
    new = make_app(url)

    @new.workflow(name="flow")
    async def new_flow(ctx: Context) -> Any:
        return await after(ctx)

    return new, new.run(run_id)


def test_a_step_inserted_by_a_deploy_runs(store_url: str) -> None:
    ledger = Ledger()

    async def before(ctx: Context) -> Any:
        await ctx.step.run("a", ledger.work, "a")
        await ctx.step.run("b", ledger.work, "b")
        await ctx.step.sleep("nap", "200ms")

    async def after(ctx: Context) -> Any:
        results = [await ctx.step.run("a", ledger.work, "a"), await ctx.step.run("new", ledger.work, "new")]
        results.append(await ctx.step.run("b", ledger.work, "b"))
        await ctx.step.sleep("nap", "200ms")
        return results

    app, handle = deploy(store_url, before, after)

    async def scenario() -> Any:
        return await handle.result(), (await handle.row()).warning

    assert run_app(app, scenario) == (["a", "new", "b"], None)
    assert ledger.begun == {"a": 1, "b": 1, "new": 1}


def test_a_step_removed_by_a_deploy_is_a_warning_on_the_run(store_url: str) -> None:
    ledger = Ledger()

    async def before(ctx: Context) -> Any:
        for name in ("a", "b"):
            await ctx.step.run(name, ledger.work, name)
        await ctx.step.run("each", ledger.work, "each", item="x")
        await ctx.step.sleep("nap", "200ms")

    async def after(ctx: Context) -> Any:
        result = await ctx.step.run("b", ledger.work, "b")
        await ctx.step.sleep("nap", "200ms")
        return result

    app, handle = deploy(store_url, before, after)

    async def scenario() -> Any:
        return await handle.result(), (await handle.row()).warning

    assert run_app(app, scenario) == ("b", '{"steps_no_longer_reached":["a","each[x]"]}')
    assert ledger.begun["b"] == 1


def test_a_step_that_became_another_kind_holds_the_run(store_url: str) -> None:
    async def before(ctx: Context) -> Any:
        await ctx.step.run("pay", Ledger().work, "pay")
        await ctx.step.sleep("nap", "100ms")

    async def after(ctx: Context) -> Any:
        try:
            await ctx.step.sleep("pay", "1s")
        except Exception:  # noqa: BLE001 - as users' code does
            return "went on"

    app, handle = deploy(store_url, before, after)
    row = run_app(app, lambda: held(handle))

    assert (
        row.reason == "code mismatch at step 'pay': it was saved as 'run' and the code now asks for 'sleep'"
    )


@pytest.mark.parametrize("is_branch", [False, True], ids=["in the workflow", "in a branch"])
def test_a_saved_result_of_another_type_holds_the_run(store_url: str, is_branch: bool) -> None:
    async def number() -> int:
        return 7

    async def text() -> dict[int, str]:
        return {}

    async def before(ctx: Context) -> Any:
        await ctx.step.run("pay", number)
        await ctx.step.sleep("nap", "100ms")

    async def after(ctx: Context) -> Any:
        step = ctx.step.run("pay", text)
        return (await asyncio.gather(step)) if is_branch else await step

    app, handle = deploy(store_url, before, after)
    row = run_app(app, lambda: held(handle))

    assert "code mismatch at step 'pay'" in row.reason
    assert "saved result does not fit" in row.reason


def test_a_plain_workflow_that_no_longer_fits_is_held(store_url: str) -> None:
    def build(name: str) -> tuple[App, Any]:
        app = make_app(store_url)

        @app.workflow()
        def flow(ctx: SyncContext) -> None:
            if name == "old":
                ctx.step.run("pay", len, "four")
            else:
                try:
                    ctx.step.uuid("pay")
                except Exception:  # noqa: BLE001 - as users' code does
                    return
            ctx.step.sleep("nap", "100ms")

        return app, flow

    app, flow = build("old")

    async def until_asleep() -> str:
        handle = await app.start(flow)
        await eventually_async(lambda: is_in(handle, RunState.SLEEPING))
        return handle.run_id

    run_id = run_app(app, until_asleep)
    app, _ = build("new")
    row = run_app(app, lambda: held(app.run(run_id)))

    assert row.reason == "code mismatch at step 'pay': it was saved as 'run' and the code now asks for 'uuid'"


async def held(handle: RunHandle[Any]) -> Any:
    """Give the run's row once it is held and stays it: nothing loops."""
    await eventually_async(lambda: is_in(handle, RunState.HELD))
    first = await handle.row()
    await asyncio.sleep(0.2)
    row = await handle.row()
    assert (row.state, row.attempt, row.fence, row.problem_at) == (
        RunState.HELD,
        first.attempt,
        first.fence,
        first.problem_at,
    )
    return row


def test_a_step_that_the_code_cut_off_and_now_awaits_holds_the_run(store_url: str) -> None:
    async def before(ctx: Context) -> Any:
        try:
            async with asyncio.timeout(0.02):
                await ctx.step.run("slow", asyncio.sleep, 5)
        except TimeoutError:
            pass
        await ctx.step.sleep("nap", "100ms")

    async def after(ctx: Context) -> Any:
        await ctx.step.run("slow", asyncio.sleep, 5)

    app, handle = deploy(store_url, before, after)
    row = run_app(app, lambda: held(handle))

    assert "the code cut it off while it ran and now does not" in row.reason


def test_a_failed_commit_of_a_run_holds_it_and_only_it(sqlite_url: str) -> None:
    """Text that no store takes cannot come from steps; if it comes anyway, the run must not loop."""
    app = make_app(sqlite_url)

    @app.workflow()
    async def poisoned(ctx: Context) -> None:
        await ctx.step.run("fine", len, "four")
        execution = app.worker.executions[ctx.run_id]
        (row,) = execution.operation().steps.values() or [None]
        assert row is not None
        execution.operation().steps[row.key] = type(row)(
            **{**{name: getattr(row, name) for name in row.__struct_fields__}, "error": "\ud800"}
        )
        try:
            await ctx.step.run("next", len, "four")
        except Exception:  # noqa: BLE001 - as users' code does
            await ctx.step.run("never", len, "four")

    @app.workflow()
    async def neighbour(ctx: Context) -> int:
        return await ctx.step.run("fine", len, "four")

    async def scenario() -> Any:
        bad = await app.start(poisoned)
        good = await app.start(neighbour)
        return await good.result(), await held(bad)

    result, row = run_app(app, scenario)

    assert result == 4
    assert row.reason.startswith("not storable:")


def test_attempts_of_a_run_recall_what_is_saved(store_url: str) -> None:
    app = make_app(store_url)
    ledger = Ledger()

    @app.workflow(retry=SOON)
    async def flow(ctx: Context) -> int:
        await ctx.step.run("once", ledger.work, "once")
        if ctx.attempt < 3:
            raise ValueError("not yet")
        return ctx.attempt

    @app.workflow()
    async def fails(ctx: Context) -> None:
        await ctx.step.run("once", ledger.work, "fails")
        raise ValueError("never")

    async def scenario() -> Any:
        with pytest.raises(RunFailed, match="ValueError: never"):
            await (await app.start(fails)).result()
        return await (await app.start(flow)).result()

    assert run_app(app, scenario) == 3
    assert ledger.begun == {"once": 1, "fails": 1}
