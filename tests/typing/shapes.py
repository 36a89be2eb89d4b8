"""What type checkers must see: arguments and results of workflows, steps and handles keep their types.

Never run; ``test_types`` has mypy and pyright read it.
"""

from __future__ import annotations

import asyncio
import sqlite3
import uuid
from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, assert_type

from onceward import (
    AUTO,
    App,
    Context,
    DidNotHappen,
    Emitted,
    Event,
    EventView,
    Expect,
    Happened,
    IdempotencyKey,
    LaterRun,
    Plan,
    Promise,
    Question,
    Retry,
    RunHandle,
    RunState,
    SyncContext,
    SyncPromise,
    Workflow,
)
from onceward.adapters import asgi, wsgi
from onceward.core.model import AttemptRow, EventRow, RunRow, StepRow
from onceward.core.steer import Reply
from onceward.promising import Completed
from onceward.sources import Stripe
from onceward.sync import SyncApp, SyncLaterRun, SyncRunHandle

app = App("sqlite:///orders.db", concurrency=8)
stripe = app.source(Stripe(secrets=["whsec_x"]))
assert_type(stripe, Stripe)


@dataclass
class Order:
    id: str


@dataclass
class Charge:
    id: str


# --- decorators keep what they decorate ----------------------------------------------------------


@app.step
async def charge_card(order: Order, *, idempotency_key: IdempotencyKey = AUTO) -> Charge:
    return Charge(idempotency_key)


@app.step(retry=Retry(max_tries=8), timeout="30s", name="pack")
def pack(order: Order, boxes: int = 1) -> list[str]:
    return [order.id] * boxes


async def was_charged(order: Order) -> Happened[Charge] | DidNotHappen:
    return Happened(Charge(order.id)) if order.id else DidNotHappen()


@app.step(unknown=was_charged)
async def charge_once(order: Order) -> Charge:
    return Charge(order.id)


@charge_once.undo
async def refund(charge: Charge, *, order: Order, idempotency_key: IdempotencyKey = AUTO) -> int:
    return len(charge.id)


@pack.undo(retry=Retry(max_tries=2), unknown="ask")
def unpack(boxes: list[str]) -> None: ...


async def undone_directly(charge: Charge, order: Order) -> None:
    assert_type(await refund(charge, order=order), int)
    unpack([order.id])


@app.workflow(undo="on_failure")
async def undoing(ctx: Context, order: Order) -> None:
    assert_type(await charge_once(order), Charge)
    assert_type(await ctx.step.run("again", charge_once, order), Charge)
    assert_type(await ctx.step.run("mail", len, "a", unknown="ask"), int)
    assert_type(await ctx.step.undo("give it back"), list[str])


@app.workflow
def undoing_plainly(ctx: SyncContext) -> None:
    assert_type(ctx.step.undo("give it back"), list[str])


async def answering(run: RunHandle[int], sync: SyncRunHandle[int]) -> None:
    assert_type(await run.questions(), list[Question])
    assert_type(await run.answer("happened", result=7, step="mail"), Reply)
    assert_type(sync.questions(), list[Question])
    assert_type(sync.answer("did_not_happen"), Reply)
    assert_type(sync.resume(), Reply)
    assert_type(sync.plan("answer", answer="fail"), Plan)


@app.workflow
async def add(ctx: Context, a: int, b: int = 1) -> int:
    return a + b


@app.workflow(on=stripe["checkout.*"], deadline="30d", retry=Retry(max_tries=2))
async def on_checkout(ctx: Context, event: Event) -> Charge:
    return Charge(event.id)


@app.workflow(name="pack order")
def pack_order(ctx: SyncContext, order: Order) -> list[str]:
    return ctx.step.run("pack", pack, order)


@app.workflow()
async def no_arguments(ctx: Context) -> None: ...


@app.workflow()
async def three(ctx: Context, a: int, b: str, c: bytes) -> bool:
    return True


assert_type(app.workflows["add"], Workflow[..., Any])


class Shop:
    @app.step
    async def greet(self, guest: str) -> int:
        return len(guest)


async def methods(ctx: Context, shop: Shop) -> None:
    assert_type(await shop.greet("Ada"), int)
    assert_type(await ctx.step.run("greet", shop.greet, "Ada"), int)


async def outside_a_run(order: Order) -> None:
    assert_type(await charge_card(order), Charge)
    assert_type(await charge_card(order, idempotency_key=IdempotencyKey("x")), Charge)
    assert_type(pack(order, boxes=2), list[str])
    coroutine: Coroutine[Any, Any, Charge] = charge_card.item(order.id)(order)
    assert_type(await coroutine, Charge)


# --- inside an async workflow -------------------------------------------------------------------------


async def load(order_id: str) -> Order:
    return Order(order_id)


async def find(order_id: str) -> Order | None:
    return None


def find_plainly(order_id: str) -> Order | None:
    return None


async def find_charge(order: Order) -> Charge | None:
    return None


def find_boxes(order: Order) -> list[str] | None:
    return None


def price(order: Order, discount: float = 0.0) -> float:
    return discount


class Gateway:
    async def refund(self, charge: Charge, /, reason: str) -> bool:
        return True

    def balance(self) -> int:
        return 0


async def steps(ctx: Context, gateway: Gateway) -> None:
    order = assert_type(await ctx.step.run("load", load, "7"), Order)
    assert_type(await ctx.step.run("load", load, order_id="7"), Order)
    assert_type(await ctx.step.run("load", load, "7", item=7, retry=Retry(), timeout="5s"), Order)
    assert_type(await ctx.step.run("load", load, "7", key_scope="business", key_memory="24h"), Order)
    assert_type(await ctx.step.ensure("order", find, load, ("7",)), Order)
    assert_type(await ctx.step.ensure("order", find=find_plainly, create=load, args=("7",), item=1), Order)
    assert_type(await ctx.step.ensure("charge", find_charge, charge_card, (order,), timeout="5s"), Charge)
    assert_type(await ctx.step.ensure("boxes", find_boxes, pack, (order,)), list[str])
    assert_type(await ctx.step.run("price", price, order), float)
    assert_type(await ctx.step.run("price", price, order, discount=0.5), float)
    assert_type(await ctx.step.run("price", price, order, 0.5, item="x"), float)
    assert_type(await ctx.step.run("lambda", lambda: 7), int)
    assert_type(await ctx.step.run("refund", gateway.refund, Charge("1"), "why"), bool)
    assert_type(await ctx.step.run("balance", gateway.balance), int)
    assert_type(await ctx.step.run("charge", charge_card, order), Charge)
    assert_type(await ctx.step.run("pack", pack, order, boxes=3), list[str])
    assert_type(await charge_card(order), Charge)

    assert_type(await ctx.step.sleep("nap", "1h"), None)
    assert_type(await ctx.step.uuid("id"), uuid.UUID)
    assert_type(await ctx.step.now("at"), datetime)
    assert_type(await ctx.step.random("draw"), float)
    assert_type(await ctx.step.emit("tell", "order.paid", {"a": 1}, subject="7"), tuple[str, str])

    assert_type(await ctx.step.start("start", add, 1, b=2), str)
    assert_type(await ctx.step.start("start", add, 1, 2, item=3), str)
    assert_type(await ctx.step.call("call", add, 1), int)
    assert_type(await ctx.step.call("call", add, 1, 2, item=3), int)
    assert_type(await ctx.step.call("call", pack_order, order), list[str])
    assert_type(await ctx.step.call("call", on_checkout, {"a": 1}), Charge)
    assert_type(await ctx.step.call("call", no_arguments), None)
    assert_type(await ctx.step.call("call", no_arguments, item=1), None)
    assert_type(await ctx.step.call("call", three, 1, "b", b"c", item=1), bool)
    assert_type(await ctx.step.call("call", add, 1, item=3), int)

    both = await asyncio.gather(ctx.step.run("a", load, "1"), ctx.step.run("b", price, order))
    assert_type(both, tuple[Order, float])
    async with asyncio.TaskGroup() as group:
        task = group.create_task(charge_card(order))
    assert_type(task, asyncio.Task[Charge])
    assert_type(await task, Charge)

    assert_type(ctx.event, Event)
    assert_type(ctx.run_id, str)
    assert_type(ctx.attempt, int)
    assert_type(ctx.idempotency_key, IdempotencyKey)


# --- transactional steps ---------------------------------------------------------------------------

app.transactions(lambda: sqlite3.connect("orders.db"))


@app.transaction
def book(connection: sqlite3.Connection, order: Order, cents: int = 0) -> Charge:
    return Charge(order.id)


@app.transaction(retry=Retry(max_tries=2), timeout="5s", connect=lambda: sqlite3.connect("orders.db"))
async def book_later(connection: sqlite3.Connection, order: Order) -> Charge:
    return Charge(order.id)


def count(connection: sqlite3.Connection, table: str) -> int:
    return len(table)


async def count_later(connection: sqlite3.Connection, table: str) -> int:
    return len(table)


async def transactions(ctx: Context, order: Order) -> None:
    assert_type(await ctx.step.transaction("book", book, order, cents=7), Charge)
    assert_type(await ctx.step.transaction("book", book_later, order), Charge)
    assert_type(await ctx.step.run("book", book, order), Charge)
    assert_type(await book_later(order), Charge)
    assert_type(await book_later.item(1)(order), Charge)
    assert_type(await ctx.step.transaction("count", count, "orders"), int)
    assert_type(await ctx.step.transaction("count", count_later, "orders"), int)
    assert_type(await ctx.step.transaction("count", count, "orders", item=1, timeout="1s"), int)
    assert_type(await ctx.step.transaction("count", count_later, "orders", retry=Retry()), int)


def plain_transactions(ctx: SyncContext, order: Order) -> None:
    assert_type(book(order), Charge)
    assert_type(ctx.step.transaction("book", book, order), Charge)
    assert_type(ctx.step.transaction("book", book_later, order), Charge)
    assert_type(ctx.step.transaction("count", count, "orders", item=1), int)


async def within(connection: sqlite3.Connection, order: Order) -> None:
    assert_type(await app.emit("order.paid", within=connection), Emitted[RunHandle[Any]])
    later = assert_type(await app.start(pack_order, order, within=connection), LaterRun[list[str]])
    assert_type(await later.run(), RunHandle[list[str]])
    assert_type(await app.start(three, 1, "b", b"c", id="x", within=connection), LaterRun[bool])
    assert_type(await app.start(on_checkout, {"a": 1}, within=connection), LaterRun[Charge])
    found = assert_type(app.sync.start(no_arguments, within=connection), SyncLaterRun[None])
    assert_type(found.run("5s"), SyncRunHandle[None])


# --- inside a plain workflow --------------------------------------------------------------------------


def plain_steps(ctx: SyncContext, order: Order) -> None:
    assert_type(ctx.step.run("load", load, "7"), Order)
    assert_type(ctx.step.run("load", load, "7", item=7), Order)
    assert_type(ctx.step.run("price", price, order, discount=0.5), float)
    assert_type(ctx.step.run("charge", charge_card, order), Charge)
    assert_type(pack(order), list[str])
    assert_type(ctx.step.sleep("nap", 1.5), None)
    assert_type(ctx.step.ensure("order", find, load, ("7",)), Order)
    assert_type(ctx.step.ensure("order", find_plainly, load, ("7",), retry=Retry()), Order)
    assert_type(ctx.step.uuid("id"), uuid.UUID)
    assert_type(ctx.step.uuid("id", version=7), uuid.UUID)
    assert_type(ctx.step.now("at"), datetime)
    assert_type(ctx.step.random("draw"), float)
    assert_type(ctx.step.emit("tell", "order.paid"), tuple[str, str])
    assert_type(ctx.step.start("start", add, 1), str)
    assert_type(ctx.step.call("call", add, 1, b=2), int)
    assert_type(ctx.step.call("call", pack_order, order, item=order.id), list[str])


# --- from outside -----------------------------------------------------------------------------------------


async def handles(order: Order) -> None:
    handle = assert_type(await app.start(add, 1, b=2), RunHandle[int])
    assert_type(await app.start(add, 1), RunHandle[int])
    assert_type(await app.start(add, 1, 2, id="x"), RunHandle[int])
    assert_type(await app.start(add, 1, id="x"), RunHandle[int])
    assert_type(await app.start(pack_order, order), RunHandle[list[str]])
    assert_type(await app.start(on_checkout, {"a": 1}, id="x"), RunHandle[Charge])
    assert_type(await app.start(no_arguments, id="x"), RunHandle[None])
    assert_type(await app.start(three, 1, "b", b"c", id="x"), RunHandle[bool])
    assert_type(await handle.result(), int)
    assert_type(await handle.result("5s"), int)
    assert_type(await handle.state(), RunState)
    assert_type(await handle.row(), RunRow)
    assert_type(await handle.steps(), list[StepRow])
    assert_type(await handle.attempts(), list[AttemptRow])
    assert_type(await handle.children(), list[RunRow])
    assert_type(await handle.retry(), Reply)
    assert_type(await handle.restart(actor="me"), Reply)
    plan = assert_type(await handle.plan("restart", keep=["a"]), Plan)
    assert_type(await handle.restart(plan=plan, request_id="x"), Reply)
    assert_type(await handle.restart(keep="a", plan=plan.token), Reply)
    assert_type(await handle.restart(drop=["a"], acknowledge=True), Reply)
    assert_type(await handle.replay(from_step="a"), RunHandle[int])
    assert_type(await handle.replay(plan=plan, drop={"a"}), RunHandle[int])
    assert_type(await handle.cancel(), Reply)
    assert_type(await handle.answer("retry"), Reply)
    assert_type(await handle.resume(actor="me"), Reply)
    assert_type(await handle.plan("answer", answer="happened", step="a"), Plan)
    assert_type(await handle.dismiss(), Reply)
    assert_type(app.run("run_x"), RunHandle[Any])
    assert_type(await app.runs(state="failed"), list[RunRow])
    assert_type(await app.event("stripe", "evt_1"), EventView)
    assert_type(await app.events(type="a"), list[EventRow])
    emitted = assert_type(await app.emit("order.paid", {"a": 1}), Emitted[RunHandle[Any]])
    assert_type(emitted.runs[0], RunHandle[Any])
    async with app as opened:
        assert_type(opened, App)


def sync_handles(order: Order) -> None:
    with app.sync as sync:
        assert_type(sync, SyncApp)
    handle = assert_type(app.sync.start(add, 1, b=2), SyncRunHandle[int])
    assert_type(app.sync.start(add, 1, id="x"), SyncRunHandle[int])
    assert_type(app.sync.start(on_checkout, {"a": 1}), SyncRunHandle[Charge])
    assert_type(handle.result(), int)
    assert_type(handle.replay(), SyncRunHandle[int])
    assert_type(handle.plan("resume"), Plan)
    assert_type(handle.restart(plan=handle.plan("restart")), Reply)
    assert_type(handle.steps(), list[StepRow])
    assert_type(app.sync.emit("order.paid").runs[0].result(), Any)
    assert_type(app.sync.runs(workflow="add"), list[RunRow])


# --- in a web framework -----------------------------------------------------------------------------


async def in_an_event_loop(order: Order) -> None:
    hooks = asgi.Adapter(app, runs=False)
    assert_type(await hooks.start(add, 1, b=2), RunHandle[int])
    assert_type(await hooks.start(pack_order, order, id="x"), RunHandle[list[str]])
    assert_type((await hooks.emit("order.paid", {"a": 1})).runs[0], RunHandle[Any])
    assert_type(hooks.run("run_x"), RunHandle[Any])
    assert_type(hooks.sync.start(add, 1), SyncRunHandle[int])
    async with hooks.lifespan() as nothing:
        assert_type(nothing, None)


def in_threads(order: Order) -> None:
    hooks = wsgi.Adapter(app)
    assert_type(hooks.start(add, 1, b=2), SyncRunHandle[int])
    assert_type(hooks.emit("order.paid").runs[0], SyncRunHandle[Any])
    assert_type(hooks.run("run_x"), SyncRunHandle[Any])
    with hooks.lifespan() as nothing:
        assert_type(nothing, None)


# --- waits and promises -----------------------------------------------------------------------------


@app.workflow(on="order.paid")
async def waiting(ctx: Context, event: Event) -> None:
    assert_type(await ctx.step.wait_for("packed", "packed", subject="o", timeout="7d"), Event)
    assert_type(await ctx.step.wait_for("paid", stripe["paid"], default=None), Event | None)
    assert_type(await ctx.step.wait_any("one", {"a": Expect("a"), "b": Expect("b")}), tuple[str, Event])
    assert_type(await ctx.step.wait_any("two", [Expect("a")]), tuple[int, Event])
    assert_type(await ctx.step.wait_any("three", [Expect("a")], default=0), tuple[int, Event] | int)
    approval = await ctx.step.promise("approval", timeout=timedelta(days=3))
    assert_type(approval, Promise)
    assert_type(approval.url, str)
    assert_type(approval.expires_at, datetime | None)


@app.workflow(on="order.paid")
def waiting_plainly(ctx: SyncContext, event: Event) -> None:
    assert_type(ctx.step.wait_for("packed", "packed", subject="o", timeout="7d"), Event)
    assert_type(ctx.step.wait_for("paid", stripe["paid"], default=0), Event | int)
    assert_type(ctx.step.wait_any("one", {"a": Expect("a")}), tuple[str, Event])
    assert_type(ctx.step.promise("approval"), SyncPromise)


async def completing(blocking: SyncApp) -> None:
    assert_type(await app.complete_promise("token", {"by": "ann"}), Completed)
    assert_type(await app.fail_promise("token", "no budget"), Completed)
    assert_type(blocking.complete_promise("token"), Completed)
    assert_type(blocking.fail_promise("token", "no"), Completed)
