"""``onceward overview``: what happens now and what happened lately, on one screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from onceward.cli.console.reach import Reach, reaching
from onceward.cli.plain import plain
from onceward.core.nouns import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.text import Text

    from onceward.console.port import Console
    from onceward.console.views import NoticesView, Overview, Slot

WINDOWS = {"1h": 3_600_000, "6h": 21_600_000, "24h": 86_400_000, "7d": 604_800_000}


@click.command("overview", short_help="Say what happens now and what happened lately.")
@click.option(
    "--window", type=click.Choice(list(WINDOWS)), default="1h", show_default=True, help="How far back."
)
@reaching
def command(reach: Reach, window: str) -> None:
    """Say how many runs stand where, what came and ended lately, what was refused and who works.

    It is what the dashboard's first page says. `onceward dead` has what waits for a person.
    """
    from onceward.cli.console.words import print_json

    # This very command is registered while it asks; over the API what is here is the instance.
    is_mine = reach.api is None

    async def ask(console: Console) -> tuple[Overview, NoticesView]:
        return await console.overview(window_ms=WINDOWS[window]), await console.notices()

    found, notices = reach.run(ask)
    if reach.as_json:
        print_json(found)
        return
    _print(found, notices, window, is_mine=is_mine, options=reach.shown())


def _print(found: Overview, notices: NoticesView, window: str, *, is_mine: bool, options: str) -> None:
    from onceward.cli.console.words import command as print_command
    from onceward.cli.console.words import fields, heading, now_ms, say, text, when

    counts, now = found.counts, now_ms()
    stand = {
        "failed, open" if state == "failed" else state: f"{number}{'+' if state in counts.is_capped else ''}"
        for state, number in counts.states.items()
        if number
    }
    due = counts.oldest_due_at
    say("Runs now", "bold")
    fields([*stand.items(), ("oldest due", "none" if due is None else when(due, now))])
    heading(f"The last {window}{', the newest of it' if found.is_sampled else ''}")
    fields(
        [
            ("events", str(sum(slot.events for slot in found.slots))),
            ("completed", str(sum(slot.completed for slot in found.slots))),
            ("failed", str(sum(slot.failed for slot in found.slots))),
            ("took", _took(found.slots)),
        ]
    )
    heading("What to look at")
    alive = [one for one in found.workers if one.is_alive and not (is_mine and one.is_here)]
    silent = sum(not one.is_alive for one in found.workers)
    told = f"{len(alive)} alive" + (f", {silent} silent" if silent else "")
    newest = max((row.last_at for row in found.refusals), default=None)
    refused = sum(row.count for row in found.refusals)
    fields(
        [
            ("processes", told if alive else text(f"{told}: nothing runs", "red")),
            *[
                (
                    "nobody has the code of",
                    text(
                        f"{plain(name)}, {counted(number, 'run')} {'is' if number == 1 else 'are'} due", "red"
                    ),
                )
                for name, number in found.unserved.items()
            ],
            ("unparsed", str(counts.unparsed) if counts.unparsed else None),
            ("refused", None if newest is None else f"{refused}, the last {when(newest, now)}"),
            ("notices", _untold(notices)),
        ]
    )
    if counts.unparsed or counts.states.get("failed") or counts.states.get("held"):
        print_command(f"onceward dead{options}", "what waits for a person, and the way out")
    if refused:
        print_command(f"onceward deliveries refused{options}", "which deliveries, and why")
    if notices.untold:
        print_command(f"onceward notices{options}", "who was not told, and why")
    if due is not None or not alive:
        print_command(f"onceward doctor{options}", "which runs nobody advances, and why")


def _took(slots: Sequence[Slot]) -> str | None:
    """Say how long the latest runs took, of which there is some."""
    from onceward.cli.console.words import length

    for slot in reversed(slots):
        if slot.p50_ms is not None and slot.p95_ms is not None:
            return f"half within {length(slot.p50_ms)}, 95 % within {length(slot.p95_ms)}, of the latest"
    return None


def _untold(notices: NoticesView) -> Text | None:
    """Say that somebody was not told of a failed or held run."""
    from onceward.cli.console.words import text

    untold = notices.untold
    if not untold:
        return None
    return text(
        f"{counted(len(untold), 'notice')} did not arrive: {plain(untold[0].trouble or 'given up')}", "red"
    )
