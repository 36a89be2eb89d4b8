"""Events that come out of order: dropped, marked, or the current state fetched first."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from onceward import App, ConfigError, Context, Event, RunState, SyncContext
from onceward import event as e
from onceward.core.arrival import Incoming, Verified
from onceward.core.messages import HttpRequest
from onceward.core.model import Skip
from onceward.sources import Source
from tests.engine.running import evict, make_app, run_app
from tests.helpers import eventually_async
from tests.pages import call


async def emit(app: App, version: int, **more: Any) -> Any:
    return await app.emit("changed", {"updated": version}, subject="order-7", id=f"evt-{version}", **more)


def test_an_older_event_is_stored_and_makes_no_run(store_url: str) -> None:
    app = make_app(store_url)

    @app.workflow(on="changed", version=e.payload["updated"], stale="drop")
    async def follow(ctx: Context, event: Event) -> int:
        return int(event.payload["updated"])

    async def scenario() -> None:
        newer = await emit(app, 5)
        older = await emit(app, 4)
        again = await emit(app, 4)

        assert await newer.runs[0].result() == 5
        assert (older.runs, older.is_duplicate) == ([], False)
        assert (again.runs, again.is_duplicate) == ([], True)
        view = await app.event("emit/changed", "evt-4")
        assert view.runs == []
        (skipped,) = view.skipped
        assert (skipped.workflow, skipped.reason) == ("follow", Skip.STALE)
        assert skipped.why == "its version 4 is not newer than 5, which had been accepted"
        assert (await app.event("emit/changed", "evt-5")).skipped == []

    run_app(app, scenario)


def test_a_marked_run_knows_that_it_is_late_also_in_a_later_attempt(store_url: str) -> None:
    app = make_app(store_url)
    gate = asyncio.Event()

    @app.workflow(on="changed", version=e.payload["updated"], stale="mark")
    async def follow(ctx: Context, event: Event) -> list[bool]:
        seen = await ctx.step.run("first", lambda: ctx.event.is_stale)
        await gate.wait()
        return [seen, event.is_stale]

    async def scenario() -> None:
        newer, late = await emit(app, 5), await emit(app, 4)
        run = late.runs[0]

        async def is_past_first() -> bool:
            return bool(await run.steps())

        await eventually_async(is_past_first, what="the first step is saved")
        await evict(app, run.run_id)
        gate.set()

        assert await newer.runs[0].result() == [False, False]
        assert await run.result() == [True, True]
        assert await (await run.replay()).result() == [True, True]

    run_app(app, scenario)


def test_the_current_state_is_fetched_once_before_the_code(store_url: str) -> None:
    app = make_app(store_url)
    fetched: list[str] = []

    async def current(event: Event) -> dict[str, int]:
        fetched.append(event.id)
        return {"updated": 9}

    @app.workflow(on="changed", version=e.payload["updated"], stale=current)
    async def follow(ctx: Context, event: Event) -> list[Any]:
        await ctx.step.sleep("nap", "30ms")
        return [ctx.current["updated"], event.is_stale]

    @app.workflow(on="changed", version=e.payload["updated"], stale=current)
    def follow_in_thread(ctx: SyncContext, event: Event) -> list[Any]:
        ctx.step.sleep("nap", "30ms")
        return [ctx.current["updated"], event.is_stale]

    async def scenario() -> None:
        newer, late = await emit(app, 5), await emit(app, 4)

        for run in (*newer.runs, *late.runs):
            is_late = run in late.runs
            assert await run.result() == [9, is_late]
            assert [step.name for step in await run.steps()] == ["fetch current", "nap"]
        assert sorted(fetched) == ["evt-4", "evt-4", "evt-5", "evt-5"]

    run_app(app, scenario)


def test_without_a_readable_version_an_event_runs_and_the_log_says_so(
    sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = make_app(sqlite_url)

    def broken(event: Event) -> int:
        raise RuntimeError("no")

    for name, version in (("place", e.payload["missing"]), ("code", broken), ("value", lambda _: "v1")):

        @app.workflow(on="changed", name=name, version=version)
        async def follow(ctx: Context, event: Event) -> None: ...

    async def scenario() -> None:
        for version in (5, 4):
            emitted = await emit(app, version)
            assert len(emitted.runs) == 3
        nameless = await app.emit("changed", {"missing": 3})
        assert len(nameless.runs) == 3

    run_app(app, scenario)

    for text in ("PathMissing was raised", "RuntimeError was raised", "'v1' is neither", "it has no subject"):
        assert text in caplog.text


class Versioned(Source):
    """A source that says which version each event is."""

    kind = "versioned"

    def verify(self, request: HttpRequest, now_ms: int) -> Verified:
        return Verified()

    def normalize(self, request: HttpRequest) -> list[Incoming]:
        name, version = request.body.decode().split()
        number = None if version == "none" else int(version)
        return [
            Incoming(id=name, type="changed", payload=None, subject="7", version=number, occurred_at_ms=3_000)
        ]


def test_a_source_may_say_the_version_and_without_one_an_event_is_not_judged(sqlite_url: str) -> None:
    app = make_app(sqlite_url)
    source = app.source(Versioned(secrets="x"))

    @app.workflow(on=source["changed"], version=e.version)
    async def follow(ctx: Context, event: Event) -> None: ...

    async def scenario() -> None:
        for body in ("a 5000", "b none", "c 2", "d 6000"):
            await call(app.asgi(), "POST", "/hooks/versioned", {}, body.encode())
        kept = {name: len((await app.event("versioned", name)).runs) for name in "abcd"}
        assert kept == {"a": 1, "b": 1, "c": 0, "d": 1}

    run_app(app, scenario)


def test_the_time_at_which_it_happened_is_a_version(sqlite_url: str) -> None:
    app = make_app(sqlite_url)

    @app.workflow(on="changed", version=e.occurred_at)
    async def follow(ctx: Context, event: Event) -> None: ...

    async def scenario() -> None:
        late = datetime(2026, 1, 1, tzinfo=UTC)
        first = await emit(app, 1, occurred_at=datetime(2026, 1, 2, tzinfo=UTC))
        second = await emit(app, 2, occurred_at=late)
        assert [len(first.runs), len(second.runs)] == [1, 0]

    run_app(app, scenario)


def test_an_operator_may_run_a_dropped_subject_again(store_url: str) -> None:
    """A replay of the newest event is not judged: a person asked for it."""
    app = make_app(store_url)

    @app.workflow(on="changed", version=e.payload["updated"])
    async def follow(ctx: Context, event: Event) -> bool:
        return event.is_stale

    async def scenario() -> None:
        first = (await emit(app, 4)).runs[0]
        await (await emit(app, 5)).runs[0].result()
        assert await (await first.replay()).result() is False
        await first.restart(acknowledge=True)
        assert await first.result() is False
        assert await first.state() is RunState.COMPLETED

    run_app(app, scenario)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"stale": "mark"}, "has stale='mark' and no version="),
        ({"version": e.payload["n"], "stale": "skip"}, "stale of a workflow cannot be 'skip'"),
        ({"version": "payload.n"}, "version of a workflow cannot be 'payload.n'"),
    ],
)
def test_rules_that_cannot_be_followed_are_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        App("sqlite:///:memory:").workflow(on="changed", **options)
