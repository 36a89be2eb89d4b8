"""Transactional steps: the user's rows and the checkpoint are there together, once, or not at all."""

from __future__ import annotations

import asyncio
import functools
import sqlite3
import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import aiosqlite
import psycopg
import pytest
import sqlalchemy as sa

from onceward import App, Context, Retry, StepFailed, SyncContext
from onceward.core import failpoints
from onceward.core.states import StepState
from onceward.testing.servers import PostgresAddress, unique_name
from onceward.testing.tcp_proxy import TcpProxy
from tests.engine.running import ONCE, SOON, make_app, run_app
from tests.engine.ways import (
    WAYS,
    Way,
    by_async_psycopg,
    by_psycopg,
    by_sqlite,
    file_of,
    make_table,
    outside,
    things,
)
from tests.helpers import eventually_async
from tests.recycled import migrated_file

BY_NAME = {way.name: way for way in WAYS}
PLAIN = ("sqlite3", "psycopg")
"""One driver for each store, for what no driver decides; each with its async twin."""
BOTH = (*PLAIN, "aiosqlite", "asyncpg")


class Scene:
    """An app on a store with a table of the user's beside it."""

    def __init__(self, way: Way, url: str, **settings: Any) -> None:
        self.way = way
        self.url = url
        self.app = make_app(url, **settings)
        self.bodies = 0

    @functools.cached_property
    def connect(self) -> Any:
        """Give what gives connections to the store's own database."""
        return self.way.connect(self.url)

    def counted(self, function: Callable[..., Any] | None = None) -> Callable[..., Any]:
        """Give the function, or the way's insert, with its calls counted."""
        inner = function or self.way.insert
        if asyncio.iscoroutinefunction(inner):

            async def body(connection: Any, *args: Any) -> int:
                self.bodies += 1
                return int(await inner(connection, *args) or 0)

            return body

        def plain(connection: Any, *args: Any) -> int:
            self.bodies += 1
            return int(inner(connection, *args) or 0)

        return plain

    def run(self, workflow: Any, *args: Any) -> Any:
        """Run a workflow and give its handle, ended well."""
        return run_app(self.app, lambda: self.ended(workflow, *args))

    async def ended(self, workflow: Any, *args: Any) -> Any:
        handle = await self.app.start(workflow, *args)
        await handle.result("20s")
        return handle

    def steps(self, handle: Any) -> list[Any]:
        async def read() -> list[Any]:
            return await self.app.run(handle.run_id).steps()

        return run_app(self.app, read)


@pytest.fixture
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Scene:
    """A scene of the way that the test is run with."""
    way = BY_NAME[request.param] if isinstance(request.param, str) else request.param
    if way.kind == "sqlite":
        url = migrated_file(tmp_path / "store.db")
    else:
        url = str(request.getfixturevalue("postgres_store"))
    make_table(url)
    scene = Scene(way, url)
    scene.app.transactions(scene.connect)
    return scene


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


every_way = pytest.mark.parametrize("scene", WAYS, indirect=True, ids=str)


def ways(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("scene", names, indirect=True)


# --- together ------------------------------------------------------------------------------------


@every_way
def test_the_row_and_the_checkpoint_are_there_together(scene: Scene) -> None:
    """And a second go of the run finds both."""
    insert = scene.counted()

    @scene.app.workflow
    async def keep(ctx: Context, name: str) -> int:
        found: int = await ctx.step.transaction("keep", insert, name)
        await ctx.step.sleep("between", "100ms")  # it leaves memory
        return found

    handle = scene.run(keep, "a")

    assert things(scene.url) == ["a"]
    assert scene.bodies == 1
    kept = scene.steps(handle)[0]
    assert (kept.kind, kept.state, kept.output, kept.tries) == ("transaction", StepState.DONE, "1", 1)


@every_way
def test_a_body_that_fails_takes_its_rows_back_and_is_tried_again(scene: Scene) -> None:
    insert, fails = scene.way.insert, [ValueError("no"), KeyError("no")]

    async def later(connection: Any, name: str) -> int:
        scene.bodies += 1
        await insert(connection, f"{name}{scene.bodies}")
        if fails:
            raise fails.pop()
        return scene.bodies

    def sooner(connection: Any, name: str) -> int:
        scene.bodies += 1
        insert(connection, f"{name}{scene.bodies}")
        if fails:
            raise fails.pop()
        return scene.bodies

    body = later if asyncio.iscoroutinefunction(insert) else sooner

    @scene.app.workflow
    async def keep(ctx: Context, name: str) -> int:
        return await ctx.step.transaction("keep", body, name, retry=SOON)

    handle = scene.run(keep, "a")

    assert things(scene.url) == ["a3"]
    assert [step.tries for step in scene.steps(handle)] == [3]


@ways(*BOTH)
def test_the_last_failure_is_raised_and_nothing_is_kept(scene: Scene) -> None:
    def refuse(connection: Any) -> None:
        del connection
        raise ValueError("no")

    async def refuse_later(connection: Any) -> None:
        refuse(connection)

    is_async = asyncio.iscoroutinefunction(scene.way.insert)
    both = scene.counted(refuse_later if is_async else refuse)

    @scene.app.workflow
    async def keep(ctx: Context) -> str:
        with pytest.raises(StepFailed, match="ValueError: no"):
            await ctx.step.transaction("keep", both, retry=ONCE)
        return "caught"

    handle = scene.run(keep)

    assert things(scene.url) == []
    (kept,) = scene.steps(handle)
    assert (kept.kind, kept.state) == ("transaction", StepState.FAILED)


@ways(*PLAIN)
def test_a_decorated_transaction_is_called_without_its_connection(scene: Scene) -> None:
    """In a plain workflow directly, in an async one by its name."""

    @scene.app.transaction(retry=SOON, timeout="20s")
    def keep(connection: Any, name: str) -> int:
        return int(scene.way.insert(connection, name))

    @scene.app.workflow
    def plain(ctx: SyncContext) -> list[int]:
        del ctx
        return [keep("a"), keep.item("second")("b")]

    @scene.app.workflow
    async def later(ctx: Context) -> int:
        return await ctx.step.transaction("by name", keep, "c")

    scene.run(plain)
    handle = scene.run(later)

    assert things(scene.url) == ["a", "b", "c"]
    assert [(step.name, step.kind) for step in scene.steps(handle)] == [("by name", "transaction")]


@ways("aiosqlite", "asyncpg")
def test_a_decorated_async_transaction_is_awaited(scene: Scene) -> None:
    @scene.app.transaction
    async def keep(connection: Any, name: str) -> int:
        return int(await scene.way.insert(connection, name))

    @scene.app.workflow
    async def later(ctx: Context) -> int:
        del ctx
        return await keep("a")

    @scene.app.workflow
    def plain(ctx: SyncContext) -> int:
        return ctx.step.transaction("keep", keep, "b")

    scene.run(later)
    scene.run(plain)

    assert things(scene.url) == ["a", "b"]


@ways(*BOTH)
def test_many_runs_at_once_each_keep_their_row(scene: Scene) -> None:
    """On SQLite they take turns with each other and with the writer."""
    insert = scene.counted()

    @scene.app.workflow
    async def keep(ctx: Context, name: str) -> None:
        await ctx.step.run("before", str, name)
        await ctx.step.transaction("keep", insert, name)
        await ctx.step.run("after", str, name)

    async def all_of_them() -> None:
        handles = [await scene.app.start(keep, f"{number:02}") for number in range(20)]
        for handle in handles:
            await handle.result("20s")

    run_app(scene.app, all_of_them)

    assert things(scene.url) == [f"{number:02}" for number in range(20)]


# --- once ----------------------------------------------------------------------------------------


def raise_lost() -> None:
    raise ConnectionError("the reply was lost")


@ways(*BOTH)
def test_a_commit_whose_reply_is_lost_is_looked_up_and_not_repeated(
    scene: Scene, hooks: dict[str, Callable[[], None]]
) -> None:
    insert = scene.counted()

    @scene.app.workflow
    async def keep(ctx: Context) -> int:
        return await ctx.step.transaction("keep", insert, "a", retry=SOON)

    hooks["transaction.after_commit"] = raise_lost
    scene.run(keep)

    assert hooks == {}
    assert scene.bodies == 1
    assert things(scene.url) == ["a"]


@ways(*BOTH)
def test_what_fails_before_the_commit_is_rolled_back_and_tried_again(
    scene: Scene, hooks: dict[str, Callable[[], None]]
) -> None:
    """The twin of the last: here the body does run twice."""
    insert = scene.counted()

    @scene.app.workflow
    async def keep(ctx: Context) -> int:
        return await ctx.step.transaction("keep", insert, "a", retry=SOON)

    hooks["transaction.before_commit"] = raise_lost
    scene.run(keep)

    assert scene.bodies == 2
    assert things(scene.url) == ["a"]


@ways(*PLAIN)
def test_a_commit_is_a_new_checkpoint_for_the_count_of_lost_holders(
    scene: Scene, hooks: dict[str, Callable[[], None]]
) -> None:
    """Who dies after each of four transactions made progress each time, and is no poison."""
    run_table = "onceward_run" if scene.way.kind == "sqlite" else "onceward.run"
    after: list[tuple[Any, ...]] = []

    async def lose_holders() -> None:
        outside(scene.url, f"update {run_table} set crashes = 3")

    @scene.app.workflow
    async def keep(ctx: Context) -> int:
        await ctx.step.run("lose holders", lose_holders)
        return await ctx.step.transaction("keep", scene.way.insert, "a")

    hooks["transaction.after_commit"] = lambda: after.extend(
        outside(scene.url, f"select crashes from {run_table}")
    )
    scene.run(keep)

    assert after == [(0,)]


@pytest.mark.parametrize("name", ["psycopg", "async-psycopg", "asyncpg", "sqlalchemy-asyncpg"])
@pytest.mark.parametrize(("fault", "bodies"), [("drop_commit_reply", 1), ("cut_before_commit", 2)])
def test_a_connection_cut_at_the_commit_leaves_one_row(
    postgres_server: PostgresAddress, postgres_store: str, name: str, fault: str, bodies: int
) -> None:
    """Whether the server has committed or not, which the client cannot know."""
    make_table(postgres_store)
    with TcpProxy(postgres_server) as proxy:
        scene = Scene(BY_NAME[name], postgres_store)
        scene.app.transactions(BY_NAME[name].connect(proxy.dsn(postgres_store.rsplit("/", 1)[1])))
        insert = scene.counted()

        @scene.app.workflow
        async def keep(ctx: Context) -> int:
            return await ctx.step.transaction("keep", insert, "a", retry=SOON)

        getattr(proxy, fault)()
        scene.run(keep)

        assert proxy.faults_made == 1
    assert scene.bodies == bodies
    assert things(postgres_store) == ["a"]


def take_away(scene: Scene) -> None:
    """Do to a scene's runs what a takeover does: another fence, nobody's, due."""
    prefix = "onceward_" if scene.way.kind == "sqlite" else "onceward."
    outside(scene.url, f"update {prefix}run set fence = fence + 1")
    outside(scene.url, f"update {prefix}queue set process_id = null, due_at = 0")


def goes_of_a_zombie(scene: Scene) -> int:
    """Take the run away when its body may begin, once; give how often its transaction began.

    On SQLite right before the file is locked, since afterwards nobody can. Nothing looks meanwhile, or it
    could find the run gone and stop it there, before its body.
    """
    scene.app.configure(poll="1m", lease="1m")
    pending, goes = [True], []

    def lose() -> None:
        if pending:
            pending.clear()
            take_away(scene)

    class Cursor(sqlite3.Cursor):
        def execute(self, sql: str, values: Any = ()) -> Any:
            if sql == "begin immediate":
                goes.append(sql)
                lose()
            return super().execute(sql, values)

    class Connection(sqlite3.Connection):
        def cursor(self, factory: Any = Cursor) -> Any:
            return super().cursor(factory)

    inner, file = scene.way.insert, file_of(scene.url) if scene.way.kind == "sqlite" else ""

    def sooner(connection: Any, thing: str) -> int:
        if not file:
            lose()
        return int(inner(connection, thing))

    async def later(connection: Any, thing: str) -> int:
        if not file:
            lose()
        return int(await inner(connection, thing))

    insert = scene.counted(later if asyncio.iscoroutinefunction(inner) else sooner)
    connect = {
        "sqlite3": lambda: sqlite3.connect(file, factory=Connection),
        "aiosqlite": lambda: aiosqlite.connect(file, factory=Connection),
    }.get(scene.way.name, scene.connect)

    @scene.app.workflow
    async def keep(ctx: Context) -> int:
        return await ctx.step.transaction("keep", insert, "a", connect=connect)

    scene.run(keep)
    assert pending == []
    return len(goes) if file else scene.bodies


@ways(*BOTH)
def test_who_was_fenced_out_cannot_commit(scene: Scene) -> None:
    """The rows go with the checkpoint; whoever has the run then makes them."""
    assert goes_of_a_zombie(scene) == 2
    assert things(scene.url) == ["a"]


@ways(*PLAIN)
def test_without_the_fence_a_zombie_would_commit(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted twin of the last test."""
    from onceward.stores.postgres.within import PostgresWithin
    from onceward.stores.sqlite.within import SqliteWithin

    for words, condition in (
        (PostgresWithin, "and r.fence = (select fence from given)"),
        (SqliteWithin, "and r.fence = :fence"),
    ):
        made = words.__init__

        def unfenced(
            self: Any, sql: Any, *args: Any, made: Any = made, condition: str = condition, **kwargs: Any
        ) -> None:
            assert condition in sql["seal"]
            made(self, {**sql, "seal": sql["seal"].replace(condition, "")}, *args, **kwargs)

        monkeypatch.setattr(words, "__init__", unfenced)

    assert goes_of_a_zombie(scene) == 1


@ways(*PLAIN)
def test_a_body_that_ran_out_of_time_cannot_commit_any_more(scene: Scene) -> None:
    """It is abandoned in its thread; the next try is the one that commits."""
    may_end = threading.Event()

    def slow(connection: Any) -> None:
        scene.bodies += 1
        number = scene.bodies
        scene.way.insert(connection, f"try {number}")
        if number == 1:
            may_end.wait(20)

    @scene.app.workflow
    async def keep(ctx: Context) -> None:
        await ctx.step.transaction(
            "keep", slow, timeout="200ms", retry=Retry(base="1ms", cap="1ms", max_tries=50)
        )

    async def is_given_up() -> bool:
        """On SQLite the next try cannot begin before: the failure waits for the file's lock."""
        if scene.way.kind == "sqlite":
            return scene.bodies == 1 and scene.app.worker.committer._is_busy
        return scene.bodies > 1

    async def scenario() -> None:
        handle = await scene.app.start(keep)
        await eventually_async(is_given_up)
        may_end.set()
        await handle.result("20s")

    run_app(scene.app, scenario)

    assert len(things(scene.url)) == 1
    assert things(scene.url) != ["try 1"]


@ways(*PLAIN)
def test_what_is_seen_before_a_transaction_is_saved_before_it(
    scene: Scene, hooks: dict[str, Callable[[], None]]
) -> None:
    """A branch that gets its outcome while another commits is before it for ever after (RULINGS 17)."""
    is_through = threading.Event()
    order: list[str] = []

    @scene.app.workflow
    async def both(ctx: Context) -> None:
        committing = asyncio.Event()
        loop = asyncio.get_running_loop()

        def hold() -> None:
            loop.call_soon_threadsafe(committing.set)
            assert is_through.wait(20)

        async def keep() -> None:
            hooks["transaction.before_commit"] = hold
            await ctx.step.transaction("keep", scene.way.insert, "a")
            order.append("keep")

        async def other() -> None:
            await committing.wait()
            await ctx.step.uuid("other")
            order.append("other")
            is_through.set()

        await asyncio.gather(keep(), other())

    handle = scene.run(both)

    assert order == ["other", "keep"]
    assert [step.name for step in scene.steps(handle)] == order


def test_a_serialization_failure_is_a_try(request: pytest.FixtureRequest) -> None:
    dsn = str(request.getfixturevalue("postgres_dsn"))
    outside(dsn, "create table stock (left_over int)")
    outside(dsn, "insert into stock values (5)")
    app, bodies = make_app(dsn), [0]

    def connect() -> psycopg.Connection[Any]:
        connection = psycopg.connect(dsn)
        connection.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        return connection

    app.transactions(connect)

    def take(connection: psycopg.Connection[Any]) -> None:
        bodies[0] += 1
        row = connection.execute("select left_over from stock").fetchone()
        assert row is not None
        if bodies[0] == 1:
            outside(dsn, "update stock set left_over = left_over - 1")
        connection.execute("update stock set left_over = %s", (row[0] - 1,))

    @app.workflow
    async def sell(ctx: Context) -> None:
        await ctx.step.transaction("take", take, retry=SOON)

    async def scenario() -> None:
        await (await app.start(sell)).result("20s")

    run_app(app, scenario)

    assert bodies == [2]
    assert outside(dsn, "select left_over from stock") == [(3,)]


# --- misuse --------------------------------------------------------------------------------------


def refusal_of(scene: Scene, body: Callable[..., Any], **options: Any) -> str:
    """Give how a transaction was refused: at once, and with nothing kept."""

    @scene.app.workflow
    async def keep(ctx: Context) -> str:
        with pytest.raises(StepFailed) as caught:
            await ctx.step.transaction("keep", body, retry=SOON, **options)
        return str(caught.value)

    async def scenario() -> str:
        handle = await scene.app.start(keep)
        told: str = await handle.result("20s")
        (step,) = await handle.steps()
        assert step.tries == 1
        return told

    return run_app(scene.app, scenario)


@ways(*BOTH)
def test_another_database_is_refused_before_the_body_begins(
    scene: Scene, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if scene.way.kind == "sqlite":
        other = f"sqlite:///{tmp_path / 'other.db'}"
    else:
        other = request.getfixturevalue("postgres_server").create_database(unique_name())
    make_table(other)

    told = refusal_of(scene, scene.counted(scene.way.insert), connect=scene.way.connect(other))

    assert "TransactionMisuse" in told
    assert "cannot commit together" in told
    assert scene.bodies == 0


def test_a_copy_of_the_stores_database_is_another(
    postgres_server: PostgresAddress, postgres_dsn: str
) -> None:
    """With the same tables in it: what tells it apart is that this process is not registered there."""
    make_table(postgres_dsn)
    scene = Scene(BY_NAME["psycopg"], postgres_dsn)
    run_app(scene.app, scene.app.describe)  # migrated
    copy = postgres_server.create_database(unique_name(), template=postgres_dsn.rsplit("/", 1)[1])

    told = refusal_of(scene, scene.counted(by_psycopg), connect=lambda: psycopg.connect(copy))

    assert "does not lead to the database of the store" in told
    assert scene.bodies == 0


def test_another_kind_of_database_is_refused(sqlite_url: str, postgres_dsn: str) -> None:
    make_table(sqlite_url)
    scene = Scene(BY_NAME["sqlite3"], sqlite_url)

    told = refusal_of(scene, scene.counted(by_psycopg), connect=lambda: psycopg.connect(postgres_dsn))

    assert "one to postgres, and the store is on sqlite" in told


@ways(*PLAIN)
def test_a_connection_with_an_open_transaction_is_refused(scene: Scene) -> None:
    """It would be one inside another."""
    opened: list[Any] = []

    def connect() -> Any:
        connection = scene.connect()
        connection.execute("insert into thing values ('outer')")
        opened.append(connection)
        return connection

    told = refusal_of(scene, scene.counted(), connect=connect)

    assert "a connection with an open transaction" in told
    assert things(scene.url) == []


@ways("sqlite3", "psycopg")
def test_what_would_nest_or_wait_for_the_worker_is_refused_in_a_body(scene: Scene) -> None:
    """A transaction in another, a verb of the context, a verb that steers a run, the wait for one."""
    app, insert = scene.app, scene.way.insert
    told: list[str] = []

    @app.transaction
    def inner(connection: Any) -> None:
        insert(connection, "inner")

    def outer(connection: Any, ctx: Context) -> None:
        insert(connection, "outer")
        for call in (
            lambda: inner(),
            lambda: app.sync.run("run_x").cancel(),
            lambda: app.sync.run("run_x").result(),
            lambda: app.sync.wait(ctx.step.run("other", str, "x")),
            lambda: app.sync.wait(ctx.step.transaction("other", insert, "x")),
        ):
            with pytest.raises(Exception) as caught:
                call()
            told.append(f"{type(caught.value).__name__}: {caught.value}")

    @app.workflow
    async def keep(ctx: Context) -> None:
        await ctx.step.transaction("keep", outer, ctx, retry=ONCE)

    scene.run(keep)

    assert things(scene.url) == ["outer"]
    assert [text.split(":")[0] for text in told[:3]] == ["TransactionMisuse"] * 3
    assert "called inside the body of" in told[0]
    assert "each would wait for the other" in told[1]
    assert "each would wait for the other" in told[2]
    assert told[3].startswith("StepMisuse: The step 'other' was called inside the body")
    assert told[4].startswith("TransactionMisuse: The transaction 'other' was called inside the body")


def test_a_transaction_in_the_body_of_a_step_and_outside_a_run_is_refused(sqlite_url: str) -> None:
    make_table(sqlite_url)
    scene = Scene(BY_NAME["sqlite3"], sqlite_url)
    scene.app.transactions(scene.connect)

    @scene.app.transaction
    def keep(connection: sqlite3.Connection) -> int:
        return by_sqlite(connection, "a")

    def step() -> None:
        keep()

    @scene.app.workflow
    async def both(ctx: Context) -> str:
        with pytest.raises(StepFailed) as caught:
            await ctx.step.run("step", step)
        return str(caught.value)

    async def scenario() -> str:
        result: str = await (await scene.app.start(both)).result("20s")
        return result

    assert "It would commit apart from that" in run_app(scene.app, scenario)
    with pytest.raises(Exception, match="called outside a run"):
        keep()
    with sqlite3.connect(file_of(sqlite_url)) as connection:
        assert keep.function(connection) == 1
    connection.close()


def end_by_sqlite(connection: sqlite3.Connection) -> None:
    by_sqlite(connection, "a")
    connection.commit()


def roll_back_by_sqlite(connection: sqlite3.Connection) -> None:
    by_sqlite(connection, "a")
    connection.rollback()


def close_it(connection: Any) -> None:
    connection.close()


async def close_it_async(connection: Any) -> None:
    await connection.close()


@pytest.mark.parametrize(
    ("scene", "body"),
    [
        ("sqlite3", close_it),
        ("psycopg", close_it),
        ("sqlalchemy-psycopg", close_it),
        ("asyncpg", close_it_async),
        ("aiosqlite", close_it_async),
    ],
    indirect=["scene"],
)
def test_a_body_that_closes_its_connection_is_told_so_at_once(scene: Scene, body: Callable[..., Any]) -> None:
    told = refusal_of(scene, body)

    assert "closed its connection" in told
    assert "after 1 try" in told


async def end_by_asyncpg(connection: Any) -> None:
    await connection.execute("insert into thing values ('a')")
    await connection.execute("commit")
    await connection.execute("begin")


def end_by_psycopg(connection: psycopg.Connection[Any]) -> None:
    by_psycopg(connection, "a")
    connection.execute("commit")


def end_by_sqlalchemy(connection: Any) -> None:
    connection.execute(sa.text("insert into thing values ('a')"))
    connection.commit()


@pytest.mark.parametrize(
    ("scene", "body"),
    [
        ("sqlite3", end_by_sqlite),
        ("sqlite3", roll_back_by_sqlite),
        ("asyncpg", end_by_asyncpg),
        ("psycopg", end_by_psycopg),
        ("sqlalchemy-psycopg", end_by_sqlalchemy),
        ("sqlalchemy-sqlite", end_by_sqlalchemy),
    ],
    indirect=["scene"],
)
def test_a_body_that_ends_its_transaction_itself_is_told_so(scene: Scene, body: Callable[..., Any]) -> None:
    told = refusal_of(scene, body)

    assert "committed or rolled back by itself" in told
    assert "Leave the end of the transaction to Onceward" in told


def commit_by_psycopg(connection: psycopg.Connection[Any]) -> None:
    by_psycopg(connection, "a")
    connection.commit()


async def roll_back_by_async_psycopg(connection: psycopg.AsyncConnection[Any]) -> None:
    await by_async_psycopg(connection, "a")
    await connection.rollback()


@pytest.mark.parametrize(
    ("scene", "body"),
    [("psycopg", commit_by_psycopg), ("async-psycopg", roll_back_by_async_psycopg)],
    indirect=["scene"],
)
def test_a_body_whose_commit_psycopg_refuses_is_told_so_at_once(
    scene: Scene, body: Callable[..., Any]
) -> None:
    told = refusal_of(scene, body)

    assert "called commit() or rollback()" in told
    assert "return to commit, raise to roll back" in told
    assert things(scene.url) == []


@pytest.mark.parametrize(
    ("name", "body", "text"),
    [
        ("psycopg", "async", "gives connections that block"),
        ("asyncpg", "plain", "must be awaited"),
        ("sqlalchemy-psycopg", "async", "gives connections that block"),
        ("sqlalchemy-asyncpg", "plain", "must be awaited"),
    ],
)
def test_a_body_of_the_other_colour_is_refused(postgres_store: str, name: str, body: str, text: str) -> None:
    make_table(postgres_store)
    scene = Scene(BY_NAME[name], postgres_store)
    scene.app.transactions(scene.connect)

    async def later(connection: Any) -> None:
        del connection

    def sooner(connection: Any) -> None:
        del connection

    assert text in refusal_of(scene, later if body == "async" else sooner)


def test_an_app_that_was_not_told_how_to_connect_says_so(sqlite_url: str) -> None:
    scene = Scene(BY_NAME["sqlite3"], sqlite_url)

    assert "Write app.transactions(engine)" in refusal_of(scene, by_sqlite)


@pytest.mark.parametrize(
    "given", [7, None, sqlite3.connect(":memory:")], ids=["number", "none", "connection"]
)
def test_what_gives_no_connections_is_refused_when_the_app_is_told(given: Any) -> None:
    app = App("sqlite:///:memory:")

    with pytest.raises(Exception, match=r"app\.transactions was given"):
        app.transactions(given)


async def until_it_sleeps(handle: Any) -> str:
    async def sleeps() -> bool:
        return any(step.name == "between" for step in await handle.steps())

    await eventually_async(sleeps)
    return str(handle.run_id)


async def until_it_is_held(handle: Any) -> str:
    async def held() -> str:
        row = await handle.row()
        return str(row.reason) if row.state == "held" else ""

    return await eventually_async(held)


def test_a_step_that_was_no_transaction_holds_the_run(sqlite_url: str) -> None:
    """The code says now that it is one, and the record was saved apart from any rows (RULINGS 24)."""
    make_table(sqlite_url)
    app = make_app(sqlite_url)

    @app.workflow
    async def keep(ctx: Context) -> None:
        await ctx.step.run("keep", str, "a")
        await ctx.step.sleep("between", "1h")

    async def first() -> str:
        return await until_it_sleeps(await app.start(keep))

    run_id = run_app(app, first)
    changed = make_app(sqlite_url)
    changed.transactions(lambda: sqlite3.connect(file_of(sqlite_url)))

    @changed.workflow(name="keep")
    async def kept(ctx: Context) -> None:
        await ctx.step.transaction("keep", by_sqlite, "a")

    outside(sqlite_url, "update onceward_queue set due_at = 0")

    async def second() -> str:
        handle = changed.run(run_id)
        return await until_it_is_held(handle)

    assert "saved as 'run' and the code now asks for 'transaction'" in run_app(changed, second)
    assert things(sqlite_url) == []


def test_an_old_result_that_cannot_be_read_holds_the_run(sqlite_url: str) -> None:
    make_table(sqlite_url)
    app = make_app(sqlite_url)
    app.transactions(lambda: sqlite3.connect(file_of(sqlite_url)))

    def total(connection: sqlite3.Connection) -> Decimal:
        return Decimal(by_sqlite(connection, "a"))

    @app.workflow
    async def keep(ctx: Context) -> None:
        await ctx.step.transaction("keep", total)
        await ctx.step.sleep("between", "1h")

    async def first() -> str:
        return await until_it_sleeps(await app.start(keep))

    run_id = run_app(app, first)
    outside(sqlite_url, """update onceward_step set output = '"text"' where name = 'keep'""")

    outside(sqlite_url, "update onceward_queue set due_at = 0")

    async def second() -> str:
        handle = app.run(run_id)
        return await until_it_is_held(handle)

    assert "its saved result does not fit the code any more" in run_app(app, second)


# --- SQLite --------------------------------------------------------------------------------------


def test_the_writer_waits_for_a_transaction_and_not_for_the_files_lock(sqlite_url: str) -> None:
    """While a body runs, another start is accepted after it; nothing hits a busy file."""
    make_table(sqlite_url)
    scene = Scene(BY_NAME["sqlite3"], sqlite_url, lease="2s")
    scene.app.transactions(scene.connect)
    is_in, may_end = threading.Event(), threading.Event()

    def slow(connection: sqlite3.Connection) -> None:
        by_sqlite(connection, "slow")
        is_in.set()
        assert may_end.wait(20)

    @scene.app.workflow
    async def keep(ctx: Context) -> None:
        await ctx.step.transaction("keep", slow)

    @scene.app.workflow
    async def other(ctx: Context) -> str:
        return await ctx.step.run("other", str, "done")

    async def is_commit_waiting() -> bool:
        return scene.app.worker.committer.waits_s > 0

    async def scenario() -> None:
        first = await scene.app.start(keep)
        assert await asyncio.to_thread(is_in.wait, 20)
        second = asyncio.create_task(scene.app.start(other))
        await eventually_async(is_commit_waiting, what="the commit waits for the transaction")
        assert not second.done()
        may_end.set()
        assert await (await second).result("20s") == "done"
        await first.result("20s")

    run_app(scene.app, scenario)

    assert things(sqlite_url) == ["slow"]
