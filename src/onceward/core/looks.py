"""What a console asks of a store: every question looks at a bounded number of rows.

Where a filter stands in no index, a look reads so many rows and says where it stopped, so that no
question reads a million of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from onceward.core.model import AuditRow, DeliveryRow, EventRow, Millis, RunRow, UnparsedRow, WaitRow
from onceward.core.states import RunState


class RunLook(msgspec.Struct, frozen=True):
    """Which runs a console looks for; as `RunFilter`, and bounded.

    Attributes:
        workflows: of one of these.
        since: run ids from this one on, as `before` to those before one.
        created_since: accepted at this time or later.
        created_until: accepted before this time.
        type: of an event of this type.
        subject: of an event about this.
        parent: started or called by this run.
        error: letters and digits in lower case that are in what is stored of the failure or in the
            reason; failed and held runs only.
        look: at so many runs at most.
    """

    workflow: str | None = None
    state: RunState | None = None
    source: str | None = None
    event_id: str | None = None
    before: str | None = None
    limit: int = 100
    problems: bool = False
    key: str | None = None
    since: str = ""
    created_since: Millis = 0
    created_until: Millis = 2**62
    type: str | None = None
    subject: str | None = None
    parent: str | None = None
    error: str | None = None
    look: int = 10_000
    workflows: list[str] | None = None


class EventLook(msgspec.Struct, frozen=True):
    """Which events a console looks for; as `EventFilter`, and bounded.

    Attributes:
        id: of this id.
        since: received at this time or later.
        without_runs: only those that have no run.
        look: at so many events at most.
    """

    source: str | None = None
    type: str | None = None
    subject: str | None = None
    before: tuple[Millis, str, str] | None = None
    limit: int = 100
    id: str | None = None
    since: Millis = 0
    without_runs: bool = False
    look: int = 10_000


class RunsFound(msgspec.Struct, frozen=True):
    """The ids of runs that a look found, newest first, and where it stopped before it was through."""

    run_ids: list[str]
    edge: str | None


class EventsFound(msgspec.Struct, frozen=True):
    """The events that a look found, newest first and without payloads, and where it stopped."""

    events: list[EventRow]
    edge: tuple[Millis, str, str] | None


class DeliveriesFound(msgspec.Struct, frozen=True):
    """The deliveries that a look found, newest first and without bodies, and where it stopped."""

    deliveries: list[DeliveryRow]
    edge: str | None


class UnparsedFound(msgspec.Struct, frozen=True):
    """The unparsed deliveries that a look found, newest first and without bodies, and where it stopped."""

    deliveries: list[UnparsedRow]
    edge: str | None


class RecentDelivery(msgspec.Struct, frozen=True):
    """What a list of sources wants to know of a delivery."""

    source: str
    received_at: Millis
    sent_at: Millis | None


class Listed(msgspec.Struct, frozen=True):
    """A run with what a list shows beside it; *is_undone* says that it failed and steps of it were undone."""

    run: RunRow
    event_type: str | None = None
    subject: str | None = None
    due_at: Millis | None = None
    process_id: str | None = None
    is_undone: bool = False


class Tally(msgspec.Struct, frozen=True):
    """How many runs stand where; see `Store.tally`."""

    states: dict[str, int]
    capped: list[str]
    oldest_due: Millis | None
    unparsed: int


class RecentRun(msgspec.Struct, frozen=True):
    """What an overview wants to know of a run."""

    state: RunState
    created_at: Millis
    started_at: Millis | None
    ended_at: Millis | None


class ConsoleReads(Protocol):
    """The part of a store that a console asks; see `onceward.core.ports.Store`."""

    def look_for_runs(self, where: RunLook) -> RunsFound:
        """Give the ids of runs, newest first, by looking at so many of them."""
        ...

    def listed(self, run_ids: Sequence[str]) -> list[Listed]:
        """Give runs by id with what a list shows beside them, newest first."""
        ...

    def look_for_events(self, where: EventLook) -> EventsFound:
        """Give events without their payloads, newest first, by looking at so many of them."""
        ...

    def look_for_deliveries(
        self, source: str | None, outcome: str | None, before: str | None, *, limit: int, look: int
    ) -> DeliveriesFound:
        """Give deliveries without their bodies, newest first, by looking at so many of them.

        A delivery whose parts were not all looked at is left to the next look.
        """
        ...

    def look_for_unparsed(
        self, source: str | None, before: str | None, *, limit: int, look: int
    ) -> UnparsedFound:
        """Give unparsed deliveries without their bodies, newest first, by looking at so many of them."""
        ...

    def recent_deliveries(self, limit: int) -> list[RecentDelivery]:
        """Give the newest deliveries, each of their parts."""
        ...

    def tally(self, now: Millis, limit: int) -> Tally:
        """Give how many runs stand in each live state and how many are open problems.

        Of those that are held by a process, due, not yet due and open problems at most *limit* each
        are counted; the states of which there are more are named.
        """
        ...

    def late_runs(self, due_before: Millis, limit: int) -> dict[str, int]:
        """Give how many runs of each workflow are due since then and held by nobody: of the *limit* longest due."""
        ...

    def owned_counts(self) -> dict[str, int]:
        """Give how many runs each process owns."""
        ...

    def recent_runs(self, since: str, limit: int) -> list[RecentRun]:
        """Give the newest runs from this run id on."""
        ...

    def recent_events(self, since: Millis, limit: int) -> list[Millis]:
        """Give when the newest events came, from this time on."""
        ...

    def all_audits(self, before: tuple[Millis, str] | None, limit: int) -> list[AuditRow]:
        """Give what operators did, newest first; *before* is time and id of the last one seen."""
        ...

    def waits_of(self, run_id: str) -> list[WaitRow]:
        """Give which events would end the open waits of a run."""
        ...

    def audit_of_request(self, request_id: str) -> AuditRow | None:
        """Give the entry of an operator's request, or None."""
        ...

    def live(self, limit: int) -> list[str]:
        """Give the ids of runs that are not over, those that were due first before the others."""
        ...

    def excerpt(self, tables: Sequence[str], run_ids: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
        """Give the rows of some tables that belong to some runs, as `dump` does for all.

        Tables of processes are given whole; of those that say nothing of single runs, nothing.
        """
        ...
