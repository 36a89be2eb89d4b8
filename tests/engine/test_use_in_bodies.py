"""A step has the app for as long as it runs, also before it is open and while it closes: no deploy fails a run."""

from __future__ import annotations

import contextlib
import inspect
import sqlite3
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from onceward import App, ConfigError, Context
from onceward.core.ids import IdSource
from onceward.core.model import ProcessRow
from onceward.core.ports import Batch, Claim, Store
from tests.engine.running import make_app, open_store
from tests.engine.ways import file_of, plain_dsn
from tests.helpers import eventually, eventually_async

WITHIN_S = 20.0


@contextlib.contextmanager
def transaction(url: str) -> Iterator[Any]:
    is_sqlite = url.startswith("sqlite")
    connected = sqlite3.connect(file_of(url), timeout=20) if is_sqlite else psycopg.connect(plain_dsn(url))
    with contextlib.closing(connected) as connection:
        if is_sqlite:
            connection.execute("begin")
        yield connection
        connection.commit()


async def emits_within(app: App, url: str) -> str:
    with transaction(url) as connection:
        return (await app.emit("thing.made", 1, within=connection)).source


async def emits_by_id(app: App, url: str) -> str:
    return (await app.emit("thing.made", 1, id="one")).source


async def looks(app: App, url: str) -> str:
    return " ".join(row.workflow for row in await app.runs())


def emits_within_plainly(app: App, url: str) -> str:
    with transaction(url) as connection:
        return app.sync.emit("thing.made", 1, within=connection).source


def emits_by_id_plainly(app: App, url: str) -> str:
    return app.sync.emit("thing.made", 1, id="one").source


def looks_plainly(app: App, url: str) -> str:
    return " ".join(row.workflow for row in app.sync.runs())


USES = [emits_within, emits_by_id, looks, emits_within_plainly, emits_by_id_plainly, looks_plainly]


@pytest.mark.anyio
@pytest.mark.parametrize("use", USES, ids=lambda use: use.__name__)
async def test_a_body_has_the_app_while_it_closes(store_url: str, use: Callable[[App, str], Any]) -> None:
    app = make_app(store_url)
    has_begun = threading.Event()
    tries: list[str] = []

    async def is_closing() -> bool:
        return not app.is_open

    async def body() -> str:
        tries.append("a")
        has_begun.set()
        await eventually_async(is_closing, WITHIN_S)
        return str(await use(app, store_url))

    def plain_body() -> str:
        tries.append("b")
        has_begun.set()
        eventually(lambda: not app.is_open, WITHIN_S)
        return str(use(app, store_url))

    @app.workflow
    async def works(ctx: Context) -> str:
        if inspect.iscoroutinefunction(use):
            return await ctx.step.run("works", body)
        return await ctx.step.run("works", plain_body)

    async def begun() -> bool:
        return has_begun.is_set()

    await app.open()
    run = await app.start(works)
    await eventually_async(begun, WITHIN_S)
    await app.close(WITHIN_S)

    with pytest.raises(ConfigError, match="not open"):
        await app.runs()  # nobody but the step was let in
    async with app:
        result = await app.run(run.run_id).result()
    assert result == ("works" if use in (looks, looks_plainly) else "emit/thing.made")
    assert len(tries) == 1


class Slow(App):
    """Does not come to the end of its opening before somebody says so."""

    go_on = threading.Event()

    def _make_store(self, draws: IdSource) -> Store:
        store = super()._make_store(draws)
        read = store.workflows

        def workflows() -> Any:
            assert self.go_on.wait(WITHIN_S)
            return read()

        store.workflows = workflows  # type: ignore[method-assign]
        return store


@pytest.mark.anyio
@pytest.mark.parametrize("use", USES, ids=lambda use: use.__name__)
async def test_a_body_of_a_run_that_is_taken_over_has_the_app_before_it_is_open(
    store_url: str, use: Callable[[App, str], Any]
) -> None:
    app = Slow(store_url, poll="50ms", linger="20ms", drain="2s")
    app.go_on = threading.Event()
    was_open: list[bool] = []

    async def body() -> str:
        was_open.append(app.is_open)
        try:
            return str(await use(app, store_url))
        finally:
            app.go_on.set()

    def plain_body() -> str:
        was_open.append(app.is_open)
        try:
            return str(use(app, store_url))
        finally:
            app.go_on.set()

    @app.workflow
    async def works(ctx: Context) -> str:
        if inspect.iscoroutinefunction(use):
            return await ctx.step.run("works", body)
        return await ctx.step.run("works", plain_body)

    app.go_on.set()
    await app.open(runs=False)
    run = await app.start(works)
    await app.close()
    lose(store_url)
    app.go_on.clear()
    async with app:
        assert await app.run(run.run_id).result() == (
            "works" if use in (looks, looks_plainly) else "emit/thing.made"
        )
    assert was_open == [False]


def lose(url: str) -> None:
    """Be a process that claimed everything and died."""
    with open_store(url) as store:
        now = store.now_ms()
        dead = ProcessRow(
            process_id="p_dead",
            epoch=1,
            instance=None,
            host="",
            pid=1,
            version="",
            started_at=now,
            lease_until=now - 1,
        )
        store.join(dead, [])
        claimed = store.apply(
            "p_dead", 1, Batch("batch", claims=[Claim(10, ("works",), now + 1_000)])
        ).claimed
        assert len(claimed) == 1
