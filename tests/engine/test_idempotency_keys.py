"""The key that a step hands to others: the same for one effect, different for different ones."""

from __future__ import annotations

import asyncio
import functools
import re
from typing import TYPE_CHECKING, Any

import pytest

from onceward import AUTO, App, Context, IdempotencyKey, RunFailed, SyncContext
from tests.engine.running import ONCE, SOON, evict, make_app, result_of, run_app
from tests.helpers import eventually_async

if TYPE_CHECKING:
    from decimal import Decimal


async def injected(*, idempotency_key: IdempotencyKey = AUTO) -> str:
    return idempotency_key


def injected_plainly(amount: int = 0, key: IdempotencyKey = AUTO, *rest: int) -> str:
    return key


def without_default(key: IdempotencyKey) -> str:
    return key


def unresolvable(price: Decimal, *, key: IdempotencyKey = AUTO) -> str:
    return key


class Gateway:
    async def charge(self, amount: int, key: IdempotencyKey = AUTO) -> str:
        return key

    def __call__(self, *, key: IdempotencyKey = AUTO) -> str:
        return key


BODIES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "async": (injected, ()),
    "plain": (injected_plainly, (7,)),
    "without a default": (without_default, ()),
    "beside an annotation that only type checkers can resolve": (unresolvable, (1,)),
    "method": (Gateway().charge, (7,)),
    "callable": (Gateway(), ()),
    "partial": (functools.partial(injected_plainly, 7), ()),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_parameter_gets_the_key_that_the_context_gives(sqlite_url: str, name: str) -> None:
    body, args = BODIES[name]
    app = make_app(sqlite_url)

    @app.workflow()
    async def flow(ctx: Context) -> list[str]:
        return [
            await ctx.step.run("pay", body, *args),
            await ctx.step.run("look", lambda: ctx.idempotency_key),
        ]

    given, read = result_of(app, flow)

    assert re.fullmatch(r"ow_[0-9a-f]{40}", given)
    assert re.fullmatch(r"ow_[0-9a-f]{40}", read)
    assert given != read


def test_a_key_of_the_callers_own_is_left_alone(sqlite_url: str) -> None:
    app = make_app(sqlite_url)
    mine = IdempotencyKey("mine")

    @app.workflow()
    async def flow(ctx: Context) -> list[str]:
        return [
            await ctx.step.run("a", injected, idempotency_key=mine),
            await ctx.step.run("b", injected_plainly, 7, mine, 8),
            (await ctx.step.run("c", injected, idempotency_key=AUTO))[:3],
        ]

    assert result_of(app, flow) == ["mine", "mine", "ow_"]


def test_outside_a_run_the_default_arrives_as_it_is(sqlite_url: str) -> None:
    app = make_app(sqlite_url)

    @app.step
    def pay(key: IdempotencyKey = AUTO) -> str:
        return key

    assert pay() == ""


def test_the_key_can_be_read_in_a_body_only(sqlite_url: str) -> None:
    app = make_app(sqlite_url)

    @app.workflow()
    async def flow(ctx: Context) -> str:
        return ctx.idempotency_key

    with pytest.raises(RunFailed, match=r"ctx\.idempotency_key was read outside a step's body"):
        result_of(app, flow)


def test_the_key_is_the_same_on_every_try_attempt_and_go(store_url: str) -> None:
    app = make_app(store_url)
    keys: list[str] = []
    both: list[tuple[str, str]] = []

    @app.workflow(retry=SOON)
    async def flow(ctx: Context) -> int:
        async def pay(*, key: IdempotencyKey = AUTO) -> None:
            keys.append(key)
            both.append((key, ctx.idempotency_key))
            if len(keys) < 3:
                raise ConnectionError("try again")
            if len(keys) == 3:
                await asyncio.sleep(30)  # thrown out of memory in the middle
            if len(keys) == 4:
                raise ValueError("for good")

        await ctx.step.run("pay", pay, retry=SOON if len(keys) < 3 else ONCE)
        return ctx.attempt

    async def scenario() -> int:
        handle = await app.start(flow)

        async def third_try() -> bool:
            return len(keys) == 3

        await eventually_async(third_try)
        await evict(app, handle.run_id)
        return await handle.result()

    assert run_app(app, scenario) == 2
    assert len(keys) == 5
    assert len(set(keys)) == 1
    assert all(injected == read for injected, read in both)


def test_keys_differ_by_step_item_ordinal_generation_run_and_replay(store_url: str) -> None:
    app = make_app(store_url)
    keys: list[str] = []

    async def pay(*, key: IdempotencyKey = AUTO) -> None:
        keys.append(key)

    @app.workflow()
    async def flow(ctx: Context) -> None:
        await ctx.step.run("pay", pay)
        await ctx.step.run("pay", pay)
        await ctx.step.run("pay", pay, item="2")
        await ctx.step.run("pay again", pay)

    async def scenario() -> None:
        handle = await app.start(flow)
        await handle.result()
        await handle.restart(acknowledge=True)
        await handle.result()
        replay = await handle.replay()
        await replay.result()
        await (await app.start(flow)).result()

    run_app(app, scenario)

    assert len(keys) == 16
    assert len(set(keys)) == 16


def test_plain_workflows_and_bodies_have_keys_too(sqlite_url: str) -> None:
    app = make_app(sqlite_url)

    @app.step
    def pay(key: IdempotencyKey = AUTO) -> str:
        return key

    @app.workflow()
    def flow(ctx: SyncContext) -> list[str]:
        def both(key: IdempotencyKey = AUTO) -> list[str]:
            return [key, ctx.idempotency_key]

        return [pay(), pay(), *ctx.step.run("both", both)]

    first, second, injected_key, read_key = result_of(app, flow)

    assert first != second
    assert injected_key == read_key
    assert {key[:3] for key in (first, second, read_key)} == {"ow_"}


def test_steps_called_inside_a_body_have_keys_of_their_own(sqlite_url: str) -> None:
    app = make_app(sqlite_url)
    keys: list[list[str]] = []

    @app.step
    def pay(key: IdempotencyKey = AUTO) -> str:
        return key

    @app.step
    async def refund(*, key: IdempotencyKey = AUTO) -> str:
        return key

    @app.workflow()
    async def flow(ctx: Context) -> None:
        async def body(*, key: IdempotencyKey = AUTO) -> None:
            keys.append([key, pay(), pay(), await refund(), pay(IdempotencyKey("mine"))])
            if len(keys) < 3:
                raise ConnectionError

        await ctx.step.run("pay all", body, retry=SOON)

    result_of(app, flow)

    assert keys[0] == keys[1] == keys[2]
    assert len(set(keys[0])) == 5
    assert keys[0][4] == "mine"


def test_the_number_of_the_try_can_be_read(sqlite_url: str) -> None:
    app: App = make_app(sqlite_url)

    @app.workflow()
    async def flow(ctx: Context) -> list[int]:
        def body() -> int:
            if ctx.try_number < 3:
                raise ConnectionError
            return ctx.try_number

        return [ctx.try_number, await ctx.step.run("body", body, retry=SOON)]

    assert result_of(app, flow) == [0, 3]
