"""The kinds of things that an expression in the source can stand for; `resolve` says which it is."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from onceward.check.project import Module
    from onceward.check.scopes import Scope

FunctionNode: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(frozen=True)
class Value:
    """Something of which nothing is known; the kinds below know more."""


UNKNOWN = Value()


@dataclass(frozen=True)
class Named(Value):
    """Something of a library or of Python, by its path; a call adds ``()``: ``httpx.Client().get``."""

    path: str


@dataclass(frozen=True)
class TheContext(Value):
    """The context of a run."""


@dataclass(frozen=True)
class Verbs(Value):
    """``ctx.step``."""


@dataclass(frozen=True)
class Verb(Value):
    """One of its verbs, by name."""

    name: str


@dataclass(frozen=True)
class TheApp(Value):
    """An `App`, or its sync twin."""


@dataclass(frozen=True)
class AppMember(Value):
    """What an app has, by name."""

    name: str


@dataclass(frozen=True)
class Function(Value):
    """A function whose code was read.

    Attributes:
        module: where it stands.
        node: its code.
        scope: the names around it.
        receiver: for a method, the object or class it is looked up on.
        is_partial: some of its arguments are given already.
    """

    module: Module
    node: FunctionNode
    scope: Scope = field(compare=False, repr=False)
    receiver: Value | None = None
    is_partial: bool = False

    @property
    def name(self) -> str:
        """Give its name as people would say it."""
        return "a lambda" if isinstance(self.node, ast.Lambda) else self.node.name

    @property
    def is_async(self) -> bool:
        """Say whether a call gives a coroutine."""
        return isinstance(self.node, ast.AsyncFunctionDef)

    @property
    def is_property(self) -> bool:
        """Say whether to read it is to call it."""
        return any(
            (one.id if isinstance(one, ast.Name) else one.attr if isinstance(one, ast.Attribute) else "")
            in {"property", "cached_property"}
            for one in getattr(self.node, "decorator_list", [])
        )


@dataclass(frozen=True)
class StepFunction(Value):
    """A decorated step."""

    function: Function


@dataclass(frozen=True)
class ItemOf(Value):
    """``step.item``, whose call gives the step again."""

    step: StepFunction


@dataclass(frozen=True)
class ItemStep(Value):
    """A decorated step for one element."""

    step: StepFunction


@dataclass(frozen=True)
class WorkflowFunction(Value):
    """A registered workflow."""

    function: Function


@dataclass(frozen=True)
class Class(Value):
    """A class whose code was read."""

    module: Module
    node: ast.ClassDef
    scope: Scope = field(compare=False, repr=False)


@dataclass(frozen=True)
class Object(Value):
    """An object of such a class."""

    of: Class


@dataclass(frozen=True)
class ModuleValue(Value):
    """A module whose file was read."""

    module: Module
