"""Tools for testing workflows, stores and sources; public, imported by nobody below."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from onceward.core.failpoints import REGISTRY
from onceward.testing.facts import Violation
from onceward.testing.history import History
from onceward.testing.invariants import check_invariants

__all__ = ["History", "Violation", "check_invariants", "failpoints"]


def failpoints() -> Mapping[str, str]:
    """Give every failpoint by name, each with the sentence that says where it lies.

    ``ONCEWARD_FAILPOINT=name:kill`` in the environment of a process arms one; a test that loops
    over them all has crashed everywhere.
    """
    return MappingProxyType(REGISTRY)
