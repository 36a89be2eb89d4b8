"""What both stores read in the same way: one statement a question, and only what is committed.

One text and one shape for both databases; how a statement is sent is each store's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from onceward.core import errors
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
    WorkflowRow,
)
from onceward.core.ports import Awaited, EventFilter, Owned, RunFilter
from onceward.stores.console_reads import AFTER_ALL, ConsoleReads
from onceward.stores.rows import to_listed_run, to_value, to_values


class StoredReads(ConsoleReads):
    """The reading half of a store, as far as both databases are asked alike."""

    def workflows(self) -> list[WorkflowRow]:
        """Give every workflow that any process registered."""
        return to_values(WorkflowRow, self._read("workflows"))

    def registrations(self) -> int:
        """Give how often workflows were registered or forgotten."""
        return int(self._read("registrations")[0][0])

    # --- runs and events -----------------------------------------------------------------------

    def run(self, run_id: str) -> RunRow | None:
        """Give one run, or None."""
        rows = self._read("run", run_id=run_id)
        return to_value(RunRow, rows[0]) if rows else None

    def runs(self, where: RunFilter) -> list[RunRow]:
        """Give runs, newest first; one that cannot be read is listed as held."""
        name = "runs"
        if where.problems:
            name = "problems"
        elif where.source is not None and where.event_id is not None:
            name = "runs_of_event"
        elif where.key is not None:
            name = "runs_of_key"
        rows = self._read(
            name,
            before=where.before,
            source=where.source,
            event_id=where.event_id,
            workflow=where.workflow,
            state=where.state,
            key=where.key,
            limit=where.limit,
        )
        return [to_listed_run(row) for row in rows]

    def event(self, source: str, event_id: str) -> EventRow | None:
        """Give one event, or None."""
        rows = self._read("event", source=source, event_id=event_id)
        return to_value(EventRow, rows[0]) if rows else None

    def events(self, where: EventFilter) -> list[EventRow]:
        """Give events, newest first."""
        before = where.before or (None, "", "")
        rows = self._read(
            "events",
            before_at=before[0],
            before_source=before[1],
            before_id=before[2],
            source=where.source,
            type=where.type,
            subject=where.subject,
            limit=where.limit,
        )
        return to_values(EventRow, rows)

    def deliveries(self, source: str, event_id: str) -> list[DeliveryRow]:
        """Give the deliveries of an event, oldest first."""
        return to_values(DeliveryRow, self._read("deliveries", source=source, event_id=event_id))

    def surplus(self, source: str, event_id: str) -> int:
        """Give how many deliveries of an event came beyond those that are kept."""
        rows = self._read("surplus", source=source, event_id=event_id)
        return int(rows[0][0]) if rows else 0

    def delivery(self, delivery_id: str) -> list[DeliveryRow]:
        """Give the parts of one delivery in order."""
        return to_values(DeliveryRow, self._read("delivery", delivery_id=delivery_id))

    def all_deliveries(self, before: str | None, limit: int) -> list[DeliveryRow]:
        """Give deliveries, newest first, without their bodies."""
        rows = self._read("all_deliveries", before=before or AFTER_ALL, limit=limit)
        return to_values(DeliveryRow, rows)

    def same_body(self, source: str, content_hash: str, limit: int) -> list[str]:
        """Give the ids of events whose body is the same and whose id is not signed, oldest first."""
        rows = self._read("same_body", source=source, content_hash=content_hash, limit=limit)
        return [event_id for (event_id,) in rows]

    def unparsed_delivery(self, delivery_id: str) -> UnparsedRow | None:
        """Give one unparsed delivery, or None."""
        rows = self._read("unparsed_delivery", delivery_id=delivery_id)
        return to_value(UnparsedRow, rows[0]) if rows else None

    def refusals(self, source: str | None) -> list[RefusalRow]:
        """Give the counts of refused deliveries, the latest first."""
        return to_values(RefusalRow, self._read("refusals", source=source))

    def skipped(self, source: str, event_id: str) -> list[SkippedRow]:
        """Give the workflows that want an event and have no run of it, and why."""
        return to_values(SkippedRow, self._read("skipped", source=source, event_id=event_id))

    def holder(self, workflow: str, key: str) -> str | None:
        """Give the id of the run that holds a key, or None."""
        rows = self._read("holder", workflow=workflow, key=key)
        return rows[0][0] if rows else None

    def children(self, run_id: str) -> list[RunRow]:
        """Give the runs that a run started or called."""
        return to_values(RunRow, self._read("children", run_id=run_id))

    def states(self, run_ids: Iterable[str]) -> dict[str, RunRow]:
        """Give several runs by id with one query."""
        rows = to_values(RunRow, self._read_lists("states", run_ids=list(run_ids)))
        return {row.run_id: row for row in rows}

    # --- a run's records -------------------------------------------------------------------------

    def outbox(self, limit: int) -> list[OutboxRow]:
        """Give events that wait to be taken in, oldest first."""
        return to_values(OutboxRow, self._read("outbox", limit=limit))

    def steps(self, run_id: str, generation: int | None = None) -> list[StepRow]:
        """Give a generation's records in saved order."""
        if generation is None:
            rows = self._read("generation", run_id=run_id)
            generation = rows[0][0] if rows else 1
        return to_values(StepRow, self._read("steps", run_id=run_id, generation=generation))

    def histories(self, run_ids: Sequence[str]) -> dict[str, list[StepRow]]:
        """Give the records of several runs with one query; a damaged run is left out."""
        found: dict[str, list[StepRow]] = {run_id: [] for run_id in run_ids}
        damaged = set()
        for row in self._read_lists("histories", run_ids=run_ids):
            try:
                found[row[0]].append(to_value(StepRow, row[1:]))
            except errors.StoreDamaged:
                damaged.add(row[0])
        for run_id in damaged:
            del found[run_id]
        return found

    def attempts(self, run_id: str) -> list[AttemptRow]:
        """Give the attempts that ended without ending their generation well."""
        return to_values(AttemptRow, self._read("attempts", run_id=run_id))

    def audits(self, run_id: str) -> list[AuditRow]:
        """Give what operators did to a run, oldest first."""
        return to_values(AuditRow, self._read("audits", run_id=run_id))

    # --- processes -------------------------------------------------------------------------------

    def owned(self, process_id: str) -> dict[str, Owned]:
        """Give the runs that a process owns."""
        found = self._read("owned", process_id=process_id)
        return {run_id: Owned(bool(woken), fence) for run_id, woken, fence in found}

    def processes(self) -> list[ProcessRow]:
        """Give every registered process."""
        return to_values(ProcessRow, self._read("processes"))

    # --- waits and promises ----------------------------------------------------------------------

    def awaited(self, where: Awaited) -> list[EventRow]:
        """Give stored events that may end a wait, oldest first."""
        at, source, event_id = where.after or (None, "", "")
        return to_values(
            EventRow,
            self._read(
                "awaited_about" if where.place.subject else "awaited_any",
                subject=where.place.subject,
                type=where.place.type,
                since=where.since,
                until=where.until,
                after_at=at,
                after_source=source,
                after_id=event_id,
                limit=where.limit,
            ),
        )

    def offers(self, run_ids: Sequence[str]) -> dict[str, list[EventRow]]:
        """Give the events that runs were told of and have not taken, oldest first."""
        found: dict[str, list[EventRow]] = {}
        for row in self._read_lists("offers", run_ids=run_ids):
            found.setdefault(row[0], []).append(to_value(EventRow, row[1:]))
        return found

    def promises(self, token_hashes: Sequence[str]) -> dict[str, PromiseRow]:
        """Give promises by the hashes of their tokens."""
        rows = to_values(PromiseRow, self._read_lists("promises", hashes=token_hashes))
        return {row.token_hash: row for row in rows}


def listed(text: str | None) -> tuple[str, ...]:
    """Give the ids of a text that names them with commas between."""
    return tuple(text.split(",")) if text else ()
