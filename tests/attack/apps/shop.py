"""A shop: what a delivery starts, and the usual shapes of workflows."""

import asyncio
import threading
from datetime import timedelta
from pathlib import Path

from ledger import note

from onceward import AUTO, App, Context, Event, IdempotencyKey, Permanent, Retry, RunCancelled, SyncContext
from onceward.sources import Stripe

app = App()
stripe = app.source(Stripe(secrets=["whsec_attack_attack_attack"]))


async def act(name: str, order: str, seconds: float = 0.0) -> str:
    note("start", name, order)
    await asyncio.sleep(seconds)
    note("end", name, order)
    return f"{name} {order}"


def act_plain(name: str, order: str, seconds: float = 0.0) -> str:
    note("start", name, order)
    threading.Event().wait(seconds)
    note("end", name, order)
    return f"{name} {order}"


@app.step
async def charge(order: str, *, idempotency_key: IdempotencyKey = AUTO) -> str:
    note("charge", order, idempotency_key)
    return f"charged {order}"


@app.workflow(on=stripe["charge.succeeded"])
async def paid(ctx: Context, event: Event) -> str:
    order = event.payload["data"]["object"]["order"]
    await ctx.step.run("book", act, "book", order)
    await charge(order)
    return await ctx.step.run("ship", act, "ship", order)


@app.workflow
async def three(ctx: Context, order: str, seconds: float = 0.0) -> str:
    for name in ("a", "b", "c"):
        last = await ctx.step.run(name, act, name, order, seconds)
    return last


@app.workflow
async def gated(ctx: Context, order: str, gate: str) -> str:
    """Act until there is a file of that name."""

    async def body() -> str:
        note("start", order)
        while not Path(gate).exists():  # noqa: ASYNC110, ASYNC240 (another process makes it)
            await asyncio.sleep(0.02)
        note("end", order)
        return order

    return await ctx.step.run("body", body)


@app.workflow
def three_plain(ctx: SyncContext, order: str, seconds: float = 0.0) -> str:
    for name in ("a", "b", "c"):
        last = ctx.step.run(name, act_plain, name, order, seconds)
    return last


@app.workflow
async def sleeper(ctx: Context, order: str, length: str) -> float:
    started = await ctx.step.now("started")
    await ctx.step.run("before", act, "before", order)
    await ctx.step.sleep("nap", length)
    await ctx.step.run("after", act, "after", order)
    ended = await ctx.step.now("ended")
    return (ended - started) / timedelta(seconds=1)


@app.workflow
async def flaky(ctx: Context, order: str, until: int, base: str = "50ms") -> int:
    """Fail until the try of that number."""

    async def body() -> int:
        note("try", order, ctx.try_number)
        if ctx.try_number < until:
            raise OSError(f"try {ctx.try_number}")
        return ctx.try_number

    await ctx.step.run("before", act, "before", order)
    return await ctx.step.run("flaky", body, retry=Retry(max_tries=10, base=base, cap=base))


@app.workflow
async def breaks(ctx: Context, order: str) -> str:
    """Fail for good at the first attempt."""

    async def body() -> str:
        note("broken", order, ctx.generation, ctx.attempt)
        await asyncio.sleep(0.05)
        if ctx.attempt == 1:
            raise Permanent("broken")
        return "mended"

    await ctx.step.run("before", act, "before", order)
    return await ctx.step.run("breaks", body)


@app.workflow(retry=Retry(max_tries=5, base="30s", cap="30s"))
async def backs_off(ctx: Context, order: str) -> int:
    """Fail between steps at the first attempt, and wait for long before the next."""
    await ctx.step.run("before", act, "before", order)
    if ctx.attempt == 1:
        raise OSError("between steps")
    await ctx.step.run("after", act, "after", order)
    return ctx.attempt


@app.workflow
async def cleans(ctx: Context, order: str, seconds: float = 0.1) -> str:
    try:
        for i in range(100):
            await ctx.step.run("loop", act, f"loop{i}", order, seconds, item=i)
    except RunCancelled:
        await ctx.step.run("clean", act, "clean", order)
        raise
    return "finished"


@app.workflow
async def poison(ctx: Context, order: str) -> None:
    async def body() -> None:
        import os
        import signal

        note("poison", order)
        os.kill(os.getpid(), signal.SIGKILL)

    await ctx.step.run("before", act, "before", order)
    await ctx.step.run("kill", body)


@app.workflow
async def child(ctx: Context, order: str, seconds: float = 0.0) -> str:
    return await ctx.step.run("work", act, "child", order, seconds)


@app.workflow
async def parent(ctx: Context, order: str, seconds: float = 0.0) -> list[str]:
    found = [await ctx.step.call(f"child {i}", child, f"{order}.{i}", seconds) for i in range(3)]
    await ctx.step.run("after", act, "after", order)
    return found


@app.workflow(on="shop.told")
async def told(ctx: Context, event: Event) -> str:
    return await ctx.step.run("hear", act, "hear", event.payload["order"])


@app.workflow
async def tells(ctx: Context, order: str) -> None:
    async def inside() -> str:
        note("start", "inside", order)
        await app.emit("shop.told", {"order": f"{order}.inside"})
        run = await app.start(child, f"{order}.started")
        return run.run_id

    await ctx.step.emit("tell", "shop.told", {"order": f"{order}.step"})
    await ctx.step.run("inside", inside)
    await ctx.step.start("start", child, f"{order}.detached")
