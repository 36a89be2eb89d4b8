"""A time limit for many tasks at once that costs those who keep it next to nothing.

``asyncio.timeout`` sets and clears a timer each time, which is a few percent of accepting a
delivery. Here all tasks share one limit, so the first to begin is the first to run out, and one
timer for the oldest serves them all.
"""

from __future__ import annotations

import asyncio
from typing import Any


class Cutoff:
    """Cancels a task that stays inside longer than the limit.

    Use it as `begin`, then `end` in a ``finally``; on `asyncio.CancelledError` ask `cut_off` whether
    the limit was the reason. It serves one event loop at a time.

    Args:
        seconds: the limit, the same for everyone.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        # In the order of beginning, which is the order of running out.
        self._due: dict[asyncio.Task[Any], float] = {}
        self._cut: set[asyncio.Task[Any]] = set()

    def begin(self) -> asyncio.Task[Any]:
        """Start the clock of the current task and give that task."""
        task = asyncio.current_task()
        assert task is not None
        assert task not in self._due, "a task begins once before it ends"
        loop = task.get_loop()
        if loop is not self._loop:
            # A new loop, after the former one was closed with its timer.
            self._loop, self._timer = loop, None
            self._due.clear()
        self._due[task] = loop.time() + self._seconds
        if self._timer is None:
            self._timer = loop.call_later(self._seconds, self._sweep)
        return task

    def end(self, task: asyncio.Task[Any]) -> None:
        """Stop the clock of *task*."""
        self._due.pop(task, None)
        self._cut.discard(task)

    def cut_off(self, task: asyncio.Task[Any]) -> bool:
        """Say whether the limit alone cancelled *task*, and take that cancellation back if so."""
        # A cancellation from elsewhere, such as the server's shutdown, must still get through.
        return task in self._cut and task.uncancel() == 0

    def _sweep(self) -> None:
        loop = self._loop
        assert loop is not None
        now = loop.time()
        while self._due:
            task, due = next(iter(self._due.items()))
            if due > now:
                self._timer = loop.call_at(due, self._sweep)
                return
            del self._due[task]
            self._cut.add(task)
            task.cancel()
        self._timer = None
