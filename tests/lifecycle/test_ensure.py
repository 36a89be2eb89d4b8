"""A process dies between an effect and its save: what is looked for is there once, what has a key has one."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import Any

import pytest

from onceward import RunState
from tests.helpers import eventually_async
from tests.lifecycle.checks import check
from tests.lifecycle.procs import Nursery
from tests.lifecycle.scenarios import WITHIN_S, N, start
from tests.lifecycle.shop import MEMORY_MS, Shop


@pytest.mark.parametrize(("nth", "tickets", "payments"), [(1, 1, 1), (2, 1, 2)])
def test_a_kill_between_the_effect_and_the_save(
    nursery: Nursery, nth: int, tickets: int, payments: int
) -> None:
    """The payment, which nobody looks for, is made twice, both times with one key."""
    settings: dict[str, Any] = {} if nursery.is_sqlite else {"instance": "shop"}
    first = nursery.fork("ensured", failpoint=f"step.after_body:kill:{nth}", **settings)
    assert first.wait() == -signal.SIGKILL, nursery.logs()

    assert nursery.fork("ensured", **settings).wait() == 0, nursery.logs()

    made = Shop("sqlite:///:memory:", nursery.ledger).made()
    assert [what for what, _ in made] == [f"ticket-{N}"] * tickets + [f"payment-{N}"] * payments
    assert len(set(made)) == 2
    assert all(key.startswith("ow_") for _, key in made)
    check(nursery.store, nursery.ledger, kills=1, width=1)


@pytest.mark.parametrize("killed_at", ["", "end.before_commit", "end.after_commit"])
async def test_a_payment_whose_key_is_forgotten_is_held(nursery: Nursery, killed_at: str) -> None:
    """Also when the process dies that holds the run: nobody answered, so nothing is sent."""
    settings: dict[str, Any] = {} if nursery.is_sqlite else {"instance": "shop"}
    async with nursery.client() as shop:
        run = await start(shop, "forgotten", N)
        await killed(nursery, "step.after_body", settings)
        begun_ms = shop.ledger.lines(what="start")[0].at_ms

        async def is_forgotten() -> bool:
            return time.time() * 1000 > begun_ms + MEMORY_MS + 100

        await eventually_async(is_forgotten)
        if killed_at:
            await killed(nursery, killed_at, settings)
        last = nursery.fork(**settings)

        async def is_held() -> bool:
            return await run.state() is RunState.HELD

        await eventually_async(is_held, WITHIN_S)
        assert "the key of step 'payment' may be forgotten" in str((await run.row()).reason)
        assert shop.ledger.starts("payment") == 1
        await run.answer("retry")
        assert await run.result(WITHIN_S) == f"payment-{N}"
        assert [what for what, _ in shop.made()] == [f"payment-{N}"] * 2
        assert len(set(shop.made())) == 1
        last.signal(signal.SIGTERM)
        assert await asyncio.to_thread(last.wait) == 0
    check(nursery.store, nursery.ledger, kills=2, width=1)


async def killed(nursery: Nursery, failpoint: str, settings: dict[str, Any]) -> None:
    child = nursery.fork(failpoint=f"{failpoint}:kill:1", **settings)
    assert await asyncio.to_thread(child.wait) == -signal.SIGKILL, nursery.logs()
