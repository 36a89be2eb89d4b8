"""Two shops that do the same: one unsafe in every step, each in its own way, one safe in all.

Each step of the unsafe one is planted; `PLANTED` says which tool the crash matrix must name for it.
"""

from __future__ import annotations

import sqlite3
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import requests

from onceward import AUTO, App, Context, Event, IdempotencyKey, SyncContext
from onceward import event as e
from onceward.core.arrival import UNVERIFIED, Incoming, Verified
from onceward.core.messages import HttpRequest
from onceward.outgoing import keyed
from onceward.sources import Stripe, from_functions
from onceward.sources.parts.secret import Secret
from onceward.testing import Outside

PAY, POST, LABEL = "https://pay.example", "https://post.example", "https://label.example"
PAID = "checkout.session.completed"
ORDER = e.payload["data"]["object"]["client_reference_id"]


def services(outside: Outside) -> None:
    """Say what the services answer that both shops use."""
    outside.http.post(f"{PAY}/charges", {"id": "ch_1"})
    outside.http.post(f"{PAY}/refunds", {"id": "re_1"})
    outside.http.post(f"{POST}/letters", {"id": "letter"}, knows_keys=False)
    outside.http.get(f"{POST}/letters", lambda _asked: outside.count(f"POST {POST}/letters"))
    outside.http.put(f"{LABEL}/labels/*", {"ok": True})
    outside.http.post(f"{LABEL}/prints", {"ok": True})


def database(path: Path) -> Callable[[], sqlite3.Connection]:
    """Give a way to an empty database with the shop's tables, and empty it."""

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(path)
        connection.execute("pragma synchronous = off")
        return connection

    connection = connect()
    connection.executescript(
        "drop table if exists stock; drop table if exists invoice; drop table if exists once;"
        "create table stock (item text, change integer);"
        "create table invoice (id text primary key, order_no text);"
        "create table once (order_no text primary key);"
    )
    connection.close()
    return connect


def run_sql(connect: Callable[[], sqlite3.Connection], sql: str, *values: Any) -> None:
    connection = connect()
    with connection:
        connection.execute(sql, values)
    connection.close()


PLANTED = {
    ("charge", f"POST {PAY}/charges"): "keyed",
    ("refund", f"POST {PAY}/refunds"): "draw",
    ("letter", f"POST {POST}/letters"): "ensure",
    ("mail", "mail"): "key-or-ensure",
    ("take from stock", "rows of stock"): "upsert",
    ("invoice", "rows of invoice"): "draw",
    ("(between steps)", "greet"): "step",
    ("label", f"PUT {LABEL}/labels/*"): "draw",
    ("print", f"POST {LABEL}/prints"): "draw",
    ("mark", "marked"): "key-or-ensure",
    ("fulfil", "the run fails"): "tolerate",
}


def unsafe(outside: Outside, connect: Callable[[], sqlite3.Connection]) -> tuple[App, Any]:
    """Make the shop in which everything can happen twice."""
    app = App("sqlite:///never-made.db")
    stripe = app.source(Stripe(secrets="whsec_for_tests"))
    marks: set[str] = set()

    @app.step
    async def charge(order: str) -> str:
        async with httpx.AsyncClient() as client:
            return str((await client.post(f"{PAY}/charges", json={"order": order})).json()["id"])

    def refund(order: str) -> None:
        headers = {"Idempotency-Key": str(uuid.uuid4())}
        requests.post(f"{PAY}/refunds", json={"order": order}, headers=headers, timeout=5)

    async def letter(order: str) -> None:
        async with aiohttp.ClientSession() as client, client.post(f"{POST}/letters", json=[order]) as answer:
            await answer.read()

    def mail(order: str) -> None:
        outside.happened("mail", to=order)

    def take(order: str) -> None:
        run_sql(connect, "insert into stock values (?, -1)", order)

    def invoice(order: str) -> None:
        run_sql(connect, "insert into invoice values (?, ?)", str(uuid.uuid4()), order)

    @app.step
    async def label(order: str) -> None:
        async with httpx.AsyncClient() as client:
            await client.put(f"{LABEL}/labels/{uuid.uuid4()}", json={"order": order})

    @app.step(name="print")
    async def print_label(order: str, *, idempotency_key: IdempotencyKey = AUTO) -> None:
        async with httpx.AsyncClient() as client:
            headers = {"Idempotency-Key": idempotency_key}
            body = {"order": order, "at": time.perf_counter_ns()}
            await client.post(f"{LABEL}/prints", json=body, headers=headers)

    def mark(order: str) -> None:
        if order not in marks:
            outside.happened("marked", order=order)
            marks.add(order)  # a death right before this line forgets it

    def once(order: str) -> None:
        run_sql(connect, "insert into once values (?)", order)

    @app.workflow(on=stripe[PAID])
    async def fulfil(ctx: Context, event: Event) -> str:
        order = str(event.payload["data"]["object"]["client_reference_id"])
        await charge(order)
        await ctx.step.run("refund", refund, order)
        await ctx.step.run("letter", letter, order)
        await ctx.step.run("mail", mail, order)
        await ctx.step.sleep("cool", "3d")
        outside.happened("greet")
        await ctx.step.run("take from stock", take, order)
        await ctx.step.run("invoice", invoice, order)
        await label(order)
        await print_label(order)
        marks.clear()
        await ctx.step.run("mark", mark, order)
        await ctx.step.run("once", once, order)
        return order

    return app, fulfil


def safe(outside: Outside, connect: Callable[[], sqlite3.Connection]) -> tuple[App, Any]:
    """Make the shop in which nothing can."""
    app = App("sqlite:///never-made.db")
    stripe = app.source(Stripe(secrets="whsec_for_tests"))

    @app.step(key_scope="business")
    async def charge(order: str) -> str:
        async with keyed(httpx.AsyncClient()) as client:
            return str((await client.post(f"{PAY}/charges", json={"order": order})).json()["id"])

    @app.step(key_scope="business")
    def refund(order: str, *, idempotency_key: IdempotencyKey = AUTO) -> None:
        headers = {"Idempotency-Key": idempotency_key}
        requests.post(f"{PAY}/refunds", json={"order": order}, headers=headers, timeout=5)

    async def find_letter(order: str) -> str | None:
        async with aiohttp.ClientSession() as client, client.get(f"{POST}/letters") as answer:
            return order if await answer.json() else None

    async def write_letter(order: str) -> str:
        async with aiohttp.ClientSession() as client, client.post(f"{POST}/letters", json=[order]) as answer:
            await answer.read()
            return order

    @app.step(key_scope="business")
    def mail(order: str, *, idempotency_key: IdempotencyKey = AUTO) -> None:
        outside.happened("mail", key=idempotency_key, to=order)

    def invoice(invoice_id: str, order: str) -> None:
        run_sql(connect, "insert into invoice values (?, ?) on conflict do nothing", invoice_id, order)

    @app.step
    async def label(label_id: str, order: str) -> None:
        async with httpx.AsyncClient() as client:
            await client.put(f"{LABEL}/labels/{label_id}", json={"order": order})

    def once(order: str) -> None:
        run_sql(connect, "insert into once values (?) on conflict do nothing", order)

    @app.workflow(on=stripe[PAID], key=ORDER)
    async def fulfil(ctx: Context, event: Event) -> str:
        order = str(event.payload["data"]["object"]["client_reference_id"])
        await charge(order)
        await ctx.step.run("refund", refund, order)
        await ctx.step.ensure("letter", find_letter, write_letter, args=(order,))
        await ctx.step.run("mail", mail, order)
        await ctx.step.sleep("cool", "3d")
        invoice_id = str(await ctx.step.uuid("invoice id"))
        await ctx.step.run("invoice", invoice, invoice_id, order)
        await label(invoice_id, order)
        await ctx.step.run("once", once, order)
        return order

    return app, fulfil


def plain(outside: Outside) -> tuple[App, Any]:
    """Make an app of `def` functions only, with one unsafe step."""
    app = App("sqlite:///never-made.db")

    def pack(order: str) -> str:
        outside.happened("packed", order=order)
        return order

    def tell(order: str, key: IdempotencyKey = AUTO) -> None:
        outside.happened("told", key=key)

    @app.workflow
    def parcel(ctx: SyncContext, order: str) -> str:
        packed = ctx.step.run("pack", pack, order)
        ctx.step.sleep("a night", "8h")
        ctx.step.run("tell", tell, packed)
        ctx.step.sleep("a week", "7d")
        ctx.step.emit("done", "parcel.done", {"order": packed})
        return packed

    @app.workflow(on="parcel.done")
    def thank(ctx: SyncContext, event: Event) -> None:
        ctx.step.run("thanks", tell, event.payload["order"])

    return app, parcel


def nobody(_request: HttpRequest, _secrets: Sequence[Secret], _now_ms: int) -> Verified:
    return UNVERIFIED


def forgetful(outside: Outside) -> tuple[App, Any]:
    """Make an app whose source gives a redelivered event another id."""
    app = App("sqlite:///never-made.db")

    def normalize(request: HttpRequest) -> list[Incoming]:
        return [Incoming(id=str(uuid.uuid4()), type="order", payload={})]

    shop = app.source(from_functions("shop", verify=nobody, normalize=normalize, insecure=True))

    def tell(key: IdempotencyKey = AUTO) -> None:
        outside.happened("told", key=key)

    @app.workflow(on=shop["order"])
    async def hear(ctx: Context, event: Event) -> None:
        await ctx.step.run("tell", tell)

    return app, hear
