"""A store's events and what became of them as JSON rows, page by page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from onceward.console import asking
from onceward.console.port import ExportQuery
from onceward.console.shaping import UNREADABLE
from onceward.console.views import ExportPage
from onceward.core import asked
from onceward.core.model import EventRow, Millis, RunRow
from onceward.core.ports import EventFilter, RunFilter, Store
from onceward.core.redact import Redaction

EVENTS_PAGE = 100
RUNS_PAGE = 100
BYTES_PAGE = 1_000_000
"""A page ends with the event with which it is over so much, or with its last one."""

EVER: Millis = 2**62

VALUES = frozenset({"payload", "input", "output", "error", "warning", "begun"})
"""Columns that hold JSON of a user's."""

TEXTS = frozenset({"reason", "detail"})
"""Columns that hold text that may quote it."""

_encode = msgspec.json.Encoder().encode


def page(store: Store, query: ExportQuery, redaction: Redaction) -> ExportPage:
    """Give the rows of the next events; blocks.

    Args:
        store: open.
        query: which, and from where on.
        redaction: the rules, which do not hold where the query says ``raw``.

    Raises:
        ConfigError: a filter cannot be used.
    """
    workflow = None if query.workflow is None else asked.checked_text(query.workflow, "workflow")
    subject = None if query.subject is None else asked.checked_text(query.subject, "subject")
    since = 0 if query.since is None else query.since
    until = EVER if query.until is None else query.until
    before = (until, "", "") if query.after is None else asking.read_cursor(query.after, int, str, str)
    events = store.events(EventFilter(subject=subject, before=before, limit=EVENTS_PAGE))
    rows: list[msgspec.Raw] = []
    size = 0
    for event in events:
        if event.received_at < since:
            return ExportPage(rows=rows)
        for row in _rows(store, event, workflow, None if query.raw else redaction):
            rows.append(msgspec.Raw(row))
            size += len(row)
        before = (event.received_at, event.source, event.id)
        if size > BYTES_PAGE:
            return ExportPage(rows=rows, next=asking.cursor(*before))
    return ExportPage(rows=rows, next=None if len(events) < EVENTS_PAGE else asking.cursor(*before))


def _rows(
    store: Store, event: EventRow, workflow: str | None, redaction: Redaction | None
) -> Iterator[bytes]:
    """Give the rows of one event."""

    def row_of(kind: str, row: Any, **more: Any) -> bytes:
        columns = {**more, **msgspec.structs.asdict(row)}
        return _encode(
            {"row": kind, **{name: _told(name, value, redaction) for name, value in columns.items()}}
        )

    is_first = True
    for run in _runs(store, event, workflow):
        if is_first:
            yield row_of("event", event)
            is_first = False
        yield row_of("run", run)
        for generation in range(1, run.generation + 1):
            for step in store.steps(run.run_id, generation):
                yield row_of("step", step, run_id=run.run_id, generation=generation)
        for attempt in store.attempts(run.run_id):
            yield row_of("attempt", attempt, run_id=run.run_id)
        for audit in store.audits(run.run_id):
            yield row_of("audit", audit)
    if is_first and workflow is None:
        yield row_of("event", event)


def _runs(store: Store, event: EventRow, workflow: str | None) -> Iterator[RunRow]:
    before = None
    while True:
        where = RunFilter(
            workflow=workflow, source=event.source, event_id=event.id, before=before, limit=RUNS_PAGE
        )
        found = store.runs(where)
        yield from found
        if len(found) < RUNS_PAGE:
            return
        before = found[-1].run_id


def _told(name: str, value: Any, redaction: Redaction | None) -> Any:
    """Give a column as it is written."""
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
