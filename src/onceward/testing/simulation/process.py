"""One simulated process: a real app and worker over the shared database, that can die at any moment.

Everything of it runs in a context that names it, so that its callbacks stop when it is killed and
wait while it is paused. Its commits take time, its plain functions run in line, and each call of
its store passes a gate where the world may interfere.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, cast

from onceward.app import App
from onceward.core import errors
from onceward.core.ids import IdSource
from onceward.core.ports import Store
from onceward.runtime.heartbeat import Heartbeat
from onceward.runtime.threads import Threads
from onceward.runtime.worker import Worker
from onceward.stores.sqlite.store import SqliteStore
from onceward.testing.clock import FakeClock, SeededEntropy
from onceward.testing.loop import Owner, owner_var
from onceward.testing.simulation.store import GatedStore
from onceward.testing.workflows import Hands, References

if TYPE_CHECKING:
    from onceward.testing.simulation.world import World


_references: list[References] = []


def shared_references() -> References:
    """Give the reference workflows, made once: they keep nothing of one seed or process."""
    if not _references:
        _references.append(References(App("sqlite:///simulated.db"), Hands()))
    return _references[0]


class Killed(BaseException):
    """The process that ran this is dead; nothing of it goes on."""


class Process(Owner):
    """One life of one process.

    Args:
        world: what it lives in.
        slot: its place; a restarted process has the same.
        life: counts the lives of a slot.
    """

    def __init__(self, world: World, slot: int, life: int) -> None:
        super().__init__(f"p{slot}.{life}")
        self.world = world
        self.slot = slot
        self.clock = FakeClock(world.loop.time, world.dice_clock())
        self.database = SqliteStore(
            ":memory:", namespace="default", now_ms=self.clock.now_ms, connection=world.connection
        )
        self.database.open(migrate=False)
        self.store = GatedStore(self, self.database)
        self.app = App("sqlite:///simulated.db", **world.settings)
        references = shared_references()
        references.hands = world.hands
        self.app._workflows.update(references.app._workflows)
        self.app._sources.update(references.app._sources)
        self.child = references.child
        self.worker: Worker | None = None
        self.is_up = False  # it accepts requests
        self.is_stopping = False
        self.is_muted = False  # its lease is not renewed
        self.death = ""  # why it died
        self.armed: dict[str, str] = {}  # failpoint -> action, once
        self.due_action = ""  # what a failpoint after a commit asked for
        self.plain_seconds = 0.0  # how long the plain body that runs takes
        self.broken: dict[object, Callable[[], None]] = {}  # requests under way: told when it dies
        self._context = copy_context()
        self._context.run(owner_var.set, self)

    def context(self) -> Context:
        """Give a context in which things belong to this process."""
        return self._context.copy()

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine as part of this process."""
        return self.world.loop.create_task(coroutine, context=self.context())

    # --- life -------------------------------------------------------------------------------------

    async def boot(self) -> None:
        """Start the worker; a process that cannot start exits, and is started again."""
        entropy = SeededEntropy(f"{self.world.seed} {self.name}")
        worker = self.worker = Worker(
            cast("Store", self.store),
            self.app.settings,
            self.app._workflows,
            now_ms=self.clock.now_ms,
            ids=IdSource(now_ms=self.clock.now_ms, random_bytes=entropy.random_bytes),
            writer=InlineWriter(self),
            reads=self.read,
            elapsed_s=self.world.loop.time,
            cpu_s=lambda: 0.0,
            beats=False,
            version="simulated",
        )
        worker.step_threads = InlineThreads(self)
        worker.steer_child = self.app._desk.steer_child
        self.app._worker, self.app._pid = worker, os.getpid()
        self.world.booted(self)
        try:
            await worker.start()
        except errors.OncewardError as error:
            self.kill(f"could not start: {type(error).__name__}")
            return
        self.is_up = True
        await self._beat_forever(Heartbeat(worker))

    async def _beat_forever(self, heartbeat: Heartbeat) -> None:
        while True:
            await asyncio.sleep(self.app.settings.heartbeat_ms / 1000)
            if not self.is_muted:
                heartbeat.beat()

    async def stop(self, grace_s: float) -> None:
        """Stop as SIGTERM asks, then exit."""
        assert self.worker is not None
        self.is_stopping = True
        await self.worker.stop(grace_s)
        self.kill("stopped")

    def kill(self, why: str) -> None:
        """End it at once: nothing of it runs any more, its memory is gone."""
        if self.is_dead:
            return
        self.is_dead, self.is_up, self.death = True, False, why
        self.parked.clear()
        if self.worker is not None:
            for execution in self.worker.executions.values():
                execution.stopping = "lost"
        broken, self.broken = self.broken, {}
        for tell in broken.values():
            tell()
        self.world.died(self)

    @property
    def process_id(self) -> str:
        """Give what it is called in the store."""
        return "" if self.worker is None else self.worker.process_id

    # --- what it is given -----------------------------------------------------------------------------

    async def read(self, function: Callable[..., Any], *args: Any) -> Any:
        """Make a blocking call of the store, with the delay that the world draws."""
        before, after = self.world.dice_read()
        if before:
            await asyncio.sleep(before)
        try:
            return function(*args)
        except Killed:
            await self.world.loop.create_future()  # nobody is left to go on
        finally:
            if after:
                await asyncio.sleep(after)


class InlineWriter:
    """Makes commits in line: each reaches the store after one delay and is answered after another."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def submit(self, call: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        """Run *call* when the commit's time has come, then tell *done*."""
        world = self._process.world
        before, after = world.dice_commit()
        world.loop.call_later(before, self._commit, call, done, after)

    def _commit(
        self, call: Callable[[], Any], done: Callable[[Any, BaseException | None], None], after: float
    ) -> None:
        result, error = None, None
        try:
            result = call()
        except Killed:
            return
        except BaseException as caught:  # noqa: BLE001 - handed to the committer, whatever it is
            error = caught
        self._process.world.loop.call_later(after, done, result, error)

    def close(self) -> None:
        """Stop; there is no thread."""


class InlineThreads(Threads):
    """Runs plain functions in line; the time they say they take passes after them."""

    def __init__(self, process: Process) -> None:
        super().__init__(1, "simulated")
        self._process = process

    async def run(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        may_begin: Callable[[], bool] | None = None,
    ) -> Any:
        """Run *function* now and give its result when its time is over."""
        self._process.plain_seconds = 0.0
        try:
            return function(*args, **kwargs)
        finally:
            seconds, self._process.plain_seconds = self._process.plain_seconds, 0.0
            if seconds:
                await asyncio.sleep(seconds)

    def close(self) -> None:
        """Stop; there are no threads."""
