"""The first page: what happened lately, in slots, and what is wrong now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from onceward.console.asking import run_id_at
from onceward.console.port import COUNT_MAX, Console, RunQuery
from onceward.console.shaping import LATE_MS, Serving, serving
from onceward.console.views import Overview, Slot
from onceward.core.errors import ConfigError
from onceward.core.looks import RecentRun
from onceward.core.model import Millis
from onceward.core.shown import shown
from onceward.core.states import RunState
from onceward.version import __version__

if TYPE_CHECKING:
    from onceward.app import App

SLOTS = 60
SAMPLE_MAX = 5_000
"""Runs, and events, that an overview looks at: the newest of its window."""

WINDOW_MIN_MS, WINDOW_MAX_MS = 60_000, 31 * 86_400_000
PROBLEMS_SHOWN = 100


async def overview_of(app: App, console: Console, window_ms: Millis) -> Overview:
    """Give the first page of an open app.

    Raises:
        ConfigError: *window_ms* is out of range.
    """
    if type(window_ms) is not int or not WINDOW_MIN_MS <= window_ms <= WINDOW_MAX_MS:
        raise ConfigError(
            f"window_ms={shown(window_ms)} is not between {WINDOW_MIN_MS} and {WINDOW_MAX_MS}.",
            means="There would be nothing to see, or too much.",
            todo="Give milliseconds, from a minute to 31 days.",
        )
    worker = app.worker
    store, now = worker.store, worker.now_ms()
    since = max(now - window_ms, 0)
    runs: list[RecentRun] = await worker.read(store.recent_runs, run_id_at(since), SAMPLE_MAX)
    events: list[Millis] = await worker.read(store.recent_events, since, SAMPLE_MAX)
    slot_ms = -(-window_ms // SLOTS)
    return Overview(
        now=now,
        namespace=app.settings.namespace,
        store=dict(await app.describe()),
        version=__version__,
        counts=await console.counts(),
        slots=slots_of(runs, events, since, slot_ms),
        slot_ms=slot_ms,
        is_sampled=SAMPLE_MAX in (len(runs), len(events)),
        workers=await console.workers(),
        problems=(await console.runs(RunQuery(problems=True, limit=PROBLEMS_SHOWN))).items,
        refusals=await console.refusals(),
        unserved=await _unserved_counts(app),
    )


async def _unserved_counts(app: App) -> dict[str, int]:
    worker = app.worker
    late: dict[str, int] = await worker.read(worker.store.late_runs, worker.now_ms() - LATE_MS, COUNT_MAX)
    found = await servings(app, sorted(late))
    return {name: late[name] for name, one in found.items() if one is Serving.NO}


async def servings(app: App, workflows: Sequence[str]) -> dict[str, Serving]:
    """Give of some workflows whether a process that is alive has the code; this one knows of itself."""
    worker = app.worker
    found = {name: Serving.YES for name in workflows if name in worker.workflows}
    if len(found) < len(workflows):
        known = {row.name: row for row in await worker.read(worker.store.workflows)}
        processes = await worker.read(worker.store.processes)
        now = worker.now_ms()
        found |= {name: serving(known.get(name), processes, now) for name in workflows if name not in found}
    return found


def slots_of(
    runs: Sequence[RecentRun], events: Sequence[Millis], since: Millis, slot_ms: Millis
) -> list[Slot]:
    """Give what happened in each slice of time, oldest first.

    Args:
        runs: those that were accepted in the window.
        events: when events came.
        since: where the first slot begins.
        slot_ms: how long each is.
    """
    came, completed, failed = ([0] * SLOTS for _ in range(3))
    took: list[list[Millis]] = [[] for _ in range(SLOTS)]
    for at in events:
        came[_number(at, since, slot_ms)] += 1
    for run in runs:
        if run.ended_at is None:
            continue
        number = _number(run.ended_at, since, slot_ms)
        if run.state is RunState.COMPLETED:
            completed[number] += 1
            took[number].append(run.ended_at - (run.started_at or run.created_at))
        elif run.state is RunState.FAILED:
            failed[number] += 1
    return [
        Slot(
            at=since + number * slot_ms,
            events=came[number],
            completed=completed[number],
            failed=failed[number],
            p50_ms=percentile(took[number], 50),
            p95_ms=percentile(took[number], 95),
        )
        for number in range(SLOTS)
    ]


def _number(at: Millis, since: Millis, slot_ms: Millis) -> int:
    """Give the slot of a time; what another host's clock puts outside is in the nearest."""
    return min(max((at - since) // slot_ms, 0), SLOTS - 1)


def percentile(lengths: Sequence[Millis], percent: int) -> Millis | None:
    """Give the length that so many percent do not exceed; None of none."""
    if not lengths:
        return None
    return sorted(lengths)[(len(lengths) * percent - 1) // 100]
