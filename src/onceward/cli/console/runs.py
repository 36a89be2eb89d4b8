"""``onceward runs``: list them, look at one, follow them, and steer one or many."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import click

from onceward.cli.console.complete import complete
from onceward.cli.console.finding import filters, query_of
from onceward.cli.console.listing import about, listed, print_runs
from onceward.cli.console.reach import Reach, reaching
from onceward.cli.console.steering import STEERING
from onceward.cli.options import WholeNumber
from onceward.cli.plain import plain

if TYPE_CHECKING:
    from onceward.console.port import Console, RunQuery
    from onceward.console.views import RunDetail, RunSummary

NAMED_MAX = 5
"""Runs that are named where what was asked for is their key or subject, and no id."""


@click.group("runs", short_help="List, show, follow and steer runs.")
def command() -> None:
    """Tell of runs, and steer them.

    The store is the one of --store, of ONCEWARD_STORE, of --app, or that of another instance behind
    --api.
    """


@command.command("list", short_help="List runs, newest first.")
@filters
@click.option("--limit", type=WholeNumber(1, 10_000), default=20, show_default=True, help="At most so many.")
@click.option("--after", metavar="PLACE", help="Go on where the page before ended, as it said.")
@reaching
def list_(reach: Reach, limit: int, after: str | None, **options: Any) -> None:
    """List runs, newest first; each filter that is given must hold."""
    from onceward.cli.console.words import print_json
    from onceward.console.views import Page

    query = query_of(options, after=after)
    runs, following = reach.run(lambda console: listed(console, query, limit))
    if reach.as_json:
        print_json(Page(items=runs, next=following))
        return
    print_runs(runs)
    if not runs and query.subject is not None and query.key is None:
        click.echo(
            plain(f"If it is a key, as numbers of orders are: --key {shlex.quote(query.subject)}"), err=True
        )
    if following is not None:
        click.echo(plain(f"There are more: add --after {shlex.quote(following)}"), err=True)


@command.command("show", short_help="Show one run: timeline, failure, what can be done.")
@click.argument("run_id", metavar="RUN")
@click.option("--generation", type=WholeNumber(1), help="Whose steps; by default the present one's.")
@click.option("--values", is_flag=True, help="Show payload, results and tracebacks in full.")
@reaching
def show(reach: Reach, run_id: str, generation: int | None, values: bool) -> None:
    """Show a run: its steps on a line of time, what it waits for, how it failed, what you can do."""
    from onceward.cli.console.page import print_run
    from onceward.cli.console.words import print_json

    detail = reach.run(lambda console: _found(console, run_id, generation))
    if reach.as_json:
        print_json(detail)
        return
    print_run(detail, reach.shown(), with_values=values)


async def _found(console: Console, run_id: str, generation: int | None) -> RunDetail:
    """Give a run; where there is none of that id, the refusal names those about it, by key or subject."""
    from onceward.console.port import RunQuery
    from onceward.core.errors import NotFound

    try:
        return await console.run(run_id, generation)
    except NotFound as error:
        if run_id.startswith("run_"):
            raise
        about: dict[str, None] = {}
        for query in (RunQuery(key=run_id, limit=NAMED_MAX), RunQuery(subject=run_id, limit=NAMED_MAX)):
            about |= dict.fromkeys(run.run_id for run in (await console.runs(query)).items)
        if not about:
            raise
        raise NotFound(
            error.what,
            means=f"It is the key or the subject of: {', '.join(about)}.",
            todo="Show one of these.",
        ) from error


@command.command("tail", short_help="Follow runs as they change.")
@click.argument("run_id", metavar="[RUN]", required=False)
@filters
@reaching
def tail(reach: Reach, run_id: str | None, **options: Any) -> None:
    """Print a line whenever a run's state changes.

    With RUN until that one has ended: the status is 0 if it completed, else 1. Without until Ctrl-C.
    """
    query = query_of(options)
    if run_id is None:
        reach.run(lambda console: _follow_all(console, query, reach))
    elif reach.run(lambda console: _follow(console, run_id, reach)) != "completed":
        raise click.exceptions.Exit(1)


async def _follow(console: Console, run_id: str, reach: Reach) -> str:
    from onceward.core.states import TERMINAL

    seen: object = None
    changes = console.changed()
    while True:
        run = (await console.run(run_id)).run
        standing = (run.state, run.generation, run.attempt, run.reason)
        if standing != seen:
            seen = standing
            _print_change(run, reach)
        if run.state in TERMINAL:
            return run.state
        await anext(changes)


async def _follow_all(console: Console, query: RunQuery, reach: Reach) -> None:
    seen: dict[str, tuple[str, int, int]] = {}
    is_first = True
    changes = console.changed()
    while True:
        runs = (await console.runs(query)).items
        for run in reversed(runs):
            standing = (run.state, run.generation, run.attempt)
            if seen.get(run.run_id) != standing and not is_first:
                _print_change(run, reach)
            seen[run.run_id] = standing
        is_first = False
        await anext(changes)


def _print_change(run: RunSummary, reach: Reach) -> None:
    from onceward.cli.console.words import json_line, now_ms, rfc3339, state, text

    if reach.as_json:
        click.echo(json_line(run))
        return
    from rich.text import Text

    from onceward.cli.console.words import terminal

    line = Text(f"{rfc3339(now_ms())}  ", style="dim")
    line.append_text(text(f"{run.run_id}  ")).append_text(state(run.state.ljust(10)))
    line.append_text(text(f"  {run.workflow}  {about(run)}"))
    terminal().print(line, soft_wrap=True)


for verb in (*STEERING, complete):
    command.add_command(verb)
