"""``onceward export``: a store's events and what became of them, as JSON lines."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

import click

from onceward.cli.console.reach import Reach, reaching
from onceward.cli.console.times import Moment
from onceward.cli.options import setting_options
from onceward.core.model import Millis

if TYPE_CHECKING:
    from onceward.console.port import Console, ExportQuery


@click.command("export", short_help="Write events and their runs as JSON lines.")
@setting_options("redact")
@click.option("--out", metavar="FILE", default="-", show_default=True, help="Where to; - is standard output.")
@click.option("--workflow", metavar="NAME", help="Only runs of this workflow, and their events.")
@click.option("--subject", metavar="TEXT", help="Only events about this, and their runs.")
@click.option("--since", type=Moment(), metavar="TIME", help="Events received since then: 2h, 7d, or a date.")
@click.option("--until", type=Moment(), metavar="TIME", help="Events received before then.")
@click.option("--raw", is_flag=True, help="Do not redact: passwords, tokens and the like are written too.")
@reaching
def command(
    reach: Reach,
    redact: str | None,
    out: str,
    workflow: str | None,
    subject: str | None,
    since: Millis | None,
    until: Millis | None,
    raw: bool,
) -> None:
    """Write a line for each event, newest first, and behind it one for each of its runs, of their steps,
    attempts and audit entries.

    Each line is an object with "row", what it is of, and its columns as they are stored: times in Unix
    milliseconds, JSON as JSON; --json changes nothing. Memory does not grow with the store. It is no backup:
    what is written meanwhile may be missing. Over --api another instance's redaction holds, and --raw is for
    admins.
    """  # noqa: D205 - one sentence
    from onceward.console.port import ExportQuery

    if redact is not None:
        if reach.api is not None:
            raise click.UsageError("--api excludes --redact: the other instance has its own rules.")
        reach.settings["redact"] = redact
    query = ExportQuery(workflow=workflow, subject=subject, since=since, until=until, raw=raw)
    with _written(out) as file:
        reach.run(lambda console: _export(console, query, file))


async def _export(console: Console, query: ExportQuery, file: BinaryIO) -> None:
    import msgspec
    from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

    from onceward.cli.console.words import terminal

    err = terminal(is_error=True)
    columns = (SpinnerColumn(), TextColumn("rows"), MofNCompleteColumn())
    with Progress(*columns, console=err, disable=not err.is_terminal, transient=True) as bar:
        task = bar.add_task("rows", total=None)
        after: str | None = None
        while True:
            page = await console.export(msgspec.structs.replace(query, after=after))
            file.writelines(bytes(row) + b"\n" for row in page.rows)
            bar.update(task, advance=len(page.rows))
            if page.next is None:
                return
            after = page.next


@contextlib.contextmanager
def _written(out: str) -> Iterator[BinaryIO]:
    """Lend where to write: a file is there when it is whole, and only its owner may read it."""
    if out == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    part = f"{out}.part"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0)
    try:
        descriptor = os.open(part, flags, 0o600)
    except OSError as error:
        raise click.FileError(part, hint=error.strerror) from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())  # or a power loss could leave the name, and half of what is behind it
        os.replace(part, out)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise
