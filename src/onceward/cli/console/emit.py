"""``onceward emit``: make an event by hand."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import click

from onceward.cli.console.reach import Reach, acting, actor_of, reaching

if TYPE_CHECKING:
    from onceward.console.views import EmitReply


@click.command("emit", short_help="Make an event by hand.")
@click.argument("type_", metavar="TYPE")
@click.option("--data", metavar="JSON", help="The payload; by default null.")
@click.option(
    "--file", "file", type=click.File("rb"), metavar="FILE", help="The payload as JSON; - is standard input."
)
@click.option("--subject", metavar="TEXT", help="What it is about.")
@click.option("--id", "event_id", metavar="ID", help="The same id gives the same event; by default drawn.")
@click.option(
    "--source",
    metavar="NAME",
    help="Stand in for this sender, for what subscribed to or waits for its events; takes no --id.",
)
@click.option("--request", "request_id", metavar="ID", help="The same id does it once.")
@acting
@reaching
def command(
    reach: Reach,
    type_: str,
    data: str | None,
    file: Any,
    subject: str | None,
    event_id: str | None,
    source: str | None,
    request_id: str | None,
    actor: str | None,
) -> None:
    """Store an event as `app.emit` does: start a run of every workflow that subscribed to TYPE, and end
    what waits for it.

    It needs no code of the app's. The runs begin where a process runs that has it.
    """  # noqa: D205 - one sentence
    from onceward.cli.console.words import print_json
    from onceward.console.port import Emit

    if data is not None and file is not None:
        raise click.UsageError("--data and --file are both the payload.")
    emit = Emit(
        type=type_,
        actor=actor_of(actor),
        payload=_payload(data, file),
        id=event_id,
        subject=subject,
        source=source,
        request_id=request_id,
    )
    reply = reach.run(lambda console: console.emit(emit))
    if reach.as_json:
        print_json(reply)
    else:
        _print(reply, reach.shown())


def _payload(data: str | None, file: Any) -> Any:
    import json

    try:
        return None if data is None and file is None else json.loads(file.read() if data is None else data)
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(
            f"it is no JSON: {error}. A text has quotes of its own: '\"letter 12\"'.",
            param_hint="--file" if data is None else "--data",
        ) from error


def _print(reply: EmitReply, options: str) -> None:
    from onceward.cli.console.listing import print_runs
    from onceward.cli.console.words import command as print_command
    from onceward.cli.console.words import say

    event = reply.event
    say(f"{event.type}  {event.source}/{event.id}{' was there before' if reply.is_duplicate else ''}", "bold")
    if reply.runs:
        print_runs(reply.runs)
    for skipped in reply.skipped:
        say(f"  {skipped.workflow} has no run of it: {skipped.why}")
    for run_id in reply.waits:
        say(f"  It fits a wait of {run_id}.")
    if not (reply.runs or reply.skipped or reply.waits or reply.is_duplicate):
        say(
            f"  No workflow subscribed to {event.type}, and nothing waits for it: it is stored, and that is all."
        )
        print_command(f"onceward workflows list{options}", "see what each of them is on")
    for run in reply.runs[:1]:
        print_command(f"onceward runs tail {shlex.quote(run.run_id)}{options}", "follow it to its end")
