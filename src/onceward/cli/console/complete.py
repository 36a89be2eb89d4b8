"""``onceward runs complete``: end an open promise of a run."""

from __future__ import annotations

from typing import Any

import click

from onceward.cli.console.reach import Reach, acting, actor_of, reaching
from onceward.cli.console.steering import json_of


@click.command("complete", short_help="End an open promise of a run.")
@click.argument("run_id", metavar="RUN")
@click.option("--promise", metavar="STEP", help="Which, where the run has several that are open.")
@click.option("--value", metavar="JSON", help="What the run gets, by default null; @FILE reads a file.")
@click.option("--fail", "reason", metavar="REASON", help="Let it fail with this instead.")
@click.option("--request", "request_id", metavar="ID", help="The same id does it once.")
@acting
@reaching
def complete(
    reach: Reach,
    run_id: str,
    promise: str | None,
    value: str | None,
    reason: str | None,
    request_id: str | None,
    actor: str | None,
) -> None:
    """End a promise of a run as whoever has its token could, without the token.

    The run gets the value and goes on; with --fail `StepFailed` is raised in it.
    """
    from onceward.cli.console.words import print_json, say
    from onceward.console.port import Completion

    if value is not None and reason is not None:
        raise click.UsageError("--value completes it, --fail does not: give one of them.")
    given: Any = None if value is None else json_of(value, "--value")
    completion = Completion(
        actor=actor_of(actor), promise=promise, value=given, reason=reason, request_id=request_id
    )
    reply = reach.run(lambda console: console.complete(run_id, completion))
    if reach.as_json:
        print_json(reply)
    else:
        say(f"{run_id} {reply.text}")
