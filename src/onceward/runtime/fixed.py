"""Sleeps and drawn values: what a run fixes once and finds again at every later go."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from onceward.core.model import Millis, StepKey
from onceward.core.states import StepState
from onceward.runtime.records import json_text

if TYPE_CHECKING:
    from onceward.runtime.execution import Execution


UUID7 = "uuid7"
"""What a verb asks for that wants a UUID in the order of time."""


async def sleep(execution: Execution, key: StepKey, delay_ms: Millis) -> None:
    """Return when the deadline that was fixed at the first time has passed."""
    record = await execution.saved(key, "sleep")
    if record is not None and record.state is not StepState.OPEN:
        return
    now = execution.worker.now_ms()
    if record is None or record.wake_at is None:
        record = execution.row(key, "sleep", StepState.OPEN, now, wake_at=now + delay_ms)
        execution.save(record)
    wake_at: Millis = record.wake_at  # type: ignore[assignment]
    if wake_at > now:
        await execution.parking.park(wake_at)
    row = execution.row(key, "sleep", StepState.DONE, now, record=record, wake_at=wake_at)
    if row.ended_at is not None and row.ended_at < wake_at:
        # The clock was set back since the deadline passed; the record does not say otherwise (I14).
        row = msgspec.structs.replace(row, ended_at=wake_at)
    execution.save(row)
    if execution.recall.has_queue():
        await execution.recall.take_turn()


def kind_of(drawn_as: str) -> str:
    """Give the kind of record of a drawn value: UUIDs of both versions are one.

    What is saved answers, whichever version the code asks for now.
    """
    return "uuid" if drawn_as == UUID7 else drawn_as


async def value(execution: Execution, key: StepKey, drawn_as: str) -> Any:
    """Draw once, save, and give the same for ever: a UUID, the time, or a number in [0, 1)."""
    kind = kind_of(drawn_as)
    record = await execution.saved(key, kind)
    if record is None or record.output is None:
        now = execution.worker.now_ms()
        drawn = _draw(execution, drawn_as, now)
        record = execution.row(key, kind, StepState.DONE, now, output=json_text(drawn))
        execution.save(record)
        if execution.recall.has_queue():
            await execution.recall.take_turn()
    try:
        return _read(kind, record.output or "null")
    except (ValueError, TypeError, OverflowError, OSError) as error:
        execution.mismatch(key, f"its saved value cannot be read: {error}")


def _read(kind: str, output: str) -> Any:
    stored = msgspec.json.decode(output)
    if kind == "uuid":
        return uuid.UUID(stored)
    if kind == "now":
        return datetime.fromtimestamp(stored / 1000, UTC)
    return stored


def _draw(execution: Execution, kind: str, now: Millis) -> Any:
    if kind == "uuid":
        return str(execution.worker.ids.uuid4())
    if kind == UUID7:
        return str(execution.worker.ids.uuid7())
    if kind == "now":
        return now
    return execution.worker.ids.draw()
