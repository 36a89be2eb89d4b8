"""What the recorded shop promised and when: its replies, and what its bodies relied on.

A promise holds from the moment at which its first byte left the process. Each knows how to look into the
facts of a store, and says what is missing there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from onceward.testing.facts import Tables
from tests.campaign.power.trace import Said

Row = Mapping[str, Any]
StepKey = tuple[str, int, str, str]
"""Run, generation, name and item."""


class Facts:
    """What a store holds.

    Args:
        tables: its rows, with the outbox.
        sales: the shop's own rows.
    """

    def __init__(self, tables: Tables, sales: Mapping[str, str]) -> None:
        self.tables = tables
        self.sales = sales
        self.events = {(row["source"], row["id"]) for row in tables["event"]}
        self.runs = {row["run_id"]: row for row in tables["run"]}
        self.steps = {step_key(row): row for row in tables["step"] if row["ordinal"] == 1}
        self.audits = {(row["run_id"], row["verb"]) for row in tables["audit"]}
        self.posted = [row["body"] for row in tables["outbox"]]
        self.pruned = sum(row["pruned_at"] is not None for row in tables["run"])

    def is_done(self, key: StepKey) -> bool:
        row = self.steps.get(key)
        return row is not None and row["state"] == "done"

    def misses_run(self, run_id: str) -> str | None:
        return None if run_id in self.runs else f"run {run_id} is missing"

    def differs(self, key: StepKey, value: object) -> str | None:
        """Say how a step's record is not the result that was told."""
        row = self.steps.get(key)
        if row is None or row["state"] != "done":
            return f"step {key} is {'missing' if row is None else row['state']}"
        if self.runs[key[0]]["pruned_at"] is not None:
            return None
        kept = json.loads(row["output"])
        return None if kept == value else f"step {key} holds {kept!r:.60} and not {value!r:.60}"


def step_key(row: Row) -> StepKey:
    return row["run_id"], row["generation"], row["name"], row["item"]


class Promise(Protocol):
    """Something that was told."""

    @property
    def at(self) -> int:
        """When."""
        ...

    def missing(self, facts: Facts) -> Iterator[str | None]:
        """Give what is not as it was told; None where it is."""
        ...


@dataclass(frozen=True)
class Accepted:
    """A sender was answered 2xx."""

    at: int
    source: str
    event_id: str
    runs: tuple[str, ...]

    def missing(self, facts: Facts) -> Iterator[str | None]:
        if (self.source, self.event_id) not in facts.events:
            yield f"event {self.event_id} of {self.source} is missing"
        yield from map(facts.misses_run, self.runs)


@dataclass(frozen=True)
class Shown:
    """A client saw a run: its state, its result, its steps."""

    at: int
    run: Row
    output: object
    steps: Sequence[Row]

    def missing(self, facts: Facts) -> Iterator[str | None]:
        row = facts.runs.get(self.run["run_id"])
        if row is None:
            yield facts.misses_run(self.run["run_id"])
            return
        told, kept = self.run["state"], row["state"]
        if (row["generation"], row["attempt"]) < (self.run["generation"], self.run["attempt"]):
            yield f"run {row['run_id']} is at an earlier attempt than was told"
        if told in ("completed", "cancelled") and kept != told:
            yield f"run {row['run_id']} is {kept} and was told to be {told}"
        elif told == "completed" and not self.run["pruned_at"] and row["pruned_at"] is None:
            if json.loads(row["output"]) != self.output:
                yield f"run {row['run_id']} has another result than was told"
        elif told == "cancelling" and kept not in ("cancelling", "cancelled"):
            yield f"run {row['run_id']} is {kept} and was told to be cancelling"
        if row["generation"] == self.run["generation"] and not self.run["pruned_at"]:
            for step in self.steps:
                if (
                    step["state"] == "done"
                    and step["kind"] in ("run", "transaction")
                    and step["ordinal"] == 1
                ):
                    key = (row["run_id"], step["generation"], step["name"], step["item"])
                    yield facts.differs(key, step["output"])


@dataclass(frozen=True)
class Steered:
    """An operator was told that an action was done."""

    at: int
    run_id: str
    verb: str
    state: str | None
    attempt: tuple[int, int]

    def missing(self, facts: Facts) -> Iterator[str | None]:
        row = facts.runs.get(self.run_id)
        if row is None:
            yield facts.misses_run(self.run_id)
            return
        if (self.run_id, self.verb) not in facts.audits:
            yield f"the audit has no {self.verb} of {self.run_id}"
        if self.verb == "cancel" and row["state"] not in ("cancelling", "cancelled"):
            yield f"run {self.run_id} is {row['state']} and was cancelled"
        if (row["generation"], row["attempt"]) < self.attempt:
            yield f"run {self.run_id} is at an earlier attempt than after its {self.verb}"


@dataclass(frozen=True)
class Pruned:
    """An operator was told that so many runs in all have lost their values."""

    at: int
    runs: int

    def missing(self, facts: Facts) -> Iterator[str | None]:
        if facts.pruned < self.runs:
            yield f"{facts.pruned} runs are pruned and not {self.runs}"


@dataclass(frozen=True)
class Began:
    """A body began, which knows what earlier steps gave."""

    at: int
    key: StepKey
    relied: Mapping[str, object]
    asks: bool

    def missing(self, facts: Facts) -> Iterator[str | None]:
        run_id, generation, name, _ = self.key
        if run_id not in facts.runs:
            yield facts.misses_run(run_id)
            return
        for earlier, value in self.relied.items():
            yield facts.differs((run_id, generation, earlier, ""), value)
        if self.asks and self.key not in facts.steps:
            yield f"nothing says that step {name!r} of {run_id} began, whose outcome a person is to be asked for"


@dataclass(frozen=True)
class Placed:
    """The shop's own transaction was committed, with an event within."""

    at: int
    event_id: str

    def missing(self, facts: Facts) -> Iterator[str | None]:
        is_posted = any(self.event_id in body for body in facts.posted)
        if not is_posted and ("emit/shop.told", self.event_id) not in facts.events:
            yield f"event {self.event_id} is neither stored nor in the outbox"
        if self.event_id not in facts.sales:
            yield f"the shop's own row of {self.event_id} is missing"


def promises(said: Iterable[Said]) -> list[Promise]:
    """Give what was promised, in order."""
    replies: dict[str, tuple[int, list[bytes]]] = {}
    found: list[Promise] = []
    for one in said:
        if not one.to.startswith("socket:"):
            found += _noted(one)
        elif one.data.startswith(b"HTTP/1.1 "):
            assert one.to not in replies, "a connection carries one reply"
            replies[one.to] = (one.began, [one.data])
        elif one.to in replies:
            replies[one.to][1].append(one.data)
    pruned = 0
    for began, parts in sorted(replies.values(), key=lambda reply: reply[0]):
        head, _, body = b"".join(parts).partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 2"):
            continue
        try:
            reply = json.loads(body)
        except ValueError:
            continue  # the process was killed while it spoke; what it began to say it has not said
        if reply.get("what") == "runs":
            pruned += reply["values"]
            found.append(Pruned(began, pruned))
        else:
            found += _replied(began, reply)
    return sorted(found, key=lambda promise: promise.at)


def _noted(said: Said) -> Iterator[Promise]:
    note = json.loads(said.data)
    if note["what"] == "placed":
        yield Placed(said.began, note["event"])
    else:
        key = (note["run"], note["generation"], note["step"], note["item"])
        yield Began(said.began, key, note["relied"], note.get("asks", False))


def _replied(at: int, reply: Row) -> Iterator[Promise]:
    if "events" in reply:
        for event in reply["events"]:
            yield Accepted(at, "stripe", event["id"], tuple(event["runs"]))
    elif "steps" in reply:
        yield Shown(at, reply["run"], reply["output"], reply["steps"])
    elif "verb" in reply:
        attempt = (reply["generation"] or 0, reply["attempt"] or 0)
        yield Steered(at, reply["run_id"], reply["verb"], reply["state"], attempt)
    elif "skipped" in reply:
        event = reply["event"]
        yield Accepted(at, event["source"], event["id"], tuple(run["run_id"] for run in reply["runs"]))


def broken(given: Iterable[Promise], facts: Facts) -> list[str]:
    """Give what the facts do not hold of what was promised, and what they hold by halves."""
    found = [text for promise in given for text in promise.missing(facts) if text is not None]
    for key, row in facts.steps.items():
        if row["kind"] == "transaction" and row["state"] == "done":
            if key[0] not in facts.sales:
                found.append(f"the checkpoint of {key} is there, and the rows of its transaction are not")
            elif facts.runs[key[0]]["pruned_at"] is None and json.loads(row["output"]) != facts.sales[key[0]]:
                found.append(f"the checkpoint of {key} is not that of its transaction's rows")
    sold = [run_id for run_id in facts.sales if run_id.startswith("run_")]
    return found + [
        f"the rows of a transaction of {run_id} are there, and its checkpoint is not"
        for run_id in sold
        if not facts.is_done((run_id, 1, "sell", ""))
    ]
