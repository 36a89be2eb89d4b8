"""Rows to values: the column lists of the reads, in the order of the structs' fields.

A row that cannot be made into its value was edited by hand or cut short; that is reported as
such and concerns this row only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from onceward.core import errors
from onceward.core.model import (
    AttemptRow,
    AuditRow,
    DeliveryRow,
    EventRow,
    ProcessRow,
    RunRow,
    StepRow,
    WorkflowRow,
)

Row = TypeVar("Row", bound=msgspec.Struct)


def columns(row_type: type[msgspec.Struct], alias: str) -> str:
    """Give ``alias.a, alias.b, …`` for the fields of *row_type*."""
    return ", ".join(f"{alias}.{field}" for field in row_type.__struct_fields__)


COLUMN_MACROS: Mapping[str, str] = {
    "run": columns(RunRow, "r"),
    "event": columns(EventRow, "e"),
    "delivery": columns(DeliveryRow, "d"),
    "step": columns(StepRow, "s"),
    "attempt": columns(AttemptRow, "a"),
    "audit": columns(AuditRow, "a"),
    "workflow": columns(WorkflowRow, "w"),
    "process": columns(ProcessRow, "p"),
}
"""Macros for the ``select`` lists of the statements."""

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
        raise errors.StoreDamaged(
            f"A row of {row_type.__name__} cannot be read: {error}.",
            means="It was changed by something other than Onceward, or the file is damaged.",
            todo="Restore the row from a backup; the other rows are not affected.",
        ) from error


def to_values(row_type: type[Row], rows: Iterable[Sequence[Any]]) -> list[Row]:
    """Make a list of values of rows."""
    return [to_value(row_type, row) for row in rows]
