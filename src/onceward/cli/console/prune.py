"""``onceward prune``: take what is over out of a store, now, page by page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from onceward.cli.options import setting_options

if TYPE_CHECKING:
    from onceward.core.model import Millis
    from onceward.core.ports import Store
    from onceward.core.retention import Pruned, Rules, What

ROUNDS_MAX = 3
"""What loses its values in one round may go whole in the next, a replay's original in the one after."""


@click.command("prune", short_help="Take what is over out of a store.")
@click.option("--app", "app_", metavar="MODULE:APP", help="Use this app's store, and its retention.")
@setting_options("store", "namespace")
@click.option("--older-than", metavar="DURATION", help="Of what ended or came so long ago, such as 30d.")
@click.option("--payloads", is_flag=True, help="Payloads and results; the default with --older-than.")
@click.option("--runs", is_flag=True, help="Runs whole, with payloads and results before.")
@click.option("--deliveries", is_flag=True, help="Requests as they came, also those that cannot be read.")
@click.option(
    "--identity",
    is_flag=True,
    help="Ids of events that have neither runs nor deliveries left: one that comes again runs again.",
)
@click.option("--workflow", metavar="NAME", help="Only runs of this workflow.")
@click.option("--dry-run", is_flag=True, help="Count, and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    app_: str | None,
    older_than: str | None,
    workflow: str | None,
    as_json: bool,
    dry_run: bool,
    store: str | None,
    namespace: str | None,
    **kinds: bool,
) -> None:
    """Take payloads and results, runs, deliveries or ids out of a store.

    Without --older-than the retention of the app and of the registered workflows holds. Never what a run
    needs that is not over, nor a failure that nobody dismissed. It works in small transactions beside
    whatever runs; stopped half-way it has done half, and goes on when it is started again.
    """
    from onceward.cli.starting import bare_store, prepared, settings_of

    _refuse_mixed(older_than, workflow, kinds)
    given = {"store": store, "namespace": namespace}
    app = None if app_ is None else prepared(app_, given)
    opened = bare_store(settings_of(None, given) if app is None else app.settings)
    try:
        opened.open(migrate=False)
        if older_than is None:
            from onceward.core.retention import rules_of
            from onceward.runtime.pruning import keeps_of

            keeps = keeps_of(opened.workflows())
            rules = rules_of(None if app is None else app.retention, keeps)
            if workflow is not None:
                rules = _of_one(rules, workflow)
        else:
            rules = _rules(older_than, workflow, kinds)
        counts = _prune(opened, rules, is_dry=dry_run, is_silent=as_json)
    finally:
        opened.close()
    _print(counts, is_dry=dry_run, as_json=as_json)


def _refuse_mixed(older_than: str | None, workflow: str | None, kinds: dict[str, bool]) -> None:
    chosen = [f"--{name}" for name, is_chosen in sorted(kinds.items()) if is_chosen]
    if chosen and older_than is None:
        raise click.UsageError(f"{chosen[0]} needs --older-than: how old is what may go?")
    if workflow is not None and (kinds["deliveries"] or kinds["identity"]):
        raise click.UsageError("--workflow is about runs; deliveries and ids belong to no workflow.")


def _rules(older_than: str, workflow: str | None, kinds: dict[str, bool]) -> Rules:
    """Give the rules that options make."""
    from onceward.core.duration import to_ms
    from onceward.core.retention import Keep, Rules

    age: Millis = to_ms(older_than, what="--older-than")
    has_payloads = kinds["payloads"] or kinds["runs"] or not any(kinds.values())
    rows = age if kinds["runs"] else None
    return Rules(
        Keep(rows, rows, rows, age if has_payloads else None),
        only=workflow,
        alone=age if has_payloads and workflow is None else None,
        deliveries=age if kinds["deliveries"] else None,
        unparsed=age if kinds["deliveries"] else None,
        notices=age if kinds["deliveries"] else None,
        identity=age if kinds["identity"] else None,
    )


def _of_one(rules: Rules, workflow: str) -> Rules:
    from onceward.core.retention import Rules

    return Rules(rules.keep, rules.workflows, only=workflow)


def _prune(store: Store, rules: Rules, *, is_dry: bool, is_silent: bool) -> dict[What, Pruned]:
    from rich.progress import Progress

    from onceward.cli.console.words import terminal
    from onceward.core.retention import Pruned

    counts = {what: Pruned() for what in rules.whats}
    out = terminal(is_error=True)
    with Progress(console=out, disable=is_silent or not out.is_terminal, transient=True) as bar:
        for _ in range(1 if is_dry else ROUNDS_MAX):
            before = dict(counts)
            for what in rules.whats:
                task = bar.add_task(what.value, total=None)
                for found in _pages(store, what, rules, is_dry=is_dry):
                    old = counts[what]
                    counts[what] = Pruned(
                        old.looked + found.looked, old.values + found.values, old.rows + found.rows
                    )
                    bar.update(task, advance=found.looked)
                bar.remove_task(task)
            if all(
                (counts[what].values, counts[what].rows) == (old.values, old.rows)
                for what, old in before.items()
            ):
                break
    return counts


def _pages(store: Store, what: What, rules: Rules, *, is_dry: bool) -> Any:
    after: str | None = ""
    while after is not None:
        found = store.prune(what, rules, store.now_ms(), after=after, is_dry=is_dry)
        yield found
        after = found.next


def _print(counts: dict[What, Pruned], *, is_dry: bool, as_json: bool) -> None:
    from onceward.cli.console.words import print_json, say
    from onceward.core.retention import What

    if as_json:
        told = {what.value: {"values": one.values, "rows": one.rows} for what, one in counts.items()}
        print_json({"dry_run": is_dry, "pruned": told})
        return
    if not counts:
        say("Nothing is configured to be pruned: everything is kept. See --older-than.")
        return
    say("Would go:" if is_dry else "Pruned:", "bold")
    for what, one in counts.items():
        parts = {
            What.RUNS: f"values of {one.values} runs, and {one.rows} runs whole",
            What.EVENTS: f"payloads of {one.values} events",
            What.DELIVERIES: f"{one.rows} deliveries",
            What.UNPARSED: f"{one.rows} unparsed deliveries",
            What.NOTICES: f"{one.rows} notices",
            What.IDENTITY: f"ids of {one.rows} events",
        }
        say(f"  {parts[what]}")
