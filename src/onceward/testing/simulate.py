"""Runs seeds of the simulation: ``python -m onceward.testing.simulate --seeds 2000 --from 0``."""

from __future__ import annotations

import argparse
import json
import sys
import time

from onceward.testing.simulation.world import World


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--trace", action="store_true")
    args = parser.parse_args()
    began = time.process_time()
    bad = 0
    ops = 0
    for seed in range(args.first, args.first + args.seeds):
        world = World(seed, keep_trace=args.trace)
        world.run()
        ops += world.operations
        if world.violations:
            bad += 1
            if args.trace:
                print("\n".join(world.trace))
            print(world.violations[0][:400])
            if args.trace:
                break
    print(
        json.dumps(
            {"seeds": args.seeds, "violations": bad, "ops": ops, "seconds": time.process_time() - began}
        )
    )
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
