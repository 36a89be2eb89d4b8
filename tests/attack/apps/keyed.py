"""Workflows with keys: one run of each order, or one at a time, or the newest."""

import asyncio
import os
import time

from ledger import note

from onceward import App, Context, Event, Retry
from onceward import event as e
from onceward.sources import Stripe

app = App()
stripe = app.source(Stripe(secrets=["whsec_attack_attack_attack"]))
ORDER = e.payload["data"]["object"]["order"]
SOON = Retry(base="10ms", cap="20ms", max_tries=2)


async def act(name: str, order: str, seconds: float = 0.0) -> None:
    note("start", name, order)
    await asyncio.sleep(seconds)
    note("end", name, order)


@app.workflow(on=stripe["order.placed"], key=ORDER)
async def once(ctx: Context, event: Event) -> str:
    order = str(event.payload["data"]["object"]["order"])
    await ctx.step.run("ship", act, "ship", order)
    return order


@app.workflow(on=stripe["stock.changed"], key=ORDER, once="active", clash="queue")
async def in_turn(ctx: Context, event: Event) -> str:
    order = str(event.payload["data"]["object"]["order"])
    await ctx.step.run("count", act, f"count-{ctx.run_id}", order, 0.02)
    return order


@app.workflow(on=stripe["cart.changed"], key=ORDER, once="active", clash="replace")
async def newest(ctx: Context, event: Event) -> str:
    order = str(event.payload["data"]["object"]["order"])
    try:
        await ctx.step.sleep("wait", 3)  # all of them are here before the first could end
    finally:
        await ctx.step.run("clean up", act, f"clean-{ctx.run_id}", order)
    return order


class Refused(Exception):
    """What a body of `in_turn_anyhow` raises."""


async def work(run_id: str, order: str, seconds: float) -> None:
    note("start", run_id, order, os.getpid(), time.monotonic_ns())
    try:
        try:
            await asyncio.sleep(seconds)
        finally:
            await asyncio.sleep(0.01)  # may be cut off itself, where the loop was busy
    finally:
        note("end", run_id, order, os.getpid(), time.monotonic_ns())


async def refuse() -> None:
    await asyncio.sleep(0.01)
    raise Refused


@app.workflow(on=stripe["stock.moved"], key=ORDER, once="active", clash="queue", retry=SOON)
async def in_turn_anyhow(ctx: Context, event: Event) -> str:
    """Every third run fails for good in one branch while the other still works."""
    order = str(event.payload["data"]["object"]["order"])
    both = [ctx.step.run("work", work, ctx.run_id, order, 0.03)]
    if int(event.id.rpartition("_")[2]) % 3 == 0:
        both.append(ctx.step.run("refuse", refuse, retry=Retry(max_tries=1)))
    await asyncio.gather(*both)
    return order
