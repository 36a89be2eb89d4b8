"""One run at a time: how long from the accepted event to the finished run."""

from __future__ import annotations

from typing import Any

from benchmarks.job import Job
from benchmarks.works import three_step
from benchmarks.works.common import run_loop


def run(job: Job) -> dict[str, Any]:
    """Measure one round: the same runs of three steps, each started when the last has ended."""
    return run_loop(three_step.measure(job, clients=1))
