"""Transactional steps in another database than the store's: a marker there says what was committed."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from onceward import Context, StepFailed
from onceward.core import failpoints
from onceward.testing.servers import PostgresAddress, unique_name
from tests.engine.running import ONCE, SOON, make_app, run_app
from tests.engine.test_transactions import BY_NAME, Scene, raise_lost
from tests.engine.ways import by_sqlite, file_of, make_table, outside, things
from tests.helpers import eventually_async

Elsewhere = tuple[Scene, str]


@pytest.fixture(params=["sqlite3", "aiosqlite", "psycopg", "asyncpg", "sqlalchemy-session-psycopg"])
def elsewhere(
    request: pytest.FixtureRequest, store_url: str, postgres_server: PostgresAddress, tmp_path: Path
) -> Elsewhere:
    """A scene on each store whose transactions are in another database, of each kind; and its URL."""
    way = BY_NAME[request.param]
    if way.kind == "sqlite":
        other = f"sqlite:///{tmp_path / 'other.db'}"
    else:
        other = postgres_server.create_database(unique_name())
    make_table(other)
    scene = Scene(way, store_url)
    scene.app.transactions(way.connect(other), marker=True)
    return scene, other


@pytest.fixture
def hooks() -> Iterator[dict[str, Callable[[], None]]]:
    """What is done at a failpoint, by its name; once each."""
    wanted: dict[str, Callable[[], None]] = {}

    def hook(name: str, detail: str) -> None:
        del detail
        if (act := wanted.pop(name, None)) is not None:
            act()

    failpoints.arm(hook)
    yield wanted
    failpoints.arm(None)


def kept(elsewhere: Elsewhere, name: str = "a") -> Any:
    scene, _ = elsewhere
    insert = scene.counted()

    @scene.app.workflow
    async def keep(ctx: Context) -> int:
        return await ctx.step.transaction("keep", insert, name, retry=ONCE)

    return keep


def test_the_row_and_a_marker_are_there_together(elsewhere: Elsewhere) -> None:
    scene, other = elsewhere
    handle = scene.run(kept(elsewhere))

    (step,) = scene.steps(handle)
    assert (step.kind, step.state, step.output) == ("transaction", "done", "1")
    assert things(other) == ["a"]
    assert outside(other, "select namespace, run_id, generation, step, result from onceward_marker") == [
        ("default", handle.run_id, 1, '["keep","",1]', "1")
    ]


def test_a_lost_commit_is_told_by_the_marker(
    elsewhere: Elsewhere, hooks: dict[str, Callable[[], None]]
) -> None:
    """In the same try, which is the only one that it has."""
    scene, other = elsewhere
    hooks["transaction.after_commit"] = raise_lost
    scene.run(kept(elsewhere))

    assert hooks == {}
    assert things(other) == ["a"]
    assert scene.bodies == 1


def test_who_is_lost_before_the_checkpoint_leaves_a_marker_to_the_next(
    elsewhere: Elsewhere, hooks: dict[str, Callable[[], None]]
) -> None:
    """The body does not run again, and the result is the same."""
    scene, other = elsewhere
    prefix = "onceward_" if scene.url.startswith("sqlite") else "onceward."

    def lose() -> None:
        outside(scene.url, f"update {prefix}run set fence = fence + 1")
        outside(scene.url, f"update {prefix}queue set process_id = null, due_at = 0")

    hooks["transaction.after_commit"] = lose
    handle = scene.run(kept(elsewhere))

    assert hooks == {}
    assert scene.bodies == 1
    assert things(other) == ["a"]
    assert [(step.state, step.output) for step in scene.steps(handle)] == [("done", "1")]


def test_a_restart_is_another_generation_and_runs_the_body_again(elsewhere: Elsewhere) -> None:
    scene, other = elsewhere
    keep = kept(elsewhere)

    async def scenario() -> None:
        handle = await scene.ended(keep)
        await handle.restart()
        await handle.result("20s")

    run_app(scene.app, scenario)

    assert things(other) == ["a", "a"]


def test_what_the_body_emits_is_refused(sqlite_url: str, tmp_path: Path) -> None:
    """The store cannot commit together with the other database."""
    other = f"sqlite:///{tmp_path / 'other.db'}"
    make_table(other)
    app = make_app(sqlite_url)
    app.transactions(lambda: sqlite3.connect(file_of(other)), marker=True)

    def make(connection: sqlite3.Connection) -> None:
        by_sqlite(connection, "a")
        app.sync.emit("thing.made", "a")

    @app.workflow
    async def keep(ctx: Context) -> str:
        with pytest.raises(StepFailed) as caught:
            await ctx.step.transaction("keep", make, retry=SOON)
        return str(caught.value)

    async def scenario() -> str:
        return await (await app.start(keep)).result("20s")

    assert "Use ctx.step.emit" in run_app(app, scenario)
    assert things(other) == []


def test_only_one_of_two_at_once_commits(sqlite_url: str, postgres_dsn: str) -> None:
    """A second holder of the run commits while the first is in its body: the first finds the marker."""
    make_table(postgres_dsn)
    scene = Scene(BY_NAME["asyncpg"], sqlite_url)
    scene.app.transactions(scene.way.connect(postgres_dsn), marker=True)
    inner, goes = scene.way.insert, [0]

    async def slow(connection: Any, name: str) -> int:
        goes[0] += 1
        number = goes[0]
        count = int(await inner(connection, f"{name}{number}"))
        if number == 1:
            await asyncio.to_thread(take_away_from, sqlite_url)
            await eventually_async(is_there)
        return count

    async def is_there() -> bool:
        return things(postgres_dsn) != []

    other = make_app(sqlite_url)
    other.transactions(scene.way.connect(postgres_dsn), marker=True)
    for app in (scene.app, other):

        @app.workflow
        async def keep(ctx: Context) -> int:
            return await ctx.step.transaction("keep", slow, "a", retry=ONCE)

    async def scenario() -> None:
        run = await scene.app.start(scene.app.workflows["keep"])
        async with other:
            assert await other.run(run.run_id).result("20s") == 1

    run_app(scene.app, scenario)

    assert things(postgres_dsn) == ["a2"]


def take_away_from(url: str) -> None:
    outside(url, "update onceward_run set fence = fence + 1")
    outside(url, "update onceward_queue set process_id = null, due_at = 0")
