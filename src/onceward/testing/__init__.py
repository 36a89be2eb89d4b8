"""Tools for testing workflows, stores and sources; public, imported by nobody below.

Each is imported when it is first asked for: the pytest plug-in loads this package in every project.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from onceward.core.failpoints import REGISTRY

if TYPE_CHECKING:
    from onceward.testing.facts import Violation
    from onceward.testing.history import History
    from onceward.testing.invariants import check_invariants
    from onceward.testing.kit.advice import Advice
    from onceward.testing.kit.http import Answer, Asked
    from onceward.testing.kit.in_test import AppInTest
    from onceward.testing.kit.life import Unending
    from onceward.testing.kit.matrix import crash_matrix
    from onceward.testing.kit.outside import Effect, Outside
    from onceward.testing.kit.points import Unrepeatable
    from onceward.testing.kit.report import Finding, Report
    from onceward.testing.kit.sends import delivery, emitted, started

__all__ = [
    "Advice",
    "Answer",
    "AppInTest",
    "Asked",
    "Effect",
    "Finding",
    "History",
    "Outside",
    "Report",
    "Unending",
    "Unrepeatable",
    "Violation",
    "check_invariants",
    "crash_matrix",
    "delivery",
    "emitted",
    "failpoints",
    "started",
]

_HOMES = {
    "Advice": "kit.advice",
    "Answer": "kit.http",
    "AppInTest": "kit.in_test",
    "Asked": "kit.http",
    "Effect": "kit.outside",
    "Finding": "kit.report",
    "History": "history",
    "Outside": "kit.outside",
    "Report": "kit.report",
    "Unending": "kit.life",
    "Unrepeatable": "kit.points",
    "Violation": "facts",
    "check_invariants": "invariants",
    "crash_matrix": "kit.matrix",
    "delivery": "kit.sends",
    "emitted": "kit.sends",
    "started": "kit.sends",
}


def failpoints() -> Mapping[str, str]:
    """Give every failpoint by name, each with the sentence that says where it lies.

    ``ONCEWARD_FAILPOINT=name:kill`` in the environment of a process arms one; a test that loops
    over them all has crashed everywhere.
    """
    return MappingProxyType(REGISTRY)


if not TYPE_CHECKING:  # a type checker would take any name for one of ours

    def __getattr__(name: str) -> Any:
        """Give a public name and keep it."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        return value


def __dir__() -> list[str]:
    """Give the public names, the ones that were not used yet as well."""
    return sorted({*globals(), *__all__})
