"""A served app under a steady load for a long time: ``python -m tests.campaign.soak --store postgres --seconds 900``.

Deliveries of every kind come in at a fixed rate, with copies, forged and broken ones among them, while
operators act and onlookers watch. Its memory, descriptors, threads and tasks and those of its store are
sampled, and judged by how they grow after the warm-up; at the end every delivery that was accepted has to be
done. The last line of standard output is one JSON object; the exit code is 1 where there are violations.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from onceward.testing.servers import PostgresServer
from tests.attack.site import Site
from tests.campaign.counters import record
from tests.campaign.soak.soaking import Plan, Soak

SETTINGS = {"ONCEWARD_LEASE": "10s", "ONCEWARD_POLL": "1s", "ONCEWARD_LINGER": "200ms"}
"""The defaults; a test's site is quicker by itself."""


def main() -> int:
    """Soak as the command line says."""
    asked = _arguments()
    plan = Plan(
        seed=asked.seed,
        seconds=asked.seconds,
        rate=asked.rate,
        waiting=asked.waiting,
        sample_s=max(0.5, asked.seconds / 300),
        look_s=asked.look,
        settle_s=180 + asked.waiting / 100,
        leak=asked.leak,
        p99_ms=asked.p99,
    )
    found = soak(plan, asked.store, samples_file=asked.samples)
    record("soak", found, variant=asked.store)
    print(json.dumps(found))
    if found["violations"]:
        print(f"python -m tests.campaign.soak {' '.join(sys.argv[1:])} --seed {plan.seed}", file=sys.stderr)
    return int(bool(found["violations"]))


def soak(plan: Plan, store: str, *, samples_file: Path | None = None) -> dict[str, Any]:
    """Soak on a store of its own, and give what was counted and found."""
    with tempfile.TemporaryDirectory(prefix="onceward-soak-") as home, _server(store) as server:
        url = f"sqlite:///{home}/soak.db" if server is None else server.create_database("soak")
        with Site(url, Path(home), {**SETTINGS, "ONCEWARD_TEST_SOAK_LEAK": plan.leak}) as site:
            one = Soak(site, plan, None if server is None else server.pid, _say)
            try:
                asyncio.run(one.run())
            finally:
                if samples_file is not None:
                    samples_file.write_text("".join(f"{json.dumps(sample)}\n" for sample in one.taken))
            if one.violations:
                _say(site.logs())
    return {"seed": plan.seed, **one.figures, "samples": len(one.taken), "violations": one.violations}


def _server(store: str) -> contextlib.AbstractContextManager[PostgresServer | None]:
    return PostgresServer() if store == "postgres" else contextlib.nullcontext()


BEGAN = time.monotonic()


def _say(text: str) -> None:
    print(f"{time.monotonic() - BEGAN:7.1f} {text}", file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign.soak", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--seconds", type=float, default=900.0, help="how long deliveries come in")
    parser.add_argument(
        "--rate", type=float, default=0.0, help="a second; by default 70 %% of a measured peak"
    )
    parser.add_argument("--waiting", type=int, default=0, help="runs that wait all the while")
    parser.add_argument(
        "--look", type=float, default=1.0, help="seconds between looks of operators and onlookers"
    )
    parser.add_argument("--p99", type=float, default=100.0, help="ms; 0 where others use the machine, too")
    parser.add_argument("--samples", type=Path, help="where the samples are written, a JSON object a line")
    parser.add_argument("--leak", default="", help="plant a fault: memory, descriptors, threads or lost")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
