"""A process that prunes a store, or all about one subject, and ends."""

from __future__ import annotations

from onceward.core.retention import Keep, Rules
from onceward.runtime.failpoints import arm_from_environment
from tests.engine.running import open_store


def prune(url: str) -> None:
    """Prune everything that is over, twice."""
    arm_from_environment()
    rules = Rules(Keep(0, 0, 0, 0), alone=0, identity=0)
    with open_store(url) as store:
        for what in [*rules.whats, *rules.whats]:
            after: str | None = ""
            while after is not None:
                after = store.prune(what, rules, store.now_ms(), after=after, limit=5).next


def prune_subject(url: str) -> None:
    """Prune all about ann."""
    arm_from_environment()
    with open_store(url) as store:
        after: str | None = ""
        while after is not None:
            after = store.prune_subject("ann", store.now_ms(), after=after, limit=5).next
