"""``onceward check``: name the calls that should be in a step, and what else a crash would do twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from onceward.check.findings import Report

FOUND, UNREADABLE = 1, 2


@click.command("check", short_help="Read an app's source for what a crash would do twice.")
@click.argument("paths", metavar="FILE|FOLDER|MODULE:APP…", nargs=-1, required=True)
@click.option(
    "--json", "as_json", is_flag=True, help="Print a JSON list of file, line, rule, message and fix."
)
def command(paths: tuple[str, ...], as_json: bool) -> None:
    """Read the source of an app, without importing it, for calls outside steps that should be in one.

    Exits with 0 if there is nothing to say, 1 if there are findings, 2 if something could not be
    read. A comment excuses a line: # onceward: allow[time-outside-step]
    """
    from onceward.check.checker import check
    from onceward.cli.plain import plain

    report = check([_file(path) for path in paths])
    if as_json:
        _print_json(report)
    else:
        _print_text(report)
    for one in report.unreadable:
        click.echo(f"Error: {plain(one.path)} cannot be read: {plain(one.reason)}.", err=True)
    if report.unreadable:
        raise click.exceptions.Exit(UNREADABLE)
    if report.findings:
        raise click.exceptions.Exit(FOUND)


def _file(path: str) -> str:
    """Give the file that is meant, where an app is named as for the other commands: shop:app."""
    module, colon, attribute = path.partition(":")
    if colon and attribute.isidentifier() and not module.endswith(".py"):
        return module.replace(".", "/") + ".py"
    return path


def _print_json(report: Report) -> None:
    import msgspec

    rows = [
        {"file": one.file, "line": one.line, "rule": one.rule, "message": one.message, "fix": one.fix}
        for one in report.findings
    ]
    click.echo(msgspec.json.format(msgspec.json.encode(rows), indent=2).decode())


def _print_text(report: Report) -> None:
    from onceward.cli.plain import plain
    from onceward.core.nouns import counted

    for one in report.findings:
        place = click.style(f"{plain(one.file)}:{one.line}", bold=True)
        click.echo(f"{place}: {click.style(one.rule, fg='red')}: {plain(one.message)}")
        click.echo(f"    {plain(one.fix)}")
    if report.unreadable and not report.files:
        return  # what follows on stderr is all that there is to say
    looked = f"{counted(report.workflows, 'workflow')} and {counted(report.steps, 'step')} in {counted(report.files, 'file')}"
    found = counted(len(report.findings), "finding") if report.findings else "Nothing found"
    click.echo(f"{found}: {looked} read.")
