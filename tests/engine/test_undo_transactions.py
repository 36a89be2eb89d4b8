"""What a transaction did is undone: by another transaction or by a plain function, in order, also half way after a crash."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from onceward import App, ConfigError, Context, Permanent, RunFailed, RunState, RunWasCancelled
from onceward.core import failpoints
from tests.engine.running import ONCE, evict, make_app, run_app
from tests.engine.ways import WAYS, Way, make_table, things
from tests.helpers import eventually_async
from tests.recycled import migrated_file

BY_NAME = {way.name: way for way in WAYS}
BOTH = ("sqlite3", "psycopg", "aiosqlite", "asyncpg")


class Books:
    """An app that books rows and takes them back by rows of the same table, so that its order is the order of both.

    Attributes:
        told: what happened outside.
        broken: books whose undo fails.
    """

    def __init__(self, way: Way, url: str) -> None:
        self.url, self.told = url, list[str]()
        self.broken: set[str] = set()
        self.app = app = make_app(url)
        app.transactions(way.connect(url))
        insert = way.insert

        def tell(text: str) -> None:
            self.told.append(text)
            if text in self.broken:
                self.broken.discard(text)
                raise ConnectionError(text)

        if inspect.iscoroutinefunction(insert):

            async def write(connection: Any, text: str) -> str:
                await insert(connection, text)
                tell(text)
                return f"row of {text}"

            @app.transaction
            async def book(connection: Any, what: str, cents: int = 5) -> str:
                return await write(connection, what)

            @book.undo
            @app.transaction(retry=ONCE)
            async def unbook(connection: Any, row: str, what: str, cents: int) -> Any:
                await write(connection, f"{row} back, {cents}")
                return connection  # nobody asks for it

            self.book: Any = book
        else:

            def write_plainly(connection: Any, text: str) -> str:
                insert(connection, text)
                tell(text)
                return f"row of {text}"

            @app.transaction
            def book_plainly(connection: Any, what: str, cents: int = 5) -> str:
                return write_plainly(connection, what)

            @book_plainly.undo
            @app.transaction(retry=ONCE)
            def unbook_plainly(connection: Any, row: str, what: str, cents: int) -> Any:
                write_plainly(connection, f"{row} back, {cents}")
                return connection

            self.book = book_plainly

        @app.step
        async def mail(what: str) -> str:
            tell(f"mailed {what}")
            return what

        @mail.undo
        def unmail(what: str) -> None:
            tell(f"{what} unmailed")

        @app.workflow(undo="on_failure")
        async def sell(ctx: Context) -> None:
            await ctx.step.transaction("book a", self.book, "a")
            await mail("m")
            await ctx.step.transaction("book b", self.book, "b", cents=7)
            await ctx.step.sleep("a moment", "1ms")
            await ctx.step.run("pay", _refuse)

        self.sell = sell

    async def held(self) -> Any:
        handle = await self.app.start(self.sell)

        async def is_held() -> bool:
            return await handle.state() is RunState.HELD

        await eventually_async(is_held)
        return handle


async def _refuse() -> None:
    raise Permanent("no money")


UNDONE = ["a", "b", "row of a back, 5", "row of b back, 7"]


@pytest.fixture(params=BOTH)
def books(request: pytest.FixtureRequest, tmp_path: Path) -> Books:
    way = BY_NAME[request.param]
    if way.kind == "sqlite":
        url = migrated_file(tmp_path / "store.db")
    else:
        url = str(request.getfixturevalue("postgres_store"))
    make_table(url)
    return Books(way, url)


@pytest.fixture
def hooks() -> Iterator[dict[tuple[str, str], Callable[[], None]]]:
    """What is done at a failpoint of a step, once each."""
    wanted: dict[tuple[str, str], Callable[[], None]] = {}

    def hook(name: str, detail: str) -> None:
        if (act := wanted.pop((name, detail), None)) is not None:
            act()

    failpoints.arm(hook)
    yield wanted
    failpoints.arm(None)


def test_transactions_are_undone_in_transactions_the_last_one_first(books: Books) -> None:
    async def scenario() -> Any:
        handle = await books.app.start(books.sell)
        with pytest.raises(RunFailed, match="no money"):
            await handle.result("20s")
        return await handle.row(), await handle.steps()

    row, steps = run_app(books.app, scenario)

    assert books.told == ["a", "mailed m", "b", "row of b back, 7", "m unmailed", "row of a back, 5"]
    assert things(books.url) == UNDONE
    assert row.warning == '{"undone":["book b","mail","book a"]}'
    undos = [step for step in steps if step.name.endswith("(undo)")]
    assert [(step.kind, step.state, step.output, step.tries) for step in undos] == [
        ("undo", "done", "null", 1)
    ] * 3


@pytest.mark.parametrize("when", ["transaction.before_commit", "transaction.after_commit"])
@pytest.mark.parametrize("step", ["book b (undo)", "book a (undo)"])
def test_a_crash_half_way_undoes_nothing_twice(
    books: Books, hooks: dict[tuple[str, str], Callable[[], None]], when: str, step: str
) -> None:
    """The run leaves memory in the very commit, as if its process had died; what is committed stays so."""

    def die() -> None:
        for execution in list(books.app.worker.executions.values()):
            execution.loop.call_soon_threadsafe(execution.stop, "release")
        raise ConnectionResetError(when)

    hooks[when, step] = die

    async def scenario() -> Any:
        handle = await books.app.start(books.sell)
        with pytest.raises(RunFailed, match="no money"):
            await handle.result("20s")

    run_app(books.app, scenario)

    assert hooks == {}
    assert things(books.url) == UNDONE


@pytest.mark.parametrize("answer", ["did_not_happen", "happened", "fail"])
def test_an_undo_that_fails_is_rolled_back_and_asked_about(books: Books, answer: str) -> None:
    books.broken.add("row of b back, 7")

    async def scenario() -> Any:
        handle = await books.held()
        (question,) = await handle.questions()
        assert (question.step, question.kind) == ("book b (undo)", "undo")
        assert question.arguments == '{"row":"row of b","what":"b","cents":7}'
        assert things(books.url) == ["a", "b"]
        await handle.answer(answer)
        with pytest.raises(RunFailed):
            await handle.result("20s")

    run_app(books.app, scenario)

    rest = {"did_not_happen": UNDONE, "happened": UNDONE[:3], "fail": UNDONE[:2]}
    assert things(books.url) == rest[answer]


def test_a_cancelled_run_undoes_its_transactions(books: Books) -> None:
    began = asyncio.Event()

    @books.app.workflow(undo="on_failure")
    async def linger(ctx: Context) -> None:
        await ctx.step.transaction("book a", books.book, "a")
        began.set()
        await ctx.step.wait_for("never", "never")

    async def scenario() -> Any:
        handle = await books.app.start(linger)
        await began.wait()
        await evict(books.app, handle.run_id)
        await handle.cancel()
        with pytest.raises(RunWasCancelled):
            await handle.result("20s")

    run_app(books.app, scenario)
    assert things(books.url) == ["a", "row of a back, 5"]


def test_the_code_undoes_a_transaction_where_it_says_so(books: Books) -> None:
    @books.app.workflow
    async def change_mind(ctx: Context) -> list[str]:
        await ctx.step.transaction("book", books.book, "a")
        undone: list[str] = await ctx.step.undo("give it back")
        await ctx.step.sleep("a moment", "60ms")  # it leaves memory
        return undone

    async def scenario() -> Any:
        return await (await books.app.start(change_mind)).result("20s")

    assert run_app(books.app, scenario) == ["book"]
    assert things(books.url) == ["a", "row of a back, 5"]


def test_what_may_be_committed_in_another_database_is_asked_about_before_it_is_undone(
    store_url: str, tmp_path: Path, hooks: dict[tuple[str, str], Callable[[], None]]
) -> None:
    """Its process died between that commit and the save, and the run is cancelled before it is looked at again."""
    elsewhere = f"sqlite:///{tmp_path / 'elsewhere.db'}"
    make_table(elsewhere)
    way, app = BY_NAME["sqlite3"], make_app(store_url)
    app.transactions(way.connect(elsewhere), marker=True)
    died = asyncio.Event()

    @app.transaction
    def book(connection: Any, what: str) -> str:
        way.insert(connection, what)
        return f"row of {what}"

    @book.undo
    @app.transaction
    def unbook(connection: Any, row: str) -> None:
        way.insert(connection, f"{row} back")

    @app.workflow(undo="on_failure")
    async def flow(ctx: Context) -> None:
        await ctx.step.transaction("book", book, "a")
        await ctx.step.wait_for("never", "never")

    async def scenario() -> None:
        def die() -> None:
            (execution,) = app.worker.executions.values()
            is_cancelled = threading.Event()

            def cancel() -> None:
                task = asyncio.ensure_future(app.run(execution.run_id).cancel())
                task.add_done_callback(lambda _: is_cancelled.set())

            # As another process would, not from within the body.
            execution.loop.call_soon_threadsafe(cancel, context=contextvars.Context())
            assert is_cancelled.wait(20)
            execution.loop.call_soon_threadsafe(died.set)
            raise ConnectionResetError

        hooks["transaction.after_commit", "book"] = die
        handle = await app.start(flow)
        await asyncio.wait_for(died.wait(), 20)

        async def is_held() -> bool:
            return await handle.state() is RunState.HELD

        await eventually_async(is_held)
        (question,) = await handle.questions()
        assert question.step == "book (outcome)"
        with pytest.raises(ConfigError, match="does not say what step 'book' gave"):
            await handle.answer("happened")
        await handle.answer("happened", result="row of a")
        with pytest.raises(RunWasCancelled):
            await handle.result("20s")

    run_app(app, scenario)
    assert things(elsewhere) == ["a", "row of a back"]


def test_a_plain_undo_of_a_transaction_and_a_transaction_that_undoes_a_step(sqlite_url: str) -> None:
    make_table(sqlite_url)
    way = BY_NAME["sqlite3"]
    app, told = make_app(sqlite_url), list[str]()
    app.transactions(way.connect(sqlite_url))

    class Desk:
        def book(self, connection: Any, what: str) -> str:
            way.insert(connection, what)
            return f"row of {what}"

        async def unbook(self, row: str, what: str) -> None:
            told.append(f"{row}, {what}")

        async def mail(self, what: str) -> str:
            return f"mail of {what}"

        def unmail(self, connection: Any, mail: str, what: str) -> None:
            way.insert(connection, f"{mail}, {what}")

    # As decorators in the class would do it; mypy has no words for the undo of a method.
    methods: Any = Desk
    methods.book = app.transaction(methods.book)
    methods.book.undo(methods.unbook)
    methods.mail = app.step(methods.mail)
    methods.mail.undo(app.transaction(methods.unmail))
    desk = Desk()

    @app.workflow(undo="on_failure")
    async def sell(ctx: Context) -> None:
        await ctx.step.transaction("book", desk.book, "a")
        await desk.mail("m")
        await ctx.step.run("pay", _refuse)

    async def scenario() -> Any:
        with pytest.raises(RunFailed, match="no money"):
            await (await app.start(sell)).result("20s")

    run_app(app, scenario)
    assert told == ["row of a, a"]
    assert things(sqlite_url) == ["a", "mail of m, m"]


def test_an_undo_that_could_not_be_called_is_refused_when_it_is_written() -> None:
    app = App("sqlite:///:memory:")

    @app.transaction
    def book(connection: Any, what: str) -> int:
        return 1

    with pytest.raises(
        ConfigError, match=r"takes 'connection' and is no transaction.*@app.transaction below"
    ):

        @book.undo
        def unbook(connection: Any, what: str) -> None: ...

    with pytest.raises(ConfigError, match=r"takes 'cents', which is no parameter of the step.*any of: what"):

        @book.undo
        @app.transaction
        def unbook_more(connection: Any, count: int, cents: int) -> None: ...

    with pytest.raises(ConfigError, match=r"was given options for it.*Say them at @app.transaction"):

        @book.undo(retry=ONCE)
        @app.transaction
        def unbook_once(connection: Any, count: int) -> None: ...


@pytest.mark.parametrize(("word", "value"), [("unknown", "ask"), ("effect", "outside")])
def test_what_only_a_step_may_say_is_refused_where_it_is_written(
    word: str, value: str, sqlite_url: str
) -> None:
    app = make_app(sqlite_url)
    transaction: Any = app.transaction
    with pytest.raises(ConfigError, match=f"@app.transaction cannot have {word}="):
        transaction(**{word: value})

    @app.workflow
    async def flow(ctx: Context) -> None:
        verbs: Any = ctx.step
        await verbs.transaction("book", lambda connection: None, **{word: value})

    async def scenario() -> Any:
        with pytest.raises(RunFailed, match=f"ConfigError: The transaction 'book' cannot have {word}="):
            await (await app.start(flow)).result("20s")

    run_app(app, scenario)
