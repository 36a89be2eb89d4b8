"""Which events end which waits: a pure question of what is stored of both.

A wait names one type of event, says who must have said so, and may name a subject and a condition.
Starts of workflows are events too, but nothing to wait for: their types are names of workflows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from onceward.core import ids
from onceward.core.model import EventRow, WaitRow
from onceward.core.paths import from_data, holds
from onceward.core.ports import Accept, Batch, BatchResult, EventPlace
from onceward.core.rules import fields_of
from onceward.core.triggers import OWN, is_own

EventKey = tuple[str, str]

ANY = ""
"""The subject of a wait for events about whatever."""


def events_of(accepts: Iterable[Accept]) -> list[EventRow]:
    """Give the events that a wait could be for: those that are no starts."""
    return [accept.event for accept in accepts if not ids.is_start(accept.event.source, accept.event.id)]


def places_of(events: Iterable[EventRow]) -> list[EventPlace]:
    """Give where waits for these events are, each place once, in order."""
    found = set()
    for event in events:
        found.add(EventPlace(event.type, ANY))
        if event.subject:
            found.add(EventPlace(event.type, event.subject))
    return sorted(found)


def places_of_batch(batch: Batch) -> list[EventPlace]:
    """Give where waits are for the events that a batch may store."""
    accepts = [accept for advance in batch.advances for accept in advance.accepts]
    return places_of(events_of((*batch.accepts, *accepts)))


def stored_events(batch: Batch, result: BatchResult) -> list[EventRow]:
    """Give the events that a batch stored and a wait could be for; of advances, perhaps a few more."""
    accepts = [
        accept
        for accept, accepted in zip(batch.accepts, result.accepted, strict=True)
        if not (accepted.is_duplicate or accepted.is_refused)
    ]
    for advance, held in zip(batch.advances, result.held, strict=True):
        accepts += advance.accepts if held else ()
    return events_of(accepts)


class Seen:
    """An event as waits see it; decoded when the first condition asks.

    Args:
        event: as it is stored.
        namespace: of this process.
    """

    def __init__(self, event: EventRow, namespace: str) -> None:
        self.event = event
        self._namespace = namespace
        self._fields: Mapping[str, Any] | None = None

    def fits(self, wait: WaitRow) -> bool:
        """Say whether the event would end the wait, were it the first that does."""
        event = self.event
        if event.type != wait.type or (wait.subject != ANY and wait.subject != event.subject):
            return False
        if not (is_own(event.source) if wait.source == OWN else event.source == wait.source):
            return False
        if event.received_at < wait.since_at:
            return False
        if wait.until_at is not None and event.received_at > wait.until_at:
            return False
        if ids.is_start(event.source, event.id):
            return False
        return wait.condition is None or holds(from_data(msgspec.json.decode(wait.condition)), self._named())

    def _named(self) -> Mapping[str, Any]:
        if self._fields is None:
            self._fields = fields_of(self.event, self._namespace)
        return self._fields


def key_of(event: EventRow) -> EventKey:
    """Give what identifies an event in its namespace."""
    return event.source, event.id


def in_order(event: EventRow) -> tuple[int, str, str]:
    """Give the place of an event among those that came before and after."""
    return event.received_at, event.source, event.id


class Taken(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome of a wait as it is saved: the event, and as which of those waited for it counts.

    The event is in it whole. A run that comes back must find the same event at the same place among
    its outcomes without asking the store in between, and after retention has pruned the payload too.
    """

    label: str | int | None
    source: str
    id: str
    type: str
    received_at: int
    subject: str | None = None
    occurred_at: int | None = None
    payload: msgspec.Raw = msgspec.Raw(b"null")
    is_pruned: bool = False


def taken_text(label: str | int | None, event: EventRow) -> str:
    """Give the JSON text of a wait's outcome; `taken_of` reads it back."""
    taken = Taken(
        label=label,
        source=event.source,
        id=event.id,
        type=event.type,
        received_at=event.received_at,
        subject=event.subject,
        occurred_at=event.occurred_at,
        payload=msgspec.Raw((event.payload or "null").encode()),
        is_pruned=event.payload is None,
    )
    return msgspec.json.encode(taken).decode()


def taken_of(text: str) -> tuple[str | int | None, EventRow]:
    """Give label and event of a wait's saved outcome.

    Raises:
        msgspec.MsgspecError: it is none.
    """
    taken = msgspec.json.decode(text, type=Taken)
    return taken.label, EventRow(
        source=taken.source,
        id=taken.id,
        type=taken.type,
        payload=None if taken.is_pruned else bytes(taken.payload).decode(),
        received_at=taken.received_at,
        subject=taken.subject,
        occurred_at=taken.occurred_at,
    )
