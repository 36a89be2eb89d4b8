"""A run that calls another which runs in another process: the wake-up comes, whoever is first."""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import Any

import pytest

from onceward import RunHandle, RunState
from tests.helpers import eventually_async
from tests.lifecycle.checks import check
from tests.lifecycle.procs import Child, Nursery
from tests.lifecycle.shop import Shop

SETTINGS: dict[str, Any] = {"lease": "5s", "poll": "50ms"}
LONG = "4s"
"""Longer than any of these tests waits; never longer than the lease."""


@pytest.mark.parametrize("linger", ["0s", LONG], ids=["parent gone from memory", "parent in memory"])
async def test_the_parent_waits_before_the_child_ends(nursery: Nursery, linger: str) -> None:
    async with site(nursery, linger) as (shop, _, child_process):
        freeze(nursery, child_process)
        run = await shop.app.start(shop["calling"], "slow", 0.05)
        await eventually_async(lambda: has_child(run))
        if linger != LONG:
            await eventually_async(lambda: is_in(run, RunState.WAITING))
        child_process.signal(signal.SIGCONT)

        assert await run.result("20s") == 0.05
    check(nursery.store, nursery.ledger, kills=1, width=1)


async def test_the_child_ends_while_the_parent_cannot_listen(nursery: Nursery) -> None:
    """The parent's process stands still from the moment at which the child exists."""
    async with site(nursery, LONG) as (shop, parent_process, _):
        run = await shop.app.start(shop["calling"], "slow", 0.3)
        await eventually_async(lambda: has_child(run))
        freeze(nursery, parent_process)
        (child,) = await run.children()
        await shop.app.run(child.run_id).result("20s")
        parent_process.signal(signal.SIGCONT)

        assert await run.result("20s") == 0.3
        assert (await run.row()).attempt == 1
    check(nursery.store, nursery.ledger, kills=1, width=1)


async def test_the_parents_process_dies_before_and_after_the_child_ends(nursery: Nursery) -> None:
    async with site(nursery, LONG) as (shop, parent_process, _):
        runs = []
        for is_early in (True, False):
            run = await shop.app.start(shop["calling"], "slow", 0.4)
            runs.append(run)
            await eventually_async(lambda run=run: has_child(run))  # type: ignore[misc]
            (child,) = await run.children()
            if not is_early:
                freeze(nursery, parent_process)
                await shop.app.run(child.run_id).result("20s")
            parent_process.signal(signal.SIGKILL)
            parent_process = nursery.fork(**SETTINGS, linger=LONG, env={"SHOP_WITHOUT": "slow"})

        assert [await run.result("20s") for run in runs] == [0.4, 0.4]
    check(nursery.store, nursery.ledger, kills=2, width=1)


@pytest.mark.parametrize("where", ["end.before_commit", "end.after_commit"])
async def test_the_childs_process_dies_around_its_last_commit(nursery: Nursery, where: str) -> None:
    async with site(nursery, "0s", failpoint=f"{where}:kill:1") as (shop, _, child_process):
        run = await shop.app.start(shop["calling"], "slow", 0.05)
        assert child_process.wait() == -signal.SIGKILL
        nursery.fork(**SETTINGS, env={"SHOP_WITHOUT": "calling"})

        assert await run.result("20s") == 0.05
    check(nursery.store, nursery.ledger, kills=1, width=1)


@asynccontextmanager
async def site(
    nursery: Nursery, linger: str, failpoint: str = ""
) -> AsyncIterator[tuple[Shop, Child, Child]]:
    """A client and two processes: one with the parent's code, one with the child's."""
    async with nursery.client(**SETTINGS) as shop:
        parent = nursery.fork(**SETTINGS, linger=linger, env={"SHOP_WITHOUT": "slow"})
        child = nursery.fork(failpoint=failpoint, **SETTINGS, env={"SHOP_WITHOUT": "calling"})

        async def are_there() -> bool:
            return len(await shop.app.processes()) == 3

        await eventually_async(are_there, 20, what="both processes")
        yield shop, parent, child


def freeze(nursery: Nursery, process: Child) -> None:
    """Stop a process, but not inside a transaction: a frozen writer locks a file for everybody."""
    for _ in range(100):
        process.signal(signal.SIGSTOP)
        assert process.wait_stopped()  # before that, a thread of it may still take the lock
        if not nursery.is_sqlite or is_free(nursery.store.removeprefix("sqlite:///")):
            return
        process.signal(signal.SIGCONT)
    raise AssertionError("the file was locked each time")


def is_free(path: str) -> bool:
    with closing(sqlite3.connect(path, timeout=0.2, isolation_level=None)) as connection:
        try:
            connection.execute("begin immediate")
        except sqlite3.OperationalError:
            return False
        return True


async def has_child(run: RunHandle[Any]) -> bool:
    return bool(await run.children())


async def is_in(run: RunHandle[Any], state: RunState) -> bool:
    return await run.state() is state
