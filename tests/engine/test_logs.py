"""Log records say which run and step they belong to, and are not heard a second time."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from onceward import App, Context, Retry, SyncContext
from onceward.cli import logs as cli_logs
from onceward.logs import TEXT_CHARS_MAX, JsonLines, QuietOnRecall, RunFields
from tests.engine.running import SOON, make_app, result_of, run_app
from tests.helpers import eventually_async

log = logging.getLogger("shop.orders")


class Heard(logging.Handler):
    """Keeps the lines that a handler with our filters writes."""

    def __init__(self, *, is_quiet: bool = True) -> None:
        super().__init__()
        self.setFormatter(JsonLines())
        self.addFilter(RunFields())
        if is_quiet:
            self.addFilter(QuietOnRecall())
        self.lines: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(json.loads(self.format(record)))

    def said(self, logger: str = "shop.orders") -> list[str]:
        return [line["message"] for line in self.lines if line["logger"] == logger]


@pytest.fixture
def heard() -> Iterator[Heard]:
    yield from listening(Heard())


@pytest.fixture
def all_heard() -> Iterator[Heard]:
    yield from listening(Heard(is_quiet=False))


def listening(handler: Heard) -> Iterator[Heard]:
    root, level = logging.getLogger(), logging.getLogger().level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield handler
    root.removeHandler(handler)
    root.setLevel(level)


def test_records_say_which_run_and_step(store_url: str, heard: Heard) -> None:
    app = make_app(store_url)

    @app.workflow
    async def order(ctx: Context) -> str:
        log.info("between", extra={"order": "A-1", "thing": object()})

        async def flaky() -> None:
            log.info("inside")
            if len(heard.said()) < 4:
                raise ValueError("away")

        def in_thread() -> None:
            log.info("in a thread")

        await ctx.step.run("flaky", flaky, retry=SOON)
        await ctx.step.run("plain", in_thread)
        return "done"

    async def scenario() -> str:
        log.info("outside")
        handle = await app.start(order)
        await handle.result()
        return handle.run_id

    run_id = run_app(app, scenario)

    of_run = {"run_id": run_id, "workflow": "order", "attempt": 1}
    ours = [line for line in heard.lines if line["logger"] == "shop.orders"]
    outside, between, *bodies = [
        {name: value for name, value in line.items() if name not in {"at", "level", "logger"}}
        for line in ours
    ]
    assert outside == {"message": "outside"}
    assert between == {"message": "between", "order": "A-1", **of_run}
    tries = [(body["message"], body["step"], body["try_number"]) for body in bodies]
    assert ("inside", "flaky", 1) in tries
    assert tries[-1] == ("in a thread", "plain", 1)
    assert all(body.items() >= of_run.items() for body in bodies)
    (failed,) = [line for line in heard.lines if "try 1 of step" in line["message"]]
    assert failed.items() >= {**of_run, "step": "flaky", "try_number": 1, "level": "info"}.items()


def recalled(app: App) -> Any:
    """Give a workflow that logs between its steps, and waits in the middle."""

    @app.workflow
    async def order(ctx: Context) -> str:
        log.info("begins")
        await ctx.step.run("first", body)
        log.info("behind first")
        await ctx.step.run("second", body)
        log.info("before the wait")
        await ctx.step.wait_for("go", "go")
        log.info("behind the wait")
        await ctx.step.run("third", body)
        log.info("ends")
        return "done"

    async def body() -> None:
        log.info("body")

    return order


ONCE_EACH = ["begins", "body", "behind first", "body", "before the wait", "behind the wait", "body", "ends"]


async def recall_in_the_middle(app: App, workflow: Any) -> None:
    handle = await app.start(workflow)

    async def waits() -> bool:
        return await handle.state() == "waiting"

    await eventually_async(waits, what="the run has left memory")
    await app.emit("go", {})
    assert await handle.result() == "done"


def test_what_was_said_before_a_recall_is_not_said_again(store_url: str, heard: Heard) -> None:
    app = make_app(store_url)
    workflow = recalled(app)

    run_app(app, lambda: recall_in_the_middle(app, workflow))

    assert heard.said() == ONCE_EACH


def test_without_the_filter_it_is(store_url: str, all_heard: Heard) -> None:
    app = make_app(store_url)
    workflow = recalled(app)

    run_app(app, lambda: recall_in_the_middle(app, workflow))

    assert all_heard.said().count("begins") > 1
    assert all_heard.said().count("body") == 3


def test_an_attempt_is_heard_from_where_the_one_before_failed(store_url: str, heard: Heard) -> None:
    app = make_app(store_url)

    @app.workflow(retry=Retry(max_tries=2, base="10ms"))
    def order(ctx: SyncContext) -> str:
        log.info("begins")
        ctx.step.run("first", lambda: None)
        log.info("behind first")
        if heard.said().count("behind first") < 2:
            raise ValueError("not yet")
        return "done"

    assert result_of(app, order) == "done"

    assert heard.said() == ["begins", "behind first", "behind first"]
    attempts = [line["attempt"] for line in heard.lines if line["logger"] == "shop.orders"]
    assert attempts == [1, 1, 2]


def test_code_that_no_longer_asks_for_what_is_saved_is_heard_again(store_url: str, heard: Heard) -> None:
    app = make_app(store_url)
    goes: list[int] = []

    @app.workflow(retry=Retry(max_tries=2, base="10ms"))
    async def order(ctx: Context) -> str:
        goes.append(1)
        name = "old" if len(goes) == 1 else "new"
        await ctx.step.run(name, nothing)
        log.info("behind %s", name)
        if len(goes) == 1:
            raise ValueError("not yet")
        return "done"

    async def nothing() -> None: ...

    assert result_of(app, order) == "done"

    assert heard.said() == ["behind old", "behind new"]


# --- lines -----------------------------------------------------------------------------------------


def record(message: str, *args: object, **more: Any) -> logging.LogRecord:
    made = logging.LogRecord("onceward.test", logging.WARNING, __file__, 1, message, args, None)
    made.__dict__.update(more)
    return made


def test_a_line_of_json_is_one_line_of_ascii_whatever_is_in_it() -> None:
    line = JsonLines().format(record("id=%s", "a\r\n\x1b[2J\ud800é\u2028", size=float("nan"), level="forged"))

    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line)["message"] == "id=a\r\n\x1b[2J\ud800é\u2028"
    assert json.loads(line)["level"] == "warning"
    assert "size" not in json.loads(line)


def test_a_line_has_the_traceback_and_a_bounded_length() -> None:
    try:
        raise ValueError("x" * 3 * TEXT_CHARS_MAX)
    except ValueError as error:
        made = record("y" * 3 * TEXT_CHARS_MAX, note="z" * 3 * TEXT_CHARS_MAX)
        made.exc_info = (ValueError, error, error.__traceback__)
    line = json.loads(JsonLines().format(made))

    assert {len(line[name]) for name in ("message", "note", "traceback")} == {TEXT_CHARS_MAX}


def test_what_a_record_says_itself_stays() -> None:
    made = record("took over", run_id="run_other")

    assert RunFields().filter(made)
    assert (made.run_id, made.workflow) == ("run_other", None)  # type: ignore[attr-defined] # set by extra=


def test_the_command_line_writes_json_where_it_is_told_to(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    uvicorn_level = logging.getLogger("uvicorn").level
    try:
        cli_logs.configure("info", form="json", is_short=True)
        log.info("told", extra={"run_id": "run_1"})
    finally:
        root.handlers[:], root.level = before, level
        logging.getLogger("uvicorn").setLevel(uvicorn_level)

    line = json.loads(capsys.readouterr().err)
    assert (line["message"], line["run_id"], line["logger"]) == ("told", "run_1", "shop.orders")


def test_engine_records_are_never_dropped(store_url: str, heard: Heard) -> None:
    """What Onceward says of a run while it recalls, such as that it is held, is not the code's."""
    app = make_app(store_url)

    @app.workflow(retry=Retry(max_tries=2, base="10ms"))
    async def order(ctx: Context) -> None:
        await ctx.step.run("first", nothing)
        logging.getLogger("onceward.run").info("ours")
        raise ValueError("not yet")

    async def nothing() -> None: ...

    async def scenario() -> None:
        handle = await app.start(order)
        with pytest.raises(Exception, match="not yet"):
            await asyncio.wait_for(handle.result(), 20)

    run_app(app, scenario)

    assert heard.said("onceward.run").count("ours") == 2
