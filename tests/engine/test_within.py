"""Events that are written in the caller's own transaction: there if and only if it commits."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiosqlite
import asyncpg
import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session

from onceward import Context, Event, IdClash, TransactionMisuse
from onceward.core import failpoints
from onceward.runtime.transactions.recognise import link_for_within
from tests.engine.running import make_app, result_of, run_app
from tests.engine.ways import file_of, make_table, outside, plain_dsn, things
from tests.helpers import eventually_async


class Shop:
    """An app that notes what it hears of, on a store with a table of the user's beside it."""

    def __init__(self, url: str, **settings: Any) -> None:
        self.url = url
        self.app = app = make_app(url, **settings)
        self.heard: list[Any] = []

        @app.workflow(on="thing.made")
        async def hear(ctx: Context, event: Event) -> None:
            await ctx.step.run("hear", self.heard.append, event.payload)

        @app.workflow
        async def send(ctx: Context, name: str) -> str:
            return await ctx.step.run("send", str.upper, name)

        self.hear, self.send = hear, send

    async def hears(self, *payloads: Any) -> None:
        """Wait until exactly these were heard of and nothing is on its way."""

        async def has_heard() -> bool:
            return sorted(self.heard) == sorted(payloads) and self.waiting() == 0

        await eventually_async(has_heard, what=f"{payloads}; heard {self.heard}, {self.waiting()} wait")

    def waiting(self) -> int:
        table = "onceward_outbox" if self.url.startswith("sqlite") else "onceward.outbox"
        return int(outside(self.url, f"select count(*) from {table}")[0][0])


@pytest.fixture
def shop(store_url: str) -> Shop:
    make_table(store_url)
    return Shop(store_url)


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


Trade = Callable[[Any, str, bool], Any]


async def by_driver(shop: Shop, name: str, commits: bool) -> None:
    """Insert and emit with the plain driver of the store."""
    if shop.url.startswith("sqlite"):
        with contextlib.closing(sqlite3.connect(file_of(shop.url), timeout=20)) as connection:
            connection.execute("insert into thing values (?)", (name,))
            await shop.app.emit("thing.made", name, within=connection)
            connection.commit() if commits else connection.rollback()
        return
    with contextlib.closing(psycopg.connect(plain_dsn(shop.url))) as postgres:
        postgres.execute("insert into thing values (%s)", (name,))
        await shop.app.emit("thing.made", name, within=postgres)
        postgres.commit() if commits else postgres.rollback()


async def by_async_driver(shop: Shop, name: str, commits: bool) -> None:
    """Likewise with one that does not block."""
    if shop.url.startswith("sqlite"):
        async with aiosqlite.connect(file_of(shop.url), timeout=20) as connection:
            await connection.execute("insert into thing values (?)", (name,))
            await shop.app.emit("thing.made", name, within=connection)
            await (connection.commit() if commits else connection.rollback())
        return
    postgres = await asyncpg.connect(plain_dsn(shop.url))
    transaction = postgres.transaction()
    await transaction.start()
    await postgres.execute("insert into thing values ($1)", name)
    await shop.app.emit("thing.made", name, within=postgres)
    await (transaction.commit() if commits else transaction.rollback())
    await postgres.close()


def address(shop: Shop, sqlite: str, postgres: str) -> str:
    if shop.url.startswith("sqlite"):
        return f"{sqlite}:///{file_of(shop.url)}"
    return f"{postgres}://{plain_dsn(shop.url).split('://', 1)[1]}"


INSERT = sa.text("insert into thing values (:name)")


async def by_session(shop: Shop, name: str, commits: bool) -> None:
    """Likewise with a session of SQLAlchemy's."""
    engine = sa.create_engine(address(shop, "sqlite", "postgresql+psycopg"), poolclass=sa.NullPool)
    with Session(engine) as session:
        session.execute(INSERT, {"name": name})
        await shop.app.emit("thing.made", name, within=session)
        session.commit() if commits else session.rollback()


async def by_async_engine(shop: Shop, name: str, commits: bool) -> None:
    """Likewise with an async connection of SQLAlchemy's."""
    url = address(shop, "sqlite+aiosqlite", "postgresql+asyncpg")
    async with create_async_engine(url, poolclass=sa.NullPool).connect() as connection:
        await connection.execute(INSERT, {"name": name})
        await shop.app.emit("thing.made", name, within=connection)
        await (connection.commit() if commits else connection.rollback())


@pytest.mark.parametrize("trade", [by_driver, by_async_driver, by_session, by_async_engine])
def test_the_event_is_there_if_the_transaction_commits(shop: Shop, trade: Trade) -> None:
    """And if it is rolled back there is neither the row nor the event."""

    async def scenario() -> None:
        await trade(shop, "lost", False)
        await trade(shop, "kept", True)
        await shop.hears("kept")

    run_app(shop.app, scenario)

    assert things(shop.url) == ["kept"]
    assert len(shop.heard) == 1


@contextlib.contextmanager
def transaction(shop: Shop) -> Iterator[Any]:
    """Give a connection with an open transaction; it is committed in the end."""
    if shop.url.startswith("sqlite"):
        connection: Any = sqlite3.connect(file_of(shop.url), timeout=20)
    else:
        connection = psycopg.connect(plain_dsn(shop.url))
    with contextlib.closing(connection):
        yield connection
        connection.commit()


def test_a_start_gives_its_run_after_the_commit(shop: Shop) -> None:
    async def scenario() -> None:
        with transaction(shop) as connection:
            later = await shop.app.start(shop.send, "a", within=connection)
            with pytest.raises(TimeoutError, match="is not there after"):
                await later.run("100ms")
        run = await later.run()
        assert await run.result("20s") == "A"
        assert (await run.row()).event_id == later.event_id

    run_app(shop.app, scenario)


def test_the_sync_twin_writes_in_the_thread_that_calls(shop: Shop) -> None:
    """A connection of sqlite3 may be used in no other."""

    def caller() -> str:
        with transaction(shop) as connection:
            emitted = shop.app.sync.emit("thing.made", "b", within=connection)
            later = shop.app.sync.start(shop.send, "b", within=connection)
        assert (emitted.is_duplicate, emitted.runs) == (False, [])
        result: str = later.run().result("20s")
        return result

    async def scenario() -> None:
        assert await asyncio.to_thread(caller) == "B"
        await shop.hears("b")

    run_app(shop.app, scenario)


def test_an_async_connection_is_refused_by_the_sync_twin(sqlite_url: str) -> None:
    shop = Shop(sqlite_url)

    async def scenario() -> None:
        async with aiosqlite.connect(file_of(sqlite_url)) as connection:
            with pytest.raises(TransactionMisuse, match="given an async connection"):
                await asyncio.to_thread(shop.app.sync.emit, "thing.made", within=connection)

    run_app(shop.app, scenario)


def test_a_connection_of_the_users_copies_no_log_into_the_file(sqlite_url: str) -> None:
    """One process's one connection does (RULINGS 9); before SQLite 3.51.3 two can damage the file."""
    make_table(sqlite_url)
    shop = Shop(sqlite_url)

    async def scenario() -> None:
        with contextlib.closing(sqlite3.connect(file_of(sqlite_url))) as connection:
            connection.execute("insert into thing values ('a')")
            await shop.app.emit("thing.made", "a", within=connection)
            connection.commit()

            assert connection.execute("pragma wal_autocheckpoint").fetchone() == (0,)
        await shop.hears("a")

    run_app(shop.app, scenario)


def test_the_same_id_is_one_event(shop: Shop) -> None:
    async def scenario() -> None:
        for _ in range(2):
            with transaction(shop) as connection:
                await shop.app.emit("thing.made", "c", id="c-1", within=connection)
        await shop.hears("c")
        with transaction(shop) as connection:
            again = await shop.app.emit("thing.made", "c", id="c-1", within=connection)
        assert again.is_duplicate
        assert [run.run_id for run in again.runs] == [
            run.run_id for run in (await shop.app.event("emit/thing.made", "c-1")).runs
        ]
        await shop.hears("c")

    run_app(shop.app, scenario)


def test_an_id_with_another_payload_is_a_clash_at_once_or_with_the_event(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """At once where the other is committed; else it is recorded, and whoever asks for the run is told."""
    other = Shop(shop.url)

    async def scenario() -> None:
        await other.app.open(runs=False)
        with transaction(shop) as first:
            # On SQLite a second transaction waits for the first, so both are in one, of two processes.
            await shop.app.emit("thing.made", "one", id="d-1", within=first)
            await shop.app.start(shop.send, "one", id="d-2", within=first)
            # What two processes write has an order only by their clocks, to the millisecond.
            written_at = shop.app.now_ms

            async def is_later() -> bool:
                return other.app.now_ms > written_at

            await eventually_async(is_later)
            await other.app.emit("thing.made", "two", id="d-1", within=first)
            later = await other.app.start(other.send, "two", id="d-2", within=first)
        await shop.hears("one")
        view = await shop.app.event("emit/thing.made", "d-1")
        assert view.has_clash
        # Two processes may take the same row in at once; then each says so.
        assert {(row.outcome, row.body) for row in view.deliveries} == {("clash", b'"two"')}
        with pytest.raises(IdClash):
            await later.run()
        with transaction(shop) as late, pytest.raises(IdClash):
            await shop.app.emit("thing.made", "two", id="d-1", within=late)
        await other.app.close()

    run_app(shop.app, scenario)

    assert "exists with other content" in caplog.text


def test_an_id_with_another_payload_is_a_clash_in_one_transaction_and_none_after_a_rollback(
    shop: Shop,
) -> None:
    @shop.app.workflow
    async def doubles(ctx: Context) -> None:
        async def body() -> None:
            await shop.app.emit("thing.made", "one", id="e-4")
            await shop.app.emit("thing.made", "one", id="e-4")
            with pytest.raises(IdClash):
                await shop.app.emit("thing.made", "two", id="e-4")

        await ctx.step.run("body", body)

    async def scenario() -> None:
        with transaction(shop) as first:
            await shop.app.emit("thing.made", "one", id="e-1", within=first)
            await shop.app.emit("thing.made", "one", id="e-1", within=first)
            with pytest.raises(IdClash, match=r"'e-1' of 'emit/thing.made' exists with other content"):
                await shop.app.emit("thing.made", "two", id="e-1", within=first)
            await shop.app.start(shop.send, "one", id="e-2", within=first)
            with pytest.raises(IdClash):
                await shop.app.start(shop.send, "two", id="e-2", within=first)
        await shop.hears("one")
        assert not (await shop.app.event("emit/thing.made", "e-1")).has_clash

        with transaction(shop) as second:
            await shop.app.emit("thing.made", "lost", id="e-3", within=second)
            second.rollback()
        with transaction(shop) as third:
            await shop.app.emit("thing.made", "kept", id="e-3", within=third)
        await shop.hears("one", "kept")

        await (await shop.app.start(doubles)).result("20s")
        await shop.hears("one", "kept", "one")

    run_app(shop.app, scenario)


def test_steps_side_by_side_that_say_the_same_under_one_id_say_it_once(shop: Shop) -> None:
    """Also where their checkpoints share a commit."""

    @shop.app.workflow
    async def says(ctx: Context, name: str) -> None:
        async def say(number: int) -> None:
            await shop.app.emit("thing.made", name, id=f"f-{name}")
            await shop.app.start(shop.send, name, id=f"g-{name}")

        await asyncio.gather(*(ctx.step.run("say", say, number, item=number) for number in range(4)))

    async def scenario() -> list[Any]:
        runs = [await shop.app.start(says, name) for name in "ab"]
        for run in runs:
            await run.result("20s")
        await shop.hears("a", "b")
        return await shop.app.runs(workflow="send")

    assert len(run_app(shop.app, scenario)) == 2


@pytest.mark.parametrize("place", ["outbox.before_accept", "outbox.after_accept"])
def test_who_fails_while_taking_in_leaves_no_event_and_doubles_none(
    shop: Shop, hooks: dict[str, Callable[[], None]], place: str
) -> None:
    def fail() -> None:
        raise RuntimeError("died here")

    async def scenario() -> None:
        hooks[place] = fail
        with transaction(shop) as connection:
            await shop.app.emit("thing.made", "e", within=connection)
        await shop.hears("e")

    run_app(shop.app, scenario)

    assert hooks == {}
    assert shop.heard == ["e"]


def test_any_process_of_the_namespace_takes_it_in(shop: Shop) -> None:
    """The one that wrote it has stopped; the other, whose code has the workflow, begins later."""
    writer = Shop(shop.url)

    async def write() -> None:
        with transaction(writer) as connection:
            await writer.app.emit("thing.made", "f", within=connection)
            await writer.app.start(writer.send, "f", within=connection)
            writer.app.worker.is_draining = True  # it takes nothing in any more

    run_app(writer.app, write)
    assert shop.waiting() == 2

    run_app(shop.app, lambda: shop.hears("f"))

    assert writer.heard == []


def test_a_row_that_cannot_be_read_stays_and_holds_nobody_up(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        with transaction(shop) as connection:
            await shop.app.emit("thing.made", "g", within=connection)
        await shop.hears("g")
        table = "onceward_outbox" if shop.url.startswith("sqlite") else "onceward.outbox"
        outside(
            shop.url, f"insert into {table} (namespace, outbox_id, at, body) values ('default', '0', 1, '?')"
        )
        with transaction(shop) as connection:
            await shop.app.emit("thing.made", "h", within=connection)

        async def has_heard() -> bool:
            return shop.heard == ["g", "h"] and shop.waiting() == 1  # a row goes after it was taken in

        await eventually_async(has_heard)

    run_app(shop.app, scenario)

    assert caplog.text.count("cannot be taken in and stays there") == 1


def break_psycopg(dsn: str) -> Any:
    connection = psycopg.connect(dsn)
    with contextlib.suppress(psycopg.Error):
        connection.execute("select 1 / 0")
    return connection


def break_sqlalchemy(dsn: str) -> Any:
    connection = sa.create_engine(
        dsn.replace("postgresql", "postgresql+psycopg"), poolclass=sa.NullPool
    ).connect()
    with contextlib.suppress(sa.exc.DBAPIError):
        connection.execute(sa.text("select 1 / 0"))
    return connection


@pytest.mark.parametrize("breaks", [break_psycopg, break_sqlalchemy])
def test_a_transaction_that_is_aborted_takes_no_event_and_says_why(
    postgres_store: str, breaks: Callable[[str], Any]
) -> None:
    shop = Shop(postgres_store)

    async def scenario() -> None:
        with contextlib.closing(breaks(plain_dsn(postgres_store))) as connection:
            with pytest.raises(TransactionMisuse, match="is aborted") as caught:
                await shop.app.emit("thing.made", "x", within=connection)
            assert "Roll back and do it anew" in str(caught.value)
            with pytest.raises(TransactionMisuse, match="is aborted"):
                await asyncio.to_thread(shop.app.sync.start, shop.send, "x", within=connection)

    run_app(shop.app, scenario)


def test_an_aborted_transaction_of_asyncpg_says_so_too(postgres_store: str) -> None:
    shop = Shop(postgres_store)

    async def scenario() -> None:
        connection = await asyncpg.connect(plain_dsn(postgres_store))
        try:
            await connection.execute("begin")
            with pytest.raises(asyncpg.PostgresError):
                await connection.execute("select 1 / 0")
            with pytest.raises(TransactionMisuse, match="is aborted"):
                await shop.app.emit("thing.made", "x", within=connection)
        finally:
            await connection.close()

    run_app(shop.app, scenario)


# --- in a run ------------------------------------------------------------------------------------


def test_what_a_transactions_body_emits_commits_with_it(shop: Shop) -> None:
    """A try that is rolled back emits nothing."""
    app, tries = shop.app, []
    app.transactions(
        (lambda: sqlite3.connect(file_of(shop.url)))
        if shop.url.startswith("sqlite")
        else (lambda: psycopg.connect(plain_dsn(shop.url)))
    )

    def make(connection: Any, name: str) -> None:
        tries.append(name)
        connection.execute(f"insert into thing values ('{name}')")
        app.sync.emit("thing.made", f"{name} {len(tries)}")
        app.sync.start(shop.send, name)
        if len(tries) == 1:
            raise ValueError("no")

    @app.workflow
    async def trade(ctx: Context) -> None:
        await ctx.step.transaction("make", make, "i")

    async def scenario() -> None:
        run = await app.start(trade)
        await run.result("20s")
        await shop.hears("i 2")
        children = await run.children()
        assert sorted(child.workflow for child in children) == ["hear", "send"]
        assert {child.depth for child in children} == {1}

    run_app(app, scenario)

    assert things(shop.url) == ["i"]


def test_a_step_that_runs_twice_writes_one_event(shop: Shop) -> None:
    """Its rows are there twice, since it is no transaction; the event is the same both times."""
    tries: list[int] = []

    def make() -> None:
        with transaction(shop) as connection:
            connection.execute("insert into thing values ('j')")
            shop.app.sync.emit("thing.made", "j", within=connection)
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("after the commit")

    @shop.app.workflow
    async def trade(ctx: Context) -> None:
        await ctx.step.run("make", make)

    async def scenario() -> None:
        await (await shop.app.start(trade)).result("20s")
        await shop.hears("j")

    run_app(shop.app, scenario)

    assert things(shop.url) == ["j", "j"]
    assert shop.heard == ["j"]


def test_a_workflow_outside_a_step_and_a_transactions_body_are_refused(shop: Shop) -> None:
    app = shop.app

    @app.workflow
    async def trade(ctx: Context) -> str:
        del ctx
        with transaction(shop) as connection, pytest.raises(Exception) as caught:
            await app.emit("thing.made", "k", within=connection)
        return str(caught.value)

    assert "app.emit was called in a workflow outside a step" in result_of(app, trade)


# --- misuse --------------------------------------------------------------------------------------


def told_by(shop: Shop, given: Any) -> str:
    async def scenario() -> str:
        with pytest.raises(TransactionMisuse) as caught:
            await shop.app.emit("thing.made", within=given)
        return str(caught.value)

    return run_app(shop.app, scenario)


def test_a_connection_without_a_transaction_is_refused(shop: Shop) -> None:
    if shop.url.startswith("sqlite"):
        given: Any = sqlite3.connect(file_of(shop.url), isolation_level=None)
    else:
        given = psycopg.connect(plain_dsn(shop.url), autocommit=True)

    assert "has no open transaction" in told_by(shop, given)
    given.close()


def test_a_connection_that_is_closed_is_refused(shop: Shop) -> None:
    is_sqlite = shop.url.startswith("sqlite")
    given: Any = sqlite3.connect(file_of(shop.url)) if is_sqlite else psycopg.connect(plain_dsn(shop.url))
    engine = sa.create_engine(shop.url.replace("postgresql:", "postgresql+psycopg:"))
    ended = engine.connect()
    for connection in (given, ended):
        connection.close()

        assert "which is closed. It has no transaction" in told_by(shop, connection)
    engine.dispose()


def test_an_async_connection_that_is_closed_or_back_in_its_pool_is_known_as_such(
    postgres_dsn: str,
) -> None:
    async def scenario() -> None:
        ended = await aiosqlite.connect(":memory:")
        open_one = await aiosqlite.connect(":memory:")
        pool = await asyncpg.create_pool(plain_dsn(postgres_dsn), min_size=1, max_size=1)
        lent = await pool.acquire()
        assert link_for_within(open_one)
        assert link_for_within(lent)

        await ended.close()
        await pool.release(lent)
        for connection in (ended, lent):
            with pytest.raises(TransactionMisuse, match="which is closed"):
                link_for_within(connection)
        await pool.close()
        await open_one.close()

    asyncio.run(scenario())


def test_a_database_of_djangos_without_its_settings_is_refused(shop: Shop) -> None:
    """In a process of its own, since another test may have set Django up."""
    code = (
        "from onceward.runtime.transactions.recognise import link_for_within\n"
        "try:\n    link_for_within('default')\nexcept Exception as error:\n    print(error.code, error.what)"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DJANGO")}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)

    told = subprocess.run([sys.executable, "-c", code], env=environment, text=True, capture_output=True)

    assert told.stdout.startswith("config A connection of Django's was asked for, 'default'")


def test_another_database_is_refused(shop: Shop, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    if shop.url.startswith("sqlite"):
        given: Any = sqlite3.connect(tmp_path / "other.db")
    else:
        server = request.getfixturevalue("postgres_server")
        given = psycopg.connect(server.dsn("postgres"))

    assert "cannot commit together" in told_by(shop, given)
    given.close()


def test_what_is_no_connection_is_refused(sqlite_url: str) -> None:
    assert "is no open connection that Onceward knows" in told_by(Shop(sqlite_url), 7)
