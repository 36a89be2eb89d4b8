"""Sleepers that are due together, and processes that die while they wake them: each goes on, once (B032, B085)."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import pytest

from onceward import RunState
from tests.helpers import eventually_async
from tests.lifecycle.checks import check
from tests.lifecycle.procs import Nursery

COUNT, AT_ONCE = 503, 32
SETTINGS: dict[str, Any] = {"lease": "1s", "poll": "50ms", "concurrency": AT_ONCE}

KILLS = (
    ("claim.before_commit:kill:2", "claim.after_commit:kill:1"),
    ("load.after_claim:kill:1", "step.before_body:kill:40"),
    ("save.before_commit:kill:2", "save.after_commit:kill:3"),
    ("end.before_commit:kill:1", "end.after_commit:kill:2"),
)


@pytest.mark.parametrize("kills", KILLS, ids=lambda kills: " and ".join(kill.split(":")[0] for kill in kills))
async def test_none_is_lost_and_none_goes_on_twice(nursery: Nursery, kills: tuple[str, ...]) -> None:
    settles = nursery.fork(**SETTINGS)
    async with nursery.client(**SETTINGS) as shop:
        # So long that the first cannot go on before the last sleeps, however slow the machine is.
        await asyncio.gather(*(shop.app.start(shop["napper"], 3_600.0, id=str(n)) for n in range(COUNT)))

        async def sleep() -> bool:
            rows = await shop.app.runs(limit=1_000)
            return [row.state for row in rows] == [RunState.SLEEPING] * COUNT

        await eventually_async(sleep, 90, what="all sleep")
        settles.signal(signal.SIGTERM)
        assert settles.wait() == 0, nursery.logs()
        nursery.let_due(shop.app.worker.now_ms())

        for failpoint in kills:
            assert nursery.fork(failpoint=failpoint, **SETTINGS).wait() == -signal.SIGKILL, nursery.logs()
        for _ in range(2):
            nursery.fork(**SETTINGS)

        async def ended() -> bool:
            rows = await shop.app.runs(limit=1_000)
            return [row.state for row in rows] == [RunState.COMPLETED] * COUNT

        await eventually_async(ended, 60, what="all went on")
        assert len({line.run_id for line in shop.ledger.lines(step="woken", what="start")}) == COUNT
    check(nursery.store, nursery.ledger, kills=len(kills), width=AT_ONCE)
