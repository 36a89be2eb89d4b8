"""The app of the soak: one workflow for each thing that a run can be about, and a look into the process.

Every body notes what it did, with the id of the delivery that it was about, so that the ledger says what
became of each delivery whatever the store keeps. What is over is pruned soon.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sqlite3
import threading
from collections import Counter
from typing import Any

from ledger import note

from onceward import (
    App,
    Context,
    Event,
    Expect,
    OutcomeUnknown,
    Permanent,
    Retention,
    Retry,
    StepFailed,
    SyncContext,
)
from onceward import event as e
from onceward.sources import Stripe

PLANTED = os.environ.get("ONCEWARD_TEST_SOAK_LEAK", "").split()
"""``memory``, ``descriptors``, ``threads``, ``lost``: faults of the app that the soak has to find."""

LEAKED: list[Any] = []

app = App(
    promise_secret="0123456789" * 4,
    retention=Retention(
        completed="5s",
        failed="5s",
        cancelled="5s",
        payloads="2s",
        deliveries="5s",
        unparsed="5s",
        notices="5s",
        identity="2m",
    ),
)
stripe = app.source(Stripe(secrets=["whsec_attack_attack_attack"]))
QUICK = Retry(max_tries=5, base="20ms", cap="50ms")


def connect() -> Any:
    """Give a connection of the user's own, to the store's database."""
    store = os.environ["ONCEWARD_STORE"]
    if store.startswith("sqlite"):
        return sqlite3.connect(store.removeprefix("sqlite:///"))
    import psycopg

    return psycopg.connect(store)


app.transactions(connect)


def done(what: str, event_id: str) -> str:
    """Be a body: what it did stands in the ledger when it returns."""
    note(event_id, what)
    if "memory" in PLANTED:
        LEAKED.append(bytearray(20_000))
    if "descriptors" in PLANTED:
        LEAKED.extend(os.open(os.devnull, os.O_RDONLY) for _ in range(10))
    if "threads" in PLANTED and threading.active_count() < 2_000:
        for _ in range(5):
            threading.Thread(target=threading.Event().wait, daemon=True).start()
    return f"{what} {event_id}"


async def act(what: str, event_id: str) -> str:
    return done(what, event_id)


async def fail(event_id: str) -> None:
    raise Permanent(f"declined for {event_id}")


def of(event: Event) -> Any:
    """Give what a delivery is about."""
    return event.payload["data"]["object"]


# --- steps --------------------------------------------------------------------------------------


@app.workflow(on=stripe["soak.steps"])
async def steps(ctx: Context, event: Event) -> str:
    if "lost" in PLANTED:
        return "left out"
    for name in ("a", "b", "c"):
        await ctx.step.run(name, act, name, event.id)
    return str(await ctx.step.uuid("id"))


@app.workflow(on=stripe["soak.plain"])
def plain(ctx: SyncContext, event: Event) -> str:
    return [ctx.step.run(name, done, name, event.id) for name in ("a", "b")][-1]


@app.workflow(on=stripe["soak.branches"])
async def branches(ctx: Context, event: Event) -> list[str]:
    names = [f"branch {number}" for number in range(4)]
    found = await asyncio.gather(*(ctx.step.run("branch", act, name, event.id, item=name) for name in names))
    return list(found)


@app.workflow(on=stripe["soak.large"])
async def large(ctx: Context, event: Event) -> int:
    async def body() -> str:
        done("large", event.id)
        return "x" * 100_000

    return len(await ctx.step.run("large", body))


@app.workflow(on=stripe["soak.books"])
async def books(ctx: Context, event: Event) -> str:
    def book(connection: Any) -> None:
        connection.execute("update soak_book set booked = booked + 1")

    await ctx.step.transaction("book", book)
    return await ctx.step.run("booked", act, "booked", event.id)


@app.workflow(on=stripe["soak.ensured"])
async def ensured(ctx: Context, event: Event) -> str:
    async def find(_: str, event_id: str) -> str | None:
        return None

    return await ctx.step.ensure("ticket", find, act, ("ticket", event.id))


# --- times and waits ----------------------------------------------------------------------------


@app.workflow(on=stripe["soak.sleeps"])
async def sleeps(ctx: Context, event: Event) -> str:
    await ctx.step.run("before", act, "before", event.id)
    await ctx.step.sleep("nap", of(event)["seconds"])
    return await ctx.step.run("after", act, "after", event.id)


@app.workflow(on=stripe["soak.waits"])
async def waits(ctx: Context, event: Event) -> str:
    await ctx.step.wait_for("packed", stripe["soak.packed"], subject=event.id)
    return await ctx.step.run("heard", act, "heard", event.id)


@app.workflow(on=stripe["soak.races"])
async def races(ctx: Context, event: Event) -> str:
    expected = {
        "yes": Expect(stripe["soak.packed"], subject=event.id),
        "no": Expect(stripe["soak.refused"], subject=event.id),
    }
    label, _ = await ctx.step.wait_any("decision", expected)
    return await ctx.step.run("decided", act, f"decided {label}", event.id)


@app.workflow(on=stripe["soak.expires"])
async def expires(ctx: Context, event: Event) -> str:
    await ctx.step.wait_for("never", stripe["soak.never"], subject=event.id, timeout="1s", default=None)
    return await ctx.step.run("gave up", act, "gave up", event.id)


@app.workflow(on=stripe["soak.promises"])
async def promises(ctx: Context, event: Event) -> str:
    promise = await ctx.step.promise("approval", timeout="1h")
    await ctx.step.run("answer", app.complete_promise, promise.token, "yes")
    await promise.result()
    return await ctx.step.run("approved", act, "approved", event.id)


# --- failures -----------------------------------------------------------------------------------


@app.workflow(on=stripe["soak.retried"])
async def retried(ctx: Context, event: Event) -> str:
    async def body() -> str:
        if ctx.try_number < 3:
            raise OSError(f"try {ctx.try_number} of {event.id}")
        return done("third", event.id)

    return await ctx.step.run("flaky", body, retry=QUICK)


@app.workflow(on=stripe["soak.backs_off"], retry=QUICK)
async def backs_off(ctx: Context, event: Event) -> str:
    await ctx.step.run("before", act, "before", event.id)
    if ctx.attempt == 1:
        raise OSError(f"between steps of {event.id}")
    return await ctx.step.run("after", act, "after", event.id)


@app.workflow(on=stripe["soak.fails"])
async def fails(ctx: Context, event: Event) -> None:
    await ctx.step.run("before", act, "before", event.id)
    await ctx.step.run("declined", fail, event.id)


@app.step(name="hold")
async def hold(event_id: str) -> str:
    return done("held", event_id)


@hold.undo
async def unhold(held: str, event_id: str) -> None:
    done("given back", event_id)


@app.workflow(on=stripe["soak.undone"], undo="on_failure")
async def undone(ctx: Context, event: Event) -> None:
    await hold(event.id)
    await ctx.step.run("declined", fail, event.id)


@app.workflow(on=stripe["soak.cancelled"])
async def cancelled(ctx: Context, event: Event) -> None:
    await ctx.step.run("reserve", act, "reserved", event.id)
    try:
        await ctx.step.sleep("for payment", "30d")
    finally:
        await ctx.step.run("release", act, "released", event.id)


@app.workflow(on=stripe["soak.asks"])
async def asks(ctx: Context, event: Event) -> str:
    async def body() -> None:
        done("asked", event.id)
        raise OutcomeUnknown("the printer did not answer")

    await ctx.step.run("letter", body, unknown="ask")
    return await ctx.step.run("answered", act, "answered", event.id)


# --- other runs ---------------------------------------------------------------------------------


@app.workflow
async def child(ctx: Context, event_id: str, is_bad: bool = False) -> str:
    found = await ctx.step.run("child", act, "child", event_id)
    if is_bad:
        await ctx.step.run("declined", fail, event_id)
    return found


@app.workflow
async def detached(ctx: Context, event_id: str) -> str:
    return await ctx.step.run("detached", act, "detached", event_id)


@app.workflow(on=stripe["soak.parent"])
async def parent(ctx: Context, event: Event) -> str:
    await ctx.step.call("child", child, event.id)
    await ctx.step.start("detached", detached, event.id)
    try:
        await ctx.step.call("bad child", child, event.id, True)
    except StepFailed:
        await ctx.step.run("consoled", act, "consoled", event.id)
    return await ctx.step.run("after", act, "after", event.id)


@app.workflow(on="soak.told")
async def told(ctx: Context, event: Event) -> str:
    return await ctx.step.run("told", act, "told", event.payload["of"])


@app.workflow(on=stripe["soak.emits"])
async def emits(ctx: Context, event: Event) -> str:
    async def inside() -> str:
        await app.emit("soak.told", {"of": event.id})
        return done("emitted", event.id)

    await ctx.step.emit("tell", "soak.told", {"of": event.id})
    return await ctx.step.run("inside", inside)


@app.workflow(on=stripe["soak.queued"], key=e.payload["data"]["object"]["key"], once="active", clash="queue")
async def queued(ctx: Context, event: Event) -> str:
    return await ctx.step.run("counted", act, "counted", event.id)


@app.workflow(on=stripe["soak.once"], key=e.payload["data"]["object"]["key"], once="1m")
async def once(ctx: Context, event: Event) -> str:
    return await ctx.step.run("fulfilled", act, "fulfilled", of(event)["key"])


@app.workflow(on=stripe["soak.ordered"], version=e.payload["data"]["object"]["version"], stale="drop")
async def ordered(ctx: Context, event: Event) -> None:
    await ctx.step.run("newest", act, "newest", event.id)


# --- a look into the process --------------------------------------------------------------------


@app.workflow(on=stripe["soak.probe"])
async def probe(ctx: Context, event: Event) -> None:
    """Tell what only the process itself can count."""
    await ctx.step.run("look", look, event.id, of(event)["types"])


def name_of(task: asyncio.Task[Any]) -> str:
    return str(getattr(task.get_coro(), "__qualname__", task.get_coro()))


async def look(event_id: str, has_types: bool) -> None:
    if has_types:
        gc.collect()
    objects = gc.get_objects()
    found: dict[str, Any] = {"tasks": len(asyncio.all_tasks()), "objects": len(objects)}
    if has_types:
        found["waiting"] = dict(Counter(name_of(task) for task in asyncio.all_tasks()))
        kinds = Counter(f"{type(thing).__module__}.{type(thing).__qualname__}" for thing in objects)
        found["types"] = dict(kinds)
    note(event_id, "looked", json.dumps(found))
