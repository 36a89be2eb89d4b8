"""Onceward: exactly one run of each event, carried to its end.

The names that users need. Importing this loads no web framework, driver or cryptography.
"""

from __future__ import annotations

from onceward.app import App
from onceward.authoring.context import Context, SyncContext
from onceward.authoring.event import Event
from onceward.authoring.keys import AUTO, IdempotencyKey
from onceward.authoring.step import Step
from onceward.authoring.workflow import Workflow
from onceward.core.errors import (
    CallOutsideStep,
    ConfigError,
    DeadlineExceeded,
    HistoryMismatch,
    IdClash,
    NotAwaited,
    NotFound,
    NotStorable,
    OncewardError,
    OutcomeUnknown,
    Permanent,
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
    ValueTooLarge,
    WorkflowUnknown,
)
from onceward.core.retry import Retry
from onceward.core.states import RunState
from onceward.handles import Emitted, EventView, RunHandle
from onceward.version import __version__

__all__ = [
    "AUTO",
    "App",
    "CallOutsideStep",
    "ConfigError",
    "Context",
    "DeadlineExceeded",
    "Emitted",
    "Event",
    "EventView",
    "HistoryMismatch",
    "IdClash",
    "IdempotencyKey",
    "NotAwaited",
    "NotFound",
    "NotStorable",
    "OncewardError",
    "OutcomeUnknown",
    "Permanent",
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
    "ValueTooLarge",
    "Workflow",
    "WorkflowUnknown",
    "__version__",
]

# Saved failures and tracebacks name an error by its module; it shall be the one to import it from.
for _public in [globals()[_name] for _name in __all__]:
    if isinstance(_public, type) and issubclass(_public, BaseException):
        _public.__module__ = __name__
