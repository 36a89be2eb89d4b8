"""``onceward migrate``: bring a store's tables up to date, or say what that takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from onceward.cli.options import setting_options

if TYPE_CHECKING:
    from onceward.core.settings import Settings


@click.command("migrate", short_help="Bring a store up to date.")
@click.argument("target", metavar="[MODULE:APP]", required=False)
@setting_options("store")
@click.option("--sql", is_flag=True, help="Print the statements for that kind of database; touch nothing.")
@click.option(
    "--check", is_flag=True, help="Say whether anything is to do, by the exit status too (0 no, 1 yes)."
)
def command(target: str | None, store: str | None, sql: bool, check: bool) -> None:
    """Bring the tables of a store up to date, forward only.

    The store is the one of the app, of --store, or of ONCEWARD_STORE. serve and worker migrate by
    themselves when they start; in a rolling deploy migrate first. A store that a newer Onceward
    migrated is refused.
    """
    if sql and check:
        raise click.UsageError("--sql and --check exclude each other.")
    from onceward.cli.starting import settings_of

    settings = settings_of(target, {"store": store})
    if sql:
        _print_sql(settings)
    else:
        _migrate(settings, is_check=check)


def _print_sql(settings: Settings) -> None:
    from onceward.runtime.clock import wall_ms
    from onceward.stores.choose import migration_script

    click.echo(migration_script(settings, now_ms=wall_ms()), nl=False)


def _migrate(settings: Settings, *, is_check: bool) -> None:
    from onceward.cli.starting import bare_store
    from onceward.core.errors import SchemaOutdated
    from onceward.core.store_url import parse
    from onceward.stores.migrate import NAMES

    store = bare_store(settings)
    shown = parse(settings.store or "").show()
    try:
        try:
            store.open(migrate=False)
        except SchemaOutdated as outdated:
            if is_check:
                click.echo(f"{outdated.what} {outdated.todo}")
                raise click.exceptions.Exit(1) from None
            store.close()
            store.open(migrate=True)
            click.echo(f"Migrated {shown} to {NAMES[-1]}.")
        else:
            click.echo(f"Nothing to do: {shown} is at {NAMES[-1]}.")
    finally:
        store.close()
