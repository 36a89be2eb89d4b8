"""``onceward events`` and ``onceward deliveries``: what came in, and what became of it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import click

from onceward.cli.console.reach import Reach, reaching
from onceward.cli.console.times import Moment
from onceward.cli.options import WholeNumber
from onceward.cli.plain import plain
from onceward.core.model import Millis
from onceward.core.nouns import counted

if TYPE_CHECKING:
    from onceward.console.port import Console, EventQuery
    from onceward.console.views import DeliveryView, EventDetail, EventSummary

PAGES_MAX = 50
SAMPLES_SHOWN = 3


@click.group("events", short_help="List events, or show one.")
def events() -> None:
    """Tell of events: what came, and which runs each of them started."""


@events.command("list", short_help="List events, newest first.")
@click.option("--source", metavar="NAME", help="Of this source.")
@click.option("--type", "type_", metavar="TYPE", help="Of this type.")
@click.option("--subject", metavar="TEXT", help="About this.")
@click.option("--id", "event_id", metavar="ID", help="Of this id.")
@click.option("--since", type=Moment(), metavar="TIME", help="Received since then: 2h, 7d, or a date.")
@click.option("--until", type=Moment(), metavar="TIME", help="Received before then.")
@click.option("--without-runs", is_flag=True, help="Only those that started nothing.")
@click.option("--limit", type=WholeNumber(1, 10_000), default=20, show_default=True, help="At most so many.")
@click.option("--after", metavar="PLACE", help="Go on where the page before ended, as it said.")
@reaching
def list_(
    reach: Reach,
    source: str | None,
    type_: str | None,
    subject: str | None,
    event_id: str | None,
    since: Millis | None,
    until: Millis | None,
    without_runs: bool,
    limit: int,
    after: str | None,
) -> None:
    """List events, newest first; each filter that is given must hold."""
    from onceward.cli.console.listing import started_at
    from onceward.cli.console.words import now_ms, print_json, print_table, when
    from onceward.console.port import EventQuery
    from onceward.console.views import Page

    query = EventQuery(
        source=source,
        type=type_,
        subject=subject,
        id=event_id,
        since=since,
        until=until,
        without_runs=without_runs,
        after=after,
    )
    found, following = reach.run(lambda console: _listed(console, query, limit))
    if reach.as_json:
        print_json(Page(items=found, next=following))
        return
    if not found:
        click.echo("No event fits.")
    else:
        now = now_ms()
        rows = [
            (
                row.source,
                row.id,
                row.type,
                when(row.received_at, now),
                row.subject or started_at(row.source, row.id) or "-",
            )
            for row in found
        ]
        print_table(
            "SOURCE",
            "ID",
            "TYPE",
            "RECEIVED",
            "SUBJECT",
            rows=rows,
            narrow=("SUBJECT", "SOURCE", "ID", "TYPE"),
        )
    if following is not None:
        click.echo(plain(f"There are more: add --after {shlex.quote(following)}"), err=True)


async def _listed(console: Console, query: EventQuery, limit: int) -> tuple[list[EventSummary], str | None]:
    import msgspec

    from onceward.console.port import PAGE_MAX

    found: list[EventSummary] = []
    for _ in range(PAGES_MAX):
        page = await console.events(msgspec.structs.replace(query, limit=min(limit - len(found), PAGE_MAX)))
        found += page.items
        query = msgspec.structs.replace(query, after=page.next)
        if page.next is None or len(found) >= limit:
            break
    return found, query.after


@events.command("show", short_help="Show one event with its runs and deliveries.")
@click.argument("event", metavar="SOURCE/ID")
@click.option("--values", is_flag=True, help="Show the payload whole.")
@reaching
def show(reach: Reach, event: str, values: bool) -> None:
    """Show an event: its payload, its deliveries, its runs, and why a workflow has none.

    SOURCE/ID as lists show them, e.g. stripe/evt_1; the source ends at the last slash before the id, and
    sources of our own hold one: emit/order.paid/order-7.
    """
    from onceward.cli.console.words import print_json

    source, event_id = _identity(event)
    detail = reach.run(lambda console: console.event(source, event_id))
    if reach.as_json:
        print_json(detail)
    else:
        _print_event(detail, reach.shown(), with_values=values)


def _identity(event: str) -> tuple[str, str]:
    """Give source and id: our own sources are two words, those of senders one."""
    parts = event.split("/")
    count = 2 if parts[0] in ("emit", "start", "run", "schedule") else 1
    if len(parts) <= count or not all(parts[: count + 1]):
        raise click.BadParameter(
            f"{event!r} is not SOURCE/ID: write the name of its source before it, as `onceward events list` does, "
            f"e.g. stripe/{event}.",
            param_hint="SOURCE/ID",
        )
    return "/".join(parts[:count]), "/".join(parts[count:])


def _print_event(detail: EventDetail, options: str, *, with_values: bool) -> None:
    from onceward.cli.console.listing import print_runs
    from onceward.cli.console.page import VALUE_CHARS
    from onceward.cli.console.words import command, fields, heading, now_ms, say, value, when

    now, event = now_ms(), detail.event
    say(f"{event.type}  {event.source}/{event.id}", "bold")
    twins = ", ".join(detail.same_body[:5])
    fields(
        [
            ("received", when(event.received_at, now)),
            ("occurred", None if event.occurred_at is None else when(event.occurred_at, now)),
            ("subject", event.subject),
            (
                "payload",
                "(pruned; the id stays, so that a redelivery starts nothing again)"
                if detail.payload is None
                else value(detail.payload, 1_000_000 if with_values else VALUE_CHARS),
            ),
            (
                "clash",
                "a delivery brought other content under this id; the first stays"
                if detail.has_clash
                else None,
            ),
            ("same body", f"also came as {twins}: a captured delivery may be sent again" if twins else None),
        ]
    )
    heading("Runs")
    if detail.runs:
        print_runs(detail.runs)
    else:
        say("  none")
    for skipped in detail.skipped:
        say(f"  {skipped.workflow} has none: {skipped.why}")
    if detail.deliveries:
        heading(f"Deliveries: {detail.delivery_count}")
        _print_deliveries(detail.deliveries)
    heading("What you can do")
    for run in detail.runs[:1]:
        command(f"onceward runs show {shlex.quote(run.run_id)}{options}", "see what became of it")
    holders = [skipped.holder_run_id for skipped in detail.skipped if skipped.holder_run_id is not None]
    for run_id in list(dict.fromkeys(holders))[:3]:
        command(f"onceward runs show {shlex.quote(run_id)}{options}", "see the run that holds the key")
    for delivery in detail.deliveries[:1]:
        command(
            f"onceward deliveries show {shlex.quote(delivery.delivery_id)}{options}",
            "see the request as it came",
        )
    if not detail.runs and not detail.skipped:
        say("  No workflow is on this type: compare with `onceward workflows list`.")


# --- deliveries -------------------------------------------------------------------------------------


@click.group("deliveries", short_help="List deliveries, or show one with its request.")
def deliveries() -> None:
    """Tell of deliveries: the requests that carried events, and those that could not be read."""


@deliveries.command("list", short_help="List deliveries, newest first.")
@click.option("--source", metavar="NAME", help="Of this source.")
@click.option(
    "--outcome",
    type=click.Choice(["accepted", "duplicate", "clash", "unparsed"]),
    help="With this outcome; by default with any.",
)
@click.option("--since", type=Moment(), metavar="TIME", help="Stored since then: 2h, 7d, or a date.")
@click.option("--until", type=Moment(), metavar="TIME", help="Stored before then.")
@click.option("--limit", type=WholeNumber(1, 200), default=20, show_default=True, help="At most so many.")
@click.option("--after", metavar="PLACE", help="Go on where the page before ended, as it said.")
@reaching
def list_deliveries(
    reach: Reach,
    source: str | None,
    outcome: str | None,
    since: Millis | None,
    until: Millis | None,
    limit: int,
    after: str | None,
) -> None:
    """List deliveries, newest first."""
    from onceward.cli.console.words import print_json
    from onceward.console.port import DeliveryQuery

    query = DeliveryQuery(source=source, outcome=outcome, since=since, until=until, limit=limit, after=after)
    page = reach.run(lambda console: console.deliveries(query))
    if reach.as_json:
        print_json(page)
        return
    if page.items:
        _print_deliveries(page.items)
    else:
        click.echo("No delivery fits.")
    if page.next is not None:
        click.echo(plain(f"There are more: add --after {shlex.quote(page.next)}"), err=True)


def _print_deliveries(found: list[DeliveryView]) -> None:
    from onceward.cli.console.words import now_ms, print_table, state, when

    now = now_ms()
    rows = [
        (
            row.delivery_id,
            state(row.outcome),
            row.source,
            when(row.received_at, now),
            row.error or ", ".join(name.partition("/")[2] for name in row.events[:5]) or "-",
        )
        for row in found
    ]
    print_table("DELIVERY", "OUTCOME", "SOURCE", "RECEIVED", "EVENTS", rows=rows, narrow=("EVENTS", "SOURCE"))


@deliveries.command("refused", short_help="List what was refused, and why.")
@click.option("--source", metavar="NAME", help="Of this source.")
@reaching
def list_refused(reach: Reach, source: str | None) -> None:
    """List the requests that were refused: of which source, for which reason, how often, and what to do.

    Nothing of them was stored but a few samples.
    """
    from onceward.cli.console.words import now_ms, print_json, say, when

    found = reach.run(lambda console: console.refusals(source))
    if reach.as_json:
        print_json(found)
        return
    if not found:
        click.echo(
            "Nothing was refused, up to some 10 s ago: processes write down what they refuse that often."
        )
    now = now_ms()
    for row in found:
        say(f"{row.source}: {row.reason}" if row.source else row.reason, "red")
        first = "" if row.count == 1 else f"since {when(row.first_at, now)}, "
        say(f"  {counted(row.count, 'time')}, {first}the last {when(row.last_at, now)}")
        for sample in row.samples[:SAMPLES_SHOWN]:
            say(f"    {when(sample['at'], now)}  {sample['status']}  {sample['check']}{_clocks(sample)}")
        if row.hint:
            say(f"  {row.hint}")


def _clocks(sample: dict[str, Any]) -> str:
    """Say by how much the sender's clock and ours differ, where it signs a time."""
    from onceward.cli.console.words import length

    skew: Millis | None = sample.get("skew_ms")
    if skew is None:
        return ""
    return f"; signed {length(abs(skew))} {'before' if skew >= 0 else 'after'} it came"


@deliveries.command("show", short_help="Show one delivery with its request.")
@click.argument("delivery_id", metavar="DELIVERY")
@reaching
def show_delivery(reach: Reach, delivery_id: str) -> None:
    """Show the request as it came, redacted: address, the headers that are kept, body."""
    from onceward.cli.console.words import (
        command,
        fields,
        heading,
        length,
        now_ms,
        print_json,
        say,
        state,
        when,
        whole,
    )
    from onceward.core.glossary import TOLD

    found = reach.run(lambda console: console.delivery(delivery_id))
    if reach.as_json:
        print_json(found)
        return
    head = state(found.outcome)
    say(head.append(f"  {found.delivery_id}  {found.source}"))
    fields(
        [
            ("received", when(found.received_at, now_ms())),
            ("sender told", TOLD.get(found.outcome, found.outcome)),
            ("signed", None if found.skew_ms is None else f"{length(abs(found.skew_ms))} earlier"),
            (
                "secret",
                None if found.secret_index is None else f"number {found.secret_index + 1} of the source's",
            ),
            ("request", f"{found.method} {found.url}" if found.method else None),
            ("events", ", ".join(found.events) or None),
            ("copies", str(found.copies) if found.copies > 1 else None),
            ("error", found.error),
        ]
    )
    if found.headers:
        heading("Headers")
        fields(sorted(found.headers.items()))
    heading("Body")
    body = found.body if found.body is not None else found.body_base64
    whole(body or "(not kept)")
    heading("What you can do")
    command(
        f"onceward redeliver MODULE:APP {shlex.quote(found.delivery_id)}",
        "have it read again by its source, whose code is needed for it",
    )
