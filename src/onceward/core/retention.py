"""How long what is over stays: pure rules, applied by whoever prunes.

Nothing is pruned unless it was asked for. What goes first is the values (payloads, results), then the
rows of runs, and the identity of events last and only by name, since it is what deduplicates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

import msgspec

from onceward.core import errors
from onceward.core.duration import Duration, to_ms
from onceward.core.model import EventRow, Millis, NewRun, RunRow
from onceward.core.states import TERMINAL, RunState

BATCH_MAX = 200
"""How many rows one transaction looks at."""

SLACK_MS: Millis = 60_000
"""How far the clocks of processes may have been apart when they drew ids that sort by time."""


class What(StrEnum):
    """What one call looks through."""

    RUNS = "runs"
    EVENTS = "events"
    DELIVERIES = "deliveries"
    UNPARSED = "unparsed"
    NOTICES = "notices"
    IDENTITY = "identity"


class Needed(StrEnum):
    """Why a run keeps what it has while the data of a subject goes."""

    LIVE = "live"
    PROBLEM = "problem"
    FAMILY = "family"
    WAITS = "waits"
    TAKEN = "taken"


class Due(StrEnum):
    """What is to become of a run."""

    VALUES = "values"
    ROWS = "rows"


@dataclass(frozen=True, slots=True)
class Retention:
    """How long what is over is kept; None, the default of each, is for ever.

    Args:
        completed: the rows of a completed run, after its end.
        failed: the rows of a failed run that somebody dismissed; an open problem always stays.
        cancelled: the rows of a cancelled run.
        payloads: the values of each of them, and payloads of events whose runs have lost theirs or that
            have none. Never longer than the rows.
        deliveries: requests as they came. They stay counted.
        unparsed: genuine deliveries that no source could read, after the last copy.
        notices: those that were told or given up, by when it came to what they tell.
        identity: the id of an event whose runs and deliveries are gone. A delivery that comes again after
            that is a new event and **runs again**.

    Raises:
        ConfigError: a length of time cannot be read.
    """

    completed: Duration | None = None
    failed: Duration | None = None
    cancelled: Duration | None = None
    payloads: Duration | None = None
    deliveries: Duration | None = None
    unparsed: Duration | None = None
    notices: Duration | None = None
    identity: Duration | None = None

    def __post_init__(self) -> None:
        """Refuse what is no length of time where it is written."""
        for name in self.__slots__:
            value = getattr(self, name)
            if value is not None:
                to_ms(value, what=f"the retention of {name}")

    def ms(self, name: str) -> Millis | None:
        """Give one length in milliseconds, or None for ever."""
        value: Duration | None = getattr(self, name)
        return None if value is None else to_ms(value, what=f"the retention of {name}")

    @property
    def keep(self) -> Keep:
        """Give what it says about runs."""
        return Keep(self.ms("completed"), self.ms("failed"), self.ms("cancelled"), self.ms("payloads"))


class Keep(msgspec.Struct, frozen=True):
    """How long runs and their values are kept after their end, in milliseconds; None is for ever."""

    completed: Millis | None = None
    failed: Millis | None = None
    cancelled: Millis | None = None
    values: Millis | None = None

    def rows_ms(self, state: RunState) -> Millis | None:
        """Give how long the rows of a run that ended so are kept."""
        of = {
            RunState.COMPLETED: self.completed,
            RunState.FAILED: self.failed,
            RunState.CANCELLED: self.cancelled,
        }
        return of.get(state)

    def values_ms(self, state: RunState) -> Millis | None:
        """Give how long its values are: never longer than the rows."""
        known = [length for length in (self.values, self.rows_ms(state)) if length is not None]
        return min(known, default=None)

    @property
    def shortest_ms(self) -> Millis | None:
        """Give after how long something can be due at the earliest; None for never."""
        lengths = [self.completed, self.failed, self.cancelled, self.values]
        return min((length for length in lengths if length is not None), default=None)


@dataclass(frozen=True, slots=True)
class Rules:
    """What is pruned, with the exceptions of workflows."""

    keep: Keep = field(default_factory=Keep)
    workflows: Mapping[str, Keep] = field(default_factory=dict)
    only: str | None = None  # of this workflow alone
    alone: Millis | None = None  # payloads of events that have no run
    deliveries: Millis | None = None
    unparsed: Millis | None = None
    notices: Millis | None = None
    identity: Millis | None = None

    def of(self, workflow: str) -> Keep:
        """Give what holds for a workflow's runs."""
        if self.only is not None and workflow != self.only:
            return Keep()
        return self.workflows.get(workflow, self.keep)

    @property
    def shortest_ms(self) -> Millis | None:
        """Give after how long a run can be due at the earliest; None for never."""
        lengths = [keep.shortest_ms for keep in (self.keep, *self.workflows.values())]
        return min((length for length in lengths if length is not None), default=None)

    @property
    def whats(self) -> list[What]:
        """Give what has to be looked through, in order: values before the rows, identity last."""
        found = [What.RUNS] if self.shortest_ms is not None else []
        if found or self.alone is not None:
            found.append(What.EVENTS)
        found += [What.DELIVERIES] if self.deliveries is not None else []
        found += [What.UNPARSED] if self.unparsed is not None else []
        found += [What.NOTICES] if self.notices is not None else []
        return found + ([What.IDENTITY] if self.identity is not None else [])


def rules_of(retention: Retention | None, workflows: Mapping[str, Keep]) -> Rules:
    """Give the rules of an app, and of those workflows that have their own."""
    told = retention or Retention()
    return Rules(
        told.keep,
        workflows,
        alone=told.ms("payloads"),
        deliveries=told.ms("deliveries"),
        unparsed=told.ms("unparsed"),
        notices=told.ms("notices"),
        identity=told.ms("identity"),
    )


def for_workflow(retention: Retention) -> Keep:
    """Give what a workflow says about its runs.

    Raises:
        ConfigError: it says something about what belongs to no workflow.
    """
    odd = [
        name
        for name in ("deliveries", "unparsed", "notices", "identity")
        if getattr(retention, name) is not None
    ]
    if odd:
        raise errors.ConfigError(
            f"The retention of a workflow says something about {' and '.join(odd)}.",
            means="These belong to no workflow.",
            todo="Give it to the app: App(retention=Retention(…)).",
        )
    return retention.keep


class Ended(msgspec.Struct, frozen=True, gc=False):
    """What decides about a run."""

    run_id: str
    workflow: str
    state: RunState
    ended_at: Millis | None
    problem_at: Millis | None
    dismissed_at: Millis | None
    pruned_at: Millis | None


def need(run: Ended) -> Needed | None:
    """Give why a run needs its values by its own state; None where it is over."""
    if run.state not in TERMINAL or run.ended_at is None:
        return Needed.LIVE
    if run.problem_at is not None and run.dismissed_at is None:
        return Needed.PROBLEM
    return None


def due(rules: Rules, run: Ended, now: Millis) -> Due | None:
    """Give what is to go of a run by its own state and age; others may still need it."""
    if need(run) is not None or run.ended_at is None:
        return None
    keep, age = rules.of(run.workflow), now - run.ended_at
    if run.pruned_at is None:
        length = keep.values_ms(run.state)
        return Due.VALUES if length is not None and age >= length else None
    length = keep.rows_ms(run.state)
    return Due.ROWS if length is not None and age >= length else None


class Pruned(msgspec.Struct, frozen=True):
    """What one call found.

    Attributes:
        looked: how many rows were looked at.
        values: how many runs or events lost their values.
        rows: how many runs, deliveries or events went whole.
        next: where the next call goes on; None at the end.
    """

    looked: int = 0
    values: int = 0
    rows: int = 0
    next: str | None = None


class Kept(msgspec.Struct, frozen=True):
    """A run that keeps something about a subject.

    Attributes:
        run_id: which.
        workflow: of the run.
        state: where it stands.
        why: ``live``: it is not over. ``problem``: it failed, and nobody dismissed it. ``family``: its parent
            may still ask for its result, or a run that it started is not over. ``waits``: it was told of an
            event about the subject, and has not taken it yet. ``taken``: it is about something else, is not
            over, and took such an event.
    """

    run_id: str
    workflow: str
    state: RunState
    why: Needed


class SubjectPruned(msgspec.Struct, frozen=True):
    """What one call found about a subject.

    Attributes:
        looked: how many rows were looked at.
        runs: how many runs lost results, inputs, outputs of steps and errors.
        events: how many events lost their payload.
        deliveries: how many requests went.
        copies: how many waits of runs about something else lost their copy of an event.
        kept: runs that need what they have.
        kept_events: how many events kept their payload, since a run needs it or may still wait for it.
        next: where the next call goes on; None at the end.
    """

    looked: int = 0
    runs: int = 0
    events: int = 0
    deliveries: int = 0
    copies: int = 0
    kept: list[Kept] = []
    kept_events: int = 0
    next: str | None = None


class Prunes(Protocol):
    """The part of a store that prunes."""

    def prune_subject(
        self, subject: str, now: Millis, *, after: str = "", limit: int = BATCH_MAX, is_dry: bool = False
    ) -> SubjectPruned:
        """Prune one page of what is stored about a subject, in one transaction.

        Of events about it, of those that their runs emitted and that name no other subject, and of the
        runs of all these: payloads, requests, results, inputs, outputs of steps, errors. Never of a run
        that is not over, nor of an event for which such a run may still wait.

        Args:
            subject: what the events are about, such as a customer.
            now: the store's time; what comes later is left alone.
            after: where the page before ended; empty for the beginning.
            limit: how many events or runs are looked at.
            is_dry: nothing is written; the counts are those of what would be.

        Raises:
            msgspec.MsgspecError: *after* is no place.
        """
        ...

    def prune(
        self,
        what: What,
        rules: Rules,
        now: Millis,
        *,
        after: str = "",
        limit: int = BATCH_MAX,
        is_dry: bool = False,
    ) -> Pruned:
        """Prune one page of rows in one transaction; never what a run needs that is not over.

        Args:
            what: what is looked through; by keys that grow with time.
            rules: how long it is kept.
            now: the store's time.
            after: where the page before ended; empty for the beginning.
            limit: how many rows are looked at.
            is_dry: nothing is written; the counts are those of what would be.

        Raises:
            msgspec.MsgspecError: *after* is no place.
        """
        ...


def refuse_pruned(run: RunRow, verb: str) -> None:
    """Refuse to run again what has lost its values.

    Raises:
        Pruned: it has.
    """
    if run.pruned_at is not None:
        raise errors.Pruned(
            f"The {verb} of run {run.run_id} was refused: retention took its values.",
            means="What its steps returned is gone, and so may be the payload of its event. Nothing was changed.",
            todo="Replay it with a payload of your own, run.replay(payload=…), which keeps no step.",
        )


def refuse_without_payload(event: EventRow, run: NewRun, *, has_payload: bool) -> None:
    """Refuse a new run of an event that has no payload to give it.

    Raises:
        Pruned: it has none, and the run brings none.
    """
    if not has_payload and run.input is None:
        raise errors.Pruned(
            f"The payload of event {event.id!r} of source {event.source!r} was pruned.",
            means="A run of it would have nothing to work on; nothing was written.",
            todo="Give the payload: run.replay(payload=…).",
        )
