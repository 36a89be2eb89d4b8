"""Look before you create: what a first try left is found, and nothing is made twice."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass
from typing import Any

import pytest

from onceward import AUTO, Context, IdempotencyKey, Retry, RunFailed, SyncContext
from tests.engine.running import ONCE, SOON, evict, make_app, result_of, run_app
from tests.helpers import eventually_async


@dataclass
class Ticket:
    id: str


class Desk:
    """A service that knows no keys, and can be asked what there is."""

    def __init__(self) -> None:
        self.tickets: dict[str, Ticket] = {}
        self.calls: list[str] = []
        self.is_hanging = False

    async def find(self, order: str) -> Ticket | None:
        self.calls.append("find")
        return self.tickets.get(order)

    async def create(self, order: str) -> Ticket:
        self.calls.append("create")
        self.tickets[order] = Ticket(f"ticket of {order}")
        return self.tickets[order]

    async def create_and_hang(self, order: str) -> Ticket:
        made = await self.create(order)
        self.is_hanging = True
        await asyncio.sleep(30)
        return made

    def find_plainly(self, order: str) -> Ticket | None:
        self.calls.append("find")
        return self.tickets.get(order)

    def create_plainly(self, order: str) -> Ticket:
        self.calls.append("create")
        self.tickets[order] = Ticket(f"ticket of {order}")
        return self.tickets[order]


@pytest.mark.parametrize("find", ["find", "find_plainly"])
@pytest.mark.parametrize("create", ["create", "create_plainly"])
def test_what_is_not_there_is_created_and_saved_as_one_step(sqlite_url: str, find: str, create: str) -> None:
    app, desk = make_app(sqlite_url), Desk()

    @app.workflow()
    async def flow(ctx: Context) -> list[Ticket]:
        functions: tuple[Any, Any] = getattr(desk, find), getattr(desk, create)
        made = await ctx.step.ensure("ticket", *functions, args=("A-1",))
        there = await ctx.step.ensure("again", *functions, args=("A-1",))
        await ctx.step.sleep("leave memory", "100ms")
        return [made, there]

    async def scenario() -> tuple[list[Ticket], list[str]]:
        handle = await app.start(flow)
        result = await handle.result()
        return result, [str(row.key) for row in await handle.steps()]

    result, names = run_app(app, scenario)

    assert result == [Ticket("ticket of A-1")] * 2
    assert desk.calls == ["find", "create", "find"]
    assert names == ["ticket", "again", "leave memory"]


def test_what_a_try_left_that_was_cut_off_is_found(store_url: str) -> None:
    app, desk = make_app(store_url), Desk()

    @app.workflow()
    async def flow(ctx: Context) -> Ticket:
        return await ctx.step.ensure("ticket", desk.find, desk.create_and_hang, ("A-1",))

    async def scenario() -> Ticket:
        handle = await app.start(flow)

        async def hangs() -> bool:
            return desk.is_hanging

        await eventually_async(hangs)
        await evict(app, handle.run_id)
        return await handle.result()

    assert run_app(app, scenario) == Ticket("ticket of A-1")
    assert desk.calls == ["find", "create", "find"]


def test_a_failing_look_is_tried_again_and_creates_nothing(sqlite_url: str) -> None:
    app, desk = make_app(sqlite_url), Desk()

    async def find(order: str) -> Ticket | None:
        desk.calls.append("look")
        if len(desk.calls) < 3:
            raise ConnectionError
        return None

    @app.workflow()
    async def flow(ctx: Context, retry: int) -> Ticket:
        return await ctx.step.ensure("ticket", find, desk.create, ("A-1",), retry=SOON if retry else ONCE)

    with pytest.raises(RunFailed, match="ConnectionError"):
        result_of(app, flow, 0)
    assert desk.calls == ["look"]
    result_of(app, flow, 1)
    assert desk.calls == ["look", "look", "look", "create"]


def test_a_plain_workflow_ensures_too(sqlite_url: str) -> None:
    app, desk = make_app(sqlite_url), Desk()

    @app.workflow()
    def flow(ctx: SyncContext) -> list[Ticket]:
        made = ctx.step.ensure("ticket", desk.find_plainly, desk.create_plainly, ("A-1",))
        return [made, ctx.step.ensure("again", desk.find, desk.create, ("A-1",))]

    assert result_of(app, flow) == [Ticket("ticket of A-1")] * 2
    assert desk.calls == ["find", "create", "find"]


def test_both_functions_get_the_key_of_the_step(sqlite_url: str) -> None:
    app = make_app(sqlite_url)
    keys: list[str] = []

    async def find(order: str, *, key: IdempotencyKey = AUTO) -> str | None:
        keys.append(key)
        return None

    @app.step(retry=SOON, key_scope="business")
    def create(order: str, key: IdempotencyKey = AUTO) -> str:
        keys.append(key)
        if len(keys) < 6:
            raise ConnectionError
        return key

    @app.workflow()
    async def flow(ctx: Context) -> str:
        return await ctx.step.ensure("ticket", find, create, ("A-1",))

    result = result_of(app, flow)

    assert keys == [result] * 6


@pytest.mark.parametrize("args", ["A-1", ["A-1"], None])
def test_arguments_that_are_no_tuple_are_refused(sqlite_url: str, args: Any) -> None:
    app, desk = make_app(sqlite_url), Desk()

    @app.workflow()
    async def flow(ctx: Context) -> None:
        await ctx.step.ensure("ticket", desk.find, desk.create, args)

    with pytest.raises(RunFailed, match="which is no tuple"):
        result_of(app, flow)
    assert desk.calls == []


@pytest.mark.parametrize("which", ["find", "create"])
def test_what_is_no_function_is_refused(sqlite_url: str, which: str) -> None:
    app, desk = make_app(sqlite_url), Desk()

    @app.workflow()
    async def flow(ctx: Context) -> None:
        functions: dict[str, Any] = {"find": desk.find, "create": desk.create} | {which: "A-1"}
        await ctx.step.ensure("ticket", args=("A-1",), **functions)

    with pytest.raises(RunFailed, match="cannot be called"):
        result_of(app, flow)


def test_a_uuid_may_sort_by_time_and_is_drawn_once(store_url: str) -> None:
    app = make_app(store_url)

    @app.workflow(retry=Retry(max_tries=2, base="10ms"))
    async def flow(ctx: Context, seen: str) -> list[uuid.UUID]:
        drawn = [await ctx.step.uuid("id", version=7, item=number) for number in range(3)]
        drawn.append(await ctx.step.uuid("plain"))
        await ctx.step.sleep("leave memory", "100ms")
        return [*drawn, await ctx.step.uuid("id", version=4, item=0)]

    @app.workflow()
    def plain(ctx: SyncContext) -> uuid.UUID:
        return ctx.step.uuid("id", version=7)

    async def scenario() -> tuple[list[uuid.UUID], uuid.UUID]:
        first = await (await app.start(flow, "x")).result()
        return first, await (await app.start(plain)).result()

    (*sevens, four, again), other = run_app(app, scenario)

    assert [one.version for one in (*sevens, four, other)] == [7, 7, 7, 4, 7]
    assert [*sevens, other] == sorted({*sevens, other})
    assert again.version == 4


def test_a_saved_uuid_answers_also_when_the_code_asks_for_another_version(sqlite_url: str) -> None:
    app = make_app(sqlite_url)
    drawn: list[uuid.UUID] = []

    @app.workflow(retry=SOON)
    async def flow(ctx: Context) -> None:
        drawn.append(await ctx.step.uuid("id", version=4 if ctx.attempt == 1 else 7))
        if ctx.attempt == 1:
            raise ConnectionError

    result_of(app, flow)

    assert drawn[0] == drawn[1]


def test_another_version_is_refused(sqlite_url: str) -> None:
    app = make_app(sqlite_url)
    wrong: Any = 1

    @app.workflow()
    async def flow(ctx: Context) -> None:
        await ctx.step.uuid("id", version=wrong)

    with pytest.raises(RunFailed, match="draws no version 1"):
        result_of(app, flow)
