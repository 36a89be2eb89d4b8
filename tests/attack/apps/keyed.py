"""Workflows with keys: one run of each order, or one at a time, or the newest."""

import asyncio

from ledger import note

from onceward import App, Context, Event
from onceward import event as e
from onceward.sources import Stripe

app = App()
stripe = app.source(Stripe(secrets=["whsec_attack_attack_attack"]))
ORDER = e.payload["data"]["object"]["order"]


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
        await ctx.step.sleep("wait", 0.5)
    finally:
        await ctx.step.run("clean up", act, f"clean-{ctx.run_id}", order)
    return order
