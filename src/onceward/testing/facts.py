"""What the rules of the invariants look at: the rows of a store, and the ways from one to another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from onceward.core import ids
from onceward.core.retention import SLACK_MS

_NO_RANDOM = bytes(10)

Row = dict[str, Any]
Tables = dict[str, list[Row]]


@dataclass(frozen=True)
class Violation:
    """One broken promise.

    Attributes:
        invariant: its number in the contract, such as ``I8``.
        subject: the run's id, or an event's source and id.
        sentence: what is wrong, with the values.
    """

    invariant: str
    subject: str
    sentence: str

    def __str__(self) -> str:
        """Give one line for a report."""
        return f"{self.invariant} {self.subject}: {self.sentence}"


class Facts:
    """The rows, and the ways from one to another that several rules take.

    Args:
        tables: all rows, or those of some runs.
        is_pruned: whether retention took any; told from the rows where nobody says.

    Attributes:
        is_pruned: what is over may be gone, and what once named it may stay.
        steered: the runs of which the audit tells.
    """

    def __init__(self, tables: Tables, *, is_pruned: bool | None = None) -> None:
        self.tables = tables
        self.runs: dict[str, Row] = {row["run_id"]: row for row in tables["run"]}
        self.queue: dict[str, Row] = {row["run_id"]: row for row in tables["queue"]}
        self.steps: dict[str, list[Row]] = {}
        for step in tables["step"]:
            self.steps.setdefault(step["run_id"], []).append(step)
        self.events = {(row["source"], row["id"]): row for row in tables["event"]}
        self.holders = {(row["workflow"], row["key"]): row for row in tables["holder"]}
        self.waiters = {row["run_id"]: (row["workflow"], row["key"]) for row in tables["waiter"]}
        # Where another run held the key of a called one, its caller waits for that other.
        self.joined = {
            row["run_id"]: row["holder_run_id"] for row in tables["skipped"] if row["parent_run_id"]
        }
        self.steered = {row["run_id"] for row in tables["audit"]}
        # Values go first, and the row of an event last: without them nothing else went.
        self.is_pruned = (
            not tables["event"]
            or any(row["payload"] is None for row in tables["event"])
            or any(row["pruned_at"] is not None for row in tables["run"])
            if is_pruned is None
            else is_pruned
        )

    def may_be_gone(self, run_id: str) -> bool:
        """Say whether a run that is not there may have been taken by retention, events and all."""
        if self.is_pruned:
            return True
        oldest = min((row["received_at"] for row in self.tables["event"]), default=None)
        return run_id.startswith(ids.RUN_ID_PREFIX) and (
            oldest is None or run_id < ids.run_id(max(0, oldest - SLACK_MS), _NO_RANDOM)
        )

    def open_calls(self, run: Row) -> Iterator[tuple[Row, Row]]:
        """Give the open calls of a run's present generation, each with the row of the run it waits for."""
        for step in self.steps.get(run["run_id"], ()):
            if step["state"] == "open" and step["kind"] == "call" and step["generation"] == run["generation"]:
                child_run_id = step["child_run_id"]
                child = self.runs.get(str(self.joined.get(child_run_id, child_run_id)))
                if child is not None:
                    yield step, child

    def open_waits(self, run: Row) -> list[Row]:
        """Give the open waits of a run's present generation, for events or for the end of a promise."""
        return [
            step
            for step in self.steps.get(run["run_id"], ())
            if step["state"] == "open"
            and step["kind"] in ("wait", "promise")
            and step["generation"] == run["generation"]
        ]


Found = Iterator[Violation]
