"""What a plan says, that it comes true, and that nobody restarts outside effects without one."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from typing import Any

import msgspec
import pytest

from onceward import (
    AUTO,
    App,
    ConfigError,
    Context,
    IdempotencyKey,
    NotFound,
    OutcomeUnknown,
    Permanent,
    Plan,
    PlanNeeded,
    Retry,
    RunHandle,
    RunState,
    StateConflict,
    StepFailed,
    event,
)
from onceward.core.plan import ChildFate, Fate
from onceward.core.states import TABLE, Verb
from onceward.planning import PlannedVerb
from tests.engine.running import make_app, run_app
from tests.helpers import eventually_async


class Shop:
    """Workflows whose bodies count themselves."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.bodies: Counter[str] = Counter()
        self.keys: list[str] = []
        self.fails = False
        self.gate = asyncio.Event()
        count = self.count

        @app.step(effect="pure")
        async def price(order: str) -> int:
            return count("price")

        @app.step(key_scope="business", key_memory="1h")
        async def charge(order: str, *, key: IdempotencyKey = AUTO) -> int:
            self.keys.append(key)
            return count("charge")

        @app.step(effect="own_database")
        async def book(order: str) -> int:
            return count("book")

        @app.step
        async def mail(order: str, *, key: IdempotencyKey = AUTO) -> int:
            self.keys.append(key)
            if self.fails:
                raise Permanent("no mail today")
            return count("mail")

        @app.workflow
        async def buy(ctx: Context, order: str) -> list[int]:
            await ctx.step.uuid("id")
            return [await price(order), await charge(order), await book(order), await mail(order)]

        @app.workflow
        async def loops(ctx: Context) -> list[int]:
            async def ship(part: int) -> int:
                return count(f"ship {part}")

            first = [await ctx.step.run("ship", ship, part) for part in (1, 2)]
            return first + [await ctx.step.run("ship", ship, part, item=f"part-{part}") for part in (3, 4)]

        @app.workflow
        async def child(ctx: Context) -> str:
            await self.gate.wait()
            return "child"

        @app.workflow
        async def parent(ctx: Context) -> str:
            await ctx.step.start("detached", child)
            return await ctx.step.call("called", child)

        @app.workflow
        async def calm(ctx: Context) -> None:
            await ctx.step.now("then")
            await ctx.step.sleep("nap", "1ms")

        @app.workflow
        async def caught(ctx: Context) -> str:
            try:
                await mail("A-1")
            except StepFailed:
                return f"no mail {count('caught')}"
            return "mailed"

        @app.workflow
        async def gated(ctx: Context) -> str:
            async def wait() -> str:
                count("wait")
                await self.gate.wait()
                return "through"

            return await ctx.step.run("wait", wait)

        self.buy, self.loops, self.parent, self.calm = buy, loops, parent, calm
        self.caught, self.gated = caught, gated

    def count(self, name: str) -> int:
        self.bodies[name] += 1
        return self.bodies[name]


def fates(plan: Plan) -> dict[str, str]:
    return {one.step: one.fate.value for one in plan.steps}


async def becomes(run: RunHandle[Any], *states: RunState) -> None:
    async def arrived() -> bool:
        return await run.state() in states

    await eventually_async(arrived, what=f"{run} is {states}")


def test_a_plan_names_fate_effect_and_key_of_each_step(store_url: str) -> None:
    app = make_app(store_url)
    shop = Shop(app)

    async def scenario() -> None:
        run = await app.start(shop.buy, "A-1")
        assert await run.result() == [1, 1, 1, 1]
        plan = await run.plan("restart")

        told = {one.step: (one.effect.value, one.happens_again, one.keeps_key) for one in plan.steps}
        assert told == {
            "id": ("pure", False, None),
            "price": ("pure", False, False),
            "charge": ("outside", True, True),
            "book": ("own_database", True, False),
            "mail": ("outside", True, False),
        }
        assert set(fates(plan).values()) == {"runs again"}
        assert (plan.generation, plan.attempt, plan.outside_again) == (2, 1, ["charge", "mail"])
        assert plan.needs_consent
        by_name = {one.step: one for one in plan.steps}
        assert [by_name["charge"].key, by_name["mail"].key] == shop.keys
        assert [by_name["charge"].is_key_known, by_name["mail"].is_key_known] == [True, None]
        assert "charge" in str(plan)
        assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan) == plan
        assert (await run.state(), await run.row()) == (RunState.COMPLETED, await run.row())

        await run.restart(plan=plan)
        assert await run.result() == [2, 2, 2, 2]
        assert shop.keys[2] == shop.keys[0]
        assert shop.keys[3] != shop.keys[1]

    run_app(app, scenario)


def test_a_restart_that_repeats_outside_effects_asks_for_its_plan(store_url: str) -> None:
    app = make_app(store_url)
    shop = Shop(app)

    async def scenario() -> None:
        run = await app.start(shop.buy, "A-1")
        await run.result()
        with pytest.raises(PlanNeeded, match=r"'charge', 'mail'.*restart\(plan=plan\)") as caught:
            await run.restart()
        assert (await run.row()).generation == 1
        assert caught.value.code == "plan_needed"
        assert isinstance(caught.value, StateConflict)
        await run.restart(plan=caught.value.plan.token)
        await run.result()
        await run.restart(acknowledge=True)
        await run.result()
        assert shop.bodies["charge"] == 3

        calm = await app.start(shop.calm)
        await calm.result()
        assert not (await calm.plan("restart")).needs_consent
        assert (await calm.restart()).generation == 2

    run_app(app, scenario)


def test_what_is_kept_is_not_done_again(store_url: str) -> None:
    app = make_app(store_url)
    shop = Shop(app)

    async def scenario() -> None:
        run = await app.start(shop.buy, "A-1")
        await run.result()
        before = await run.steps()
        plan = await run.plan("restart", keep=["id", "price", "charge"])
        assert fates(plan) == {
            "id": "kept",
            "price": "kept",
            "charge": "kept",
            "book": "runs again",
            "mail": "runs again",
        }
        assert (plan.outside_again, plan.warnings) == (["mail"], [])
        assert plan.steps[2].keeps_key is None
        reply = await run.restart(plan=plan)
        assert reply.text == "restarted: 3 saved steps are kept, the others run again"
        assert await run.result() == [1, 1, 2, 2]
        assert await run.steps(1) == before
        after = await run.steps()
        assert [step.name for step in after] == ["id", "price", "charge", "book", "mail"]
        assert [step.origin is None for step in after] == [False, False, False, True, True]
        kept = [msgspec.structs.replace(step, origin=None) for step in after[:3]]
        assert kept == before[:3]

        # Copied once more it still says where it was saved first, and which key it handed out.
        again = await run.plan("restart", drop="mail")
        assert again.steps[2].key == shop.keys[0]
        await run.restart(plan=again)
        assert await run.result() == [1, 1, 2, 3]
        origins = [step.origin for step in await run.steps()]
        assert origins[0] == after[0].origin
        assert origins[3] == f'["{run.run_id}",2]'

    run_app(app, scenario)


def test_a_kept_step_after_one_that_runs_again_is_warned_of_and_kept(store_url: str) -> None:
    app = make_app(store_url)
    shop = Shop(app)

    async def scenario() -> None:
        run = await app.start(shop.buy, "A-1")
        await run.result()
        plan = await run.plan("restart", drop=["price", "mail"])
        (warning,) = plan.warnings
        assert warning.startswith("'charge', 'book' would be kept though 'price', saved before, runs again")
        await run.restart(plan=plan)
        assert await run.result() == [2, 1, 1, 2]

    run_app(app, scenario)


def test_one_use_of_a_repeated_step_can_be_kept(store_url: str) -> None:
    app = make_app(store_url)
    shop = Shop(app)

    async def scenario() -> None:
        run = await app.start(shop.loops)
        await run.result()
        keep = ["ship #2", "ship[part-3]"]
        plan = await run.plan("restart", keep=keep)
        assert [one.step for one in plan.steps if one.fate is Fate.KEPT] == keep
        only_first = await run.plan("restart", keep="ship #1")
        assert [one.step for one in only_first.steps if one.fate is Fate.KEPT] == ["ship"]
        every = await run.plan("restart", keep="ship", drop=["ship #2"])
        assert [one.step for one in every.steps if one.fate is Fate.RUNS_AGAIN] == ["ship #2"]
        await run.restart(plan=plan)
        await run.result()
        assert shop.bodies == {"ship 1": 2, "ship 2": 1, "ship 3": 1, "ship 4": 2}

    run_app(app, scenario)


def test_a_plan_of_before_is_refused_with_what_changed(store_url: str) -> None:
    app = make_app(store_url)
    shop = Shop(app)

    async def scenario() -> None:
        run = await app.start(shop.buy, "A-1")
        await run.result()
        plan = await run.plan("restart")
        assert await run.plan("restart") == plan
        await run.restart(plan=plan)
        await run.result()
        for given in (plan, plan.token):
            with pytest.raises(StateConflict, match="generation was 1, is 2") as caught:
                await run.restart(plan=given)
            assert not isinstance(caught.value, PlanNeeded)
        with pytest.raises(StateConflict, match="verb was replay, is restart"):
            await run.restart(plan=(await run.plan("replay")).token)
        kept = await run.plan("restart", keep="charge")
        with pytest.raises(StateConflict, match="what is to be kept"):
            await run.restart(plan=kept.token)
        with pytest.raises(ConfigError, match="say something else"):
            await run.restart(plan=kept, drop="mail")
        for nonsense in ("yes", "", "a.b.c.d.e", 7):
            with pytest.raises(ConfigError, match="is no plan"):
                await run.restart(plan=nonsense)  # type: ignore[arg-type]
        assert (await run.row()).generation == 2
        assert (await run.restart(plan=kept.token, keep=["charge"])).generation == 3

    run_app(app, scenario)


def test_a_plan_of_a_running_run_is_stale_when_a_step_was_saved_since(store_url: str) -> None:
    app = make_app(store_url)
    shop = Shop(app)

    async def scenario() -> None:
        run = await app.start(shop.gated)
        await eventually_async(lambda: _is_at_least(shop.bodies["wait"], 1))
        plan = await run.plan("restart")
        assert (plan.steps, plan.hides_steps, plan.needs_consent) == ([], True, True)
        with pytest.raises(PlanNeeded, match="under way"):
            await run.restart()
        shop.gate.set()
        await run.result()
        with pytest.raises(StateConflict, match=r"state was running, is completed.*saved since: 'wait'"):
            await run.restart(plan=plan)
        assert shop.bodies["wait"] == 1

    run_app(app, scenario)


async def _is_at_least(count: int, least: int) -> bool:
    return count >= least


def test_a_request_restarts_once_whatever_came_of_it_since(store_url: str) -> None:
    app = make_app(store_url)
    shop = Shop(app)

    async def scenario() -> None:
        run = await app.start(shop.buy, "A-1")
        await run.result()
        plan = await run.plan("restart")
        first = await run.restart(plan=plan, request_id="click-1")
        await run.result()
        again = await run.restart(plan=plan, request_id="click-1")
        assert (first.generation, again.generation, again.effect.value) == (2, 2, "join")
        with pytest.raises(StateConflict, match="with another choice"):
            await run.restart(keep="charge", request_id="click-1", acknowledge=True)
        other = await run.restart(acknowledge=True, request_id="click-2")
        assert other.generation == 3
        assert (await run.restart(acknowledge=True, request_id="click-1")).effect.value == "join"
        assert (await run.row()).generation == 3
        with pytest.raises(ConfigError, match="cannot identify"):
            await run.restart(acknowledge=True, request_id="")

    run_app(app, scenario)


def test_two_operators_with_plans_restart_once(store_url: str) -> None:
    """Of the same plan both get the one new generation; of two plans one is told that it is old."""
    app, others = make_app(store_url), make_app(store_url)
    shop = Shop(app)
    Shop(others)

    async def scenario() -> None:
        await others.open(runs=False)
        run = await app.start(shop.buy, "A-1")
        there = others.run(run.run_id)
        await run.result()
        for round_ in range(6):
            mine = await run.plan("restart")
            theirs = await there.plan("restart") if round_ % 2 else await there.plan("restart", keep="charge")
            replies = await asyncio.gather(
                run.restart(plan=mine), there.restart(plan=theirs), return_exceptions=True
            )
            won = [one for one in replies if not isinstance(one, BaseException)]
            lost = [one for one in replies if isinstance(one, BaseException)]
            assert all(type(one) is StateConflict for one in lost), lost
            assert {one.generation for one in won} == {round_ + 2}
            assert len(won) == 1 or round_ % 2, "two restarts that keep different steps both went through"
            await run.result()
            assert (await run.row()).generation == round_ + 2
            copies = [step.name for step in await run.steps() if step.origin is not None]
            is_theirs = not isinstance(replies[1], BaseException) and not round_ % 2
            assert copies == (["charge"] if is_theirs else [])
        await others.close()

    run_app(app, scenario, within_s=60)


def test_a_restart_that_another_overtakes_is_told_so_and_not_of_steps_that_are_gone(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one begins behind the look at the run and before the look at its steps."""
    app = make_app(store_url)
    shop = Shop(app)

    async def scenario() -> None:
        run = await app.start(shop.buy, "A-1")
        await run.result()
        plan = await run.plan("restart", keep="charge")
        ask, is_first = app._desk.ask, True

        async def overtaken(what: str, *args: Any) -> Any:
            nonlocal is_first
            if what == "steps" and is_first:
                is_first = False
                await run.restart(acknowledge=True)
                return []  # of the new generation, before its first step is saved
            return await ask(what, *args)

        monkeypatch.setattr(app._desk, "ask", overtaken)
        with pytest.raises(StateConflict, match="came first"):
            await run.restart(plan=plan)
        await run.result()
        assert (await run.row()).generation == 2

    run_app(app, scenario)


def test_only_outcomes_of_steps_there_are_can_be_kept(store_url: str) -> None:
    app = make_app(store_url)
    shop = Shop(app)

    async def scenario() -> None:
        run = await app.start(shop.buy, "A-1")
        await run.result()
        unknown: list[dict[str, Any]] = [{"keep": "nothing"}, {"drop": ["nothing"]}, {"from_step": "nothing"}]
        for options in unknown:
            verbs: tuple[PlannedVerb, ...] = ("restart", "replay")
            for verb in verbs:
                with pytest.raises(ConfigError, match=r"has no step 'nothing'.*'charge'"):
                    await run.plan(verb, **options)
                with pytest.raises(ConfigError, match="has no step 'nothing'"):
                    await getattr(run, verb)(**options)
        untold: list[dict[str, Any]] = [{"keep": 7}, {"drop": [b"charge"]}, {"from_step": 7}]
        for options in untold:
            with pytest.raises(ConfigError, match="is no text"):
                await run.plan("restart", **options)
        with pytest.raises(ConfigError, match=r"no plan for 'destroy'.*resume"):
            await run.plan("destroy")  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="keeps what is saved"):
            await run.plan("retry", keep="charge")
        with pytest.raises(ConfigError, match="has no payload"):
            await run.plan("restart", payload={})
        with pytest.raises(StateConflict, match="Nothing failed"):
            await run.plan("retry")
        with pytest.raises(StateConflict, match="not held"):
            await run.plan("resume")
        with pytest.raises(NotFound):
            await app.run("run_00000000000000000000000000").plan("restart")

    run_app(app, scenario)


def test_a_failure_is_kept_only_by_name(store_url: str) -> None:
    app = make_app(store_url)
    shop = Shop(app)
    shop.fails = True

    async def scenario() -> None:
        run = await app.start(shop.caught)
        assert await run.result() == "no mail 1"
        shop.fails = False
        assert fates(await run.plan("restart", drop=[])) == {"mail": "runs again"}
        plan = await run.plan("replay", keep="mail")
        assert fates(plan) == {"mail": "kept"}
        assert await (await run.replay(plan=plan)).result() == "no mail 2"
        assert await (await run.replay(drop=[])).result() == "mailed"

    run_app(app, scenario)


def test_the_plan_of_a_retry_says_what_is_reopened_with_the_same_key(store_url: str) -> None:
    app = make_app(store_url)
    shop = Shop(app)
    shop.fails = True

    async def scenario() -> None:
        run = await app.start(shop.buy, "A-1")
        await becomes(run, RunState.FAILED)
        plan = await run.plan("retry")
        assert fates(plan)["mail"] == "reopened"
        assert set(fates(plan).values()) == {"kept", "reopened"}
        mail = plan.steps[-1]
        assert (mail.keeps_key, mail.happens_again, mail.key) == (True, True, shop.keys[-1])
        assert (plan.generation, plan.attempt, plan.needs_consent) == (1, 2, False)
        shop.fails = False
        await run.retry()
        assert await run.result() == [1, 1, 1, 1]
        assert shop.keys[-1] == mail.key

    run_app(app, scenario)


def test_the_plan_of_a_replay_copies_into_a_new_run_and_is_checked(store_url: str) -> None:
    app = make_app(store_url)
    shop = Shop(app)

    async def scenario() -> None:
        run = await app.start(shop.buy, "A-1")
        await run.result()
        payload = {"args": ["A-2"], "kwargs": {}}
        plan = await run.plan("replay", drop=["mail"], payload=payload)
        assert (plan.generation, plan.outside_again) == (1, ["mail"])
        assert plan.warnings == ["What is kept was made of the old payload."]
        with pytest.raises(StateConflict, match="is something else"):
            await run.replay(plan=plan)
        replay = await run.replay(plan=plan, payload=payload, request_id="once")
        assert await replay.result() == [1, 1, 1, 2]
        assert [step.name for step in await replay.steps() if step.origin] == [
            "id",
            "price",
            "charge",
            "book",
        ]
        again = await run.replay(plan=plan, payload=payload, request_id="once")
        assert again.run_id == replay.run_id
        unasked = await run.replay(payload=payload, request_id="once")
        assert (unasked.run_id, unasked.is_duplicate) == (replay.run_id, True)
        from_step = await run.plan("replay", from_step="book")
        assert [one.step for one in from_step.steps if one.fate is Fate.KEPT] == ["id", "price", "charge"]

    run_app(app, scenario)


def test_called_children_are_shown_and_those_of_kept_calls_stay(store_url: str) -> None:
    app = make_app(store_url)
    shop = Shop(app)

    async def scenario() -> None:
        run = await app.start(shop.parent)
        await becomes(run, RunState.WAITING)
        plan = await run.plan("restart")
        assert {one.fate for one in plan.children} == {ChildFate.CANCELLED, ChildFate.STAYS}
        assert {"'detached' starts its run again.", "'called' calls its run again."} <= set(plan.warnings)
        cancelled = next(one for one in plan.children if one.fate is ChildFate.CANCELLED)
        with pytest.raises(ConfigError, match="no outcome that could be kept"):
            await run.plan("restart", keep="called")
        shop.gate.set()
        assert await run.result() == "child"
        children = await run.children()
        plan = await run.plan("restart", keep="called", drop="detached")
        await run.restart(plan=plan)
        assert await run.result() == "child"
        after = {child.run_id: child for child in await run.children()}
        assert after[cancelled.run_id].state is RunState.COMPLETED
        assert len(after) == len(children) + 1  # one more detached, none called

    run_app(app, scenario)


def test_a_replay_keeps_the_result_of_a_call_without_calling_again(store_url: str) -> None:
    app = make_app(store_url)
    shop = Shop(app)
    shop.gate.set()

    async def scenario() -> None:
        run = await app.start(shop.parent)
        await run.result()
        replay = await run.replay(keep=["called", "detached"])
        assert await replay.result() == "child"
        assert await replay.children() == []

    run_app(app, scenario)


def test_a_plan_says_who_holds_the_key(store_url: str) -> None:
    app = make_app(store_url)
    gate = asyncio.Event()

    @app.workflow(key=event.payload["order"], once="active")
    async def pay(ctx: Context, order: int) -> int:
        await gate.wait()
        return order

    async def scenario() -> None:
        gate.set()
        first = await app.start(pay, 7)
        await first.result()
        gate.clear()
        second = await app.start(pay, 7)
        plan = await first.plan("restart")
        assert plan.warnings == [
            f"Its key is held by run {second.run_id}: it is refused as long as that is so."
        ]
        gate.set()
        await second.result()
        assert (await first.plan("restart")).warnings == []

    run_app(app, scenario)


def test_an_effect_is_one_of_three(sqlite_url: str) -> None:
    app = make_app(sqlite_url)
    with pytest.raises(ConfigError, match=r"effect of a step cannot be 'none'.*own_database"):

        @app.step(effect="none")  # type: ignore[call-overload,untyped-decorator]
        async def step() -> None: ...

    @app.workflow
    async def inline(ctx: Context) -> None:
        async def look() -> None: ...

        await ctx.step.run("look", look, effect="pure")
        await ctx.step.run("look too", look, effect="outside")
        await ctx.step.ensure("find", look, look, effect="own_database")

    @app.workflow
    def threaded(ctx: Any) -> None:
        ctx.step.run("look", int, effect="pure", retry=Retry())

    async def scenario() -> None:
        run = await app.start(inline)
        await run.result()
        assert [step.effect for step in await run.steps()] == ["pure", None, "own_database"]
        run = await app.start(threaded)
        await run.result()
        assert [step.effect for step in await run.steps()] == ["pure"]

    run_app(app, scenario)


def test_a_plan_says_of_which_step_nobody_knows_whether_it_happened(store_url: str) -> None:
    app = make_app(store_url)
    tries: list[int] = []

    @app.workflow
    async def pay(ctx: Context) -> str:
        async def charge() -> str:
            tries.append(1)
            if len(tries) == 1:
                raise OutcomeUnknown("no answer")
            return "charged"

        return await ctx.step.run("charge", charge, unknown="ask")

    async def scenario() -> None:
        run = await app.start(pay)
        await becomes(run, RunState.HELD)
        for verb in ("resume", "restart"):
            plan = await run.plan(verb)
            assert plan.warnings[0].startswith("Nobody knows whether 'charge' took effect")
            assert plan.outside_again == ["charge"]
        with pytest.raises(PlanNeeded, match="charge"):
            await run.restart()
        with pytest.raises(ConfigError, match="no outcome"):
            await run.plan("restart", keep="charge")
        await run.answer("did_not_happen")
        assert await run.result() == "charged"

    run_app(app, scenario)


def test_a_plan_of_a_run_that_was_undone_says_what_is_done_anew(store_url: str) -> None:
    app = make_app(store_url)
    done: list[str] = []
    fails = True

    @app.step
    async def charge() -> str:
        done.append("charge")
        return "charged"

    @charge.undo
    async def refund(charged: str) -> None:
        done.append("refund")

    @app.workflow(undo="on_failure")
    async def buy(ctx: Context) -> str:
        charged = await charge()

        async def ship() -> None:
            if fails:
                raise Permanent("no")

        await ctx.step.run("ship", ship)
        return charged

    async def scenario() -> None:
        nonlocal fails
        run = await app.start(buy)
        await becomes(run, RunState.FAILED)
        assert done == ["charge", "refund"]
        with pytest.raises(StateConflict, match="undone"):
            await run.plan("retry")
        plan = await run.plan("restart")
        assert fates(plan) == {"charge": "runs again", "ship": "runs again"}
        fails = False
        await run.restart(plan=plan)
        assert await run.result() == "charged"

    run_app(app, scenario)


def test_what_waits_is_pure_and_a_transaction_is_of_the_own_database(sqlite_url: str) -> None:
    app = make_app(sqlite_url)
    app.transactions(lambda: sqlite3.connect(sqlite_url.removeprefix("sqlite:///")))

    @app.transaction
    def book(connection: sqlite3.Connection, order: str) -> str:
        connection.execute("create table if not exists booked (name text)")
        connection.execute("insert into booked values (?)", (order,))
        return order

    @app.workflow
    async def buy(ctx: Context, order: str) -> str:
        await ctx.step.wait_for("packed", "packed", subject=order)
        return await ctx.step.run("book", book, order)

    async def scenario() -> None:
        run = await app.start(buy, "A-1")
        await becomes(run, RunState.WAITING)
        await app.emit("packed", {}, subject="A-1")
        assert await run.result() == "A-1"
        plan = await run.plan("restart")
        assert [(one.kind, one.effect.value, one.happens_again) for one in plan.steps] == [
            ("wait", "pure", False),
            ("transaction", "own_database", True),
        ]
        assert not plan.needs_consent
        await run.restart(keep=["packed", "book"])
        assert await run.result() == "A-1"
        with sqlite3.connect(sqlite_url.removeprefix("sqlite:///")) as connection:
            assert connection.execute("select count(*) from booked").fetchone() == (1,)
        connection.close()

    run_app(app, scenario)


def asking(app: App, tries: list[str]) -> Any:
    """Give a workflow that asks about two steps; the second has a kept one before it."""

    async def charge(order: str) -> str:
        tries.append(order)
        if len(tries) <= 2:
            raise OutcomeUnknown("no answer")
        return f"charged {order}"

    @app.workflow
    async def pay(ctx: Context) -> list[str]:
        await ctx.step.run("look", str, "x", effect="pure")
        both = (ctx.step.run("charge", charge, one, item=one, unknown="ask") for one in "ab")
        return list(await asyncio.gather(*both))

    return pay


def test_the_plan_of_an_answer_is_what_the_answer_leads_to(store_url: str) -> None:
    app = make_app(store_url)
    pay = asking(app, [])

    async def scenario() -> None:
        run = await app.start(pay)
        await becomes(run, RunState.HELD)

        plan = await run.plan("resume")
        assert (
            "A resume of it, the answer 'retry', is refused: it asks, and is answered one of "
            "'happened', 'did_not_happen', 'fail'." in plan.warnings
        )
        plan = await run.plan("answer", answer="happened", step="charge[a]")
        assert not any("refused" in warning for warning in plan.warnings)
        assert plan.text == "answered: happened; still held, outcome unknown: step 'charge[b]'"
        assert fates(plan) == {"look": "kept", "charge[a]": "kept", "charge[b]": "goes on"}
        assert plan.warnings[0] == (
            "'charge[a]' does not run again: it counts as done, with the result of the answer."
        )
        assert plan.warnings[-1].startswith("Another step than those above may have begun")
        assert plan.warnings[1] == "The run stays held until 'charge[b]' is answered, too."
        assert (plan.state, plan.outside_again) == (RunState.HELD, ["charge[b]"])

        plan = await run.plan("answer", answer="did_not_happen", step="charge[a]")
        assert plan.warnings[0].startswith("'charge[a]' runs again: ")
        assert fates(plan)["charge[a]"] == "runs again"
        assert plan.outside_again == ["charge[a]", "charge[b]"]
        assert [step.keeps_key for step in plan.steps] == [None, True, True]

        plan = await run.plan("answer", answer="fail")
        assert plan.text == "answered: fail"
        assert fates(plan) == {"look": "kept", "charge[a]": "stops", "charge[b]": "stops"}
        assert (plan.outside_again, plan.hides_steps) == ([], False)
        assert plan.warnings == [
            "Nobody knows whether 'charge[a]', 'charge[b]' took effect; nothing is undone."
        ]

        for verb, given, refused in (
            ("answer", {"answer": "happened"}, ConfigError),
            ("answer", {"answer": "retry"}, StateConflict),
            ("answer", {"answer": "perhaps"}, ConfigError),
            ("restart", {"answer": "fail"}, ConfigError),
            ("retry", {"step": "look"}, ConfigError),
        ):
            with pytest.raises(refused):
                await run.plan(verb, **given)  # type: ignore[arg-type]

        before = await run.steps()
        await run.answer("happened", step="charge[a]", result="by hand")
        assert [row for row in await run.steps() if row.item != "a"] == [
            row for row in before if row.item != "a"
        ]
        plan = await run.plan("answer", answer="did_not_happen")
        assert fates(plan) == {"look": "kept", "charge[a]": "goes on", "charge[b]": "runs again"}
        await run.answer("did_not_happen")
        assert await run.result() == ["by hand", "charged b"]

    run_app(app, scenario)


def test_a_held_run_is_resumed_and_any_other_is_refused_as_the_table_says(store_url: str) -> None:
    app, tries = make_app(store_url), list[str]()

    @app.workflow
    async def changed(ctx: Context) -> int:
        await (ctx.step.uuid("a") if ctx.attempt == 2 else ctx.step.run("a", str))
        if ctx.attempt == 1:
            raise ConnectionError
        return ctx.attempt

    changed.policies.__dict__["retry"] = Retry(max_tries=2, base="1ms")
    pay = asking(app, tries)

    async def scenario() -> None:
        run = await app.start(changed)
        await becomes(run, RunState.HELD)
        reply = await run.resume(actor="ann")
        assert (reply.effect, reply.text) == (TABLE[RunState.HELD, Verb.ANSWER].effect, "answered: retry")
        assert await run.result() == 3
        audit = (await app.desk.ask("audits", run.run_id))[-1]
        assert (audit.verb, audit.actor, audit.detail) == ("answer", "ann", "retry")
        with pytest.raises(StateConflict, match=TABLE[RunState.COMPLETED, Verb.ANSWER].reply):
            await run.resume()

        asked = await app.start(pay)
        await becomes(asked, RunState.HELD)
        with pytest.raises(StateConflict, match="cannot be answered 'retry'"):
            await asked.resume()

    run_app(app, scenario)


def test_the_audit_of_a_replay_says_what_it_kept(store_url: str) -> None:
    app = make_app(store_url)
    shop = Shop(app)

    async def scenario() -> None:
        run = await app.start(shop.app.workflows["buy"], "o-1")
        await run.result()
        plain = await run.replay()
        chosen = await run.replay(keep=["price"], drop="mail", request_id="click")
        plan = await run.plan("replay", drop="mail")
        planned = await run.replay(plan=plan)

        told = [(await app.desk.ask("audits", one.run_id))[0].detail for one in (plain, chosen, planned)]
        of_run = {"replay_of": run.run_id}
        assert [msgspec.json.decode(detail) for detail in told] == [
            of_run,
            {
                **of_run,
                "request_id": "click",
                "choice": {"from_step": None, "keep": ["price"], "drop": ["mail"]},
            },
            {**of_run, "plan": plan.token, "choice": {"from_step": None, "keep": [], "drop": ["mail"]}},
        ]

    run_app(app, scenario)
