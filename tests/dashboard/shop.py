"""A small shop with trouble, open in the server's loop, and its console."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from onceward import App, Context, Event, OutcomeUnknown, Retry, RetryLater
from onceward import event as e
from onceward.console.local import LocalConsole
from onceward.core.arrival import Incoming, Verified
from onceward.core.messages import HttpRequest
from onceward.sources import from_functions
from tests.dashboard.serving import Site
from tests.helpers import eventually_async
from tests.recycled import migrated_file

T = TypeVar("T")


class Shop:
    """The app and what decides how its steps go.

    Args:
        store: where it keeps its runs.
    """

    def __init__(self, store: str) -> None:
        self.is_away = True
        self.charged: list[str] = []
        self.can_read = False
        self.app = App(store, linger="0s", promise_secret="only-for-tests-0123456789-0123456789")
        self.site: Site | None = None
        self._register()

    def _register(self) -> None:
        app = self.app

        def normalize(request: HttpRequest) -> list[Incoming]:
            if not self.can_read:
                raise KeyError("id")
            return [Incoming(id=request.body.decode(), type="parcel.moved", payload={})]

        carrier = app.source(
            from_functions("carrier", verify=lambda *_: Verified(0), normalize=normalize, secrets=["s" * 32])
        )

        @app.step(retry=Retry(max_tries=1))
        async def charge(order: str) -> str:
            if self.is_away:
                raise ConnectionError("the payment service is away")
            self.charged.append(order)
            return f"charged {order}"

        @app.workflow(on="order.paid")
        async def fulfil(ctx: Context, event: Event) -> str:
            await ctx.step.run("load order", str, event.subject)
            return await charge(event.subject or "")

        @app.workflow(on=["order.ready", carrier["parcel.lost"]], key=e.payload["parcel"])
        async def ship(ctx: Context, event: Event) -> str:
            return "shipped"

        @app.step
        async def pay_tax(order: str) -> str:
            raise RetryLater("1h", "the tax office is closed")

        @app.workflow(on="tax.due")
        async def tax(ctx: Context, event: Event) -> str:
            return await pay_tax(event.subject or "")

        @app.workflow(on="stock.changed", key=e.subject, once="active", clash="queue")
        async def count_stock(ctx: Context, event: Event) -> None:
            await ctx.step.sleep("until evening", "1h")

        @app.step(unknown="ask")
        async def print_label(order: str) -> str:
            if self.is_away:
                raise OutcomeUnknown("the printer did not answer")
            self.charged.append(f"label of {order}")
            return f"label of {order}"

        @app.workflow(on="order.labelled")
        async def label(ctx: Context, event: Event) -> str:
            return await print_label(event.subject or "")

        @app.step
        async def reserve(order: str) -> str:
            return f"shelf of {order}"

        @reserve.undo
        async def release(shelf: str) -> None: ...

        @app.workflow(on="order.reserved", undo="on_failure")
        async def take(ctx: Context, event: Event) -> str:
            await reserve(event.subject or "")
            return await charge(event.subject or "")

        @app.workflow(on="order.packing")
        async def pack(ctx: Context, event: Event) -> str:
            packed = await ctx.step.wait_for(
                "packed", "warehouse.packed", subject=event.subject, timeout="7d"
            )
            return str(packed.payload)

        @app.workflow(on="order.large")
        async def approve(ctx: Context, event: Event) -> str:
            approval = await ctx.step.promise("approval", timeout="7d")
            found: str = await approval.result()
            return found

        @app.workflow(on="order.slow")
        async def slow(ctx: Context, event: Event) -> str:
            await ctx.step.sleep("cooling off", "1h")
            return "cool"

    @asynccontextmanager
    async def console(self) -> AsyncIterator[LocalConsole]:
        """Open the app around its console."""
        async with self.app:
            yield LocalConsole(self.app)

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something in the server's loop and give what it gives."""
        assert self.site is not None
        assert self.site.loop is not None
        return asyncio.run_coroutine_threadsafe(work, self.site.loop).result(20)

    def emit(self, kind: str, subject: str, payload: Any = None) -> str:
        """Emit an event and give the id of its run, once that stands still."""

        async def emitted() -> str:
            run = (await self.app.emit(kind, payload or {}, subject=subject)).runs[0]

            async def stands() -> bool:
                return (await run.row()).state not in ("queued", "running")

            await eventually_async(stands)
            return run.run_id

        return self.do(emitted())

    def state(self, run_id: str) -> str:
        """Give where a run stands."""
        return self.do(self.app.run(run_id).row()).state.value


def shop_in(folder: Path) -> Shop:
    """Give a shop with a store of its own."""
    return Shop(migrated_file(folder / "shop.db"))
