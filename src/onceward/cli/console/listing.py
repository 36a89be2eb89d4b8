"""A list of runs: over as many pages as it takes, and as a table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from onceward.console.port import Console, RunQuery
    from onceward.console.views import RunSummary

PAGES_MAX = 50
"""Pages that one list looks through, of 10,000 runs each, before it says how to go on."""


async def listed(console: Console, query: RunQuery, limit: int) -> tuple[list[RunSummary], str | None]:
    """Give so many runs, over as many pages as it takes; and where to go on."""
    import msgspec

    from onceward.console.port import PAGE_MAX

    found: list[RunSummary] = []
    for _ in range(PAGES_MAX):
        page = await console.runs(msgspec.structs.replace(query, limit=min(limit - len(found), PAGE_MAX)))
        found += page.items
        query = msgspec.structs.replace(query, after=page.next)
        if page.next is None or len(found) >= limit:
            break
    return found, query.after


def print_runs(runs: list[RunSummary]) -> None:
    """Print runs as a table."""
    from onceward.cli.console.words import now_ms, print_table, state, when

    if not runs:
        click.echo("No run fits.")
        return
    now = now_ms()
    rows = [
        (run.run_id, state(run.state), run.workflow, when(run.created_at, now), about(run)) for run in runs
    ]
    print_table(
        *("RUN", "STATE", "WORKFLOW", "ACCEPTED", "ABOUT"),
        rows=rows,
        narrow=("ABOUT", "WORKFLOW"),
        ends_below=True,
    )


def about(run: RunSummary) -> str:
    """Give what is most worth knowing of a run in a few words: whom it is about, and what became of it."""
    from onceward.cli.console.words import now_ms, when

    whom, said = run.key or run.subject, None
    if run.reason is not None and run.state not in ("completed", "cancelled"):
        said = run.reason
    elif run.failure is not None:
        type_, message = run.failure.type, run.failure.message
        if type_.startswith("onceward."):  # ours are whole sentences
            said = message or type_
        else:  # of a KeyError the message is a bare key
            said = f"{type_}: {message}" if message else type_
    elif run.due_at is not None and run.state in ("sleeping", "backoff"):
        said = f"goes on {when(run.due_at, now_ms())}"
    return (
        "; ".join(part for part in (whom, said) if part)
        or started_at(run.source, run.event_id)
        or run.event_id
    )


def started_at(source: str, event_id: str) -> str | None:
    """Give the step of another run that started one or emitted an event; None for other events.

    Their id is made of it: generation, name, item, ordinal and verb.
    """
    kind, _, run_id = source.partition("/")
    if kind != "run":
        return None
    from onceward.core.model import StepKey

    try:
        _, name, item, ordinal, *_ = json.loads(event_id)
    except (ValueError, TypeError):  # what `step.emit(id=…)` was given
        return None
    return f"{StepKey(name, item, ordinal)} of {run_id}"
