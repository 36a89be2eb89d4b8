"""``onceward notices``: whom a failed or held run is told to, and what became of the latest."""

from __future__ import annotations

import click

from onceward.cli.console.reach import Reach, reaching


@click.command("notices", short_help="List what was told of failed and held runs, and to whom.")
@reaching
def command(reach: Reach) -> None:
    """List the addresses that notices are sent to, and the latest notices, newest first.

    One is owed until its receiver has answered 2xx; after three days it is given up.
    """
    from onceward.cli.console.words import now_ms, print_json, print_table, text, when

    found = reach.run(lambda console: console.notices())
    if reach.as_json:
        print_json(found)
        return
    if not found.addresses and not found.latest:
        click.echo("Nobody is told: no process has the setting notices.")
        return
    now = now_ms()
    addresses = [
        (
            one.address,
            text("off, HTTP 410", "red") if one.off_at is not None else text("on", "green"),
            " ".join(one.kinds),
            when(one.seen_at, now),
        )
        for one in found.addresses
    ]
    if addresses:
        print_table("ADDRESS", "STATE", "IS TOLD", "SEEN", rows=addresses, narrow=("ADDRESS",))
    styles = {"owed": "yellow", "told": "green", "given_up": "red"}
    latest = [
        (
            when(one.at, now),
            one.type,
            one.run_id,
            one.address,
            text(one.state, styles.get(one.state, "")),
            str(one.tries),
            " ".join(
                part for part in (one.trouble, one.due_at and f"(next try {when(one.due_at, now)})") if part
            ),
        )
        for one in found.latest
    ]
    if latest:
        print_table(
            "WHEN",
            "TYPE",
            "RUN",
            "ADDRESS",
            "STATE",
            "TRIES",
            "TROUBLE",
            rows=latest,
            narrow=("TROUBLE", "ADDRESS"),
            ends_below=True,
        )
