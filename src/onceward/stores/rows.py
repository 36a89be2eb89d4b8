"""Rows to values: the column lists of the reads, in the order of the structs' fields.

A row that cannot be made into its value was edited by hand or cut short; that is reported as
such and concerns this row only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from onceward.core import errors
from onceward.core.bulks import BulkRow
from onceward.core.credentials import Credential, SessionRow
from onceward.core.model import (
    AttemptRow,
    AuditRow,
    DeliveryRow,
    EventRow,
    OutboxRow,
    ProcessRow,
    PromiseRow,
    RefusalRow,
    RunRow,
    SkippedRow,
    StepRow,
    UnparsedRow,
    WaitRow,
    WorkflowRow,
)
from onceward.core.notices import NoticeAddressRow, NoticeRow
from onceward.core.ports import Batch, Claimed
from onceward.core.states import RunState

Row = TypeVar("Row", bound=msgspec.Struct)


def columns(row_type: type[msgspec.Struct], alias: str) -> str:
    """Give ``alias.a, alias.b, …`` for the fields of *row_type*."""
    return ", ".join(f"{alias}.{field}" for field in row_type.__struct_fields__)


COLUMN_MACROS: Mapping[str, str] = {
    "run": columns(RunRow, "r"),
    "event": columns(EventRow, "e"),
    "delivery": columns(DeliveryRow, "d"),
    "delivery_head": columns(DeliveryRow, "d").replace("d.body", "null"),
    "unparsed": columns(UnparsedRow, "u"),
    "unparsed_head": columns(UnparsedRow, "u").replace("u.body", "null"),
    "refusal": columns(RefusalRow, "f"),
    "step": columns(StepRow, "s"),
    "attempt": columns(AttemptRow, "a"),
    "audit": columns(AuditRow, "a"),
    "workflow": columns(WorkflowRow, "w"),
    "process": columns(ProcessRow, "p"),
    "skip": columns(SkippedRow, "s"),
    "credential": columns(Credential, "c"),
    "session": columns(SessionRow, "s"),
    "bulk": columns(BulkRow, "b"),
    "outbox": columns(OutboxRow, "o"),
    "wait": columns(WaitRow, "w"),
    "promise": columns(PromiseRow, "p"),
    "notice": columns(NoticeRow, "n"),
    "notice_bare": columns(NoticeRow, "n").replace("n.", ""),  # what SQLite takes behind `returning`
    "notice_address": columns(NoticeAddressRow, "a"),
}
"""Macros for the ``select`` lists of the statements."""

TABLES = (
    "event",
    "delivery",
    "surplus",
    "unparsed",
    "refusal",
    "run",
    "queue",
    "step",
    "attempt",
    "audit",
    "workflow",
    "process",
    "committer",
    "version",
    "skipped",
    "holder",
    "waiter",
    "credential",
    "session",
    "bulk",
    "outbox",
    "wait",
    "offer",
    "promise",
    "notice_address",
    "notice",
    "proof",
    "registry",
)
"""Every table with rows of a namespace, without prefix."""

RUN_WIDTH = len(RunRow.__struct_fields__)


def to_value(row_type: type[Row], row: Sequence[Any]) -> Row:
    """Make one value of one row.

    Raises:
        StoreDamaged: a column holds what its field cannot.
    """
    try:
        return msgspec.convert(
            dict(zip(row_type.__struct_fields__, row, strict=True)), row_type, strict=False
        )
    except (msgspec.ValidationError, ValueError) as error:
        named = zip(row_type.__struct_fields__[:2], row, strict=False)
        raise errors.StoreDamaged(
            f"A row of {row_type.__name__} ({', '.join(f'{k}={v!r}' for k, v in named)}) cannot be read: {error}.",
            means="It was changed by something other than Onceward, or the file is damaged.",
            todo="Restore the row from a backup; the other rows are not affected.",
        ) from error


def check_registrations(batch: Batch, registrations: int) -> None:
    """Refuse a batch that was decided by fewer registrations than there are.

    Raises:
        RegistryMoved: that is so.
    """
    if batch.registrations not in (None, registrations):
        raise errors.RegistryMoved(
            f"Which runs the events of a batch start was decided after {batch.registrations} registrations of "
            f"workflows, and there were {registrations}.",
            means="Nothing was written.",
            todo="Decide it anew.",
        )


def to_claimed(run_id: str, row: Sequence[Any] | None) -> Claimed:
    """Make a claimed run of the row that joins it with its event.

    Raises:
        StoreDamaged: the event is missing, or a column holds what its field cannot.
    """
    if row is None:
        raise errors.StoreDamaged(
            f"The event of run {run_id!r} is missing.",
            means="It was removed by something other than Onceward.",
            todo="Restore the event's row from a backup, then answer the run.",
        )
    return Claimed(to_value(RunRow, row[:RUN_WIDTH]), to_value(EventRow, row[RUN_WIDTH:]))


def to_listed_run(row: Sequence[Any]) -> RunRow:
    """Make a run for a list; one that cannot be read is shown as held, so that the others are seen."""
    try:
        return to_value(RunRow, row)
    except errors.StoreDamaged as error:
        run_id, workflow, source, event_id = map(str, row[:4])
        return RunRow(
            run_id,
            workflow,
            source,
            event_id,
            created_at=0,
            state=RunState.HELD,
            reason=f"damaged: {error.what}",
            problem_at=0,
        )


def to_values(row_type: type[Row], rows: Iterable[Sequence[Any]]) -> list[Row]:
    """Make a list of values of rows."""
    return [to_value(row_type, row) for row in rows]
