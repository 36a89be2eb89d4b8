"""20,000 runs that wait, each for an event about its own order: memory, and how soon the events end the waits."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import Any

from benchmarks.job import Job
from benchmarks.measure import percentile, pss_mb, tree
from benchmarks.works.common import WARM_UP_RUNS, CountedApp, at_a_time, describe, make_app, run_loop
from benchmarks.works.three_step import IN_FLIGHT, saturate, three_steps
from onceward import Context, RunState

LOOK_S = 0.05
SECONDS_MAX = 240


def run(job: Job) -> dict[str, Any]:
    """Measure one round."""
    return run_loop(_run(job))


async def _run(job: Job) -> dict[str, Any]:
    app = make_app(job)
    three = three_steps(app)
    late_s: list[float] = []
    sent_at: dict[str, float] = {}

    @app.workflow
    async def waiter(ctx: Context, order: str) -> None:
        await ctx.step.wait_for("packed", "packed", subject=order, timeout="7d")
        late_s.append(time.perf_counter() - sent_at[order])

    async def start(number: int) -> None:
        await app.start(waiter, f"o-{number}")

    async def send(number: int) -> None:
        sent_at[f"o-{number}"] = time.perf_counter()
        await app.emit("packed", {"boxes": 2}, subject=f"o-{number}")

    async with app:
        await saturate(app, three, WARM_UP_RUNS, IN_FLIGHT)
        await asyncio.sleep(1)
        idle_mb = _memory()
        with job.window().measure() as window:
            began = time.perf_counter()
            await at_a_time(IN_FLIGHT, range(job.runs), start)
            started_s = time.perf_counter() - began
            await _until(lambda: not app.worker.executions)
            waiting_mb = _memory()
            began = time.perf_counter()
            await at_a_time(IN_FLIGHT, range(job.runs), send)
            await _until(lambda: len(late_s) == job.runs and not app.worker.executions)
            took_s = time.perf_counter() - began
        finished = await _finished(app)
    return {
        "waiters_mb": round(waiting_mb - idle_mb, 1),
        "starts_per_s": round(job.runs / started_s),
        "all_told_s": round(took_s, 2),
        "late_p50_ms": round(percentile(late_s, 50) * 1e3, 1),
        "late_p99_ms": round(percentile(late_s, 99) * 1e3, 1),
        "runs_per_s": round(job.runs / took_s, 1),
        "finished": finished,
        "is_right": finished == job.runs,
        "others_cpu_share": window.others_share(),
        "settings": describe(app, waiters=job.runs),
    }


def _memory() -> float:
    return pss_mb(tree(os.getpid()))


async def _until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while not is_so():  # noqa: ASYNC110 - nobody tells when a run leaves memory
            await asyncio.sleep(LOOK_S)


async def _finished(app: CountedApp) -> int:
    total, before = 0, None
    while True:
        rows = await app.runs(workflow="waiter", state=RunState.COMPLETED, before=before, limit=1_000)
        if not rows:
            return total
        total, before = total + len(rows), rows[-1].run_id
