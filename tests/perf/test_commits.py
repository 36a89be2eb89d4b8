"""Commits, counted: what makes the engine quick, exact on any machine."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Literal

import pytest

from onceward import Context, Retry, RunState
from onceward.core import errors
from onceward.core.ports import Batch
from tests.engine.running import run_app
from tests.perf.counting import CountedApp, CountedStore, VirtualProcess, saturate, three_steps

IN_FLIGHT = 64
COMMITS_PER_RUN_MAX = 0.1
COMMITS_IN_A_ROW_MAX = 4


def written(counts: CountedStore) -> int:
    """How many batches wrote anything for a run; a claim that finds nothing is not on its way."""
    return sum(bool(batch.accepts or batch.advances) for batch in counts.batches)


def test_a_lone_run_of_three_steps_waits_for_four_commits(url: str) -> None:
    """Accepted and claimed in one, two checkpoints, and the last checkpoint together with the end."""
    app = CountedApp(url)
    three = three_steps(app)

    async def scenario() -> int:
        await (await app.start(three, 0)).result()
        app.counts.forget()
        await (await app.start(three, 1)).result()
        return written(app.counts)

    assert run_app(app, scenario) <= COMMITS_IN_A_ROW_MAX


def test_runs_in_flight_share_their_commits() -> None:
    """With commits that take 5 ms everything that gathers meanwhile shares the next one."""
    process = VirtualProcess(commit_s=0.005)
    three = three_steps(process.app)
    runs = IN_FLIGHT * 10

    async def scenario() -> int:
        await saturate(process.app, three, IN_FLIGHT, IN_FLIGHT)
        process.counts.forget()
        await saturate(process.app, three, runs, IN_FLIGHT)
        return process.counts.verbs["apply"]

    assert process.run(scenario) <= COMMITS_PER_RUN_MAX * runs


def test_a_poisoned_commit_among_two_hundred_sinks_only_itself(tmp_path: Path) -> None:
    """The batch is halved until the culprit is alone: it is held with a reason, the others complete."""
    app = CountedApp(f"sqlite:///{tmp_path / 'store.db'}", concurrency=200)
    three = three_steps(app)
    poisoned: set[str] = set()

    def refuse(batch: Batch) -> None:
        if any(advance.run_id in poisoned and advance.steps for advance in batch.advances):
            raise errors.StoreError("The database refuses this row.")

    async def scenario() -> tuple[list[RunState], RunState]:
        app.counts.refuses = refuse
        handles = await asyncio.gather(*(app.start(three, number) for number in range(200)))
        poisoned.add(handles[77].run_id)
        others = [handle for handle in handles if handle.run_id not in poisoned]
        await asyncio.gather(*(handle.result() for handle in others))
        return [await handle.state() for handle in others], await handles[77].state()

    others, culprit = run_app(app, scenario)

    assert others == [RunState.COMPLETED] * 199
    assert culprit is RunState.HELD


@pytest.mark.parametrize(
    ("options", "more_commits", "more_records"),
    [
        ({}, 0, 0),
        ({"unknown": "retry"}, 0, 0),
        ({"unknown": "retry", "retry": Retry(max_tries=1)}, 0, 0),
        ({"unknown": "ask"}, 0, 1),
        ({"unknown": lambda number: None}, 0, 1),
        ({"retry": Retry(max_tries=1)}, 0, 1),
    ],
    ids=["default", "retry", "retry once", "ask", "check", "once"],
)
def test_that_a_step_begins_is_saved_with_the_step_before_or_not_at_all(
    url: str, options: dict[str, Any], more_commits: int, more_records: int
) -> None:
    """It rides along with the earlier checkpoint, which the body waits for anyway (RULINGS 5, 7)."""

    def counted(changed: dict[str, Any]) -> tuple[int, int]:
        app = CountedApp(url)

        async def same(number: int) -> int:
            return number

        @app.workflow
        async def two(ctx: Context, number: int) -> int:
            await ctx.step.run("first", same, number)
            return await ctx.step.run("second", same, number, **changed)

        async def scenario() -> tuple[int, int]:
            await (await app.start(two, 0)).result()
            app.counts.forget()
            await (await app.start(two, 1)).result()
            advances = [advance for batch in app.counts.batches for advance in batch.advances]
            return written(app.counts), sum(len(advance.steps) for advance in advances)

        return run_app(app, scenario)

    commits, records = counted({})

    assert counted(options) == (commits + more_commits, records + more_records)


@pytest.mark.parametrize(("unknown", "more"), [("retry", 0), ("ask", 1)])
def test_that_the_first_step_of_a_run_begins_is_a_commit_of_its_own(
    url: str, unknown: Literal["retry", "ask"], more: int
) -> None:
    """There is nothing before it to ride along with."""
    app = CountedApp(url)

    async def same(number: int) -> int:
        return number

    @app.workflow
    async def one(ctx: Context, number: int) -> int:
        return await ctx.step.run("only", same, number, unknown=unknown)

    async def scenario() -> int:
        await (await app.start(one, 0)).result()
        app.counts.forget()
        await (await app.start(one, 1)).result()
        return written(app.counts)

    assert run_app(app, scenario) == 2 + more
