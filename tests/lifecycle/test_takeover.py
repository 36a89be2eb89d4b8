"""The runs of a process that died, or only seems to, go on in another: soon, once, and fairly."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import Any

import pytest

from onceward import RunState
from onceward.core.takeover import COMPANY_FACTOR, CRASH_LIMIT
from tests.helpers import eventually_async
from tests.lifecycle.checks import check, is_campaign
from tests.lifecycle.procs import Child, Nursery
from tests.lifecycle.shop import Shop

LEASE_S, POLL_S = 1.0, 0.1
LEASE: dict[str, Any] = {"lease": "1s", "poll": "100ms"}
LONG: dict[str, Any] = {"lease": "30s", "poll": "100ms"}
SOON_S = 3.0
"""What a busy machine may add to any time that is promised."""


async def begun(shop: Shop, step: str, count: int = 1) -> float:
    """Wait until bodies of *step* began so often, and give when the last of them did, in seconds."""

    async def is_begun() -> bool:
        return shop.ledger.starts(step) >= count

    await eventually_async(is_begun, 20, what=f"start {count} of {step}")
    return shop.ledger.lines(step=step, what="start")[count - 1].at_ms / 1000


async def test_a_dead_process_is_taken_over_within_its_lease_and_a_poll(nursery: Nursery) -> None:
    first = nursery.fork(**LEASE)
    async with nursery.client(**LEASE) as shop:
        run = await shop.app.start(shop["slow"], 0.3)
        await begun(shop, "long")
        second = nursery.fork(**LEASE)
        first.signal(signal.SIGKILL)
        killed_at = time.time()

        again_at = await begun(shop, "long", 2)

        assert again_at - killed_at <= LEASE_S + 1.25 * POLL_S + SOON_S
        assert await run.result("20s") == 0.3
        assert [(a.outcome, a.attempt) for a in await run.attempts()] == [("lost", 1)]
        assert (await run.row()).failures == 0
    second.signal(signal.SIGTERM)
    assert second.wait() == 0, nursery.logs()
    check(nursery.store, nursery.ledger, kills=1, width=1)


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
@pytest.mark.parametrize("starts_later", [False, True])
async def test_on_one_host_a_free_lock_file_is_enough(nursery: Nursery, starts_later: bool) -> None:
    first = nursery.fork(**LONG)
    async with nursery.client(**LONG) as shop:
        run = await shop.app.start(shop["slow"], 0.1)
        await begun(shop, "long")
        if not starts_later:
            nursery.fork(**LONG)
        first.signal(signal.SIGKILL)
        killed_at = time.time()
        first.wait()
        if starts_later:
            nursery.fork(**LONG)

        assert await begun(shop, "long", 2) - killed_at <= 1.25 * POLL_S + SOON_S
        assert await run.result("20s") == 0.1


@pytest.mark.parametrize("store", [pytest.param("postgres", marks=pytest.mark.postgres)], indirect=True)
async def test_a_restarted_instance_takes_its_runs_back_at_once(nursery: Nursery) -> None:
    first = nursery.fork(**LONG, instance="shop-1")
    async with nursery.client(**LONG) as shop:
        run = await shop.app.start(shop["slow"], 0.1)
        await begun(shop, "long")
        first.signal(signal.SIGKILL)
        killed_at = time.time()
        nursery.fork(**LONG, instance="shop-1")

        assert await begun(shop, "long", 2) - killed_at <= SOON_S
        assert await run.result("20s") == 0.1


@pytest.mark.parametrize("store", [pytest.param("postgres", marks=pytest.mark.postgres)], indirect=True)
async def test_without_a_name_only_the_lease_decides(nursery: Nursery) -> None:
    first = nursery.fork(**LEASE)
    async with nursery.client(**LEASE) as shop:
        await shop.app.start(shop["slow"], 0.1)
        began_at = await begun(shop, "long")
        first.signal(signal.SIGKILL)
        nursery.fork(**LEASE)

        # Renewed four times a lease, so at least three quarters of it were left.
        assert await begun(shop, "long", 2) - began_at > 0.5 * LEASE_S


async def test_twenty_runs_wait_behind_one_slot_and_all_go_on(nursery: Nursery) -> None:
    """Slots belong to leases, not to a counter that a dead process never lowers (B020)."""
    settings = {**LEASE, "concurrency": 1}
    first = nursery.fork(**settings)
    async with nursery.client(**settings) as shop:
        runs = [await shop.app.start(shop["slow"], 0.02) for _ in range(21)]
        await begun(shop, "long")
        first.signal(signal.SIGKILL)
        nursery.fork(**settings)

        assert [await run.result("30s") for run in runs] == [0.02] * 21


async def test_a_process_whose_row_was_deleted_leaves_no_orphans(nursery: Nursery) -> None:
    """Somebody cleaned the table of processes by hand (B013)."""
    first = nursery.fork(**LEASE)
    async with nursery.client(**LEASE) as shop:
        run = await shop.app.start(shop["slow"], 0.1)
        await begun(shop, "long")
        first.signal(signal.SIGKILL)
        first.wait()
        nursery.forget_process(first)
        nursery.fork(**LEASE)

        assert await run.result("20s") == 0.1


@pytest.mark.parametrize("action", ["kill", "pause", "raise", "drop-reply"])
@pytest.mark.parametrize("where", ["before_commit", "after_commit"])
def test_a_takeover_that_breaks_off_is_made_again(nursery: Nursery, where: str, action: str) -> None:
    settings: dict[str, Any] = {"lease": "400ms"}
    first = nursery.fork("steps", failpoint="step.before_body:kill:2", **settings)
    assert first.wait() == -signal.SIGKILL
    second = nursery.fork("steps", failpoint=f"takeover.{where}:{action}", **settings)
    third: Child | None = None
    if action == "kill":
        assert second.wait() == -signal.SIGKILL, nursery.logs()
        third = nursery.fork("steps", **settings)
    elif action == "pause":
        assert second.wait_stopped()
        third = nursery.fork("steps", **settings)
        third.has_ended(1.0)
        second.signal(signal.SIGCONT)

    for child in (second, third):
        assert child is None or child.wait() in (0, -signal.SIGKILL), nursery.logs()
    check(nursery.store, nursery.ledger, kills=2, width=1)


async def test_a_blocked_event_loop_keeps_its_lease_and_is_reported(nursery: Nursery) -> None:
    """B022: the body begins once, and the log names the step."""
    settings: dict[str, Any] = {"lease": "400ms"}
    first = nursery.fork(**settings)
    async with nursery.client(**settings) as shop:
        run = await shop.app.start(shop["blocker"], 1.5)
        await begun(shop, "block the loop")
        nursery.fork(**settings)

        assert await run.result("20s") == first.pid
    assert shop.ledger.starts("block the loop") == 1
    assert "blocked" in first.text()
    assert "block the loop" in first.text()


async def test_a_process_that_cannot_renew_stops_before_its_lease_ends(nursery: Nursery) -> None:
    """F04: the store answers, only the renewals fail. No step begins in both processes at once."""
    settings: dict[str, Any] = {"lease": "600ms"}
    deaf = nursery.fork(mode="deaf", **settings)
    async with nursery.client(**settings) as shop:
        run = await shop.app.start(shop["many"], 30, 0.05)
        await begun(shop, "one[1]")
        other = nursery.fork(**settings)

        assert await run.result("20s") == 30

    mine = shop.ledger.lines(pid=deaf.pid, what="start")
    theirs = shop.ledger.lines(pid=other.pid, what="start")
    assert mine
    assert theirs
    assert max(line.at_ms for line in mine) < min(line.at_ms for line in theirs)
    check(nursery.store, nursery.ledger, kills=1, width=1)


async def test_a_step_ten_times_as_long_as_the_lease_runs_once(nursery: Nursery) -> None:
    """B014: a healthy holder is never robbed."""
    settings: dict[str, Any] = {"lease": "500ms"}
    for _ in range(3):
        nursery.fork(**settings)
    async with nursery.client(**settings) as shop:
        runs = [await shop.app.start(shop[name], 5.0) for name in ("slow", "slow_plain")]
        assert [await run.result("20s") for run in runs] == [5.0, 5.0]

        assert [await run.attempts() for run in runs] == [[], []]
    assert shop.ledger.starts("long") == 2


async def test_a_run_that_kills_its_process_is_held_and_its_neighbours_go_on(nursery: Nursery) -> None:
    """B026: two supervised workers, one killer, twenty healthy runs beside it."""
    settings: dict[str, Any] = {"lease": "1s", "poll": "50ms"}
    async with nursery.client(**settings) as shop:
        supervisor = asyncio.create_task(supervise(nursery, 2, settings))
        killer = await shop.app.start(shop["killer"], 1)
        healthy = [await shop.app.start(shop["many"], 6, 0.05) for _ in range(20)]
        began = time.monotonic()

        results = await asyncio.gather(*(run.result("30s") for run in healthy))
        took_s = time.monotonic() - began

        async def is_held() -> bool:
            return await killer.state() is RunState.HELD

        await eventually_async(is_held, 30, what="the hold")
        supervisor.cancel()
        row = await killer.row()
        assert results == [6] * 20
        assert took_s < 10, "the neighbours were held up"
        assert row.reason is not None
        assert row.reason.startswith("poison")
        assert CRASH_LIMIT <= shop.ledger.starts("die") <= COMPANY_FACTOR * CRASH_LIMIT
        rows = [await run.row() for run in healthy]
        assert [row.state for row in rows] == [RunState.COMPLETED] * 20
        assert [(row.failures, row.problem_at) for row in rows] == [(0, None)] * 20
        assert [row.run_id for row in await shop.app.runs(problems=True)] == [killer.run_id]


async def supervise(nursery: Nursery, count: int, settings: dict[str, Any]) -> None:
    """Keep workers alive, as systemd would."""
    children = [nursery.fork(**settings) for _ in range(count)]
    while True:
        for place, child in enumerate(children):
            if await asyncio.to_thread(child.has_ended):
                children[place] = nursery.fork(**settings)
        await asyncio.sleep(0.02)


async def test_a_worker_without_the_workflow_leaves_its_runs_alone(nursery: Nursery) -> None:
    """I21: neither failed nor consumed; a worker that has it comes and runs it."""
    nursery.fork(env={"SHOP_WITHOUT": "steps"})
    async with nursery.client() as shop:
        run = await shop.app.start(shop["steps"], 1)
        other = await shop.app.start(shop["sleeper"], 1)

        assert await other.result("20s") == 2
        row = await run.row()
        assert (row.state, row.fence, row.attempt) == (RunState.QUEUED, 0, 1)

        nursery.fork()
        assert await run.result("20s") == [1, 2, 3]


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
@pytest.mark.parametrize("round_", range(20 if is_campaign() else 2))
async def test_two_processes_on_one_file_share_the_work(nursery: Nursery, round_: int) -> None:
    children = [nursery.fork(concurrency=4) for _ in range(2)]
    async with nursery.client() as shop:
        runs = [await shop.app.start(shop["steps"], n) for n in range(40)]
        assert [await run.result("30s") for run in runs] == [[n, n + 1, n + 2] for n in range(40)]

        assert {line.pid for line in shop.ledger.lines()} <= {child.pid for child in children}
    check(nursery.store, nursery.ledger, kills=0, width=1)
