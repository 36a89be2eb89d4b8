"""``onceward dead``: what failed, is held or could not be read, and the way out of each."""

from __future__ import annotations

import shlex
from collections import Counter
from typing import TYPE_CHECKING

import click

from onceward.cli.console.reach import Reach, reaching
from onceward.cli.options import WholeNumber

if TYPE_CHECKING:
    from onceward.console.port import Console
    from onceward.console.views import Counts, DeliveryView, RunSummary

GROUPS_SHOWN = 10
RUNS_NAMED_MAX = 10
"""Alike runs that a command names one by one, where a filter would reach others too."""

ASKED = "outcome unknown"
"""How the reason of a hold begins that asks about a step; each run needs its own answer."""


@click.command("dead", short_help="List what needs a person, with the way out.")
@click.option("--workflow", metavar="NAME", help="Only of this workflow.")
@click.option("--error", metavar="WORDS", help="Whose failure or reason has words that begin so.")
@click.option("--limit", type=WholeNumber(1, 10_000), default=20, show_default=True, help="At most so many.")
@click.option("--check", is_flag=True, help="End with status 1 if there is anything, for monitoring.")
@reaching
def command(reach: Reach, workflow: str | None, error: str | None, limit: int, check: bool) -> None:
    """List the dead letters, those that are alike together, with the commands that lead out.

    They are the failed and held runs that nobody dismissed, and the deliveries that no source could read.
    """
    from onceward.cli.console.words import print_json
    from onceward.console.port import RunQuery

    query = RunQuery(problems=True, workflow=workflow, error=error)

    async def asked(
        console: Console,
    ) -> tuple[list[RunSummary], str | None, list[DeliveryView], Counts]:
        from onceward.cli.console.listing import listed
        from onceward.console.port import DeliveryQuery

        runs, following = await listed(console, query, limit)
        unread = await console.deliveries(DeliveryQuery(outcome="unparsed", limit=min(limit, 200)))
        return runs, following, unread.items, await console.counts()

    runs, following, unread, counts = reach.run(asked)
    if reach.as_json:
        print_json({"runs": runs, "next": following, "unparsed": unread, "counts": counts})
    else:
        _print(runs, unread, counts, reach.shown())
    if check and (runs or unread):
        raise click.exceptions.Exit(1)


def _print(runs: list[RunSummary], unread: list[DeliveryView], counts: Counts, options: str) -> None:
    from onceward.cli.console.words import say

    if not runs and not unread:
        say("Nothing is dead: no run failed or is held, and every delivery was read.", "green")
        return
    told = [
        f"{counts.states[state]}{'+' if state in counts.is_capped else ''} {state}"
        for state in ("failed", "held")
        if counts.states.get(state)
    ]
    if counts.unparsed:
        told.append(f"{counts.unparsed} unparsed")
    say(f"Dead letters: {', '.join(told)}", "bold")
    if runs:
        _print_groups(runs, options)
    if unread:
        _print_unread(unread, options)


def _cause(run: RunSummary) -> tuple[str, str, str, bool]:
    """Give what makes problems alike: workflow, state, how it reads without what differs, and whether undone."""
    import re

    words = run.reason if run.state == "held" else run.failure and (run.failure.message or run.failure.type)
    return run.workflow, run.state, re.sub(r"\d+", "N", words or "unknown"), run.is_undone


def _print_groups(runs: list[RunSummary], options: str) -> None:
    from onceward.cli.console.listing import print_runs
    from onceward.cli.console.words import command as print_command
    from onceward.cli.console.words import heading, now_ms, say, when
    from onceward.console.ways import way_of

    causes = Counter(_cause(run) for run in runs)
    for cause, count in causes.most_common(GROUPS_SHOWN):
        workflow, state, _, is_undone = cause
        alike = [run for run in runs if _cause(run) == cause]
        first = alike[0]
        newest = max(run.ended_at or run.started_at or run.created_at for run in alike)
        heading(f"{count} {state} of {workflow}, the last {when(newest, now_ms())}")
        if first.state == "held":
            say(f"  Stopped for a person: {first.reason}", "magenta")
        elif first.failure is not None:
            say(f"  {first.failure.type}: {first.failure.message}", "red")
        print_runs(alike[:5])
        if count > 5:
            say(f"… and {count - 5} more")
        print_command(
            f"onceward runs show {shlex.quote(first.run_id)}{options}", "see why, and what was done already"
        )
        many = f"--problems --workflow {shlex.quote(workflow)} --state {shlex.quote(state)}{options}"
        is_one = count == 1
        has_others = any(other != cause and other[:2] == cause[:2] for other in causes)
        if is_one or (has_others and count <= RUNS_NAMED_MAX):
            # The filter would also reach the others, whose cause may not be mended.
            many = shlex.join(run.run_id for run in alike) + options
        elif has_others:
            say(f"  What is said below of many reaches every {state} run of {workflow}: add --error WORDS.")
        if state == "held" and (first.reason or "").startswith(ASKED):
            for word, means in (
                ("happened --result JSON", "took effect, and gave this; null if nothing"),
                ("did_not_happen", "did not: it is tried again"),
            ):
                print_command(
                    f"onceward runs answer {shlex.quote(first.run_id)} --with {word}{options}",
                    f"the step {means}",
                )
        elif state == "held":
            print_command(
                f"onceward runs answer --with retry {many}",
                f"{way_of(first).first}: let {'it' if is_one else 'all of them'} go on",
            )
            print_command(
                f"onceward runs answer --with fail {many}", "give it up" if is_one else "give all of them up"
            )
        elif is_undone:
            print_command(
                f"onceward runs restart {shlex.quote(first.run_id)}{options}",
                f"{'it was' if is_one else 'each was'} undone, and is not retried: run every step again",
            )
            print_command(f"onceward runs dismiss {many}", _dismissed(is_one=is_one))
        else:
            print_command(
                f"onceward runs retry {many}",
                f"once the cause is mended: go on where {'it' if is_one else 'they'} failed",
            )
            print_command(f"onceward runs dismiss {many}", _dismissed(is_one=is_one))


def _dismissed(*, is_one: bool) -> str:
    return f"take {'it' if is_one else 'them'} off this list as {'it is' if is_one else 'they are'}"


def _print_unread(unread: list[DeliveryView], options: str) -> None:
    from onceward.cli.console.words import command as print_command
    from onceward.cli.console.words import heading, say

    for source, count in Counter(row.source for row in unread).most_common(GROUPS_SHOWN):
        first = next(row for row in unread if row.source == source)
        heading(f"{count} unparsed of {source}")
        say("  Genuine, and its source could not read it; it is kept until it can.")
        say(f"  {first.error}", "red")
        print_command(
            f"onceward deliveries show {shlex.quote(first.delivery_id)}{options}", "see the request"
        )
        print_command(
            "onceward redeliver MODULE:APP --unparsed", "once the source is corrected: read all again"
        )
