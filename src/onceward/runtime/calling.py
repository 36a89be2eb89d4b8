"""How a workflow's function is called: its arguments out of the event, and its fetch before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from onceward.authoring.context import Context, SyncContext
from onceward.authoring.event import Event
from onceward.core import errors, ids

if TYPE_CHECKING:
    from onceward.runtime.execution import Execution

FETCH = "fetch current"
"""The name of the step that fetches the current state of what an event is about."""


async def call_workflow(execution: Execution, *, is_known: bool) -> Any:
    """Call the workflow's function and give what it returns.

    Args:
        execution: the run.
        is_known: its code ran before, so the arguments fitted the code of then.

    Raises:
        HistoryMismatch: an event that nobody has compared before does not fit the arguments.
        Suspended: an event that fitted once no longer does; the run is held.
    """
    args, kwargs = _arguments(execution, is_known=is_known)
    workflow, event = execution.workflow, execution.event
    fetch = workflow.policies.fetch
    if execution.is_sync:
        sync_context = SyncContext(execution, event)
        function = workflow.function if fetch is None else _after_fetch(workflow.function, fetch, event)
        return await execution.worker.workflow_threads.run(function, (sync_context, *args), kwargs)
    context = Context(execution, event)
    if fetch is not None:
        context.current = await context.step.run(FETCH, fetch, event, effect="pure")
    return await workflow.function(context, *args, **kwargs)


def _arguments(execution: Execution, *, is_known: bool) -> tuple[tuple[Any, ...], dict[str, Any]]:
    event = execution.event
    try:
        return execution.workflow.unpack(event)
    except errors.HistoryMismatch as error:
        if not is_known and not ids.is_start(event.source, event.id):
            raise
        # The deploy is to blame and not the event: a person decides (RULINGS 24).
        execution.hold_reason = f"code mismatch at the arguments: {error.what}"
        execution.stop("hold")
        raise errors.Suspended("the run is held") from error


def _after_fetch(
    function: Callable[..., Any], fetch: Callable[[Event], Any], event: Event
) -> Callable[..., Any]:
    """Give the plain function of a workflow with its fetch before it, for its thread."""

    def after_fetch(context: SyncContext, *args: Any, **kwargs: Any) -> Any:
        context.current = context.step.run(FETCH, fetch, event, effect="pure")
        return function(context, *args, **kwargs)

    return after_fetch
