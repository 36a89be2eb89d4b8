"""What a process costs that has nothing to do."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from onceward import App, Context, Event, RunHandle, RunState, event
from onceward.testing.servers import PostgresServer
from tests.engine.running import run_app
from tests.helpers import eventually_async
from tests.perf.counting import VirtualProcess, three_steps

TRANSACTIONS_PER_S_MAX = 2


def test_an_idle_process_makes_at_most_two_transactions_a_second() -> None:
    """A look a second and the lease's renewals, over ten virtual minutes."""
    process = VirtualProcess(commit_s=0.001)
    three = three_steps(process.app)
    seconds = 600

    async def scenario() -> int:
        await (await process.app.start(three, 1)).result()
        process.counts.forget()
        await asyncio.sleep(seconds)
        return process.counts.verbs.total()

    assert process.run(scenario) <= TRANSACTIONS_PER_S_MAX * seconds


@pytest.mark.parametrize("notify", [True, False], ids=["notify", "no notify"])
def test_an_idle_process_leaves_the_server_alone(talkative: PostgresServer, notify: bool) -> None:
    """The same by the server's own log, in real time, with one run that waits and others that ended."""
    log = talkative.home.path / "postgres.log"
    app = App(talkative.create_database(f"idle_{notify}".lower()), notify=notify)
    seconds = 6

    @app.workflow(on="order.placed", key=event.payload["order"], once="ever")
    async def order(ctx: Context, placed: Event) -> None:
        await ctx.step.run("note", abs, -1)
        if placed.payload["waits"]:
            await ctx.step.wait_for("paid", "order.paid", subject="o", timeout="1h")

    async def is_waiting(run: RunHandle[Any]) -> bool:
        return await run.state() is RunState.WAITING

    async def scenario() -> int:
        waiting = (await app.emit("order.placed", {"order": 1, "waits": True})).runs[0]
        await (await app.emit("order.placed", {"order": 2, "waits": False})).runs[0].result()
        await eventually_async(lambda: is_waiting(waiting))
        before = len(transactions(log))
        await asyncio.sleep(seconds)
        return len(transactions(log)) - before

    assert 0 < run_app(app, scenario) <= TRANSACTIONS_PER_S_MAX * seconds


def transactions(log: Path) -> list[str]:
    """Give what began each transaction: ``begin``, or a statement outside of one."""
    began: list[str] = []
    inside: set[str] = set()
    for pid, name in re.findall(
        r"^(\d+)\|LOG:  (?:execute|statement:?) (\S+)", log.read_text(), re.MULTILINE
    ):
        if pid not in inside:
            began.append(name)
        if "begin" in name:
            inside.add(pid)
        elif "commit" in name or "rollback" in name:
            inside.discard(pid)
    return began
