"""Reference workflows: every durable verb, alone and mixed, with outcomes that an outsider can judge.

The simulation and the crash tests of real processes run the same ones. What a run does is in its
payload, the program: how long bodies take, which fail and how often, which kill their process. So
a program is finite by itself and any trouble beyond it is the engine's. Bodies tell a `Hands` that
they begin and end; what that is (a list in memory, a file that survives SIGKILL) is the caller's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from onceward.app import App
from onceward.authoring.context import Context
from onceward.authoring.event import Event
from onceward.authoring.expect import Expect
from onceward.authoring.workflow import Workflow
from onceward.core.errors import Permanent, RetryLater, RunCancelled, StepFailed
from onceward.core.paths import event as expressions
from onceward.core.retry import Retry
from onceward.core.unknown import DidNotHappen, Happened
from onceward.sources.hmac_source import Hmac

SHOP = "shop"
"""The source whose events start the reference workflows: type ``order.<workflow>``."""

STEP_TRIES = 3
STEP_RETRY = Retry(max_tries=STEP_TRIES, base="80ms", cap="300ms")
RUN_RETRY = Retry(max_tries=3, base="100ms", cap="400ms")


class Hands:
    """What bodies do to the outside; this one does nothing."""

    def asks(self, ctx: Context, key: str) -> None:
        """Note that the workflow's code asks for a step."""

    def begin(self, ctx: Context, key: str, max_tries: int) -> None:
        """Note that a body begins."""

    def end(self, ctx: Context, key: str, outcome: str) -> None:
        """Note that a body ended with *outcome*: ``ok`` or ``failed``."""

    def saw(self, ctx: Context, key: str, value: Any) -> None:
        """Note that the workflow's code was given a step's value."""

    def caught(self, ctx: Context, key: str) -> None:
        """Note that the workflow's code caught a step's failure and goes on."""

    def begins_once(self, ctx: Context, key: str) -> None:
        """Note that a body begins that must not have taken effect before."""

    def effect(self, ctx: Context, key: str) -> None:
        """Note that a step takes effect outside."""

    def undo(self, ctx: Context, key: str) -> None:
        """Note that a step's effect is given back."""

    def has_effect(self, ctx: Context, key: str) -> bool:  # noqa: ARG002 - the real ones look
        """Say whether a step took effect."""
        return False

    def die(self, ctx: Context) -> None:
        """End this process as SIGKILL would."""

    def block(self, ms: int) -> None:
        """Let a plain body take its time."""


class Program:
    """What one run does.

    Args:
        payload: ``ms`` (body durations by step name, ``*`` for all others), ``fail`` (step name to
            ``[kind, count]``: ``error`` and ``later`` fail that many tries of every attempt,
            ``permanent`` fails in that many attempts), ``poison`` (the step that kills its
            process), ``n`` (items of loops), ``nap_ms``, ``limit_ms`` (of a time-out), ``ends``
            (how a saga ends: ``well``, ``badly``, or ``badly once``, in its first attempt).
    """

    def __init__(self, payload: Any) -> None:
        self.payload: Mapping[str, Any] = payload if isinstance(payload, dict) else {}
        self.items = int(self.payload.get("n", 2))
        self.nap_ms = int(self.payload.get("nap_ms", 50))
        self.limit_ms = int(self.payload.get("limit_ms", 60))

    def ms(self, key: str) -> int:
        """Give how long a body takes."""
        durations: Mapping[str, int] = self.payload.get("ms", {})
        return durations.get(key, durations.get("*", 0))

    def misbehave(self, ctx: Context, key: str, hands: Hands) -> None:
        """Fail or die where the program says so."""
        if self.payload.get("poison") == key:
            hands.die(ctx)
        kind, count = self.payload.get("fail", {}).get(key, ("", 0))
        fails = ctx.attempt <= count if kind == "permanent" else ctx.try_number <= count
        if not fails:
            return
        hands.end(ctx, key, "failed")
        if kind == "permanent":
            raise Permanent(f"{key} can never work in attempt {ctx.attempt}")
        if kind == "later":
            raise RetryLater("120ms", f"{key} asks for patience at try {ctx.try_number}")
        if kind == "error":
            raise ValueError(f"{key} fails at try {ctx.try_number}")


KEY = expressions.payload["order"]


class References:
    """The reference workflows on one app.

    Args:
        app: a new app; gets the source ``shop`` and the workflows.
        hands: what bodies do to the outside.
    """

    def __init__(self, app: App, hands: Hands) -> None:
        self.app = app
        self.hands = hands
        self.shop = app.source(
            Hmac(name=SHOP, header="x-signature", id_from="/id", type_from="/type", insecure=True)
        )
        self._add_simple()
        self._add_parallel()
        self._add_failing()
        self.child = self._add_family()
        self._add_herald()
        self._add_keyed()
        self._add_doubtful()
        self._add_waiting()

    # --- bodies ---------------------------------------------------------------------------------

    async def act(self, ctx: Context, program: Program, key: str, max_tries: int = STEP_TRIES) -> str:
        """Take its time, perhaps fail, and give a value that only this execution of it gives."""
        self.hands.begin(ctx, key, max_tries)
        ms = program.ms(key)
        if ms:
            await asyncio.sleep(ms / 1000)
        program.misbehave(ctx, key, self.hands)
        self.hands.end(ctx, key, "ok")
        return f"{key}/{ctx.generation}/{ctx.attempt}/{ctx.try_number}"

    async def affect(self, ctx: Context, program: Program, key: str, *, is_once: bool = True) -> str:
        """Take effect outside, in the middle of its time."""
        self.hands.begin(ctx, key, STEP_TRIES)
        if is_once:
            self.hands.begins_once(ctx, key)
        await asyncio.sleep(program.ms(key) / 2_000)
        program.misbehave(ctx, key, self.hands)
        self.hands.effect(ctx, key)
        await asyncio.sleep(program.ms(key) / 2_000)
        self.hands.end(ctx, key, "ok")
        return f"{key}/{ctx.generation}"

    async def look(self, ctx: Context, program: Program, key: str, **_: bool) -> Happened[str] | DidNotHappen:
        """Look whether a step took effect, as a check function does."""
        await asyncio.sleep(program.ms("look") / 1_000)
        return Happened(f"{key}/{ctx.generation}") if self.hands.has_effect(ctx, key) else DidNotHappen()

    async def give_back(self, _: str, ctx: Context, program: Program, key: str) -> None:
        """Undo what `affect` did."""
        self.hands.begin(ctx, f"{key} (undo)", STEP_TRIES)
        await asyncio.sleep(program.ms(f"{key} (undo)") / 1_000)
        program.misbehave(ctx, f"{key} (undo)", self.hands)
        self.hands.undo(ctx, key)
        self.hands.end(ctx, f"{key} (undo)", "ok")

    def act_plain(self, ctx: Context, program: Program, key: str, max_tries: int = STEP_TRIES) -> str:
        """Do the same as a plain function."""
        self.hands.begin(ctx, key, max_tries)
        self.hands.block(program.ms(key))
        program.misbehave(ctx, key, self.hands)
        self.hands.end(ctx, key, "ok")
        return f"{key}/{ctx.generation}/{ctx.attempt}/{ctx.try_number}"

    async def step(self, ctx: Context, program: Program, name: str, item: str = "") -> str:
        """Run `act` as a step and note what came of it."""
        key = f"{name}[{item}]" if item else name
        self.hands.asks(ctx, key)
        if item:
            value = await ctx.step.run(name, self.act, ctx, program, key, item=item, retry=STEP_RETRY)
        else:
            value = await ctx.step.run(name, self.act, ctx, program, key, retry=STEP_RETRY)
        self.hands.saw(ctx, key, value)
        return value

    async def plain_step(self, ctx: Context, program: Program, name: str) -> str:
        """Run `act_plain` as a step and note what came of it."""
        self.hands.asks(ctx, name)
        value = await ctx.step.run(name, self.act_plain, ctx, program, name, retry=STEP_RETRY)
        self.hands.saw(ctx, name, value)
        return value

    # --- one thing after another ----------------------------------------------------------------

    def _add_simple(self) -> None:
        app, shop, step = self.app, self.shop, self.step

        @app.workflow(on=shop["order.sequence"], name="sequence")
        async def sequence(ctx: Context, event: Event) -> list[str]:
            program = Program(event.payload)
            return [
                await step(ctx, program, "reserve"),
                await self.plain_step(ctx, program, "charge"),
                await step(ctx, program, "ship"),
            ]

        @app.workflow(on=shop["order.naps"], name="naps")
        async def naps(ctx: Context, event: Event) -> str:
            program = Program(event.payload)
            await step(ctx, program, "before")
            await ctx.step.sleep("nap", program.nap_ms / 1000)
            await step(ctx, program, "between")
            await asyncio.gather(
                ctx.step.sleep("side nap", program.nap_ms / 2000),
                step(ctx, program, "beside"),
                ctx.step.sleep("long nap", program.nap_ms / 500),
            )
            return await step(ctx, program, "after")

        @app.workflow(on=shop["order.drawn"], name="drawn")
        async def drawn(ctx: Context, event: Event) -> list[str]:
            program = Program(event.payload)
            invoice = await ctx.step.uuid("invoice id")
            self.hands.saw(ctx, "invoice id", str(invoice))
            at = await ctx.step.now("at")
            self.hands.saw(ctx, "at", at.isoformat())
            await step(ctx, program, "invoice")
            lot = await ctx.step.random("lot")
            self.hands.saw(ctx, "lot", lot)
            await step(ctx, program, "draw" if lot < 0.5 else "pass")
            return [str(invoice), at.isoformat(), str(lot)]

        @app.workflow(on=shop["order.late"], name="late", deadline="2s")
        async def late(ctx: Context, event: Event) -> str:
            program = Program(event.payload)
            await step(ctx, program, "hurry")
            await ctx.step.sleep("dawdle", program.nap_ms / 250)
            return await step(ctx, program, "arrive")

    # --- at the same time ---------------------------------------------------------------------------

    def _add_parallel(self) -> None:
        app, shop, step = self.app, self.shop, self.step

        @app.workflow(on=shop["order.fan"], name="fan")
        async def fan(ctx: Context, event: Event) -> list[str]:
            program = Program(event.payload)
            await step(ctx, program, "split")
            parts = await asyncio.gather(
                *(step(ctx, program, "part", str(item)) for item in range(program.items))
            )
            return [*parts, await step(ctx, program, "join")]

        @app.workflow(on=shop["order.race"], name="race")
        async def race(ctx: Context, event: Event) -> str:
            program = Program(event.payload)
            racers = [asyncio.create_task(step(ctx, program, name)) for name in ("left", "right")]
            done, pending = await asyncio.wait(racers, return_when=asyncio.FIRST_COMPLETED)
            first = 0 if racers[0] in done else 1
            for task in pending:
                task.cancel()
            await asyncio.gather(*racers, return_exceptions=True)
            outcome = racers[first].result()
            await step(ctx, program, ("after left", "after right")[first])
            return outcome

        @app.workflow(on=shop["order.relay"], name="relay")
        async def relay(ctx: Context, event: Event) -> list[str]:
            program = Program(event.payload)
            legs = [
                asyncio.create_task(step(ctx, program, "leg", str(item))) for item in range(program.items)
            ]
            order: list[str] = []
            for leg in asyncio.as_completed(legs):
                order.append((await leg).split("/")[0])
                await step(ctx, program, f"after {len(order)}: {order[-1]}")
            return order

        @app.workflow(on=shop["order.hurry"], name="hurry")
        async def hurry(ctx: Context, event: Event) -> str:
            program = Program(event.payload)
            try:
                async with asyncio.timeout(program.limit_ms / 1000):
                    await step(ctx, program, "slow")
            except TimeoutError:
                return await step(ctx, program, "after late")
            return await step(ctx, program, "after in time")

        @app.workflow(on=shop["order.nest"], name="nest", retry=RUN_RETRY)
        async def nest(ctx: Context, event: Event) -> list[str]:
            program = Program(event.payload)

            async def branch(item: str) -> str:
                first = await step(ctx, program, "outer", item)
                twice = await asyncio.gather(
                    step(ctx, program, "inner", f"{item}a"), step(ctx, program, "inner", f"{item}b")
                )
                return "+".join([first, *twice])

            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(branch(str(item))) for item in range(program.items)]
            return [*(task.result() for task in tasks), await step(ctx, program, "close")]

    # --- failing and being ended ------------------------------------------------------------------

    def _add_failing(self) -> None:
        app, shop, step = self.app, self.shop, self.step

        @app.workflow(on=shop["order.stubborn"], name="stubborn", retry=RUN_RETRY)
        async def stubborn(ctx: Context, event: Event) -> str:
            program = Program(event.payload)
            is_lucky = True
            try:
                await step(ctx, program, "luck")
            except StepFailed:
                self.hands.caught(ctx, "luck")
                is_lucky = False
            if not is_lucky:
                await step(ctx, program, "plan b")
            return await step(ctx, program, "settle")

        @app.workflow(on=shop["order.patient"], name="patient", retry=RUN_RETRY)
        async def patient(ctx: Context, event: Event) -> str:
            program = Program(event.payload)
            await step(ctx, program, "ask")
            limit = program.limit_ms / 1000
            self.hands.asks(ctx, "answer")
            answer = await ctx.step.run(
                "answer", self.act, ctx, program, "answer", retry=STEP_RETRY, timeout=limit
            )
            self.hands.saw(ctx, "answer", answer)
            return answer

        @app.workflow(on=shop["order.undo"], name="undo")
        async def undo(ctx: Context, event: Event) -> str:
            program = Program(event.payload)
            try:
                await step(ctx, program, "book")
                await ctx.step.sleep("think", program.nap_ms / 1000)
                return await step(ctx, program, "pay")
            except RunCancelled:
                await step(ctx, program, "clean up: unbook")
                raise
            finally:
                await step(ctx, program, "clean up: close")

    # --- children and emits ---------------------------------------------------------------------------

    def _add_family(self) -> Workflow[[dict[str, Any]], str]:
        app, shop, step = self.app, self.shop, self.step

        @app.workflow(name="child")
        async def child(ctx: Context, program: dict[str, Any]) -> str:
            plan = Program(program)
            await step(ctx, plan, "grow")
            if plan.payload.get("naps"):
                await ctx.step.sleep("doze", plan.nap_ms / 1000)
            return await step(ctx, plan, "leave home")

        @app.workflow(on=shop["order.parent"], name="parent", retry=RUN_RETRY)
        async def parent(ctx: Context, event: Event) -> list[str]:
            program = Program(event.payload)
            inner = dict(program.payload.get("child", {}))
            found = []
            try:
                outcome = await ctx.step.call("raise", child, inner)
                self.hands.saw(ctx, "raise", outcome)
                found.append(outcome)
            except StepFailed:
                self.hands.caught(ctx, "raise")
            await ctx.step.start("send off", child, inner)
            pair = await asyncio.gather(
                *(ctx.step.call("twin", child, inner, item=str(item)) for item in range(program.items)),
                return_exceptions=True,
            )
            for one in pair:
                if isinstance(one, BaseException) and not isinstance(one, Exception):
                    raise one  # the end of the run is not a twin's failure
            found += [one for one in pair if isinstance(one, str)]
            return [*found, await step(ctx, program, "rest")]

        return child

    def _add_herald(self) -> None:
        app, shop, step = self.app, self.shop, self.step

        async def announce(ctx: Context, program: Program, key: str) -> str:
            ms = program.payload.get("ms", {})
            await app.emit("news", {"by": [ctx.run_id, ctx.generation, key, 1], "ms": ms})
            value = await self.act(ctx, program, key)  # takes time and may fail: then nothing was emitted
            await app.emit("news", {"by": [ctx.run_id, ctx.generation, key, 2], "ms": ms})
            await app.start(self.child, {"by": [ctx.run_id, ctx.generation, key, 3]})
            return value

        @app.workflow(on=shop["order.herald"], name="herald")
        async def herald(ctx: Context, event: Event) -> str:
            program = Program(event.payload)
            value = await ctx.step.run("announce", announce, ctx, program, "announce", retry=STEP_RETRY)
            self.hands.saw(ctx, "announce", value)
            await ctx.step.emit("echo", "news", {"by": [ctx.run_id, ctx.generation, "echo", 1]})
            return await step(ctx, program, "bow")

        @app.workflow(on="news", name="listener")
        async def listener(ctx: Context, event: Event) -> str:
            return await step(ctx, Program(event.payload), "hear")

    # --- keys -----------------------------------------------------------------------------------

    def _add_keyed(self) -> None:
        app, shop, step = self.app, self.shop, self.step

        @app.workflow(on=shop["order.turn"], name="turn", key=KEY, once="active", clash="queue")
        async def turn(ctx: Context, event: Event) -> str:
            program = Program(event.payload)
            await step(ctx, program, "enter")
            await ctx.step.sleep("stay", program.nap_ms / 1000)
            return await step(ctx, program, "leave")

        @app.workflow(on=shop["order.newest"], name="newest", key=KEY, once="active", clash="replace")
        async def newest(ctx: Context, event: Event) -> str:
            program = Program(event.payload)
            await step(ctx, program, "begin")
            await ctx.step.sleep("wait", program.nap_ms / 1000)
            return await step(ctx, program, "finish")

        @app.workflow(name="shared", key=KEY, once="active")
        async def shared(ctx: Context, event: Event) -> str:
            program = Program(event.payload)
            await step(ctx, program, "open")
            await ctx.step.sleep("hold", program.nap_ms / 1000)
            return await step(ctx, program, "close")

        @app.workflow(on=shop["order.shares"], name="shares")
        async def shares(ctx: Context, event: Event) -> list[Any]:
            program = Program(event.payload)
            before = await step(ctx, program, "ask")
            try:
                return [before, await ctx.step.call("shared", shared, event.payload)]
            except StepFailed as error:
                return [before, error.error_type]

    # --- unknown outcomes -------------------------------------------------------------------------

    def _add_doubtful(self) -> None:
        app, shop, step = self.app, self.shop, self.step
        book = app.step(name="book", retry=STEP_RETRY)(self.affect)
        book.undo(retry=STEP_RETRY)(self.give_back)
        pay = app.step(name="pay", retry=STEP_RETRY, unknown=self.look)(self.affect)
        pay.undo(retry=STEP_RETRY)(self.give_back)

        @app.workflow(on=shop["order.asked"], name="asked")
        async def asked(ctx: Context, event: Event) -> str:
            program = Program(event.payload)
            await step(ctx, program, "order")
            await ctx.step.run("pay", self.affect, ctx, program, "pay", retry=STEP_RETRY, unknown="ask")
            return await step(ctx, program, "send")

        @app.workflow(on=shop["order.checked"], name="checked")
        async def checked(ctx: Context, event: Event) -> str:
            program = Program(event.payload)
            limit, look = program.limit_ms / 1_000, self.look
            return await ctx.step.run(
                "pay", self.affect, ctx, program, "pay", retry=STEP_RETRY, unknown=look, timeout=limit
            )

        @app.workflow(on=shop["order.saga"], name="saga", undo="on_failure")
        async def saga(ctx: Context, event: Event) -> str:
            program = Program(event.payload)
            ends = program.payload.get("ends", "well")
            await book(ctx, program, "book", is_once=False)
            await pay(ctx, program, "pay")
            await ctx.step.sleep("think", program.nap_ms / 1000)
            if ends == "badly" or (ends == "badly once" and ctx.attempt == 1):
                raise OSError("between steps")
            return await step(ctx, program, "send")

    # --- waits ----------------------------------------------------------------------------------

    def _add_waiting(self) -> None:
        app, shop, step = self.app, self.shop, self.step

        @app.workflow(on=shop["order.waiter"], name="waiter")
        async def waiter(ctx: Context, event: Event) -> list[int]:
            program = Program(event.payload)
            subject = str(program.payload.get("order", ""))
            await step(ctx, program, "ask")
            await ctx.step.sleep("pause", program.nap_ms / 500)
            answers = await asyncio.gather(
                *(
                    ctx.step.wait_for("answer", "answer", subject=subject, item=str(item))
                    for item in range(program.items)
                )
            )
            await step(ctx, program, "thank")
            of_subject = expressions.payload["of"] == subject
            label, remark = await ctx.step.wait_any(
                "remark",
                {"never": Expect("never", subject=subject), "some": Expect("remark", where=of_subject)},
            )
            return [*(answer.payload["n"] for answer in answers), remark.payload["n"], label == "some"]


DOUBTFUL = ("asked", "checked", "saga")
"""Workflows with steps of unknown outcome, for worlds of their own."""

WAITING = ("waiter",)
"""Workflows that wait for events, for worlds of their own, in which somebody sends those."""

KEYED = ("turn", "newest", "shares")
"""Workflows with a key, for worlds of their own."""

TRIGGERED = (
    "sequence",
    "naps",
    "drawn",
    "late",
    "fan",
    "race",
    "relay",
    "hurry",
    "nest",
    "stubborn",
    "patient",
    "undo",
    "parent",
    "herald",
)
"""Workflows that an event of the shop starts; with ``child`` and ``listener`` that makes sixteen."""
