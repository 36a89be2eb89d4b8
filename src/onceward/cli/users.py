"""``onceward users``: who may log in to the dashboard."""

from __future__ import annotations

import sys

import click

from onceward.cli.accounts import actor, opened, role_option, show_all
from onceward.cli.options import setting_options

_STDIN = click.option(
    "--password-stdin", is_flag=True, help="Read the password from the standard input, for scripts."
)


@click.group("users", short_help="Who may log in to the dashboard.")
def command() -> None:
    """Make, list, change and remove the users of the dashboard.

    The store is the one of the app, of --store, or of ONCEWARD_STORE. Each change is in the audit.
    """


@command.command("add", short_help="Let somebody log in.")
@click.argument("name")
@click.argument("target", metavar="[MODULE:APP]", required=False)
@role_option
@_STDIN
@setting_options("store", "namespace")
def add(name: str, target: str | None, role: str, password_stdin: bool, **settings: str | None) -> None:
    """Let NAME log in; asks for a password."""
    from onceward.web.access import Role

    password = _password(name, is_piped=password_stdin)
    with opened(target, settings, migrate=True) as accounts:
        accounts.add_user(name, Role(role), password, actor=actor())
    click.echo(f"{name} may log in as {role}.")


@command.command("list", short_help="List them.")
@click.argument("target", metavar="[MODULE:APP]", required=False)
@setting_options("store", "namespace")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; times by RFC 3339.")
def list_(target: str | None, as_json: bool, **settings: str | None) -> None:
    """List the users."""
    from onceward.core.credentials import Kind

    show_all(Kind.USER, target, settings, as_json=as_json)


@command.command("password", short_help="Give one another password.")
@click.argument("name")
@click.argument("target", metavar="[MODULE:APP]", required=False)
@_STDIN
@setting_options("store", "namespace")
def password(name: str, target: str | None, password_stdin: bool, **settings: str | None) -> None:
    """Give NAME another password; browsers in which they are logged in are logged out."""
    new = _password(name, is_piped=password_stdin)
    with opened(target, settings, migrate=False) as accounts:
        accounts.set_password(name, new, actor=actor())
    click.echo(f"{name} has another password, and is logged out everywhere.")


@command.command("role", short_help="Give one another role.")
@click.argument("name")
@click.argument("target", metavar="[MODULE:APP]", required=False)
@role_option
@setting_options("store", "namespace")
def role_(name: str, target: str | None, role: str, **settings: str | None) -> None:
    """Give NAME another role; browsers in which they are logged in are logged out."""
    from onceward.web.access import Role

    with opened(target, settings, migrate=False) as accounts:
        accounts.set_role(name, Role(role), actor=actor())
    click.echo(f"{name} is {role} now.")


@command.command("remove", short_help="Let one log in no more.")
@click.argument("name")
@click.argument("target", metavar="[MODULE:APP]", required=False)
@setting_options("store", "namespace")
def remove(name: str, target: str | None, **settings: str | None) -> None:
    """Let NAME log in no more, and log them out; the audit keeps what they did."""
    with opened(target, settings, migrate=False) as accounts:
        accounts.remove_user(name, actor=actor())
    click.echo(f"{name} may log in no more.")


@command.command("link", short_help="Make a link that logs in once.")
@click.argument("target", metavar="[MODULE:APP]", required=False)
@setting_options("store", "namespace", "host", "port")
def link(target: str | None, **settings: str | None) -> None:
    """Print an address that logs its first visitor in as an admin; it works for ten minutes."""
    from onceward.cli.starting import settings_of

    with opened(target, settings, migrate=True) as accounts:
        secret = accounts.add_link(actor=actor())
    found = settings_of(target, settings)
    host = f"[{found.host}]" if ":" in found.host else found.host
    click.echo(f"http://{host}:{found.port}/login?link={secret}")


def _password(name: str, *, is_piped: bool) -> str:
    if is_piped:
        return sys.stdin.readline().rstrip("\r\n")
    return str(click.prompt(f"Password for {name}", hide_input=True, confirmation_prompt=True))
