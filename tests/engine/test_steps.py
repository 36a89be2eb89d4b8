"""Steps: what can be one, how it is called where, and what identifies it."""

from __future__ import annotations

import asyncio
import functools
import operator
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from onceward import (
    AUTO,
    App,
    Context,
    IdempotencyKey,
    RunFailed,
    Step,
    StepFailed,
    StepMisuse,
    StepNameRepeated,
    SyncContext,
)
from tests.engine.running import ONCE, make_app, result_of, run_app


async def add(a: int, b: int = 1) -> int:
    return a + b


async def add_later(ctx: Context) -> None: ...


def add_plainly(a: int, b: int = 1) -> int:
    return a + b


class Till:
    """Has methods, and can be called itself."""

    def __init__(self, start: int) -> None:
        self.start = start

    def total(self, more: int) -> int:
        return self.start + more

    async def total_async(self, more: int) -> int:
        return self.start + more

    def __call__(self, more: int) -> int:
        return self.start + more

    @classmethod
    def cheap(cls, more: int) -> int:
        return more


class AsyncTill:
    async def __call__(self, more: int) -> int:
        return more


BODIES: dict[str, tuple[Any, tuple[Any, ...], Any]] = {
    "async function": (add, (1, 2), 3),
    "plain function": (add_plainly, (1, 2), 3),
    "lambda": (lambda a: a + 1, (1,), 2),
    "lambda around an async function": (lambda a: add(a), (1,), 2),
    "method": (Till(2).total, (3,), 5),
    "async method": (Till(2).total_async, (3,), 5),
    "class method": (Till.cheap, (3,), 3),
    "callable object": (Till(2), (3,), 5),
    "async callable object": (AsyncTill(), (3,), 3),
    "partial": (functools.partial(add_plainly, 1), (2,), 3),
    "partial of an async function": (functools.partial(add, b=5), (1,), 6),
    "partial of a partial": (functools.partial(functools.partial(add, 1), 2), (), 3),
    "builtin": (len, ("four",), 4),
    "builtin without a signature": (max, (1, 7), 7),
    "operator": (operator.add, (1, 2), 3),
    "class": (int, ("17",), 17),
    "method of a builtin": ("a-b".split, ("-",), ["a", "b"]),
}


@pytest.mark.parametrize("name", BODIES)
def test_any_function_can_be_a_step_of_both_kinds_of_workflow(sqlite_url: str, name: str) -> None:
    body, args, expected = BODIES[name]
    app = make_app(sqlite_url)

    @app.workflow()
    async def async_flow(ctx: Context) -> Any:
        return await ctx.step.run("the step", body, *args)

    @app.workflow()
    def plain_flow(ctx: SyncContext) -> Any:
        return ctx.step.run("the step", body, *args)

    async def scenario() -> list[Any]:
        handles = [await app.start(async_flow), await app.start(plain_flow)]
        results = [await handle.result() for handle in handles]
        return [*results, *[(await handle.steps())[0].output for handle in handles]]

    text = str(expected).replace("'", '"').replace(" ", "")
    assert run_app(app, scenario) == [expected, expected, text, text]


def test_plain_bodies_run_beside_the_event_loop_and_async_ones_in_it(sqlite_url: str) -> None:
    app = make_app(sqlite_url)

    def plain_thread() -> str:
        return threading.current_thread().name

    async def async_thread() -> str:
        return threading.current_thread().name

    @app.workflow()
    async def flow(ctx: Context) -> list[str]:
        return [await ctx.step.run("plain", plain_thread), await ctx.step.run("async", async_thread)]

    assert result_of(app, flow) == ["onceward-step", threading.current_thread().name]


def decorated(app: App) -> tuple[Step[[int], Any], Step[[int], int]]:
    @app.step
    async def double(n: int) -> int:
        return 2 * n

    @app.step(name="halve it", retry=ONCE)
    def halve(n: int) -> int:
        return n // 2

    return double, halve


def test_a_decorated_step_is_called_like_the_function(store_url: str) -> None:
    app = make_app(store_url)
    double, halve = decorated(app)

    @app.workflow()
    async def async_flow(ctx: Context, n: int) -> list[int]:
        return [
            await double(n),
            await ctx.step.run("halve", halve, n),
            await ctx.step.run("twice", double, n),
        ]

    @app.workflow()
    def plain_flow(ctx: SyncContext, n: int) -> list[int]:
        return [ctx.step.run("double", double, n), halve(n), ctx.step.run("half", halve, n)]

    async def scenario() -> list[Any]:
        handles = [await app.start(async_flow, 4), await app.start(plain_flow, 4)]
        results = [await handle.result() for handle in handles]
        return [*results, *[[str(row.key) for row in await handle.steps()] for handle in handles]]

    assert run_app(app, scenario) == [
        [8, 2, 8],
        [8, 2, 2],
        ["double", "halve", "twice"],
        ["double", "halve it", "half"],
    ]


def test_a_decorated_step_is_the_plain_function_outside_runs(sqlite_url: str) -> None:
    double, halve = decorated(make_app(sqlite_url))

    assert asyncio.run(double(4)) == 8
    assert halve(4) == 2
    assert (double.name, double.__name__, halve.name) == ("double", "double", "halve it")


def test_a_decorated_step_inside_a_body_is_part_of_that_step(store_url: str) -> None:
    app = make_app(store_url)
    double, halve = decorated(app)

    async def both(n: int) -> int:
        return int(await double(n)) + halve(n)

    def both_plainly(n: int) -> int:
        return halve(n)

    @app.workflow()
    async def flow(ctx: Context, n: int) -> list[int]:
        return [await ctx.step.run("both", both, n), await ctx.step.run("plain", both_plainly, n)]

    async def scenario() -> Any:
        handle = await app.start(flow, 4)
        return await handle.result(), [str(row.key) for row in await handle.steps()]

    assert run_app(app, scenario) == ([10, 2], ["both", "plain"])


def test_a_method_can_be_a_decorated_step(store_url: str) -> None:
    app = make_app(store_url)

    class Shop:
        def __init__(self, name: str) -> None:
            self.name = name

        @app.step
        async def greet(self, guest: str, *, key: IdempotencyKey = AUTO) -> str:
            return f"{self.name}: {guest} {key[:3]}"

        @app.step(name="count")
        def count(self, guest: str) -> int:
            return len(self.name + guest)

    shop = Shop("ours")

    @app.workflow()
    async def flow(ctx: Context) -> list[Any]:
        return [
            await shop.greet("Ada"),
            await shop.greet.item(1)("Bob"),
            await ctx.step.run("n", shop.count, "x"),
        ]

    async def scenario() -> Any:
        handle = await app.start(flow)
        return await handle.result(), [str(row.key) for row in await handle.steps()]

    assert run_app(app, scenario) == (
        ["ours: Ada ow_", "ours: Bob ow_", 5],
        ["greet", "greet[1]", "n"],
    )
    assert Shop.greet.name == "greet"
    assert shop.count("x") == 5


def failure_of(app: App, workflow: Any, *args: Any) -> RunFailed:
    with pytest.raises(RunFailed) as caught:
        result_of(app, workflow, *args)
    return caught.value


def test_a_context_call_inside_a_body_is_refused(sqlite_url: str) -> None:
    app = make_app(sqlite_url)

    @app.workflow()
    async def flow(ctx: Context) -> None:
        async def body() -> None:
            await ctx.step.run("inner", add, 1)

        await ctx.step.run("outer", body)

    @app.workflow()
    def plain_flow(ctx: SyncContext) -> None:
        ctx.step.run("outer", lambda: ctx.step.sleep("inner", 1))

    for workflow in (flow, plain_flow):
        failure = failure_of(app, workflow)
        assert failure.error_type == "onceward.StepFailed"
        assert "'inner' was called inside the body of step 'outer'" in failure.message
        assert "after 1 try" in failure.message
        assert "Call it from the workflow, or call the plain function." in failure.message


def test_an_async_step_called_from_a_plain_workflow_is_refused(sqlite_url: str) -> None:
    app = make_app(sqlite_url)
    double, _ = decorated(app)

    @app.workflow()
    def flow(ctx: SyncContext) -> None:
        double(1)

    failure = failure_of(app, flow)

    assert failure.error_type == "onceward.StepMisuse"
    assert "ctx.step.run('double', double, …)" in failure.message


def test_a_plain_step_called_in_an_async_workflow_is_refused(sqlite_url: str) -> None:
    app = make_app(sqlite_url)
    _, halve = decorated(app)

    @app.workflow()
    async def flow(ctx: Context) -> int:
        value: int = halve(1)
        return value

    failure = failure_of(app, flow)

    assert failure.error_type == "onceward.StepMisuse"
    assert "`await ctx.step.run('halve it', halve, …)`" in failure.message


# --- identity ---------------------------------------------------------------------------------------


def steps_of(app: App, workflow: Any, *args: Any) -> list[str]:
    async def scenario() -> list[str]:
        handle = await app.start(workflow, *args)
        await handle.result()
        return sorted(str(row.key) for row in await handle.steps())

    return run_app(app, scenario)


def test_a_name_used_again_in_sequence_is_numbered(store_url: str) -> None:
    app = make_app(store_url)

    @app.workflow()
    async def flow(ctx: Context) -> None:
        for n in range(3):
            await ctx.step.run("add", add, n)
        await ctx.step.sleep("add", 0)

    assert steps_of(app, flow) == ["add", "add #2", "add #3", "add #4"]


def test_an_item_tells_the_elements_of_a_loop_apart(store_url: str) -> None:
    app = make_app(store_url)
    double, _ = decorated(app)

    @app.workflow()
    async def flow(ctx: Context) -> list[int]:
        steps = [ctx.step.run("add", add, n, item=n) for n in range(3)]
        steps += [double.item(("o", n))(n) for n in range(2)]
        return await asyncio.gather(*steps)

    assert steps_of(app, flow) == [
        "add[0]",
        "add[1]",
        "add[2]",
        "double[('o', 0)]",
        "double[('o', 1)]",
    ]


def test_a_name_repeated_in_overlapping_branches_is_refused(sqlite_url: str) -> None:
    app = make_app(sqlite_url)

    @app.workflow()
    async def gathered(ctx: Context) -> None:
        await asyncio.gather(*(ctx.step.run("add", add, n) for n in range(2)))

    @app.workflow()
    async def grouped(ctx: Context) -> None:
        async with asyncio.TaskGroup() as group:
            for n in range(2):
                group.create_task(ctx.step.run("add", add, n))

    @app.workflow()
    async def with_parent(ctx: Context) -> None:
        await ctx.step.run("add", add, 0)
        await asyncio.gather(ctx.step.run("add", add, 1))

    @app.workflow()
    def pooled(ctx: SyncContext) -> None:
        meeting = threading.Barrier(2)

        def branch() -> None:
            meeting.wait()
            ctx.step.run("add", add, 1)

        with ThreadPoolExecutor(2) as pool:
            for future in [pool.submit(branch), pool.submit(branch)]:
                future.result()

    for workflow in (gathered, grouped, with_parent, pooled):
        failure = failure_of(app, workflow)
        assert (
            "'add' is used in two parallel branches" in failure.message or "sub-exception" in failure.message
        )
        if workflow is gathered:
            assert failure.error_type == "onceward.StepNameRepeated"
            assert "pass item=" in failure.message


@pytest.mark.parametrize("named", [False, True], ids=["named by asyncio", "named by hand"])
def test_a_name_repeated_in_branches_is_refused_even_where_they_do_not_overlap(
    sqlite_url: str, named: bool
) -> None:
    app = make_app(sqlite_url)

    @app.workflow()
    async def flow(ctx: Context) -> None:
        first_ended = asyncio.Event()

        async def first() -> None:
            await ctx.step.run("add", add, 1)

        async def second() -> None:
            await first_ended.wait()
            await ctx.step.run("add", add, 2)

        one = asyncio.create_task(first(), name="one" if named else None)
        two = asyncio.create_task(second(), name="two" if named else None)
        await one
        await asyncio.sleep(0.01)
        first_ended.set()
        await two

    assert failure_of(app, flow).error_type == "onceward.StepNameRepeated"


def test_a_loop_may_gather_the_same_names_in_each_round(store_url: str) -> None:
    app = make_app(store_url)

    @app.workflow()
    async def flow(ctx: Context) -> None:
        for n in range(3):
            await asyncio.gather(ctx.step.run("left", add, n), ctx.step.run("right", add, n))
        for n in range(3):
            async with asyncio.TaskGroup() as group:
                group.create_task(ctx.step.run("left", add, n))

    assert steps_of(app, flow) == [
        *["left", "left #2", "left #3", "left #4", "left #5", "left #6"],
        *["right", "right #2", "right #3"],
    ]


def test_a_branch_made_after_the_earlier_one_ended_may_use_its_name(store_url: str) -> None:
    app = make_app(store_url)

    async def branch(ctx: Context, n: int, *, lag: bool) -> int:
        value = await ctx.step.run("add", add, n)
        if lag:
            await asyncio.sleep(0)
        return value

    @app.workflow()
    async def flow(ctx: Context, *, lag: bool) -> int:
        total = 0
        for n in range(3):
            total += await asyncio.create_task(branch(ctx, n, lag=lag))
        for n in range(2):
            total += await asyncio.wait_for(branch(ctx, n, lag=lag), 5)
        for n in range(2):
            done, _ = await asyncio.wait([asyncio.create_task(branch(ctx, n, lag=lag))])
            total += done.pop().result()
        return total

    async def scenario() -> list[int]:
        return [await (await app.start(flow, lag=lag)).result() for lag in (False, True)]

    assert run_app(app, scenario) == [12, 12]


def test_errors_of_a_repeated_name_can_be_caught_by_their_class() -> None:
    assert issubclass(StepNameRepeated, StepMisuse)
    assert not issubclass(StepMisuse, StepFailed)


def test_threads_of_a_plain_workflow_may_run_steps_with_items(store_url: str) -> None:
    app = make_app(store_url)

    @app.workflow()
    def flow(ctx: SyncContext) -> list[int]:
        with ThreadPoolExecutor(3) as pool:
            return list(pool.map(lambda n: ctx.step.run("add", add, n, item=n), range(8)))

    async def scenario() -> Any:
        handles = [await app.start(flow) for _ in range(5)]
        results = [await handle.result() for handle in handles]
        rows = [await handle.steps() for handle in handles]
        return results, [sorted(row.item for row in one) for one in rows]

    items = [str(n) for n in range(8)]
    assert run_app(app, scenario) == ([list(range(1, 9))] * 5, [items] * 5)


@pytest.mark.parametrize("name", ["", "x" * 201, "nul\x00", "half \ud800", "two\nlines", 7, None])
def test_a_name_that_cannot_be_one_is_refused_at_once(sqlite_url: str, name: Any) -> None:
    app = make_app(sqlite_url)

    @app.workflow()
    async def flow(ctx: Context) -> None:
        await ctx.step.run(name, add, 1)

    failure = failure_of(app, flow)

    assert failure.error_type == "onceward.StepMisuse"
    assert "cannot be the name of a step" in failure.message


@pytest.mark.parametrize("item", ["nul\x00", "half \ud800", "x" * 501])
def test_an_item_that_cannot_be_stored_is_refused_at_once(sqlite_url: str, item: str) -> None:
    app = make_app(sqlite_url)

    @app.workflow()
    async def flow(ctx: Context) -> None:
        await ctx.step.run("add", add, 1, item=item)

    failure = failure_of(app, flow)

    assert failure.error_type == "onceward.StepMisuse"
    assert "item" in failure.message


def test_a_policy_that_is_none_is_refused_before_the_body(sqlite_url: str) -> None:
    app = make_app(sqlite_url)

    @app.workflow()
    async def flow(ctx: Context) -> int:
        run: Any = ctx.step.run
        return int(await run("add", add, 1, retry=3))

    assert "max_tries=3" in failure_of(app, flow).message


def test_a_workflow_called_like_a_function_says_how_it_is_started(sqlite_url: str) -> None:
    app = make_app(sqlite_url)

    @app.workflow()
    async def child(ctx: Context) -> None: ...

    @app.workflow()
    async def flow(ctx: Context) -> None:
        call: Any = child
        await call(ctx)

    assert "ctx.step.call(name, child, …)" in failure_of(app, flow).message


def test_a_parameter_hidden_by_a_keyword_of_step_run_is_named(sqlite_url: str) -> None:
    app = make_app(sqlite_url)

    async def ship(item: str) -> str:
        return item

    @app.workflow()
    async def hidden(ctx: Context) -> str:
        return await ctx.step.run("ship", ship, item="box")

    @app.workflow()
    async def both(ctx: Context) -> str:
        return await ctx.step.run("ship", ship, "box", item="box")

    failure = failure_of(app, hidden)
    assert failure.error_type == "onceward.StepMisuse"
    assert "'item'" in failure.message
    assert steps_of(app, both) == ["ship[box]"]


def test_a_step_whose_name_was_forgotten_is_told_where_it_goes() -> None:
    app = make_app("sqlite:///:memory:")
    decorated = app.step(add_later)

    @app.workflow
    async def flow(ctx: Context, number: int) -> Any:
        run: Any = ctx.step.run
        return await run(decorated if number else add, number)

    for number, name in ((0, "add"), (1, "add_later")):
        failure = failure_of(app, flow, number)
        assert failure.error_type == "onceward.StepMisuse"
        assert f"Write ctx.step.run({name!r}, {name}, …)" in failure.message


@pytest.mark.parametrize("verb", ["call", "start"])
def test_what_is_no_workflow_is_not_started(verb: str) -> None:
    app = make_app("sqlite:///:memory:")

    @app.workflow
    async def flow(ctx: Context) -> Any:
        return await getattr(ctx.step, verb)("odd", app.step(add_later), 1)

    failure = failure_of(app, flow)

    assert failure.error_type == "onceward.WorkflowUnknown"
    assert f"ctx.step.{verb} was given 'add_later', which is not a workflow" in failure.message
    assert "ctx.step.run('odd', …)" in failure.message


@pytest.mark.parametrize(
    ("give", "fault", "right"),
    [
        (lambda: add(1), "was given a coroutine", "step.run('odd', function, …)"),
        (lambda: 7, "was given 7, which cannot be called", "step.run('odd', function, …)"),
        (
            lambda: App("sqlite:///:memory:").workflow(add_later),
            "workflow 'add_later'",
            "step.call('odd', add_later",
        ),
    ],
)
def test_a_step_that_is_given_no_function_is_refused_at_once(
    give: Callable[[], Any], fault: str, right: str
) -> None:
    app = make_app("sqlite:///:memory:")

    @app.workflow
    async def flow(ctx: Context) -> Any:
        return await ctx.step.run("odd", give())

    with pytest.raises(RunFailed) as failed:
        result_of(app, flow)

    assert failed.value.error_type.endswith("StepMisuse")
    assert fault in str(failed.value)
    assert right in str(failed.value)
