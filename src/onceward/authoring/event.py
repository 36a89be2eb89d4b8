"""An event as a workflow sees it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from onceward.core import json_plain
from onceward.core.model import EventRow


class Event:
    """An immutable fact that started a run.

    Attributes:
        source: who says so, e.g. ``stripe`` or ``emit/order.paid``.
        id: the event's id within its source.
        type: what happened, e.g. ``checkout.session.completed``.
        subject: what it is about, if the source says so.
        is_stale: where the workflow has a ``version=``: when it was accepted, an event of the same
            subject that is as new or newer had been.
    """

    __slots__ = ("_decoded", "_payload", "_row", "id", "is_stale", "source", "subject", "type")

    def __init__(self, row: EventRow, payload: str | None = None, *, is_stale: bool = False) -> None:
        self._row = row
        self._payload = payload if payload is not None else row.payload
        self._decoded: Any = _NOT_YET
        self.source = row.source
        self.id = row.id
        self.type = row.type
        self.subject = row.subject
        self.is_stale = is_stale

    @property
    def payload(self) -> Any:
        """Give the payload as JSON-native data; None once retention has pruned it."""
        if self._decoded is _NOT_YET:
            self._decoded = None if self._payload is None else json_plain.decode_plain(self._payload)
        return self._decoded

    @property
    def payload_text(self) -> str | None:
        """Give the payload as the JSON text that is stored."""
        return self._payload

    @property
    def received_at(self) -> datetime:
        """Give when the event was stored first, in UTC."""
        return datetime.fromtimestamp(self._row.received_at / 1000, UTC)

    @property
    def occurred_at(self) -> datetime | None:
        """Give when it happened according to the source, in UTC."""
        at = self._row.occurred_at
        return None if at is None else datetime.fromtimestamp(at / 1000, UTC)

    def __repr__(self) -> str:
        """Show what identifies it, never the payload."""
        return f"Event(source={self.source!r}, id={self.id!r}, type={self.type!r})"


_NOT_YET: Any = object()
