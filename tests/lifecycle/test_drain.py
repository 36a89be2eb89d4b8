"""A process that is asked to stop: what runs finishes or is given back, and nobody is charged."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import pytest

from onceward import RunState
from tests.helpers import eventually_async
from tests.lifecycle.checks import check
from tests.lifecycle.procs import Nursery
from tests.lifecycle.test_takeover import begun

SETTINGS: dict[str, Any] = {"lease": "1s", "poll": "50ms"}

NEVER_OVER_S = 600.0
"""Longer than a test may take: what ended before it was cut off."""


async def test_a_step_that_ends_within_the_grace_is_saved_and_the_rest_given_back(nursery: Nursery) -> None:
    first = nursery.fork(**SETTINGS, grace="20s")
    async with nursery.client(**SETTINGS) as shop:
        run = await shop.app.start(shop["slow"], 0.5)
        await begun(shop, "long")
        first.signal(signal.SIGTERM)

        assert first.wait() == 0, nursery.logs()
        row = await run.row()
        assert (row.state, row.attempt, row.crashes, row.failures) == (RunState.QUEUED, 1, 0, 0)
        assert [step.name for step in await run.steps()] == ["before", "long"]

        nursery.fork(**SETTINGS)
        assert await run.result("20s") == 0.5
        assert await run.attempts() == []
    check(nursery.store, nursery.ledger, kills=0, width=1)


@pytest.mark.parametrize("workflow", ["slow_once", "slow_once_plain"])
async def test_a_step_longer_than_the_grace_is_cut_off_and_runs_again(
    nursery: Nursery, workflow: str
) -> None:
    first = nursery.fork(**SETTINGS, grace="100ms")
    async with nursery.client(**SETTINGS) as shop:
        run = await shop.app.start(shop[workflow], NEVER_OVER_S)
        await begun(shop, "long")
        first.signal(signal.SIGTERM)

        assert first.wait() == 0, nursery.logs()
        row = await run.row()
        assert (row.state, row.attempt, row.crashes) == (RunState.QUEUED, 1, 0)

        nursery.fork(**SETTINGS)
        assert await run.result("20s") == NEVER_OVER_S
        assert await run.attempts() == []
    check(nursery.store, nursery.ledger, kills=1, width=1)


async def test_ten_rolling_restarts_during_one_step_charge_nothing(nursery: Nursery) -> None:
    """B062: with at most three attempts a run would have failed after three deploys."""
    child = nursery.fork(**SETTINGS, grace="0s")
    async with nursery.client(**SETTINGS) as shop:
        run = await shop.app.start(shop["patient"], 1.5)
        for number in range(10):
            await begun(shop, "long", number + 1)
            child.signal(signal.SIGTERM)
            assert child.wait() == 0, nursery.logs()
            child = nursery.fork(**SETTINGS, grace="0s")

        assert await run.result("30s") == 1.5
        row = await run.row()
        assert (row.attempt, row.failures, row.crashes) == (1, 0, 0)
    assert shop.ledger.starts("long") == 11
    assert shop.ledger.starts("before") == 1


async def test_the_lease_is_renewed_while_a_process_drains(nursery: Nursery) -> None:
    """B023: five leases of step left, another worker idle beside it. One body."""
    settings: dict[str, Any] = {"lease": "500ms"}
    first = nursery.fork(**settings, grace="20s")
    async with nursery.client(**settings) as shop:
        run = await shop.app.start(shop["slow"], 2.5)
        await begun(shop, "long")
        second = nursery.fork(**settings)
        first.signal(signal.SIGTERM)

        assert await run.result("20s") == 2.5
        assert first.wait() == 0, nursery.logs()
    assert [line.pid for line in shop.ledger.lines(step="long", what="start")] == [first.pid]
    assert [line.pid for line in shop.ledger.lines(step="after", what="start")] == [second.pid]


async def test_a_second_signal_ends_at_once_and_is_then_like_a_crash(nursery: Nursery) -> None:
    first = nursery.fork(**SETTINGS, grace="60s")
    async with nursery.client(**SETTINGS) as shop:
        run = await shop.app.start(shop["slow_once"], NEVER_OVER_S)
        await begun(shop, "long")
        first.signal(signal.SIGTERM)

        async def is_draining() -> bool:
            return "draining" in first.text()

        await eventually_async(is_draining, what="the first signal's effect")
        first.signal(signal.SIGTERM)

        assert first.wait() != 0
        nursery.fork(**SETTINGS)
        assert await run.result("20s") == NEVER_OVER_S
        assert [attempt.outcome for attempt in await run.attempts()] == ["lost"]


async def test_a_draining_process_begins_nothing_new(nursery: Nursery) -> None:
    """No claim after the signal, and sleepers are left to others at once."""
    first = nursery.fork(**SETTINGS, grace="20s")
    async with nursery.client(**SETTINGS) as shop:
        long = await shop.app.start(shop["slow"], 1.0)
        napper = await shop.app.start(shop["napper"], 0.3)
        await begun(shop, "long")
        first.signal(signal.SIGTERM)
        late = await shop.app.start(shop["steps"], 1)

        assert first.wait() == 0, nursery.logs()
        assert shop.ledger.starts("woken") == 0
        assert await late.state() is RunState.QUEUED

        nursery.fork(**SETTINGS)
        assert await asyncio.gather(*(run.result("20s") for run in (long, napper, late))) == [
            1.0,
            1,
            [1, 2, 3],
        ]


async def test_a_cancelling_run_stays_so_through_a_drain(nursery: Nursery) -> None:
    """Its clean-up goes on elsewhere; it must never complete."""
    first = nursery.fork(**SETTINGS, grace="0s")
    async with nursery.client(**SETTINGS) as shop:
        run = await shop.app.start(shop["undoing"], 1.0)
        await begun(shop, "work")
        await run.cancel()
        await begun(shop, "undo")
        first.signal(signal.SIGTERM)
        assert first.wait() == 0, nursery.logs()
        assert await run.state() is RunState.CANCELLING

        nursery.fork(**SETTINGS)

        async def is_cancelled() -> bool:
            return await run.state() is RunState.CANCELLED

        await eventually_async(is_cancelled, 20, what="the end")
        assert shop.ledger.starts("never") == 0


@pytest.mark.parametrize("action", ["kill", "pause", "raise", "drop-reply"])
@pytest.mark.parametrize("where", ["before_commit", "after_commit"])
@pytest.mark.parametrize(
    "story", ["steps", "plain", "parallel", "sleeper", "retrier", "parent", "emitter", "race"]
)
def test_a_drain_that_breaks_off(nursery: Nursery, story: str, where: str, action: str) -> None:
    """The run goes on elsewhere, whatever became of the release."""
    from tests.lifecycle.scenarios import SCENARIOS

    settings: dict[str, Any] = {"lease": "400ms", "body_s": 0.04}
    first = nursery.fork(story, mode="drain", grace="0s", failpoint=f"release.{where}:{action}", **settings)
    second = None
    if action == "kill":
        # A run that ended just before the drain leaves nothing to release, and nobody is killed.
        assert first.wait() in (-signal.SIGKILL, 0), nursery.logs()
    elif action == "pause" and first.wait_stopped():
        second = nursery.fork(story, **settings)
        second.has_ended(1.0)
        first.signal(signal.SIGCONT)
    first.wait()

    second = second or nursery.fork(story, **settings)

    assert second.wait() == 0, nursery.logs()
    check(nursery.store, nursery.ledger, kills=1, width=SCENARIOS[story].width)
