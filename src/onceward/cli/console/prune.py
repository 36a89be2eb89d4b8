"""``onceward prune``: take what is over out of a store, now, page by page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from onceward.cli.console.reach import Reach, acting, actor_of, reaching
from onceward.core.nouns import counted

if TYPE_CHECKING:
    from onceward.console.port import Console, Prune
    from onceward.console.prune_views import PruneReply, SubjectView

Counts = dict[str, "tuple[int, int]"]
"""Values and rows, by what was looked through."""

KEPT_SHOWN = 50
"""Runs that are named one by one."""


@click.command("prune", short_help="Take what is over out of a store.")
@click.option("--older-than", metavar="DURATION", help="Of what ended or came so long ago, such as 30d.")
@click.option("--payloads", is_flag=True, help="Payloads and results; the default with --older-than.")
@click.option("--runs", is_flag=True, help="Runs whole, with payloads and results before.")
@click.option("--deliveries", is_flag=True, help="Requests as they came, also those that cannot be read.")
@click.option(
    "--identity",
    is_flag=True,
    help="Ids of events that have neither runs nor deliveries left: one that comes again runs again.",
)
@click.option("--workflow", metavar="NAME", help="Only runs of this workflow.")
@click.option("--subject", metavar="TEXT", help="Instead, all data about this, such as a customer.")
@click.option("--dry-run", is_flag=True, help="Count, and write nothing.")
@acting
@reaching
def command(
    reach: Reach,
    older_than: str | None,
    payloads: bool,
    runs: bool,
    deliveries: bool,
    identity: bool,
    workflow: str | None,
    subject: str | None,
    dry_run: bool,
    actor: str | None,
) -> None:
    """Take payloads and results, runs, deliveries or ids out of a store.

    Without --older-than the retention of the app and of the registered workflows holds. Never what a run
    needs that is not over, nor a failure that nobody dismissed. It works in small transactions beside
    whatever runs; stopped half-way it has done half, and goes on when it is started again. Over --api it
    is for admins.

    With --subject goes what is stored about one customer, say, however young: payloads and requests of events
    about it, and results, inputs and errors of their runs. Ids, states and times stay. What runs need that
    are not over is kept, and told with what you can do.
    """
    from onceward.console.port import Prune

    asked = Prune(
        actor=actor_of(actor),
        older_than=older_than,
        payloads=payloads,
        runs=runs,
        deliveries=deliveries,
        identity=identity,
        workflow=workflow,
        subject=subject,
        dry_run=dry_run,
    )
    if subject is not None:
        told = reach.run(lambda console: _prune_subject(console, asked))
        print_subject(told, subject, is_dry=dry_run, as_json=reach.as_json)
        return
    counts = reach.run(lambda console: _prune(console, asked, is_silent=reach.as_json))
    _print(counts, is_dry=dry_run, as_json=reach.as_json)


async def _prune(console: Console, asked: Prune, *, is_silent: bool) -> Counts:
    import msgspec
    from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

    from onceward.cli.console.words import terminal

    counts: Counts = {}
    out = terminal(is_error=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}: looked at"), MofNCompleteColumn())
    with Progress(*columns, console=out, disable=is_silent or not out.is_terminal, transient=True) as bar:
        task = bar.add_task("", total=None)
        while True:
            reply: PruneReply = await console.prune(asked)
            if reply.what is not None:
                values, rows = counts.get(reply.what, (0, 0))
                counts[reply.what] = (values + reply.values, rows + reply.rows)
                bar.update(task, description=reply.what, advance=reply.looked)
            if reply.next is None:
                return counts
            asked = msgspec.structs.replace(asked, after=reply.next)


async def _prune_subject(console: Console, asked: Prune) -> SubjectView:
    import msgspec

    from onceward.console.prune_views import SubjectView

    told = SubjectView(runs=0, events=0, deliveries=0, copies=0, kept=[], kept_events=0)
    while True:
        reply: PruneReply = await console.prune(asked)
        page = reply.subject
        assert page is not None, "a page about a subject says what it found"
        told = SubjectView(
            runs=told.runs + page.runs,
            events=told.events + page.events,
            deliveries=told.deliveries + page.deliveries,
            copies=told.copies + page.copies,
            kept=list({run.run_id: run for run in [*told.kept, *page.kept]}.values()),
            kept_events=told.kept_events + page.kept_events,
        )
        if reply.next is None:
            return told
        asked = msgspec.structs.replace(asked, after=reply.next)


def _print(counts: Counts, *, is_dry: bool, as_json: bool) -> None:
    from onceward.cli.console.words import print_json, say

    if as_json:
        told = {what: {"values": values, "rows": rows} for what, (values, rows) in counts.items()}
        print_json({"dry_run": is_dry, "pruned": told})
        return
    if not counts:
        say("Nothing is configured to be pruned: everything is kept. See --older-than.")
        return
    say("Would go:" if is_dry else "Pruned:", "bold")
    for what, (values, rows) in counts.items():
        parts = {
            "runs": f"values of {counted(values, 'run')}, and {counted(rows, 'run')} whole",
            "events": f"payloads of {counted(values, 'event')}",
            "deliveries": counted(rows, "delivery", "deliveries"),
            "unparsed": counted(rows, "unparsed delivery", "unparsed deliveries"),
            "notices": counted(rows, "notice"),
            "identity": f"ids of {counted(rows, 'event')}",
        }
        say(f"  {parts[what]}")


def print_subject(told: SubjectView, subject: str, *, is_dry: bool, as_json: bool) -> None:
    """Say what went of a subject, and what stays for which runs."""
    import msgspec

    from onceward.cli.console.words import print_json, say

    if as_json:
        print_json({"dry_run": is_dry, "subject": subject, **msgspec.to_builtins(told)})
        return
    say("Would go:" if is_dry else "Pruned:", "bold")
    say(f"  results, inputs and errors of {counted(told.runs, 'run')}")
    say(f"  payloads of {counted(told.events, 'event')}, and {counted(told.deliveries, 'request')}")
    if told.copies:
        say(f"  copies of events in {counted(told.copies, 'wait')} of other runs")
    if not told.kept and not told.kept_events:
        return
    say(
        f"Kept for runs that are not over: payloads of {counted(told.kept_events, 'event')}, and all of these runs.",
        "bold",
    )
    for run in told.kept[:KEPT_SHOWN]:
        say(f"  {run.run_id}  {run.workflow}  {run.state}: {run.todo}")
    if len(told.kept) > KEPT_SHOWN:
        say(f"  and {len(told.kept) - KEPT_SHOWN} more; --json has all of them")
    say("Then ask again.")
