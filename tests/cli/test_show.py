"""What ``runs show`` and its like say of a run, on a terminal and in a pipe."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceward import App, Context, RunFailed, event
from tests.cli.test_console_commands import Told
from tests.engine.running import ONCE, make_app, run_app

WORD = "word-" * 60


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.db'}"


def failed_run(app: App, flow: object) -> str:
    async def scenario() -> str:
        handle = await app.start(flow)  # type: ignore[call-overload]
        with pytest.raises(RunFailed):
            await handle.result()
        return str(handle.run_id)

    return run_app(app, scenario)


def test_an_error_that_a_verb_raised_is_shown_with_the_line_of_the_user(sqlite_url: str) -> None:
    app = make_app(sqlite_url)

    @app.workflow(retry=ONCE)
    async def flow(ctx: Context) -> None:
        await ctx.step.sleep("wait", "soon")  # this line

    run_id = failed_run(app, flow)

    shown = Told("runs", "show", run_id, url=sqlite_url).text
    assert 'await ctx.step.sleep("wait", "soon")  # this line' in shown
    assert "/onceward/runtime/" not in shown
    assert "/onceward/runtime/" in Told("runs", "show", run_id, "--values", url=sqlite_url).text


def test_a_terminal_gets_long_values_folded_and_a_pipe_gets_them_whole(sqlite_url: str) -> None:
    app = make_app(sqlite_url)

    @app.workflow(
        on="order.paid", key=event.payload["order"], once="24h", stale="mark", version=event.payload["n"]
    )
    async def keyed(ctx: Context) -> None: ...

    @app.workflow
    async def flow(ctx: Context) -> str:
        return WORD

    @app.workflow
    async def starts(ctx: Context) -> str:
        return await ctx.step.call("label", flow)

    async def scenario() -> tuple[str, str]:
        handle = await app.start(starts)
        await handle.result()
        children = await app.runs(workflow="flow")
        return handle.run_id, children[0].run_id

    parent, child = run_app(app, scenario)
    for of in (["runs", "show", child], ["workflows", "list"], ["doctor"]):
        told, piped = Told(*of, url=sqlite_url), Told(*of, url=sqlite_url, columns=None)

        assert max(map(len, told.text.splitlines())) <= 80, told.text
        assert len(piped.text.splitlines()) < len(told.text.splitlines())
    piped = Told("runs", "show", child, url=sqlite_url, columns=None)
    assert f'"{WORD[:200]}' in piped.text
    # A child is told by the step that called it, and so is its event.
    assert f"label of {parent}" in Told("runs", "list", "--workflow", "flow", url=sqlite_url).text
    assert f"label of {parent}" in Told("events", "list", url=sqlite_url, columns=None).text


def test_what_was_undone_is_said_in_words_and_undoing_everything_has_no_key(sqlite_url: str) -> None:
    app = make_app(sqlite_url)

    @app.step
    async def charge() -> int:
        return 1

    @charge.undo
    async def refund(made: int) -> None: ...

    @app.workflow(retry=ONCE, undo="on_failure")
    async def flow(ctx: Context) -> None:
        await charge()
        raise ValueError("no")

    told = Told("runs", "show", failed_run(app, flow), url=sqlite_url).text

    assert "undone: charge\n" in told
    keys = told.partition("Idempotency keys\n")[2].partition("\n\n")[0]
    assert "charge" in keys
    assert "undo everything" not in keys
