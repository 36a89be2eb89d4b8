"""Says what becomes of runs, a line for each change, while somebody writes code beside it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from onceward.cli.plain import plain
from onceward.console.local import LocalConsole
from onceward.console.port import RunQuery
from onceward.core.errors import OncewardError

if TYPE_CHECKING:
    from onceward.app import App
    from onceward.console.views import RunSummary

LOOKED_AT = 100
"""The newest runs of which changes are told."""

_COLORS = {"completed": "green", "failed": "red", "held": "red", "cancelled": "yellow", "running": "cyan"}


async def tell_runs(app: App) -> None:
    """Print a line whenever a run begins or comes to stand elsewhere; for ever.

    It asks, as the console does for every page that is open, and waits for no wake-up: those are sent where
    there is work to claim, and most of what is told here (a run ended, failed, sleeps) is no work for anybody.
    """
    console, told = LocalConsole(app), dict[str, tuple[str, int, int]]()
    is_first = True
    try:
        changes = console.changed()
        while True:
            runs = (await console.runs(RunQuery(limit=LOOKED_AT))).items
            standing = {run.run_id: (run.state, run.generation, run.attempt) for run in runs}
            for run in reversed(runs):
                if not is_first and told.get(run.run_id) != standing[run.run_id]:
                    click.echo(line(run), err=True)
            told, is_first = standing, False
            await anext(changes)
    except (OncewardError, StopAsyncIteration):
        return  # the app is closed


def line(run: RunSummary) -> str:
    """Give the line for a run as it stands."""
    about = "" if run.key is None else f"  {run.key}"
    took = ""
    if run.ended_at is not None and run.started_at is not None:
        took = f"  {run.ended_at - run.started_at} ms"
    why = run.failure.message.split("\n")[0] if run.failure is not None else (run.reason or "")
    state = click.style(run.state.ljust(9), fg=_COLORS.get(run.state))
    event = plain(f"{run.source}  {run.event_id[:60]}{about}{took}")
    said = f"  {plain(why[:200])}" if why else ""
    return f"{time.strftime('%H:%M:%S')}  {state}  {plain(run.workflow)}  {run.run_id}  {event}{said}"
