"""The same verbs without an event loop: ``app.sync``, and what plain workflows get."""

from __future__ import annotations

import asyncio
import inspect
import threading
from concurrent.futures import CancelledError
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from onceward import (
    App,
    ConfigError,
    Context,
    Event,
    IdClash,
    NotFound,
    RunFailed,
    RunHandle,
    RunState,
    RunWasCancelled,
    StateConflict,
    StepMisuse,
    SyncContext,
)
from onceward.authoring.sync_verbs import SyncStepVerbs
from onceward.authoring.verbs import StepVerbs
from onceward.sync import SyncApp, SyncRunHandle
from tests.engine.running import make_app, run_app
from tests.helpers import eventually


def public(cls: type) -> dict[str, list[str]]:
    found = {}
    for name, member in inspect.getmembers(cls):
        if not name.startswith("_") and callable(member):
            found[name] = [one for one in inspect.signature(member).parameters if one != "self"]
    return found


@pytest.mark.parametrize(
    ("cls", "twin", "extra", "missing"),
    [
        (RunHandle, SyncRunHandle, set(), set()),
        (StepVerbs, SyncStepVerbs, set(), set()),
        (
            App,
            SyncApp,
            {"wait"},
            {"asgi", "configure", "lifespan", "source", "step", "transaction", "transactions", "workflow"},
        ),
    ],
)
def test_each_verb_has_a_twin_of_the_same_name_and_arguments(
    cls: type, twin: type, extra: set[str], missing: set[str]
) -> None:
    verbs, twins = public(cls), public(twin)

    assert set(twins) - set(verbs) == extra
    assert set(verbs) - set(twins) == missing
    assert {name: verbs[name] for name in set(verbs) & set(twins)} == {
        name: twins[name] for name in set(verbs) & set(twins)
    }


def test_the_sync_twin_does_everything_from_a_thread_without_a_loop(store_url: str) -> None:
    app = make_app(store_url)

    @app.workflow(on="placed")
    def on_placed(ctx: SyncContext, event: Event) -> int:
        ctx.step.sleep("nap", "50ms")
        return int(event.payload["n"]) + ctx.step.run("one", lambda: 1)

    @app.workflow()
    async def add(ctx: Context, a: int, b: int = 1) -> int:
        return a + b

    @app.workflow()
    def waits(ctx: SyncContext) -> None:
        ctx.step.sleep("nap", "1h")

    @app.workflow()
    def fails(ctx: SyncContext) -> None:
        raise ValueError("on purpose")

    sync = app.sync
    with sync:
        when = datetime(2026, 1, 2, tzinfo=UTC)
        emitted = sync.emit("placed", {"n": 6}, id="1", subject="s", occurred_at=when)
        assert emitted.runs[0].result() == 7
        assert sync.emit("placed", {"n": 6}, id="1").is_duplicate
        with pytest.raises(IdClash):
            sync.emit("placed", {"n": 7}, id="1")

        handle = sync.start(add, 1, b=2)
        assert (handle.result("10s"), handle.state(), handle.row().workflow) == (3, RunState.COMPLETED, "add")
        assert handle.steps() == []
        assert sync.start(add, 1, 2, id="x").run_id == sync.start(add, 1, 2, id="x").run_id
        replay = handle.replay()
        assert replay.result() == 3
        assert replay.run_id != handle.run_id

        sleeper = sync.start(waits)
        eventually(lambda: sleeper.state() is RunState.SLEEPING)
        with pytest.raises(TimeoutError, match=f"{sleeper.run_id} did not end within 20ms"):
            sleeper.result("20ms")
        assert sleeper.children() == []
        with pytest.raises(StateConflict):
            sleeper.dismiss()
        with pytest.raises(StateConflict):
            sleeper.answer("retry")
        with pytest.raises(StateConflict, match="Only a held run waits for an answer"):
            sleeper.resume()
        sleeper.cancel()
        with pytest.raises(RunWasCancelled):
            sleeper.result()

        failed = sync.start(fails)
        with pytest.raises(RunFailed, match="on purpose"):
            failed.result()
        assert [attempt.outcome for attempt in failed.attempts()] == ["failed"]
        assert failed.retry().attempt == 2
        with pytest.raises(RunFailed):
            failed.result()
        assert failed.restart(acknowledge=True).generation == 2
        with pytest.raises(RunFailed):
            failed.result()
        failed.dismiss()
        assert sync.runs(problems=True) == []

        assert len(sync.runs(workflow="add")) == 3
        assert sync.event("emit/placed", "1").subject == "s"
        assert [event.type for event in sync.events(source="emit/placed")] == ["placed"]
        assert sync.run(handle.run_id).result() == 3
        with pytest.raises(NotFound):
            sync.run("run_nothing").state()


def test_many_threads_share_one_twin(store_url: str) -> None:
    app = make_app(store_url)

    @app.workflow()
    def double(ctx: SyncContext, n: int) -> int:
        return ctx.step.run("double", lambda: 2 * n)

    results: list[int] = []

    def client(n: int) -> None:
        results.append(app.sync.start(double, n).result("20s"))

    with app.sync:
        clients = [threading.Thread(target=client, args=(n,)) for n in range(20)]
        for thread in clients:
            thread.start()
        for thread in clients:
            thread.join(30)

    assert sorted(results) == [2 * n for n in range(20)]


def test_the_twin_leaves_no_thread_behind(sqlite_url: str) -> None:
    before = set(threading.enumerate())
    app = make_app(sqlite_url)

    @app.workflow()
    def flow(ctx: SyncContext) -> int:
        return ctx.step.run("one", lambda: 1)

    for _ in range(3):
        with app.sync as sync:
            assert sync.start(flow).result() == 1
        eventually(lambda: not set(threading.enumerate()) - before, what="threads end")


def test_a_failed_opening_leaves_no_thread_and_can_be_repeated(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    app = make_app(f"sqlite:///{tmp_path}/missing/store.db")

    for _ in range(2):
        with pytest.raises(Exception, match="missing"):
            app.sync.open()
    with pytest.raises(ConfigError, match="The app is not open"):
        app.sync.runs()
    eventually(lambda: not set(threading.enumerate()) - before, what="threads end")

    (tmp_path / "missing").mkdir()
    with app.sync as sync:
        assert sync.runs() == []


def test_threads_that_open_and_close_at_once_take_turns(sqlite_url: str) -> None:
    before = set(threading.enumerate())
    app = make_app(sqlite_url)
    unharmed: list[int] = []

    def client(n: int) -> None:
        app.sync.open()
        if n % 3 == 0:
            app.sync.close()
        unharmed.append(n)

    clients = [threading.Thread(target=client, args=(n,)) for n in range(30)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join(30)

    app.sync.close()
    assert sorted(unharmed) == list(range(30))
    assert not app.is_open
    eventually(lambda: not set(threading.enumerate()) - before, what="threads end")


def test_whoever_waits_when_the_thread_ends_is_let_go(sqlite_url: str) -> None:
    app = make_app(sqlite_url)
    let_go = threading.Event()
    forever = threading.Event()

    async def wait() -> None:
        forever.set()
        await asyncio.Event().wait()

    def client() -> None:
        with pytest.raises(CancelledError):
            app.sync.wait(wait())
        let_go.set()

    with app.sync:
        thread = threading.Thread(target=client)
        thread.start()
        assert forever.wait(10)

    assert let_go.wait(10)


def test_the_twin_of_an_app_that_is_open_elsewhere_starts_no_thread(sqlite_url: str) -> None:
    app = make_app(sqlite_url)

    async def scenario() -> None:
        before = set(threading.enumerate())
        await asyncio.to_thread(app.sync.open)
        assert [one for one in set(threading.enumerate()) - before if one.name == "onceward-loop"] == []
        await asyncio.to_thread(app.sync.close)
        assert app.is_open
        assert await asyncio.to_thread(app.sync.runs) == []

    run_app(app, scenario)


def test_a_blocking_verb_in_the_apps_own_loop_is_refused_not_hung(sqlite_url: str) -> None:
    app = make_app(sqlite_url)

    async def scenario() -> None:
        for call in (app.sync.runs, lambda: app.sync.emit("told"), lambda: app.sync.run("x").state()):
            with pytest.raises(StepMisuse, match="in the app's own event loop"):
                call()

    run_app(app, scenario)


def test_the_twin_answers_in_threads_of_an_app_opened_in_a_loop(sqlite_url: str) -> None:
    app = make_app(sqlite_url)

    @app.workflow()
    async def flow(ctx: Context) -> int:
        return 7

    async def scenario() -> int:
        return await asyncio.to_thread(lambda: app.sync.start(flow).result())

    assert run_app(app, scenario) == 7


def test_the_app_itself_used_in_another_loop_says_so(sqlite_url: str) -> None:
    app = make_app(sqlite_url)

    async def open_only() -> None:
        await app.open()
        await app.close()

    async def use() -> Any:
        return await app.runs()

    asyncio.run(open_only())
    with pytest.raises(ConfigError, match="The app is not open"):
        asyncio.run(use())
    with app.sync, pytest.raises(ConfigError, match="another event loop"):
        asyncio.run(use())


def test_an_app_left_open_in_a_loop_that_is_over_can_be_opened_again(sqlite_url: str) -> None:
    app = make_app(sqlite_url, lease="500ms")

    @app.workflow()
    async def flow(ctx: Context) -> int:
        return 7

    async def leave_open() -> None:
        await app.open()

    async def use() -> int:
        return await (await app.start(flow)).result()

    asyncio.run(leave_open())
    with pytest.raises(ConfigError, match="is over"):
        asyncio.run(use())

    assert run_app(app, use) == 7
