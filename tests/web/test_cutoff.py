"""The shared time limit: who stays too long is cancelled, nobody else is. Time jumps here."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

from onceward.web.cutoff import Cutoff

T = TypeVar("T")


class JumpingLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer instead of waiting for it."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(JumpingSelector(self))

    def time(self) -> float:
        return self.now


class JumpingSelector(selectors.SelectSelector):
    def __init__(self, loop: JumpingLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._loop.now += timeout or 0
        return super().select(0)


def run(scenario: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(scenario)


async def inside(cutoff: Cutoff, seconds: float) -> str:
    task = cutoff.begin()
    loop = asyncio.get_running_loop()
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        if not cutoff.cut_off(task):
            raise
        return f"cut off at {loop.time():.1f}, {task.cancelling()} cancellations left"
    finally:
        cutoff.end(task)
    return f"done at {loop.time():.1f}"


def test_each_is_cut_off_after_its_own_time_and_the_quick_ones_are_not() -> None:
    async def scenario() -> list[str]:
        cutoff = Cutoff(3.0)
        first = asyncio.create_task(inside(cutoff, 100))
        quick = asyncio.create_task(inside(cutoff, 1))
        await asyncio.sleep(2)
        late = asyncio.create_task(inside(cutoff, 100))
        together = await asyncio.gather(first, quick, late)
        return [*together, await inside(cutoff, 2.9), await inside(cutoff, 100)]

    left = "0 cancellations left"
    assert run(scenario()) == [
        f"cut off at 3.0, {left}",
        "done at 1.0",
        f"cut off at 5.0, {left}",
        "done at 7.9",
        f"cut off at 10.9, {left}",
    ]


def test_many_share_one_timer() -> None:
    async def scenario() -> int:
        cutoff = Cutoff(3.0)
        timers = 0
        loop = asyncio.get_running_loop()
        for _ in range(1_000):
            task = cutoff.begin()
            timers = max(timers, len(loop._scheduled))  # type: ignore[attr-defined]
            cutoff.end(task)
        return timers

    assert run(scenario()) == 1


def test_a_cancellation_from_elsewhere_gets_through_even_when_the_limit_strikes_too() -> None:
    async def scenario() -> list[bool]:
        cutoff = Cutoff(3.0)
        before = asyncio.create_task(inside(cutoff, 100))
        both = asyncio.create_task(inside(cutoff, 100))
        await asyncio.sleep(0)
        before.cancel()
        # In the same turn of the loop as the limit, before the task can wake.
        asyncio.get_running_loop().call_at(cutoff._due[both], both.cancel)
        await asyncio.wait([before, both], timeout=50)
        return [before.cancelled(), both.cancelled()]

    assert run(scenario()) == [True, True]
