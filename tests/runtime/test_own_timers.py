"""Which timers are those of a run's code."""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from typing import Any, cast

from onceward.runtime import own_timers


class Handle:
    """One of something else, while which is looked at a thread of the store makes another."""

    def __init__(self, ready: deque[Handle]) -> None:
        self._context = contextvars.Context()
        self.ready = ready

    def cancelled(self) -> bool:
        self.ready.append(self)
        return False


class Loop:
    """An event loop, as far as it is looked into."""

    def __init__(self) -> None:
        self._ready: deque[Handle] = deque()
        self._ready.extend([Handle(self._ready), Handle(self._ready)])


def test_a_callback_that_a_thread_adds_meanwhile_does_not_end_the_look() -> None:
    loop = cast("asyncio.AbstractEventLoop", Loop())

    assert own_timers.earliest(loop, cast("Any", object())) is None


def test_a_loop_that_does_not_show_its_timers_has_none() -> None:
    loop = cast("asyncio.AbstractEventLoop", object())

    assert own_timers.earliest(loop, cast("Any", object())) is None
