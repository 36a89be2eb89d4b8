"""A batch as PostgreSQL takes it: at most one statement for each kind of row, and what came of it.

Pure: a batch goes in, calls come out; results go in, the batch's answer comes out. Rows are sorted
by key within each statement, so that overlapping batches wait for each other instead of dying
together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from onceward.core import errors
from onceward.core.awaiting import places_of_batch
from onceward.core.model import DELIVERIES_KEPT_MAX, EventRow, Millis, NewRun, SkippedRow, WaitRow
from onceward.core.ports import Accept, Accepted, Advance, Batch, Claim
from onceward.core.rules import FAR_MS, WAITS_FOR_KEY
from onceward.core.states import TERMINAL
from onceward.stores.postgres.rows import (
    AttemptColumns,
    DeliveryColumns,
    DoneWaitColumns,
    EventColumns,
    FreedColumns,
    HolderColumns,
    JudgedColumns,
    KeyColumns,
    MoveColumns,
    PromiseColumns,
    RunColumns,
    StepColumns,
    WaitColumns,
    WakeColumns,
    attempt_columns,
    delivery_columns,
    done_wait_columns,
    event_columns,
    freed_columns,
    is_judged,
    judged_columns,
    move_columns,
    promise_columns,
    raise_columns,
    run_columns,
    step_columns,
    wait_columns,
)
from onceward.stores.postgres.session import Result
from onceward.stores.postgres.statements import Call, Parameter, Statement, encode_rows, parameter, text_array
from onceward.stores.rows import to_value, to_values

EventKey = tuple[str, str]

_BY_RUN = attrgetter("run_id")
_BY_SUBJECT = attrgetter("workflow", "subject")
_BY_EVENT = attrgetter("source", "id")
_BY_DELIVERY = attrgetter("source", "event_id", "delivery_id", "part")
DeliveryKey = tuple[str, str, str]


@dataclass
class Outcome:
    """What the statements of a committed batch said."""

    lost_fences: set[tuple[str, int]] = field(default_factory=set)  # run id, fence that it has not
    lost_events: set[EventKey] = field(default_factory=set)  # not inserted: taken, or refused
    claimed: list[tuple[Any, ...]] = field(default_factory=list)  # run and event, column by column
    waits: list[WaitRow] = field(default_factory=list)  # seen after the commit
    skipped: dict[EventKey, dict[str, SkippedRow]] = field(default_factory=dict)  # by workflow

    def skip(self, rows: Iterable[Sequence[Any]]) -> None:
        """Take in workflows that have no run of an event, by rows of their table."""
        for row in rows:
            skipped = to_value(SkippedRow, row)
            self.skipped.setdefault((skipped.source, skipped.event_id), {})[skipped.workflow] = skipped


@dataclass(frozen=True)
class Winner:
    """What the first accept of an event made."""

    content_hash: str | None
    received_at: Millis
    runs: dict[str, str]
    skipped: dict[str, SkippedRow]


class PackedBatch:
    """The calls of one batch in the order of the pipeline, less its guard and its ends.

    Args:
        statements: those of ``postgres.sql``.
        common: the parameters ``namespace`` and ``process_id``.
        batch: what to pack.

    Raises:
        StoreError: two commits that only the database could put in order; halve the batch.
    """

    def __init__(
        self, statements: Mapping[str, Statement], common: Mapping[str, Parameter], batch: Batch
    ) -> None:
        self._statements = statements
        self._common = common
        self._batch = batch
        self._names: list[str] = []
        self.calls: list[Call] = []
        self.firsts: dict[EventKey, Accept] = {}
        """For each event that the batch accepts, the accept that is sent; the others are its duplicates."""

        self._guarded: set[EventKey] = set()
        self._holders: list[HolderColumns] = []
        self._steps: list[StepColumns] = []
        self._moves: list[MoveColumns] = []
        self._attempts: list[AttemptColumns] = []
        self._wakes: list[WakeColumns] = []
        self._events: list[EventColumns] = []
        self._runs: list[RunColumns] = []
        self._judged: list[JudgedColumns] = []
        self._freed: list[FreedColumns] = []
        self._waits: list[WaitColumns] = []
        self._done_waits: list[DoneWaitColumns] = []
        self._promises: list[PromiseColumns] = []
        self._waitless: list[HolderColumns] = []
        self._troubled: list[str] = []  # runs that fail or are held in it, as far as it is known
        self._keys: bytes | None = None
        self._deliveries: list[DeliveryColumns] = []
        self._delivered: dict[EventKey, int] = {}
        # Unguarded ones first: whether they are written does not hang on anybody's fence.
        for accept in batch.accepts:
            if accept.by_run is None:
                self._take_accept(accept, None, None)
        for accept in batch.accepts:
            if accept.by_run is not None and accept.by_fence is not None:
                self._take_accept(accept, accept.by_run, accept.by_fence)
                self._holders.append(HolderColumns(accept.by_run, accept.by_fence))
        self._check_one_commit_a_run(batch.advances)
        for advance in sorted(batch.advances, key=_BY_RUN):
            self._take_advance(advance)
        self._make_calls(batch.claims)
        places = places_of_batch(batch)
        self.after: list[Call] = []
        """What is sent behind the commit, in the same round trip: the look for who waits."""
        if places:
            self.after.append(statements["waits_for"].bind({**common, "places": encode_rows(places)}))

    # --- packing -------------------------------------------------------------------------------

    def _check_one_commit_a_run(self, advances: Sequence[Advance]) -> None:
        if len({advance.run_id for advance in advances}) < len(advances):
            raise errors.StoreError(
                "Two commits of one batch advance the same run.",
                means="A statement writes a row once, so one of them would be lost; nothing was written.",
                todo="Commit them one after the other, or as one.",
            )

    def _take_advance(self, advance: Advance) -> None:
        run_id, fence, move = advance.run_id, advance.fence, advance.move
        if advance.steps:
            self._steps += step_columns(run_id, fence, advance.generation, advance.steps)
        for accept in advance.accepts:
            self._take_accept(accept, run_id, fence)
        if advance.waits or advance.done_waits or advance.promises:
            self._waits += [wait_columns(fence, wait) for wait in advance.waits]
            self._done_waits += [
                done_wait_columns(run_id, fence, advance.generation, done) for done in advance.done_waits
            ]
            self._promises += [promise_columns(fence, row) for row in advance.promises]
        if move is not None:
            self._moves.append(move_columns(run_id, fence, move))
            if move.problem_at is not None:
                self._troubled.append(run_id)
            if move.has_waits and move.state in TERMINAL:
                self._waitless.append(HolderColumns(run_id, fence))
            freed = freed_columns(run_id, fence, move)
            if freed is not None:
                self._freed.append(freed)
            if move.log is not None:
                self._attempts.append(attempt_columns(run_id, fence, move.log))
            if move.wakes_run_id is not None:
                self._wakes.append(WakeColumns(move.wakes_run_id, move.now, run_id, fence))
        elif not advance.steps:
            self._holders.append(HolderColumns(run_id, fence))

    def _take_accept(self, accept: Accept, by_run: str | None, by_fence: int | None) -> None:
        event = accept.event
        key = (event.source, event.id)
        first = self.firsts.get(key)
        if first is None:
            self.firsts[key] = accept
            if by_run is not None:
                self._guarded.add(key)
            self._events.append(event_columns(event, by_run, by_fence))
            for run in accept.runs:
                self._take_run(event, run)
        elif key in self._guarded:
            raise errors.StoreError(
                f"Two commits of one batch bring event {event.id!r} of source {event.source!r}, the first for a run.",
                means="Which of them is written hangs on that run's fence; nothing was written.",
                todo="Commit them one after the other.",
            )
        if accept.deliveries:
            earlier = self._delivered.get(key, 0)
            self._delivered[key] = earlier + len(accept.deliveries)
            self._deliveries += [
                delivery_columns(
                    event, delivery, is_first=first is None and number == 0, earlier=earlier + number
                )
                for number, delivery in enumerate(accept.deliveries)
            ]

    def _take_run(self, event: EventRow, run: NewRun) -> None:
        if run.hold_reason is not None:
            self._troubled.append(run.run_id)
        if is_judged(event, run):
            self._judged.append(judged_columns(event, run))
        else:
            self._runs.append(run_columns(event, run))

    def _lock_keys(self) -> None:
        keys = {KeyColumns(row.workflow, row.key) for row in self._judged if row.key is not None}
        keys |= {KeyColumns(row.workflow, row.key) for row in self._freed}
        if keys:
            self._keys = encode_rows(sorted(keys))
            self._add("lock_keys", keys=self._keys)

    def _judge_in_rounds(self) -> None:
        """Judge runs: one of each subject and key by a statement, the next by the next, in their order."""
        rounds: list[list[JudgedColumns]] = []
        seen: dict[tuple[str, str, str], int] = {}
        for row in self._judged:
            places = [
                (kind, row.workflow, value)
                for kind, value in (("subject", row.subject), ("key", row.key))
                if value is not None
            ]
            number = max((seen.get(place, -1) for place in places), default=-1) + 1
            seen.update(dict.fromkeys(places, number))
            if number == len(rounds):
                rounds.append([])
            rounds[number].append(row)
        for rows in rounds:
            raised = [found for row in rows if (found := raise_columns(row)) is not None]
            if raised:
                self._add("raise_versions", raised=encode_rows(sorted(raised, key=_BY_SUBJECT)))
            rows.sort(key=_BY_RUN)
            self._add(
                "start_judged",
                judged=encode_rows(rows),
                waits=parameter(WAITS_FOR_KEY),
                far=parameter(FAR_MS),
            )

    def _make_calls(self, claims: Sequence[Claim]) -> None:
        if self._holders:
            self._add("fences", holders=encode_rows(self._holders))
        if self._steps:
            self._add("save_steps", steps=encode_rows(self._steps))
        if self._events:
            self._events.sort(key=_BY_EVENT)
            self._runs.sort(key=_BY_RUN)
            self._add("accept", events=encode_rows(self._events), runs=encode_rows(self._runs))
        self._lock_keys()
        self._judge_in_rounds()
        if self._deliveries:
            self._deliveries.sort(key=_BY_DELIVERY)
            self._add(
                "deliver",
                deliveries=encode_rows(self._deliveries),
                kept_max=parameter(DELIVERIES_KEPT_MAX),
            )
        if self._moves:
            if self._freed:
                ended = text_array(sorted(row.run_id for row in self._freed))
                self._add("lock_queue_joined", run_ids=self._touched(), ended=ended)
            elif self._wakes or len({move.is_out for move in self._moves}) > 1:
                self._add("lock_queue", run_ids=self._touched())
            self._add("move_runs", moves=encode_rows(self._moves))
        if self._attempts:
            self._add("log_attempts", attempts=encode_rows(self._attempts))
        if self._wakes:
            self._wakes.sort(key=_BY_RUN)
            self._add("wake", wakes=encode_rows(self._wakes))
        if self._freed:
            self._freed.sort(key=_BY_RUN)
            self._add("free_keys", freed=encode_rows(self._freed))
        self._make_wait_calls()
        if self._keys is not None:
            self._add("drop_unclaimed", keys=self._keys)
        if self._troubled:
            self._add("add_notices", ids=encode_rows(sorted(self._troubled)))
        for claim in claims:
            self._add(
                "claim",
                workflows=text_array(claim.workflows),
                now=parameter(claim.now),
                suspects=parameter(int(claim.suspects)),
                limit=parameter(claim.limit),
            )

    def _touched(self) -> bytes:
        """Give the runs whose rows in the queue are written, in order."""
        return text_array(sorted({row.run_id for row in self._moves} | {row.run_id for row in self._wakes}))

    def _make_wait_calls(self) -> None:
        if self._waits:
            self._add("open_waits", waits=encode_rows(self._waits))
        if self._done_waits:
            self._add("end_some_waits", done=encode_rows(self._done_waits))
        if self._promises:
            self._add("make_promises", promises=encode_rows(self._promises))
        if self._waitless:
            self._add("end_waits", holders=encode_rows(self._waitless))

    def _add(self, name: str, **values: Parameter) -> None:
        self._names.append(name)
        self.calls.append(self._statements[name].bind({**self._common, **values}))

    # --- reading -------------------------------------------------------------------------------

    def read(self, results: Sequence[Result], rows: Callable[[Result], list[tuple[Any, ...]]]) -> Outcome:
        """Make sense of the results of the calls."""
        outcome = Outcome()
        for result in results[len(self._names) :]:
            outcome.waits = to_values(WaitRow, rows(result))
        for name, result in zip(self._names, results, strict=False):
            if name in ("fences", "save_steps"):
                outcome.lost_fences.update(rows(result))
            elif name == "move_runs":
                if result.ntuples < len(self._moves):
                    moved = {run_id for (run_id,) in rows(result)}
                    outcome.lost_fences |= {
                        (move.run_id, move.fence) for move in self._moves if move.run_id not in moved
                    }
            elif name == "accept":
                outcome.lost_events = set(rows(result))
            elif name == "start_judged":
                outcome.skip(rows(result))
            elif name == "claim":
                outcome.claimed += rows(result)
        return outcome

    def is_winner(self, key: EventKey, winner: Winner | None, accepted: set[DeliveryKey]) -> bool:
        """Say of an event that is stored whether it was this batch that stored it.

        Args:
            key: an event that the batch accepts.
            winner: what the first accept of it made; None where it is not stored.
            accepted: source, event and id of deliveries that are recorded as the first of their event.
        """
        if winner is None:
            return False
        first = self.firsts[key]
        if first.runs:
            made = winner.runs | {skipped.workflow: skipped.run_id for skipped in winner.skipped.values()}
            return all(made.get(run.workflow) == run.run_id for run in first.runs)
        if first.deliveries:
            return (*key, first.deliveries[0].delivery_id) in accepted
        # By its time: one of the same content and millisecond is taken for this.
        mine = first.event.content_hash, first.event.received_at
        return not winner.runs and mine == (winner.content_hash, winner.received_at)

    def concerns_others(self, outcome: Outcome) -> bool:
        """Say whether it wrote what another process may want to know: ends, wake-ups, due runs."""
        return any(move.is_out or move.due_at is not None for move in self._moves) or any(
            not run.is_claimed and (run.source, run.event_id) not in outcome.lost_events
            for run in (*self._runs, *self._judged)
        )

    def lost_keys(self, outcome: Outcome) -> set[EventKey]:
        """Give the events that callers wait for and whose winners have to be read."""
        if not outcome.lost_events:
            return set()
        return outcome.lost_events & self.wanted_keys()

    def wanted_keys(self) -> set[EventKey]:
        """Give the events that callers wait for."""
        return {(accept.event.source, accept.event.id) for accept in self._batch.accepts} & set(self.firsts)

    def accepted(self, outcome: Outcome, winners: Mapping[EventKey, Winner]) -> list[Accepted]:
        """Give what became of each accept of the batch.

        Args:
            outcome: of the batch.
            winners: for each event that was taken, what its first accept made.
        """
        return [self._accepted(accept, outcome, winners) for accept in self._batch.accepts]

    def _accepted(self, accept: Accept, outcome: Outcome, winners: Mapping[EventKey, Winner]) -> Accepted:
        event = accept.event
        key = (event.source, event.id)
        winner = winners.get(key)
        is_unsent = accept.by_run is not None and accept.by_fence is None
        is_refused = is_unsent or (accept.by_run, accept.by_fence) in outcome.lost_fences
        if is_refused or (key in outcome.lost_events and winner is None):
            return Accepted(False, False, {}, is_refused=True)
        if winner is None:
            first, skipped = self.firsts[key], outcome.skipped.get(key, {})
            runs = {run.workflow: run.run_id for run in first.runs if run.workflow not in skipped}
            if first is accept:
                return Accepted(False, False, runs, skipped)
            winner = Winner(first.event.content_hash, first.event.received_at, runs, skipped)
        is_clash = None not in (event.content_hash, winner.content_hash) and (
            event.content_hash != winner.content_hash
        )
        return Accepted(True, is_clash, winner.runs, winner.skipped)

    def held(self, outcome: Outcome) -> list[bool]:
        """Give for each advance whether its fence held."""
        lost = outcome.lost_fences
        return [(advance.run_id, advance.fence) not in lost for advance in self._batch.advances]
