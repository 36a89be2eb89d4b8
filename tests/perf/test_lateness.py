"""How late sleeping runs wake, on a clock that the test moves: so many milliseconds each time."""

from __future__ import annotations

import asyncio

from onceward import Context
from tests.perf.counting import VirtualProcess

RUNS = 500
APART_S = 0.004
LATE_MS_MAX = 60
"""A claim's commit, the read of the history, and a look or two in between; a poll would be 1,000."""


def test_runs_that_are_due_one_after_the_other_do_not_wait_for_the_poll() -> None:
    process = VirtualProcess(commit_s=0.005)
    late_s: list[float] = []

    @process.app.workflow
    async def sleeper(ctx: Context, due: float) -> None:
        await ctx.step.sleep("until due", max(0.001, due - process.loop.time()))
        late_s.append(process.loop.time() - due)

    async def scenario() -> None:
        first_due = process.loop.time() + 60
        await asyncio.gather(
            *(process.app.start(sleeper, first_due + number * APART_S) for number in range(RUNS))
        )
        await asyncio.sleep(60 + RUNS * APART_S + 10)

    process.run(scenario)

    assert len(late_s) == RUNS
    assert max(late_s) * 1000 <= LATE_MS_MAX
