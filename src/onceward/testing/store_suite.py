"""The conformance suite of stores: what every one of them must do, check by check.

A test module parametrises over ``CHECKS`` and its own factories::

    @pytest.mark.parametrize("check", CHECKS, ids=str)
    def test_store(check: Check, stores: StoreFactory) -> None:
        check(stores)

A behaviour that all stores must have goes into ``store_checks``; each public function there is
one check, named as its claim.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType

from onceward.testing.store_checks import (
    access,
    awaiting,
    bulks,
    claims,
    console,
    damage,
    dedup,
    failures,
    fences,
    keys,
    migrations,
    notices,
    outbox,
    processes,
    reads,
    receipts,
    registry,
    replays,
    retention,
    steering,
    steps,
    subjects,
    values,
    versions,
    waits,
    walls,
)
from onceward.testing.store_scene import StoreFactory

TOPICS: tuple[ModuleType, ...] = (
    migrations,
    dedup,
    versions,
    keys,
    walls,
    fences,
    claims,
    waits,
    awaiting,
    steps,
    steering,
    outbox,
    notices,
    replays,
    processes,
    registry,
    reads,
    console,
    receipts,
    retention,
    subjects,
    bulks,
    access,
    values,
    damage,
    failures,
)


@dataclass(frozen=True)
class Check:
    """One claim about stores, and the function that tries it."""

    topic: str
    name: str
    claim: str
    run: Callable[[StoreFactory], None]

    def __call__(self, stores: StoreFactory) -> None:
        """Try the claim on an empty database; an AssertionError says how it does not hold."""
        self.run(stores)

    def __str__(self) -> str:
        """Give the id for a test's name."""
        return f"{self.topic}-{self.name}"


def _collect() -> Iterator[Check]:
    for module in TOPICS:
        for name, function in vars(module).items():
            is_ours = inspect.isfunction(function) and function.__module__ == module.__name__
            if is_ours and not name.startswith("_"):
                assert function.__doc__, f"{name} has no claim"
                yield Check(module.__name__.rsplit(".", 1)[1], name, function.__doc__.strip(), function)


CHECKS: tuple[Check, ...] = tuple(_collect())
"""Every check, topic by topic."""

__all__ = ["CHECKS", "TOPICS", "Check", "StoreFactory"]
