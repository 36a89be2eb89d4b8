"""Threads for plain functions: a bounded pool that keeps its capacity.

Python cannot stop a thread, so a body that runs past its time-out is abandoned; its thread is
then no longer counted and another takes its place, or time-outs would slowly eat the pool (B088).
"""

from __future__ import annotations

import _thread
import asyncio
import contextvars
import queue
import sys
import threading
from collections.abc import Callable
from typing import Any

from onceward.core import errors

GREENLETS = ("gevent", "eventlet")
"""Packages that put their own threads in place of Python's; a debugger does so too, and its threads run."""


class NotBegun(Exception):
    """A job's thread came too late: what it was to run may not begin any more."""


class _Job:
    __slots__ = (
        "args",
        "context",
        "function",
        "future",
        "is_abandoned",
        "is_begun",
        "is_done",
        "kwargs",
        "loop",
        "may_begin",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        may_begin: Callable[[], bool] | None,
    ) -> None:
        self.may_begin = may_begin
        self.loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()
        self.function = function
        self.args = args
        self.kwargs = kwargs
        self.context = contextvars.copy_context()
        self.is_begun = False
        self.is_done = False
        self.is_abandoned = False


class Threads:
    """Runs plain functions for one event loop.

    Args:
        count: how many may run at once.
        name: for the threads' names.
    """

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._name = name
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._alive = 0  # threads that count: not stuck in an abandoned body
        self._busy = 0  # jobs handed in that somebody still waits for

    async def run(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        may_begin: Callable[[], bool] | None = None,
    ) -> Any:
        """Run *function* in a thread with this task's context and give its result.

        When the waiting task is cancelled the body goes on, abandoned; its result is dropped.

        Args:
            function: what to run.
            args: its arguments.
            kwargs: its arguments by name.
            may_begin: asked in the thread, right before: a job can wait long for a free one.

        Raises:
            NotBegun: *may_begin* said no.
        """
        job = _Job(asyncio.get_running_loop(), function, args, kwargs, may_begin)
        with self._lock:
            self._busy += 1
            self._fill()
        self._jobs.put(job)
        try:
            return await job.future
        except asyncio.CancelledError:
            with self._lock:
                if not job.is_abandoned and not job.is_done:
                    job.is_abandoned = True
                    self._busy -= 1
                    self._alive -= job.is_begun
                    self._fill()  # a job may wait for the thread that is stuck
            raise

    def _fill(self) -> None:
        if self._busy > self._alive and self._alive < self._count:
            self._alive += 1
            threading.Thread(target=self._work, name=self._name, daemon=True).start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            with self._lock:
                if job.is_abandoned:
                    continue
                job.is_begun = True
            result, error = None, None
            try:
                if job.may_begin is not None and not job.may_begin():
                    raise NotBegun
                result = job.context.run(job.function, *job.args, **job.kwargs)
            except BaseException as caught:  # noqa: BLE001 - handed to the waiting task, whatever it is
                error = caught
            with self._lock:
                job.is_done = True
                if not job.is_abandoned:
                    self._busy -= 1
                elif self._alive < self._count:
                    self._alive += 1
                else:
                    return  # another thread took this one's place
            self._deliver(job, result, error)
            del job, result, error

    def _deliver(self, job: _Job, result: Any, error: BaseException | None) -> None:
        call_on(job.loop, _settle, job.future, result, error)

    def close(self) -> None:
        """Let idle threads end."""
        for _ in range(self._count):
            self._jobs.put(None)


def call_on(loop: asyncio.AbstractEventLoop, call: Callable[..., object], *args: Any) -> bool:
    """Call something on an event loop soon, from any thread; False when the loop is closed.

    Whoever closes a loop without closing the app leaves threads behind, and nobody waits for them.
    """
    try:
        loop.call_soon_threadsafe(call, *args)
    except RuntimeError:  # it is raised for nothing else
        return False
    return True


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    elif isinstance(error, (StopIteration, GeneratorExit)):
        # Thrown into a coroutine they would mean that it is over.
        future.set_exception(RuntimeError(f"the function raised {type(error).__name__}"))
    else:
        future.set_exception(error)


def refuse_without_threads() -> None:
    """Refuse where a thread of this process would stand still while others work or wait.

    Raises:
        ConfigError: gevent or eventlet patched threads, or uWSGI runs without them.
    """
    package = str(getattr(_thread.start_new_thread, "__module__", "")).partition(".")[0]
    if package in GREENLETS:
        raise errors.ConfigError(
            f"The threads of this process are greenlets: {package} has put its own in their place.",
            means="The app lives in a thread, which would stand still; nothing was opened.",
            todo="Use a server with threads, such as gunicorn --threads 8, or do not patch threads.",
        )
    if not getattr(sys.modules.get("uwsgi"), "has_threads", True):
        raise errors.ConfigError(
            "uWSGI runs without threads in Python.",
            means="The app lives in a thread, which would stand still between requests; nothing was opened.",
            todo="Start uWSGI with --enable-threads.",
        )
