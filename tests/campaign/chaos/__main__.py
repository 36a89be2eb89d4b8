"""Real processes of an app on one real store, under faults: ``python -m tests.campaign.chaos --store postgres``.

The time is divided into worlds of some minutes, each on a store of its own and with the next seed; what one
came to is printed as it ends. A seed gives the same faults at the same times, and not the same schedule: these
are real processes. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence

from tests.campaign.chaos.world import Plan, play
from tests.campaign.counters import record


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the worlds that were asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign.chaos", description=__doc__)
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="postgres")
    parser.add_argument("--seed", type=int, default=0, help="of the first world; the next has the next")
    parser.add_argument("--seconds", type=float, default=600, help="under faults, in all")
    parser.add_argument("--world", type=float, default=240, help="seconds of one world at most")
    parser.add_argument("--processes", type=int, default=6)
    parser.add_argument("--senders", type=int, default=4)
    parser.add_argument("--pause", type=float, default=0.2, help="longest pause of a sender, in seconds")
    parser.add_argument("--every", type=float, nargs=2, default=(2.0, 20.0), help="seconds between faults")
    asked = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # which ends all that was started, too
    counts: Counter[str] = Counter()
    violations: list[str] = []
    began, left, seed = time.monotonic(), asked.seconds, asked.seed
    while left > 0:
        seconds = min(left, asked.world)
        plan = Plan(
            f"{seed}",
            asked.store,
            seconds,
            processes=asked.processes,
            every_s=(asked.every[0], asked.every[1]),
            senders=asked.senders,
            pause_s=asked.pause,
        )
        outcome = play(plan, lambda text, seed=seed: _tell(f"seed {seed}: {text}"))
        counts += outcome.counts
        violations += [f"seed {seed}: {text[:1000]}" for text in outcome.violations]
        _tell(f"seed {seed}: {dict(outcome.counts)}")
        if outcome.violations:
            _tell(
                f"again: python -m tests.campaign.chaos --store {asked.store} --seed {seed} --seconds {seconds:g} "
                f"--processes {asked.processes} --senders {asked.senders} --pause {asked.pause:g} "
                f"--every {asked.every[0]:g} {asked.every[1]:g}   (evidence in {outcome.home})"
            )
        left, seed = left - seconds, seed + 1
    figures = {
        "seed": asked.seed,
        "worlds": seed - asked.seed,
        "seconds": round(time.monotonic() - began),
        **{name: counts[name] for name in sorted(counts)},
        "violations": violations,
    }
    record("chaos", figures, variant=asked.store)
    print(json.dumps(figures))
    return int(bool(violations))


def _tell(text: str) -> None:
    print(time.strftime("%H:%M:%S"), text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
