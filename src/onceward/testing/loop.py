"""An event loop without a selector: time jumps to the next timer, and a seed decides who goes first.

Callbacks belong to an `Owner`, a simulated process: one that is dead runs nothing more, one that
is paused runs nothing until it is continued. Callbacks of different owners that are ready at the
same time run in an order that the seed draws, as processes on a real machine would; those of one
owner keep their order, which asyncio promises and code may lean on.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar

T = TypeVar("T")

SPINS_MAX = 20_000
"""Rounds of the loop without time going on after which something spins for ever."""

CLOSES_MAX = 50
"""How often a coroutine may refuse to be closed by awaiting something more."""


class Owner:
    """What callbacks belong to.

    Attributes:
        name: for traces.
        is_dead: nothing of it runs any more.
        is_paused: what becomes ready waits in ``parked`` until `SimLoop.resume`.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_dead = False
        self.is_paused = False
        self.parked: list[SimHandle] = []


owner_var: ContextVar[Owner | None] = ContextVar("onceward_sim_owner", default=None)


class Deadlock(RuntimeError):
    """Nothing is ready and nothing is scheduled: what is awaited will never come."""


class Spinning(RuntimeError):
    """Callbacks keep making callbacks and time stands still."""


class SimHandle(asyncio.TimerHandle):
    """A callback with its owner; made without what asyncio notes for its debug mode."""

    __slots__ = ("owner",)

    def __init__(  # made thousands of times a seed: the base's would take twice as long
        self, when: float, callback: Callable[..., Any], args: tuple[Any, ...], context: Context | None
    ) -> None:
        self._callback = callback
        self._args = args
        self._context = copy_context() if context is None else context
        self._cancelled = False
        self._when = when
        self.owner = self._context.get(owner_var)

    def __repr__(self) -> str:
        """Show the callback."""
        return f"<callback {self._callback!r}>"

    def cancel(self) -> None:
        """Forget the callback."""
        self._cancelled = True
        self._callback, self._args = _nothing, ()

    def run(self, loop: SimLoop) -> None:
        """Run it, in its context; what it raises is kept by the loop."""
        try:
            self._context.run(self._callback, *self._args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - as event loops do
            loop.call_exception_handler({"exception": error, "handle": self})


def _nothing(*_: Any) -> None:
    """Be what a forgotten callback does."""


class SimTask(asyncio.Task[Any]):
    """A task whose hash is its number, so that sets of tasks have the same order in every process."""

    def __init__(
        self, number: int, owner: Owner | None, coroutine: Coroutine[Any, Any, Any], **options: Any
    ) -> None:
        self.number = number
        self.owner = owner
        super().__init__(coroutine, **options)

    def __hash__(self) -> int:
        """Give the number; two tasks are equal only if they are the same."""
        return self.number


class SimLoop(asyncio.AbstractEventLoop):
    """A deterministic event loop.

    Args:
        seed: decides the order of what different owners do at the same time.

    Attributes:
        faults: what nobody caught, as (owner, context of the loop's exception handler).
    """

    def __init__(self, seed: int | str) -> None:
        self._random = random.Random(f"loop {seed}")  # noqa: S311 - repeatable is what it must be
        self._now = 0.0
        self._ready: deque[SimHandle] = deque()
        self._timers: list[tuple[float, int, SimHandle]] = []
        self._numbers = itertools.count()
        self._task_numbers = itertools.count(1)
        self._tasks: list[SimTask] = []
        self._spins = 0
        self._is_closed = False
        self._current: Owner | None = None
        self._interruption: Exception | None = None
        self.faults: list[tuple[Owner | None, dict[str, Any]]] = []

    # --- time and callbacks -------------------------------------------------------------------

    def time(self) -> float:
        """Give virtual seconds since the loop was made."""
        return self._now

    def call_soon(  # type: ignore[override]  # arguments are not checked one by one here
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Run *callback* in the next round."""
        handle = SimHandle(self._now, callback, args, context)
        if not self._is_closed:
            self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]  # there are no threads

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run *callback* after *delay* seconds."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run *callback* at a time."""
        handle = SimHandle(when, callback, args, context)
        if not self._is_closed:
            heapq.heappush(self._timers, (when, next(self._numbers), handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Hear of a cancelled timer; it is dropped when its time comes."""

    def create_future(self) -> asyncio.Future[Any]:
        """Make a future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]  # the stub's signature differs between versions
        self,
        coro: Coroutine[Any, Any, Any],
        *,
        name: str | None = None,
        context: Context | None = None,
        **_: Any,
    ) -> asyncio.Task[Any]:
        """Run a coroutine as a task."""
        context = copy_context() if context is None else context
        owner = context.get(owner_var)
        task = SimTask(next(self._task_numbers), owner, coro, loop=self, name=name, context=context)
        self._tasks.append(task)
        return task

    # --- running ----------------------------------------------------------------------------------

    def run_until_complete(self, future: Coroutine[Any, Any, T]) -> T:  # type: ignore[override]
        """Run a coroutine to its end, and everything else as far as it goes meanwhile.

        Raises:
            Deadlock: it waits for something that will never come.
            Spinning: something keeps the loop busy without time going on.
        """
        task = self.create_task(future)
        asyncio._set_running_loop(self)
        try:
            while not task.done():
                self._run_once()
        finally:
            asyncio._set_running_loop(None)
        result: T = task.result()
        return result

    def interrupt(self, error: Exception) -> None:
        """Make `run_until_complete` raise when the present callback is over."""
        self._interruption = error

    def _run_once(self) -> None:
        ready, timers = self._ready, self._timers
        if not ready:
            while timers and timers[0][2].cancelled():
                heapq.heappop(timers)
            if not timers:
                raise Deadlock(f"nothing is ready and nothing is scheduled at {self._now:.3f} s")
            if timers[0][0] > self._now:
                self._now = timers[0][0]
                self._spins = 0
        while timers and timers[0][0] <= self._now:
            ready.append(heapq.heappop(timers)[2])
        self._spins += 1
        if self._spins > SPINS_MAX:
            raise Spinning(f"{SPINS_MAX} rounds at {self._now:.3f} s; next is {ready[0]!r}")
        if len(ready) == 1:
            self._run(ready.popleft())
            return
        batch = list(ready)
        ready.clear()
        for handle in self._interleaved(batch):
            self._run(handle)

    def _run(self, handle: SimHandle) -> None:
        if handle.cancelled():
            return
        owner = handle.owner
        if owner is not None:
            if owner.is_dead:
                return
            if owner.is_paused:
                owner.parked.append(handle)
                return
        self._current = owner
        handle.run(self)
        if self._interruption is not None:
            raise self._interruption

    def _interleaved(self, batch: list[SimHandle]) -> list[SimHandle]:
        """Merge the owners' callbacks at random, each owner's in its own order."""
        queues: dict[Owner | None, deque[SimHandle]] = {}
        for handle in batch:
            queue = queues.get(handle.owner)
            if queue is None:
                queue = queues[handle.owner] = deque()
            queue.append(handle)
        if len(queues) == 1:
            return batch
        turns = [handle.owner for handle in batch]
        self._random.shuffle(turns)
        return [queues[owner].popleft() for owner in turns]

    def resume(self, owner: Owner) -> None:
        """Let a paused owner go on with what became ready meanwhile."""
        owner.is_paused = False
        self._ready.extend(owner.parked)
        owner.parked.clear()

    # --- ends -------------------------------------------------------------------------------------

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep what a callback raised, unless its owner is dead.

        Futures that end unheard are told of when they are collected, which no seed decides;
        `unretrieved` looks at the tasks among them.
        """
        owner = self._current
        if not self._is_closed and "future" not in context and (owner is None or not owner.is_dead):
            self.faults.append((owner, context))

    def unretrieved(self) -> list[BaseException]:
        """Give the errors of ended tasks that nobody looked at, dead owners' aside."""
        found = []
        for task in self._tasks:
            if task.done() and not task.cancelled() and task._log_traceback:
                error = task.exception()
                if error is not None and (task.owner is None or not task.owner.is_dead):
                    found.append(error)
        return found

    def close(self) -> None:
        """Dispose of every task that is left; nothing of it is scheduled any more.

        What such a coroutine does while it unwinds is the affair of whoever owns it: the store and
        the ledger of a dead process refuse it.
        """
        self._is_closed = True
        self._ready.clear()
        self._timers.clear()
        asyncio._set_running_loop(self)
        try:
            for task in self._tasks:  # grows while tasks that unwind make more
                if task.done():
                    task._log_traceback = False
                    continue
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                coroutine: Any = task.get_coro()
                for _ in range(CLOSES_MAX):
                    with contextlib.suppress(BaseException):
                        coroutine.close()
                        break
        finally:
            asyncio._set_running_loop(None)
        self._tasks.clear()

    def is_running(self) -> bool:
        """Say whether this is the running loop."""
        return asyncio._get_running_loop() is self

    def is_closed(self) -> bool:
        """Say whether it was closed."""
        return self._is_closed

    def get_debug(self) -> bool:
        """Say no: asyncio's debug mode looks at the real clock."""
        return False


def new_loop(seed: int | str) -> SimLoop:
    """Give a loop; sockets, signals, processes and threads are not in it."""
    return SimLoop(seed)  # type: ignore[abstract]
