"""An event loop for a user's app in a test: real sockets and threads, and time that jumps.

`onceward.testing.loop` simulates everything and has neither. Here a body may use both: as long as
a thread of the app works, time stands still; where others' sockets or threads are about, they get a
moment of real time before it jumps. Time only goes on when the test lets it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import selectors
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from onceward.authoring.current import frame_var

T = TypeVar("T")

WORKING_S = 0.5
"""How long the loop waits for a working thread before it looks again; the thread wakes it at once."""

PATIENCE_S, PATIENCE_ROUNDS = 0.05, 20
"""How long the loop waits for a thread to which it gave the word, in real time. In rounds, since a process
that is stopped for a while loses one of them only."""

FOREIGN_S, FOREIGN_ROUNDS = 0.005, 4
"""Real time that sockets and threads that are not the app's get before time jumps, in rounds."""

BODY_S, BODY_ROUNDS = 0.02, 25
"""The same while the body of a step runs that does not sleep: it waits for such a socket or thread."""

REPLY_S, REPLY_ROUNDS = 0.1, 20
"""The same while a transaction of the app's waits for its database."""

PASSED_OVER_MAX = 1_000
"""After so many turns of the loop sockets are looked at although others have something to do: it may be
a loop that waits for them."""

UNWIND_S = 2.0
"""Real time that transactions of a life that is over get for their end."""

UNWIND_ROUNDS = 3
"""How often tasks are cancelled when a life ends, before they are thrown away."""

CLOSES_MAX = 20

SLEEPS = "_set_result_unless_cancelled"
"""What the timer of `asyncio.sleep` calls."""

OUR_THREADS = ("onceward-", "asyncio_")


class Stuck(RuntimeError):
    """Nothing is ready and nothing will be: what is awaited never comes."""


class _Turn:
    """One thread's turn: it runs while the loop waits, until it ends or asks the loop for something."""

    def __init__(self) -> None:
        self.may_begin = threading.Event()
        self.is_ending = False  # its function has returned, and the loop hears of it next
        self.answered = 0
        self._asked = 0
        self._is_over = False
        self._changed = threading.Condition()

    def ask(self) -> None:
        """Say that the thread asked for something, and may wait for it now."""
        with self._changed:
            self._asked += 1
            self._changed.notify_all()

    def stop(self) -> None:
        """Say that the thread is through."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def wait(self, answered: int) -> None:
        """Wait until the thread is through, or has asked for more than it was answered."""
        self.answered = answered
        with self._changed:
            for _ in range(PATIENCE_ROUNDS):
                if self._changed.wait_for(lambda: self._is_over or self._asked > answered, PATIENCE_S):
                    return


class _Selector(selectors.DefaultSelector):
    """Asks the loop before it waits."""

    loop: VirtualLoop
    _passed_over = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Give the sockets that are ready; never waits for time to pass."""
        if timeout is not None and timeout <= 0 and self.loop.has_replies_due():
            # All else first, so that it makes no difference how soon a database answers.
            self._passed_over += 1
            if self._passed_over % PASSED_OVER_MAX:
                return []
        found = super().select(0)
        if found or (timeout is not None and timeout <= 0):
            return found
        if self.loop.working > 0:
            return super().select(WORKING_S)
        seconds, rounds = self.loop.patience()
        for _ in range(rounds):
            found = super().select(seconds)
            if found:
                return found
        self.loop.fell_quiet()
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose time is virtual.

    Args:
        seconds: where its time begins.

    Attributes:
        working: threads of the app that run now and do not wait for this loop.
        on_still: called when nothing goes on, before that counts as quiet: it may find something.
        has_replies_due: whether somebody talks with a database, which answers soon, in real time.
        has_bodies: whether the body of a step runs.
    """

    def __init__(self, seconds: float = 0.0) -> None:
        self._now = seconds
        self.working = 0
        self.on_still: Callable[[], None] = lambda: None
        self.has_replies_due: Callable[[], bool] = lambda: False
        self.has_bodies: Callable[[], bool] = lambda: False
        self._is_asked = False  # `on_still` was called since time last went on
        self._quiet: asyncio.Future[None] | None = None
        self._turns: dict[int, _Turn] = {}  # by thread that runs code of the app
        self._waiting: set[_Turn] = set()  # those that may not begin yet
        self._blocked = 0  # of these, those that wait for this loop
        self._made: asyncio.Task[Any] | None = None
        self._is_cut = False
        self._left: set[asyncio.Task[Any]] = set()
        self._is_noting = False
        self._threads_before = set(threading.enumerate())
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)
        # A nanosecond is lost in a float that counts seconds for half a year: a timer would never be due.
        self._clock_resolution = 1e-6
        self.set_exception_handler(lambda _loop, _context: None)  # what a dead life raises is its own

    def time(self) -> float:
        """Give virtual seconds."""
        return self._now

    # --- time ---------------------------------------------------------------------------------

    async def quiet(self) -> None:
        """Return when nothing goes on without time going on."""
        self._is_asked = False
        self._quiet = self.create_future()
        await self._quiet

    def fell_quiet(self) -> None:
        """Hear from the selector that nothing is ready."""
        if not self._is_asked:
            self._is_asked = True
            self.on_still()
            return
        quiet, self._quiet = self._quiet, None
        if quiet is not None and not quiet.done():
            quiet.set_result(None)
        elif not self.jump():
            raise Stuck(f"nothing is ready and nothing is scheduled at {self._now:.3f} s")

    def next_at(self) -> float | None:
        """Give when the next timer fires."""
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        return min((timer.when() for timer in timers if not timer.cancelled()), default=None)

    def jump(self, until: float | None = None) -> bool:
        """Let time go on to the next timer, or to *until* if that is sooner; False where there is none."""
        at = self.next_at()
        if at is None and until is None:
            return False
        at = min(time for time in (at, until) if time is not None)
        self._now = max(self._now, at)
        self._is_asked = False
        return True

    def patience(self) -> tuple[float, int]:
        """Give how long to wait in real time before time jumps: seconds of a round, and rounds."""
        if not self.has_foreign():
            return 0.0, 0
        if self.has_replies_due():
            return REPLY_S, REPLY_ROUNDS
        if self.has_bodies() and not self._has_sleepers():
            return BODY_S, BODY_ROUNDS
        return FOREIGN_S, FOREIGN_ROUNDS

    def _has_sleepers(self) -> bool:
        """Say whether somebody sleeps in the body of a step, by `asyncio.sleep`."""
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        return any(
            not timer.cancelled()
            and getattr(timer._callback, "__name__", "") == SLEEPS  # type: ignore[attr-defined]
            and timer._context.get(frame_var) is not None  # type: ignore[attr-defined]
            for timer in timers
        )

    def has_foreign(self) -> bool:
        """Say whether sockets or threads are about that are not the app's own."""
        if len(self._selector.get_map()) > 1:  # type: ignore[attr-defined]  # one is the loop's own
            return True
        return any(
            thread not in self._threads_before and not thread.name.startswith(OUR_THREADS)
            for thread in threading.enumerate()
        )

    # --- threads ------------------------------------------------------------------------------

    def lent(self, function: Callable[..., T]) -> Callable[..., T]:
        """Give *function* as it is to run in a thread: alone, while this loop waits for it.

        So what happens has one order, and a seed decides it. A function that takes long, or waits
        for what this loop has to do, goes on beside it after `PATIENCE_S`.
        """
        turn = _Turn()
        self.call_soon(self._let, turn, 0, context=contextvars.Context())
        self._waiting.add(turn)

        def call(*args: Any, **kwargs: Any) -> T:
            ident = threading.get_ident()
            self._turns[ident] = turn
            try:
                turn.may_begin.wait()
                if self._is_cut:
                    raise concurrent.futures.CancelledError
                return function(*args, **kwargs)
            finally:
                turn.is_ending = True

        return call

    def _let(self, turn: _Turn, asked: int) -> None:
        self._waiting.discard(turn)
        turn.may_begin.set()
        turn.wait(asked)

    def run_in_executor(  # type: ignore[override]  # of a function with any arguments
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Run *func* in a thread; time stands still meanwhile."""
        future: asyncio.Future[T] = super().run_in_executor(executor, self.lent(func), *args)
        self.working += 1
        future.add_done_callback(self._is_back)
        return future

    def _is_back(self, _future: asyncio.Future[Any]) -> None:
        self.working -= 1

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """Run *callback* soon; a thread of the app that asks for a coroutine waits for it."""
        turn = self._turns.get(threading.get_ident())
        if turn is not None and turn.is_ending:
            # Only now, or the next thread's result could come first.
            del self._turns[threading.get_ident()]
            try:
                return self.call_soon_threadsafe(callback, *args, context=context)
            finally:
                turn.stop()
        if self.is_closed():  # a thread of a dead life, which hears nothing any more
            return asyncio.Handle(callback, args, self, context)
        if turn is None:
            return super().call_soon_threadsafe(callback, *args, context=context)
        handle = super().call_soon_threadsafe(self._asked, turn, callback, args, context=context)
        turn.ask()
        return handle

    @property
    def running(self) -> int:
        """Give how many threads run code of the app and do not wait for this loop."""
        return len(self._turns) - self._blocked

    def _asked(self, turn: _Turn, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._is_noting, self._made = True, None
        try:
            callback(*args)
        finally:
            self._is_noting = False
        if self._made is not None:  # `asyncio.run_coroutine_threadsafe`, whose caller blocks
            self.working -= 1
            self._blocked += 1
            self._made.add_done_callback(lambda _: self._answered(turn))

    def _answered(self, turn: _Turn) -> None:
        self.working += 1
        self._blocked -= 1
        turn.wait(turn.answered + 1)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], **options: Any
    ) -> asyncio.Task[T]:
        """Run a coroutine as a task."""
        if self._is_noting and self._is_cut:
            coro.close()
            raise concurrent.futures.CancelledError  # what the thread that asks gets
        if self.is_closed():  # code of a dead life, as its coroutines are collected
            coro.close()
        task: asyncio.Task[T] = super().create_task(coro, **options)
        if self._is_noting:
            self._is_noting, self._made = False, task
        return task

    # --- ends ---------------------------------------------------------------------------------

    def cut(self) -> None:
        """Run nothing more of what is ready or scheduled, and stop; who waits in a thread is told."""
        self._is_cut = True
        self._left = asyncio.all_tasks(
            self
        )  # held, or one that never began would be collected with a warning
        handles: list[asyncio.Handle] = [*self._ready, *self._scheduled]  # type: ignore[attr-defined]
        for handle in handles:
            if handle._callback != self._asked:  # type: ignore[attr-defined]
                handle.cancel()
        for turn in self._waiting:
            turn.may_begin.set()
        self.stop()

    def turn(self) -> None:
        """Run what is ready, once."""
        self.call_soon(self.stop)
        self.run_forever()

    def finish(self, main: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine that ends soon in real time, after everything else."""
        self.has_replies_due = lambda: True
        self.on_still = lambda: None
        with contextlib.suppress(Exception):
            self.run_until_complete(main)

    def unwind(self) -> None:
        """Throw away what is left; threads that wait for it go on."""
        for _ in range(UNWIND_ROUNDS):
            tasks = asyncio.all_tasks(self)
            if not tasks:
                break
            for task in tasks:
                task.cancel()
            for _ in range(UNWIND_ROUNDS):
                self.turn()
        self._roll_back()
        thrown: set[asyncio.Task[Any]] = set()
        for _ in range(CLOSES_MAX):  # a coroutine that is closed may make more
            left = asyncio.all_tasks(self) - thrown
            if not left:
                break
            thrown |= left
            for task in left:  # cut off before they began, or they refuse to end
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                coroutine: Any = task.get_coro()
                with contextlib.suppress(BaseException):
                    coroutine.close()
        self._left.clear()

    def _roll_back(self) -> None:
        """Let transactions that were cancelled hear from their databases that they are rolled back."""
        until = time.monotonic() + UNWIND_S
        while self.has_replies_due() and self.has_foreign() and time.monotonic() < until:
            selectors.DefaultSelector.select(self._selector, REPLY_S)  # type: ignore[attr-defined]
            self.turn()
