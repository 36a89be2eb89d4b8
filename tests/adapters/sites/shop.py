"""The app that every site mounts; what its steps do is noted in a file beside the store."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

from onceward import App, Context, Event, SyncContext
from onceward.sources import Stripe

logging.basicConfig(format="%(asctime)s %(process)d %(levelname)s %(name)s %(message)s")
SECRET = "whsec_0123456789abcdefghij"

app = App(lease="2s", poll="100ms", drain="10s", body_bytes_max="64KiB")  # the store is ONCEWARD_STORE
stripe = app.source(Stripe(secrets=SECRET))
home = Path(os.environ.get("SHOP_HOME", "."))


def note(text: str) -> None:
    """Add a line in one write, so that processes do not tear each other's."""
    file = os.open(home / "ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, f"{text}\n".encode())
    os.close(file)


@app.workflow(on=stripe["charge.*"])
async def charged(ctx: Context, event: Event) -> str:
    await ctx.step.run("note", note, f"charged {event.id}")
    return event.id


@app.workflow(on="order.paid")
def paid(ctx: SyncContext, event: Event) -> str:
    ctx.step.run("note", note, f"paid {event.id}")
    return f"paid {event.payload['order']}"


@app.workflow
async def greet(ctx: Context, name: str) -> str:
    await ctx.step.run("note", note, f"greet {name}")
    return f"hello {name}"


async def until_told(name: str) -> None:
    note(f"begun {name}")
    while not (home / f"{name}.go").exists():  # noqa: ASYNC110 (another process makes the file)
        await asyncio.sleep(0.01)
    note(f"ended {name}")


@app.workflow
async def linger(ctx: Context, name: str) -> None:
    await ctx.step.run("wait", until_told, name)
