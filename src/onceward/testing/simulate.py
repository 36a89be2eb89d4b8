"""Runs the deterministic simulation: ``python -m onceward.testing.simulate --seeds 2000 --from 0``.

One seed is one world: three to six processes, each with the real worker and the real SQLite store
over one database in memory, at least 200 operations with more than a dozen kinds of faults, every
promise checked after every commit, and then a time without faults in which everything must come to
rest. The same seed is the same world, to the byte of its trace.

The last line printed is one JSON object. The exit code is 1 when a promise was broken, also with a
planted bug (``--bug``), where it is 2 when the bug was not found.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from onceward.testing.planted import BUGS, DOUBTFUL_BUGS
from onceward.testing.simulation.world import World

CHUNK = 20
"""Seeds that a helper process takes at a time."""

TOLD_MAX = 10
"""Broken seeds that are printed in full."""

FLAGS = {"is_keyed": "--keys", "is_doubtful": "--doubt", "is_waiting": "--waits"}
"""What makes worlds of one kind, by the argument of `run_seed`."""

TRACE_LINES = 60
"""Lines of a broken seed's trace that are printed; ``--trace`` prints all."""


@dataclass
class Outcome:
    """What one seed came to.

    Attributes:
        seed: which.
        operations: what the driver did and what processes committed.
        violations: broken promises, each as one line that names seed and operation.
        faults: how often each kind happened.
        failpoints: how often each was passed.
        trace_hash: the hash of everything that happened.
        trace: everything that happened, if it was asked for.
    """

    seed: int
    operations: int
    violations: list[str]
    faults: dict[str, int]
    failpoints: dict[str, int]
    trace_hash: str
    trace: list[str] = field(repr=False)


def run_seed(
    seed: int,
    *,
    bug: str = "",
    keep_trace: bool = False,
    is_keyed: bool = False,
    is_doubtful: bool = False,
    is_waiting: bool = False,
) -> Outcome:
    """Run one world to its end or to the first broken promise.

    Args:
        seed: decides everything.
        bug: the name of a planted bug, or nothing.
        keep_trace: whether to give the whole trace.
        is_keyed: whether events start runs with keys, and no others.
        is_doubtful: whether they start runs with steps of unknown outcome, and no others.
        is_waiting: whether they start runs that wait for events; so they do for a bug of waits.
    """
    planted = {**BUGS, **DOUBTFUL_BUGS}[bug] if bug else None
    world = World(
        seed,
        bug=planted,
        keep_trace=keep_trace,
        is_keyed=is_keyed,
        is_doubtful=is_doubtful or bug in DOUBTFUL_BUGS,
        is_waiting=is_waiting or (planted is not None and planted.is_of_waits),
    )
    world.run()
    return Outcome(
        seed,
        world.operations,
        world.violations,
        world.counts,
        world.passed,
        world.trace_hash,
        world.trace,
    )


def run_seeds(seeds: Sequence[int], **options: Any) -> list[Outcome]:
    """Run several worlds, one after the other; the options are those of `run_seed`."""
    return [run_seed(seed, **options) for seed in seeds]


def _outcomes(first: int, count: int, jobs: int, **options: Any) -> Iterator[Outcome]:
    chunks = [range(start, min(start + CHUNK, first + count)) for start in range(first, first + count, CHUNK)]
    if jobs == 1 or len(chunks) == 1:
        for chunk in chunks:
            yield from run_seeds(chunk, **options)
        return
    # Not forked: a fork would take over whatever threads and connections this process has.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(jobs, len(chunks)), mp_context=context) as pool:
        for future in [pool.submit(run_seeds, chunk, **options) for chunk in chunks]:
            yield from future.result()


def _tell(outcome: Outcome, bug: str, *, whole: bool, **worlds: bool) -> None:
    """Print what broke, how to see it again, and what led to it."""
    line = outcome.violations[0]
    print(line)
    flag = next((flag for name, flag in FLAGS.items() if worlds.get(name)), "")
    if flag:
        planted = f" --bug {bug}" if bug else ""
        print(
            f"    again: python -m onceward.testing.simulate {flag} --seeds 1 --from {outcome.seed}{planted}"
        )
    else:
        print(f"    again: make sim SEEDS=1 FROM={outcome.seed}{f' BUG={bug}' if bug else ''}")
    trace = run_seed(outcome.seed, bug=bug, keep_trace=True, **worlds).trace
    if not whole:
        subject = next((word.rstrip(":") for word in line.split() if word.startswith("run_")), "")
        trace = [told for told in trace if subject in told or " FAULT " in told or " dead " in told]
        trace = trace[-TRACE_LINES:]
    for told in trace:
        print(f"    {told}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run seeds as the command line asks; give the exit code."""
    parser = argparse.ArgumentParser(prog="python -m onceward.testing.simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2_000, help="how many worlds")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first seed")
    parser.add_argument(
        "--bug", default="", choices=["", *BUGS, *DOUBTFUL_BUGS], help="plant this bug; it must be found"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--keys", action="store_true", help="worlds of runs with keys")
    parser.add_argument("--doubt", action="store_true", help="worlds of steps of unknown outcome")
    parser.add_argument("--waits", action="store_true", help="worlds of runs that wait for events")
    parser.add_argument("--trace", action="store_true", help="print the whole trace of broken seeds")
    parser.add_argument("--list-bugs", action="store_true", help="say what can be planted, and stop")
    asked = parser.parse_args(arguments)
    if asked.list_bugs:
        for name, bug in {**BUGS, **DOUBTFUL_BUGS}.items():
            print(f"{name:24} {bug.sentence}")
        return 0
    began = time.monotonic()
    operations, broken = 0, []
    faults: dict[str, int] = {}
    worlds = {
        "is_keyed": asked.keys,
        "is_doubtful": asked.doubt or asked.bug in DOUBTFUL_BUGS,
        "is_waiting": asked.waits,
    }
    for outcome in _outcomes(asked.first, asked.seeds, max(1, asked.jobs), bug=asked.bug, **worlds):
        operations += outcome.operations
        for kind, count in outcome.faults.items():
            faults[kind] = faults.get(kind, 0) + count
        if outcome.violations:
            broken.append(outcome.seed)
            if len(broken) <= (1 if asked.bug else TOLD_MAX):
                _tell(outcome, asked.bug, whole=asked.trace, **worlds)
    seconds = time.monotonic() - began
    summary = {
        "seeds": asked.seeds,
        "violations": len(broken),
        "bug": asked.bug or None,
        "first": broken[0] if broken else None,
        "broken": broken[:TOLD_MAX],
        "operations": operations,
        "seconds": round(seconds, 1),
        "seeds_per_s": round(asked.seeds / max(seconds, 0.001), 1),
        "faults": faults,
    }
    print(json.dumps(summary))
    if broken:
        return 1
    return 2 if asked.bug else 0


if __name__ == "__main__":
    sys.exit(main())
