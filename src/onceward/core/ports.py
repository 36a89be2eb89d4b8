"""The seam to the stores: what is committed, what is read, and what a store must do.

A store makes commits atomic and claims exclusive; it decides nothing. Everything is blocking
and called from threads of the runtime (or inline in the simulation), so that both databases,
the command line and frameworks without an event loop share one implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import msgspec

from onceward.core.bulks import KeepsBulks
from onceward.core.credentials import Credentials
from onceward.core.filters import DeliveryFilter as DeliveryFilter
from onceward.core.filters import EventFilter as EventFilter
from onceward.core.filters import RunFilter as RunFilter
from onceward.core.looks import ConsoleReads
from onceward.core.model import (
    AttemptRow,
    AuditRow,
    DeliveryRow,
    DoneWait,
    EventRow,
    KeyClaim,
    Millis,
    NewRun,
    OutboxRow,
    ProcessRow,
    PromiseRow,
    RunRow,
    Skip,
    SkippedRow,
    StepKey,
    StepRow,
    WaitRow,
    WorkflowRow,
)
from onceward.core.notices import Notices
from onceward.core.receipt_ports import Receipts
from onceward.core.retention import Prunes
from onceward.core.states import RunState
from onceward.core.wait_ports import Awaited as Awaited
from onceward.core.wait_ports import EventPlace as EventPlace
from onceward.core.wait_ports import Settled as Settled
from onceward.core.wait_ports import WaitStore
from onceward.core.within_ports import Ask as Ask
from onceward.core.within_ports import Opening as Opening
from onceward.core.within_ports import Script as Script
from onceward.core.within_ports import Within as Within

# --- what is committed ----------------------------------------------------------------------


class Routed(msgspec.Struct, frozen=True):
    """By what it was decided which runs an event starts, so that it can be decided anew."""

    registrations: int  # the number of registrations that were known
    parent: RunRow | None = None  # the run that emits it
    version: int | None = None  # what the event's source says that it is


class Accept(msgspec.Struct):
    """An event with the runs it starts: the unit of deduplication.

    ``by_run`` and ``by_fence`` guard an emit or start made inside a run: it exists if and only
    if the checkpoint of its step commits (I10).
    """

    event: EventRow
    runs: list[NewRun]
    deliveries: list[DeliveryRow] = msgspec.field(default_factory=list)
    by_run: str | None = None
    by_fence: int | None = None
    routed: Routed | None = None  # None where its runs were not found by triggers

    def is_same_event(self, other: Accept) -> bool:
        """Say whether another brings an event of the same identity."""
        mine, theirs = self.event, other.event
        return (mine.id, mine.source) == (theirs.id, theirs.source)


class Accepted(msgspec.Struct, frozen=True):
    """What the store found: the winner's runs, whoever asked."""

    is_duplicate: bool
    is_clash: bool
    runs: dict[str, str]  # workflow -> run id
    skipped: dict[str, SkippedRow] = msgspec.field(default_factory=dict)  # workflow -> why it has none
    is_refused: bool = False  # the run that emits has lost its fence; nothing was written

    def answers(self) -> dict[str, str]:
        """Give workflow to run id as a caller is told: also runs that held the key of the event's."""
        found = self.runs.copy()
        for name, row in self.skipped.items():
            if row.reason is Skip.RETURNED and row.holder_run_id is not None:
                found[name] = row.holder_run_id
        return found


class RunMove(msgspec.Struct):
    """The new mutable part of a run, written whole by whoever holds it.

    ``due_at`` says when the run wants to be claimed again; None with a state that is not
    terminal keeps it with its holder, with a terminal or held state takes it off the queue.
    """

    state: RunState
    generation: int
    attempt: int
    failures: int
    crashes: int
    deadline_at: Millis | None
    started_at: Millis | None
    ended_at: Millis | None = None
    output: str | None = None
    error: str | None = None
    reason: str | None = None
    problem_at: Millis | None = None
    dismissed_at: Millis | None = None
    warning: str | None = None
    now: Millis = 0
    due_at: Millis | None = None
    log: AttemptRow | None = None
    wakes_run_id: str | None = None  # the parent that waits for this run's end
    key: tuple[str, str] | None = None  # workflow and key, of a run that has one: an end gives it free
    has_waits: bool = False  # it may have open waits, which end with it


class Advance(msgspec.Struct):
    """What the holder of a run commits: checkpoints, emits, perhaps a move. Guard: the fence."""

    run_id: str
    generation: int
    fence: int
    steps: list[StepRow] = msgspec.field(default_factory=list)
    accepts: list[Accept] = msgspec.field(default_factory=list)
    move: RunMove | None = None
    waits: list[WaitRow] = msgspec.field(default_factory=list)
    done_waits: list[DoneWait] = msgspec.field(default_factory=list)
    promises: list[PromiseRow] = msgspec.field(default_factory=list)


class Claim(msgspec.Struct, frozen=True):
    """A wish for up to *limit* due runs of the named workflows."""

    limit: int
    workflows: tuple[str, ...]
    now: Millis
    suspects: bool = False  # runs that may have killed their holders; claimed one at a time


class Batch(msgspec.Struct):
    """One transaction: at most one commit per run and one per event.

    ``registrations`` guards what was decided by triggers: the number of registrations that were known.
    """

    batch_id: str
    accepts: list[Accept] = msgspec.field(default_factory=list)
    advances: list[Advance] = msgspec.field(default_factory=list)
    claims: list[Claim] = msgspec.field(default_factory=list)
    registrations: int | None = None


class Claimed(msgspec.Struct):
    """A run that is now ours, with what is needed to advance it."""

    run: RunRow
    event: EventRow


class BatchResult(msgspec.Struct):
    """What became of each commit of a batch, in the batch's order."""

    accepted: list[Accepted]
    held: list[bool]  # for each advance: the fence still held
    claimed: list[Claimed]
    # Seen after the commit: open waits for events of the types and subjects that it stored.
    waits: list[WaitRow] = msgspec.field(default_factory=list)


class Begun(Protocol):
    """A batch that was sent and is to be answered."""

    @property
    def fileno(self) -> int | None:
        """The socket that can be read when `advance` has something to do; None when there is no more."""
        ...

    @property
    def is_ready(self) -> bool:
        """Whether `finish` gives the result at once."""
        ...

    def advance(self) -> bool:
        """Take in what came; True when `fileno` is None."""
        ...

    def finish(self) -> BatchResult:
        """Give what ``apply`` gives, or raise what it raises; blocks for as long, from any thread."""
        ...


class Steer(msgspec.Struct):
    """An operator's commit. Guard: the run is as it was read (state, generation, fence).

    If a process owns the run, its committer row is updated first, so that no batch of the
    owner is in flight; then the fence grows and the run belongs to nobody (RULINGS 3).
    """

    run_id: str
    expected_state: RunState
    expected_generation: int
    expected_fence: int
    move: RunMove
    audit: AuditRow
    reopen: list[StepKey] = msgspec.field(default_factory=list)
    copies: list[StepRow] = msgspec.field(default_factory=list)
    claim: KeyClaim | None = None  # it must hold its key afterwards
    expected_sum: int | None = (
        None  # of the numbers of the generation's records: refused if one was saved since
    )


class TakenOver(msgspec.Struct, frozen=True):
    """What a look for dead processes found."""

    processes: tuple[str, ...]
    released: int
    held: tuple[str, ...]  # run ids that were held as poison
    leased_until: Millis | None = None  # the earliest end of their leases, where one is known


class Owned(NamedTuple):
    """A run that a process owns."""

    is_woken: bool
    fence: int


class Look(msgspec.Struct, frozen=True):
    """What a process wants to know once a poll, in one query."""

    next_due: Millis | None  # when the next unowned run of our workflows wants to be claimed
    oldest_lease: Millis | None  # of other processes; 0 when one is known to be dead
    owned: int  # runs that are ours in the store
    woken: tuple[str, ...]  # of these, the ones that something woke
    replaced: tuple[str, ...] = ()  # of anybody: runs to be cancelled, since a newer one waits for their key
    has_outbox: bool = False  # events wait to be taken in
    notice_due: Millis | None = None  # when the next notice for our addresses is to be sent
    registrations: int = 0  # registrations of workflows so far


class Store(WaitStore, ConsoleReads, Credentials, KeepsBulks, Prunes, Notices, Receipts, Protocol):
    """Where events and runs are kept. Every method blocks; each is one transaction.

    Raises:
        StoreUnavailable: the database cannot be reached, is locked, full or read-only.
        LeaseLost: from ``apply``, ``heartbeat``: this process was evicted.
    """

    @property
    def kind(self) -> str:
        """Give ``sqlite`` or ``postgres``."""
        ...

    # upkeep
    def open(self, *, migrate: bool) -> None:
        """Connect, check the schema's version, migrate if asked."""
        ...

    def close(self) -> None:
        """Close every connection; safe to call twice and from any thread."""
        ...

    def now_ms(self) -> Millis:
        """Give the store's own time."""
        ...

    def describe(self) -> Mapping[str, str]:
        """Give version, durability and address for the start-up banner, secrets masked."""
        ...

    # processes
    def join(self, process: ProcessRow, workflows: Sequence[WorkflowRow]) -> None:
        """Register a process, its committer row and its workflows; with workflows that is a registration.

        An older process of the same instance is evicted: its runs are lost once more, and at
        ``CRASH_LIMIT`` they are held, since a supervisor restarts a killed process for ever.
        """
        ...

    def heartbeat(self, process_id: str, epoch: int, lease_until: Millis) -> None:
        """Renew the lease; LeaseLost if the process was evicted."""
        ...

    def leave(self, process_id: str, now: Millis) -> None:
        """Take the process off; what it still owns becomes due, attempts are not charged."""
        ...

    def take_over(self, now: Millis, *, crash_limit: int, skip: str) -> TakenOver:
        """Free the runs of processes whose lease ended or whose lock file is free."""
        ...

    def forget_workflow(self, name: str) -> bool:
        """Delete a workflow's registration, so that events start no run of it; False if there is none."""
        ...

    def registrations(self) -> int:
        """Give how often workflows were registered or forgotten."""
        ...

    # the hot path
    def apply(self, process_id: str, epoch: int, batch: Batch) -> BatchResult:
        """Commit a batch in one transaction. A refused guard refuses its own commit only.

        Raises:
            RegistryMoved: there were more registrations than the batch knows of; nothing was written.
        """
        ...

    def begin(self, process_id: str, epoch: int, batch: Batch) -> Begun | None:
        """Send a batch without waiting for anything; None where that cannot be done: use ``apply``."""
        ...

    def resolve(self, process_id: str, batch_id: str) -> bool:
        """Say whether a batch whose reply was lost is committed, and shut out that it still may be."""
        ...

    def steer(self, steer: Steer) -> bool:
        """Commit an operator's action; False when the run changed since it was read.

        Raises:
            KeyTaken: another run holds the key that it claims; nothing was written.
        """
        ...

    def replay(self, accept: Accept, copies: Sequence[StepRow], audit: AuditRow) -> Accepted:
        """Add a run to an existing event, with copied records; the same ``replay_id`` joins.

        Raises:
            KeyTaken: another run holds the key that it claims; nothing was written.
        """
        ...

    def add_audit(self, row: AuditRow) -> bool:
        """Log what changes no run; False if its request has an entry."""
        ...

    # transactions of the user's
    def within(self) -> Within:
        """Give what is said on connections of the user's."""
        ...

    def alone(self) -> AbstractContextManager[None]:
        """Keep this process's other writers away for as long as a transaction of the user's lasts.

        Only where they would wait for its locks anyway. Entered and left by one thread.
        """
        ...

    def settled(self, run_id: str, generation: int, key: StepKey) -> StepRow | None:
        """Give a step's record when no transaction that could change it is under way any more."""
        ...

    def outbox(self, limit: int) -> list[OutboxRow]:
        """Give events that wait to be taken in, oldest first."""
        ...

    def forget_posted(self, outbox_ids: Sequence[str]) -> None:
        """Drop events from the outbox that were taken in."""
        ...

    # reads
    def workflows(self) -> list[WorkflowRow]:
        """Give every registered workflow."""
        ...

    def run(self, run_id: str) -> RunRow | None:
        """Give one run, or None."""
        ...

    def runs(self, where: RunFilter) -> list[RunRow]:
        """Give runs, newest first."""
        ...

    def event(self, source: str, event_id: str) -> EventRow | None:
        """Give one event, or None."""
        ...

    def events(self, where: EventFilter) -> list[EventRow]:
        """Give events, newest first."""
        ...

    def deliveries(self, source: str, event_id: str) -> list[DeliveryRow]:
        """Give the kept deliveries of an event, oldest first, at most `DELIVERIES_KEPT_MAX` or so."""
        ...

    def surplus(self, source: str, event_id: str) -> int:
        """Give how many deliveries of an event came beyond those that are kept."""
        ...

    def delivery(self, delivery_id: str) -> list[DeliveryRow]:
        """Give the parts of one delivery in order: a row for each of its events."""
        ...

    def all_deliveries(self, before: str | None, limit: int) -> list[DeliveryRow]:
        """Give deliveries, newest first, without their bodies."""
        ...

    def same_body(self, source: str, content_hash: str, limit: int) -> list[str]:
        """Give the ids of events whose body is the same and whose id is not signed, oldest first."""
        ...

    def keep_body(self, delivery_id: str, body: bytes) -> None:
        """Add the body to a delivery whose event has another payload than it brought."""
        ...

    def skipped(self, source: str, event_id: str) -> list[SkippedRow]:
        """Give the workflows that want an event and have no run of it, and why."""
        ...

    def holder(self, workflow: str, key: str) -> str | None:
        """Give the id of the run that holds a key, or held it last while it is remembered."""
        ...

    def steps(self, run_id: str, generation: int | None = None) -> list[StepRow]:
        """Give the records of a generation (the present one by default) in saved order."""
        ...

    def histories(self, run_ids: Sequence[str]) -> dict[str, list[StepRow]]:
        """Give the records of the present generations, one query for all.

        A run whose records cannot be read is missing; ``steps`` says why.
        """
        ...

    def attempts(self, run_id: str) -> list[AttemptRow]:
        """Give the attempts that ended without ending their generation well."""
        ...

    def audits(self, run_id: str) -> list[AuditRow]:
        """Give what operators did to a run, oldest first."""
        ...

    def children(self, run_id: str) -> list[RunRow]:
        """Give the runs that a run started or called."""
        ...

    def states(self, run_ids: Iterable[str]) -> dict[str, RunRow]:
        """Give several runs by id."""
        ...

    def owned(self, process_id: str) -> dict[str, Owned]:
        """Give the runs that a process owns, by run id."""
        ...

    def look(self, process_id: str, workflows: Sequence[str], addresses: Sequence[str] = ()) -> Look:
        """Give what a process wants to know once a poll, with one query; *addresses* are for notices."""
        ...

    def give_back(self, process_id: str, run_ids: Sequence[str], now: Millis) -> None:
        """Make owned runs due again that this process does not have in memory."""
        ...

    def processes(self) -> list[ProcessRow]:
        """Give every registered process."""
        ...

    def listen(self, callback: Callable[[], object]) -> object:
        """Call *callback*, from any thread, when another process made something due, if it can tell."""
        ...

    def changes(self) -> Any:
        """Give a token that differs after another process committed, or None if it cannot tell."""
        ...

    def dump(self, *tables: str) -> dict[str, list[dict[str, Any]]]:
        """Give all of this namespace's rows of some tables, as stored, for checkers.

        All tables are seen at one moment. Names are without prefix: ``run``, ``step``, …
        """
        ...
