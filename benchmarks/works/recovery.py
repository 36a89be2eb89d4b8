"""SIGKILL with 500 runs of three 50 ms steps under way, then a restart.

A ledger outside the store says which bodies began and ended: bodies that ran twice may be at most
those that were in flight.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from benchmarks import ledger
from benchmarks.job import Job
from benchmarks.killing import FIRST_BODIES_SECONDS_MAX, STEP_S, STEPS, kill_and_restart, ledger_path
from benchmarks.works.common import describe, make_app, run_loop
from onceward import Context, RunState

RESTARTED_SECONDS_MAX = 300


def run(job: Job) -> dict[str, Any]:
    """Measure one round, or be one of its processes."""
    return run_loop(_phase(job)) if job.phase else kill_and_restart(job)


async def _phase(job: Job) -> dict[str, Any]:
    booted = time.monotonic()
    app = make_app(job, concurrency=job.runs)
    book = ledger.Ledger(ledger_path(job))

    @app.workflow
    async def slow(ctx: Context, number: int) -> int:
        async def body(step: int) -> int:
            book.begin(f"{number} {step}")
            await asyncio.sleep(STEP_S)
            book.end(f"{number} {step}")
            return step

        for step in range(STEPS):
            await ctx.step.run(f"step {step}", body, step)
        return number

    async with app:
        if job.phase == "first":
            await asyncio.gather(*(app.start(slow, number) for number in range(job.runs)))
            await asyncio.sleep(FIRST_BODIES_SECONDS_MAX)
            raise AssertionError("this process should have been killed")
        began = time.monotonic()
        finished = 0
        while finished < job.runs and time.monotonic() < began + RESTARTED_SECONDS_MAX:
            await asyncio.sleep(0.05)
            finished = len(await app.runs(state=RunState.COMPLETED, limit=1_000))
        took = time.monotonic() - booted
        started = len(await app.runs(limit=1_000))
    return {
        "booted": booted,
        "all_finished_s": round(took, 2),
        "started": started,
        "finished": finished,
        "settings": describe(app, runs=job.runs, step_ms=int(STEP_S * 1000)),
    }
