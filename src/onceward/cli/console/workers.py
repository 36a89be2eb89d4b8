"""``onceward workers``: the processes that are registered, and whether they are alive."""

from __future__ import annotations

import click

from onceward.cli.console.reach import Reach, reaching


@click.command("workers", short_help="List the processes that are registered.")
@reaching
def command(reach: Reach) -> None:
    """List the processes that are registered in the store: where, since when, with how many runs.

    One that is silent for longer than its lease is lost: the next to look takes its runs over.
    """
    from onceward.cli.console.words import now_ms, print_json, print_table, state, text, when

    # This very command is registered while it asks; over the API what is here is the instance.
    is_mine = reach.api is None
    workers = reach.run(lambda console: console.workers())
    found = [worker for worker in workers if not (is_mine and worker.is_here)]
    if reach.as_json:
        print_json(found)
        return
    if not found:
        click.echo("No process is registered: nothing runs. Start one: onceward worker MODULE:APP")
        return
    now = now_ms()
    rows = [
        (
            worker.process_id,
            text("alive", "green") if worker.is_alive else state("lost"),
            f"{worker.host}:{worker.pid}",
            str(worker.owned),
            when(worker.started_at, now),
            worker.version,
        )
        for worker in found
    ]
    print_table("PROCESS", "STATE", "HOST:PID", "RUNS", "STARTED", "VERSION", rows=rows, narrow=("HOST:PID",))
