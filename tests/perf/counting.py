"""A store that counts what it is asked for, an app on it, and a process whose time is virtual."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, cast

from onceward import App, Context
from onceward.authoring.workflow import Workflow
from onceward.core.ids import IdSource
from onceward.core.ports import Batch, BatchResult, Begun, Store
from onceward.runtime.heartbeat import Heartbeat
from onceward.runtime.worker import Worker
from onceward.stores.sqlite.store import SqliteStore
from onceward.testing.clock import FakeClock, SeededEntropy
from onceward.testing.loop import SimLoop

T = TypeVar("T")

Three = Workflow[[int], int]


class CountedStore:
    """Hands everything to a store and counts it; every verb is one transaction.

    Attributes:
        verbs: how often each was called.
        batches: that were committed.
        recalled: the run ids of each look at histories.
        refuses: called before each batch; what it raises is the store's answer.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.verbs: Counter[str] = Counter()
        self.batches: list[Batch] = []
        self.recalled: list[list[str]] = []
        self.refuses: Callable[[Batch], None] = lambda batch: None

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self.store, name)
        if not callable(verb) or name in ("now_ms", "listen", "open", "close"):
            return verb

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.verbs[name] += 1
            if name == "histories":
                self.recalled.append(list(args[0]))
            return verb(*args, **kwargs)

        return counted

    def apply(self, process_id: str, epoch: int, batch: Batch) -> BatchResult:
        self.verbs["apply"] += 1
        self.refuses(batch)
        result = self.store.apply(process_id, epoch, batch)
        self.batches.append(batch)
        return result

    def begin(self, process_id: str, epoch: int, batch: Batch) -> Begun | None:
        self.refuses(batch)
        begun = self.store.begin(process_id, epoch, batch)
        if begun is not None:
            self.verbs["apply"] += 1
            self.batches.append(batch)
        return begun

    def forget(self) -> None:
        self.verbs.clear()
        self.batches.clear()
        self.recalled.clear()


class CountedApp(App):
    """An app whose store is counted."""

    counts: CountedStore

    def _make_store(self, draws: IdSource) -> Store:
        self.counts = CountedStore(super()._make_store(draws))
        return cast("Store", self.counts)


def three_steps(app: App) -> Three:
    @app.step
    async def first(number: int) -> dict[str, int]:
        return {"ok": number}

    @app.step
    async def second(number: int) -> dict[str, int]:
        return {"ok": number}

    @app.step
    async def third(number: int) -> dict[str, int]:
        return {"ok": number}

    @app.workflow
    async def three(ctx: Context, number: int) -> int:
        await first(number)
        await second(number)
        await third(number)
        return number

    return three


async def saturate(app: App, three: Three, runs: int, in_flight: int) -> None:
    """Carry so many runs to their ends, so many at a time."""
    todo = iter(range(runs))

    async def client() -> None:
        for number in todo:
            assert await (await app.start(three, number)).result() == number

    await asyncio.gather(*(client() for _ in range(in_flight)))


class SlowWriter:
    """Commits in line, each of them after the same virtual time."""

    def __init__(self, loop: SimLoop, commit_s: float) -> None:
        self._loop = loop
        self._commit_s = commit_s

    def submit(self, call: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        self._loop.call_later(self._commit_s, lambda: done(call(), None))

    def close(self) -> None:
        pass


class VirtualProcess:
    """An app in a loop whose time jumps, over a SQLite database in memory."""

    def __init__(self, *, commit_s: float) -> None:
        self.loop = SimLoop("counts")  # type: ignore[abstract]
        self._commit_s = commit_s
        self._clock = FakeClock(self.loop.time)
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        store = SqliteStore(":memory:", namespace="default", now_ms=self._clock.now_ms, connection=connection)
        store.open(migrate=True)
        self.counts = CountedStore(store)
        self.app = App("sqlite:///virtual.db")

    def run(self, scenario: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Start the worker, do what *scenario* says, stop."""
        return self.loop.run_until_complete(self._main(scenario))

    async def _main(self, scenario: Callable[[], Coroutine[Any, Any, T]]) -> T:
        app, entropy = self.app, SeededEntropy("counts")
        worker = Worker(
            cast("Store", self.counts),
            app.settings,
            app._workflows,
            now_ms=self._clock.now_ms,
            ids=IdSource(now_ms=self._clock.now_ms, random_bytes=entropy.random_bytes),
            writer=SlowWriter(self.loop, self._commit_s),
            reads=_inline,
            beats=False,
        )
        app._worker, app._pid = worker, os.getpid()
        await worker.start()
        beating = self.loop.create_task(self._beat_forever(Heartbeat(worker)))
        try:
            return await scenario()
        finally:
            beating.cancel()
            await worker.stop(1)

    async def _beat_forever(self, heartbeat: Heartbeat) -> None:
        while True:
            await asyncio.sleep(self.app.settings.heartbeat_ms / 1000)
            heartbeat.beat()


async def _inline(function: Callable[..., T], *args: Any) -> T:
    return function(*args)
