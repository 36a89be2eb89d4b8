"""Where in a run's code something happens: through which calls, in which arm, side by side with what."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace

from onceward.check.project import Module


@dataclass(frozen=True)
class Hop:
    """One call on the way from a workflow to where something happens: the lines of its statement."""

    module: Module
    first: int
    last: int


@dataclass(frozen=True)
class Place:
    """The way there.

    Attributes:
        start: what the code belongs to, in words: "workflow 'fulfil'".
        is_step: the code is the body of a step.
        on_loop: it runs on the event loop, because an async function is on the way.
        hops: the calls that lead there, outermost first.
        arms: the branches taken, as the branching statement and which of its arms.
        aside: the groups of branches that run side by side, as the group and which of them; None
            for which means as many as there are elements.
        elements: the names that loops around it go through their elements with.
        in_finally: it is in a ``finally``.
    """

    start: str
    is_step: bool = False
    on_loop: bool = False
    hops: tuple[Hop, ...] = ()
    arms: tuple[tuple[int, int], ...] = ()
    aside: tuple[tuple[int, int | None], ...] = ()
    elements: frozenset[str] = field(default_factory=frozenset)
    in_finally: bool = False

    def arm(self, node: ast.AST, number: int) -> Place:
        """Give the place in one arm of a branching statement."""
        return replace(self, arms=(*self.arms, (id(node), number)))

    def beside(self, group: ast.AST, number: int | None) -> Place:
        """Give the place in one of several branches side by side."""
        return replace(self, aside=(*self.aside, (id(group), number)))

    def through(self, module: Module, node: ast.AST) -> Place:
        """Give the place behind a call."""
        first, last = lines_of(node)
        return replace(self, hops=(*self.hops, Hop(module, first, last)), elements=frozenset())

    def excludes(self, other: Place) -> bool:
        """Say whether only one of two places is reached in one go."""
        mine, its = dict(self.arms), dict(other.arms)
        return any(its.get(node, arm) != arm for node, arm in mine.items())

    def is_beside(self, other: Place) -> bool:
        """Say whether two places can be in progress at the same time."""
        mine, its = dict(self.aside), dict(other.aside)
        return any(group in its and (which is None or its[group] != which) for group, which in mine.items())


def lines_of(node: ast.AST) -> tuple[int, int]:
    """Give a node's first and last line."""
    first = int(getattr(node, "lineno", 1))
    return first, int(getattr(node, "end_lineno", None) or first)
