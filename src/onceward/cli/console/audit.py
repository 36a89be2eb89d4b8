"""``onceward audit``: who did what, newest first."""

from __future__ import annotations

import shlex

import click

from onceward.cli.console.reach import Reach, reaching
from onceward.cli.options import WholeNumber


@click.command("audit", short_help="List who did what.")
@click.option("--limit", type=WholeNumber(1, 200), default=20, show_default=True, help="At most so many.")
@click.option("--after", metavar="PLACE", help="Go on where the page before ended, as it said.")
@reaching
def command(reach: Reach, limit: int, after: str | None) -> None:
    """List what people did, newest first: to runs, to many at once, to users and tokens, and logins.

    What was done to one run is also in `onceward runs show RUN`.
    """
    from onceward.cli.console.words import now_ms, print_json, print_table, say, when
    from onceward.cli.plain import plain
    from onceward.console.audit import said

    page = reach.run(lambda console: console.audit(after=after, limit=limit))
    if reach.as_json:
        print_json(page)
        return
    if not page.items:
        say("Nobody did anything yet.")
        return
    now = now_ms()
    rows = [
        (when(row.at, now), row.actor, row.verb, row.run_id or "-", said(row.detail) if row.detail else "-")
        for row in page.items
    ]
    print_table("WHEN", "WHO", "DID", "RUN", "MORE", rows=rows, narrow=("WHO",), ends_below=True)
    if page.next is not None:
        click.echo(plain(f"There are more: add --after {shlex.quote(page.next)}"), err=True)
