"""``onceward tokens``: what programs show to the REST API."""

from __future__ import annotations

import click

from onceward.cli.accounts import actor, opened, role_option, show_all
from onceward.cli.options import setting_options


@click.group("tokens", short_help="What programs show to the REST API.")
def command() -> None:
    """Make, list and revoke the tokens of the REST API.

    The store is the one of the app, of --store, or of ONCEWARD_STORE. Each change is in the audit.
    """


@command.command("add", short_help="Make one.")
@click.argument("name")
@click.argument("target", metavar="[MODULE:APP]", required=False)
@role_option
@click.option("--expires", metavar="DURATION", help="When it stops to work, e.g. 90d; by default never.")
@setting_options("store", "namespace")
def add(name: str, target: str | None, role: str, expires: str | None, **settings: str | None) -> None:
    """Make a token called NAME and print it, this once: the store keeps a hash of it."""
    from onceward.core.duration import to_ms
    from onceward.web.access import Role

    lasts_ms = None if expires is None else to_ms(expires, what="--expires")
    with opened(target, settings, migrate=True) as accounts:
        token = accounts.add_token(name, Role(role), actor=actor(), lasts_ms=lasts_ms)
    click.echo(f"{name} may call as {role}. Keep this, it is not shown again:", err=True)
    click.echo(token)


@command.command("list", short_help="List them.")
@click.argument("target", metavar="[MODULE:APP]", required=False)
@setting_options("store", "namespace")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; times by RFC 3339.")
def list_(target: str | None, as_json: bool, **settings: str | None) -> None:
    """List the tokens: name, beginning, role, and roughly when each was used last."""
    from onceward.core.credentials import Kind

    show_all(Kind.TOKEN, target, settings, as_json=as_json)


@command.command("revoke", short_help="Let one work no more.")
@click.argument("name")
@click.argument("target", metavar="[MODULE:APP]", required=False)
@setting_options("store", "namespace")
def revoke(name: str, target: str | None, **settings: str | None) -> None:
    """Let the token NAME, or the one with that id, work no more; from its next call on."""
    with opened(target, settings, migrate=False) as accounts:
        accounts.revoke_token(name, actor=actor())
    click.echo(f"The token {name} works no more.")
