"""A forgotten ``await`` fails the run, or the step, instead of leaving out what it says."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from onceward import Context, RunFailed, RunState, SyncContext
from onceward.authoring.verbs import StepVerbs
from tests.engine.running import SOON, make_app, result_of, run_app

NOT_AWAITED = "onceward.NotAwaited"


def failure_of(app: Any, flow: Any) -> RunFailed:
    with pytest.raises(RunFailed) as failed:
        result_of(app, flow)
    return failed.value


def test_every_verb_of_the_context_is_noted() -> None:
    verbs = [verb for name, verb in vars(StepVerbs).items() if not name.startswith("_")]

    assert len(verbs) > 8
    assert [verb.__name__ for verb in verbs if not hasattr(verb, "__wrapped__")] == []


@pytest.mark.parametrize(
    ("verb", "args"),
    [
        ("run", (int,)),
        ("ensure", (int, int)),
        ("sleep", ("1h",)),
        ("uuid", ()),
        ("now", ()),
        ("random", ()),
        ("emit", ("order.paid",)),
        ("start", (None,)),
        ("call", (None,)),
    ],
)
def test_a_run_whose_code_forgot_to_await_a_verb_fails_by_its_name(
    sqlite_url: str, verb: str, args: tuple[Any, ...]
) -> None:
    app = make_app(sqlite_url)

    @app.workflow(retry=SOON)
    async def flow(ctx: Context) -> str:
        await ctx.step.run("first", int)
        getattr(ctx.step, verb)("the one", *args)
        return "done"

    failure = failure_of(app, flow)

    assert failure.error_type == NOT_AWAITED
    assert f"ctx.step.{verb}('the one', …) was called in workflow 'flow' and never awaited" in failure.message
    assert f"Write `await ctx.step.{verb}('the one', …)`" in failure.message


def test_a_retry_after_the_mend_does_what_was_left_out(store_url: str) -> None:
    app = make_app(store_url)
    bodies: list[str] = []
    is_mended = False

    @app.step
    async def ship(order: str) -> str:
        bodies.append(order)
        return order

    @app.workflow
    async def flow(ctx: Context) -> None:
        await ctx.step.run("first", lambda: bodies.append("first"))
        call = ship("A-1")
        if is_mended:
            await call

    async def scenario() -> None:
        nonlocal is_mended
        handle = await app.start(flow)
        with pytest.raises(RunFailed, match=r"ship\(…\) was called in workflow 'flow' and never awaited"):
            await handle.result()
        assert [row.name for row in await handle.steps()] == ["first"]
        is_mended = True
        await handle.retry()
        await handle.result()

    run_app(app, scenario)

    assert bodies == ["first", "A-1"]


def test_several_are_named_each_and_long_lists_are_cut(sqlite_url: str) -> None:
    app = make_app(sqlite_url)

    @app.step
    async def pay(n: int) -> int:
        return n

    @app.workflow
    async def flow(ctx: Context) -> None:
        for n in range(200):
            await ctx.step.run("awaited", int, item=n)
        for n in range(9):
            pay.item(n)(n)  # type: ignore[unused-coroutine]

    message = failure_of(app, flow).message

    assert message.startswith("pay.item('0')(…), pay.item('1')(…), pay.item('2')(…)")
    assert "nothing of what they say was done" in message
    assert "'4'" in message
    assert "'5'" not in message


def test_a_task_that_nobody_awaits_and_that_never_began_counts(sqlite_url: str) -> None:
    app = make_app(sqlite_url)
    tasks: list[asyncio.Task[Any]] = []

    @app.workflow
    async def flow(ctx: Context) -> None:
        tasks.append(asyncio.create_task(ctx.step.run("audit", int)))

    assert "ctx.step.run('audit', …)" in failure_of(app, flow).message


def test_what_was_cancelled_before_it_began_is_not_forgotten(store_url: str) -> None:
    app = make_app(store_url)

    @app.workflow
    async def flow(ctx: Context) -> str:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(ctx.step.run("a", int))
                group.create_task(ctx.step.sleep("b", "1h"))
                raise ValueError("changed its mind")
        except* ValueError:
            pass
        task = asyncio.create_task(ctx.step.run("c", int))
        task.cancel()
        return "done"

    assert result_of(app, flow) == "done"


def test_a_branch_that_lost_a_race_is_not_forgotten(store_url: str) -> None:
    app = make_app(store_url)

    @app.workflow
    async def flow(ctx: Context) -> int:
        race = {
            asyncio.create_task(ctx.step.run("quick", int, 7)),
            asyncio.create_task(ctx.step.run("slow", asyncio.sleep, 20)),
        }
        done, _ = await asyncio.wait(race, return_when=asyncio.FIRST_COMPLETED)
        return int(done.pop().result() or 0)

    assert result_of(app, flow) == 7


def test_a_failure_of_the_code_is_not_hidden_by_what_it_left_out(sqlite_url: str) -> None:
    app = make_app(sqlite_url)

    @app.workflow
    async def flow(ctx: Context) -> None:
        call = ctx.step.run("never", int)
        try:
            raise ValueError("the reason")
        finally:
            call.close()

    assert failure_of(app, flow).error_type == "ValueError"


def test_a_body_that_forgot_to_await_an_emit_fails_its_step_at_once(store_url: str) -> None:
    app = make_app(store_url)
    bodies: list[str] = []

    @app.workflow
    async def flow(ctx: Context) -> str:
        async def body() -> None:
            bodies.append("async")
            await app.emit("told", id="1")
            app.emit("left.out")  # type: ignore[unused-coroutine]

        def plain_body() -> None:
            bodies.append("plain")
            app.start(flow)  # type: ignore[unused-coroutine]

        caught = []
        for name, one in (("async", body), ("plain", plain_body)):
            try:
                await ctx.step.run(name, one)
            except Exception as error:  # noqa: BLE001 - as users' code does
                caught.append(str(error))
        return "\n".join(caught)

    async def scenario() -> str:
        text = await (await app.start(flow)).result()
        assert await app.events(source="emit/told") == []
        return text

    told = run_app(app, scenario)

    assert "app.emit('left.out', …) was called in the body of step 'async' and never awaited" in told
    assert "app.start(flow, …) was called in the body of step 'plain' and never awaited" in told
    assert bodies == ["async", "plain"]


def test_a_plain_workflow_that_calls_an_async_verb_of_the_app_fails(sqlite_url: str) -> None:
    app = make_app(sqlite_url)

    @app.workflow
    def flow(ctx: SyncContext) -> str:
        app.emit("left.out")  # type: ignore[unused-coroutine]
        return "done"

    assert "app.emit('left.out', …)" in failure_of(app, flow).message


@pytest.mark.filterwarnings("ignore:coroutine 'StepVerbs.run' was never awaited")
def test_it_is_found_after_a_sleep_too(store_url: str) -> None:
    app = make_app(store_url)

    @app.workflow
    async def flow(ctx: Context) -> None:
        ctx.step.run("left out", int)  # type: ignore[unused-coroutine]
        await ctx.step.sleep("nap", "100ms")

    async def scenario() -> None:
        handle = await app.start(flow)
        with pytest.raises(RunFailed, match=r"ctx.step.run\('left out', …\)"):
            await handle.result()
        assert await handle.state() is RunState.FAILED

    run_app(app, scenario)
