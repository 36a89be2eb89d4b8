"""A small app whose runs end in every way, for the console to look at."""

from __future__ import annotations

from typing import Any

from onceward import App, Context, Event, Permanent, Retry
from onceward.console.local import LocalConsole
from onceward.console.port import Action, RunQuery
from onceward.sources import Stripe
from tests.engine.running import make_app
from tests.helpers import eventually_async

SECRET = "whsec_console_0123456789"


class Shop:
    """An app with workflows that complete, fail, sleep, wait, and one whose failure can be mended.

    Attributes:
        is_mended: whether ``charge`` succeeds.
        charged: how often its step's body ran.
    """

    def __init__(self, url: str, **settings: Any) -> None:
        self.app: App = make_app(url, **settings)
        self.is_mended = False
        self.charged = 0
        app = self.app
        self.stripe = app.source(Stripe(secrets=SECRET))

        @app.step
        async def load(order: str) -> dict[str, str]:
            return {"order": order, "access_token": "tok_of_the_customer"}

        @app.step(retry=Retry(max_tries=1))
        async def pay(order: str) -> str:
            self.charged += 1
            if not self.is_mended:
                raise Permanent(f"card declined for {order}, password=hunter2")
            return order

        @app.workflow(on="order.paid")
        async def charge(ctx: Context, event: Event) -> str:
            await load(event.payload["order"])
            return await pay(event.payload["order"])

        @app.workflow(on="order.seen")
        async def notice(ctx: Context, event: Event) -> str:
            return event.id

        @app.workflow
        async def nap(ctx: Context, name: str) -> None:
            await ctx.step.sleep("a long nap", "1h")

        @app.workflow
        async def parent(ctx: Context) -> None:
            await ctx.step.call("napping", nap, "child")

        @app.workflow
        async def pack(ctx: Context) -> None:
            await ctx.step.wait_for("packed", "warehouse.packed", timeout="7d")

        @app.workflow
        async def sign(ctx: Context) -> str:
            approval = await ctx.step.promise("approval", timeout="7d")
            found: str = await approval.result()
            return found

        self.pack, self.sign = pack, sign
        self.charge, self.notice, self.nap, self.parent = charge, notice, nap, parent

    @property
    def console(self) -> LocalConsole:
        """Give a console of the app, open or not."""
        return LocalConsole(self.app)

    async def failed(self, order: str, subject: str | None = None) -> str:
        """Give a run that failed."""
        emitted = await self.app.emit("order.paid", {"order": order}, id=order, subject=subject)
        run_id = emitted.runs[0].run_id
        await self.stands(run_id, "failed")
        return run_id

    async def completed(self, order: str) -> str:
        """Give a run that completed."""
        emitted = await self.app.emit("order.seen", {"order": order}, id=order)
        run_id = emitted.runs[0].run_id
        await self.stands(run_id, "completed")
        return run_id

    async def stands(self, run_id: str, state: str) -> None:
        """Wait until a run is in a state."""

        async def is_there() -> bool:
            return (await self.console.run(run_id)).run.state == state

        await eventually_async(is_there, what=f"{run_id} is {state}")

    async def ids(self, **query: Any) -> list[str]:
        """Give the ids of the first page of runs."""
        return [run.run_id for run in (await self.console.runs(RunQuery(**query))).items]

    async def do(self, run_id: str, verb: str, **more: Any) -> Any:
        """Do one thing to a run."""
        return await self.console.act(run_id, Action(verb=verb, actor="ann", **more))
