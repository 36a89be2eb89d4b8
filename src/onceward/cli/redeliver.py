"""``onceward redeliver``: have a stored delivery read again, here or by another receiver."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from onceward.cli.options import setting_options

if TYPE_CHECKING:
    from onceward.app import App
    from onceward.core.messages import HttpRequest

PAGE = 1_000


@click.command("redeliver", short_help="Have a stored delivery read again.")
@click.argument("target", metavar="MODULE:APP")
@click.argument("wanted", metavar="[DELIVERY|EVENT]...", nargs=-1)
@click.option("--unparsed", is_flag=True, help="All deliveries that could not be read, oldest first.")
@click.option("--to", "url", metavar="URL", help="Send the request to this address; store nothing here.")
@setting_options("store", "namespace", "log_level")
def command(
    target: str, wanted: tuple[str, ...], unparsed: bool, url: str | None, **settings: str | None
) -> None:
    """Have stored deliveries read again by their source, as they came.

    DELIVERY is an id such as del_06…; EVENT is SOURCE/ID and means its first delivery. Events that
    are stored already stay; their runs are shown. A delivery that could not be read becomes its
    events once the source is corrected.

    With --to the request is sent to another receiver: the same body and the headers that are kept,
    signed anew where the source can, so that its time is not too old.
    """
    import asyncio

    from onceward.cli.starting import prepared

    if bool(wanted) == unparsed:
        raise click.UsageError("Name deliveries or events, or say --unparsed.")
    app = prepared(target, settings)
    if not asyncio.run(_redeliver(app, wanted, url)):
        raise click.exceptions.Exit(1)


async def _redeliver(app: App, wanted: tuple[str, ...], url: str | None) -> bool:
    """Do all of them; say whether all went well."""
    from onceward.cli.plain import plain
    from onceward.core.errors import BodyMalformed, NotFound

    await app.open(runs=False)
    try:
        delivery_ids = [await _delivery_of(app, one) for one in wanted] if wanted else await _unparsed(app)
        is_well = True
        for delivery_id in delivery_ids:
            try:
                told = await (_read_again(app, delivery_id) if url is None else _sent(app, delivery_id, url))
            except (BodyMalformed, NotFound) as error:
                told, is_well = str(error), False
            is_well = is_well and not told.startswith("refused")
            click.echo(plain(f"{delivery_id} {told}"))
        if not delivery_ids:
            click.echo("No delivery is unparsed.")
        return is_well
    finally:
        await app.close()


async def _delivery_of(app: App, wanted: str) -> str:
    """Give the id of a delivery, or of the first one of an event.

    Raises:
        NotFound: there is no such event, or it came with no delivery.
    """
    from onceward.core.errors import NotFound

    source, slash, event_id = wanted.partition("/")
    if not slash:
        return wanted
    event = await app.event(source, event_id)
    if not event.deliveries:
        raise NotFound(
            f"The event {event_id!r} of source {source!r} came with no delivery.",
            means="It was emitted or started here; there is no request to read again.",
            todo="Replay its run instead.",
        )
    return event.deliveries[0].delivery_id


async def _unparsed(app: App) -> list[str]:
    found: list[str] = []
    while True:
        before = found[-1] if found else None
        rows = await app.deliveries(state="unparsed", before=before, limit=PAGE)
        found += [row.delivery_id for row in rows]
        if len(rows) < PAGE:
            return found[::-1]


async def _read_again(app: App, delivery_id: str) -> str:
    accepted = await app.redeliver(delivery_id)
    events = [
        f"{event.event_id} {'duplicate' if event.duplicate else 'accepted'} {' '.join(event.run_ids)}".rstrip()
        for event in accepted.events
    ]
    return "; ".join(events) or "no events"


# --- to another receiver ----------------------------------------------------------------------------


async def _sent(app: App, delivery_id: str, url: str) -> str:
    import asyncio

    from onceward.cli.post import checked_address, post

    request = await _signed_anew(app, delivery_id, checked_address(url))
    reply = await asyncio.to_thread(post, url, request)
    said = "accepted" if 200 <= reply.status < 300 else "refused"
    return f"{said} {reply.status} {reply.text}".rstrip()


async def _signed_anew(app: App, delivery_id: str, url: str) -> HttpRequest:
    """Give a stored request as the provider would send it now; as it came where we cannot sign it.

    What names the event stays as it came: from the source is taken what depends on body and time,
    its signature and its clock, and what is not kept.
    """
    import msgspec

    from onceward.core.errors import ConfigError

    row, request = await app.arrivals.request(delivery_id)
    source, now_ms = app.arrivals.source(row.source), app.worker.now_ms()

    def signed(body: bytes, at_ms: int, event_id: str) -> HttpRequest:
        return source.signed_request(body, at_ms, event_id=event_id, url=url)

    try:
        event_id = _id_that_came(request, signed(request.body, now_ms, PROBE))
        fresh = signed(request.body, now_ms, event_id)
        later = signed(request.body + b"\n", now_ms + 61_000, event_id)
    except ConfigError:
        return request
    then, came = dict(later.headers), dict(request.headers)
    # A token that proves the sender does not change, and is not kept.
    changed = {name: value for name, value in fresh.headers if then.get(name) != value or name not in came}
    # `post` says who sends.
    dropped = {*changed, b"user-agent"}
    headers = tuple((name, value) for name, value in request.headers if name not in dropped)
    return msgspec.structs.replace(fresh, headers=(*headers, *changed.items()))


PROBE = "onceward-probe"
"""An event id by which is seen where a source writes it."""


def _id_that_came(request: HttpRequest, probed: HttpRequest) -> str:
    """Give the value of the header in which the source writes an event's id; empty without one."""
    for name, value in probed.headers:
        if value == PROBE.encode():
            return request.header(name.decode("latin-1")) or ""
    return ""
