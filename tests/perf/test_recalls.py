"""Looks at the store when runs come back into memory, counted."""

from __future__ import annotations

import asyncio
from collections import Counter

from onceward import Context
from tests.engine.running import run_app
from tests.perf.counting import CountedApp

SLEEPERS = 40
STEPS = 5


def test_a_recalled_run_costs_its_share_of_one_query(url: str) -> None:
    """However many steps it saved: one look at the histories of all that woke, and no other read."""
    app = CountedApp(url, linger=0)

    @app.step
    async def tick(number: int) -> int:
        return number

    @app.workflow
    async def sleeper(ctx: Context) -> int:
        total = sum([await tick(number) for number in range(STEPS)])
        await ctx.step.sleep("nap", 0.3)
        return total

    async def scenario() -> list[str]:
        handles = await asyncio.gather(*(app.start(sleeper) for _ in range(SLEEPERS)))
        app.counts.forget()
        assert [await handle.result() for handle in handles] == [sum(range(STEPS))] * SLEEPERS
        return [handle.run_id for handle in handles]

    run_ids = run_app(app, scenario)

    recalled = Counter(run_id for look in app.counts.recalled for run_id in look)
    assert recalled == Counter(run_ids)
    assert len(app.counts.recalled) < SLEEPERS / 2
    assert app.counts.verbs["steps"] == 0
