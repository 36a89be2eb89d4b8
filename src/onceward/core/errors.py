"""Every exception that Onceward raises or asks users to raise.

Each error has a stable ``code``, an HTTP status where one applies, and a message in three
parts: what happened with the values, what it means, what to do. Codes never change meaning;
texts may. Layers above raise these and nothing of their own, so that the library, the REST
API and the command line say the same thing about the same fault.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar


class OncewardError(Exception):
    """Base of every error of ours.

    Args:
        what: what happened, with the values.
        means: what that means for the caller's data or work.
        todo: what to do about it.
    """

    code: ClassVar[str] = "error"
    http_status: ClassVar[int] = 500
    title: ClassVar[str] = "Something went wrong"

    def __init__(self, what: str, *, means: str = "", todo: str = "") -> None:
        self.what = what
        self.means = means
        self.todo = todo
        super().__init__(" ".join(part for part in (what, means, todo) if part))


# --- configuration and start-up -----------------------------------------------------------


class ConfigError(OncewardError):
    """A setting, a registration or a call that can never work as written."""

    code = "config"
    title = "The configuration is wrong"


class WorkflowUnknown(OncewardError):
    """No workflow of that name is registered in this process or in the store."""

    code = "workflow_unknown"
    http_status = 404
    title = "No such workflow"


# --- receiving ------------------------------------------------------------------------------


class SourceUnknown(OncewardError):
    """A delivery for a source that this app does not have."""

    code = "source_unknown"
    http_status = 404
    title = "No such source"


class SignatureInvalid(OncewardError):
    """The delivery's signature does not verify; nothing was stored.

    ``check`` names the check that failed, for the operator's log and never for the sender.
    """

    code = "signature_invalid"
    http_status = 401
    title = "The signature does not verify"

    def __init__(self, check: str, *, means: str = "", todo: str = "") -> None:
        super().__init__(f"The delivery was refused: {check}.", means=means, todo=todo)
        self.check = check


class BodyMalformed(OncewardError):
    """The request cannot be read: not JSON, bad encoding, a broken header."""

    code = "body_malformed"
    http_status = 400
    title = "The request cannot be read"


class BodyTooLarge(OncewardError):
    """The request's body exceeds the limit of the receiver."""

    code = "body_too_large"
    http_status = 413
    title = "The body is too large"


# --- the store --------------------------------------------------------------------------------


class StoreError(OncewardError):
    """The store cannot do what was asked."""

    code = "store"
    title = "The store failed"


class StoreUnavailable(StoreError):
    """The store cannot be reached, is locked, full or read-only; trying again later may work."""

    code = "store_unavailable"
    http_status = 503
    title = "The store is unavailable"


class ReplyLost(StoreError):
    """A commit was sent and its reply never came; only the store can tell whether it happened."""

    code = "reply_lost"
    http_status = 503
    title = "The reply to a commit was lost"


class SchemaNewer(StoreError):
    """The store was migrated by a newer Onceward; this one refuses to touch it."""

    code = "schema_newer"
    title = "The store is newer than this Onceward"


class SchemaOutdated(StoreError):
    """The store needs a migration before this Onceward can use it."""

    code = "schema_outdated"
    title = "The store needs a migration"


class StoreForked(StoreError):
    """A store that was opened before a fork was used after it."""

    code = "store_forked"
    title = "The store was opened before a fork"


class StoreDamaged(StoreError):
    """A row cannot be read back: edited by hand, truncated or written by something else."""

    code = "store_damaged"
    title = "A stored row cannot be read"


# --- runs and operators --------------------------------------------------------------------


class NotFound(OncewardError):
    """No run or event of that id in this namespace."""

    code = "not_found"
    http_status = 404
    title = "Not found"


class StateConflict(OncewardError):
    """The verb does not apply to the run's present state."""

    code = "state_conflict"
    http_status = 409
    title = "The run's state does not allow that"


class IdClash(OncewardError):
    """An event of the same source and id exists with other content."""

    code = "id_clash"
    http_status = 409
    title = "The id is taken by other content"


class LeaseLost(OncewardError):
    """This process no longer holds the run; its write was refused and changed nothing."""

    code = "lease_lost"
    http_status = 409
    title = "The lease was lost"


# --- values ---------------------------------------------------------------------------------


class NotStorable(OncewardError):
    """A value that cannot be stored as JSON and come back equal; never retried."""

    code = "not_storable"
    http_status = 422
    title = "The value cannot be stored"


class ValueTooLarge(NotStorable):
    """A value whose JSON exceeds the limit."""

    code = "value_too_large"
    http_status = 413
    title = "The value is too large"


class PathMissing(OncewardError):
    """An expression over an event names a place that this event does not have."""

    code = "path_missing"
    http_status = 422
    title = "The event has no such place"


# --- authoring ---------------------------------------------------------------------------------


class StepMisuse(OncewardError):
    """A context or step call in a place or form that cannot be made durable."""

    code = "step_misuse"
    title = "A step was used wrongly"


class StepNameRepeated(StepMisuse):
    """One step name in two branches without ``item=``."""

    code = "step_name_repeated"
    title = "A step name repeats in parallel branches"


class CallOutsideStep(StepMisuse):
    """``app.emit`` or ``app.start`` in a workflow outside a step; it would happen on every attempt."""

    code = "call_outside_step"
    title = "An emit or start outside a step"


class HistoryMismatch(OncewardError):
    """The code no longer fits the run's history; the run is held."""

    code = "history_mismatch"
    title = "The code does not fit the history"


# --- outcomes seen by workflow code and by callers -------------------------------------------


class StepFailed(OncewardError):
    """A step used up its tries, or failed with an error that is not retried.

    The same on every attempt: what the body raised is kept as text, since an exception
    cannot be rebuilt in another process; it is never the ``__cause__``, which only the first
    attempt would have.

    Attributes:
        step: the step's name, item and number, for people.
        error_type: the type of what the last try raised, with its module.
        message: what it said.
        tries: how many there were.
        is_final: no further try could have ended differently, e.g. `Permanent`; the run is not
            tried again either.
    """

    code = "step_failed"
    title = "A step failed"

    def __init__(
        self, step: str, error_type: str, message: str, *, tries: int = 1, is_final: bool = False
    ) -> None:
        super().__init__(
            f"Step {step!r} failed after {tries} {'try' if tries == 1 else 'tries'}: {error_type}: {message}"
        )
        self.step = step
        self.error_type = error_type
        self.message = message
        self.tries = tries
        self.is_final = is_final
        self.step_key: tuple[str, str, int] | None = None


class StepTimedOut(OncewardError):
    """A try of a step ran longer than its ``timeout=``."""

    code = "step_timed_out"
    title = "A step timed out"


class DeadlineExceeded(OncewardError):
    """The run did not end before its ``deadline=``."""

    code = "deadline_exceeded"
    title = "The run's deadline passed"


class RunFailed(OncewardError):
    """The awaited run failed; raised by ``result()``."""

    code = "run_failed"
    title = "The run failed"

    def __init__(self, run_id: str, error_type: str, message: str) -> None:
        super().__init__(f"Run {run_id} failed: {error_type}: {message}")
        self.run_id = run_id
        self.error_type = error_type
        self.message = message


class RunWasCancelled(OncewardError):
    """The awaited run was cancelled; raised by ``result()``."""

    code = "run_cancelled"
    http_status = 409
    title = "The run was cancelled"


# --- raised by users --------------------------------------------------------------------------


class Permanent(Exception):
    """Raise inside a step or workflow: this will never work, do not try again."""


class RetryLater(Exception):
    """Raise inside a step or workflow: try again, not before *delay*.

    Args:
        delay: seconds, a ``timedelta`` or a text such as ``"90s"`` or ``"1h"``.
    """

    def __init__(self, delay: object = 0, message: str = "") -> None:
        super().__init__(message or f"asked to be tried again after {delay}")
        self.delay = delay


class OutcomeUnknown(Exception):
    """Raise inside a step: it cannot be told whether the effect happened."""


# --- control flow, not failures ---------------------------------------------------------------


class Suspended(asyncio.CancelledError):
    """The run leaves memory and goes on later; let it pass.

    A ``BaseException``, so that ``except Exception`` does not swallow it, and a
    ``CancelledError``, so that task groups and ``gather`` unwind as they do for any cancellation.
    """


class RunCancelled(BaseException):
    """The run is being cancelled; steps called from ``except`` and ``finally`` still run.

    A ``BaseException``, so that ``except Exception`` does not swallow it.
    """
