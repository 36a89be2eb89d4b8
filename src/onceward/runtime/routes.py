"""Which workflows an event starts runs of: triggers of every process that registered (RULINGS 18)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from onceward.authoring.workflow import Workflow
from onceward.core.model import Millis, WorkflowRow
from onceward.core.rules import NO_RULES, Rules
from onceward.core.triggers import Trigger

CACHE_MAX = 4_096
"""Remembered answers; event types come from outside, so the memory for them is bounded."""


@dataclass(frozen=True)
class Route:
    """A workflow as whoever accepts for it knows it.

    Attributes:
        workflow: its name.
        triggers: what starts it.
        deadline_ms: how long its runs may take.
        rules: what it says of an event before there is a run.
    """

    workflow: str
    triggers: tuple[Trigger, ...] = ()
    deadline_ms: Millis | None = None
    rules: Rules = NO_RULES


class Routes:
    """Matches events to workflows, with a memory.

    Args:
        workflows: what this process registered; it always counts, stored or not.
    """

    def __init__(self, workflows: dict[str, Workflow[..., Any]]) -> None:
        self._workflows = workflows
        self._table: dict[str, Route] = {}
        self._answers: dict[tuple[str, str], list[Route]] = {}
        self.registrations = 0
        """How many registrations of the store this knows of."""
        self._rebuild({})

    def learn(self, rows: Sequence[WorkflowRow], registrations: int) -> None:
        """Hear what is registered in the store, by this process and others, and how often they did."""
        self.registrations = registrations
        stored = {}
        for row in rows:
            if row.name in self._workflows:
                continue  # the code at hand counts
            triggers = tuple(Trigger.from_data(data) for data in msgspec.json.decode(row.triggers))
            stored[row.name] = Route(row.name, triggers, row.deadline_ms, Rules.from_text(row.rules))
        self._rebuild(stored)

    def _rebuild(self, stored: dict[str, Route]) -> None:
        own = {
            workflow.name: Route(
                workflow.name, workflow.triggers, workflow.policies.deadline_ms, workflow.policies.rules
            )
            for workflow in self._workflows.values()
        }
        self._table = {**stored, **own}
        self._answers = {}

    def of(self, workflow: str) -> Route:
        """Give what this process knows of *workflow*; of one that is not registered, nothing but its name."""
        return self._table.get(workflow) or Route(workflow)

    def deadline_ms(self, workflow: str) -> Millis | None:
        """Give how long a run of *workflow* may take, as far as this process knows it."""
        return self.of(workflow).deadline_ms

    def match(self, source: str, type_: str) -> list[Route]:
        """Give the workflows that want such an event, by name."""
        family = "run/" if source.startswith("run/") else source
        found = self._answers.get((family, type_))
        if found is None:
            if len(self._answers) >= CACHE_MAX:
                self._answers.clear()
            found = [
                route
                for _, route in sorted(self._table.items())
                if any(trigger.matches(source, type_) for trigger in route.triggers)
            ]
            self._answers[family, type_] = found
        return found
