"""One look at the store for everybody who asks the same at the same time.

Pages that watch ask for the same overview whenever something changes, each of them. Nobody is told what
was looked up before they asked: who comes while a look is under way shares the next one. So there are
never more than two looks for one question, however many watch, and nothing is ever old.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")


class Together:
    """Joins questions; of one event loop."""

    def __init__(self) -> None:
        self._under_way: dict[Hashable, asyncio.Task[Any]] = {}
        self._next: dict[Hashable, asyncio.Task[Any]] = {}

    async def ask(self, question: Hashable, look: Callable[[], Awaitable[T]]) -> T:
        """Give what a look gives that begins after this was asked.

        Args:
            question: what tells it from others.
            look: answers it.

        Raises:
            Exception: what the look raised.
        """
        task = self._next.get(question)
        if task is None:
            task = asyncio.create_task(self._turn(question, self._under_way.get(question), look))
            task.add_done_callback(_heard)
            self._next[question] = task
        # Who asked may go away; the others still wait for it.
        found: T = await asyncio.shield(task)
        return found

    async def _turn(
        self, question: Hashable, before: asyncio.Task[Any] | None, look: Callable[[], Awaitable[T]]
    ) -> T:
        if before is not None:
            await asyncio.wait([before])
        task = self._under_way[question] = self._next.pop(question)
        try:
            return await look()
        finally:
            if self._under_way.get(question) is task:
                del self._under_way[question]


def _heard(task: asyncio.Task[Any]) -> None:
    """Take note of an error, so that the loop does not complain where everybody who asked went away."""
    if not task.cancelled():
        task.exception()
