"""Power-loss images of the SQLite store: ``python -m tests.campaign.power [--seed N] [--images N]``.

Real processes are recorded (`scene`, `trace`); from the record come disks as they may look after a power loss
(`disk`); each is opened by a fresh store and held against what had been promised by then (`promises`, `judge`),
and of some every run is carried to its end.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys

from tests.campaign.counters import record
from tests.campaign.power.tier import BIG, PLANTS, Tier


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign.power", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--store", choices=["sqlite"], default="sqlite", help="PostgreSQL proves its own log")
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument(
        "--big", type=int, default=0, help="further images, of a scene whose log is copied at its limit"
    )
    parser.add_argument("--recordings", type=int, help="one for each 500 images by default")
    parser.add_argument("--carry", type=int, default=25, help="of how many images one is carried to the end")
    parser.add_argument("--plant", choices=sorted(PLANTS), help="syncs that are left out of the record")
    parser.add_argument("--keep", help="a folder in which the recordings and every failing image stay")
    asked = parser.parse_args()
    logging.getLogger("onceward").setLevel(logging.CRITICAL)  # of the runs that are carried on
    tier = Tier(seed=asked.seed, carry=asked.carry, plant=asked.plant, keep=asked.keep)
    recordings = asked.recordings or max(1, asked.images // 500)
    for number in range(recordings):
        tier.run(
            asked.seed * 1000 + number, asked.images // recordings + (number < asked.images % recordings)
        )
        print(f"recording {number + 1} of {recordings}: {tier.told()}", file=sys.stderr)
    if asked.big:
        tier.run(asked.seed * 1000 + recordings, asked.big, BIG)
        print(f"big: {tier.told()}", file=sys.stderr)
    figures = {"seed": asked.seed, **tier.figures, "violations": tier.violations}
    record("power", figures, variant=f"{asked.store}{f'-{asked.plant}' if asked.plant else ''}")
    print(json.dumps(figures))
    if tier.violations:
        again = " ".join(sys.argv[1:]) or f"--seed {asked.seed}"
        print(f"again: .venv/bin/python -m tests.campaign.power {again}", file=sys.stderr)
    return int(bool(tier.violations))


if __name__ == "__main__":
    sys.exit(main())
