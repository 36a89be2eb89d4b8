"""A market that buys, and in newer processes also counts what was bought."""

import os

from onceward import App, Context, Event

app = App()


async def resell(event_id: str) -> None:
    await app.emit("resold", {"of": event_id})


@app.workflow(on="bought")
async def bought(ctx: Context, event: Event) -> None:
    await ctx.step.emit("tell", "told", {"of": event.id})
    await ctx.step.run("resell", resell, event.id)


if os.environ.get("MARKET_COUNTS"):

    @app.workflow(on=["bought", "told", "resold"])
    async def counted(ctx: Context, event: Event) -> str:
        return event.id
