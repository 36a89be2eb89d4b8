"""Onceward: exactly one run of each event, carried to its end.

The names that users need, each imported when it is first used: importing this costs next to nothing,
so that ``onceward --help`` answers at once, and loads no web framework, driver or cryptography.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from onceward.version import __version__

if TYPE_CHECKING:
    from onceward.app import App
    from onceward.authoring.context import Context, SyncContext
    from onceward.authoring.event import Event
    from onceward.authoring.expect import Expect
    from onceward.authoring.keys import AUTO, IdempotencyKey
    from onceward.authoring.promise import Promise, SyncPromise
    from onceward.authoring.step import Step
    from onceward.authoring.transaction import Transaction
    from onceward.authoring.workflow import Workflow
    from onceward.core.errors import (
        AlreadyCompleted,
        CallOutsideStep,
        ConfigError,
        DeadlineExceeded,
        HistoryMismatch,
        IdClash,
        KeyCycle,
        KeyTaken,
        NotAwaited,
        NotFound,
        NotStorable,
        OncewardError,
        OutcomeUnknown,
        Permanent,
        PlanNeeded,
        PromiseOver,
        Pruned,
        RetryLater,
        RunCancelled,
        RunFailed,
        RunWasCancelled,
        StateConflict,
        StepFailed,
        StepMisuse,
        StepNameRepeated,
        StepTimedOut,
        StoreUnavailable,
        Suspended,
        TransactionMisuse,
        ValueTooLarge,
        WaitTimedOut,
        WorkflowUnknown,
    )
    from onceward.core.notices import NoticeAddress
    from onceward.core.paths import event
    from onceward.core.plan import Plan
    from onceward.core.retention import Retention
    from onceward.core.retry import Retry
    from onceward.core.states import RunState
    from onceward.core.unknown import DidNotHappen, Happened, Question
    from onceward.handles import Emitted, EventView, LaterRun, RunHandle

__all__ = [
    "AUTO",
    "AlreadyCompleted",
    "App",
    "CallOutsideStep",
    "ConfigError",
    "Context",
    "DeadlineExceeded",
    "DidNotHappen",
    "Emitted",
    "Event",
    "EventView",
    "Expect",
    "Happened",
    "HistoryMismatch",
    "IdClash",
    "IdempotencyKey",
    "KeyCycle",
    "KeyTaken",
    "LaterRun",
    "NotAwaited",
    "NotFound",
    "NotStorable",
    "NoticeAddress",
    "OncewardError",
    "OutcomeUnknown",
    "Permanent",
    "Plan",
    "PlanNeeded",
    "Promise",
    "PromiseOver",
    "Pruned",
    "Question",
    "Retention",
    "Retry",
    "RetryLater",
    "RunCancelled",
    "RunFailed",
    "RunHandle",
    "RunState",
    "RunWasCancelled",
    "StateConflict",
    "Step",
    "StepFailed",
    "StepMisuse",
    "StepNameRepeated",
    "StepTimedOut",
    "StoreUnavailable",
    "Suspended",
    "SyncContext",
    "SyncPromise",
    "Transaction",
    "TransactionMisuse",
    "ValueTooLarge",
    "WaitTimedOut",
    "Workflow",
    "WorkflowUnknown",
    "__version__",
    "event",
]

_HOMES = {
    "AUTO": "onceward.authoring.keys",
    "App": "onceward.app",
    "Context": "onceward.authoring.context",
    "DidNotHappen": "onceward.core.unknown",
    "Emitted": "onceward.handles",
    "Event": "onceward.authoring.event",
    "EventView": "onceward.handles",
    "Happened": "onceward.core.unknown",
    "IdempotencyKey": "onceward.authoring.keys",
    "NoticeAddress": "onceward.core.notices",
    "Plan": "onceward.core.plan",
    "Question": "onceward.core.unknown",
    "Expect": "onceward.authoring.expect",
    "Promise": "onceward.authoring.promise",
    "Retry": "onceward.core.retry",
    "LaterRun": "onceward.handles",
    "Retention": "onceward.core.retention",
    "RunHandle": "onceward.handles",
    "RunState": "onceward.core.states",
    "Step": "onceward.authoring.step",
    "SyncContext": "onceward.authoring.context",
    "Transaction": "onceward.authoring.transaction",
    "SyncPromise": "onceward.authoring.promise",
    "Workflow": "onceward.authoring.workflow",
    "event": "onceward.core.paths",
}
"""Where a name is defined; the rest are errors."""

if not TYPE_CHECKING:  # a type checker would take any name for one of ours

    def __getattr__(name: str) -> Any:
        """Give a public name and keep it."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_HOMES.get(name, "onceward.core.errors")), name)
        return value


def __dir__() -> list[str]:
    """Give the public names, the ones that were not used yet as well."""
    return sorted({*globals(), *__all__})
