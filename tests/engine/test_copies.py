"""What a restart or a replay kept: a copy tells what its maker did, and is the run's own once it is reopened."""

from __future__ import annotations

from typing import Any

from onceward import (
    AUTO,
    Context,
    IdempotencyKey,
    KeyTaken,
    Permanent,
    RunHandle,
    RunState,
    event,
)
from tests.engine.running import make_app, run_app
from tests.helpers import eventually_async


async def stands(run: RunHandle[Any], state: RunState, attempt: int = 1) -> None:
    """Wait until the run is there in that attempt."""

    async def is_there() -> bool:
        row = await run.row()
        return row.state is state and row.attempt == attempt

    await eventually_async(is_there, what=f"attempt {attempt} of {run.run_id} is {state}")


def test_the_copy_of_a_failure_that_is_reopened_is_a_step_of_this_generation(store_url: str) -> None:
    """Its key is planned as it is handed out, and what it did is undone."""
    app = make_app(store_url)
    keys: list[str] = []
    undone: list[str] = []
    works: list[bool] = []

    @app.step(key_memory="1h")
    async def charge(*, key: IdempotencyKey = AUTO) -> str:
        keys.append(key)
        if not works:
            raise Permanent("no money")
        return key

    @charge.undo
    async def refund(charged: str) -> None:
        undone.append(charged)

    async def ship() -> None:
        raise Permanent("no ship")

    @app.workflow(undo="on_failure")
    async def sell(ctx: Context) -> None:
        await charge()
        await ctx.step.sleep("so that another go undoes", "40ms")
        await ctx.step.run("ship", ship)

    async def scenario() -> None:
        run = await app.start(sell)
        await stands(run, RunState.FAILED)
        (first,) = keys
        await run.restart(keep="charge", acknowledge=True)
        await stands(run, RunState.FAILED)
        assert keys == [first]
        (before,) = (await run.plan("retry")).steps
        assert (before.key, before.keeps_key) == (first, False)

        works.append(True)
        await run.retry()

        await stands(run, RunState.FAILED, attempt=2)
        assert keys[1:] == undone != [first]
        assert (await run.plan("restart")).steps[0].key == keys[1]

    run_app(app, scenario)


def test_the_copy_of_a_failed_call_that_is_reopened_calls_a_run_of_its_own(store_url: str) -> None:
    """The run that the original called stays as it is, and nobody waits for its end."""
    app = make_app(store_url)
    works: list[bool] = []

    async def pick() -> str:
        if not works:
            raise Permanent("no hands")
        return "picked"

    @app.workflow
    async def pack(ctx: Context) -> str:
        return await ctx.step.run("pick", pick)

    @app.workflow
    async def ship(ctx: Context) -> str:
        return await ctx.step.call("pack", pack)

    async def scenario() -> None:
        run = await app.start(ship)
        await stands(run, RunState.FAILED)
        again = await run.replay(keep="pack")
        await stands(again, RunState.FAILED)
        plan = await again.plan("retry")
        assert (plan.outside_again, plan.children) == (["pack"], [])
        assert plan.warnings == ["'pack' calls its run again."]

        works.append(True)
        await again.retry()

        assert await again.result() == "picked"
        assert [(row.state, len(await app.run(row.run_id).attempts())) for row in await run.children()] == [
            (RunState.FAILED, 1)
        ]

    run_app(app, scenario)


def test_a_kept_emit_or_start_tells_what_it_told(store_url: str) -> None:
    """The event that there is, the run that holds the key, and that it was refused."""
    app = make_app(store_url)

    @app.workflow(key=event.payload["order"])
    async def returned(ctx: Context, order: str) -> None: ...

    @app.workflow(key=event.payload["order"], clash="reject")
    async def rejected(ctx: Context, order: str) -> None: ...

    @app.workflow
    async def tell(ctx: Context) -> list[str]:
        told = [await ctx.step.start("return", returned, "o-1")]
        try:
            told.append(await ctx.step.start("reject", rejected, "o-1"))
        except KeyTaken as taken:
            told.append(f"taken by {taken.holder_run_id}")
        return [*told, *await ctx.step.emit("emit", "told", None)]

    async def scenario() -> None:
        holders = [(await app.start(one, "o-1")).run_id for one in (returned, rejected)]
        run = await app.start(tell)
        first = await run.result()
        assert first[:2] == [holders[0], f"taken by {holders[1]}"]

        again = await run.replay(drop=[])
        await run.restart(keep=["return", "reject", "emit"])

        assert await again.result() == await run.result() == first

    run_app(app, scenario)
