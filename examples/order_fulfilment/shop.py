"""An order from its payment to its parcel: one run for each, claimed, charged, shipped, or undone.

    cd examples/order_fulfilment
    WEBHOOK_SECRET=whsec_… onceward serve shop:app

Each step is safe to run twice, each by another tool; docs/run-twice.md has them all. The tests in
tests/examples let it die at every moment.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import httpx

from onceward import AUTO, App, Context, Event, IdempotencyKey, Permanent, Retry
from onceward import event as e
from onceward.outgoing import keyed
from onceward.sources import Stripe

PAYMENTS = "https://payments.example"
WAREHOUSE = "https://warehouse.example"
MAIL = "https://mail.example"
DATABASE = Path("shop.db")

app = App("sqlite:///orders.db")
stripe = app.source(Stripe(secrets=os.environ.get("WEBHOOK_SECRET", "whsec_for_tests")))


def connect() -> sqlite3.Connection:
    connection = sqlite3.connect(DATABASE)
    connection.execute("create table if not exists claim (order_id text primary key, item text)")
    return connection


# The row is named by the order, so that writing it twice writes it once.
@app.step(effect="own_database")
def claim(order: str, item: str) -> None:
    with closing(connect()) as connection, connection:
        connection.execute("insert into claim values (?, ?) on conflict do nothing", (order, item))


@claim.undo
def unclaim(_claimed: None, order: str) -> None:
    with closing(connect()) as connection, connection:
        connection.execute("delete from claim where order_id = ?", (order,))


# The payment service knows idempotency keys. They are made from the order, so that a restart of the
# run gets the same charge, too.
@app.step(key_scope="business", retry=Retry(max_tries=8), timeout="30s")
async def charge(order: str, cents: int) -> str:
    async with keyed(httpx.AsyncClient()) as client:
        answer = await client.post(f"{PAYMENTS}/charges", json={"order": order, "cents": cents})
    return str(answer.raise_for_status().json()["id"])


@charge.undo(retry=Retry(max_tries=8))
async def refund(charge_id: str) -> None:
    async with keyed(httpx.AsyncClient()) as client:
        answer = await client.post(f"{PAYMENTS}/charges/{charge_id}/refund")
    answer.raise_for_status()


# The warehouse knows no keys, but its parcels can be looked for by order.
async def find_parcel(order: str) -> str | None:
    async with httpx.AsyncClient() as client:
        answer = await client.get(f"{WAREHOUSE}/parcels", params={"order": order})
    found: list[str] = answer.raise_for_status().json()
    return found[0] if found else None


async def book_parcel(order: str) -> str:
    async with httpx.AsyncClient() as client:
        answer = await client.post(f"{WAREHOUSE}/parcels", json={"order": order})
    if answer.status_code == httpx.codes.CONFLICT:
        raise Permanent(f"the warehouse does not ship {order}")
    return str(answer.raise_for_status().json())


def mail(text: str, *, idempotency_key: IdempotencyKey = AUTO) -> None:
    headers = {"Idempotency-Key": idempotency_key}
    httpx.post(f"{MAIL}/letters", json={"text": text}, headers=headers).raise_for_status()


@app.workflow(
    on=stripe["checkout.session.completed"],
    key=e.payload["data"]["object"]["client_reference_id"],
    undo="on_failure",  # what the warehouse does not ship is paid back, and its claim given up
)
async def fulfil(ctx: Context, event: Event) -> str:
    """Ship what was ordered; give the parcel's number."""
    session = event.payload["data"]["object"]
    order, cents = str(session["client_reference_id"]), int(session["amount_total"])
    await ctx.step.run("claim", claim, order, "lamp")
    await charge(order, cents)
    await ctx.step.sleep("cooling off", "2h")
    parcel = await ctx.step.ensure("parcel", find_parcel, book_parcel, args=(order,))
    await ctx.step.wait_for("handed over", "parcel.handed_over", subject=parcel, timeout="14d")
    await ctx.step.run("thank", mail, f"{order} is on its way: {parcel}")
    return parcel
