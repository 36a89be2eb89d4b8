"""Which workflows an event starts runs of: triggers of every process that registered (RULINGS 18)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from onceward.authoring.workflow import Workflow
from onceward.core.model import Millis, WorkflowRow
from onceward.core.triggers import Trigger

CACHE_MAX = 4_096
"""Remembered answers; event types come from outside, so the memory for them is bounded."""


class Routes:
    """Matches events to workflows, with a memory.

    Args:
        workflows: what this process registered; it always counts, stored or not.
    """

    def __init__(self, workflows: dict[str, Workflow[..., Any]]) -> None:
        self._workflows = workflows
        self._table: dict[str, tuple[tuple[Trigger, ...], Millis | None]] = {}
        self._answers: dict[tuple[str, str], list[tuple[str, Millis | None]]] = {}
        self._rebuild({})

    def learn(self, rows: Sequence[WorkflowRow]) -> None:
        """Hear what is registered in the store, by this process and others."""
        stored = {}
        for row in rows:
            triggers = tuple(Trigger.from_data(data) for data in msgspec.json.decode(row.triggers))
            stored[row.name] = (triggers, row.deadline_ms)
        self._rebuild(stored)

    def _rebuild(self, stored: dict[str, tuple[tuple[Trigger, ...], Millis | None]]) -> None:
        own = {
            workflow.name: (workflow.triggers, workflow.policies.deadline_ms)
            for workflow in self._workflows.values()
        }
        self._table = {**stored, **own}
        self._answers = {}

    def deadline_ms(self, workflow: str) -> Millis | None:
        """Give how long a run of *workflow* may take, as far as this process knows it."""
        return self._table.get(workflow, ((), None))[1]

    def match(self, source: str, type_: str) -> list[tuple[str, Millis | None]]:
        """Give the names and deadlines of the workflows that want such an event."""
        family = "run/" if source.startswith("run/") else source
        found = self._answers.get((family, type_))
        if found is None:
            if len(self._answers) >= CACHE_MAX:
                self._answers.clear()
            found = [
                (name, deadline_ms)
                for name, (triggers, deadline_ms) in sorted(self._table.items())
                if any(trigger.matches(source, type_) for trigger in triggers)
            ]
            self._answers[family, type_] = found
        return found
