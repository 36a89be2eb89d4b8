"""What a console reads of a store: lists that look at a bounded number of rows, and counts with a cap.

One text and one shape for both databases; how a statement is sent is each store's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from onceward.core.looks import (
    DeliveriesFound,
    EventLook,
    EventsFound,
    Listed,
    RecentDelivery,
    RecentRun,
    RunLook,
    RunsFound,
    Tally,
    UnparsedFound,
)
from onceward.core.model import AuditRow, DeliveryRow, EventRow, Millis, UnparsedRow, WaitRow
from onceward.core.states import OPEN_PROBLEM, TERMINAL, RunState
from onceward.stores.rows import RUN_WIDTH, TABLES, to_listed_run, to_value, to_values

AFTER_ALL = "~"
"""Sorts behind every id."""

JUST_BEHIND = "-"
"""After an id: sorts behind it and before all that begin with more than it."""

FIRST_LOOK = 1_000
"""Most filters fill a page out of so few rows; the rest is looked at only where they do not."""

FIRST_ERROR_LOOK = 500
"""The same where the long texts of failures are looked into."""

WALKS = frozenset({"look_runs", "look_live", "look_failures", "look_problems"})
"""Statements that go through rows one after the other, so that a look may be done in two."""

EVER: Millis = 2**62


class ConsoleReads:
    """The part of a store's reads that a console asks."""

    def _read(self, name: str, **values: Any) -> list[tuple[Any, ...]]:
        raise NotImplementedError

    def _read_lists(self, name: str, **lists: Sequence[str]) -> list[tuple[Any, ...]]:
        raise NotImplementedError

    def look_for_runs(self, where: RunLook) -> RunsFound:
        """Give the ids of runs, newest first, by looking at so many of them."""
        name = self._way_to(where)
        first = FIRST_LOOK if where.error is None else FIRST_ERROR_LOOK
        if name not in WALKS or where.look <= first:
            return self._look_at_runs(name, where)
        found = self._look_at_runs(name, msgspec.structs.replace(where, look=first))
        missing = where.limit - len(found.run_ids)
        if found.edge is None or missing <= 0:
            return found
        look = where.look - first
        rest = self._look_at_runs(
            name, msgspec.structs.replace(where, before=found.edge, look=look, limit=missing)
        )
        return RunsFound(found.run_ids + rest.run_ids, rest.edge)

    def _way_to(self, where: RunLook) -> str:
        """Give the statement that has the least to look at."""
        if where.source is not None and where.event_id is not None:
            return "look_runs_of_event"
        if where.key is not None:
            return "look_runs_of_key"
        if where.parent is not None:
            return "look_children"
        if where.problems:
            return "look_problems"
        if where.error is not None:
            return "look_failures"
        if where.subject is not None and self._is_rare(where.subject, where.look):
            return "look_runs_of_subject"
        if where.state in OPEN_PROBLEM:
            return "look_failures"
        if where.state is not None and where.state not in TERMINAL:
            return "look_live"
        return "look_runs"

    def _look_at_runs(self, name: str, where: RunLook) -> RunsFound:
        rows = self._read(
            name,
            before=where.before or AFTER_ALL,
            since=where.since,
            created_since=where.created_since,
            created_until=where.created_until,
            look=where.look,
            limit=where.limit,
            workflow=where.workflow,
            ids=None if where.workflows is None else msgspec.json.encode(where.workflows).decode(),
            state=where.state,
            source=where.source,
            event_id=where.event_id,
            type=where.type,
            subject=where.subject,
            parent=where.parent,
            key=where.key,
            problems=int(where.problems),
            error=where.error,
        )
        found = sorted((run_id for run_id, is_edge in rows if not is_edge), reverse=True)
        return RunsFound(found, next((run_id for run_id, is_edge in rows if is_edge), None))

    def _is_rare(self, subject: str, look: int) -> bool:
        """Say whether all events about a subject may be looked at."""
        ((count,),) = self._read("count_of_subject", subject=subject, limit=look)
        return bool(count < look)

    def listed(self, run_ids: Sequence[str]) -> list[Listed]:
        """Give runs by id with what a list shows beside them, newest first."""
        rows = self._read_lists("listed", run_ids=run_ids) if run_ids else []
        found = [_listed(row) for row in rows]
        return sorted(found, key=lambda listed: listed.run.run_id, reverse=True)

    def look_for_events(self, where: EventLook) -> EventsFound:
        """Give events without their payloads, newest first, by looking at so many of them."""
        if where.look <= FIRST_LOOK:
            return self._look_at_events(where)
        found = self._look_at_events(msgspec.structs.replace(where, look=FIRST_LOOK))
        missing = where.limit - len(found.events)
        if found.edge is None or missing <= 0:
            return found
        look = where.look - FIRST_LOOK
        rest = self._look_at_events(
            msgspec.structs.replace(where, before=found.edge, look=look, limit=missing)
        )
        return EventsFound(found.events + rest.events, rest.edge)

    def _look_at_events(self, where: EventLook) -> EventsFound:
        before = where.before or (EVER, "", "")
        rows = self._read(
            "look_events" if where.subject is None else "look_events_of_subject",
            before_at=before[0],
            before_source=before[1],
            before_id=before[2],
            since=where.since,
            look=where.look,
            limit=where.limit,
            source=where.source,
            id=where.id,
            type=where.type,
            subject=where.subject,
            without_runs=int(where.without_runs),
        )
        events: list[EventRow] = []
        edge = None
        for source, event_id, type_, received_at, subject, occurred_at, is_edge in rows:
            if is_edge:
                edge = (received_at, source, event_id)
            else:
                events.append(EventRow(source, event_id, type_, None, received_at, subject, occurred_at))
        events.sort(key=lambda row: (row.received_at, row.source, row.id), reverse=True)
        return EventsFound(events, edge)

    def look_for_deliveries(
        self, source: str | None, outcome: str | None, before: str | None, *, limit: int, look: int
    ) -> DeliveriesFound:
        """Give deliveries without their bodies, newest first, by looking at so many of them."""
        before = before or AFTER_ALL
        rows = self._read(
            "look_deliveries", source=source, outcome=outcome, before=before, limit=limit, look=look
        )
        edge = cut = None
        for is_edge, delivery_id, *_ in rows:
            if is_edge == 1:  # its other parts were perhaps not looked at: the next look begins with it
                cut, edge = delivery_id, f"{delivery_id}{JUST_BEHIND}"
            elif is_edge:
                edge = delivery_id
        kept = [row[2:] for row in rows if not row[0] and row[1] != cut]
        found = sorted(to_values(DeliveryRow, kept), key=lambda row: row.part)
        found.sort(key=lambda row: row.delivery_id, reverse=True)
        return DeliveriesFound(found, edge)

    def look_for_unparsed(
        self, source: str | None, before: str | None, *, limit: int, look: int
    ) -> UnparsedFound:
        """Give unparsed deliveries without their bodies, newest first, by looking at so many of them."""
        rows = self._read("look_unparsed", source=source, before=before or AFTER_ALL, limit=limit, look=look)
        edge = next((delivery_id for is_edge, delivery_id, *_ in rows if is_edge), None)
        found = to_values(UnparsedRow, [row[2:] for row in rows if not row[0]])
        found.sort(key=lambda row: row.delivery_id, reverse=True)
        return UnparsedFound(found, edge)

    def recent_deliveries(self, limit: int) -> list[RecentDelivery]:
        """Give the newest deliveries, each of their parts."""
        return [RecentDelivery(*row) for row in self._read("recent_deliveries", limit=limit)]

    def tally(self, now: Millis, limit: int) -> Tally:
        """Give how many runs stand in each live state and how many are open problems."""
        states: dict[str, int] = {}
        shares: dict[Any, list[tuple[str, int]]] = {}
        for state, share, count in self._read("tally_queue", now=now, limit=limit + 1):
            shares.setdefault(share, []).append((state, count))
        shares["problems"] = list(self._read("tally_problems", limit=limit + 1))
        capped = set()
        for counted in shares.values():
            is_capped = sum(count for _, count in counted) > limit
            for state, count in counted:
                states[state] = states.get(state, 0) + count
                if is_capped:
                    capped.add(state)
        ((oldest,),) = self._read("oldest_due")
        ((unparsed,),) = self._read("count_unparsed", limit=limit)
        return Tally(
            {state: min(count, limit) for state, count in sorted(states.items())},
            sorted(capped),
            oldest if oldest is not None and oldest <= now else None,
            unparsed,
        )

    def late_runs(self, due_before: Millis, limit: int) -> dict[str, int]:
        """Give how many runs of each workflow are due since then and held by nobody."""
        rows = self._read("late_runs", due_before=due_before, limit=limit)
        return {workflow: int(count) for workflow, count in rows}

    def owned_counts(self) -> dict[str, int]:
        """Give how many runs each process owns."""
        return {process_id: int(count) for process_id, count in self._read("owned_counts")}

    def live(self, limit: int) -> list[str]:
        """Give the ids of runs that are not over, those that were due first before the others."""
        return [run_id for (run_id,) in self._read("live_runs", limit=limit)]

    def recent_runs(self, since: str, limit: int) -> list[RecentRun]:
        """Give the newest runs from this run id on."""
        return [
            RecentRun(RunState(state), *times)
            for state, *times in self._read("recent_runs", since=since, limit=limit)
        ]

    def recent_events(self, since: Millis, limit: int) -> list[Millis]:
        """Give when the newest events came, from this time on."""
        return [at for (at,) in self._read("recent_events", since=since, limit=limit)]

    def all_audits(self, before: tuple[Millis, str] | None, limit: int) -> list[AuditRow]:
        """Give what operators did, newest first."""
        before_at, before_id = before or (EVER, "")
        return to_values(
            AuditRow, self._read("all_audits", before_at=before_at, before_id=before_id, limit=limit)
        )

    def waits_of(self, run_id: str) -> list[WaitRow]:
        """Give which events would end the open waits of a run."""
        return to_values(WaitRow, self._read("waits_of", run_id=run_id))

    def audit_of_request(self, request_id: str) -> AuditRow | None:
        """Give the entry of an operator's request, or None."""
        rows = self._read("audit_of_request", request_id=request_id)
        return to_value(AuditRow, rows[0]) if rows else None


_BY_RUN = {
    "event": "select distinct x.* from {t}run r join {t}event x "
    "on x.namespace = r.namespace and x.source = r.source and x.id = r.event_id",
    "holder": "select distinct x.* from {t}run r join {t}holder x "
    "on x.namespace = r.namespace and x.workflow = r.workflow and x.key = r.key",
    "waiter": "select x.* from {t}run r join {t}waiter x "
    "on x.namespace = r.namespace and x.workflow = r.workflow and x.key = r.key and x.run_id = r.run_id",
}
_WHOLE = frozenset({"process", "committer"})
_OF_NO_RUN = frozenset(
    {
        "bulk",
        "offer",
        "outbox",
        "delivery",
        "surplus",
        "unparsed",
        "refusal",
        "version",
        "skipped",
        "workflow",
        "notice_address",
        "proof",
        "registry",
    }
)


def _listed(row: tuple[Any, ...]) -> Listed:
    event_type, subject, due_at, process_id, is_undone = row[RUN_WIDTH:]
    return Listed(
        to_listed_run(row[:RUN_WIDTH]), event_type, subject, due_at, process_id, is_undone=bool(is_undone)
    )


def excerpt_statement(table: str, prefix: str, run_ids: str) -> str | None:
    """Give the statement for the rows of a table that belong to runs; None where it has none.

    Args:
        table: one of `TABLES`.
        prefix: of our tables.
        run_ids: SQL that gives the ids.
    """
    if table not in TABLES:
        raise ValueError(f"There is no table {table!r}; there are {', '.join(TABLES)}.")
    if table in _OF_NO_RUN:
        return None
    if table in _WHOLE:
        return f"select * from {prefix}{table} where namespace = :namespace"  # noqa: S608 - our own names
    start = _BY_RUN.get(table, f"select r.* from {{t}}{table} r").replace("{t}", prefix)  # noqa: S608
    return f"{start} where r.namespace = :namespace and r.run_id in ({run_ids})"
