"""A works with every kind of step, whose bodies tell the ledger when they begin and how they end.

A line of the ledger is: what happened, the run, generation, attempt, stage, step, try, idempotency key,
process, monotonic nanoseconds. Stages are numbered as the code goes: where a body of a later one begins,
everything of the earlier ones is saved (RULINGS 5). A line ``made`` has a run, and who says to have made it.
"""

import asyncio
import mmap
import os
import threading
import time
from pathlib import Path
from typing import Any

from ledger import note

from onceward import App, Context, Event, Permanent, Retry, RunCancelled, SyncContext
from onceward import event as e
from onceward.sources import Stripe

SOON = Retry(max_tries=4, base="20ms", cap="200ms")
CLEAN_UP = 90  # the stage of what a cancelled run still does


def set_the_clock_by(path: str) -> None:
    """Let this process's wall clock be off by the nanoseconds in a file, which may change at any time."""
    with Path(path).open("rb") as file:
        shift = memoryview(mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ)).cast("q")
    time_ns = time.time_ns
    time.time_ns = lambda: time_ns() + shift[0]
    time.time = lambda: time.time_ns() / 1e9


if "ONCEWARD_TEST_CLOCK" in os.environ:
    set_the_clock_by(os.environ["ONCEWARD_TEST_CLOCK"])

app = App()
stripe = app.source(Stripe(secrets=[os.environ["ONCEWARD_TEST_SECRET"]]))
OBJECT = e.payload["data"]["object"]


class Trouble(Exception):
    """What a step fails with that succeeds at a later try."""


def tell(what: str, ctx: Context | SyncContext, stage: int, step: str) -> None:
    of_run = (ctx.run_id, ctx.generation, ctx.attempt)
    of_step = (stage, step, ctx.try_number, ctx.idempotency_key)
    note(what, *of_run, *of_step, os.getpid(), time.monotonic_ns())


async def act(ctx: Context, stage: int, step: str, seconds: float = 0.0, fails: int = 0) -> str:
    tell("begin", ctx, stage, step)
    try:
        await asyncio.sleep(seconds)
    except BaseException:
        tell("cut", ctx, stage, step)
        raise
    if ctx.try_number <= fails:
        tell("fail", ctx, stage, step)
        raise Trouble(step)
    tell("end", ctx, stage, step)
    return step


def act_plain(ctx: Context | SyncContext, stage: int, step: str, seconds: float = 0.0, fails: int = 0) -> str:
    tell("begin", ctx, stage, step)
    threading.Event().wait(seconds)
    if ctx.try_number <= fails:
        tell("fail", ctx, stage, step)
        raise Trouble(step)
    tell("end", ctx, stage, step)
    return step


def about(event: Event) -> dict[str, Any]:
    """Give what a delivery is about: ``order``, and how its run is to go."""
    return dict(event.payload["data"]["object"])


@app.workflow(on=stripe["charge.succeeded"])
async def paid(ctx: Context, event: Event) -> str:
    """Three steps, of which the second may fail some times; its key is that of the event."""
    plan = about(event)
    await ctx.step.run("book", act, ctx, 1, "book", plan["seconds"])
    await ctx.step.run("charge", act, ctx, 2, "charge", 0, plan["fails"], retry=SOON, key_scope="business")
    return await ctx.step.run("ship", act_plain, ctx, 3, "ship", plan["seconds"])


@app.workflow(on=stripe["charge.*"])
def audited(ctx: SyncContext, event: Event) -> str:
    """A second run of each charge, without async."""
    ctx.step.run("look", act_plain, ctx, 1, "look", 0.0, about(event)["fails"], retry=SOON)
    return ctx.step.run("file", act_plain, ctx, 2, "file")


@app.workflow(on=stripe["charge.failed"])
async def breaks(ctx: Context, event: Event) -> str:
    """Fails for good until somebody has mended it, and retries it."""
    mended = Path(f"{os.environ['ONCEWARD_TEST_LEDGER']}.{about(event)['order']}.mended")

    async def body() -> str:
        tell("begin", ctx, 2, "break")
        if not mended.exists():  # noqa: ASYNC240
            tell("fail", ctx, 2, "break")
            raise Permanent("not mended yet")
        tell("end", ctx, 2, "break")
        return "break"

    await ctx.step.run("before", act, ctx, 1, "before")
    return await ctx.step.run("break", body)


@app.workflow(on=stripe["payout.paid"])
async def naps(ctx: Context, event: Event) -> str:
    await ctx.step.run("before", act, ctx, 1, "before")
    await ctx.step.sleep("nap", about(event)["nap"])
    await ctx.step.now("woken")
    return await ctx.step.run("after", act, ctx, 2, "after", 0, about(event)["fails"], retry=SOON)


@app.workflow
async def piece(ctx: Context, made_by: str, seconds: float) -> str:
    """What other runs call and start: it tells who made it."""

    async def body() -> str:
        note("made", ctx.run_id, made_by)
        return await act(ctx, 1, "piece", seconds)

    return await ctx.step.run("piece", body)


@app.workflow(on="works.told")
async def told(ctx: Context, event: Event) -> str:
    async def body() -> str:
        note("made", ctx.run_id, event.payload["made_by"])
        return await act(ctx, 1, "hear")

    return await ctx.step.run("hear", body)


@app.workflow(on=stripe["invoice.paid"])
async def family(ctx: Context, event: Event) -> str:
    """Calls, starts and emits, beside other steps, between them and inside of one."""
    me, seconds = f"{ctx.run_id}/{ctx.generation}", about(event)["seconds"]

    async def inside() -> str:
        tell("begin", ctx, 3, "inside")
        await app.emit("works.told", {"made_by": f"{me}/emit inside"})
        await app.start(piece, f"{me}/start inside", 0.0)
        tell("end", ctx, 3, "inside")
        return "inside"

    await ctx.step.run("begin", act, ctx, 1, "begin")
    await asyncio.gather(
        ctx.step.call("left", piece, f"{me}/left", seconds),
        ctx.step.call("right", piece, f"{me}/right", 0.0),
        ctx.step.run("beside", act, ctx, 2, "beside", seconds),
        ctx.step.run("plain", act_plain, ctx, 2, "plain", seconds),
    )
    await ctx.step.emit("tell", "works.told", {"made_by": f"{me}/emit"})
    await ctx.step.start("detached", piece, f"{me}/start", 0.0)
    await ctx.step.run("inside", inside)
    return await ctx.step.run("over", act, ctx, 4, "over")


@app.workflow(on=stripe["order.placed"], key=OBJECT["order"])
async def order(ctx: Context, event: Event) -> str:
    """One run of each order, which waits for a word about it."""
    await ctx.step.run("before", act, ctx, 1, "before")
    await ctx.step.wait_for("go", "works.go", subject=about(event)["order"])
    return await ctx.step.run("after", act, ctx, 2, "after")


@app.workflow(on=stripe["stock.changed"], key=OBJECT["order"], once="active", clash="queue")
async def in_turn(ctx: Context, event: Event) -> str:
    """One at a time for each article."""
    return await ctx.step.run("count", act, ctx, 1, "count", about(event)["seconds"])


@app.workflow(on=stripe["cart.changed"], key=OBJECT["order"], once="active", clash="replace")
async def newest(ctx: Context, event: Event) -> str:
    """The newest of each cart; those before it clean up."""
    await ctx.step.run("note", act, ctx, 1, "note")
    try:
        await ctx.step.sleep("a while", about(event)["nap"])
    except RunCancelled:
        await ctx.step.run("clean", act, ctx, CLEAN_UP, "clean")
        raise
    return await ctx.step.run("remind", act, ctx, 2, "remind")


@app.workflow
async def slow(ctx: Context, made_by: str, seconds: float) -> str:
    """What is cancelled in the middle: a loop of steps, and a last one that cleans up."""
    try:
        for stage in range(1, 9):
            await ctx.step.run("loop", act, ctx, stage, f"loop{stage}", seconds, item=stage)
    except RunCancelled:
        await ctx.step.run("clean", act, ctx, CLEAN_UP, "clean")
        raise
    return made_by


if os.environ.get("ONCEWARD_STORE", "").startswith("postgres"):
    import psycopg

    app.transactions(lambda: psycopg.connect(os.environ["ONCEWARD_STORE"], prepare_threshold=None))

    def write(connection: psycopg.Connection, ctx: Context) -> str:
        tell("begin", ctx, 2, "write")
        connection.execute("insert into works_row values (%s, %s)", (ctx.run_id, ctx.generation))
        tell("end", ctx, 2, "write")
        return "write"

    @app.workflow(on=stripe["transfer.created"])
    async def transacts(ctx: Context, event: Event) -> str:
        """Commits a row of the app's own together with a checkpoint."""
        await ctx.step.run("before", act, ctx, 1, "before")
        await ctx.step.transaction("write", write, ctx)
        return await ctx.step.run("after", act, ctx, 3, "after")
