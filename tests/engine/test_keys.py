"""One run of each key: what the caller, the loser and the operator see."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from onceward import (
    App,
    ConfigError,
    Context,
    Event,
    IdClash,
    KeyTaken,
    NotFound,
    Permanent,
    RunHandle,
    RunState,
    StateConflict,
    StepFailed,
)
from onceward import event as e
from onceward.core import failpoints
from onceward.core.errors import ReplyLost
from onceward.core.model import EventRow, NewRun, ProcessRow, Skip
from onceward.core.ports import Accept, Batch
from onceward.core.rules import WAITS_FOR_KEY, version_text
from onceward.runtime.committer import recovered
from onceward.sources import Hmac
from tests.engine.running import make_app, open_store, run_app
from tests.helpers import eventually_async
from tests.pages import call

PAIRS = [
    ("ever", "return"),
    ("ever", "reject"),
    *[(once, clash) for once in ("active", "24h") for clash in ("return", "reject", "replace", "queue")],
]


async def emit(app: App, name: str, order: Any = 7) -> Any:
    return await app.emit("ordered", {"order": order, "name": name}, id=name)


async def is_in(run: RunHandle[Any], state: RunState) -> None:
    async def arrived() -> bool:
        return await run.state() is state

    await eventually_async(arrived, what=f"{run} is {state}")


class Orders:
    """A workflow with a key whose runs wait for a gate and say that they ran."""

    def __init__(self, app: App, **options: Any) -> None:
        self.gate = asyncio.Event()
        self.began: list[str] = []
        self.cleaned: list[str] = []

        @app.workflow(on="ordered", key=e.payload["order"], **options)
        async def fulfil(ctx: Context, event: Event) -> str:
            name = str(event.payload["name"])
            self.began.append(name)
            try:
                await self.gate.wait()
                await ctx.step.sleep("nap", "10ms")
            finally:
                if name == "first":
                    self.cleaned.append(name)
            if event.payload.get("fails"):
                raise Permanent("no")
            return name

        self.fulfil = fulfil


def test_the_later_event_of_a_key_gets_the_run_that_holds_it(store_url: str) -> None:
    app = make_app(store_url)
    orders = Orders(app)

    async def scenario() -> None:
        first, second = await emit(app, "first"), await emit(app, "second", "7")
        other = await emit(app, "other", 8)
        started = await app.start(orders.fulfil, {"order": 7, "name": "third"})
        orders.gate.set()

        run_id = first.runs[0].run_id
        assert [run.run_id for run in second.runs] == [run_id] == [started.run_id]
        assert not second.is_duplicate
        assert started.is_duplicate
        assert await second.runs[0].result() == "first"
        assert await other.runs[0].result() == "other"
        view = await app.event("emit/ordered", "second")
        assert view.runs == []
        (lost,) = view.skipped
        assert (lost.reason, lost.holder_run_id, lost.is_other_payload) == (Skip.RETURNED, run_id, True)
        assert lost.why == (
            f"its key '7' is held by run {run_id}, for another payload: "
            'that run stands for this event, too (clash="return")'
        )
        assert (await first.runs[0].row()).key == "7"
        assert [row.run_id for row in await app.runs(key="7")] == [run_id]
        assert [row.run_id for row in await app.runs(key="7", workflow="other")] == []
        again = await emit(app, "second", "7")
        assert ([run.run_id for run in again.runs], again.is_duplicate) == ([run_id], True)

    run_app(app, scenario)


@pytest.mark.parametrize("fails", [True, False])
def test_the_key_passes_on_when_also_what_the_code_left_running_has_ended(
    store_url: str, fails: bool
) -> None:
    app = make_app(store_url)
    seen: list[str] = []
    parked = asyncio.Event()

    async def count(name: str) -> None:
        seen.append(f"{name} begins")
        parked.set()
        try:
            await asyncio.sleep(60 if name == "first" else 0)
        finally:
            if name == "first":
                await asyncio.sleep(0.2)  # what it has to put away takes longer than a commit
            seen.append(f"{name} ends")

    async def break_off() -> None:
        await parked.wait()
        if fails:
            raise Permanent("no")

    @app.workflow(on="ordered", key=e.payload["order"], once="active", clash="queue")
    async def fulfil(ctx: Context, event: Event) -> None:
        counting = asyncio.ensure_future(ctx.step.run("count", count, event.payload["name"]))
        if event.payload["name"] == "first":
            await ctx.step.run("break off", break_off)
        else:
            await counting

    async def scenario() -> None:
        first, second = [(await emit(app, name)).runs[0] for name in ("first", "second")]
        await second.result()
        assert await first.state() is (RunState.FAILED if fails else RunState.COMPLETED)

    run_app(app, scenario)

    assert seen == ["first begins", "first ends", "second begins", "second ends"]


def test_a_rejected_start_raises_and_names_the_holder(store_url: str) -> None:
    app = make_app(store_url)

    @app.workflow(key=e.payload["order"], clash="reject")
    async def pay(ctx: Context, order: int, note: str = "") -> int:
        return order

    async def scenario() -> None:
        first = await app.start(pay, 7)
        with pytest.raises(KeyTaken, match=first.run_id) as caught:
            await app.start(pay, note="again", order=7)
        assert caught.value.holder_run_id == first.run_id
        assert await (await app.start(pay, 8)).result() == 8

    run_app(app, scenario)


def test_runs_of_one_key_come_one_after_the_other(store_url: str) -> None:
    app = make_app(store_url)
    orders = Orders(app, once="active", clash="queue")

    async def scenario() -> None:
        runs = [(await emit(app, name)).runs[0] for name in ("first", "second", "third")]
        row = await runs[1].row()
        assert (row.state, row.reason) == (RunState.QUEUED, WAITS_FOR_KEY)
        assert orders.began in ([], ["first"])
        orders.gate.set()

        assert [await run.result() for run in runs] == ["first", "second", "third"]
        assert list(dict.fromkeys(orders.began)) == ["first", "second", "third"]
        assert (await runs[1].row()).reason is None

    run_app(app, scenario)


def test_a_newer_run_replaces_the_holder_after_its_clean_up(store_url: str) -> None:
    app = make_app(store_url)
    orders = Orders(app, once="active", clash="replace")

    async def scenario() -> None:
        first = (await emit(app, "first")).runs[0]

        async def has_begun() -> bool:
            return "first" in orders.began

        await eventually_async(has_begun, what="the first run begins")
        second = (await emit(app, "second")).runs[0]
        third = (await emit(app, "third")).runs[0]
        await is_in(first, RunState.CANCELLING)
        orders.gate.set()

        assert await third.result() == "third"
        assert await first.state() is RunState.CANCELLED
        assert orders.cleaned
        assert (await second.row()).reason == f"displaced by run {third.run_id}"
        assert await second.state() is RunState.CANCELLED
        assert "second" not in orders.began
        (entry,) = await app.worker.read(app.worker.store.audits, first.run_id)
        assert (entry.actor, entry.verb) == ("key", "cancel")
        assert entry.detail in [f"replaced by run {newer.run_id}" for newer in (second, third)]

    run_app(app, scenario)


def test_an_operator_cannot_have_two_active_runs_of_a_key(store_url: str) -> None:
    app = make_app(store_url)
    orders = Orders(app, once="active")

    async def scenario() -> None:
        orders.gate.set()
        first = (await emit(app, "first")).runs[0]
        assert await first.result() == "first"
        orders.gate.clear()
        second = (await emit(app, "second")).runs[0]

        for verb in (first.restart, first.replay):
            with pytest.raises(KeyTaken, match=second.run_id):
                await verb()
        orders.gate.set()
        assert await second.result() == "second"
        assert await (await first.replay()).result() == "first"
        await first.restart(acknowledge=True)
        assert await first.result() == "first"

    run_app(app, scenario)


def test_who_waits_for_a_key_cannot_be_restarted_past_the_holder(store_url: str) -> None:
    app = make_app(store_url)
    orders = Orders(app, once="active", clash="queue")

    async def scenario() -> None:
        first = (await emit(app, "first")).runs[0]
        second = (await emit(app, "second")).runs[0]
        with pytest.raises(KeyTaken, match=first.run_id):
            await second.restart(acknowledge=True)
        reply = await second.cancel()
        assert reply.state is RunState.CANCELLED
        orders.gate.set()
        assert await first.result() == "first"

    run_app(app, scenario)


def test_a_key_for_ever_lets_a_person_run_it_again(store_url: str) -> None:
    app = make_app(store_url)
    orders = Orders(app)

    async def scenario() -> None:
        orders.gate.set()
        first = (await emit(app, "first")).runs[0]
        await first.result()
        await first.restart(acknowledge=True)
        assert await first.result() == "first"
        assert await (await first.replay()).result() == "first"
        assert [run.run_id for run in (await emit(app, "second")).runs] == [first.run_id]

    run_app(app, scenario)


def test_an_event_without_its_key_is_kept_and_its_run_held(store_url: str) -> None:
    app = make_app(store_url)
    source = app.source(Hmac(name="shop", secrets="x", header="X", id_from="/id", type_from="/kind"))
    broken = True

    def order_of(event: Event) -> Any:
        if broken:
            raise ValueError("not yet")
        return event.payload["id"]

    @app.workflow(on=source["ordered"], key=e.payload["order"], name="by_place")
    async def by_place(ctx: Context, event: Event) -> None: ...

    @app.workflow(on=source["ordered"], key=order_of, name="by_code")
    async def by_code(ctx: Context, event: Event) -> str:
        return event.id

    async def scenario() -> None:
        nonlocal broken
        body = b'{"id": "evt_1", "kind": "ordered"}'
        signed = source.sign(body, app.worker.now_ms())
        status, _ = await call(app.asgi(), "POST", "/hooks/shop", signed, body)
        assert status == 202
        held = {row.workflow: row for row in await app.runs(problems=True)}
        assert {row.state for row in held.values()} == {RunState.HELD}
        assert str(held["by_code"].reason).startswith("no key: ValueError: not yet (test_keys.py, line ")
        assert str(held["by_place"].reason).startswith("no key: ")
        run = app.run(held["by_code"].run_id)
        with pytest.raises(StateConflict, match="still has no key"):
            await run.answer("retry")
        broken = False
        await run.answer("retry")
        assert await run.result() == "evt_1"
        assert (await run.row()).key == "evt_1"
        await app.run(held["by_place"].run_id).answer("fail")

    run_app(app, scenario)


@pytest.mark.parametrize("on_redelivery", ["nothing", "retry"])
def test_a_redelivery_may_retry_its_failed_run(store_url: str, on_redelivery: Any) -> None:
    app = make_app(store_url)
    source = app.source(Hmac(name="shop", secrets="x", header="X", id_from="/id", type_from="/kind"))
    calls: list[str] = []

    @app.workflow(on=source["ordered"], on_redelivery=on_redelivery)
    async def fulfil(ctx: Context, event: Event) -> str:
        calls.append(event.id)
        if len(calls) == 1:
            raise RuntimeError("the first time")
        return "done"

    async def scenario() -> None:
        body = b'{"id": "evt_1", "kind": "ordered"}'
        signed = source.sign(body, app.worker.now_ms())
        await call(app.asgi(), "POST", "/hooks/shop", signed, body)
        (row,) = (await app.event("shop", "evt_1")).runs
        run = app.run(row.run_id)
        await is_in(run, RunState.FAILED)
        status, _ = await call(app.asgi(), "POST", "/hooks/shop", signed, body)
        assert status == 202
        if on_redelivery == "retry":
            assert await run.result() == "done"
            assert [row.actor for row in await app.worker.read(app.worker.store.audits, run.run_id)] == [
                "redelivery"
            ]
        else:
            assert await run.state() is RunState.FAILED

    run_app(app, scenario)


def test_a_call_of_a_run_that_waits_for_the_caller_fails(store_url: str) -> None:
    app = make_app(store_url)

    @app.workflow(on="ordered", key=e.payload["order"], once="active", clash="queue")
    async def fulfil(ctx: Context, event: Event) -> str:
        if event.payload["depth"] == 0:
            return "deep"
        try:
            return str(await ctx.step.call("again", middle, event.payload["order"]))
        except StepFailed as error:
            return error.message

    @app.workflow()
    async def middle(ctx: Context, order: int) -> Any:
        try:
            return await ctx.step.call("fulfil", fulfil, {"order": order, "depth": 0})
        except StepFailed:
            await ctx.step.sleep("leave memory", "100ms")  # told the same when it comes back
            raise

    async def scenario() -> None:
        run = (await app.emit("ordered", {"order": 7, "depth": 1})).runs[0]
        assert "KeyCycle" in await run.result()
        assert len(await app.runs(workflow="fulfil")) == 1

    run_app(app, scenario)


class Callers:
    """Workflows that start or call the fulfilment of an order."""

    def __init__(self, app: App, orders: Orders) -> None:
        @app.workflow()
        async def parent(ctx: Context, how: str) -> Any:
            payload = {"order": 7, "name": how}
            if how == "start":
                return await ctx.step.start("child", orders.fulfil, payload)
            try:
                return await ctx.step.call("child", orders.fulfil, payload)
            except StepFailed as error:
                return error.error_type

        @app.workflow()
        async def strict(ctx: Context) -> Any:
            return await ctx.step.call("child", orders.fulfil, {"order": 7, "name": "strict"})

        @app.workflow()
        async def twice(ctx: Context) -> list[Any]:
            calls = [
                ctx.step.call("child", orders.fulfil, {"order": 7, "name": name}, item=name)
                for name in ("a", "b")
            ]
            return await asyncio.gather(*calls)

        self.parent, self.strict, self.twice = parent, strict, twice


def test_a_call_whose_key_is_held_takes_the_outcome_of_the_holder(store_url: str) -> None:
    """Of callers in this process and in another, in memory and away, before and after its end."""
    app, other = make_app(store_url), make_app(store_url)
    orders, others = Orders(app), Orders(other)
    callers, theirs = Callers(app, orders), Callers(other, others)

    async def scenario() -> None:
        holder = (await emit(app, "first")).runs[0]
        await eventually_async(lambda: has_begun(orders))
        async with other:
            assert await (await app.start(callers.parent, "start")).result() == holder.run_id
            runs = [await app.start(callers.parent, f"call {n}") for n in range(3)]
            runs += [await other.start(theirs.parent, f"their call {n}") for n in range(3)]
            for run in runs:
                await is_in(run, RunState.WAITING)
                assert (await run.row()).reason == f"waits for {holder.run_id}"
                assert await run.children() == []
            orders.gate.set()
            assert [await run.result() for run in runs] == ["first"] * 6
            (step,) = await runs[0].steps()
            assert step.child_run_id == holder.run_id
        late = await app.start(callers.parent, "late")
        assert await late.result() == "first"
        assert orders.began == ["first"]
        assert others.began == []

    run_app(app, scenario, within_s=60)


async def has_begun(orders: Orders) -> bool:
    return bool(orders.began)


def test_two_calls_of_one_run_for_one_key_are_one_run(store_url: str) -> None:
    app = make_app(store_url)
    orders = Orders(app)
    callers = Callers(app, orders)

    async def scenario() -> None:
        run = await app.start(callers.twice)
        await eventually_async(lambda: has_begun(orders))
        orders.gate.set()
        result = await run.result()
        assert result[0] == result[1]
        assert len(orders.began) == len(await run.children()) == 1

    run_app(app, scenario)


def test_the_cancel_of_a_caller_leaves_a_holder_that_it_did_not_make(store_url: str) -> None:
    app = make_app(store_url)
    orders = Orders(app)
    callers = Callers(app, orders)

    async def scenario() -> None:
        holder = (await emit(app, "first")).runs[0]
        for run in (await app.start(callers.strict), await app.start(callers.strict)):
            await is_in(run, RunState.WAITING)
            await run.cancel()
            await is_in(run, RunState.CANCELLED)
        restarted = await app.start(callers.strict)
        await is_in(restarted, RunState.WAITING)
        await restarted.restart(acknowledge=True)
        assert (await holder.row()).state in (RunState.RUNNING, RunState.SLEEPING)
        orders.gate.set()
        assert await holder.result() == "first"
        assert await restarted.result() == "first"

    run_app(app, scenario)


@pytest.mark.parametrize("end", ["fail", "cancel"])
def test_a_caller_hears_how_the_holder_failed_and_a_retry_retries_that(store_url: str, end: str) -> None:
    app = make_app(store_url)
    gate = asyncio.Event()
    fails = True

    @app.workflow(key=e.payload["order"])
    async def pay(ctx: Context, order: int) -> str:
        async def charge() -> str:
            await gate.wait()
            if fails:
                raise Permanent("no")
            return "paid"

        return await ctx.step.run("charge", charge)

    @app.workflow()
    async def buy(ctx: Context) -> str:
        return await ctx.step.call("pay", pay, 7)

    async def scenario() -> None:
        nonlocal fails
        holder = await app.start(pay, 7)
        callers = [await app.start(buy) for _ in range(2)]
        for run in callers:
            await is_in(run, RunState.WAITING)
        if end == "cancel":
            await holder.cancel()
            gate.set()
        else:
            gate.set()
        for run in callers:
            await is_in(run, RunState.FAILED)
        told = msgspec.json.decode((await callers[0].row()).error or "")["message"]
        assert ("was cancelled" if end == "cancel" else "no") in told
        if end == "fail":
            fails = False
            await asyncio.gather(*(run.retry() for run in callers))
            assert [await run.result() for run in callers] == ["paid", "paid"]
            assert (await holder.row()).attempt == 2

    run_app(app, scenario)


def test_runs_that_call_for_each_others_keys_do_not_wait_for_ever(store_url: str) -> None:
    """Neither held the other's key when it began to wait; whoever comes second is told."""
    app = make_app(store_url)
    both = asyncio.Barrier(2)

    @app.workflow(key=e.payload["order"], once="active")
    async def pay(ctx: Context, order: int, other: int) -> str:
        async def meet() -> None:
            await both.wait()

        await ctx.step.run("meet", meet)
        try:
            told = await ctx.step.call("other", pay, other, order)
        except StepFailed as error:
            told = error.error_type
        await ctx.step.sleep("leave memory", "100ms")
        return told

    async def scenario() -> None:
        runs = [await app.start(pay, 1, 2), await app.start(pay, 2, 1)]
        results = [await run.result() for run in runs]
        assert any("KeyCycle" in result for result in results)

    run_app(app, scenario)


def test_runs_that_queue_for_each_others_keys_at_one_moment_do_not_wait_for_ever(store_url: str) -> None:
    """Each looked before the other's run was in line; they look again when both are, and one leaves the line."""
    pairs, app = 4, make_app(store_url)
    both = [asyncio.Barrier(2) for _ in range(pairs)]

    @app.workflow(key=e.payload["order"], once="active", clash="queue")
    async def pay(ctx: Context, order: str, other: str | None, pair: int) -> str:
        async def meet() -> None:
            await both[pair].wait()

        if other is None:
            return f"paid {order}"
        await ctx.step.run("meet", meet)
        try:
            told = await ctx.step.call("other", pay, other, None, pair)
        except StepFailed as error:
            told = error.error_type
        await ctx.step.sleep("leave memory", "60ms")
        return told

    async def scenario() -> None:
        runs = [
            await app.start(pay, f"{one} {pair}", f"{other} {pair}", pair)
            for pair in range(pairs)
            for one, other in ("ab", "ba")
        ]
        results = [await run.result("20s") for run in runs]
        for pair in range(pairs):
            told = results[2 * pair : 2 * pair + 2]
            assert "onceward.KeyCycle" in told
            assert set(told) <= {"onceward.KeyCycle", f"paid a {pair}", f"paid b {pair}"}
        # Nothing is left in a line.
        assert {row.state for row in await app.runs()} <= {RunState.COMPLETED, RunState.CANCELLED}

    run_app(app, scenario)


def test_a_call_through_others_for_the_callers_key_fails(store_url: str) -> None:
    """The caller waits for a run in place of its own, and that one calls for the caller's key."""
    app = make_app(store_url)
    gate = asyncio.Event()

    @app.workflow(key=e.payload["order"], once="active")
    async def pay(ctx: Context, order: int) -> str:
        async def wait() -> None:
            await gate.wait()

        await ctx.step.run("wait", wait)
        try:
            return await ctx.step.call("ask", ask)
        except StepFailed as error:
            return error.message

    @app.workflow(key=e.payload["name"], once="active")
    async def outer(ctx: Context, name: str) -> str:
        return await ctx.step.call("pay", pay, 7)

    @app.workflow()
    async def ask(ctx: Context) -> str:
        try:
            return await ctx.step.call("outer", outer, "x")
        except StepFailed as error:
            return error.error_type

    async def scenario() -> None:
        holder = await app.start(pay, 7)
        caller = await app.start(outer, "x")
        await is_in(caller, RunState.WAITING)
        gate.set()
        assert "KeyCycle" in await caller.result()
        assert "KeyCycle" in await holder.result()

    run_app(app, scenario)


def test_a_call_for_a_key_that_is_rejected_fails(store_url: str) -> None:
    app = make_app(store_url)
    orders = Orders(app, clash="reject")
    callers = Callers(app, orders)

    async def scenario() -> None:
        holder = (await emit(app, "first")).runs[0]
        assert "KeyTaken" in await (await app.start(callers.parent, "call")).result()
        orders.gate.set()
        await holder.result()

    run_app(app, scenario)


@pytest.mark.parametrize("clash", ["return", "reject"])
@pytest.mark.parametrize("has_id", [False, True])
def test_a_handle_from_inside_a_step_says_what_became_of_its_start(
    store_url: str, clash: Any, has_id: bool
) -> None:
    """Before the step is saved there is no run; afterwards it is the holder's, or there is none."""
    app = make_app(store_url)
    orders = Orders(app, clash=clash)
    handles: list[RunHandle[Any]] = []
    told: list[str] = []

    @app.workflow()
    async def parent(ctx: Context) -> str:
        async def start() -> str:
            options: dict[str, Any] = {"id": "mine"} if has_id else {}
            handle = await app.start(orders.fulfil, {"order": 7, "name": "inside"}, **options)
            try:
                await handle.result()
            except (NotFound, KeyTaken) as error:
                told.append(error.what)
            handles.append(handle)
            return "started"

        return await ctx.step.run("start", start)

    async def scenario() -> None:
        holder = (await emit(app, "first")).runs[0]
        assert await (await app.start(parent)).result() == "started"
        assert "is not saved" in told[0]
        orders.gate.set()
        assert await holder.result() == "first"
        assert await (await app.start(parent)).result() == "started"
        for handle in handles:
            if clash == "reject":
                for verb in (handle.result, handle.state, handle.cancel, handle.steps):
                    with pytest.raises(KeyTaken, match=holder.run_id):
                        await verb()
            else:
                assert await handle.result() == "first"
                assert (handle.run_id, handle.is_duplicate) == (holder.run_id, True)

    run_app(app, scenario)


def test_a_handle_from_inside_a_step_is_that_of_its_run(store_url: str) -> None:
    app = make_app(store_url)
    orders = Orders(app)
    handles: list[RunHandle[Any]] = []

    @app.workflow()
    async def parent(ctx: Context) -> None:
        async def start() -> None:
            handles.append(await app.start(orders.fulfil, {"order": 8, "name": "inside"}))

        await ctx.step.run("start", start)

    async def scenario() -> None:
        orders.gate.set()
        await (await app.start(parent)).result()
        (handle,) = handles
        before = handle.run_id
        assert await handle.result() == "inside"
        assert (handle.run_id, handle.is_duplicate) == (before, False)

    run_app(app, scenario)


@pytest.mark.parametrize(("once", "clash"), PAIRS)
def test_the_pairs_that_there_are_can_be_registered(once: str, clash: Any) -> None:
    app = App("sqlite:///:memory:")
    Orders(app, once=once, clash=clash)

    rules = app.workflows["fulfil"].policies.rules
    assert (rules.window_ms, rules.clash) == (86_400_000 if once == "24h" else None, clash)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"key": e.payload["n"], "once": "ever", "clash": "replace"}, "cannot have clash='replace'"),
        ({"key": e.payload["n"], "clash": "queue"}, "once='ever' cannot have clash='queue'"),
        ({"key": e.payload["n"], "once": "active", "clash": "skip"}, "cannot have clash='skip'"),
        ({"key": e.payload["n"], "once": "often"}, "once of a workflow"),
        ({"key": "order"}, "The key of a workflow cannot be 'order'"),
        ({"once": "active"}, "once= or clash= and no key="),
        ({"clash": "return"}, "once= or clash= and no key="),
        ({"on_redelivery": "again"}, "on_redelivery of a workflow cannot be 'again'"),
    ],
)
def test_keys_that_cannot_be_kept_are_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        App("sqlite:///:memory:").workflow(on="ordered", **options)


def test_a_process_without_the_code_claims_keys_that_are_expressions(store_url: str) -> None:
    with_code, without = make_app(store_url), make_app(store_url)
    orders = Orders(with_code)

    @with_code.workflow(on="ordered", key=lambda event: event.payload["order"], version=e.payload["n"])
    async def by_code(ctx: Context, event: Event) -> None: ...

    async def scenario() -> None:
        orders.gate.set()
        async with without:
            first = await without.emit("ordered", {"order": 7, "name": "a"}, id="a")
            second = await without.emit("ordered", {"order": 7, "name": "b"}, id="b")

            (lost,) = (await without.event("emit/ordered", "b")).skipped
            assert lost.workflow == "fulfil"
            assert lost.holder_run_id in [run.run_id for run in first.runs]
            assert lost.holder_run_id in [run.run_id for run in second.runs]
            held = await without.runs(problems=True)
            assert [row.workflow for row in held] == ["by_code", "by_code"]
            assert all("a function that this process does not have" in str(row.reason) for row in held)
            for row in held[1:]:
                await with_code.run(row.run_id).answer("retry")
                await with_code.run(row.run_id).result()
                assert (await with_code.run(row.run_id).row()).key == "7"
            with pytest.raises(KeyTaken):
                await with_code.run(held[0].run_id).answer("retry")

    run_app(with_code, scenario)


def test_whoever_looks_first_makes_room_for_a_newer_run(store_url: str) -> None:
    """The process that accepted the newer run died before it cancelled anybody."""
    app = make_app(store_url)
    orders = Orders(app, once="active", clash="replace")
    payload = '{"order":7,"name":"second"}'

    def accept_and_die(now: int) -> str:
        with open_store(store_url) as store:
            store.join(ProcessRow("p_dead", 1, None, "host", 1, "", now, now + 1), [])
            fact = EventRow("emit/ordered", "second", "ordered", payload, now)
            wish = NewRun(
                "run_second", "fulfil", now, key="7", once="active", clash="replace", payload_hash="x"
            )
            store.apply("p_dead", 1, Batch("b1", [Accept(fact, [wish])]))
            return wish.run_id

    async def scenario() -> None:
        first = (await emit(app, "first")).runs[0]
        await is_in(first, RunState.RUNNING)
        second = app.run(await asyncio.to_thread(accept_and_die, app.worker.now_ms()))

        await is_in(first, RunState.CANCELLING)
        orders.gate.set()
        assert await second.result() == "second"
        assert await first.state() is RunState.CANCELLED

    run_app(app, scenario)


def test_what_a_lost_reply_hid_is_read_again(store_url: str) -> None:
    """A commit without a reply is answered as it would have been: who holds the key, what was stale."""

    def accept(name: str, version: int) -> Accept:
        fact = EventRow("emit/ordered", name, "ordered", "{}", 1, subject="7")
        wish = NewRun(f"run_{name}", "fulfil", 1, key="7", once="ever", payload_hash="x")
        mark = msgspec.structs.replace(wish, version=version_text(version), drops_stale=True)
        return Accept(fact, [mark])

    with open_store(store_url) as store:
        store.join(ProcessRow("p", 1, None, "host", 1, "", 1, 2), [])
        batch = Batch("b1", [accept("first", 1), accept("lost", 2), accept("stale", 1)])
        answered = store.apply("p", 1, batch).accepted
        again = store.apply("p", 1, Batch("b2", [accept("lost", 2)])).accepted
        store.leave("p", 3)

        assert recovered(store, batch).accepted == answered
        assert [sorted(row.reason for row in one.skipped.values()) for one in answered] == [
            [],
            [Skip.RETURNED],
            [Skip.STALE],
        ]
        assert again[0].is_duplicate
        assert again[0].answers() == answered[1].answers() == {"fulfil": "run_first"}


def test_what_a_lost_reply_hid_of_an_event_without_runs(store_url: str) -> None:
    """Nobody's run tells whose the event is: it is told new once, then as a duplicate, or as a clash."""

    def accept(name: str, at: int, content: str) -> Accept:
        return Accept(EventRow("emit/heard", name, "heard", "{}", at, content_hash=content), [])

    with open_store(store_url) as store:
        store.join(ProcessRow("p", 1, None, "host", 1, "", 1, 2), [])
        first = Batch("b1", [accept("a", 1, "x"), accept("a", 1, "x"), accept("b", 1, "x")])
        later = Batch("b2", [accept("a", 2, "x"), accept("b", 2, "y"), accept("c", 2, "x")])
        answered = [store.apply("p", 1, batch).accepted for batch in (first, later)]
        store.leave("p", 3)

        assert [[(one.is_duplicate, one.is_clash) for one in batch] for batch in answered] == [
            [(False, False), (True, False), (False, False)],
            [(True, False), (True, True), (False, False)],
        ]
        assert [recovered(store, batch).accepted for batch in (first, later)] == answered


def test_a_caller_whose_reply_is_lost_hears_of_a_clash(store_url: str) -> None:
    def lose(name: str, _detail: str) -> None:
        if name == "accept.after_commit":
            raise ReplyLost("lost")

    app = make_app(store_url)

    async def scenario() -> None:
        failpoints.arm(lose)
        try:
            emitted = [await app.emit("heard", {"n": 1}, id="a") for _ in range(2)]
            with pytest.raises(IdClash):
                await app.emit("heard", {"n": 2}, id="a")
        finally:
            failpoints.arm(None)

        assert [one.is_duplicate for one in emitted] == [False, True]

    run_app(app, scenario)
