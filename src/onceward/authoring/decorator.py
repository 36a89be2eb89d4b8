"""What ``@app.workflow(…)`` gives: the decorator that registers a function as a workflow."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

from onceward.authoring.context import Context, SyncContext
from onceward.authoring.workflow import Policies, Workflow, triggers_of
from onceward.core.texts import name_of
from onceward.core.triggers import Trigger

P = ParamSpec("P")
R = TypeVar("R")


class WorkflowDecorator:
    """Registers the function that it decorates.

    Args:
        register: takes the finished workflow, or refuses it.
        on: see `App.workflow`.
        name: the function's name by default.
        policies: how its runs are tried and how long they may take.
    """

    def __init__(
        self,
        register: Callable[[Workflow[..., Any]], None],
        on: Trigger | str | Sequence[Trigger | str] | None,
        name: str | None,
        policies: Policies,
    ) -> None:
        self._register = register
        self._triggers = triggers_of(on)
        self._name = name
        self._policies = policies

    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> Workflow[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[SyncContext, P], R], /) -> Workflow[P, R]: ...
    def __call__(self, function: Callable[..., Any], /) -> Workflow[..., Any]:
        """Register *function*."""
        workflow: Workflow[..., Any] = Workflow(
            function, name_of(function, self._name, "workflow"), self._triggers, self._policies
        )
        self._register(workflow)
        return workflow
