"""Transactional steps beside other processes that use the SQLite file, with a SQLite that could damage it.

Whatever SQLite this is: the version from which it is safe is put behind it.
"""

from __future__ import annotations

import logging

import pytest

from onceward import App, Context, Retry, RunHandle
from onceward.authoring.workflow import Workflow
from onceward.cli.console.diagnosis import dangers, stuck_runs
from onceward.console.local import LocalConsole
from onceward.runtime.transactions import sharing
from onceward.stores.sqlite import within
from tests.engine.running import ONCE, make_app, open_store, run_app
from tests.engine.ways import WAYS, make_table, things
from tests.helpers import eventually_async

WAITS = "transactional steps wait until no other process uses the store's file"
GO_ON = "no other process uses the store's file: transactional steps go on"


@pytest.fixture(autouse=True)
def old_sqlite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(within, "SAFE_FROM", (99, 0, 0))


def kept(app: App, url: str, way: str = "sqlite3") -> Workflow[[str], str]:
    """Give a workflow with one transactional step that may be tried once."""
    (found,) = [one for one in WAYS if one.name == way]
    make_table(url)
    app.transactions(found.connect(url))

    @app.workflow
    async def keep(ctx: Context, name: str) -> str:
        await ctx.step.transaction("keep", found.insert, name, retry=ONCE)
        return name

    return keep


async def until_it_waits(handle: RunHandle[str]) -> None:
    async def is_waiting() -> bool:
        return (await handle.state()) == "backoff"

    await eventually_async(is_waiting, what="the step waits")


@pytest.mark.parametrize("way", ["sqlite3", "aiosqlite"])
def test_a_step_waits_uncharged_while_another_process_uses_the_file_and_then_goes_on(
    sqlite_url: str, way: str
) -> None:
    """It may be tried once only, so that one charge would fail it; the run leaves memory meanwhile."""
    app, other = make_app(sqlite_url), make_app(sqlite_url)
    keep = kept(app, sqlite_url, way)

    async def scenario() -> None:
        async with other:
            handle = await app.start(keep, "a")
            await until_it_waits(handle)
            (step,) = await handle.steps()
            assert (step.state, step.tries) == ("open", 0)
            detail = await LocalConsole(app).run(handle.run_id)
            assert detail.waits_for == "the end of the other process that uses the store's file, for 'keep'"
            assert things(sqlite_url) == []
        assert await handle.result("20s") == "a"
        (step,) = await handle.steps()
        assert (step.state, step.tries, step.error) == ("done", 1, None)
        assert await handle.attempts() == []

    run_app(app, scenario)

    assert things(sqlite_url) == ["a"]


def test_a_step_that_waited_longer_than_its_tries_may_take_has_its_whole_time_left(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of a policy counts from the first try, which has not begun."""
    monkeypatch.setattr(sharing, "PAUSE_MS_MIN", 50)
    monkeypatch.setattr(sharing, "PAUSE_MS_MAX", 50)
    app, other = make_app(sqlite_url), make_app(sqlite_url)
    make_table(sqlite_url)
    way = next(one for one in WAYS if one.name == "sqlite3")
    app.transactions(way.connect(sqlite_url))
    tries: list[str] = []

    def fails_once(connection: object, name: str) -> None:
        tries.append(name)
        if len(tries) == 1:
            raise ValueError("not yet")

    @app.workflow
    async def keep(ctx: Context) -> str:
        policy = Retry(base="1ms", cap="2ms", total="150ms")
        await ctx.step.transaction("keep", fails_once, "a", retry=policy)
        return "done"

    async def scenario() -> str:
        async with other:
            handle = await app.start(keep)
            await until_it_waits(handle)
            (before,) = await handle.steps()

            async def is_later() -> bool:
                (now,) = await handle.steps()
                return (now.wake_at or 0) - (before.wake_at or 0) > 300

            await eventually_async(is_later, what="it waited for longer than its tries may take")
        return await handle.result("20s")

    assert run_app(app, scenario) == "done"
    assert tries == ["a", "a"]


def test_another_process_takes_a_waiting_run_over_and_ends_it_once(sqlite_url: str) -> None:
    """As at a redeploy: both are there for a while, and then the older one is gone."""
    older, newer = make_app(sqlite_url), make_app(sqlite_url)
    keep = kept(older, sqlite_url)
    kept(newer, sqlite_url)

    async def scenario() -> None:
        async with older:
            handle = await older.start(keep, "a")
            await until_it_waits(handle)
        assert await newer.run(handle.run_id).result("20s") == "a"

    run_app(newer, scenario)

    assert things(sqlite_url) == ["a"]


def test_a_process_tells_of_another_that_came_later_before_any_of_its_steps_waits(
    sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """And that it is gone; the first to come has no banner that could tell it."""
    caplog.set_level(logging.WARNING, "onceward.worker")
    app, other = make_app(sqlite_url, lease="400ms"), make_app(sqlite_url)
    kept(app, sqlite_url)

    async def scenario() -> None:
        async def said(text: str) -> bool:
            return text in caplog.text

        async with other:
            await eventually_async(lambda: said(f"{WAITS}, trying again: Another process uses"), what=WAITS)
        await eventually_async(lambda: said(GO_ON), what=GO_ON)

    run_app(app, scenario)


def test_nothing_is_told_where_transactions_are_elsewhere_or_insisted_on(
    sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    app, other = make_app(sqlite_url), make_app(sqlite_url)
    make_table(sqlite_url)
    way = next(one for one in WAYS if one.name == "sqlite3")
    app.transactions(way.connect(sqlite_url), insist=True)
    app.transactions(way.connect(sqlite_url), marker=True)

    @app.workflow
    async def keep(ctx: Context) -> None:
        await ctx.step.transaction("keep", way.insert, "a", retry=ONCE)

    async def scenario() -> None:
        async with other:
            await (await app.start(keep)).result("20s")

    run_app(app, scenario)

    assert things(sqlite_url) == ["a"]
    assert WAITS not in caplog.text


def test_the_doctor_tells_of_both_processes_and_of_the_run_that_waits(sqlite_url: str) -> None:
    app, other = make_app(sqlite_url), make_app(sqlite_url)
    keep = kept(app, sqlite_url)

    async def scenario() -> None:
        async with other:
            handle = await app.start(keep, "a")
            await until_it_waits(handle)
            with open_store(sqlite_url) as store:
                now = store.now_ms()
                noted = [one.says for one in dangers(store, store.processes(), now)]
                found = {one.subject: one.says for one in stuck_runs(store, now)}
            assert noted[0].startswith("2 processes use the file with SQLite ")
            assert noted[0].endswith("while they do, no transactional step begins")
            assert found == {
                f"{handle.run_id} keep": "'keep' waits until no other process uses the store's file"
            }

    run_app(app, scenario)


def test_other_processes_are_counted(sqlite_url: str) -> None:
    app, second, third = (make_app(sqlite_url) for _ in range(3))

    async def scenario() -> str:
        async with second, third:
            refusal = await app.worker.read(app.worker.store.within().refusal, app.worker.process_id)
            return str(refusal)

    assert run_app(app, scenario).startswith("2 other processes use /")
