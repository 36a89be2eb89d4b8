"""A cancel tells the truth: after its reply only clean-up begins, and the run ends cancelled."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter
from typing import Any

import pytest

from onceward import RunState, RunWasCancelled
from onceward.core.states import Effect
from onceward.core.takeover import CRASH_LIMIT
from tests.helpers import eventually_async
from tests.lifecycle.checks import check, is_campaign
from tests.lifecycle.procs import Nursery
from tests.lifecycle.test_takeover import begun, supervise

SETTINGS: dict[str, Any] = {"poll": "50ms", "lease": "5s"}
RACES = 500 if is_campaign() else 40
QUEUED = 1_000 if is_campaign() else 200


async def test_a_cancel_at_any_moment_lets_nothing_begin_after_its_reply(nursery: Nursery) -> None:
    """B046: a loop of short steps in one process, cancelled from another."""
    nursery.fork(**SETTINGS)
    dice = random.Random(46)
    async with nursery.client(**SETTINGS) as shop:

        async def race(number: int) -> tuple[str, float, Effect]:
            # Every other one is longer than any machine is slow, and cancelled when it runs.
            is_under_way = number % 2 == 1
            run = await shop.app.start(shop["many"], 5_000 if is_under_way else 20, dice.uniform(0.002, 0.02))
            if is_under_way:

                async def has_begun() -> bool:
                    return bool(shop.ledger.lines(run_id=run.run_id))

                await eventually_async(has_begun, 30, what="a run under way")
            await asyncio.sleep(dice.uniform(0, 0.2))
            reply = await run.cancel()
            return run.run_id, time.time() * 1000, reply.effect

        raced = [one for n in range(0, RACES, 8) for one in await asyncio.gather(*map(race, range(n, n + 8)))]

        for run_id, replied_at_ms, effect in raced:
            run = shop.app.run(run_id)
            if effect is Effect.NOTHING:
                assert await run.state() is RunState.COMPLETED
                continue
            with pytest.raises(RunWasCancelled):
                await run.result("20s")
            late = [
                line for line in shop.ledger.lines(run_id=run_id, what="start") if line.at_ms > replied_at_ms
            ]
            assert not late, f"{late} after the reply at {replied_at_ms}"
            if effect is Effect.CANCEL_NOW:
                assert shop.ledger.lines(run_id=run_id) == []
        effects = Counter(effect for _, _, effect in raced)
        assert effects[Effect.BEGIN_CANCEL] > RACES // 4, effects


async def test_runs_cancelled_in_the_queue_while_workers_claim_have_no_body_or_say_so(
    nursery: Nursery,
) -> None:
    """B047: the reply and the ledger agree for every one of them."""
    async with nursery.client(**SETTINGS) as shop:
        runs = [await shop.app.start(shop["many"], 3, 0.03) for _ in range(QUEUED)]
        for _ in range(4):
            nursery.fork(**SETTINGS, concurrency=8)

        replies = []
        for start in reversed(range(0, QUEUED, 20)):  # the workers begin at the other end
            replies += await asyncio.gather(*(run.cancel() for run in reversed(runs[start : start + 20])))

        for reply in replies:
            run = shop.app.run(reply.run_id)
            if reply.effect is Effect.NOTHING:
                assert await run.state() is RunState.COMPLETED
                continue
            with pytest.raises(RunWasCancelled):
                await run.result("30s")
            if reply.effect is Effect.CANCEL_NOW:
                assert shop.ledger.lines(run_id=reply.run_id) == []
        assert {reply.effect for reply in replies} <= {Effect.CANCEL_NOW, Effect.BEGIN_CANCEL, Effect.NOTHING}
        assert any(reply.effect is Effect.CANCEL_NOW for reply in replies)


async def test_every_pending_step_is_cancelled_at_once_and_again_at_the_same_place(nursery: Nursery) -> None:
    """The process dies in the clean-up; the next one goes on with it."""
    first = nursery.fork(**SETTINGS, failpoint="step.before_body@undo[1]:kill")
    async with nursery.client(**SETTINGS) as shop:
        run = await shop.app.start(shop["branches"], 1)

        async def is_asleep() -> bool:
            return await run.state() is RunState.SLEEPING

        await eventually_async(is_asleep, what="the sleep")
        await run.cancel()
        await asyncio.to_thread(first.wait)
        waits = [step for step in await run.steps() if step.name == "wait"]
        assert [step.state.value for step in waits] == ["cancelled"] * 3

        nursery.fork(**{**SETTINGS, "lease": "500ms"})
        with pytest.raises(RunWasCancelled):
            await run.result("20s")
        assert waits == [step for step in await run.steps() if step.name == "wait"]
        undone = {step.item: step.state.value for step in await run.steps() if step.name == "undo"}
        assert undone == {"0": "done", "1": "done", "2": "done"}
        assert (await run.row()).error is None


async def test_a_clean_up_that_kills_its_process_is_given_up_and_the_run_ends_cancelled(
    nursery: Nursery,
) -> None:
    """Held, it could be answered and go on after its cancel."""
    settings: dict[str, Any] = {"poll": "50ms", "lease": "500ms"}
    async with nursery.client(**settings) as shop:
        run = await shop.app.start(shop["deadly"])
        supervisor = asyncio.create_task(supervise(nursery, 1, settings))

        async def is_asleep() -> bool:
            return await run.state() is RunState.SLEEPING

        await eventually_async(is_asleep, what="the sleep")
        await run.cancel()

        with pytest.raises(RunWasCancelled):
            await run.result("30s")
        supervisor.cancel()
        assert shop.ledger.starts("die") == CRASH_LIMIT
        assert "clean-up" in ((await run.row()).error or "")


async def test_a_cancel_reaches_the_called_run_in_another_process(nursery: Nursery) -> None:
    nursery.fork(**SETTINGS, env={"SHOP_WITHOUT": "slow"})
    nursery.fork(**SETTINGS, env={"SHOP_WITHOUT": "calling"})
    async with nursery.client(**SETTINGS) as shop:
        run = await shop.app.start(shop["calling"], "slow", 60.0)
        await begun(shop, "long")
        (child,) = await run.children()

        await run.cancel()

        for one in (run, shop.app.run(child.run_id)):
            with pytest.raises(RunWasCancelled):
                await one.result("20s")
        assert shop.ledger.starts("after") == 0


async def test_a_cancelled_called_run_fails_its_parents_call(nursery: Nursery) -> None:
    nursery.fork(**SETTINGS)
    async with nursery.client(**SETTINGS) as shop:
        run = await shop.app.start(shop["calling"], "slow", 60.0)
        await begun(shop, "long")
        (child,) = await run.children()

        await shop.app.run(child.run_id).cancel()

        with pytest.raises(Exception, match="cancelled"):
            await run.result("20s")
        assert await run.state() is RunState.FAILED


async def test_a_cancel_during_a_drain_is_kept(nursery: Nursery) -> None:
    first = nursery.fork(**SETTINGS, grace="10s")
    async with nursery.client(**SETTINGS) as shop:
        run = await shop.app.start(shop["slow"], 0.5)
        await begun(shop, "long")
        first.signal(signal.SIGTERM)
        reply = await run.cancel()
        assert first.wait() == 0, nursery.logs()
        nursery.fork(**SETTINGS)

        assert reply.effect is Effect.BEGIN_CANCEL
        with pytest.raises(RunWasCancelled):
            await run.result("20s")
        assert shop.ledger.starts("after") == 0
    check(nursery.store, nursery.ledger, kills=1, width=1)
