"""Which runs, events and deliveries to list: what stores and the library's lists are asked by."""

from __future__ import annotations

import msgspec

from onceward.core.model import Millis
from onceward.core.states import RunState


class RunFilter(msgspec.Struct, frozen=True):
    """Which runs to list; newest first, keyset paging by run id."""

    workflow: str | None = None
    state: RunState | None = None
    source: str | None = None
    event_id: str | None = None
    key: str | None = None
    before: str | None = None
    limit: int = 100
    problems: bool = False  # failed and held runs that nobody dismissed


class EventFilter(msgspec.Struct, frozen=True):
    """Which events to list; newest first, keyset paging by (received_at, source, id)."""

    source: str | None = None
    type: str | None = None
    subject: str | None = None
    before: tuple[Millis, str, str] | None = None
    limit: int = 100


class DeliveryFilter(msgspec.Struct, frozen=True):
    """Which deliveries to list; newest first, keyset paging by delivery id.

    Ids are in order of time, so *since*, an id too, is the oldest that is meant.
    """

    source: str | None = None
    outcome: str | None = None
    before: str | None = None
    since: str = ""
    limit: int = 100
