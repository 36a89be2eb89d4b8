"""``onceward doctor``: what is wrong with a store, run by run and setting by setting."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from onceward.cli.console.reach import Reach, reaching
from onceward.cli.options import WholeNumber

if TYPE_CHECKING:
    from onceward.cli.console.diagnosis import Checked, Finding
    from onceward.core.ports import Store

SHOWN_MAX = 20


@click.command("doctor", short_help="Say what is wrong with a store.")
@click.option(
    "--runs",
    "sample",
    type=WholeNumber(1, 20_000),
    default=1_000,
    show_default=True,
    help="Of a large store look at so many runs of each kind.",
)
@click.option("--promises", is_flag=True, help="List the promises one by one.")
@reaching
def command(reach: Reach, sample: int, promises: bool) -> None:
    """Look for broken promises, for runs that are stuck, and for settings that can lose data.

    It only reads, and a bounded part: a store with more than 5,000 runs is not looked at whole, but what
    is under way in it, what is open and what is new. The status is 1 if anything is wrong.
    """
    if reach.api is not None:
        raise click.UsageError("The doctor looks at a store itself: use --store or --app.")
    from onceward.cli.console import diagnosis
    from onceward.cli.console.words import print_json
    from onceward.cli.starting import bare_store

    store = bare_store(reach.app().settings)
    store.open(migrate=False)
    try:
        now = store.now_ms()
        checked = diagnosis.check_promises(store, sample)
        findings = [
            *checked.violations,
            *diagnosis.stuck_runs(store, now),
            *diagnosis.dangers(store, store.processes(), now),
            *diagnosis.untold(store, now),
        ]
        if reach.as_json:
            print_json({**diagnosis.as_data(checked, findings), "promises": _promises(checked)})
        else:
            _print(store, checked, findings, with_promises=promises)
    finally:
        store.close()
    if any(finding.is_wrong for finding in findings):
        raise click.exceptions.Exit(1)


def _promises(checked: Checked) -> dict[str, str]:
    """Give what became of each promise: ``holds``, ``broken``, or ``not checkable here``."""
    from onceward.cli.console.promises import PROMISES, ROWS

    broken = {finding.subject.partition(" ")[0] for finding in checked.violations}
    return {
        number: "broken" if number in broken else "holds" if ROWS in watched else "not checkable here"
        for number, (_, watched) in PROMISES.items()
    }


def _print(store: Store, checked: Checked, findings: list[Finding], *, with_promises: bool) -> None:
    from onceward.cli.console.promises import PROMISES
    from onceward.cli.console.words import fields, heading, say
    from onceward.core.nouns import counted

    fields([(name, value) for name, value in store.describe().items()], indent="")
    became = _promises(checked)
    heading("Promises")
    seen = counted(checked.runs, "run")
    if not checked.is_whole:
        seen += " of a large store"
    elif checked.runs != 1:
        seen = f"all {seen}"
    holding = [number for number, state in became.items() if state == "holds"]
    elsewhere = [number for number, state in became.items() if state == "not checkable here"]
    hold = "holds" if len(holding) == 1 else "hold"
    say(f"  {len(holding)} {hold} in the rows of {seen}: {' '.join(holding)}", "green")
    say(f"  {len(elsewhere)} are not checkable here, only by tests or in time: {' '.join(elsewhere)}", "dim")
    if with_promises:
        for number, (text, _) in PROMISES.items():
            say(f"  {number:<4} {became[number]:<19} {text}")
    _print_all(checked.violations)
    for kind, title in (("stuck", "Stuck runs"), ("danger", "Dangers"), ("note", "Worth knowing")):
        some = [finding for finding in findings if finding.kind == kind]
        if some:
            heading(f"{title}: {len(some)}")
            _print_all(some)
    if not any(finding.is_wrong for finding in findings):
        say("")
        say("Nothing is wrong.", "bold green")


def _print_all(findings: list[Finding]) -> None:
    from onceward.cli.console.words import say

    styles = {"broken": "bold red", "danger": "bold red", "stuck": "bold magenta"}
    for finding in findings[:SHOWN_MAX]:
        say(f"  {finding.subject}", styles.get(finding.kind, "bold"))
        say(f"      {finding.says}")
        if finding.todo:
            say(f"      {finding.todo}", "dim")
    if len(findings) > SHOWN_MAX:
        say(f"  … and {len(findings) - SHOWN_MAX} more; --json lists them all", "dim")
