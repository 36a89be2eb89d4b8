"""One run that calls a thousand others and waits for them all."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from benchmarks.job import Job
from benchmarks.works.common import describe, make_app, run_loop
from onceward import Context


def run(job: Job) -> dict[str, Any]:
    """Measure one round."""
    return run_loop(_run(job))


async def _run(job: Job) -> dict[str, Any]:
    app = make_app(job)

    @app.workflow
    async def child(_: Context, number: int) -> int:
        return number

    @app.workflow
    async def parent(ctx: Context, children: int) -> int:
        calls = (ctx.step.call(f"child {number}", child, number) for number in range(children))
        return sum(await asyncio.gather(*calls))

    async with app:
        await (await app.start(parent, 10)).result()  # warm
        batches = app.counts.batches
        with job.window().measure() as window:
            began = time.perf_counter()
            total = await (await app.start(parent, job.runs)).result()
            took = time.perf_counter() - began
        batches = app.counts.batches - batches
    return {
        "took_s": round(took, 3),
        "is_right": total == sum(range(job.runs)),
        **window.per_run(job.runs),
        "batches": batches,
        "settings": describe(app, children=job.runs),
    }
