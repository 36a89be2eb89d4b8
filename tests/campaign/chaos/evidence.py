"""What was seen from outside while a store and its processes were under chaos: all that the judge looks at."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Row = dict[str, Any]


class Note(NamedTuple):
    """A line of the ledger: a body began, ended, failed or was cut off.

    Attributes:
        stage: how far the run's code is; a later stage begins when all before it is saved.
        ns: when, by the host's monotonic clock.
    """

    what: str
    run_id: str
    generation: int
    attempt: int
    stage: int
    step: str
    try_number: int
    key: str
    pid: int
    ns: int

    @property
    def place(self) -> str:
        return f"step {self.step!r} of generation {self.generation}"


class Made(NamedTuple):
    """A line of the ledger: a run that says who made it."""

    run_id: str
    made_by: str


class Reply(NamedTuple):
    """What a sender got for a delivery: status 0 where there was no reply."""

    status: int
    runs: tuple[str, ...] = ()

    @property
    def is_accepted(self) -> bool:
        return 200 <= self.status < 300


@dataclass
class Sent:
    """An event, and every reply to its deliveries."""

    event_id: str
    type: str
    about: Row
    replies: list[Reply] = field(default_factory=list)

    @property
    def accepted(self) -> list[Reply]:
        return [reply for reply in self.replies if reply.is_accepted]


class Action(NamedTuple):
    """A verb of a client, with its reply; one that was refused changed nothing.

    Attributes:
        request_id: what makes it happen once; sent again after a lost reply.
        effect: what it did, by the table of states and verbs.
        state: of the run, as the reply has it.
        generation: likewise.
        made: the run that a replay or a start gave.
        ns: when the reply came.
        is_known: False where there never was a reply.
    """

    verb: str
    run_id: str
    request_id: str = ""
    is_refused: bool = False
    effect: str = ""
    state: str = ""
    generation: int = 0
    made: str = ""
    ns: int = 0
    is_known: bool = True


class Stop(NamedTuple):
    """A process stood still."""

    pid: int
    from_ns: int
    until_ns: int


class Fault(NamedTuple):
    """Something was done to processes or the store; until then its effects may show."""

    what: str
    from_ns: int
    until_ns: int


@dataclass
class Evidence:
    """Everything that was seen of one store.

    Attributes:
        runs: the rows of the store, by id; ``events`` and ``skipped`` likewise, as lists.
        rows: what transactions of the app committed beside their checkpoint: run and generation.
        is_clock_set: the store's clock jumped meanwhile, so that lengths of time say nothing.
    """

    notes: list[Note] = field(default_factory=list)
    made: list[Made] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)
    stops: list[Stop] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    runs: dict[str, Row] = field(default_factory=dict)
    events: list[Row] = field(default_factory=list)
    skipped: list[Row] = field(default_factory=list)
    rows: list[tuple[str, int]] = field(default_factory=list)
    is_clock_set: bool = False

    def read_ledger(self, lines: Iterable[str]) -> None:
        """Take in the lines of a ledger."""
        for line in lines:
            what, run_id, rest = line.split(" ", 2)
            if what == "made":
                self.made.append(Made(run_id, rest))
                continue
            generation, attempt, stage, step, try_number, key, pid, ns = rest.split(" ")
            self.notes.append(
                Note(
                    what,
                    run_id,
                    int(generation),
                    int(attempt),
                    int(stage),
                    step,
                    int(try_number),
                    key,
                    int(pid),
                    int(ns),
                )
            )

    def about(self, run_id: str) -> list[str]:
        """Give all that is known of a run, for who looks into a violation."""
        found = [f"row {self.runs.get(run_id)}"]
        found += [f"action {action}" for action in self.actions if run_id in (action.run_id, action.made)]
        found += [f"sent {sent}" for sent in self.sent if any(run_id in reply.runs for reply in sent.replies)]
        found += [f"made {made}" for made in self.made if run_id == made.run_id or run_id in made.made_by]
        found += [f"note {note}" for note in self.notes if note.run_id == run_id]
        return found
