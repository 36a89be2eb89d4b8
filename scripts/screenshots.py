"""Make the pictures of the dashboard in docs/images: ``make screenshots``.

A real shop in a store of its own: events of the last hour, runs that ended, failed, are held, sleep
and were replayed, forged and unreadable deliveries; then a real browser that looks at it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import shutil
import socket
import sqlite3
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Self

import httpx
import uvicorn
from playwright.sync_api import Browser, Page, sync_playwright
from starlette.applications import Starlette
from starlette.routing import Mount

from onceward import App, Context, Event, OutcomeUnknown, Permanent, Retry
from onceward import event as e
from onceward.console.local import LocalConsole
from onceward.console.port import Action
from onceward.core.arrival import Incoming, Verified
from onceward.core.messages import HttpRequest
from onceward.runtime.clock import wall_ms
from onceward.sources import Stripe, from_functions
from onceward.web.access import Principal, Role
from onceward.web.dashboard.site import routes

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
SECRET = "whsec_" + "pictures" * 4
PAST_MINUTES = 55
TIMES = {
    "event": ["received_at"],
    "step": ["started_at", "ended_at"],
    "attempt": ["started_at", "ended_at"],
    "run": ["created_at", "started_at", "ended_at", "problem_at"],
}
LOAD_MS = 20_000
WIDE = {"width": 1240, "height": 780}
PHONE = {"width": 390, "height": 780}


HIDE_FOLDER = """folder => {
  for (const fact of document.querySelectorAll(".facts-line strong"))
    fact.textContent = fact.textContent.replace(folder, "/srv/shop");
}"""
"""Where a store is says where its server keeps it, and not a folder of the machine that takes the pictures."""


def shop() -> App:
    """Give an app of a shop that has every kind of trouble."""
    app = App("sqlite:///shop.db", linger="0s")
    stripe = app.source(Stripe(secrets=[SECRET]))

    app.source(from_functions("carrier", verify=lambda *_: Verified(0), normalize=parcel, secrets=[SECRET]))
    tried: set[str] = set()

    @app.step(retry=Retry(max_tries=3, base="250ms", cap="300ms"))
    async def charge_card(order: str) -> dict[str, Any]:
        await asyncio.sleep(0.35)
        if order not in tried and order.endswith("7"):
            tried.add(order)
            raise ConnectionError("the payment service reset the connection")
        return {"charge": f"ch_{order}", "amount": 4200}

    @app.step(retry=Retry(max_tries=1))
    async def refund_card(_order: str) -> None:
        await asyncio.sleep(0.05)
        raise ConnectionError("payments.example answered 503: try again later")

    @app.workflow(on=[stripe["checkout.session.completed"], "order.paid"])
    async def fulfil(ctx: Context, event: Event) -> dict[str, Any]:
        order = event.subject or "order-1"
        await ctx.step.run("load order", load_order, order)
        charge = await charge_card(order)
        invoice = await ctx.step.uuid("invoice id")
        await asyncio.gather(
            ctx.step.run("reserve stock", work, 0.3, item="shelf 4"),
            ctx.step.run("reserve stock", work, 0.5, item="shelf 9"),
            ctx.step.run("send invoice", work, 0.2),
        )
        await ctx.step.emit("tell the warehouse", "order.ready", parcel_of(order), subject=order)
        if "slow" in order:
            await ctx.step.sleep("cooling off", "1h")
        return {"invoice": str(invoice), **charge}

    @app.workflow(on="refund.asked", retry=Retry(max_tries=2, base="300ms", cap="400ms"))
    async def refund(ctx: Context, event: Event) -> None:
        await ctx.step.run("load order", load_order, event.subject or "")
        await refund_card(event.subject or "")

    @app.workflow(on="order.ready", key=e.payload["parcel"])
    async def ship(_ctx: Context, event: Event) -> str:
        return f"shipped {event.subject}"

    @app.step(unknown="ask")
    async def print_label(order: str, printer: str) -> str:
        raise OutcomeUnknown(f"{printer} closed the connection while it printed the label of {order}")

    @app.workflow(on="parcel.packed")
    async def label(ctx: Context, event: Event) -> str:
        await ctx.step.run("load order", load_order, event.subject or "")
        return await print_label(event.subject or "", "printer-2.example")

    @app.workflow(on="address.changed")
    async def change_address(ctx: Context, event: Event) -> None:
        await ctx.step.run("check address", check_address, event.payload)

    return app


def parcel(request: HttpRequest) -> list[Incoming]:
    """Read a delivery of a carrier, as long as it is spelt as it always was."""
    body = json.loads(request.body)
    return [Incoming(id=body["parcel"]["id"], type="parcel.moved", payload=body)]


def parcel_of(order: str) -> dict[str, str]:
    """Give what the warehouse is told; of some orders it is told too little."""
    return {"order": order} if order.endswith("3") else {"order": order, "parcel": f"parcel of {order}"}


async def load_order(order: str) -> dict[str, Any]:
    """Take a little time, as a database does."""
    await asyncio.sleep(0.12)
    return {"order": order, "lines": [{"sku": "tea-01", "quantity": 2}]}


async def work(seconds: float) -> str:
    """Take some time."""
    await asyncio.sleep(seconds)
    return "done"


async def check_address(payload: Any) -> None:
    """Refuse what is no address."""
    raise Permanent(f"no such postcode: {payload.get('postcode')!r}")


async def past(minutes_back: int) -> None:
    """Fill the store with what an hour brings, then move its rows to where they would be."""
    draw = random.Random(7)  # noqa: S311 - the same pictures each time
    minutes: dict[tuple[str, str], int] = {}
    app = shop()
    async with app:
        for minute in range(minutes_back, 0, -1):
            wanted = [("order.paid", f"order-{minute * 10 + n}") for n in range(draw.choice((0, 1, 1, 2, 4)))]
            wanted += [("refund.asked", f"order-{minute}7")] if minute in (47, 31, 30, 12) else []
            wanted += [("address.changed", "customer-12")] if minute == 20 else []
            for kind, subject in wanted:
                emitted = await app.emit(kind, {"about": subject, "postcode": "0000"}, subject=subject)
                minutes[emitted.source, emitted.id] = minute
        await settled(app)
    with contextlib.closing(sqlite3.connect("shop.db")) as rows, rows:
        for (source, event_id), minute in minutes.items():
            move(rows, source, event_id, minute * 60_000)


def move(rows: sqlite3.Connection, source: str, event_id: str, ms: int) -> None:
    """Move an event into the past, with its runs and what these emitted."""
    runs = rows.execute(
        "select run_id from onceward_run where source = ? and event_id = ?", (source, event_id)
    )
    for (run_id,) in runs.fetchall():
        for table in ("run", "step", "attempt"):
            shift(rows, table, ms, "run_id = ?", run_id)
        for child in rows.execute(
            "select id from onceward_event where source = ?", (f"run/{run_id}",)
        ).fetchall():
            move(rows, f"run/{run_id}", child[0], ms)
    shift(rows, "event", ms, "source = ? and id = ?", source, event_id)


def shift(rows: sqlite3.Connection, table: str, ms: int, where: str, *values: str) -> None:
    """Move the times of some rows."""
    moved = ", ".join(f"{column} = {column} - {ms}" for column in TIMES[table])
    rows.execute(f"update onceward_{table} set {moved} where {where}", values)  # noqa: S608 - our own names


async def settled(app: App) -> None:
    """Wait until nothing is under way any more."""
    while True:
        counts = await LocalConsole(app).counts()
        if not any(counts.states.get(state) for state in ("queued", "running", "backoff", "cancelling")):
            return
        await asyncio.sleep(0.05)


async def present(app: App, send: Callable[[str, bytes, dict[str, str]], Any]) -> dict[str, str]:
    """Do what the pictures are about; give the ids of the runs that they show."""
    console = LocalConsole(app)
    for number in (1, 2):
        await send("stripe", *stripe_delivery(f"order-90{number}", "whsec_" + "of somebody else" * 2))
    await send("carrier", b'{"parsel": 7}', {})
    await app.emit("order.paid", {"parcel": "p-9"}, subject="order-slow-7")
    asking = await app.emit("parcel.packed", {"weight": 1200}, subject="order-4102")
    failing = await app.emit("refund.asked", {"amount": 900}, subject="order-4117")
    shown = await send("stripe", *stripe_delivery("order-4117", SECRET))
    await settled(app)
    run_ids = {
        "shown": shown["events"][0]["runs"][0],
        "failed": failing.runs[0].run_id,
        "asking": asking.runs[0].run_id,
    }
    act = Action(verb="replay", actor="sam", request_id="replay-of-a-picture")
    await console.act(run_ids["shown"], act)
    await console.act(run_ids["failed"], Action(verb="retry", actor="sam", request_id="retry-of-a-picture"))
    await settled(app)
    return run_ids


def stripe_delivery(order: str, secret: str) -> tuple[bytes, dict[str, str]]:
    """Give a signed delivery of a paid order."""
    body = {
        "id": f"evt_{order}",
        "object": "event",
        "type": "checkout.session.completed",
        "created": int(time.time()),
        "data": {"object": {"id": order, "client_reference_id": order, "amount_total": 4200}},
    }
    raw = json.dumps(body).encode()
    return raw, Stripe(secrets=[secret]).sign(raw, wall_ms())


class Shop:
    """The shop with its dashboard, served from a thread of its own.

    Args:
        minutes_back: how much it has behind it.
    """

    def __init__(self, minutes_back: int = PAST_MINUTES) -> None:
        self._minutes_back = minutes_back
        self.run_ids: dict[str, str] = {}
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        server = Starlette(lifespan=self._lifespan)
        self._server = uvicorn.Server(
            uvicorn.Config(server, log_level="warning", timeout_graceful_shutdown=1)
        )
        self._thread = threading.Thread(target=lambda: asyncio.run(self._server.serve([listener])))

    @contextlib.asynccontextmanager
    async def _lifespan(self, server: Starlette) -> AsyncIterator[None]:
        await past(self._minutes_back)
        app = shop()
        receiver = app.asgi()
        sam = Principal(name="sam", role=Role.OPERATOR, csrf="a token")
        async with app:
            dashboard = routes(LocalConsole(app), lambda _: sam, api="../api/v1", logout="../logout")
            server.router.routes += [Mount("/dashboard", routes=dashboard), Mount("/", app=receiver)]
            transport = httpx.ASGITransport(app=receiver)
            async with httpx.AsyncClient(transport=transport, base_url=self.address) as client:

                async def send(source: str, body: bytes, headers: dict[str, str]) -> Any:
                    reply = await client.post(f"/hooks/{source}", content=body, headers=headers)
                    return reply.json()

                self.run_ids = await present(app, send)
            yield

    def __enter__(self) -> Self:
        self._thread.start()
        while not self._server.started:
            if not self._thread.is_alive():
                raise SystemExit("The shop did not start.")
            time.sleep(0.05)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join()


def take(browser: Browser, shop: Shop, images: Path) -> None:
    """Take every picture."""
    failed, shown = shop.run_ids["failed"], shop.run_ids["shown"]
    pictures: list[tuple[str, str, dict[str, Any], Callable[[Page], object] | None]] = [
        ("overview", "", {}, None),
        ("runs", "runs", {}, None),
        ("run", f"runs/{shown}", {}, open_charge),
        ("run-dark", f"runs/{failed}", {"color_scheme": "dark"}, None),
        ("question", f"runs/{shop.run_ids['asking']}", {}, None),
        ("restart", f"runs/{shown}/restart?from_step=charge_card", {}, None),
        ("dead-letters", "dead", {}, None),
        ("phone", f"runs/{failed}", {"viewport": PHONE, "device_scale_factor": 2}, None),
    ]
    for name, path, options, prepare in pictures:
        context = browser.new_context(
            **{"viewport": WIDE, "locale": "en-GB", "timezone_id": "UTC", **options}
        )
        page = context.new_page()
        page.set_default_timeout(LOAD_MS)
        page.goto(f"{shop.address}/dashboard/{path}")
        if page.locator("[data-live]").count():
            page.wait_for_selector("[data-live-state=live]")
        if prepare:
            prepare(page)
        page.evaluate(HIDE_FOLDER, os.getcwd())
        page.screenshot(path=images / f"{name}.png")
        context.close()
        print(images / f"{name}.png")


def open_charge(page: Page) -> None:
    """Open the step that was tried twice."""
    page.locator("summary.lane", has_text="charge_card").click()


def main(images: Path = IMAGES, minutes_back: int = PAST_MINUTES) -> None:
    """Take them: into a folder, of a shop with so much behind it."""
    images.mkdir(exist_ok=True)
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        raise SystemExit("Chromium is not on this machine: run scripts/services.sh")
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        with Shop(minutes_back) as served:
            take(browser, served, images)
        browser.close()


if __name__ == "__main__":
    main()
