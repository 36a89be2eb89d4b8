"""``onceward export``: a store's events and what became of them, as JSON lines."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from onceward.cli.console.times import Moment
from onceward.cli.options import setting_options
from onceward.core.model import Millis

if TYPE_CHECKING:
    from onceward.core.model import EventRow, RunRow
    from onceward.core.ports import Store
    from onceward.core.redact import Redaction

PAGE = 100
EVER: Millis = 2**62

VALUES = frozenset({"payload", "input", "output", "error", "warning", "begun"})
"""Columns that hold JSON of a user's."""

TEXTS = frozenset({"reason", "detail"})
"""Columns that hold text that may quote it."""


@click.command("export", short_help="Write events and their runs as JSON lines.")
@click.option("--app", "app_", metavar="MODULE:APP", help="Use this app's store, and its rules of redaction.")
@setting_options("store", "namespace", "redact")
@click.option("--out", metavar="FILE", default="-", show_default=True, help="Where to; - is standard output.")
@click.option("--workflow", metavar="NAME", help="Only runs of this workflow, and their events.")
@click.option("--since", type=Moment(), metavar="TIME", help="Events received since then: 2h, 7d, or a date.")
@click.option("--until", type=Moment(), metavar="TIME", help="Events received before then.")
@click.option("--raw", is_flag=True, help="Do not redact: passwords, tokens and the like are written too.")
def command(
    app_: str | None,
    out: str,
    workflow: str | None,
    since: Millis | None,
    until: Millis | None,
    raw: bool,
    **given: str | None,
) -> None:
    """Write a line for each event, newest first, and behind it one for each of its runs, of their steps,
    attempts and audit entries.

    Each line is an object with "row", what it is of, and its columns as they are stored: times in Unix
    milliseconds, JSON as JSON. Memory does not grow with the store. It is no backup: what is written
    meanwhile may be missing.
    """  # noqa: D205 - one sentence
    from onceward.cli.starting import bare_store, settings_of
    from onceward.core.redact import Redaction

    settings = settings_of(app_, given)
    redaction = None if raw else Redaction((settings.redact or "").split())
    store = bare_store(settings)
    try:
        store.open(migrate=False)
        with _written(out) as file:
            for line in lines(store, redaction, workflow=workflow, since=since or 0, until=until):
                file.write(line)
    finally:
        store.close()


def lines(
    store: Store, redaction: Redaction | None, *, workflow: str | None, since: Millis, until: Millis | None
) -> Iterator[bytes]:
    """Give the lines, page by page."""
    import msgspec

    encode = msgspec.json.Encoder().encode

    def line(row_kind: str, row: Any, **more: Any) -> bytes:
        columns = {**more, **msgspec.structs.asdict(row)}
        told = {name: _told(name, value, redaction) for name, value in columns.items()}
        return encode({"row": row_kind, **told}) + b"\n"

    for event in _events(store, since, EVER if until is None else until):
        runs = _runs(store, event, workflow)
        first = next(runs, None)
        if first is None and workflow is not None:
            continue
        yield line("event", event)
        if first is None:
            continue
        for run in _with(first, runs):
            yield line("run", run)
            for generation in range(1, run.generation + 1):
                for step in store.steps(run.run_id, generation):
                    yield line("step", step, run_id=run.run_id, generation=generation)
            for attempt in store.attempts(run.run_id):
                yield line("attempt", attempt, run_id=run.run_id)
            for audit in store.audits(run.run_id):
                yield line("audit", audit)


def _with(first: RunRow, rest: Iterator[RunRow]) -> Iterator[RunRow]:
    yield first
    yield from rest


def _events(store: Store, since: Millis, until: Millis) -> Iterator[EventRow]:
    from onceward.core.ports import EventFilter

    before = (until, "", "")
    while True:
        page = store.events(EventFilter(before=before, limit=PAGE))
        for event in page:
            if event.received_at < since:
                return
            yield event
        if len(page) < PAGE:
            return
        before = (page[-1].received_at, page[-1].source, page[-1].id)


def _runs(store: Store, event: EventRow, workflow: str | None) -> Iterator[RunRow]:
    from onceward.core.ports import RunFilter

    before = None
    while True:
        where = RunFilter(
            workflow=workflow, source=event.source, event_id=event.id, before=before, limit=PAGE
        )
        page = store.runs(where)
        yield from page
        if len(page) < PAGE:
            return
        before = page[-1].run_id


def _told(name: str, value: Any, redaction: Redaction | None) -> Any:
    """Give a column as it is written."""
    import msgspec

    from onceward.console.shaping import UNREADABLE

    if name in TEXTS and value is not None and redaction is not None:
        return redaction.text(value)
    if name not in VALUES or value is None:
        return value
    try:
        decoded = msgspec.json.decode(value)
    except (ValueError, RecursionError):
        return value if redaction is None else UNREADABLE
    if redaction is None:
        return msgspec.Raw(value.encode())
    shown = redaction.value(decoded)
    if name == "error" and isinstance(shown, dict):
        return {key: redaction.text(text) if isinstance(text, str) else text for key, text in shown.items()}
    return shown


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
        os.replace(part, out)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise
