"""A process that an operator's verb took a run from, and that nobody tells, begins nothing more of it."""

from __future__ import annotations

import asyncio
import threading

import msgspec
import pytest

from onceward import Context, SyncContext
from tests.engine.running import make_app, run_app

DEAF = {"poll": "10s", "notify": "off"}


async def cancel_from_elsewhere(url: str, run_id: str) -> None:
    """Cancel a run as another process does."""
    async with make_app(url, **DEAF) as office:
        await office.run(run_id).cancel()


@pytest.mark.parametrize("own_wait_s", [0.0, 0.1])
def test_no_body_begins_after_the_reply_to_a_cancel(store_url: str, own_wait_s: float) -> None:
    """Its code waits for something of its own meanwhile, with nothing to commit (I17)."""
    app = make_app(store_url, **DEAF)
    began, goes_on = asyncio.Event(), asyncio.Event()
    bodies: list[str] = []

    @app.workflow()
    async def slow(ctx: Context) -> None:
        began.set()
        await goes_on.wait()
        await asyncio.sleep(own_wait_s)
        await ctx.step.run("late", bodies.append, "late")

    async def scenario() -> None:
        run = await app.start(slow)
        await began.wait()
        await cancel_from_elsewhere(store_url, run.run_id)
        goes_on.set()
        await asyncio.sleep(0.3)
        assert bodies == []

    run_app(app, scenario)


def test_no_plain_body_begins_that_waited_for_a_thread(store_url: str) -> None:
    app = make_app(store_url, threads=1, **DEAF)
    began, goes_on = asyncio.Event(), threading.Event()
    bodies: list[str] = []

    @app.workflow()
    async def hog(ctx: Context) -> None:
        await ctx.step.run("hog", goes_on.wait)

    @app.workflow()
    async def queued(ctx: Context) -> None:
        began.set()
        await ctx.step.run("late", bodies.append, "late")

    async def scenario() -> None:
        await app.start(hog)
        await asyncio.sleep(0.1)
        run = await app.start(queued)
        await began.wait()
        await cancel_from_elsewhere(store_url, run.run_id)
        goes_on.set()
        await asyncio.sleep(0.3)
        assert bodies == []

    run_app(app, scenario)


def test_a_body_that_waited_long_begins_when_the_run_is_still_ours(store_url: str) -> None:
    app = make_app(store_url, threads=1, **DEAF)
    goes_on = threading.Event()

    @app.workflow()
    async def hog(ctx: Context) -> None:
        await ctx.step.run("hog", goes_on.wait)

    @app.workflow()
    def plain(ctx: SyncContext) -> int:
        return ctx.step.run("late", lambda: 7)

    async def scenario() -> int:
        await app.start(hog)
        await asyncio.sleep(0.1)
        run = await app.start(plain)
        await asyncio.sleep(0.2)
        goes_on.set()
        return await run.result()

    assert run_app(app, scenario) == 7


def test_a_claim_that_is_heard_of_late_takes_nothing_from_a_newer_one(store_url: str) -> None:
    """Claims are read one after the other, and the histories of the older one may take longer."""
    app = make_app(store_url, **DEAF)
    goes_on = asyncio.Event()

    @app.workflow()
    async def slow(ctx: Context) -> str:
        await goes_on.wait()
        return await ctx.step.run("done", str, "done")

    async def scenario() -> str:
        run = await app.start(slow)
        worker = app.worker
        row = await run.row()
        event = await worker.read(worker.store.event, row.source, row.event_id)
        older = msgspec.structs.replace(row, fence=row.fence - 1)
        worker._begin(older, event, [], worker.process_id, worker.elapsed_s())
        assert worker.executions[run.run_id].stopping is None
        goes_on.set()
        return await run.result()

    assert run_app(app, scenario) == "done"
