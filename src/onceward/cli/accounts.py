"""What the commands about users and tokens do alike: a store, who changes it, and how it is told."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from onceward.core.credentials import Credential, Kind
    from onceward.web.auth.accounts import Accounts

ROLES = ("viewer", "operator", "admin")

role_option = click.option(
    "--role",
    type=click.Choice(ROLES),
    default="viewer",
    show_default=True,
    help="A viewer looks, an operator also steers runs, an admin may do everything.",
)


def actor() -> str:
    """Give who runs this command, for the audit."""
    import getpass

    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):  # a container whose user has no name
        return f"cli:{os.getuid()}" if hasattr(os, "getuid") else "cli"


@contextlib.contextmanager
def opened(target: str | None, given: Mapping[str, str | None], *, migrate: bool) -> Iterator[Accounts]:
    """Give the accounts of the app's store, or of the one that is named.

    Args:
        target: ``MODULE:APP``, or None.
        given: settings that were given as options.
        migrate: make the store where it is missing.
    """
    from onceward.cli.starting import bare_store, settings_of
    from onceward.core.ids import IdSource
    from onceward.web.auth.accounts import Accounts

    store = bare_store(settings_of(target, given))
    try:
        store.open(migrate=migrate)
        ids = IdSource(now_ms=store.now_ms, random_bytes=os.urandom)
        yield Accounts(store, now_ms=store.now_ms, new_id=lambda: str(ids.uuid7()), random_bytes=os.urandom)
    finally:
        store.close()


def show_all(kind: Kind, target: str | None, given: Mapping[str, str | None], *, as_json: bool) -> None:
    """Print the users or the tokens of a store; see `opened`."""
    from onceward.core.credentials import Kind

    with opened(target, given, migrate=False) as accounts:
        rows = accounts.all_of(kind)
    if rows or as_json:
        _show(rows, ids=kind is Kind.TOKEN, as_json=as_json)
    else:
        click.echo(f"The store has no {kind.value}s in this namespace.")


def _show(rows: Sequence[Credential], *, ids: bool, as_json: bool) -> None:
    """Print them in columns, or as JSON; never their hashes."""
    from onceward.cli.plain import plain

    if as_json:
        from onceward.cli.console.words import print_json

        names = ["name", *(["id", "used_at"] if ids else []), "role", "created_at", "expires_at"]
        print_json([{name: getattr(row, name) for name in names} for row in rows])
        return

    cells = [
        [
            row.name,
            *([row.id] if ids else []),
            row.role,
            f"made {_when(row.created_at)}",
            "never used" if row.used_at is None and ids else f"used {_when(row.used_at)}" if ids else "",
            "" if row.expires_at is None else f"expires {_when(row.expires_at)}",
        ]
        for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        padded = "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        click.echo(plain(padded.rstrip()))


def _when(at: int | None) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp((at or 0) / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
