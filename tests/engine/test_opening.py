"""Opening an app: what is wrong with a store or a setting is said at once, and nothing is left over."""

from __future__ import annotations

import asyncio
import functools
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from onceward import App, ConfigError, Context, StoreUnavailable, SyncContext
from onceward.core.errors import OncewardError, StoreDamaged
from onceward.core.ids import IdSource
from onceward.core.ports import Store
from onceward.core.triggers import Trigger
from onceward.runtime.threads import call_on
from tests.engine.running import make_app, run_app
from tests.helpers import eventually

ROOT = Path(__file__).resolve().parents[2]


async def nothing() -> None: ...


def refusal(app: App) -> OncewardError:
    """Give what opening *app* says, and check that it leaves no thread behind."""
    before = set(threading.enumerate())
    with pytest.raises(OncewardError) as caught:
        run_app(app, nothing, within_s=15)
    eventually(lambda: not set(threading.enumerate()) - before, what="threads end")
    assert caught.value.what
    assert caught.value.todo
    return caught.value


def test_no_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ONCEWARD_STORE", raising=False)
    error = refusal(App())

    assert isinstance(error, ConfigError)
    assert "ONCEWARD_STORE" in error.todo


@pytest.mark.parametrize(
    "url",
    ["mysql://x/y", "orders.db", "sqlite:", "http://x", "sqlite:///", "", "sqlite://host/x"],
)
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(ConfigError):
        run_app(App(url), nothing)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"concurency": 3}, ["concurency", "Did you mean concurrency?"]),
        ({"concurrency": 0}, ["concurrency"]),
        ({"concurrency": "many"}, ["concurrency", "many"]),
        ({"lease": "-1s"}, ["lease"]),
        ({"poll": "5s", "lease": "1s"}, ["poll", "lease"]),
    ],
)
def test_a_setting_that_is_wrong_is_refused_when_the_app_is_made(
    sqlite_url: str, settings: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        App(sqlite_url, **settings)

    assert all(word in str(caught.value) for word in words)


def test_a_variable_that_is_unknown_is_refused(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONCEWARD_CONCURENCY", "3")

    with pytest.raises(ConfigError, match="Did you mean ONCEWARD_CONCURRENCY"):
        App(sqlite_url)


def test_a_server_that_does_not_answer() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and never listening: connections are refused
        port = taken.getsockname()[1]
        error = refusal(App(f"postgresql://user:hunter2@127.0.0.1:{port}/orders"))

    assert isinstance(error, StoreUnavailable)
    assert str(port) in str(error)
    assert "hunter2" not in str(error)


def test_a_database_that_does_not_exist(postgres_dsn: str) -> None:
    error = refusal(
        App(
            postgres_dsn.replace("/onceward_", "/missing_")
            if "/onceward_" in postgres_dsn
            else postgres_dsn + "x"
        )
    )

    assert "does not exist" in str(error)


@pytest.mark.parametrize("what", ["missing folder", "folder", "no database", "no place to write"])
def test_a_file_that_cannot_be_the_store(tmp_path: Path, what: str) -> None:
    path = tmp_path / "store.db"
    if what == "missing folder":
        path = tmp_path / "missing" / "store.db"
    elif what == "folder":
        path.mkdir()
    elif what == "no database":
        path.write_bytes(b"not a database at all, " * 1000)
    else:
        path = Path("/proc/onceward/store.db")

    error = refusal(App(f"sqlite:///{path}"))

    assert isinstance(error, StoreDamaged if what == "no database" else StoreUnavailable)
    assert str(path) in str(error)


def test_an_app_that_is_not_open_says_how_to_open_it(sqlite_url: str) -> None:
    app = make_app(sqlite_url)

    @app.workflow()
    async def flow(ctx: Context) -> None: ...

    for call in (lambda: app.emit("told"), lambda: app.start(flow), app.runs, app.run("x").state):
        with pytest.raises(ConfigError, match=r"The app is not open.*async with app"):
            asyncio.run(call())


def test_a_workflow_registered_too_late_is_refused(sqlite_url: str) -> None:
    app = make_app(sqlite_url)

    async def scenario() -> None:
        with pytest.raises(ConfigError, match="after the app was opened"):

            @app.workflow()
            async def late(ctx: Context) -> None: ...

    run_app(app, scenario)


def test_registrations_that_cannot_work_are_refused_when_they_are_made(sqlite_url: str) -> None:
    app = make_app(sqlite_url)

    @app.workflow(name="taken")
    async def first(ctx: Context) -> None: ...

    with pytest.raises(ConfigError, match="two workflows named 'taken'"):

        @app.workflow(name="taken")
        async def second(ctx: Context) -> None: ...

    wrong: Any = app.workflow
    with pytest.raises(ConfigError, match="takes no parameters"):
        wrong(name="x")(lambda: None)
    for function in (lambda ctx: None, functools.partial(second_flow)):
        with pytest.raises(ConfigError, match=r"has no name of its own.*name="):
            wrong(function)
        with pytest.raises(ConfigError, match=r"has no name of its own.*name="):
            app.step(function)
    for nothing in (7, "text", None):
        with pytest.raises(ConfigError, match=r"it is not a function.* goes into on="):
            wrong()(nothing)
    with pytest.raises(ConfigError, match="is an async function and takes a SyncContext"):
        wrong()(takes_the_other)
    with pytest.raises(ConfigError, match="is a plain function and takes a Context"):
        wrong()(takes_the_other_plainly)
    with pytest.raises(ConfigError, match="name"):
        wrong(name="")(second_flow)
    with pytest.raises(ConfigError, match=r"'stripe'.*does not have"):
        wrong(on=Trigger("stripe", "*"))(second_flow)
    with pytest.raises(ConfigError, match="star"):
        wrong(on="a.*.b")(second_flow)
    with pytest.raises(ConfigError, match="deadline of a workflow"):
        wrong(deadline="soon")(second_flow)
    with pytest.raises(ConfigError, match="timeout of a step"):
        app.step(timeout=-1)


async def second_flow(ctx: Context) -> None: ...


async def takes_the_other(ctx: SyncContext) -> None: ...


def takes_the_other_plainly(ctx: Context) -> None: ...


def test_opening_and_closing_twice_is_once(sqlite_url: str) -> None:
    app = make_app(sqlite_url)

    async def scenario() -> int:
        await app.open()
        count = len(await app.processes())
        await app.close()
        await app.close()
        await app.open()
        return count

    assert run_app(app, scenario) == 1


def test_opening_at_once_from_several_tasks_is_once(sqlite_url: str) -> None:
    app = make_app(sqlite_url)

    async def main() -> int:
        await asyncio.gather(*(app.open() for _ in range(5)))
        count = len(await app.processes())
        await app.close()
        return count

    assert asyncio.run(main()) == 1


class OverheardStore:
    """Hands everything to a store, and counts how often its listener calls back."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def listen(self, callback: Callable[[], object]) -> object:
        def counted() -> None:
            try:
                callback()
            finally:
                self.calls += 1

        return self._store.listen(counted)


class OverheardApp(App):
    overheard: OverheardStore

    def _make_store(self, draws: IdSource) -> Store:
        self.overheard = OverheardStore(super()._make_store(draws))
        return cast("Store", self.overheard)


def test_threads_are_quiet_when_the_loop_was_closed_and_the_app_was_not(
    postgres_store: str, caplog: pytest.LogCaptureFixture
) -> None:
    app, other = OverheardApp(postgres_store), make_app(postgres_store)
    with asyncio.Runner() as runner:
        runner.run(app.open())
        eventually(lambda: app.overheard.calls, what="the listener listens")
        worker: Any = app.worker
    before = app.overheard.calls
    try:
        run_app(other, lambda: other.emit("told"))
        eventually(lambda: app.overheard.calls > before, what="the listener hears of the event")
        worker._heartbeat.beat()

        assert not call_on(worker.loop, worker.hint)
        assert [record for record in caplog.records if record.exc_info] == []
    finally:
        worker.abort()
        app.overheard.close()


def test_a_full_database_refuses_new_events_and_keeps_what_runs(
    sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What a sender can send again is refused; checkpoints wait until there is room."""
    app = make_app(sqlite_url)
    go_on = threading.Event()

    @app.workflow()
    def flow(ctx: SyncContext) -> list[int]:
        big = ctx.step.run("big", lambda: go_on.wait(20) and "x" * 900_000)
        return [len(str(big)), ctx.step.run("after", lambda: 7)]

    async def scenario() -> list[int]:
        handle = await app.start(flow)
        store: Any = app.worker.store
        connection = store._connections._writer
        pages = connection.execute("pragma page_count").fetchone()[0]
        connection.execute(f"pragma max_page_count = {pages}")
        with pytest.raises(StoreUnavailable, match="SQLITE_FULL"):
            await app.emit("big", "x" * 900_000)
        # The failed connection is dropped, and its limit with it; the next one is as full.
        await app.emit("small")
        store._connections._writer.execute(f"pragma max_page_count = {pages}")
        go_on.set()
        return await handle.result()

    assert run_app(app, scenario) == [900_000, 7]
    assert [record.message for record in caplog.records if "checkpoints wait" in record.message][1:]


def test_a_server_that_only_reads_is_unavailable(postgres_dsn: str) -> None:
    import psycopg

    app = make_app(postgres_dsn)
    run_app(app, nothing)
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f'alter database "{name}" set default_transaction_read_only = on'.encode())

    error = refusal(make_app(postgres_dsn))

    assert isinstance(error, StoreUnavailable)
    assert "read-only" in str(error)
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(b"set default_transaction_read_only = off")
        connection.execute(f'alter database "{name}" reset default_transaction_read_only'.encode())
    run_app(app, nothing)


FORK = """
import os, sys, time
from onceward import App, SyncContext
from onceward.core.errors import StoreForked

app = App(sys.argv[1], poll="50ms")

@app.workflow()
def double(ctx: SyncContext, n: int) -> int:
    return ctx.step.run("double", lambda: 2 * n)

def child(n):
    with app.sync as sync:
        assert sync.start(double, n).result("20s") == 2 * n

def forked(function, *args):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            function(*args)
            code = 0
        finally:
            sys.stdout.flush()
            os._exit(code)
    return pid

def wait(*pids):
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]

# Imported before the fork and opened after it, in several children at once.
print(wait(*(forked(child, n) for n in range(3))))

# Opened before the fork: refused in the child, by name, and the parent goes on.
def refused():
    try:
        app.sync.runs()
    except StoreForked as error:
        assert "after the fork" in str(error), error
    else:
        raise AssertionError("not refused")
    # SQLite cannot even be opened anew in the child; PostgreSQL can.
    try:
        child(9)
    except StoreForked:
        assert sys.argv[1].startswith("sqlite:")

with app.sync as sync:
    print(wait(forked(refused)), sync.start(double, 5).result("20s"))
    print(len(sync.runs(state="completed")))
"""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_app_imported_before_a_fork_works_after_it(store_url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", FORK, store_url],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )

    completed = "4" if store_url.startswith("sqlite:") else "5"
    assert (done.stdout.split("\n"), done.stderr) == (["[0, 0, 0]", "[0] 10", completed, ""], "")
