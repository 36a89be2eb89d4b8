"""Commits, counted: what makes the engine quick, exact on any machine."""

from __future__ import annotations

import asyncio
from pathlib import Path

from onceward import RunState
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
