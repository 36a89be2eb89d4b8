"""Kills a side's process in the middle of its work, starts another, and lets the ledger judge.

Standard library only; both sides are judged by this code. Phase ``first`` starts the runs, phase
``again`` carries them to their ends, and prints when it began to boot (``booted``, on the machine's
monotonic clock) and how many runs there were and are finished.
"""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks import ledger
from benchmarks.job import Job

STEPS = 3
STEP_S = 0.05
FIRST_BODIES_SECONDS_MAX = 120


def ledger_path(job: Job) -> Path:
    """Give the file in which bodies leave their trace."""
    return Path(job.directory) / "ledger"


def kill_and_restart(job: Job) -> dict[str, Any]:
    """Kill when half of the bodies have ended; bodies are named ``<run> <step>``."""
    path = ledger_path(job)
    killed = job.start_phase("first", stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + FIRST_BODIES_SECONDS_MAX
    while ledger.read(path).ends.total() < job.runs * STEPS // 2:
        assert killed.poll() is None, "the first process ended by itself"
        assert time.monotonic() < deadline, "the first process was too slow"
        time.sleep(0.005)
    killed.kill()
    killed.wait()
    before = ledger.read(path)
    spawned = time.monotonic()
    again = job.run_phase("again")
    after = ledger.read(path)
    first_body = after.times[len(before.times)]
    unsaved = _may_be_unsaved(before)
    twice = {body for body, count in after.begins.items() if count > 1}
    return {
        "first_body_s": round(first_body - again.pop("booted"), 3),
        "first_body_after_spawn_s": round(first_body - spawned, 3),
        **again,
        "in_body_at_kill": before.in_flight,
        "unsaved_at_kill_max": len(unsaved),
        "bodies_run_twice": len(twice),
        "is_right": again["finished"] == again["started"]
        and len(after.begins) == again["started"] * STEPS
        and twice <= unsaved,
    }


def _may_be_unsaved(told: ledger.Told) -> set[str]:
    """Give the bodies whose outcome may not have been saved: the last one that each run began.

    A step begins when those before it are saved, so only the last can have been in its body, or
    back from it and not yet durable.
    """
    last: Counter[str] = Counter()
    for body in told.begins:
        run, step = body.split(" ")
        last[run] = max(last[run], int(step))
    return {f"{run} {step}" for run, step in last.items()}
