"""Runs of three steps that do nothing, 64 in flight: what the engine itself costs."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.job import Job
from benchmarks.measure import latencies_ms
from benchmarks.payload import payload
from benchmarks.works.common import WARM_UP_RUNS, CountedApp, at_a_time, describe, make_app, run_loop
from onceward import Context, Workflow

IN_FLIGHT = 64


def three_steps(app: CountedApp) -> Workflow[[dict[str, Any]], dict[str, Any]]:
    """Register the workflow of three steps."""

    @app.step
    async def first(event: dict[str, Any]) -> dict[str, int]:  # noqa: ARG001
        return {"ok": 1}

    @app.step
    async def second(event: dict[str, Any]) -> dict[str, int]:  # noqa: ARG001
        return {"ok": 2}

    @app.step
    async def third(event: dict[str, Any]) -> dict[str, int]:  # noqa: ARG001
        return {"ok": 3}

    @app.workflow
    async def three(_: Context, event: dict[str, Any]) -> dict[str, Any]:
        await first(event)
        await second(event)
        await third(event)
        return {"done": event["id"]}

    return three


async def saturate(
    app: CountedApp, three: Workflow[[dict[str, Any]], dict[str, Any]], runs: int, clients: int
) -> list[float]:
    """Carry so many runs to their ends and give how long each took."""
    took: list[float] = []

    async def one(number: int) -> None:
        began = time.perf_counter()
        handle = await app.start(three, payload(number))
        assert await handle.result() == {"done": payload(number)["id"]}
        took.append(time.perf_counter() - began)

    await at_a_time(clients, range(runs), one)
    return took


def run(job: Job) -> dict[str, Any]:
    """Measure one round."""
    return run_loop(measure(job, clients=IN_FLIGHT))


async def measure(job: Job, *, clients: int) -> dict[str, Any]:
    """Measure runs of three steps by so many clients at a time."""
    app = make_app(job, concurrency=IN_FLIGHT)
    three = three_steps(app)
    async with app:
        await saturate(app, three, WARM_UP_RUNS, clients)
        batches = app.counts.batches
        with job.window().measure() as window:
            took = await saturate(app, three, job.runs, clients)
        batches = app.counts.batches - batches
    return {
        **window.per_run(job.runs),
        **latencies_ms(took),
        "batches_per_run": round(batches / job.runs, 3),
        "settings": describe(app, in_flight=clients, runs=job.runs),
    }
