"""What our side of every work needs: what it is asked to do, an app on its store, an event loop."""

from __future__ import annotations

import asyncio
import importlib.metadata
import platform
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, cast

from benchmarks.job import Job
from onceward import App, __version__
from onceward.core.ids import IdSource
from onceward.core.ports import Batch, BatchResult, Begun, Store

WARM_UP_RUNS = 50


class CountedStore:
    """A store that counts the batches it commits and notes when it last handed runs out."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.batches = 0
        self.transactions = 0
        self.claimed_at = 0.0

    def __getattr__(self, name: str) -> Any:
        """Give any other verb of the store; each call of one is a transaction."""
        verb = getattr(self._store, name)
        if not callable(verb) or name in ("describe", "changes"):
            return verb

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.transactions += 1
            return verb(*args, **kwargs)

        return counted

    def apply(self, process_id: str, epoch: int, batch: Batch) -> BatchResult:
        """Commit a batch."""
        self.batches += 1
        self.transactions += 1
        result = self._store.apply(process_id, epoch, batch)
        if result.claimed:
            self.claimed_at = time.perf_counter()
        return result

    def begin(self, process_id: str, epoch: int, batch: Batch) -> Begun | None:
        """Send a batch, if the store can do that without waiting."""
        begun = self._store.begin(process_id, epoch, batch)
        if begun is not None:
            self.batches += 1
            self.transactions += 1
            if batch.claims:
                self.claimed_at = time.perf_counter()
        return begun


class CountedApp(App):
    """An app whose store is counted."""

    counts: CountedStore

    def _make_store(self, draws: IdSource) -> Store:
        self.counts = CountedStore(super()._make_store(draws))
        return cast("Store", self.counts)


def make_app(job: Job, **settings: Any) -> CountedApp:
    """Give an app on the job's store; everything that is not named is at its default.

    On PostgreSQL it has an instance name, so that a restarted process takes its runs back at once;
    on SQLite a free lock file says as much.
    """
    if job.is_postgres:
        part = job.phase.split("-")[0]
        settings["instance"] = "bench" if part in ("first", "again") else f"bench-{job.phase}"
    return CountedApp(job.url, **settings)


def describe(app: App, **more: Any) -> dict[str, Any]:
    """Give the settings of our side for the report."""
    return {
        "version": __version__,
        "loop": loop_name(),
        "concurrency": app.settings.concurrency,
        **more,
    }


def loop_name() -> str:
    """Say which event loop our side runs on: uvloop where it is installed."""
    try:
        return f"uvloop {importlib.metadata.version('uvloop')}"
    except importlib.metadata.PackageNotFoundError:
        return f"asyncio of Python {platform.python_version()}"


def run_loop(main: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
    """Run a coroutine on the fastest event loop there is."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    return uvloop.run(main)


async def at_a_time(
    clients: int, numbers: Iterable[int], one: Callable[[int], Coroutine[Any, Any, None]]
) -> None:
    """Call *one* for every number, by so many clients, each of whom waits for its own to end."""
    todo = iter(numbers)

    async def client() -> None:
        for number in todo:
            await one(number)

    await asyncio.gather(*(client() for _ in range(clients)))
