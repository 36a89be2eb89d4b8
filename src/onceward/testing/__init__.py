"""Tools for testing workflows, stores and sources; public, imported by nobody below."""

from onceward.testing.history import History
from onceward.testing.invariants import Violation, check_invariants

__all__ = ["History", "Violation", "check_invariants"]
