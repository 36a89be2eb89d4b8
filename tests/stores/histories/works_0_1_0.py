"""The workflows of the histories that 0.1.0 left behind, and what has become of each run.

Not edited once it is released: these are users' workflows, and a newer Onceward has to carry their runs to the
ends that stand here. A new release adds a module and a file of its own, and leaves this one alone.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import psycopg

from onceward import (
    AUTO,
    App,
    Context,
    DidNotHappen,
    Event,
    Expect,
    Happened,
    IdempotencyKey,
    OutcomeUnknown,
    Permanent,
    Retry,
    RunHandle,
    StepFailed,
    SyncContext,
    WaitTimedOut,
)
from onceward import event as e
from onceward.sources import Stripe
from tests.lifecycle.ledger import Ledger

VERSION = "0.1.0"
SECRET = "whsec_" + "histories" * 3
SETTINGS: dict[str, Any] = {"promise_secret": "0123456789" * 4}
TABLE = "create table thing (id text primary key)"
"""The user's own, beside the store's tables."""

LATER = "1d"
"""The time that passes until the histories go on is longer, so what lasts that long is over then."""
MUCH_LATER = "60d"
"""… and what lasts that long is not."""

ONE_DAY = Retry(max_tries=3, base="1d", cap="1d")
ONCE = Retry(max_tries=1)


class Colour(Enum):
    RED = "red"


@dataclass
class Rich:
    """What a saved value can be made of."""

    price: Decimal
    at: datetime
    lasts: timedelta
    raw: bytes
    id: UUID
    colour: Colour
    names: tuple[str, ...]


RICH = Rich(
    Decimal("19.90"),
    datetime(2026, 2, 3, 4, 5, 6, 789, UTC),
    timedelta(days=1, microseconds=5),
    b"\x00\xff",
    UUID(int=7),
    Colour.RED,
    ("a", "b"),
)


class Works:
    """An app with the workflows.

    Args:
        app: on the store.
        ledger: where bodies are noted.
        hang: a body asks it, by the name of the run's story and its own words, whether it never ends.
    """

    def __init__(self, app: App, ledger: Ledger, hang: Callable[[str, str], bool] = lambda *_: False) -> None:
        self.app = app
        self.ledger = ledger
        self.hang = hang
        self.stripe = app.source(Stripe(secrets=[SECRET]))
        app.transactions(self.connect)
        on: dict[str, Any] = {
            "delivered": {"on": self.stripe["charge.succeeded"]},
            "listener": {"on": "told"},
            "backoff": {"retry": ONE_DAY},
            "late": {"deadline": LATER},
            "undoing": {"undo": "on_failure"},
            "regretting": {"undo": "on_failure"},
            "queueing": {"on": "queueing", "key": e.payload["key"], "once": "active", "clash": "queue"},
            "replacing": {"on": "replacing", "key": e.payload["key"], "once": "active", "clash": "replace"},
            "only": {"on": "only", "key": e.payload["key"]},
            "keyless": {"on": "keyless", "key": e.payload["nowhere"]},
            "newest": {"on": "newest", "version": e.payload["version"], "stale": "drop"},
        }
        names = [name for name in Works.__dict__ if name not in self._OTHERS and not name.startswith("_")]
        self.workflows = {
            name: app.workflow(name=name, **on.get(name, {}))(getattr(self, name)) for name in names
        }
        self.reserve = app.step(name="reserve")(self.act)
        self.reserve.undo(self.act_undo)
        self.charge = app.step(name="charge")(self.act)
        self.charge.undo(self.act_undo)

    _OTHERS = frozenset({"connect", "act", "act_plain", "act_undo", "refuse", "found", "put"})

    # --- bodies -------------------------------------------------------------------------------

    def connect(self) -> Any:
        store = str(self.app.settings.store)
        if store.startswith("sqlite"):
            return sqlite3.connect(store.removeprefix("sqlite:///"))
        return psycopg.connect(store)

    async def act(self, story: str, what: str, gives: Any = None) -> Any:
        """Be noted, and hang where the story says so."""
        with self.ledger.body():
            if self.hang(story, what):
                await asyncio.Event().wait()
        return f"{what} of {story}" if gives is None else gives

    def act_plain(self, story: str, what: str) -> str:
        with self.ledger.body():
            if self.hang(story, what):
                threading.Event().wait()
        return f"{what} of {story}"

    async def act_undo(self, made: Any, story: str, what: str) -> None:
        await self.act(story, f"undo {what}")

    async def refuse(self, story: str) -> None:
        with self.ledger.body():
            raise Permanent(f"declined for {story}")

    async def found(self, story: str, what: str) -> Happened[str] | DidNotHappen:
        return Happened(f"{what} of {story}, found") if "found" in story else DidNotHappen()

    def put(self, connection: Any, story: str) -> str:
        with self.ledger.body():
            mark = "?" if isinstance(connection, sqlite3.Connection) else "%s"
            connection.execute(f"insert into thing (id) values ({mark})", (story,))
        return f"put {story}"

    # --- steps --------------------------------------------------------------------------------

    async def three(self, ctx: Context, story: str) -> list[str]:
        return [await ctx.step.run(name, self.act, story, name) for name in ("a", "b", "c")]

    def three_plain(self, ctx: SyncContext, story: str) -> list[str]:
        return [ctx.step.run(name, self.act_plain, story, name) for name in ("a", "b", "c")]

    async def branches(self, ctx: Context, story: str) -> list[str]:
        async def branch(name: str) -> str:
            await ctx.step.run("first", self.act, story, f"first {name}", item=name)
            found: str = await ctx.step.run("second", self.act, story, f"second {name}", item=name)
            return found

        return list(await asyncio.gather(branch("x"), branch("y"), branch("z")))

    async def items(self, ctx: Context, story: str) -> list[str]:
        return [await ctx.step.run("one", self.act, story, f"one {n}", item=str(n)) for n in range(4)]

    async def again(self, ctx: Context, story: str) -> list[str]:
        return [await ctx.step.run("same", self.act, story, f"same {n}") for n in range(3)]

    async def race(self, ctx: Context, story: str) -> str:
        quick = asyncio.ensure_future(ctx.step.run("quick", self.act, story, "quick"))
        slow = asyncio.ensure_future(ctx.step.run("slow", self.act, story, "slow"))
        done, _ = await asyncio.wait([quick, slow], return_when=asyncio.FIRST_COMPLETED)
        winner = "quick" if quick in done else "slow"
        await ctx.step.run(f"after {winner}", self.act, story, f"after {winner}")
        await slow
        return winner

    async def drawn(self, ctx: Context, story: str) -> list[str]:
        found = [await ctx.step.uuid("id"), await ctx.step.now("now"), await ctx.step.random("dice")]
        kept: list[str] = await ctx.step.run("keep", self.act, story, "keep", [str(one) for one in found])
        await ctx.step.run("b", self.act, story, "b")
        assert kept == [str(one) for one in found]
        return kept

    async def rich(self, ctx: Context, story: str) -> bool:
        async def make() -> Rich:
            await self.act(story, "make")
            return RICH

        made: Rich = await ctx.step.run("make", make)
        await ctx.step.run("b", self.act, story, "b")
        return made == RICH

    async def ensured(self, ctx: Context, story: str) -> str:
        async def find(_: str, __: str) -> str | None:
            return None

        ticket = await ctx.step.ensure("ticket", find, self.act, (story, "ticket"))
        await ctx.step.run("b", self.act, story, "b")
        return str(ticket)

    async def booking(self, ctx: Context, story: str) -> str:
        booked: str = await ctx.step.transaction("put", self.put, story)
        await ctx.step.run("b", self.act, story, "b")
        return booked

    async def retrying(self, ctx: Context, story: str) -> int:
        async def flaky() -> int:
            await self.act(story, "flaky")
            if ctx.try_number < 2:
                raise OSError(f"try {ctx.try_number}")
            return ctx.try_number

        await ctx.step.run("a", self.act, story, "a")
        return await ctx.step.run("flaky", flaky, retry=ONE_DAY)

    async def backoff(self, ctx: Context, story: str) -> int:
        await ctx.step.run("a", self.act, story, "a")
        if ctx.attempt == 1:
            raise OSError("between steps")
        await ctx.step.run("b", self.act, story, "b")
        return ctx.attempt

    async def caught(self, ctx: Context, story: str) -> str:
        try:
            await ctx.step.run("declined", self.refuse, story)
        except StepFailed as error:
            await ctx.step.run("b", self.act, story, "b")
            return error.message
        return "not declined"

    async def failing(self, ctx: Context, story: str) -> int:
        async def boom() -> int:
            await self.act(story, "boom")
            if ctx.attempt == 1:
                raise Permanent("boom")
            return ctx.attempt

        await ctx.step.run("a", self.act, story, "a")
        return await ctx.step.run("boom", boom)

    # --- times and waits ----------------------------------------------------------------------

    async def sleeper(self, ctx: Context, story: str) -> str:
        await ctx.step.run("a", self.act, story, "a")
        await ctx.step.sleep("nap", LATER)
        found: str = await ctx.step.run("b", self.act, story, "b")
        return found

    def sleeper_plain(self, ctx: SyncContext, story: str) -> str:
        ctx.step.run("a", self.act_plain, story, "a")
        ctx.step.sleep("nap", LATER)
        return ctx.step.run("b", self.act_plain, story, "b")

    async def sleepers(self, ctx: Context, story: str) -> list[str]:
        async def branch(name: str) -> str:
            await ctx.step.sleep("nap", LATER, item=name)
            found: str = await ctx.step.run("after", self.act, story, f"after {name}", item=name)
            return found

        return list(await asyncio.gather(branch("x"), branch("y")))

    async def late(self, ctx: Context, story: str) -> None:
        await ctx.step.run("a", self.act, story, "a")
        await ctx.step.sleep("too long", MUCH_LATER)

    async def waiter(self, ctx: Context, story: str) -> Any:
        await ctx.step.run("a", self.act, story, "a")
        found = await ctx.step.wait_for("packed", "packed", subject=story)
        await ctx.step.run("b", self.act, story, "b")
        return found.payload

    async def picky(self, ctx: Context, story: str) -> Any:
        of = e.payload["of"]
        return (await ctx.step.wait_for("line", "line", where=of == story, timeout=MUCH_LATER)).payload

    async def charged(self, ctx: Context, story: str) -> str:
        found = await ctx.step.wait_for("charged", self.stripe["charge.captured"], subject=story)
        return str(found.id)

    async def expiring(self, ctx: Context, story: str) -> str:
        first = await ctx.step.wait_for("never", "never", subject=story, timeout=LATER, default="nothing")
        with suppress(WaitTimedOut):
            await ctx.step.wait_for("never again", "never", subject=story, timeout="1ms")
        return str(first)

    async def choosing(self, ctx: Context, story: str) -> list[Any]:
        expected = {"yes": Expect("yes", subject=story), "no": Expect("no", subject=story)}
        label, told = await ctx.step.wait_any("decision", expected, timeout=MUCH_LATER)
        return [label, told.payload]

    async def promising(self, ctx: Context, story: str) -> Any:
        approval = await ctx.step.promise("approval", timeout=LATER if "expired" in story else MUCH_LATER)
        await ctx.step.run("ask", self.act, story, "ask", approval.token)
        try:
            return await approval.result(default="nobody")
        except StepFailed as error:
            return error.message

    # --- other runs ---------------------------------------------------------------------------

    async def child(self, ctx: Context, story: str) -> str:
        await ctx.step.run("x", self.act, story, "x")
        if "asleep" in story:
            await ctx.step.sleep("nap", LATER)
        if "refused" in story:
            await ctx.step.run("declined", self.refuse, story)
        found: str = await ctx.step.run("y", self.act, story, "y")
        return found

    async def parent(self, ctx: Context, story: str) -> str:
        await ctx.step.run("a", self.act, story, "a")
        try:
            called: str = await ctx.step.call("child", self.workflows["child"], story)
        except StepFailed as error:
            called = error.message
        await ctx.step.run("b", self.act, story, "b")
        return called

    async def starter(self, ctx: Context, story: str) -> str:
        await ctx.step.start("child", self.workflows["child"], story)
        found: str = await ctx.step.run("b", self.act, story, "b")
        return found

    async def listener(self, ctx: Context, event: Event) -> str:
        found: str = await ctx.step.run("heard", self.act, event.payload["of"], "heard")
        return found

    async def emitter(self, ctx: Context, story: str) -> str:
        async def inside() -> str:
            await self.app.emit("told", {"of": story})
            return str(await self.act(story, "inside"))

        await ctx.step.emit("tell", "told", {"of": story})
        await ctx.step.run("inside", inside)
        found: str = await ctx.step.run("b", self.act, story, "b")
        return found

    async def delivered(self, ctx: Context, event: Event) -> str:
        await ctx.step.run("a", self.act, event.id, "a")
        found: str = await ctx.step.run("b", self.act, event.id, "b")
        return found

    # --- keys ---------------------------------------------------------------------------------

    async def queueing(self, ctx: Context, event: Event) -> str:
        found: str = await ctx.step.run("b", self.act, event.id, "b")
        return found

    async def replacing(self, ctx: Context, event: Event) -> str:
        try:
            await ctx.step.run("b", self.act, event.id, "b")
            await ctx.step.sleep("moment", "10ms")
        finally:
            await ctx.step.run("clean", self.act, event.id, "clean")
        return event.id

    async def only(self, ctx: Context, event: Event) -> str:
        found: str = await ctx.step.run("b", self.act, event.id, "b")
        return found

    async def keyless(self, ctx: Context, event: Event) -> str:
        return event.id

    async def newest(self, ctx: Context, event: Event) -> str:
        found: str = await ctx.step.run("b", self.act, event.id, "b")
        return found

    # --- outcomes that nobody knows, and clean-up ------------------------------------------------

    async def asking(self, ctx: Context, story: str) -> str:
        await ctx.step.run("a", self.act, story, "a")
        found: str = await ctx.step.run("pay", self.act, story, "pay", unknown="ask")
        return found

    async def doubtful(self, ctx: Context, story: str) -> str:
        async def letter() -> str:
            made = await self.act(story, "letter")
            if self.hang(story, "doubt"):
                raise OutcomeUnknown("the printer did not answer")
            return str(made)

        await ctx.step.run("a", self.act, story, "a")
        return await ctx.step.run("letter", letter, unknown="ask")

    async def looking(self, ctx: Context, story: str) -> str:
        await ctx.step.run("a", self.act, story, "a")
        found: str = await ctx.step.run("pay", self.act, story, "pay", unknown=self.found)
        return found

    async def trying_once(self, ctx: Context, story: str) -> str:
        await ctx.step.run("a", self.act, story, "a")
        found: str = await ctx.step.run("pay", self.act, story, "pay", retry=ONCE)
        return found

    async def remembered(self, ctx: Context, story: str) -> str:
        async def pay(*, key: IdempotencyKey = AUTO) -> str:
            return str(await self.act(story, "pay", key))

        await ctx.step.run("a", self.act, story, "a")
        return await ctx.step.run("pay", pay, key_scope="business", key_memory="1h")

    async def cleaner(self, ctx: Context, story: str) -> str:
        await ctx.step.run("a", self.act, story, "a")
        try:
            await ctx.step.sleep("wait", MUCH_LATER)
        finally:
            await ctx.step.run("clean", self.act, story, "clean")
            await ctx.step.run("tell", self.act, story, "tell")
        return "not cancelled"

    async def undoing(self, ctx: Context, story: str) -> None:
        await self.reserve(story, "reserve")
        await self.charge(story, "charge")
        await ctx.step.run("declined", self.refuse, story)

    async def regretting(self, ctx: Context, story: str) -> None:
        await self.reserve(story, "reserve")
        await ctx.step.sleep("wait", MUCH_LATER)

    async def undoing_by_itself(self, ctx: Context, story: str) -> list[str]:
        await self.reserve(story, "reserve")
        await self.charge(story, "charge")
        undone = await ctx.step.undo("regret")
        await ctx.step.run("b", self.act, story, "b")
        return list(undone)

    async def killer(self, ctx: Context, story: str) -> str:
        await ctx.step.run("a", self.act, story, "a")
        found: str = await ctx.step.run("die", self.act, story, "die")
        return found


Do = Callable[[Works, RunHandle[Any]], Awaitable[Any]]
