"""Sources that may wait for the network, away from the event loop and within bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

R = TypeVar("R")

THREADS_MAX = 8
WAITING_MAX = 64
"""Calls that run or wait for a thread; beyond it the sender is asked to come again."""


class TooSlow(Exception):
    """A source did not answer in time, or too many calls wait already."""


class Aside:
    """Runs calls of blocking sources in a few threads of their own.

    Args:
        seconds_max: how long one may take, its wait for a thread included.
    """

    def __init__(self, seconds_max: float) -> None:
        self._seconds_max = seconds_max
        self._pool: ThreadPoolExecutor | None = None
        self._waiting = 0

    async def call(self, function: Callable[..., R], *args: Any) -> R:
        """Give what *function* gives.

        Raises:
            TooSlow: it goes on in its thread and nobody hears of it.
        """
        if self._waiting >= WAITING_MAX:
            raise TooSlow(f"{self._waiting} calls wait already")
        if self._pool is None:
            self._pool = ThreadPoolExecutor(THREADS_MAX, "onceward-source")
        loop = asyncio.get_running_loop()
        future = self._pool.submit(function, *args)
        self._waiting += 1
        future.add_done_callback(lambda done: _tell(loop, self._done, done))
        try:
            async with asyncio.timeout(self._seconds_max):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            if future.done() and not future.cancelled():
                raise  # its own
            raise TooSlow(f"no answer in {self._seconds_max:g} s") from None

    def _done(self, _: Future[Any]) -> None:
        self._waiting -= 1


def _tell(loop: asyncio.AbstractEventLoop, function: Callable[..., None], future: Future[Any]) -> None:
    try:
        loop.call_soon_threadsafe(function, future)
    except RuntimeError:  # the loop is closed
        return
