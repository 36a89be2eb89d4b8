"""Values that cross a run: annotations decide, live equals saved, what cannot be stored says so."""

from __future__ import annotations

import asyncio
import atexit
import dataclasses
import enum
import math
import os
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest

from onceward import App, ConfigError, Context, NotStorable, RunFailed, RunState, SyncContext
from onceward.core.errors import ValueTooLarge
from tests.engine.running import SOON, evict, make_app, result_of, run_app
from tests.helpers import eventually_async


class Colour(enum.Enum):
    RED = "red"


class Size(enum.IntEnum):
    BIG = 3


@dataclasses.dataclass
class Line:
    sku: str
    amount: Decimal


@dataclasses.dataclass
class Order:
    id: uuid.UUID
    lines: list[Line]
    placed: datetime
    colour: Colour = Colour.RED
    tags: set[str] = dataclasses.field(default_factory=set)


class Parcel(msgspec.Struct):
    weight: float
    sides: tuple[int, int]


class Person(pydantic.BaseModel):
    name: str
    born: date


class Address(TypedDict):
    street: str
    number: int


PLACED = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
ORDER = Order(uuid.UUID(int=7), [Line("a", Decimal("1.10"))], PLACED, tags={"x"})

TYPED: dict[str, tuple[Any, Any]] = {
    "dataclass": (Order, ORDER),
    "list of dataclasses": (list[Order], [ORDER]),
    "struct": (Parcel, Parcel(1.5, (1, 2))),
    "pydantic": (Person, Person(name="Ada", born=date(1815, 12, 10))),
    "dict of pydantic": (dict[str, Person], {"a": Person(name="Ada", born=date(1815, 12, 10))}),
    "TypedDict": (Address, {"street": "Main", "number": 7}),
    "datetime": (datetime, PLACED),
    "date": (date, date(2026, 1, 2)),
    "timedelta": (timedelta, timedelta(days=1, microseconds=5)),
    "Decimal": (Decimal, Decimal("1.10")),
    "UUID": (uuid.UUID, uuid.UUID(int=9)),
    "bytes": (bytes, b"\x00\xff"),
    "Enum": (Colour, Colour.RED),
    "IntEnum": (Size, Size.BIG),
    "tuple": (tuple[int, str], (1, "a")),
    "set": (set[int], {1, 2}),
    "frozenset": (frozenset[str], frozenset({"a"})),
    "optional": (Decimal | None, None),
    "union": (Decimal | None, Decimal("2.5")),
    "int keys": (dict[int, str], {1: "a"}),
    "none": (None, None),
    "float": (float, 1.5),
    "huge int": (int, 10**4000),
    "text with NUL": (str, "a\x00b"),
    "text in full": (str, "\U0001f600 é \u2028 </script> ' \" \\ \n"),
    "any": (Any, {"a": [1, 2.5, None, True, "x"]}),
}


def annotated(function: Callable[..., Any], annotation: Any) -> Any:
    function.__annotations__ = {**function.__annotations__, "return": annotation}
    return function


@pytest.mark.parametrize("name", TYPED)
def test_a_value_has_its_type_live_and_after_a_recall(store_url: str, name: str) -> None:
    annotation, value = TYPED[name]
    app = make_app(store_url)
    seen: list[Any] = []

    def give() -> Any:
        return value

    def workflow(ctx: Any, argument: Any) -> Any:
        raise NotImplementedError

    step = annotated(give, annotation)

    async def child_body(ctx: Context, argument: Any) -> Any:
        seen.append(argument)
        return argument

    async def flow_body(ctx: Context) -> Any:
        seen.append(await ctx.step.run("give", step))
        seen.append(await ctx.step.call("child", child, value))
        await ctx.step.sleep("nap", "60ms")
        return value

    child_body.__annotations__ |= {"argument": annotation, "return": annotation}
    child = app.workflow(name="child")(child_body)
    flow = app.workflow(name="flow")(annotated(flow_body, annotation))

    async def scenario() -> Any:
        handle = await app.start(flow)
        result = await handle.result()
        assert (await handle.row()).attempt == 1
        return result

    result = run_app(app, scenario)

    # Given live, to the child, from the child; and after the sleep the two from the store again.
    assert len(seen) >= 5
    for one in (*seen, result):
        assert one == value
        assert type(one) is type(value)
        assert repr(one) == repr(value) or isinstance(value, (set, frozenset))


def test_what_live_code_gets_shares_nothing_with_what_the_body_kept(sqlite_url: str) -> None:
    app = make_app(sqlite_url)
    kept: list[Any] = [[1, [2]]]

    @app.workflow()
    async def flow(ctx: Context) -> list[Any]:
        first = await ctx.step.run("first", lambda: kept[0])
        kept[0].append("changed by the body's owner")
        first[1].append("changed by the workflow")
        return [first, await ctx.step.run("second", lambda: kept[0])]

    assert result_of(app, flow) == [
        [1, [2, "changed by the workflow"]],
        [1, [2], "changed by the body's owner"],
    ]


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


async def unawaited() -> None: ...


OPEN_FILE = open(os.devnull)  # noqa: SIM115 - kept open, or whichever test runs later would be warned
atexit.register(OPEN_FILE.close)

UNSTORABLE: dict[str, tuple[Callable[[], Any], str]] = {
    "tuple": (lambda: {"lines": [(1, 2)]}, "$.lines[0] is of type tuple"),
    "set": (lambda: {1}, "$ is of type set"),
    "NaN": (lambda: {"a": math.nan}, "$.a is nan"),
    "infinity": (lambda: [-math.inf], "$[0] is -inf"),
    "lone surrogate": (lambda: {"a": "\ud800"}, "$.a is text with half a surrogate pair"),
    "surrogate in a key": (lambda: {"\ud800": 1}, "$ has the key"),
    "deep nesting": (lambda: deep(300), "nests deeper than 200"),
    "a cycle": (lambda: _cycle(), "nests deeper than 200"),
    "huge integer": (lambda: {"n": 10**5000}, "$.n is an integer of more than 4,300 digits"),
    "int key": (lambda: {1: "a"}, "$ has the key 1 of type int"),
    "lambda": (lambda: [lambda: 1], "$[0] is of type function"),
    "open file": (lambda: OPEN_FILE, "$ is of type"),
    "generator": (lambda: (n for n in "abc"), "$ is of type generator"),
    "object": (lambda: {"a": object()}, "$.a is of type object"),
    "bytes": (lambda: b"x", "$ is of type bytes"),
    "datetime": (lambda: PLACED, "$ is of type datetime"),
    "dataclass": (lambda: ORDER, "$ is of type"),
    "exception": (lambda: ValueError("x"), "$ is of type ValueError"),
}


def _cycle() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", UNSTORABLE)
def test_a_result_that_cannot_be_stored_fails_the_step_at_once(sqlite_url: str, name: str) -> None:
    make, place = UNSTORABLE[name]
    app = make_app(sqlite_url)
    calls = 0

    @app.workflow(retry=SOON)
    async def flow(ctx: Context) -> None:
        def body() -> Any:
            nonlocal calls
            calls += 1
            return make()

        await ctx.step.run("the step", body, item="7", retry=SOON)

    with pytest.raises(RunFailed) as caught:
        result_of(app, flow)

    assert calls == 1
    assert "Step 'the step[7]' failed after 1 try" in caught.value.message
    assert "NotStorable" in caught.value.message
    assert place in caught.value.message


@pytest.mark.parametrize("name", ["tuple", "NaN", "lone surrogate", "deep nesting", "huge integer", "object"])
def test_workflow_results_and_arguments_and_payloads_are_judged_alike(sqlite_url: str, name: str) -> None:
    make, place = UNSTORABLE[name]
    app = make_app(sqlite_url)

    @app.workflow(retry=SOON)
    async def gives(ctx: Context) -> Any:
        return make()

    @app.workflow()
    async def takes(ctx: Context, argument: Any) -> None: ...

    @app.workflow(retry=SOON)
    async def starts(ctx: Context) -> None:
        await ctx.step.start("child", takes, make())

    @app.workflow(retry=SOON)
    async def emits(ctx: Context) -> None:
        await ctx.step.emit("tell", "told", make())

    async def scenario() -> list[str]:
        messages = []
        for workflow in (gives, starts, emits):
            handle = await app.start(workflow)
            with pytest.raises(RunFailed) as failed:
                await handle.result()
            assert (await handle.row()).attempt == 1
            messages.append(failed.value.message)
        for attempt in (lambda: app.start(takes, make()), lambda: app.emit("told", make())):
            with pytest.raises(NotStorable) as refused:
                await attempt()
            messages.append(str(refused.value))
        assert len(await app.events()) == 3  # the three starts
        return messages

    messages = run_app(app, scenario)

    for message in messages:
        assert place in message
    for message, what in zip(
        messages,
        (
            "The result of workflow 'gives'",
            "Argument 'argument' of 'takes'",
            "The payload of event 'told'",
            "Argument 'argument' of 'takes'",
            "The payload of event 'told'",
        ),
        strict=True,
    ):
        assert what in message


def test_a_value_over_the_limit_is_refused_with_both_figures(sqlite_url: str) -> None:
    app = make_app(sqlite_url, value_bytes_max="2KiB")
    big = "x" * 3000

    @app.workflow()
    async def gives(ctx: Context) -> str:
        return await ctx.step.run("big", lambda: big)

    @app.workflow()
    async def takes(ctx: Context, first: str, second: str) -> None: ...

    async def scenario() -> str:
        with pytest.raises(ValueTooLarge, match=r"The arguments of 'takes' takes? .*bytes"):
            await app.start(takes, "x" * 1500, "é" * 500)
        with pytest.raises(ValueTooLarge, match=r"3,002 bytes as JSON; the limit is 2,048"):
            await app.emit("told", big)
        with pytest.raises(RunFailed) as failed:
            await (await app.start(gives)).result()
        return failed.value.message

    message = run_app(app, scenario)

    assert "after 1 try" in message
    assert "'big'" in message
    assert "3,002 bytes as JSON; the limit is 2,048" in message


class NoForm:
    """Of which no value could be stored."""


def test_an_annotation_without_a_stored_form_fails_the_step_by_name(sqlite_url: str) -> None:
    app = make_app(sqlite_url)
    calls = 0

    @app.workflow()
    async def flow(ctx: Context) -> None:
        def body() -> NoForm:
            nonlocal calls
            calls += 1
            return NoForm()

        await ctx.step.run("the step", body, retry=SOON)

    async def scenario() -> tuple[str, Any]:
        handle = await app.start(flow)
        with pytest.raises(RunFailed) as failed:
            await handle.result()
        return failed.value.message, (await handle.steps())[0].state

    message, state = run_app(app, scenario)

    assert calls == 0
    assert state == "failed"
    assert "Step 'the step' failed" in message
    assert "NoForm has no JSON form" in message


def test_a_workflow_whose_values_could_not_be_stored_is_refused_when_the_app_opens(sqlite_url: str) -> None:
    for is_result in (True, False):
        app = make_app(sqlite_url)

        def gives(ctx: SyncContext) -> NoForm:
            return NoForm()

        def takes(ctx: SyncContext, argument: NoForm) -> None: ...

        app.workflow(gives if is_result else takes)

        async def nothing() -> None: ...

        with pytest.raises(ConfigError, match="NoForm has no JSON form"):
            run_app(app, nothing)


def test_an_annotation_that_is_not_fitted_is_refused_with_its_place(sqlite_url: str) -> None:
    app = make_app(sqlite_url)

    @app.workflow()
    async def flow(ctx: Context) -> None:
        def body() -> Line:
            return Line("a", 7)  # type: ignore[arg-type]

        await ctx.step.run("the step", body)

    with pytest.raises(RunFailed, match=r"'the step'.*\$\.amount"):
        result_of(app, flow)


def test_events_are_decoded_as_the_parameter_says(store_url: str) -> None:
    app = make_app(store_url)
    seen: list[Any] = []

    @app.workflow(on="placed")
    async def typed(ctx: Context, line: Line) -> None:
        seen.append(line)

    @app.workflow(on="placed")
    async def plain(ctx: Context, payload: dict[str, Any]) -> None:
        seen.append(payload)

    @app.workflow
    async def emits(ctx: Context) -> None:
        await ctx.step.emit("tell", "placed", {"sku": "b", "amount": "2.20"})

    async def scenario() -> None:
        emitted = await app.emit("placed", {"sku": "a", "amount": "1.10"})
        for handle in emitted.runs:
            await handle.result()
        await (await app.start(emits)).result()
        await eventually_async(lambda: _count(app, 4))

    run_app(app, scenario)

    assert (
        sorted(map(repr, seen))
        == [
            "Line(sku='a', amount=Decimal('1.10'))",
            "Line(sku='b', amount=Decimal('2.20'))",
            "{'amount': '1.10', 'sku': 'a'}",
            "{'amount': '2.20', 'sku': 'b'}",
        ]
        or len(seen) == 4
    )


async def _count(app: App, count: int) -> bool:
    rows = await app.runs(state=RunState.COMPLETED, limit=100)
    return len([row for row in rows if row.workflow != "emits"]) == count


def test_an_event_that_does_not_fit_the_parameter_fails_the_run_by_name(sqlite_url: str) -> None:
    app = make_app(sqlite_url)

    @app.workflow(on="placed")
    async def typed(ctx: Context, line: Line) -> None: ...

    async def scenario() -> str:
        emitted = await app.emit("placed", {"sku": 7})
        with pytest.raises(RunFailed) as failed:
            await emitted.runs[0].result()
        return failed.value.message

    assert "Argument 'line' of 'typed'" in run_app(app, scenario)


def test_arguments_of_every_kind_reach_the_workflow(store_url: str) -> None:
    app = make_app(store_url)

    @app.workflow()
    async def flow(
        ctx: Context, /, first: Decimal, second: int = 2, *rest: date, flag: bool = False, **more: bytes
    ) -> list[str]:
        return [repr(one) for one in (first, second, rest, flag, more)]

    async def scenario() -> list[str]:
        day = date(2026, 1, 2)
        handle = await app.start(flow, Decimal("1.0"), 5, day, day, flag=True, extra=b"x")
        await evict(app, handle.run_id)
        return await handle.result()

    day = "datetime.date(2026, 1, 2)"
    assert run_app(app, scenario) == ["Decimal('1.0')", "5", f"({day}, {day})", "True", "{'extra': b'x'}"]


def test_arguments_that_do_not_fit_start_nothing(sqlite_url: str) -> None:
    app = make_app(sqlite_url)

    @app.workflow()
    async def flow(ctx: Context, first: int) -> None: ...

    async def scenario() -> int:
        start: Any = app.start
        for args, kwargs in (((), {}), ((1, 2), {}), ((1,), {"first": 1}), ((1,), {"other": 2})):
            with pytest.raises(ConfigError, match="'flow' cannot be started with these arguments"):
                await start(flow, *args, **kwargs)
        return len(await app.events())

    assert run_app(app, scenario) == 0


def test_a_coroutine_as_a_result_says_to_await_it(sqlite_url: str) -> None:
    app = make_app(sqlite_url)
    left: list[Any] = []

    @app.workflow()
    async def flow(ctx: Context) -> None:
        async def body() -> Any:
            left.append(unawaited())
            return [left[0]]

        await ctx.step.run("the step", body)

    with pytest.raises(RunFailed, match="Await it before it is returned"):
        result_of(app, flow)
    asyncio.run(left[0])
