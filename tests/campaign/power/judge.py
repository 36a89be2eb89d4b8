"""Opens what a power loss left, as a fresh process on a machine that was booted anew would, and judges it."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import shutil
import sqlite3
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import ModuleType

from onceward.core.errors import OncewardError
from onceward.runtime.clock import wall_ms
from onceward.stores.sqlite.host_clock import HostClock
from onceward.stores.sqlite.store import SqliteStore
from onceward.testing.invariants import TABLES, check_rows
from tests.campaign.power.disk import Image
from tests.campaign.power.promises import Began, Facts, Promise, StepKey, broken
from tests.helpers import eventually

APP = Path(__file__).parent / "apps" / "power_shop.py"
DATABASE = "shop.db"
WITHIN_S = 120.0
ENDED = ("completed", "failed", "cancelled", "held")
ENDS = {"loops": ("completed", "cancelled"), "asks": ("completed", "held"), "fails": ("completed", "failed")}
"""How runs may end that need not complete."""

_loading = threading.Lock()


def put(image: Image, folder: Path, *, memory: bytes | None = None) -> Path:
    """Make an image's files; give the database's.

    Args:
        folder: made anew.
        memory: what is in the file of the shared memory, if it is there; nothing of it counts after a boot.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    image.put(folder)
    if memory is not None:
        (folder / f"{DATABASE}-shm").write_bytes(memory)
    return folder / DATABASE


def memory(draws: random.Random) -> bytes | None:
    """Give the shared memory's file as it may be found: mostly none, sometimes one with anything in it."""
    return draws.randbytes(32_768) if draws.random() < 0.2 else None


def judge(path: Path, given: Sequence[Promise]) -> tuple[list[str], Facts | None]:
    """Open a store and give what is wrong with it, and what it holds."""
    store = SqliteStore(
        str(path), namespace="default", now_ms=wall_ms, host=HostClock("a boot after the power loss")
    )
    try:
        store.open(migrate=True)
        try:
            with closing(sqlite3.connect(path)) as connection:
                checked = [row[0] for row in connection.execute("pragma integrity_check")]
                facts = facts_of(store, connection)
            found = [f"integrity_check: {text}" for text in checked if text != "ok"]
            found += map(str, check_rows(facts.tables))
            return found + broken(given, facts), facts
        finally:
            store.close()
    except (OncewardError, sqlite3.Error) as error:
        return [f"it cannot be opened and read: {error}"], None


def facts_of(store: SqliteStore, connection: sqlite3.Connection) -> Facts:
    has_sales = connection.execute("select 1 from sqlite_master where name = 'sale'").fetchone()
    sales = connection.execute("select run_id, mark from sale").fetchall() if has_sales else []
    return Facts(store.dump(*TABLES, "outbox"), dict(sales))


@contextmanager
def shop(path: Path, ledger: Path) -> Iterator[ModuleType]:
    """Give the shop's app in this process, at work on a store."""
    given = {
        "ONCEWARD_STORE": f"sqlite:///{path}",
        "ONCEWARD_LEASE": "60s",  # none is lost for a busy machine, after which a body may run again
        "ONCEWARD_POLL": "50ms",
        "ONCEWARD_LINGER": "50ms",
        "ONCEWARD_TEST_LEDGER": str(ledger),
    }
    with _loading:
        before = {name: text for name, text in os.environ.items() if name.startswith("ONCEWARD_")}
        for variable in before:
            del os.environ[variable]
        os.environ.update(given)
        name = f"power_shop_{abs(hash(path))}"
        try:
            spec = importlib.util.spec_from_file_location(name, APP)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[name] = module
            spec.loader.exec_module(module)
        finally:
            for variable in given:
                del os.environ[variable]
            os.environ.update(before)
    try:
        module.app.sync.open()
        yield module
    finally:
        module.app.sync.close("0s")
        del sys.modules[name]


def carry(path: Path, ledger: Path, given: Sequence[Promise], before: Facts) -> list[str]:
    """Let the shop go on with a store until every run ended, and give what it did wrong."""
    ledger.unlink(missing_ok=True)
    with shop(path, ledger) as module:
        try:
            eventually(lambda: not _unended(module), WITHIN_S)
        except AssertionError:
            return [f"not at their ends after {WITHIN_S:.0f} s: {_unended(module)}"]
    found, after = judge(path, given)
    if after is None:
        return found
    for run in after.runs.values():
        if run["state"] not in ENDS.get(run["workflow"], ("completed",)):
            found.append(
                f"run {run['run_id']} of {run['workflow']} ended {run['state']}: {run['error'] or run['reason']}"
            )
    found += [f"run {run_id} went missing" for run_id in before.runs.keys() - after.runs.keys()]
    found += ran_again(ledger, given, before)
    found += [
        f"step {key} ran {times} times though nothing failed"
        for key, times in bodies(ledger).items()
        if times > 1
    ]
    return found


def _unended(module: ModuleType) -> list[str]:
    tables = module.app.worker.store.dump("run", "outbox")
    left = [
        f"{row['run_id']} {row['workflow']} {row['state']}"
        for row in tables["run"]
        if row["state"] not in ENDED
    ]
    return left + [f"outbox {row['outbox_id']}" for row in tables["outbox"]]


def ran_again(ledger: Path, given: Sequence[Promise], before: Facts) -> list[str]:
    """Give the bodies that the ledger has and should not have, after a power loss that left *before*."""
    asked = {promise.key for promise in given if isinstance(promise, Began) and promise.asks}
    found = []
    for key in bodies(ledger):
        if before.is_done(key):
            found.append(f"step {key} was saved and ran again")
        elif key in asked:
            found.append(f"step {key} had begun and ran again before anybody was asked")
    return found


def bodies(ledger: Path) -> Counter[StepKey]:
    """Give how often each body began."""
    lines = ledger.read_text().splitlines() if ledger.exists() else []
    notes = [note for note in map(json.loads, lines) if note["what"] == "began"]
    return Counter((note["run"], note["generation"], note["step"], note["item"]) for note in notes)
