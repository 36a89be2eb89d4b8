"""The reference workflows of the crash tests: one app, one outside ledger, every verb of the context.

`Shop` builds a fresh app each time, so that tests in one process and workers in others share the
code. Bodies take a few milliseconds, so that a kill or a cancel can fall inside them.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from pathlib import Path
from typing import Any

from onceward import (
    AUTO,
    App,
    Context,
    DidNotHappen,
    Event,
    Happened,
    IdempotencyKey,
    Permanent,
    Retry,
    SyncContext,
)
from onceward import event as event_
from onceward.sources import Stripe
from tests.lifecycle.ledger import Ledger

SECRET = "whsec_" + "shop" * 8
BODY_S = 0.004
"""How long an ordinary body takes."""

MEMORY_MS = 500
"""How long whoever gets the payment of `forgotten` remembers its key."""

QUICK = Retry(max_tries=4, base="60ms", cap="60ms")
ONCE = Retry(max_tries=1)


class Shop:
    """An app with the reference workflows.

    Args:
        store: the store's URL.
        ledger: the file in which bodies are noted.
        body_s: how long an ordinary body takes.
        settings: settings of the app.
    """

    def __init__(self, store: str, ledger: Path, *, body_s: float = BODY_S, **settings: Any) -> None:
        self.app = App(store, **{"promise_secret": "0123456789" * 4, **settings})
        self.ledger = Ledger(ledger)
        self.body_s = body_s
        self.stripe = self.app.source(Stripe(secrets=[SECRET]))
        self.app.workflow(name="steps")(self.steps)
        self.app.workflow(name="plain")(self.plain)
        self.app.workflow(name="parallel")(self.parallel)
        self.app.workflow(name="race")(self.race)
        self.app.workflow(name="sleeper")(self.sleeper)
        self.app.workflow(name="retrier")(self.retrier)
        self.app.workflow(name="child")(self.child)
        self.app.workflow(name="parent")(self.parent)
        self.app.workflow(name="emitter")(self.emitter)
        self.app.workflow(name="listener", on=["shop.sold", "shop.noted"])(self.listener)
        self.app.workflow(name="cleaner")(self.cleaner)
        self.app.workflow(name="failing")(self.failing)
        self.app.workflow(name="backoff", retry=Retry(max_tries=3, base="120ms", cap="120ms"))(self.backoff)
        self.app.workflow(name="late", deadline="250ms")(self.late)
        self.app.workflow(name="values")(self.values)
        self.app.workflow(name="paid", on=self.stripe["charge.succeeded"])(self.paid)
        self.app.workflow(name="patient", retry=Retry(max_tries=3))(self.patient)
        for workflow in (
            self.ensured,
            self.forgotten,
            self.asking,
            self.looking,
            self.once,
            self.again,
            self.branches,
            self.deadly,
            self.calling,
            self.twice_called,
            self.undoing,
            self.slow,
            self.slow_plain,
            self.slow_once,
            self.slow_once_plain,
            self.many,
            self.killer,
            self.blocker,
            self.napper,
            self.awaiter,
        ):
            self.app.workflow(workflow)
        self.hold = self.app.step(name="hold")(self.make)
        self.hold.undo(self.unmake)
        self.charge = self.app.step(name="charge")(self.make)
        self.charge.undo(self.unmake)
        self.app.workflow(name="undone", undo="on_failure")(self.undone)
        self._known = dict(self.app.workflows)

    def __getitem__(self, name: str) -> Any:
        """Give a workflow by name, also one that this process was told not to run."""
        return self._known[name]

    # --- bodies --------------------------------------------------------------------------------

    async def act(self, value: Any = None, seconds: float | None = None) -> Any:
        """A step's body: noted, a little slow, gives its argument back."""
        with self.ledger.body():
            await asyncio.sleep(self.body_s if seconds is None else seconds)
        return value

    def act_plain(self, value: Any = None, seconds: float | None = None) -> Any:
        """The same in a thread."""
        with self.ledger.body():
            threading.Event().wait(self.body_s if seconds is None else seconds)
        return value

    async def refuse(self, text: str = "declined") -> None:
        """A step's body that fails for good."""
        with self.ledger.body():
            await asyncio.sleep(0)
        raise Permanent(text)

    def made(self) -> list[tuple[str, str]]:
        """Give what `make` made outside, each with the key that it came with."""
        path = self.ledger.path.with_suffix(".made")
        lines = path.read_text().splitlines() if path.exists() else []
        return [(what, key) for what, _, key in (line.partition(" ") for line in lines)]

    async def find_made(self, what: str) -> str | None:
        """Look whether something was made, as a service without keys allows."""
        return next((what for one, _ in self.made() if one == what), None)

    async def make(self, what: str, *, key: IdempotencyKey = AUTO) -> str:
        """Make something outside; made twice it is there twice."""
        with self.ledger.body():
            with self.ledger.path.with_suffix(".made").open("a") as file:
                file.write(f"{what} {key}\n")
            await asyncio.sleep(self.body_s)
        return what

    # --- workflows -----------------------------------------------------------------------------

    async def steps(self, ctx: Context, n: int) -> list[int]:
        """Three steps, one after the other."""
        return [await ctx.step.run(name, self.act, n + i) for i, name in enumerate(("a", "b", "c"))]

    def plain(self, ctx: SyncContext, n: int) -> list[int]:
        """The same as a plain function with plain bodies."""
        return [ctx.step.run(name, self.act_plain, n + i) for i, name in enumerate(("a", "b", "c"))]

    async def ensured(self, ctx: Context, n: int) -> list[str]:
        """One thing that is looked for before it is made, and one that only has a key."""
        ticket = await ctx.step.ensure(
            "ticket", self.find_made, self.make, (f"ticket-{n}",), key_memory="24h"
        )
        return [ticket, await ctx.step.run("payment", self.make, f"payment-{n}", key_memory="24h")]

    async def forgotten(self, ctx: Context, n: int) -> str:
        """A payment to somebody who soon forgets the key."""
        return await ctx.step.run("payment", self.make, f"payment-{n}", key_memory=MEMORY_MS / 1000)

    async def unmake(self, made: str, *, key: IdempotencyKey = AUTO) -> None:
        """Take back what was made."""
        await self.make(f"no-{made}", key=key)

    async def was_made(self, what: str) -> Happened[str] | DidNotHappen:
        """Say whether a payment was made, as a check function does."""
        found = await self.find_made(what)
        return DidNotHappen() if found is None else Happened(f"{found}, found")

    async def asking(self, ctx: Context, n: int) -> str:
        """A payment about which a person is asked."""
        return await ctx.step.run("payment", self.make, f"payment-{n}", unknown="ask")

    async def looking(self, ctx: Context, n: int) -> str:
        """A payment that is looked for."""
        return await ctx.step.run("payment", self.make, f"payment-{n}", unknown=self.was_made)

    async def once(self, ctx: Context, n: int) -> str:
        """A payment that is tried once."""
        return await ctx.step.run("payment", self.make, f"payment-{n}", retry=ONCE)

    async def again(self, ctx: Context, n: int) -> str:
        """A payment that is made again."""
        return await ctx.step.run("payment", self.make, f"payment-{n}")

    async def undone(self, ctx: Context, n: int) -> None:
        """Two things are made and taken back, since the third is refused."""
        await self.hold(f"hold-{n}")
        await self.charge(f"charge-{n}")
        await ctx.step.run("refused", self.refuse)

    async def parallel(self, ctx: Context, n: int) -> list[int]:
        """Three branches of two steps each."""

        async def branch(i: int) -> int:
            first: int = await ctx.step.run("first", self.act, n + i, self.body_s * (3 - i), item=i)
            second: int = await ctx.step.run("second", self.act, first * 10, item=i)
            return second

        return list(await asyncio.gather(*(branch(i) for i in range(3))))

    async def race(self, ctx: Context, n: int) -> str:
        """A race in a task group: who is first decides what runs next, at every attempt alike."""
        async with asyncio.TaskGroup() as group:
            quick = group.create_task(ctx.step.run("quick", self.act, "quick"))
            slow = group.create_task(ctx.step.run("slow", self.act, "slow", self.body_s * 4))
            done, _ = await asyncio.wait([quick, slow], return_when=asyncio.FIRST_COMPLETED)
            winner = "quick" if quick in done else "slow"
            await ctx.step.run(f"after {winner}", self.act, n)
        return winner

    async def sleeper(self, ctx: Context, n: int) -> int:
        """A sleep longer than the linger between two steps."""
        await ctx.step.run("before", self.act, n)
        await ctx.step.sleep("nap", "150ms")
        value: int = await ctx.step.run("after", self.act, n + 1)
        return value

    async def retrier(self, ctx: Context, n: int) -> int:
        """A step that fails twice before it works."""

        async def flaky() -> int:
            with self.ledger.body():
                await asyncio.sleep(0)
            if ctx.try_number < 3:
                raise OSError(f"try {ctx.try_number} of {n}")
            return n

        await ctx.step.run("before", self.act, n)
        return await ctx.step.run("flaky", flaky, retry=QUICK)

    async def child(self, ctx: Context, n: int) -> int:
        """What `parent` calls."""
        await ctx.step.run("x", self.act, n)
        await ctx.step.sleep("nap", "80ms")
        value: int = await ctx.step.run("y", self.act, n * 2)
        return value

    async def parent(self, ctx: Context, n: int) -> int:
        """A called run between two steps."""
        await ctx.step.run("before", self.act, n)
        doubled: int = await ctx.step.call("child", self["child"], n)
        value: int = await ctx.step.run("after", self.act, doubled + 1)
        return value

    async def emitter(self, ctx: Context, n: int) -> str:
        """Emits and starts, as steps and inside a body."""

        async def inside() -> str:
            with self.ledger.body():
                await self.app.emit("shop.noted", {"n": n})
                handle = await self.app.start(self["steps"], n)
            return handle.run_id

        await ctx.step.emit("sold", "shop.sold", {"n": n})
        started = await ctx.step.run("inside", inside)
        await ctx.step.start("detached", self["steps"], n)
        return started

    async def listener(self, ctx: Context, event: Event) -> int:
        """What the emits start."""
        value: int = await ctx.step.run("heard", self.act, event.payload["n"])
        return value

    async def cleaner(self, ctx: Context, n: int) -> int:
        """Sleeps until it is cancelled, then cleans up in two steps."""
        await ctx.step.run("reserve", self.act, n)
        try:
            await ctx.step.sleep("wait for payment", "1h")
            value: int = await ctx.step.run("ship", self.act, n)
            return value
        finally:
            await ctx.step.run("release", self.act, n)
            await ctx.step.sleep("pause", "30ms")
            await ctx.step.run("tell", self.act, n)

    async def awaiter(self, ctx: Context, n: int) -> int:
        """Waits for two events at once, and for a promise that it hands out."""
        await ctx.step.run("before", self.act, n)
        packed, line = await asyncio.gather(
            ctx.step.wait_for("packed", "shop.packed", subject=str(n), timeout="1m"),
            ctx.step.wait_for("line", "shop.line", where=event_.payload["of"] == n, timeout="1m"),
        )
        approval = await ctx.step.promise("approval", timeout="1m")
        await ctx.step.run("ask", self.act, approval.token)
        approved = await approval.result()
        value: int = await ctx.step.run("after", self.act, n)
        return value + packed.payload["n"] + line.payload["n"] + approved  # type: ignore[no-any-return]

    async def failing(self, ctx: Context, n: int) -> int:
        """A failure that is caught and one that is not, until somebody retries."""
        try:
            await ctx.step.run("declined", self.refuse)
        except Exception:  # noqa: BLE001 - the point of the workflow
            await ctx.step.run("other card", self.act, n)

        async def boom() -> int:
            with self.ledger.body():
                await asyncio.sleep(0)
            if ctx.attempt == 1:
                raise Permanent("boom")
            return n

        return await ctx.step.run("boom", boom)

    async def backoff(self, ctx: Context, n: int) -> int:
        """Code between steps that fails once, so that the run backs off."""
        await ctx.step.run("before", self.act, n)
        if ctx.attempt == 1:
            raise OSError("between steps")
        value: int = await ctx.step.run("after", self.act, n)
        return value

    async def late(self, ctx: Context, n: int) -> None:
        """Does not end before its deadline."""
        await ctx.step.run("before", self.act, n)
        await ctx.step.sleep("too long", "1h")

    async def values(self, ctx: Context, n: int) -> list[str]:
        """Drawn values, which must stay what they are."""
        drawn = [
            str(await ctx.step.uuid("id")),
            str(await ctx.step.now("now")),
            str(await ctx.step.random("dice")),
        ]
        again: list[str] = await ctx.step.run("keep", self.act, drawn)
        assert again == drawn, f"drawn {drawn}, kept {again}"
        return drawn

    async def slow(self, ctx: Context, seconds: float) -> float:
        """One long step between two short ones."""
        await ctx.step.run("before", self.act)
        await ctx.step.run("long", self.act, None, seconds)
        value: float = await ctx.step.run("after", self.act, seconds)
        return value

    def slow_plain(self, ctx: SyncContext, seconds: float) -> float:
        """The same with plain bodies, which nothing can cut off."""
        ctx.step.run("before", self.act_plain)
        ctx.step.run("long", self.act_plain, None, seconds)
        value: float = ctx.step.run("after", self.act_plain, seconds)
        return value

    async def slow_once(self, ctx: Context, seconds: float) -> float:
        """Like `slow`, for a body that is cut off: when it begins again it is quick."""
        await ctx.step.run("before", self.act)
        await ctx.step.run("long", self.act_once, seconds)
        value: float = await ctx.step.run("after", self.act, seconds)
        return value

    def slow_once_plain(self, ctx: SyncContext, seconds: float) -> float:
        """The same with plain bodies, which nothing can cut off."""
        ctx.step.run("before", self.act_plain)
        ctx.step.run("long", self.act_once_plain, seconds)
        value: float = ctx.step.run("after", self.act_plain, seconds)
        return value

    async def act_once(self, seconds: float) -> None:
        """Be long the first time."""
        with self.ledger.body():
            await asyncio.sleep(seconds if self.ledger.starts("long") == 1 else 0)

    def act_once_plain(self, seconds: float) -> None:
        """The same in a thread."""
        with self.ledger.body():
            threading.Event().wait(seconds if self.ledger.starts("long") == 1 else 0)

    async def patient(self, ctx: Context, seconds: float) -> float:
        """Like `slow`, with at most three attempts."""
        return await self.slow(ctx, seconds)

    async def branches(self, ctx: Context, n: int) -> None:
        """Three branches that wait, each with a clean-up of its own."""

        async def branch(i: int) -> None:
            try:
                await ctx.step.sleep("wait", "1h", item=i)
            finally:
                await ctx.step.run("undo", self.act, n, self.body_s * (3 - i), item=i)

        await asyncio.gather(*(branch(i) for i in range(3)))

    async def deadly(self, ctx: Context) -> None:
        """A clean-up that kills its process."""

        async def die() -> None:
            with self.ledger.body():
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            await ctx.step.sleep("wait", "1h")
        finally:
            await ctx.step.run("die", die)

    async def calling(self, ctx: Context, workflow: str, seconds: float) -> Any:
        """Calls another workflow and gives its answer."""
        return await ctx.step.call("call", self[workflow], seconds)

    async def twice_called(self, ctx: Context, seconds: float) -> list[Any]:
        """Calls two others at once."""
        called = (ctx.step.call(f"call {n}", self["slow"], seconds * n) for n in (1, 2))
        return list(await asyncio.gather(*called))

    async def undoing(self, ctx: Context, seconds: float) -> None:
        """Long work with a long clean-up."""
        try:
            await ctx.step.run("work", self.act, None, 60.0)
        finally:
            await ctx.step.run("undo", self.act, None, seconds)
        await ctx.step.run("never", self.act)

    async def many(self, ctx: Context, count: int, seconds: float) -> int:
        """A loop of steps."""
        for number in range(count):
            await ctx.step.run("one", self.act, number, seconds, item=number)
        return count

    async def killer(self, ctx: Context, n: int) -> None:
        """Kills whatever process runs it."""

        async def die() -> None:
            with self.ledger.body():
                os.kill(os.getpid(), signal.SIGKILL)

        await ctx.step.run("die", die)

    async def blocker(self, ctx: Context, seconds: float) -> int:
        """Blocks the event loop, as careless code does."""

        async def block() -> int:
            with self.ledger.body():
                threading.Event().wait(seconds)
            return os.getpid()

        return await ctx.step.run("block the loop", block)

    async def napper(self, ctx: Context, seconds: float) -> int:
        """Sleeps, then does one thing."""
        await ctx.step.sleep("nap", seconds)
        value: int = await ctx.step.run("woken", self.act, 1)
        return value

    async def paid(self, ctx: Context, event: Event) -> str:
        """What a delivery starts."""
        value: str = await ctx.step.run("book", self.act, event.id)
        return value
