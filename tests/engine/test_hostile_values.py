"""Hostile values at every entrance: each gives an error of ours and leaves the store as it was."""

from __future__ import annotations

import asyncio
import datetime as dt
import decimal
import math
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from onceward import App, Context, Event, OncewardError, RunState
from onceward.core.ports import EventFilter, RunFilter
from tests.engine.running import make_app, open_store, run_app

DEEP: Any = []
for _ in range(5_000):
    DEEP = [DEEP]

CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)


class Angry:
    """A value whose every look at it raises."""

    def __repr__(self) -> str:
        raise RuntimeError("do not look at me")

    __str__ = __repr__
    __eq__ = __hash__ = __bool__ = __len__ = __iter__ = __repr__  # type: ignore[assignment]


BIG = "x" * 10_000_000

PAYLOADS: dict[str, Any] = {
    "lone surrogate": "\ud800",
    "lone surrogate as a key": {"\udfff": 1},
    "deep": DEEP,
    "circle": CIRCLE,
    "nan": math.nan,
    "infinity inside": {"a": [1, math.inf]},
    "a text of ten megabytes": BIG,
    "bytes": b"x",
    "a set": {1, 2},
    "a tuple": (1, 2),
    "a number as a key": {1: 2},
    "none as a key": {None: 2},
    "an object": object(),
    "an angry object": Angry(),
    "a date": dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    "a decimal": decimal.Decimal("1.5"),
    "a function": print,
    "a class": int,
    "a coroutine function": asyncio.sleep,
    "an exception": ValueError("x"),
}

TEXTS: dict[str, Any] = {
    "NUL": "a\x00b",
    "a lone surrogate": "a\ud800",
    "ten megabytes": BIG,
    "bytes": b"x",
    "a number": 7,
    "zero": 0,
    "true": True,
    "nan": math.nan,
    "a list": ["x"],
    "a dict": {},
    "an object": object(),
    "an angry object": Angry(),
    "empty": "",
}

NAMES = TEXTS | {"none": None, "a line break": "a\nb", "an escape": "\x1b[2J", "right to left": "a\u202eb"}

NUMBERS: dict[str, Any] = {
    "zero": 0,
    "minus one": -1,
    "huge": 10**30,
    "a float": 1.5,
    "nan": math.nan,
    "a text": "10",
    "none": None,
    "true": True,
    "angry": Angry(),
}

TIMES: dict[str, Any] = {
    "naive": dt.datetime(2026, 1, 1),  # noqa: DTZ001
    "a number": 5,
    "nan": math.nan,
    "a text": "2026-01-01",
    "a date": dt.date(2026, 1, 1),
    "the first": dt.datetime.min,  # noqa: DTZ901
    "angry": Angry(),
}

DURATIONS: dict[str, Any] = {
    "minus one": -1,
    "nan": math.nan,
    "infinity": math.inf,
    "1e308": 1e308,
    "huge": 10**400,
    "P-1D": "P-1D",
    "longest": dt.timedelta.max,
    "shortest": dt.timedelta.min,
    "NUL": "1\x00s",
    "ten megabytes": BIG,
    "bytes": b"1s",
    "true": True,
    "a list": [1],
    "angry": Angry(),
}

Entrance = Callable[[App, Any, str], Awaitable[object]]
"""Hands a hostile value to the app; the text is the id of a run that failed."""

ENTRANCES: dict[str, tuple[Entrance, dict[str, Any]]] = {
    "emit payload": (lambda app, bad, run: app.emit("order.paid", bad), PAYLOADS),
    "emit type": (lambda app, bad, run: app.emit(bad, 1), NAMES),
    "emit id": (lambda app, bad, run: app.emit("order.paid", 1, id=bad), TEXTS),
    "emit subject": (
        lambda app, bad, run: app.emit("order.paid", 1, subject=bad),
        {name: value for name, value in TEXTS.items() if name != "empty"},
    ),
    "emit time": (lambda app, bad, run: app.emit("order.paid", 1, occurred_at=bad), TIMES),
    "start payload": (lambda app, bad, run: app.start(app.workflows["takes"], bad), PAYLOADS),
    "start argument": (lambda app, bad, run: app.start(app.workflows["plain"], bad), PAYLOADS),
    "start id": (lambda app, bad, run: app.start(app.workflows["takes"], 1, id=bad), TEXTS),
    "start workflow": (lambda app, bad, run: app.start(bad), NAMES | PAYLOADS),
    "run id": (lambda app, bad, run: app.run(bad).row(), NAMES),
    "run id of a verb": (lambda app, bad, run: app.run(bad).cancel(), NAMES),
    "run id of a result": (lambda app, bad, run: app.run(bad).result("1s"), NAMES),
    "run id of steps": (lambda app, bad, run: app.run(bad).steps(), NAMES),
    "generation of steps": (
        lambda app, bad, run: app.run(run).steps(generation=bad),
        {name: value for name, value in NUMBERS.items() if name != "none"},
    ),
    "actor of a verb": (lambda app, bad, run: app.run(run).restart(actor=bad), NAMES),
    "answer": (lambda app, bad, run: app.run(run).answer(bad), NAMES),
    "replay payload": (lambda app, bad, run: app.run(run).replay(payload=bad), PAYLOADS),
    "replay step": (lambda app, bad, run: app.run(run).replay(from_step=bad), TEXTS),
    "replay request": (
        lambda app, bad, run: app.run(run).replay(request_id=bad),
        {name: value for name, value in TEXTS.items() if name != "empty"},
    ),
    "replay actor": (lambda app, bad, run: app.run(run).replay(actor=bad), NAMES),
    "result timeout": (lambda app, bad, run: app.run(run).result(bad), DURATIONS),
    "close grace": (lambda app, bad, run: app.close(bad), DURATIONS),
    "runs state": (
        lambda app, bad, run: app.runs(state=bad),
        {name: value for name, value in NAMES.items() if name != "none"},
    ),
    "runs workflow": (lambda app, bad, run: app.runs(workflow=bad), TEXTS),
    "runs source": (lambda app, bad, run: app.runs(source=bad, event_id="x"), TEXTS),
    "runs key": (lambda app, bad, run: app.runs(key=bad), TEXTS),
    "runs event": (lambda app, bad, run: app.runs(source="x", event_id=bad), TEXTS),
    "runs before": (lambda app, bad, run: app.runs(before=bad), TEXTS),
    "runs limit": (lambda app, bad, run: app.runs(limit=bad), NUMBERS),
    "events source": (lambda app, bad, run: app.events(source=bad), TEXTS),
    "events type": (lambda app, bad, run: app.events(type=bad), TEXTS),
    "events subject": (lambda app, bad, run: app.events(subject=bad), TEXTS),
    "events before": (
        lambda app, bad, run: app.events(before=bad),
        TEXTS | {"a short one": (1,), "no time": ("x", "a", "b")},
    ),
    "events limit": (lambda app, bad, run: app.events(limit=bad), NUMBERS),
    "event source": (lambda app, bad, run: app.event(bad, "x"), NAMES),
    "event id": (lambda app, bad, run: app.event("x", bad), NAMES),
    "forget": (lambda app, bad, run: app.forget_workflow(bad), NAMES),
}

QUESTIONS = ("run id of steps", "runs ", "events ", "event ")
"""Of these a text that nothing is called has an answer: nothing."""


def make(url: str) -> App:
    app = make_app(url)

    @app.workflow(on="order.paid")
    async def takes(ctx: Context, event: Event) -> None: ...

    @app.workflow
    async def plain(ctx: Context, value: Any) -> None: ...

    @app.workflow
    async def fails(ctx: Context) -> None:
        await ctx.step.run("saved", int)
        raise ValueError("on purpose")

    return app


def content(url: str) -> Iterator[object]:
    """Give everything that the store holds of events and runs."""
    with open_store(url) as store:
        yield store.events(EventFilter(limit=1_000))
        for row in store.runs(RunFilter(limit=1_000)):
            yield row, store.steps(row.run_id), store.attempts(row.run_id), store.audits(row.run_id)
        yield [(row.name, row.triggers) for row in store.workflows()]


@pytest.mark.parametrize("entrance", ENTRANCES)
def test_each_hostile_value_is_refused_and_changes_nothing(store_url: str, entrance: str) -> None:
    app = make(store_url)
    enter, values = ENTRANCES[entrance]
    wrong: dict[str, str] = {}

    async def scenario() -> None:
        failed = await app.start(app.workflows["fails"])
        with pytest.raises(OncewardError):
            await failed.result()
        before = list(content(store_url))
        for name, bad in values.items():
            try:
                given = await enter(app, bad, failed.run_id)
            except OncewardError as error:
                if not error.what or len(str(error)) > 2_000:
                    wrong[name] = f"says {str(error)[:100]!r}"
            except BaseException as error:  # noqa: BLE001 - is reported
                wrong[name] = f"raises {type(error).__name__}"
            else:
                if not (entrance.startswith(QUESTIONS) and isinstance(bad, str) and isinstance(given, list)):
                    wrong[name] = f"gives {type(given).__name__}"
        assert "\n".join(f"{name}: {what}" for name, what in wrong.items()) == ""
        assert list(content(store_url)) == before
        assert app.is_open
        assert await failed.state() is RunState.FAILED

    run_app(app, scenario)
