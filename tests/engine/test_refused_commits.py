"""A commit that the store refuses for good, of which nobody hears at once: the run goes no further."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from onceward import Context, RunHandle
from onceward.core import errors
from onceward.core.model import RunRow
from onceward.core.ports import Batch
from onceward.core.states import RunState
from tests.engine.running import run_app
from tests.helpers import eventually_async
from tests.perf.counting import CountedApp


def steps_in(batch: Batch) -> set[str]:
    return {step.name for advance in batch.advances for step in advance.steps}


async def held(handle: RunHandle[Any]) -> RunRow:
    async def is_held() -> bool:
        return (await handle.state()) is RunState.HELD

    await eventually_async(is_held)
    return await handle.row()


def test_a_run_does_not_end_whose_last_checkpoint_was_refused_before(store_url: str) -> None:
    """The code does something of its own between its last step and its end."""
    app = CountedApp(store_url)

    @app.workflow
    async def pays(ctx: Context) -> str:
        await ctx.step.run("charge", len, "four")
        await asyncio.wait([app.worker.executions[ctx.run_id].operation().future])  # the refusal is heard of
        return "paid"

    def refuse(batch: Batch) -> None:
        if "charge" in steps_in(batch):
            raise errors.StoreError("The database refuses this row.")

    async def scenario() -> RunRow:
        app.counts.refuses = refuse
        return await held(await app.start(pays))

    assert run_app(app, scenario).reason == "not storable: The database refuses this row."


def test_no_step_begins_after_one_of_a_branch_whose_checkpoint_was_refused(store_url: str) -> None:
    """Of the operations of one run, one that is durable does not hide a later one that is not (RULINGS 5)."""
    app = CountedApp(store_url)
    second_is_saved, is_refused = threading.Event(), threading.Event()
    gates = {name: asyncio.Event() for name in ("first", "second", "refused", "last")}
    begun: list[str] = []
    bodies: list[str] = []

    @app.workflow
    async def branches(ctx: Context) -> None:
        async def body(name: str) -> None:
            begun.append(name)
            if len(begun) == len(gates):  # none of them waits for the commit of another
                gates["first"].set()
            await gates[name].wait()

        async def branch(name: str) -> None:
            await ctx.step.run(name, body, name)
            if name == "second":
                second_is_saved.set()

        await asyncio.gather(*(branch(name) for name in gates))
        await ctx.step.run("close", bodies.append, "close")

    def refuse(batch: Batch) -> None:
        if "first" in steps_in(batch):
            app.worker.loop.call_soon_threadsafe(gates["second"].set)
            if threading.current_thread() is not threading.main_thread():
                assert second_is_saved.wait(10)
        if "refused" in steps_in(batch):
            is_refused.set()
            raise errors.StoreError("The database refuses this row.")

    async def scenario() -> None:
        app.counts.refuses = refuse
        run = await app.start(branches)

        async def both_are_saved() -> bool:
            return len(await run.steps()) == 2

        await eventually_async(both_are_saved)
        gates["refused"].set()
        await asyncio.to_thread(is_refused.wait, 10)
        gates["last"].set()
        assert (await held(run)).reason == "not storable: The database refuses this row."
        assert bodies == []

    run_app(app, scenario)


@pytest.mark.parametrize("steps", [1, 2])
def test_an_answered_run_goes_on_when_the_store_takes_it(store_url: str, steps: int) -> None:
    """What was refused is gone, and what was stored beside it stays."""
    app = CountedApp(store_url)
    bodies: list[int] = []

    @app.workflow
    async def counts(ctx: Context) -> int:
        for number in range(steps):
            await ctx.step.run(f"step {number}", bodies.append, number)
        return len(bodies)

    def refuse(batch: Batch) -> None:
        if f"step {steps - 1}" in steps_in(batch):
            app.counts.refuses = lambda _: None
            raise errors.StoreError("The database refuses this row.")

    async def scenario() -> int:
        app.counts.refuses = refuse
        run = await app.start(counts)
        await held(run)
        await run.answer("retry")
        return await run.result()

    assert run_app(app, scenario) == steps + 1
    assert bodies == [*range(steps), steps - 1]
