"""What a run did is undone, the last step first, each undo a step of its own; also half way after a crash."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from onceward import (
    AUTO,
    App,
    ConfigError,
    Context,
    DidNotHappen,
    Happened,
    IdempotencyKey,
    Permanent,
    Retry,
    RunCancelled,
    RunFailed,
    RunHandle,
    RunState,
    RunWasCancelled,
    StateConflict,
    StepFailed,
    SyncContext,
)
from onceward.authoring.current import session_var
from onceward.core.model import StepRow
from onceward.core.states import StepState
from tests.engine.running import ONCE, SOON, evict, make_app, run_app
from tests.helpers import eventually_async


@dataclass
class Charge:
    id: str


@dataclass
class World:
    """What is outside.

    Attributes:
        did: what was done and undone, in that order.
        keys: the idempotency keys that undos handed out.
        broken: undos that fail, by step.
        hanging: bodies and undos that hang after their effect, once each.
    """

    did: list[str] = field(default_factory=list)
    keys: dict[str, list[str]] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    hanging: set[str] = field(default_factory=set)

    async def act(self, what: str) -> None:
        self.did.append(what)
        if what in self.hanging:
            self.hanging.discard(what)
            await asyncio.sleep(60)
        if what in self.broken:
            raise ConnectionError(f"{what} is broken")


def shop(url: str, world: World, **options: Any) -> App:
    """An app whose workflow reserves, charges and ships; shipping is refused."""
    app = make_app(url)

    @app.step
    async def reserve(order: str) -> str:
        await world.act("reserve")
        return f"shelf of {order}"

    @reserve.undo(retry=Retry(max_tries=2, base="1ms"))
    async def release(shelf: str, *, idempotency_key: IdempotencyKey = AUTO) -> None:
        world.keys.setdefault("release", []).append(idempotency_key)
        assert shelf == "shelf of o-1"
        await world.act("release")

    @app.step
    async def charge(order: str, cents: int = 990, *, idempotency_key: IdempotencyKey = AUTO) -> Charge:
        await world.act("charge")
        return Charge(f"ch {order}")

    @charge.undo(retry=Retry(max_tries=2, base="1ms"))
    async def refund(charge: Charge, cents: int, *, idempotency_key: IdempotencyKey = AUTO) -> Charge:
        world.keys.setdefault("refund", []).append(idempotency_key)
        assert (charge, cents) == (Charge("ch o-1"), 990)
        await world.act("refund")
        return charge

    @app.step(retry=ONCE, unknown="retry")
    async def ship(order: str) -> None:
        await world.act("ship")
        raise Permanent("no such address")

    @ship.undo
    async def unship(nothing: None) -> None:
        await world.act("unship")

    @app.workflow(**{"undo": "on_failure", **options})
    async def fulfil(ctx: Context, order: str) -> None:
        await reserve(order)
        await ctx.step.run("look", str, order)
        await charge(order)
        await ctx.step.sleep("a moment", "1ms")
        await ship(order)

    return app


def fulfil(app: App) -> Any:
    return app.workflows["fulfil"]


async def ends(handle: RunHandle[Any], state: RunState) -> None:
    async def is_there() -> bool:
        return await handle.state() is state

    await eventually_async(is_there, what=f"the run is {state}")


async def does(world: World, what: str) -> None:
    async def has() -> bool:
        return what in world.did

    await eventually_async(has, what=what)


def test_a_run_that_fails_undoes_what_it_did_the_last_first(store_url: str) -> None:
    world = World()
    app = shop(store_url, world)

    async def scenario() -> tuple[Any, list[StepRow], str]:
        handle = await app.start(fulfil(app), "o-1")
        with pytest.raises(RunFailed) as failed:
            await handle.result()
        return await handle.row(), await handle.steps(), failed.value.message

    row, steps, message = run_app(app, scenario)

    assert world.did == ["reserve", "charge", "ship", "refund", "release"]
    assert "no such address" in message
    assert row.state is RunState.FAILED
    assert json.loads(row.warning) == {"undone": ["charge", "reserve"]}
    records = {record.name: record for record in steps if record.kind == "undo"}
    assert {name: record.state for name, record in records.items()} == {
        "charge (undo)": StepState.DONE,
        "reserve (undo)": StepState.DONE,
        "undo everything": StepState.DONE,
    }
    assert [record.state for record in steps if record.name == "charge"] == [StepState.DONE]
    (refund_key,), (release_key,) = world.keys["refund"], world.keys["release"]
    assert refund_key != release_key
    assert refund_key.startswith("ow_")


def test_without_the_option_nothing_is_undone(sqlite_url: str) -> None:
    world = World()
    app = shop(sqlite_url, world, undo=None)

    async def scenario() -> None:
        with pytest.raises(RunFailed):
            await (await app.start(fulfil(app), "o-1")).result()

    run_app(app, scenario)
    assert world.did == ["reserve", "charge", "ship"]


def test_undoing_waits_for_the_last_attempt(store_url: str) -> None:
    world = World()
    app = shop(store_url, world)

    @app.workflow(undo="on_failure", retry=Retry(max_tries=2, base="1ms"))
    async def flow(ctx: Context) -> None:
        await made(app, world)()
        if ctx.attempt == 1:
            raise ConnectionError
        await ctx.step.run("fails", failing, retry=ONCE, unknown="retry")

    async def failing() -> None:
        await world.act("fails")
        raise ConnectionError

    async def scenario() -> int:
        handle = await app.start(flow)
        with pytest.raises(RunFailed):
            await handle.result()
        return (await handle.row()).attempt

    assert run_app(app, scenario) == 2
    assert world.did == ["made", "fails", "unmade"]


def made(app: App, world: World, **options: Any) -> Any:
    """A step that has an undo."""

    @app.step(**options)
    async def made(order: str = "a") -> str:
        await world.act("made")
        return order

    @made.undo(retry=Retry(max_tries=2, base="1ms"))
    def unmade(order: str) -> None:
        world.did.append("unmade")

    return made


@pytest.mark.parametrize("at", ["refund", "release"])
def test_half_way_it_goes_on_where_it_was(store_url: str, at: str) -> None:
    world = World(hanging={at})
    app = shop(store_url, world)

    async def scenario() -> Any:
        handle = await app.start(fulfil(app), "o-1")
        await does(world, at)
        await evict(app, handle.run_id)
        with pytest.raises(RunFailed, match="no such address"):
            await handle.result()
        return await handle.row()

    row = run_app(app, scenario)

    again = {"refund": ["refund", "refund", "release"], "release": ["refund", "release", "release"]}
    assert world.did == ["reserve", "charge", "ship", *again[at]]
    assert json.loads(row.warning) == {"undone": ["charge", "reserve"]}
    assert len(set(world.keys[at])) == 1


def test_once_it_has_begun_nothing_new_of_the_code_begins(store_url: str) -> None:
    """Code that would end otherwise the second time is not followed: what it did is being undone."""
    world = World(hanging={"unmade"})
    app = make_app(store_url)
    is_first = True

    @app.step
    async def make() -> str:
        await world.act("made")
        return "a"

    @make.undo
    async def unmake(made: str) -> None:
        await world.act("unmade")

    @app.workflow(undo="on_failure")
    async def flow(ctx: Context) -> str:
        nonlocal is_first
        await make()
        if is_first:
            is_first = False
            raise ConnectionError("only the first time")
        return await ctx.step.run("ship", str, "shipped")

    async def scenario() -> list[str]:
        handle = await app.start(flow)
        await does(world, "unmade")
        await evict(app, handle.run_id)
        with pytest.raises(RunFailed, match="only the first time"):
            await handle.result()
        return [row.name for row in await handle.steps()]

    assert "ship" not in run_app(app, scenario)
    assert world.did == ["made", "unmade", "unmade"]


def test_a_cancelled_run_cleans_up_and_is_undone(store_url: str) -> None:
    world = World()
    app = make_app(store_url)
    make = made(app, world)

    @app.workflow(undo="on_failure")
    async def flow(ctx: Context) -> None:
        await make()
        try:
            await ctx.step.sleep("long", "1h")
        finally:
            await ctx.step.run("clean up", world.act, "clean up")

    async def scenario() -> Any:
        handle = await app.start(flow)
        await ends(handle, RunState.SLEEPING)
        await handle.cancel()
        with pytest.raises(RunWasCancelled):
            await handle.result()
        return await handle.row()

    row = run_app(app, scenario)

    assert world.did == ["made", "clean up", "unmade"]
    assert (row.state, json.loads(row.warning)) == (RunState.CANCELLED, {"undone": ["made"]})


def test_a_run_that_is_cancelled_while_it_undoes_goes_on_undoing(store_url: str) -> None:
    world = World(hanging={"refund"})
    app = shop(store_url, world)

    async def scenario() -> None:
        handle = await app.start(fulfil(app), "o-1")
        await does(world, "refund")
        await handle.cancel()
        with pytest.raises(RunWasCancelled):
            await handle.result()

    run_app(app, scenario)
    assert world.did == ["reserve", "charge", "ship", "refund", "refund", "release"]


@pytest.mark.parametrize("is_asleep", [True, False])
def test_a_run_that_is_too_late_is_undone(store_url: str, is_asleep: bool) -> None:
    world = World()
    app = make_app(store_url)
    make = made(app, world)

    @app.workflow(undo="on_failure", deadline="300ms")
    async def flow(ctx: Context) -> None:
        await make()
        if is_asleep:
            await ctx.step.sleep("long", "1h")
        await ctx.step.run("long", asyncio.sleep, 60)

    async def scenario() -> None:
        with pytest.raises(RunFailed, match="did not end before its deadline"):
            await (await app.start(flow)).result()

    run_app(app, scenario)
    assert world.did == ["made", "unmade"]


# --- an undo that fails -----------------------------------------------------------------------------


@pytest.mark.parametrize("answer", ["did_not_happen", "happened", "fail"])
def test_an_undo_that_fails_holds_the_run(store_url: str, answer: str) -> None:
    world = World(broken={"refund"})
    app = shop(store_url, world)

    async def scenario() -> tuple[Any, str | None, RunState]:
        handle = await app.start(fulfil(app), "o-1")
        await ends(handle, RunState.HELD)
        (question,), reason = await handle.questions(), (await handle.row()).reason
        assert world.did == ["reserve", "charge", "ship", "refund", "refund"]
        with pytest.raises(StateConflict, match="'happened'"):
            await handle.answer("retry")
        world.broken.clear()
        await handle.answer(answer)
        with pytest.raises(RunFailed):
            await handle.result()
        return question, reason, await handle.state()

    question, reason, state = run_app(app, scenario)

    assert reason == "outcome unknown: step 'charge (undo)'"
    assert (question.step, question.kind) == ("charge (undo)", "undo")
    assert "it failed after 2 tries: ConnectionError: refund is broken" in question.why
    assert json.loads(question.arguments) == {"charge": {"id": "ch o-1"}, "cents": 990}
    rest = {"did_not_happen": ["refund", "release"], "happened": ["release"], "fail": []}
    assert world.did[5:] == rest[answer]
    assert state is RunState.FAILED


def test_a_held_undo_of_a_cancelled_run_stays_a_cancel(store_url: str) -> None:
    world = World(broken={"unmade"})
    app = make_app(store_url)

    @app.step
    async def make() -> str:
        await world.act("made")
        return "a"

    @make.undo(retry=ONCE)
    async def unmake(made: str) -> None:
        await world.act("unmade")

    @app.workflow(undo="on_failure")
    async def flow(ctx: Context) -> None:
        await make()
        await ctx.step.sleep("long", "1h")

    async def scenario() -> None:
        handle = await app.start(flow)
        await ends(handle, RunState.SLEEPING)
        await handle.cancel()
        await ends(handle, RunState.HELD)
        world.broken.clear()
        await handle.answer("did_not_happen")
        with pytest.raises(RunWasCancelled):
            await handle.result()

    run_app(app, scenario)
    assert world.did == ["made", "unmade", "unmade"]


# --- what may have happened ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("way", "undone"), [("check yes", True), ("check no", False), ("ask yes", True), ("ask no", False)]
)
def test_a_step_of_unknown_outcome_is_looked_at_before_it_is_undone(
    store_url: str, way: str, undone: bool
) -> None:
    """Cut off in its body by a cancel: what it did is known to the bank, or to a person."""
    world = World(hanging={"made"})
    app = make_app(store_url)
    is_yes = way.endswith("yes")

    async def look() -> Happened[str] | DidNotHappen:
        return Happened("found") if is_yes else DidNotHappen()

    @app.step(unknown=look if way.startswith("check") else None)
    async def make() -> str:
        await world.act("made")
        return "a"

    @make.undo
    async def unmake(made: str) -> None:
        world.did.append(f"unmade {made}")

    @app.workflow(undo="on_failure")
    async def flow(ctx: Context) -> None:
        await make()

    async def scenario() -> None:
        handle = await app.start(flow)
        await does(world, "made")
        await handle.cancel()
        if way.startswith("ask"):
            await ends(handle, RunState.HELD)
            (question,) = await handle.questions()
            assert question.step == "make (outcome)"
            assert "if it took effect, it must be undone" in question.why
            await handle.answer(
                "happened" if is_yes else "did_not_happen", **{"result": "found"} if is_yes else {}
            )
        with pytest.raises(RunWasCancelled):
            await handle.result()

    run_app(app, scenario)
    assert world.did == ["made", *(["unmade found"] if undone else [])]


@pytest.mark.parametrize("last", ["time-out", "failure"])
def test_a_step_that_timed_out_may_have_happened_whatever_its_other_tries_say(
    sqlite_url: str, last: str
) -> None:
    world = World()
    app = make_app(sqlite_url)
    tries: list[int] = []

    @app.step(timeout="20ms", retry=Retry(max_tries=2, base="1ms"))
    async def make() -> str:
        tries.append(1)
        if len(tries) == (2 if last == "time-out" else 1):
            await asyncio.sleep(60)
        raise ConnectionError

    @make.undo
    async def unmake(made: str) -> None:
        world.did.append(f"unmade {made}")

    @app.workflow(undo="on_failure")
    async def flow(ctx: Context) -> None:
        await make()

    async def scenario() -> None:
        handle = await app.start(flow)
        await ends(handle, RunState.HELD)
        await handle.answer("happened", result="by hand")
        with pytest.raises(RunFailed):
            await handle.result()

    run_app(app, scenario)
    assert world.did == ["unmade by hand"]


def test_what_was_found_not_to_have_happened_is_not_asked_about_again(sqlite_url: str) -> None:
    """Cut off once, looked at, and then it fails: there is nothing to undo."""
    world = World(hanging={"made"})
    app = make_app(sqlite_url)

    async def look() -> DidNotHappen:
        return DidNotHappen()

    @app.step(unknown=look, retry=ONCE)
    async def make() -> str:
        await world.act("made")
        raise ConnectionError

    @make.undo
    async def unmake(made: str) -> None:
        world.did.append("unmade")

    @app.workflow(undo="on_failure")
    async def flow(ctx: Context) -> None:
        await make()

    async def scenario() -> None:
        handle = await app.start(flow)
        await does(world, "made")
        await evict(app, handle.run_id)
        with pytest.raises(RunFailed):
            await handle.result()

    run_app(app, scenario)
    assert world.did == ["made", "made"]


def test_what_a_failing_sibling_cut_off_is_asked_about(store_url: str) -> None:
    world = World(hanging={"made"})
    app = make_app(store_url)
    make = made(app, world)

    async def broken() -> None:
        await does(world, "made")
        raise Permanent("broken")

    @app.workflow(undo="on_failure")
    async def flow(ctx: Context) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(make())
            group.create_task(ctx.step.run("broken", broken))

    async def scenario() -> None:
        handle = await app.start(flow)
        await ends(handle, RunState.HELD)
        await handle.answer("happened", result="a")
        with pytest.raises(RunFailed):
            await handle.result()

    run_app(app, scenario)
    assert world.did == ["made", "unmade"]


# --- where the code says so ------------------------------------------------------------------------------


def test_the_code_can_say_when(store_url: str) -> None:
    """What it undid is handed out in saved order, or recall would take the code for changed."""
    world = World()
    diverged: list[bool] = []
    app = make_app(store_url)
    make = made(app, world)

    @app.workflow
    async def flow(ctx: Context) -> list[list[str]]:
        undone = []
        await make.item("1")("1")
        await make.item("2")("2")
        undone.append(await ctx.step.undo("give it back"))
        await ctx.step.run("tell", world.act, "tell")
        await make.item("3")("3")
        await ctx.step.sleep("a while", "200ms")
        diverged.append(cast("Any", session_var.get()).recall._has_diverged)
        undone.append(await ctx.step.undo("give it back"))
        return undone

    async def scenario() -> tuple[list[list[str]], Any]:
        handle = await app.start(flow)
        await ends(handle, RunState.SLEEPING)
        return await handle.result(), await handle.row()

    undone, row = run_app(app, scenario)

    assert diverged == [False]
    assert undone == [["made[2]", "made[1]"], ["made[3]"]]
    assert world.did == ["made", "made", "unmade", "unmade", "tell", "made", "unmade"]
    assert json.loads(row.warning) == {"undone": ["made[2]", "made[1]", "made[3]"]}


def test_the_codes_own_undoing_goes_on_where_it_was(store_url: str) -> None:
    world = World(hanging={"unmade 1"})
    app = make_app(store_url)

    @app.step
    async def make(name: str) -> str:
        return name

    @make.undo
    async def unmake(made: str) -> None:
        await world.act(f"unmade {made}")

    @app.workflow
    async def flow(ctx: Context) -> list[str]:
        for name in ("1", "2"):
            await make.item(name)(name)
        undone = await ctx.step.undo("give it back")
        await ctx.step.run("tell", world.act, "tell")
        return undone

    async def scenario() -> list[str]:
        handle = await app.start(flow)
        await does(world, "unmade 1")
        await evict(app, handle.run_id)
        result: list[str] = await handle.result()
        return result

    assert run_app(app, scenario) == ["make[2]", "make[1]"]
    assert world.did == ["unmade 2", "unmade 1", "unmade 1", "tell"]


def test_a_clean_up_can_undo(store_url: str) -> None:
    world = World()
    app = make_app(store_url)
    make = made(app, world)

    @app.workflow
    async def flow(ctx: Context) -> None:
        await make()
        try:
            await ctx.step.sleep("long", "1h")
        except RunCancelled:
            await ctx.step.undo("give it back")
            raise

    async def scenario() -> None:
        handle = await app.start(flow)
        await ends(handle, RunState.SLEEPING)
        await handle.cancel()
        with pytest.raises(RunWasCancelled):
            await handle.result()

    run_app(app, scenario)
    assert world.did == ["made", "unmade"]


def test_a_run_that_undid_itself_is_not_tried_again(store_url: str) -> None:
    """The next attempt would take what was undone for done (RULINGS 20)."""
    world = World()
    app = make_app(store_url)
    make = made(app, world)

    @app.workflow(retry=SOON)
    async def flow(ctx: Context) -> str:
        await make()
        await ctx.step.undo("give it back")
        raise ConnectionError

    async def scenario() -> tuple[int, int]:
        handle = await app.start(flow)
        with pytest.raises(RunFailed):
            await handle.result()
        with pytest.raises(StateConflict, match="steps of it were undone"):
            await handle.retry()
        with pytest.raises(StateConflict, match="were undone"):
            await handle.replay(from_step="made")
        attempt = (await handle.row()).attempt
        await handle.restart(acknowledge=True)
        await ends(handle, RunState.FAILED)
        return attempt, (await handle.row()).generation

    assert run_app(app, scenario) == (1, 2)
    assert world.did == ["made", "unmade"] * 2


def test_what_a_replay_copied_is_not_its_to_undo(store_url: str) -> None:
    world = World()
    app = make_app(store_url)
    make = made(app, world)

    @app.workflow(undo="on_failure")
    async def flow(ctx: Context) -> str:
        await make.item("1")()
        await make.item("2")()
        if len(world.did) > 2:
            raise ConnectionError
        return "done"

    async def scenario() -> None:
        handle = await app.start(flow)
        await handle.result()
        again = await handle.replay(from_step="made[2]")
        with pytest.raises(RunFailed):
            await again.result()

    run_app(app, scenario)
    assert world.did == ["made", "made", "made", "unmade"]


def test_plain_workflows_undo_too(store_url: str) -> None:
    did: list[str] = []
    app = make_app(store_url)

    class Till:
        @app.step
        def take(self, cents: int) -> int:
            did.append(f"took {cents}")
            return cents

        @take.undo  # type: ignore[arg-type]  # of methods the types know nothing
        def give_back(self, taken: int) -> None:  # type: ignore[misc]
            did.append(f"gave {taken} back")

    till = Till()

    @app.workflow(undo="on_failure")
    def flow(ctx: SyncContext) -> None:
        till.take(1)
        assert ctx.step.undo("give it back") == ["take"]
        till.take(2)
        raise ConnectionError

    async def scenario() -> None:
        with pytest.raises(RunFailed):
            await (await app.start(flow)).result()

    run_app(app, scenario)
    assert did == ["took 1", "gave 1 back", "took 2", "gave 2 back"]


def test_a_plain_workflow_goes_on_undoing_half_way(store_url: str) -> None:
    world = World(hanging={"unmade"})
    app = make_app(store_url)

    @app.step
    def make() -> str:
        world.did.append("made")
        return "a"

    @make.undo
    async def unmake(made: str) -> None:
        await world.act("unmade")

    @app.workflow(undo="on_failure")
    def flow(ctx: SyncContext) -> None:
        make()
        ctx.step.sleep("a moment", "1ms")
        raise ConnectionError("as always")

    async def scenario() -> None:
        handle = await app.start(flow)
        await does(world, "unmade")
        await evict(app, handle.run_id)
        with pytest.raises(RunFailed, match="as always"):
            await handle.result()

    run_app(app, scenario)
    assert world.did == ["made", "unmade", "unmade"]


def test_a_caught_failure_stays_caught(sqlite_url: str) -> None:
    world = World(broken={"made"})
    app = make_app(sqlite_url)
    make = made(app, world, retry=ONCE)

    @app.workflow(undo="on_failure")
    async def flow(ctx: Context) -> str:
        try:
            await make()
        except StepFailed:
            return "without it"
        return "with it"

    async def scenario() -> str:
        result: str = await (await app.start(flow)).result()
        return result

    assert run_app(app, scenario) == "without it"
    assert world.did == ["made"]


def test_code_that_no_longer_asks_for_what_must_be_undone_holds_the_run(store_url: str) -> None:
    world = World(hanging={"unmade"})
    app = make_app(store_url)
    is_first = True

    @app.step
    async def make(name: str) -> str:
        return name

    @make.undo
    async def unmake(made: str) -> None:
        await world.act("unmade")

    @app.workflow(undo="on_failure")
    async def flow(ctx: Context) -> None:
        await make.item("1")("1")
        if is_first:
            await make.item("2")("2")
        raise ConnectionError

    async def scenario() -> str:
        nonlocal is_first
        handle = await app.start(flow)
        await does(world, "unmade")
        is_first = False
        await evict(app, handle.run_id)
        await ends(handle, RunState.HELD)
        reason = (await handle.row()).reason or ""
        is_first = True  # a deploy mends it
        await handle.answer("retry")
        await ends(handle, RunState.FAILED)
        return reason

    assert "whether 'make[2]' must be undone is not known" in run_app(app, scenario)
    assert world.did == ["unmade"] * 3


def test_what_was_made_after_looking_for_it_is_undone(sqlite_url: str) -> None:
    world = World()
    app = make_app(sqlite_url)
    make = made(app, world)

    async def find(order: str) -> str | None:
        return None

    @app.workflow(undo="on_failure")
    async def flow(ctx: Context) -> None:
        await ctx.step.ensure("make", find, make, args=("a",))
        raise ConnectionError

    async def scenario() -> None:
        with pytest.raises(RunFailed):
            await (await app.start(flow)).result()

    run_app(app, scenario)
    assert world.did == ["made", "unmade"]


# --- registering -----------------------------------------------------------------------------------------


def test_an_undo_that_could_not_be_called_is_refused() -> None:
    app = App("sqlite:///:memory:")

    @app.step
    async def charge(order: str, cents: int) -> Charge:
        return Charge(order)

    with pytest.raises(ConfigError, match="takes 'amount', which is no parameter of the step"):

        @charge.undo
        async def refund(charge: Charge, amount: int) -> None: ...

    @charge.undo  # type: ignore[arg-type]  # a keyword of its own
    async def refund_all(charge: Charge, order: str, reason: str = "undone", **rest: Any) -> None: ...

    with pytest.raises(ConfigError, match="has two undos"):
        charge.undo(refund_all)
    with pytest.raises(ConfigError, match="The undo of a workflow cannot be"):
        app.workflow(undo="always")  # type: ignore[call-overload]
