"""A run of many steps: does it slow down, and how long until it goes on after a crash.

A process makes the steps and kills itself in the body of the next; another one goes on. Recall is
the time from the claim to the first body that was not saved. A run of a fifth of the steps goes
first, to see whether recall grows in line.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import time
from typing import Any

from benchmarks.job import Job
from benchmarks.works.common import describe, make_app, run_loop
from onceward import Context

THOUSAND = 1_000


def run(job: Job) -> dict[str, Any]:
    """Measure one round, or be one of its processes."""
    if job.phase:
        return run_loop(_phase(job))
    found: dict[str, Any] = {}
    for steps in (job.runs // 5, job.runs):
        first = job.run_phase(f"first-{steps}")
        again = job.run_phase(f"again-{steps}")
        found[f"recall_{steps}_s"] = again["recall_s"]
    return {
        "first_run_s": first["took_s"],
        "last_thousand_over_first": round(first["thousands_s"][-1] / first["thousands_s"][0], 2),
        "thousands_s": first["thousands_s"],
        **found,
        "recall_s": again["recall_s"],
        "settings": again["settings"],
    }


async def _phase(job: Job) -> dict[str, Any]:
    part, _, count = job.phase.partition("-")
    is_first, steps = part == "first", int(count)
    app = make_app(job)
    marks: list[float] = []
    went_on: list[float] = []

    @app.step
    async def tick(number: int) -> int:
        return number

    @app.step
    async def first_new() -> None:
        went_on.append(time.perf_counter())
        if is_first:
            thousands = [round(b - a, 3) for a, b in itertools.pairwise(marks)]
            print(
                json.dumps({"took_s": round(marks[-1] - marks[0], 3), "thousands_s": thousands}), flush=True
            )
            os.kill(os.getpid(), signal.SIGKILL)

    @app.workflow
    async def long(_: Context, steps: int) -> int:
        for number in range(steps):
            if number % THOUSAND == 0:
                marks.append(time.perf_counter())
            await tick(number)
        marks.append(time.perf_counter())
        await first_new()
        return steps

    async with app:
        if is_first:
            await (await app.start(long, steps, id=job.phase)).result()
            raise AssertionError("this process should have been killed")
        with job.window().measure() as window:
            (row,) = await app.runs(event_id=f"first-{steps}")
            assert await app.run(row.run_id).result("300s") == steps
    assert len(went_on) == 1
    return {
        "recall_s": round(went_on[0] - app.counts.claimed_at, 4),
        "others_cpu_share": window.others_share(),
        "settings": describe(app, steps=steps),
    }
