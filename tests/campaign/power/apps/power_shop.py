"""A shop whose bodies note what they rely on, before they rely on it, and what they draw is like nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sqlite3
import uuid
from typing import Any, cast

from onceward import App, Context, Event, Permanent, Retry, RunCancelled, WaitTimedOut
from onceward import event as e
from onceward.sources import Stripe

app = App()
stripe = app.source(Stripe(secrets=["whsec_attack_attack_attack"]))
LEDGER = os.environ["ONCEWARD_TEST_LEDGER"]
ORDER = e.payload["data"]["object"]["order"]


def note(ctx: Context, what: str, **more: object) -> None:
    line = json.dumps({"what": what, "run": ctx.run_id, "generation": ctx.generation, **more})
    descriptor = os.open(LEDGER, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, line.encode() + b"\n")
    finally:
        os.close(descriptor)


async def act(
    ctx: Context,
    name: str,
    relied: dict[str, Any],
    seconds: float = 0.0,
    item: str = "",
    filler: str = "",
    **options: Any,
) -> str:
    """Do a step that relies on what earlier ones gave; its result is drawn anew each time that it runs."""

    async def body() -> str:
        note(ctx, "began", step=name, item=item, relied=relied, asks=options.get("unknown") == "ask")
        if seconds:
            await asyncio.sleep(seconds)
        return uuid.uuid4().hex + filler

    return cast("str", await ctx.step.run(name, body, item=item, **options))


@app.workflow(on=stripe["paid"])
async def paid(ctx: Context, event: Event) -> dict[str, str]:
    made: dict[str, str] = {}
    for name in ("book", "charge", "ship"):
        made[name] = await act(ctx, name, dict(made))
    return made


@app.workflow(on=stripe["nap"])
async def naps(ctx: Context, event: Event) -> str:
    before = await act(ctx, "before", {})
    await ctx.step.sleep("nap", 0.15)
    return await act(ctx, "after", {"before": before})


@app.workflow(on=stripe["ever"], key=ORDER)
async def ever(ctx: Context, event: Event) -> str:
    return await act(ctx, "only", {})


@app.workflow(on=stripe["turn"], key=ORDER, once="active", clash="queue")
async def turns(ctx: Context, event: Event) -> str:
    return await act(ctx, "only", {}, 0.01)


@app.workflow(on=stripe["loop"])
async def loops(ctx: Context, event: Event) -> int:
    last: dict[str, str] = {}
    try:
        for i in range(30):
            last = {"part": await act(ctx, "part", {}, 0.02, f"{i}")}
    except RunCancelled:
        await act(ctx, "clean", {})
        raise
    return len(last)


@app.workflow(on=stripe["ask"])
async def asks(ctx: Context, event: Event) -> str:
    before = await act(ctx, "before", {})
    return await act(ctx, "asked", {"before": before}, 0.03, unknown="ask")


@app.workflow
async def child(ctx: Context, order: str) -> str:
    return await act(ctx, "only", {})


@app.workflow(on="shop.told")
async def told(ctx: Context, event: Event) -> str:
    return await act(ctx, "only", {})


@app.workflow(on=stripe["tell"])
async def tells(ctx: Context, event: Event) -> str:
    await ctx.step.emit("tell", "shop.told", {"of": event.id})
    found = await ctx.step.call("child", child, event.id)
    return await act(ctx, "after", {"child": found})


@app.workflow(on=stripe["wait"])
async def waits(ctx: Context, event: Event) -> str:
    order = str(event.payload["data"]["object"]["order"])
    try:
        packed = await ctx.step.wait_for("packed", "shop.packed", subject=order, timeout="800ms")
    except WaitTimedOut:
        return await act(ctx, "late", {})
    return await act(ctx, f"after {packed.id}", {})


@app.workflow(on=stripe["fail"])
async def fails(ctx: Context, event: Event) -> str:
    before = await act(ctx, "before", {})
    attempt = ctx.attempt

    async def body() -> str:
        note(ctx, "began", step=f"body {attempt}", item="", relied={"before": before})
        if attempt == 1:
            raise Permanent("broken")
        return "mended"

    return await ctx.step.run("body", body)


@app.workflow(on=stripe["big"])
async def big(ctx: Context, event: Event) -> int:
    filler = str(event.payload["data"]["object"]["filler"])
    await act(ctx, "first", {}, filler=filler)
    return len(await act(ctx, "second", {}, filler=filler))


# --- rows of the shop's own, in the store's file ------------------------------------------------------


def connect() -> sqlite3.Connection:
    connection = sqlite3.connect(str(app.settings.store).removeprefix("sqlite:///"), timeout=30)
    connection.execute("create table if not exists sale (run_id text not null, mark text not null)")
    return connection


app.transactions(connect)


@app.transaction
def sell(connection: sqlite3.Connection, run_id: str) -> str:
    mark = uuid.uuid4().hex
    connection.execute("insert into sale values (?, ?)", (run_id, mark))
    return mark


def place(ctx: Context, relied: dict[str, Any]) -> str:
    """Emit within a transaction of the shop's own."""
    note(ctx, "began", step="place", item="", relied=relied)
    event_id = f"placed-{ctx.run_id}-{uuid.uuid4().hex[:8]}"
    with contextlib.closing(connect()) as connection:
        connection.execute("insert into sale values (?, ?)", (event_id, "placed"))
        app.sync.emit("shop.told", {"of": event_id}, id=event_id, within=connection)
        connection.commit()
    note(ctx, "placed", event=event_id)
    return event_id


@app.workflow(on=stripe["sell"], retry=Retry(base="10ms", cap="50ms"))
async def sells(ctx: Context, event: Event) -> str:
    sold = await ctx.step.transaction("sell", sell, ctx.run_id)
    placed = await ctx.step.run("place", place, ctx, {"sell": sold})
    return await act(ctx, "after", {"sell": sold, "place": placed})
