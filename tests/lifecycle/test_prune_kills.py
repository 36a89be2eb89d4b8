"""Pruning beside live work, killed before and behind its commits: what is live loses nothing (I6)."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from onceward import App, Context, Event
from onceward.testing.invariants import check_invariants
from tests.engine.running import open_store, run_app
from tests.helpers import eventually_async
from tests.lifecycle.procs import ForkServer
from tests.recycled import migrated_file

Prune = Callable[..., int]
OVER = 12
KILLED_AT = (
    "prune.before_commit:kill:1",
    "prune.before_commit:kill:3",
    "prune.after_commit:kill:4",
    "prune.before_commit:kill:5",
    "",
)


@pytest.fixture
def prune(fork_server: ForkServer, url: str, tmp_path: Path) -> Prune:
    """Prune in a process that may be killed, and give its exit code."""

    def prune(failpoint: str, function: str = "prune") -> int:
        called = f"tests.lifecycle.pruning:{function}"
        return fork_server.call(called, url, log=tmp_path / "log", failpoint=failpoint).wait()

    return prune


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return migrated_file(tmp_path / "store.db")
    return str(request.getfixturevalue("postgres_store"))


def test_live_work_goes_on_beside_prunes_that_are_killed(url: str, prune: Prune) -> None:
    app = App(url, poll="50ms", linger="20ms", drain="2s")
    gate = asyncio.Event()

    @app.workflow(on="order.paid")
    async def fulfil(ctx: Context, event: Event) -> int:
        return await ctx.step.run("charge", charge, event.payload["order"])

    @app.workflow(on="order.late")
    async def late(ctx: Context, event: Event) -> int:
        first = await ctx.step.run("hold", hold)
        arrived = await ctx.step.wait_for("note", "order.note", timeout="60s")
        return first + int(event.payload["order"]) + int(arrived.payload["add"])

    async def charge(order: int) -> int:
        return order

    async def hold() -> int:
        await gate.wait()
        return 1

    async def scenario() -> tuple[int, list[int]]:
        for number in range(OVER):
            (run,) = (await app.emit("order.paid", {"order": number})).runs
            await run.result()
        (live,) = (await app.emit("order.late", {"order": 20}, id="late")).runs
        await app.emit("order.note", {"add": 300}, id="note")  # before the wait, which looks back
        codes = []
        for place in KILLED_AT:
            task = asyncio.ensure_future(asyncio.to_thread(prune, place))
            for number in range(5):
                await app.emit("order.paid", {"order": number})
            codes.append(await task)
        gate.set()
        return await live.result(), codes

    result, codes = run_app(app, scenario, within_s=120)

    assert result == 1 + 20 + 300
    assert codes == [-signal.SIGKILL] * (len(KILLED_AT) - 1) + [0]
    with open_store(url) as store:
        assert check_invariants(store) == []
        events = store.dump("event")["event"]
        kept = {row["id"] for row in events if row["payload"] is not None}
        assert {"late", "note"} <= kept


def test_all_about_a_subject_goes_though_it_is_killed_again_and_again(url: str, prune: Prune) -> None:
    """What a live run needs stays, what is about others stays, ids stay, and nothing else of it is left."""
    app = App(url, poll="50ms", linger="20ms", drain="2s")
    gate = asyncio.Event()

    @app.workflow(on="order.paid")
    async def fulfil(ctx: Context, event: Event) -> str:
        await ctx.step.emit("told", "order.told", {"copy": event.payload["order"]})
        return await ctx.step.run("charge", charge, event.payload["order"])

    @app.workflow(on="order.told")
    async def tell(ctx: Context, event: Event) -> str:
        return str(event.payload["copy"])

    @app.workflow(on="order.late")
    async def late(ctx: Context, event: Event) -> str:
        await ctx.step.run("hold", gate.wait)
        return str(event.payload["order"])

    async def charge(order: str) -> str:
        return order

    async def scenario() -> tuple[str, list[int]]:
        for number in range(OVER):
            for subject, order in (("ann", f"canary-{number}"), ("bob", f"other-{number}")):
                emitted = await app.emit("order.paid", {"order": order}, id=order, subject=subject)
                await emitted.runs[0].result()
        (live,) = (await app.emit("order.late", {"order": "live"}, id="late", subject="ann")).runs
        await eventually_async(lambda: all_told(app), what="all told")
        codes = [
            await asyncio.to_thread(prune, place, "prune_subject")
            for place in (
                "prune.before_commit:kill:1",
                "prune.after_commit:kill:2",
                "prune.before_commit:kill:3",
                "prune.after_commit:kill:4",
                "",
            )
        ]
        gate.set()
        return await live.result(), codes

    result, codes = run_app(app, scenario, within_s=120)

    assert result == "live"
    assert codes == [-signal.SIGKILL] * 4 + [0]
    with open_store(url) as store:
        assert check_invariants(store) == []
        dumped = store.dump(
            "event", "delivery", "run", "step", "attempt", "promise", "wait", "offer", "audit"
        )
        events = {row["id"]: row["payload"] for row in dumped["event"]}
        assert {f"canary-{number}" for number in range(OVER)} <= set(events)
        for row in dumped["event"]:
            row["id"] = ""
        for rows in dumped.values():
            for row in rows:
                row.pop("event_id", None)
        assert "canary-" not in str(dumped)
        assert all(f"other-{number}" in str(dumped) for number in range(OVER))


async def all_told(app: App) -> bool:
    rows = await app.runs(workflow="tell", limit=1000)
    return len(rows) == 2 * OVER and all(row.state == "completed" for row in rows)
