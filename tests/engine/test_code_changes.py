"""A run under way meets other code: never another step's value, no loop, and the truth about what changed (B061).

Each change is met in three ways: by a run that slept, by one whose attempt failed and is retried, and
by one that is thrown out of memory in the middle of a step.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest

from onceward import App, Context, RunHandle, RunState
from tests.engine.running import ONCE, evict, make_app, run_app
from tests.helpers import eventually_async

Code = Callable[[Context, "World"], Coroutine[Any, Any, Any]]


@dataclass
class World:
    """What bodies do outside."""

    app: App
    begun: Counter[str] = field(default_factory=Counter)

    def body(self, name: str) -> Callable[[], str]:
        def work() -> str:
            self.begun[name] += 1
            return f"{name}!"

        return work

    async def run(self, ctx: Context, name: str, **options: Any) -> str:
        return await ctx.step.run(name, self.body(name), **options)


# --- the code before: each has saved a, b and an id when it is changed -----------------------------------


async def begin(ctx: Context, world: World) -> list[Any]:
    return [await world.run(ctx, "a"), await world.run(ctx, "b"), str(await ctx.step.uuid("id"))]


# --- the code after, and what must become of the run ---------------------------------------------------


async def as_it_was(ctx: Context, world: World) -> Any:
    return (await begin(ctx, world))[:2]


async def swapped(ctx: Context, world: World) -> Any:
    drawn = await ctx.step.uuid("id")
    b, a = await world.run(ctx, "b"), await world.run(ctx, "a")
    return [a, b] if drawn else None


async def in_branches(ctx: Context, world: World) -> Any:
    a, b, _ = await asyncio.gather(world.run(ctx, "a"), world.run(ctx, "b"), ctx.step.uuid("id"))
    return [a, b]


async def inserted_in_front(ctx: Context, world: World) -> Any:
    new = await world.run(ctx, "new")
    return [new, *(await begin(ctx, world))[:2]]


async def inserted_between(ctx: Context, world: World) -> Any:
    found = [await world.run(ctx, "a"), await world.run(ctx, "new"), await world.run(ctx, "b")]
    await ctx.step.uuid("id")
    return found


async def renamed(ctx: Context, world: World) -> Any:
    found = [await world.run(ctx, "A"), await world.run(ctx, "b")]
    await ctx.step.uuid("id")
    return found


async def given_an_item(ctx: Context, world: World) -> Any:
    found = [await world.run(ctx, "a", item="1"), await world.run(ctx, "b")]
    await ctx.step.uuid("id")
    return found


async def removed(ctx: Context, world: World) -> Any:
    return [await world.run(ctx, "b")]


async def all_removed(ctx: Context, world: World) -> Any:
    return []


async def used_once_more(ctx: Context, world: World) -> Any:
    found = [await world.run(ctx, "a"), await world.run(ctx, "a"), await world.run(ctx, "b")]
    await ctx.step.uuid("id")
    return found


async def decorated(ctx: Context, world: World) -> Any:
    @world.app.step(name="a")
    async def a_step() -> str:
        return world.body("a")()

    found = [await a_step(), await world.run(ctx, "b")]
    await ctx.step.uuid("id")
    return found


async def another_body(ctx: Context, world: World) -> Any:
    a = await ctx.step.run("a", world.body("other"))
    found = [a, await world.run(ctx, "b")]
    await ctx.step.uuid("id")
    return found


async def other_arguments(ctx: Context, world: World) -> Any:
    a = await ctx.step.run("a", lambda text: world.body(text)(), "other")
    found = [a, await world.run(ctx, "b")]
    await ctx.step.uuid("id")
    return found


async def a_sleep_now(ctx: Context, world: World) -> Any:
    await ctx.step.sleep("a", "1ms")


async def a_call_now(ctx: Context, world: World) -> Any:
    await ctx.step.call("a", world.app.workflows["child"])


async def a_start_now(ctx: Context, world: World) -> Any:
    await ctx.step.start("a", world.app.workflows["child"])


async def an_emit_now(ctx: Context, world: World) -> Any:
    await ctx.step.emit("a", "told")


async def a_drawn_number_now(ctx: Context, world: World) -> Any:
    await begin_without_id(ctx, world)
    await ctx.step.random("id")


async def a_run_now(ctx: Context, world: World) -> Any:
    await begin_without_id(ctx, world)
    await world.run(ctx, "id")


async def another_kind_in_a_branch_whose_failure_is_swallowed(ctx: Context, world: World) -> Any:
    await asyncio.gather(ctx.step.sleep("a", "1ms"), world.run(ctx, "b"), return_exceptions=True)
    return "went on"


async def begin_without_id(ctx: Context, world: World) -> None:
    await world.run(ctx, "a")
    await world.run(ctx, "b")


@dataclass(frozen=True)
class Change:
    """A deploy, and what becomes of a run that is under way.

    Attributes:
        code: the new code up to the point that the run had reached.
        result: what it gives.
        begun: bodies that began under the new code.
        unused: saved steps that it no longer reaches.
    """

    code: Code
    result: Any
    begun: tuple[str, ...] = ()
    unused: str | None = None


ALL_UNUSED = '{"steps_no_longer_reached":["a","b","id"]}'

FITTING = [
    Change(as_it_was, ["a!", "b!"]),
    Change(swapped, ["a!", "b!"]),
    Change(in_branches, ["a!", "b!"]),
    Change(inserted_in_front, ["new!", "a!", "b!"], ("new",)),
    Change(inserted_between, ["a!", "new!", "b!"], ("new",)),
    Change(renamed, ["A!", "b!"], ("A",), '{"steps_no_longer_reached":["a"]}'),
    Change(given_an_item, ["a!", "b!"], ("a",), '{"steps_no_longer_reached":["a"]}'),
    Change(removed, ["b!"], (), '{"steps_no_longer_reached":["a","id"]}'),
    Change(all_removed, [], (), ALL_UNUSED),
    Change(used_once_more, ["a!", "a!", "b!"], ("a",)),
    Change(decorated, ["a!", "b!"]),
    Change(another_body, ["a!", "b!"]),
    Change(other_arguments, ["a!", "b!"]),
]

MISFITS: dict[Code, tuple[str, str, str]] = {
    a_sleep_now: ("'a'", "'run'", "'sleep'"),
    a_call_now: ("'a'", "'run'", "'call'"),
    a_start_now: ("'a'", "'run'", "'start'"),
    an_emit_now: ("'a'", "'run'", "'emit'"),
    a_drawn_number_now: ("'id'", "'uuid'", "'random'"),
    a_run_now: ("'id'", "'uuid'", "'run'"),
    another_kind_in_a_branch_whose_failure_is_swallowed: ("'a'", "'run'", "'sleep'"),
}

STOPS = ("asleep", "failed", "thrown out")


def app_of(url: str, code: Code, stop: str, *, is_new: bool) -> tuple[World, Any]:
    app = make_app(url, drain="100ms")
    world = World(app)

    @app.workflow
    async def child(ctx: Context) -> None: ...

    @app.workflow(name="flow")
    async def flow(ctx: Context) -> Any:
        result = await code(ctx, world)
        if stop == "asleep":
            await ctx.step.sleep("nap", "150ms")
        elif stop == "failed" and not is_new:
            raise ValueError("the old code was wrong")
        elif stop == "thrown out":
            await ctx.step.run("last", (lambda: None) if is_new else _for_ever, retry=ONCE, unknown="retry")
        return result

    return world, flow


async def _for_ever() -> None:
    await asyncio.sleep(3_600)


def stopped(url: str, stop: str) -> str:
    """Bring a run of the old code to where it meets the new one; give its id."""
    world, flow = app_of(url, begin, stop, is_new=False)
    wanted = {"asleep": RunState.SLEEPING, "failed": RunState.FAILED, "thrown out": RunState.RUNNING}[stop]

    async def scenario() -> str:
        handle = await world.app.start(flow)

        async def is_there() -> bool:
            saved = {row.name for row in await handle.steps() if row.state.value == "done"}
            return await handle.state() is wanted and {"a", "b", "id"} <= saved

        await eventually_async(is_there)
        if stop == "thrown out":
            await evict(world.app, handle.run_id)
        run_id: str = handle.run_id
        return run_id

    return run_app(world.app, scenario)


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("change", FITTING, ids=lambda change: change.code.__name__)
def test_what_fits_goes_on_with_each_steps_own_value(store_url: str, change: Change, stop: str) -> None:
    run_id = stopped(store_url, stop)
    world, _ = app_of(store_url, change.code, stop, is_new=True)

    async def scenario() -> tuple[Any, str | None]:
        handle: RunHandle[Any] = world.app.run(run_id)
        if stop == "failed":
            await handle.retry()
        return await handle.result("15s"), (await handle.row()).warning

    assert run_app(world.app, scenario) == (change.result, change.unused)
    assert world.begun == Counter(change.begun)


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("code", MISFITS, ids=lambda code: code.__name__)
def test_what_does_not_fit_is_held_by_name_and_goes_on_when_it_is_put_right(
    store_url: str, code: Code, stop: str
) -> None:
    run_id = stopped(store_url, stop)
    world, _ = app_of(store_url, code, stop, is_new=True)
    step, saved, asked = MISFITS[code]

    async def meet() -> None:
        handle = world.app.run(run_id)
        if stop == "failed":
            await handle.retry()
        await eventually_async(lambda: is_in(handle, RunState.HELD))
        row = await handle.row()
        assert (
            row.reason
            == f"code mismatch at step {step}: it was saved as {saved} and the code now asks for {asked}"
        )
        # The same code again: held again, and nothing of it was charged.
        await handle.answer("retry")
        await eventually_async(lambda: is_held_anew(handle, row.fence))
        again = await handle.row()
        assert (again.reason, again.failures, again.crashes) == (row.reason, row.failures, row.crashes)
        assert [one.workflow for one in await world.app.runs()] == ["flow"]
        assert await world.app.events(type="told") == []

    run_app(world.app, meet)
    mended, _ = app_of(store_url, as_it_was, stop, is_new=True)

    async def go_on() -> Any:
        handle = mended.app.run(run_id)
        await handle.answer("retry")
        return await handle.result("15s")

    assert run_app(mended.app, go_on) == ["a!", "b!"]
    assert world.begun + mended.begun == Counter()


async def is_in(handle: RunHandle[Any], state: RunState) -> bool:
    return await handle.state() is state


async def is_held_anew(handle: RunHandle[Any], fence: int) -> bool:
    row = await handle.row()
    return row.state is RunState.HELD and row.fence > fence


@pytest.mark.parametrize("is_started", [True, False], ids=["started", "of an event"])
def test_arguments_that_no_longer_fit_hold_the_run_until_the_code_is_put_right(
    store_url: str, is_started: bool
) -> None:
    """An event that was never compared fails its run; what fitted once was broken by a deploy."""
    order: Any = {"id": "o-1"}

    def app_with(annotation: Any) -> tuple[App, Any]:
        app = make_app(store_url)

        async def flow(ctx: Context, order: Any) -> str:
            seen: str = await ctx.step.run("see", lambda: "seen")
            await ctx.step.wait_for("go on", "go")
            return seen

        flow.__annotations__["order"] = annotation
        return app, app.workflow(on="order")(flow)

    def held_reason(run_id: str, app: App) -> str | None:
        async def scenario() -> str | None:
            await app.emit("go")
            handle = app.run(run_id)
            await eventually_async(lambda: is_in(handle, RunState.HELD))
            return (await handle.row()).reason

        return run_app(app, scenario)

    async def begin() -> list[str]:
        handles = [
            await app.start(flow, order) if is_started else (await app.emit("order", order)).runs[0]
            for _ in range(2)
        ]
        for handle in handles:
            await eventually_async(lambda handle=handle: is_in(handle, RunState.WAITING))  # type: ignore[misc]
        return [handle.run_id for handle in handles]

    app, flow = app_with(dict[str, str])
    to_mend, to_cancel = run_app(app, begin)
    changed, _ = app_with(Order)
    assert held_reason(to_mend, changed) == (
        "code mismatch at the arguments: Argument 'order' of 'flow' is no "
        "tests.engine.test_code_changes.Order: Object missing required field `cents`."
    )

    async def go_on() -> tuple[str, RunState]:
        await app.run(to_cancel).cancel()
        await eventually_async(lambda: is_in(app.run(to_cancel), RunState.CANCELLED))
        await app.run(to_mend).answer("retry")
        return await app.run(to_mend).result("15s"), await app.run(to_cancel).state()

    app, flow = app_with(dict[str, str])
    assert run_app(app, go_on) == ("seen", RunState.CANCELLED)


@dataclass
class Order:
    id: str
    cents: int
