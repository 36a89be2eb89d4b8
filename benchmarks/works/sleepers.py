"""20,000 runs that sleep: memory, how late they wake when due one by one, and all at once."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from benchmarks.job import Job
from benchmarks.measure import percentile, pss_mb, tree
from benchmarks.works.common import WARM_UP_RUNS, CountedApp, at_a_time, describe, make_app, run_loop
from benchmarks.works.three_step import IN_FLIGHT, saturate, three_steps
from onceward import Context, RunState, Workflow

DUE_PER_S = 20_000 / 60
STARTS_PER_S_LEAST = 1_000
"""Sleeps are set so far ahead that this rate of starting is enough to have all asleep before the first is due."""
WAKING_SECONDS_MAX = 240


def run(job: Job) -> dict[str, Any]:
    """Measure one round."""
    return run_loop(_run(job))


async def _run(job: Job) -> dict[str, Any]:
    app = make_app(job)
    three = three_steps(app)
    late_s: list[float] = []

    @app.workflow
    async def sleeper(ctx: Context, due: float) -> None:
        await ctx.step.sleep("until due", max(0.001, due - time.time()))
        late_s.append(time.time() - due)

    async with app:
        await saturate(app, three, WARM_UP_RUNS, IN_FLIGHT)
        await asyncio.sleep(1)
        idle_mb = _memory()
        with job.window().measure() as window:
            spread_s = job.runs / DUE_PER_S
            spread = await _round(app, sleeper, late_s, job.runs, spread_s)
        began = time.perf_counter()
        runs = job.runs // 4
        await saturate(app, three, runs, IN_FLIGHT)
        three_step_rate = runs / (time.perf_counter() - began)
        at_once = await _round(app, sleeper, late_s, job.runs, 0.0)
        finished = await _finished(app)
    return {
        "sleepers_mb": round(spread["asleep_mb"] - idle_mb, 1),
        "spread_late_p50_ms": spread["late_p50_ms"],
        "spread_late_p99_ms": spread["late_p99_ms"],
        "starts_per_s": spread["starts_per_s"],
        "all_at_once_s": at_once["took_s"],
        "all_at_once_over_allowed": round(at_once["took_s"] / (1.2 * job.runs / three_step_rate), 2),
        "three_step_rate": round(three_step_rate),
        "runs_per_s": round(job.runs / at_once["took_s"], 1),
        "finished": finished,
        "is_right": finished == 2 * job.runs,
        "others_cpu_share": window.others_share(),
        "settings": describe(app, sleepers=job.runs, spread_s=round(spread_s, 1)),
    }


def _memory() -> float:
    return pss_mb(tree(os.getpid()))


async def _round(
    app: CountedApp, sleeper: Workflow[[float], None], late_s: list[float], runs: int, spread_s: float
) -> dict[str, Any]:
    """Start that many sleepers, look at the memory while all sleep, and wait until all have woken."""
    late_s.clear()
    first_due = time.time() + runs / STARTS_PER_S_LEAST + 4

    async def start(number: int) -> None:
        await app.start(sleeper, first_due + spread_s * number / runs)

    began = time.perf_counter()
    await at_a_time(IN_FLIGHT, range(runs), start)
    started_s = time.perf_counter() - began
    await asyncio.sleep(max(1.0, (first_due - time.time()) / 2))
    assert not late_s, "some woke before all slept"
    asleep_mb = _memory()
    async with asyncio.timeout(first_due - time.time() + spread_s + WAKING_SECONDS_MAX):
        while len(late_s) < runs:  # noqa: ASYNC110 - each sleeper would have to look whether it is the last
            await asyncio.sleep(0.02)
    took = time.time() - first_due
    return {
        "asleep_mb": asleep_mb,
        "starts_per_s": round(runs / started_s),
        "took_s": round(took, 2),
        "late_p50_ms": round(percentile(late_s, 50) * 1e3, 1),
        "late_p99_ms": round(percentile(late_s, 99) * 1e3, 1),
    }


async def _finished(app: CountedApp) -> int:
    """Count in the store which sleepers completed; the last may take a moment."""
    await asyncio.sleep(0.5)
    total, before = 0, None
    while True:
        rows = await app.runs(workflow="sleeper", state=RunState.COMPLETED, before=before, limit=1_000)
        if not rows:
            return total
        total, before = total + len(rows), rows[-1].run_id
