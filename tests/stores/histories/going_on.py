"""Opens a store that was left behind, and sees each run to the end that is noted beside it."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onceward import App, RunHandle
from onceward.core.model import RunRow
from onceward.testing import check_invariants
from tests.helpers import eventually_async
from tests.lifecycle.ledger import Ledger
from tests.stores.histories.keeping import Kept
from tests.stores.histories.stories_0_1_0 import STORIES, Story
from tests.stores.histories.works_0_1_0 import SETTINGS, Works

WITHIN_S = 40


@dataclass
class Ending:
    """What became of the runs.

    Attributes:
        ends: by the name of the story.
        repeated: bodies that began although their result was saved.
        violations: what is broken in the store at the end.
    """

    ends: dict[str, Any]
    repeated: list[str]
    violations: list[str]


def go_on(kept: Kept, url: str, home: Path, stories: Sequence[Story] = STORIES) -> Ending:
    """Open the store and see every run to its end."""
    ledger = Ledger(home / "ledger")
    app = App(url, poll="50ms", linger="20ms", drain="2s", concurrency=200, **SETTINGS)
    works = Works(app, ledger)

    async def main() -> Ending:
        async with asyncio.timeout(2 * WITHIN_S), app:
            told = await asyncio.gather(*(end_of(works, story) for story in stories), return_exceptions=True)
            wrong = [
                f"{story.name}: {one}"
                for story, one in zip(stories, told, strict=True)
                if isinstance(one, BaseException)
            ]
            assert not wrong, "\n".join(wrong)
            found = dict(one for one in told if not isinstance(one, BaseException))
            violations = [str(one) for one in await asyncio.to_thread(check_invariants, app.worker.store)]
        done = saved(kept)
        repeated = [
            f"{line.step} of {line.run_id}" for line in ledger.lines(what="start") if line.key in done
        ]
        return Ending(found, repeated, violations)

    return asyncio.run(main())


def saved(kept: Kept) -> set[tuple[str, int, str]]:
    """Give the steps whose results are in the store: run, generation, step."""
    return {
        (row["run_id"], row["generation"], step_of(row))
        for row in kept.tables["step"]
        if row["state"] == "done"
    }


def step_of(row: dict[str, Any]) -> str:
    """Give a step as the ledger has it."""
    item = f"[{row['item']}]" if row["item"] else ""
    return f"{row['name']}{item}" + (f" #{row['ordinal']}" if row["ordinal"] > 1 else "")


async def end_of(works: Works, story: Story) -> tuple[str, dict[str, Any]]:
    """See a run to its end, and give what it came to."""
    run = await found_run(works, story)
    if story.then is not None:
        await story.then(works, run)
    if story.replay:
        event = await works.app.event(story.source, story.name)
        (replay,) = [row for row in event.runs if row.replay_of == run.run_id]
        run = works.app.run(replay.run_id)

    async def has_ended() -> RunRow | None:
        row = await run.row()
        return row if row.state.value == story.ends else None

    try:
        row = await eventually_async(has_ended, WITHIN_S, what=story.name)
    except AssertionError:
        raise AssertionError(f"{story.name!r} stands at {await run.row()}\n{await run.steps()}") from None
    assert row is not None
    steps = {str(step.key): step.state.value for step in await run.steps()}
    bodies = Counter(
        f"{line.generation} {line.step}" for line in works.ledger.lines(what="start", run_id=run.run_id)
    )
    return story.name, {
        "state": row.state.value,
        "output": None if row.output is None else json.loads(row.output),
        "error": None if row.error is None else json.loads(row.error)["type"],
        "reason": row.reason,
        "warning": None if row.warning is None else json.loads(row.warning),
        "generation": row.generation,
        "steps": steps,
        "bodies": dict(sorted(bodies.items())),
    }


async def found_run(works: Works, story: Story) -> RunHandle[Any]:
    """Give the run of a story; one whose event stands in the outbox is not there at once."""

    async def rows() -> list[RunRow]:
        found = await works.app.runs(source=story.source, event_id=story.name, workflow=story.workflow)
        return [row for row in found if row.replay_of is None]

    (row,) = await eventually_async(rows, WITHIN_S, what=f"the run of {story.name}")
    return works.app.run(row.run_id)
