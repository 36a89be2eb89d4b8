"""A process that has nothing to do: what it costs a second."""

from __future__ import annotations

import asyncio
from typing import Any

from benchmarks.job import Job
from benchmarks.works.common import WARM_UP_RUNS, describe, make_app, run_loop
from benchmarks.works.three_step import saturate, three_steps


def run(job: Job) -> dict[str, Any]:
    """Measure so many seconds of idling."""
    return run_loop(_run(job))


async def _run(job: Job) -> dict[str, Any]:
    app = make_app(job)
    three = three_steps(app)
    async with app:
        await saturate(app, three, WARM_UP_RUNS, 1)
        await asyncio.sleep(1)
        transactions = app.counts.transactions
        with job.window().measure() as window:
            await asyncio.sleep(job.runs)
            transactions = app.counts.transactions - transactions
    cpu_share = (window.cpu_side_s + window.cpu_server_s) / window.wall_s
    return {
        "transactions_per_s": round(transactions / window.wall_s, 2),
        "cpu_percent": round(cpu_share * 100, 2),
        "others_cpu_share": window.others_share(),
        "settings": describe(
            app, seconds=job.runs, poll_ms=app.settings.poll_ms, lease_ms=app.settings.lease_ms
        ),
    }
