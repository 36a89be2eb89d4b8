"""The simulated event loop: time jumps, owners take turns by the seed, the dead run nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import copy_context
from typing import Any

import pytest

from onceward.testing.clock import EPOCH_MS, FakeClock, SeededEntropy
from onceward.testing.loop import Deadlock, Owner, SimLoop, Spinning, owner_var


def spawn(loop: SimLoop, owner: Owner, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    context = copy_context()
    context.run(owner_var.set, owner)
    return loop.create_task(coroutine, context=context)


def test_time_jumps_to_the_next_timer() -> None:
    loop, woken = SimLoop(1), []

    async def main() -> None:
        async def sleep(seconds: float) -> None:
            await asyncio.sleep(seconds)
            woken.append((seconds, loop.time()))

        await asyncio.gather(sleep(86_400), sleep(0.5), sleep(3))

    loop.run_until_complete(main())
    loop.close()

    assert woken == [(0.5, 0.5), (3, 3.0), (86_400, 86_400.0)]


def test_one_owner_keeps_its_order_and_the_seed_mixes_the_owners() -> None:
    def order(seed: int) -> list[str]:
        loop, seen = SimLoop(seed), []

        async def note(name: str) -> None:
            for number in range(3):
                seen.append(f"{name}{number}")
                await asyncio.sleep(0)

        async def main() -> None:
            await asyncio.gather(*(spawn(loop, Owner(name), note(name)) for name in "abc"))

        loop.run_until_complete(main())
        loop.close()
        return seen

    orders = [order(seed) for seed in range(20)]

    assert order(7) == orders[7]
    assert len({tuple(one) for one in orders}) > 5
    for one in orders:
        assert [name for name in one if name[0] == "a"] == ["a0", "a1", "a2"]


def test_what_a_dead_owner_had_under_way_never_goes_on() -> None:
    loop, owner, seen = SimLoop(1), Owner("p"), []

    async def work() -> None:
        try:
            await asyncio.sleep(1)
            seen.append("woke")
        finally:
            seen.append("unwound")

    async def main() -> None:
        spawn(loop, owner, work())
        await asyncio.sleep(0.5)
        owner.is_dead = True
        await asyncio.sleep(5)
        assert seen == []

    loop.run_until_complete(main())
    loop.close()

    assert seen == ["unwound"], "closing the loop throws it away"


def test_a_paused_owner_goes_on_late() -> None:
    loop, owner, seen = SimLoop(1), Owner("p"), []

    async def work() -> None:
        await asyncio.sleep(1)
        seen.append(loop.time())

    async def main() -> None:
        spawn(loop, owner, work())
        await asyncio.sleep(0.5)
        owner.is_paused = True
        await asyncio.sleep(5)
        loop.resume(owner)
        await asyncio.sleep(0.1)

    loop.run_until_complete(main())
    loop.close()

    assert seen == [5.5]


def test_waiting_for_nothing_is_an_error() -> None:
    loop = SimLoop(1)

    async def main() -> None:
        await loop.create_future()

    with pytest.raises(Deadlock, match="nothing is scheduled"):
        loop.run_until_complete(main())
    loop.close()


def test_spinning_without_time_going_on_is_an_error() -> None:
    loop = SimLoop(1)

    async def main() -> None:
        while True:  # noqa: ASYNC110 - a spin is what is to be found
            await asyncio.sleep(0)

    with pytest.raises(Spinning):
        loop.run_until_complete(main())
    loop.close()


def test_what_a_callback_raises_is_kept() -> None:
    loop = SimLoop(1)

    async def main() -> None:
        loop.call_soon(lambda: 1 / 0)
        await asyncio.sleep(1)

    loop.run_until_complete(main())
    loop.close()

    ((owner, context),) = loop.faults
    assert owner is None
    assert isinstance(context["exception"], ZeroDivisionError)


def test_errors_of_tasks_that_nobody_awaited_are_found() -> None:
    loop = SimLoop(1)

    async def fail() -> None:
        raise ValueError("nobody looked")

    async def main() -> None:
        loop.create_task(fail())
        await asyncio.sleep(0)

    loop.run_until_complete(main())

    assert [str(error) for error in loop.unretrieved()] == ["nobody looked"]
    loop.close()


def test_a_fake_clock_goes_with_the_loop_and_can_be_set_wrong() -> None:
    seconds = [0.0]
    clock = FakeClock(lambda: seconds[0], offset_ms=-20)

    assert clock.now_ms() == EPOCH_MS - 20
    seconds[0] = 1.5
    clock.advance(120)
    assert clock.now_ms() == EPOCH_MS + 1_600


def test_seeded_bytes_are_the_seeds() -> None:
    assert SeededEntropy(3).random_bytes(9) == SeededEntropy(3).random_bytes(9)
    assert SeededEntropy(3).random_bytes(9) != SeededEntropy(4).random_bytes(9)
