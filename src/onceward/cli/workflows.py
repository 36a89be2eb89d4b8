"""``onceward workflows``: what events start runs of, and how to let one that is gone rest."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

import click

from onceward.cli.options import setting_options

if TYPE_CHECKING:
    from onceward.core.model import WorkflowRow
    from onceward.core.ports import Store


@click.group("workflows", short_help="List the workflows of a store, or forget one.")
def command() -> None:
    """Tell which workflows events start runs of, and forget one that is no longer in the code.

    The store is the one of the app, of --store, or of ONCEWARD_STORE.
    """


@command.command("list", short_help="List what the store has.")
@click.argument("target", metavar="[MODULE:APP]", required=False)
@setting_options("store", "namespace")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; times by RFC 3339.")
def list_(target: str | None, as_json: bool, **settings: str | None) -> None:
    """List the workflows that processes registered, with what starts each and its rules.

    With an app, those that its code does not have are marked.
    """
    from onceward.cli.console.words import fields

    with _opened(target, settings) as (store, in_code):
        rows = store.workflows()
    if as_json:
        _print_json(rows, None if target is None else in_code)
        return
    told = []
    for row in rows:
        gone = "  (not in the code)" if target is not None and row.name not in in_code else ""
        told.append((row.name, f"{_told(row)}; last registered {_when(row)}{gone}"))
    fields(told, indent="")
    if not rows:
        click.echo("The store has no workflows in this namespace.")


@command.command("forget", short_help="Let events start no more runs of one.")
@click.argument("name")
@click.argument("target", metavar="[MODULE:APP]", required=False)
@setting_options("store", "namespace")
def forget(name: str, target: str | None, **settings: str | None) -> None:
    """Let events start no more runs of the workflow NAME, which is no longer in the code.

    Its runs stay, and can be cancelled. Processes that run already know within a lease; one whose code
    still has the workflow registers it again when it starts.
    """
    from onceward import desk
    from onceward.cli.plain import plain

    with _opened(target, settings) as (store, in_code):
        desk.forget(store, name, in_code)
    click.echo(plain(f"Forgot {name}: events start no more runs of it."))


@contextlib.contextmanager
def _opened(target: str | None, given: dict[str, str | None]) -> Iterator[tuple[Store, Collection[str]]]:
    """Give the store, neither made nor migrated, and the workflows in the app's code."""
    from onceward.cli.starting import bare_store, prepared, settings_of

    app = None if target is None else prepared(target, given)
    store = bare_store(settings_of(None, given) if app is None else app.settings)
    try:
        store.open(migrate=False)
        yield store, () if app is None else app.workflows
    finally:
        store.close()


def _print_json(rows: Sequence[WorkflowRow], in_code: Collection[str] | None) -> None:
    import msgspec

    from onceward.cli.console.words import print_json

    print_json(
        [
            {
                "name": row.name,
                "triggers": msgspec.json.decode(row.triggers),
                "seen_at": row.seen_at,
                "is_in_code": None if in_code is None else row.name in in_code,
            }
            for row in rows
        ]
    )


def _told(row: WorkflowRow) -> str:
    """Give what starts its runs, and by which rules, as the dashboard does."""
    import msgspec

    from onceward.console.workflow_words import rules_told, starts_on

    rules = None if row.rules is None else msgspec.json.decode(row.rules)
    return "; ".join([", ".join(starts_on(msgspec.json.decode(row.triggers))), *rules_told(rules)])


def _when(row: WorkflowRow) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(row.seen_at / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
