"""What must be true after every crash test, whatever was done to the processes."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from onceward.core.ports import Store
from onceward.core.settings import SETTINGS, resolve
from onceward.runtime.clock import wall_ms
from onceward.stores.choose import make_store
from onceward.testing import check_invariants
from tests.lifecycle.ledger import Ledger

SLACK_MS = 25.0
"""How far the wall clock of the ledger and a process's idea of the store's clock may be apart."""


@contextmanager
def looking_at(url: str) -> Iterator[Store]:
    """Open a store to look at, without registering a process."""
    settings = resolve(SETTINGS, {"store": url, "notify": False}, {})
    store = make_store(settings, now_ms=wall_ms, draw=random.random)
    store.open(migrate=False)
    try:
        yield store
    finally:
        store.close()


def check(url: str, ledger: Path, *, kills: int, width: int, reopened: int = 0) -> None:
    """Check the store's invariants and what the ledger says about bodies.

    Args:
        url: the store.
        ledger: the ledger's file.
        kills: processes that were killed, stopped or cut off.
        width: bodies that each of them could have under way.
        reopened: bodies that began again because an operator retried.
    """
    with looking_at(url) as store:
        violations = check_invariants(store)
        tables = store.dump("run", "step", "queue")
    assert not violations
    stuck = [run for run in tables["run"] if run["state"] not in ("completed", "failed", "cancelled")]
    assert not stuck, f"runs that did not end: {stuck}"
    assert not tables["queue"], f"left in the queue: {tables['queue']}"
    _check_bodies(tables["step"], Ledger(ledger), extra_max=kills * width + reopened)


def _check_bodies(steps: list[dict[str, Any]], ledger: Ledger, *, extra_max: int) -> None:
    records = {(row["run_id"], row["generation"], _shown(row)): row for row in steps}
    starts: Counter[tuple[str, int, str]] = Counter()
    for line in ledger.lines(what="start"):
        starts[line.key] += 1
        record = records.get(line.key)
        if starts[line.key] > 1 and record is not None and record["state"] == "done":
            late_ms = line.at_ms - record["ended_at"]
            assert late_ms <= SLACK_MS, f"{line} began {late_ms:.0f} ms after its saved record {record}"
    extra = {
        key: count - max(1, records[key]["tries"] if key in records else 1) for key, count in starts.items()
    }
    again = {key: count for key, count in extra.items() if count > 0}
    assert sum(again.values()) <= extra_max, f"more than {extra_max} bodies ran again: {again}"


def _shown(row: dict[str, Any]) -> str:
    item = f"[{row['item']}]" if row["item"] else ""
    return f"{row['name']}{item}" + (f" #{row['ordinal']}" if row["ordinal"] > 1 else "")


def is_campaign() -> bool:
    """Say whether the long tier was asked for."""
    return os.environ.get("ONCEWARD_TEST_TIER") == "campaign"
