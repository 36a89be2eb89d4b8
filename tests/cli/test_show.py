"""What ``runs show`` and its like say of a run, on a terminal and in a pipe."""

from __future__ import annotations

from onceward import App, Context, RunFailed
from tests.cli.test_console_commands import Told
from tests.engine.running import ONCE, make_app, run_app


def failed_run(app: App, flow: object) -> str:
    async def scenario() -> str:
        handle = await app.start(flow)  # type: ignore[call-overload]
        try:
            await handle.result()
        except RunFailed:
            return str(handle.run_id)
        raise AssertionError("it did not fail")

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
