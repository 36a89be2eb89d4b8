"""``onceward send``: a realistic, signed delivery to a receiver, as its provider would send it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from onceward.cli.options import WholeNumber
from onceward.cli.plain import plain
from onceward.core.errors import ConfigError

if TYPE_CHECKING:
    from onceward.cli.post import Reply
    from onceward.cli.shots import Outcome, Shot
    from onceward.sources.base import Source

VARIABLE = "ONCEWARD_SECRET"
REPEAT_MAX = 10_000
_SHOWN_CHARS_MAX = 300
_ADVICE = {
    400: "Compare KIND with the receiver's source; its log says what could not be read.",
    401: "Compare the secrets; the receiver's log says which check failed.",
    404: "Compare the address: /hooks/NAME where the app is served alone, /webhooks/hooks/NAME in a framework.",
    503: "The receiver's store is away or full, or it is stopping; its log says which.",
}


@click.command("send", short_help="Send a realistic, signed delivery to a receiver.")
@click.argument("kind")
@click.argument("type", metavar="TYPE", required=False)
@click.option("--to", metavar="URL", required=True, help="The receiver's address for that source.")
@click.option(
    "--secret",
    "secrets",
    multiple=True,
    help=f"What the receiver's source has; the first signs.  [{VARIABLE}]",
)
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help="An option of the source, see `onceward sources KIND`; @FILE reads it from a file.",
)
@click.option(
    "--set",
    "edits",
    multiple=True,
    metavar="PATH=VALUE",
    help="Change the body: a JSON pointer or dots, a JSON value or text.",
)
@click.option(
    "--repeat",
    type=WholeNumber(1, REPEAT_MAX),
    default=1,
    help="How many events, each with an id of its own.",
)
@click.option("--doubled", is_flag=True, help="Send each twice; the second must be a duplicate.")
@click.option("--tampered", is_flag=True, help="Change it after signing; it must be refused.")
@click.option(
    "--late",
    metavar="DURATION",
    help="Sign it that long ago, e.g. 10m; refused where the sender signs a time.",
)
@click.option(
    "--signed-url", metavar="URL", help="The address that is signed, where the receiver has a public_url."
)
@click.option("--unsigned", is_flag=True, help="Without a signature, for a source with insecure=True.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list of what was sent and answered.")
@click.pass_context
def command(
    ctx: click.Context,
    kind: str,
    type: str | None,  # noqa: A002 (the glossary's word)
    to: str,
    secrets: tuple[str, ...],
    options: tuple[str, ...],
    edits: tuple[str, ...],
    repeat: int,
    doubled: bool,
    tampered: bool,
    late: str | None,
    signed_url: str | None,
    unsigned: bool,
    as_json: bool,
) -> None:
    """Sign a packaged delivery of KIND as its provider would, and send it.

    \b
    onceward send stripe checkout.session.completed --to http://127.0.0.1:8000/hooks/stripe
    onceward send github push --to … --set /ref=refs/heads/next --doubled
    onceward sources stripe          # which types there are

    The exit status is 0 when the receiver did what it should: it accepted the delivery, or refused
    one that is tampered with or late.
    """  # noqa: D301 (click wants the character itself)
    import os
    import secrets as entropy
    from random import Random

    from onceward.cli.post import checked_address, post
    from onceward.cli.shots import fixture, shots
    from onceward.core.duration import to_ms
    from onceward.runtime.clock import wall_ms

    chosen = fixture(kind, type)
    assert type is not None, "a fixture without a type is refused"
    if not secrets and not unsigned and os.environ.get(VARIABLE):
        secrets = (os.environ[VARIABLE],)
    wanted = _pairs(options, "--option", reads_files=True)
    url = checked_address(to)

    def make() -> Source:
        return _source(kind, secrets, dict(wanted), unsigned=unsigned)

    signed = checked_address(signed_url or to)
    planned = shots(
        make,
        type,
        chosen,
        edits=_pairs(edits, "--set"),
        url=signed,
        now_ms=wall_ms(),
        late_ms=0 if late is None else to_ms(late, what="delay of --late"),
        repeat=repeat,
        is_doubled=doubled,
        is_tampered=tampered,
        is_unsigned=unsigned,
        random=Random(entropy.randbits(64)),  # noqa: S311 (for ids, not for secrets)
    )
    told: list[dict[str, Any]] = []
    for shot in planned:
        reply = post(_target(url, signed, shot.request.url), shot.request)
        told.append(_told(kind, type, shot, reply))
        if not as_json:
            _show(told[-1])
    if as_json:
        click.echo(json.dumps(told, indent=2))
    ctx.exit(0 if all(one["as_expected"] for one in told) else 1)


def _target(url: str, signed: str, called: str) -> str:
    """Give where to send: some senders put a hash of the body into the address that they call."""
    if not called or called == signed:
        return url
    from urllib.parse import urlsplit, urlunsplit

    return urlunsplit(urlsplit(url)._replace(query=urlsplit(called).query))


def _source(kind: str, secrets: tuple[str, ...], options: dict[str, Any], *, unsigned: bool) -> Source:
    from onceward.sources import create

    if not unsigned and not secrets and not options:
        raise ConfigError(
            f"There is no secret to sign a delivery of {kind!r} with.",
            means="Its receiver would refuse it.",
            todo=f"Give the receiver's as --secret or {VARIABLE}, or send it --unsigned.",
        )
    given = {"insecure": True} if unsigned else {"secrets": list(secrets)}
    return create(kind, **given, **options)


def _pairs(given: tuple[str, ...], option: str, *, reads_files: bool = False) -> list[tuple[str, Any]]:
    pairs = []
    for text in given:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise click.UsageError(f"{option} {text!r} is not of the form NAME=VALUE.")
        if reads_files and value.startswith("@"):
            pairs.append((name, _content(value[1:])))
        else:
            pairs.append((name, _value(value)))
    return pairs


def _value(text: str) -> Any:
    """Read what was typed as JSON when it is, else as text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _content(path: str) -> str:
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"The file {path} cannot be read: {error}.",
            means="The option has no value.",
            todo="Name a text file after the @.",
        ) from error


def _told(kind: str, event_type: str, shot: Shot, reply: Reply) -> dict[str, Any]:
    outcome: Outcome = (
        "accepted" if 200 <= reply.status < 300 else "refused" if 400 <= reply.status < 500 else "failed"
    )
    is_new = shot.is_again and _is_new(reply.text)
    return {
        "kind": kind,
        "type": event_type,
        "event_ids": shot.event_ids,
        "status": reply.status,
        "reply": reply.text,
        "ms": reply.ms,
        "outcome": outcome,
        "expected": shot.expected,
        "as_expected": outcome == shot.expected and not is_new,
    }


def _is_new(text: str) -> bool:
    """Say whether a reply says that one of its events was not there before."""
    try:
        events = json.loads(text)["events"]
        return any(not event["duplicate"] for event in events)
    except (ValueError, TypeError, LookupError):
        return False  # in the sender's own dialect: it says nothing of that


def _show(one: dict[str, Any]) -> None:
    reply = plain(one["reply"])
    shown = reply if len(reply) <= _SHOWN_CHARS_MAX else f"{reply[:_SHOWN_CHARS_MAX]}…"
    mark = click.style("ok ", fg="green") if one["as_expected"] else click.style("NOT", fg="red")
    click.echo(f"{mark} {one['status']} {one['outcome']}  {one['kind']} {one['type']}  {one['ms']} ms")
    for event_id in one["event_ids"]:
        click.echo(f"    event {plain(event_id)}")
    if shown:
        click.echo(f"    {shown}")
    if one["as_expected"]:
        return
    if one["outcome"] == one["expected"]:
        click.echo("    expected: a duplicate, and an event of it is called new")
        return
    click.echo(f"    expected: {one['expected']}")
    if one["status"] in _ADVICE:
        click.echo(f"    {_ADVICE[one['status']]}")
