"""Questions that are asked at the same time share a look, and nobody is told what is older than the question."""

from __future__ import annotations

import asyncio

import pytest

from onceward import StoreUnavailable
from onceward.console.together import Together


class Looks:
    """Looks that end when they are told to; each gives its number."""

    def __init__(self) -> None:
        self.begun: list[asyncio.Future[None]] = []
        self._moved = asyncio.Event()

    async def __call__(self) -> int:
        self.begun.append(asyncio.get_running_loop().create_future())
        number = len(self.begun)
        self._moved.set()
        await self.begun[-1]
        return number

    async def until(self, count: int) -> None:
        while len(self.begun) < count:
            self._moved.clear()
            await self._moved.wait()


@pytest.mark.anyio
async def test_who_comes_while_a_look_is_under_way_shares_the_next_one() -> None:
    together, looks = Together(), Looks()
    first = asyncio.create_task(together.ask("counts", looks))
    await looks.until(1)
    later = [asyncio.create_task(together.ask("counts", looks)) for _ in range(50)]
    other = asyncio.create_task(together.ask("overview", looks))
    await looks.until(2)

    looks.begun[0].set_result(None)
    await looks.until(3)
    for look in looks.begun[1:]:
        look.set_result(None)

    assert (await first, await other) == (1, 2)
    assert await asyncio.gather(*later) == [3] * 50
    assert len(looks.begun) == 3


@pytest.mark.anyio
async def test_who_goes_away_takes_nothing_from_the_others() -> None:
    together, looks = Together(), Looks()
    gone, there = (asyncio.create_task(together.ask("counts", looks)) for _ in range(2))
    await looks.until(1)
    gone.cancel()
    looks.begun[0].set_result(None)

    assert await there == 1
    with pytest.raises(asyncio.CancelledError):
        await gone


@pytest.mark.anyio
async def test_a_look_that_fails_fails_for_all_who_shared_it_and_for_nobody_later() -> None:
    together, looks = Together(), Looks()
    both = [asyncio.create_task(together.ask("counts", looks)) for _ in range(2)]
    await looks.until(1)
    looks.begun[0].set_exception(StoreUnavailable("It is away."))
    told = await asyncio.gather(*both, return_exceptions=True)
    after = asyncio.create_task(together.ask("counts", looks))
    await looks.until(2)
    looks.begun[1].set_result(None)

    assert [str(error).split(".")[0] for error in told] == ["It is away"] * 2
    assert await after == 2
