"""Our side of one round, in a process of its own; started by ``python -m benchmarks``.

Prints one JSON object.
"""

from __future__ import annotations

import importlib
import json

from benchmarks import job
from onceward.cli.starting import spare_collections

if __name__ == "__main__":
    asked = job.parse("benchmarks.ours")
    work = importlib.import_module(f"benchmarks.works.{asked.work.replace('-', '_')}")
    spare_collections()  # as `onceward worker` and `onceward serve` do
    print(json.dumps(work.run(asked)), flush=True)
