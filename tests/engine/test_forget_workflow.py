"""A workflow that is gone from the code: it is forgotten, and events start no more runs of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from onceward import App, ConfigError, Context, Event, NotFound, RunState
from onceward.cli.main import main
from tests.engine.running import make_app, run_app
from tests.helpers import eventually_async


def app_with(url: str, *names: str) -> App:
    app = make_app(url, lease="1s", poll="50ms")
    for name in names:

        @app.workflow(on="order.paid", name=name)
        async def flow(ctx: Context, event: Event) -> None: ...

    return app


def started(app: App, event_id: str) -> list[str]:
    """Give the workflows that an event started runs of."""

    async def scenario() -> list[str]:
        emitted = await app.emit("order.paid", id=event_id)
        return [(await run.row()).workflow for run in emitted.runs]

    return run_app(app, scenario)


def test_a_forgotten_workflow_gets_no_new_runs_and_keeps_its_old_ones(store_url: str) -> None:
    assert started(app_with(store_url, "kept", "gone"), "1") == ["gone", "kept"]
    app = app_with(store_url, "kept")
    assert started(app, "2") == ["gone", "kept"]

    async def forget() -> None:
        assert [row.name for row in await app.registered()] == ["gone", "kept"]
        await app.forget_workflow("gone")
        assert [row.name for row in await app.registered()] == ["kept"]

        emitted = await app.emit("order.paid", id="3")
        assert [(await run.row()).workflow for run in emitted.runs] == ["kept"]

        queued = [row for row in await app.runs(workflow="gone") if row.state is RunState.QUEUED]
        for row in queued:
            await app.run(row.run_id).cancel()
        assert [row.event_id for row in queued] == ["2"]
        assert [row.state.value for row in await app.runs(workflow="gone")] == ["cancelled", "completed"]

    run_app(app, forget)

    assert started(app_with(store_url, "kept"), "4") == ["kept"]
    assert started(app_with(store_url, "kept", "gone"), "5") == ["gone", "kept"]


def test_other_processes_know_within_a_lease(store_url: str) -> None:
    started(app_with(store_url, "gone"), "1")
    forgetting, other = app_with(store_url), app_with(store_url)

    async def scenario() -> None:
        numbers = iter(range(2, 10_000))

        async def starts_nothing() -> bool:
            return (await other.emit("order.paid", id=str(next(numbers)))).runs == []

        async with other:
            assert not await starts_nothing()
            await forgetting.forget_workflow("gone")
            await eventually_async(starts_nothing)

    run_app(forgetting, scenario)


def test_what_cannot_be_forgotten_is_refused(store_url: str) -> None:
    app = app_with(store_url, "kept")

    async def scenario() -> None:
        with pytest.raises(ConfigError, match="'kept' is in the code of this app"):
            await app.forget_workflow("kept")
        with pytest.raises(NotFound, match=r"has no workflow 'other'.*It has: 'kept'"):
            await app.forget_workflow("other")
        for name in ("", "\x00", "\ud800", "x" * 10_000, None, 7):
            with pytest.raises(ConfigError, match="cannot be used"):
                await app.forget_workflow(name)  # type: ignore[arg-type]
        assert [row.name for row in await app.registered()] == ["kept"]

    run_app(app, scenario)


APP = """
from onceward import App
app = App({url})
@app.workflow(on="order.paid")
async def kept(ctx, event): ...
"""


def told(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["workflows", *arguments])
    return done.exit_code, done.output


def test_the_command_lists_and_forgets(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started(app_with(store_url, "kept", "gone"), "1")
    module = f"shop_of_forget_{store_url.partition(':')[0]}"
    (tmp_path / f"{module}.py").write_text(APP.format(url=json.dumps(store_url)))
    monkeypatch.chdir(tmp_path)

    status, text = told("list", "--store", store_url)
    assert (status, [line.split(";")[0] for line in text.splitlines()]) == (
        0,
        ["gone  order.paid", "kept  order.paid"],
    )
    status, text = told("list", f"{module}:app")
    assert (status, ["not in the code" in line for line in text.splitlines()]) == (0, [True, False])

    status, text = told("forget", "kept", f"{module}:app")
    assert (status, "is in the code of this app" in text) == (2, True)
    assert told("forget", "gone", "--store", store_url) == (
        0,
        "Forgot gone: events start no more runs of it.\n",
    )
    status, text = told("forget", "gone", "--store", store_url)
    assert (status, "has no workflow 'gone'" in text) == (1, True)
    assert told("list", "--store", store_url, "--namespace", "other") == (
        0,
        "The store has no workflows in this namespace.\n",
    )


def test_the_command_makes_no_store(tmp_path: Path) -> None:
    status, text = told("list", "--store", f"sqlite:///{tmp_path}/none.db")

    assert status == 3
    assert "onceward migrate" in text
    assert list(tmp_path.iterdir()) == []
