"""``onceward prune``: take what is over out of a store, now, page by page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from onceward.cli.console.reach import Reach, acting, actor_of, reaching

if TYPE_CHECKING:
    from onceward.console.port import Console, Prune
    from onceward.console.views import PruneReply

Counts = dict[str, "tuple[int, int]"]
"""Values and rows, by what was looked through."""


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
    dry_run: bool,
    actor: str | None,
) -> None:
    """Take payloads and results, runs, deliveries or ids out of a store.

    Without --older-than the retention of the app and of the registered workflows holds. Never what a run
    needs that is not over, nor a failure that nobody dismissed. It works in small transactions beside
    whatever runs; stopped half-way it has done half, and goes on when it is started again. Over --api it
    is for admins.
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
        dry_run=dry_run,
    )
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
            "runs": f"values of {values} runs, and {rows} runs whole",
            "events": f"payloads of {values} events",
            "deliveries": f"{rows} deliveries",
            "unparsed": f"{rows} unparsed deliveries",
            "notices": f"{rows} notices",
            "identity": f"ids of {rows} events",
        }
        say(f"  {parts[what]}")
