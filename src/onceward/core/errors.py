"""Every exception that Onceward raises or asks users to raise.

Each error has a stable ``code``, an HTTP status where one applies, and a message in three
parts: what happened with the values, what it means, what to do. Codes never change meaning;
texts may. Layers above raise these and nothing of their own, so that the library, the REST
API and the command line say the same thing about the same fault.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar

from onceward.core.shown import listed

if TYPE_CHECKING:
    from onceward.core.plan import Plan


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
    """A setting, a registration or a call that can never work as written.

    Nothing was stored. The message names the argument or variable and what it could be.
    """

    code = "config"
    title = "The configuration is wrong"


class WorkflowUnknown(OncewardError):
    """What was to be started is not a workflow of this app; nothing was started.

    Decorate it with ``@app.workflow`` of the same app.
    """

    code = "workflow_unknown"
    http_status = 404
    title = "No such workflow"


# --- receiving ------------------------------------------------------------------------------


class SourceUnknown(OncewardError):
    """A delivery for a source that this app does not have; nothing was stored.

    Compare the address that the sender was given with the sources in the banner.
    """

    code = "source_unknown"
    http_status = 404
    title = "No such source"


class SignatureInvalid(OncewardError):
    """The delivery's signature does not verify; nothing was stored.

    ``check`` names the check that failed, for the operator's log and never for the sender, and
    ``skew_ms`` how long ago the sender's clock says it was sent, where that is why.
    """

    code = "signature_invalid"
    http_status = 401
    title = "The signature does not verify"

    def __init__(self, check: str, *, means: str = "", todo: str = "", skew_ms: int | None = None) -> None:
        super().__init__(f"The delivery was refused: {check}.", means=means, todo=todo)
        self.check = check
        self.skew_ms = skew_ms


class BodyMalformed(OncewardError):
    """The request is genuine and cannot be read: not JSON, bad encoding, a broken header."""

    code = "body_malformed"
    http_status = 400
    title = "The request cannot be read"


class BodyNotStorable(BodyMalformed):
    """The request is genuine and JSON, and holds what no store could keep as a payload.

    Half a surrogate pair, a number out of range: its sender may write them, and would only send the same
    again, so the receiver keeps the delivery as unparsed.
    """

    code = "body_not_storable"
    title = "The request holds what cannot be stored"


class KeyUnavailable(SignatureInvalid):
    """The sender's public key could not be had, so a delivery could not be judged; nothing was stored.

    It is worth another try: some senders give a delivery up after a 4xx.
    """

    code = "key_unavailable"
    http_status = 503
    title = "The sender's key is not available"


class BodyTooLarge(OncewardError):
    """The request's body exceeds ``body_bytes_max``; nothing was stored."""

    code = "body_too_large"
    http_status = 413
    title = "The body is too large"


# --- the store --------------------------------------------------------------------------------


class StoreError(OncewardError):
    """The store cannot do what was asked; the base of the errors of stores."""

    code = "store"
    title = "The store failed"


class StoreUnavailable(StoreError):
    """The store cannot be reached, is locked, full or read-only; trying again later may work.

    Whether anything of the commit was written its message says: nothing, or "it may have been stored",
    where the reply was lost and the store cannot be asked either, or no longer knows this process. Onceward
    tries again by itself where it may; senders of deliveries are asked to (503). Look at the database, its
    disk and its permissions.
    """

    code = "store_unavailable"
    http_status = 503
    title = "The store is unavailable"


class ReplyLost(StoreError):
    """A commit was sent and its reply never came; only the store can tell whether it happened.

    The engine asks the store, and never guesses.
    """

    code = "reply_lost"
    http_status = 503
    title = "The reply to a commit was lost"


class RegistryMoved(StoreError):
    """Workflows were registered since it was decided which runs an event starts; nothing was written.

    The engine decides anew; callers do not see it.
    """

    code = "registry_moved"
    http_status = 503
    title = "Workflows were registered meanwhile"


class SchemaNewer(StoreError):
    """The store was migrated by a newer Onceward; this one refuses to touch it.

    Start the newer one. Nothing was changed.
    """

    code = "schema_newer"
    title = "The store is newer than this Onceward"


class SchemaOutdated(StoreError):
    """The store needs a migration before this Onceward can use it: ``onceward migrate``."""

    code = "schema_outdated"
    title = "The store needs a migration"


class StoreForked(StoreError):
    """A store that was opened before a fork was used after it.

    Connections and threads do not survive a fork. Open the app in the child: leave it to the web
    server's start-up.
    """

    code = "store_forked"
    title = "The store was opened before a fork"


class StoreDamaged(StoreError):
    """A row cannot be read back: edited by hand, truncated or written by something else.

    Runs with such rows are held; the others go on. Restore a backup, or mend the row that is named.
    """

    code = "store_damaged"
    title = "A stored row cannot be read"


# --- runs and operators --------------------------------------------------------------------


class NotFound(OncewardError):
    """No run or event of that id in this namespace."""

    code = "not_found"
    http_status = 404
    title = "Not found"


class StateConflict(OncewardError):
    """The verb does not apply to the run's present state; nothing was changed.

    The message says which verb does.
    """

    code = "state_conflict"
    http_status = 409
    title = "The run's state does not allow that"


class Pruned(StateConflict):
    """Retention has taken the values that this would need; the identity of what happened is kept."""

    code = "pruned"
    title = "The values were pruned"


class KeyTaken(StateConflict):
    """Another run holds the key of the run that was to begin; it is named.

    Attributes:
        key: which key.
        holder_run_id: the run that holds it.
    """

    code = "key_taken"
    title = "The key is taken"

    def __init__(self, workflow: str, key: str, holder_run_id: str) -> None:
        super().__init__(
            f"The key {key!r} of {workflow!r} is held by run {holder_run_id}.",
            means="A second run would do the same work beside it; nothing was changed.",
            todo="Look at that run: wait for its end, cancel it, or take its result.",
        )
        self.key = key
        self.holder_run_id = holder_run_id


class PlanNeeded(StateConflict):
    """A restart would do again what steps did outside, and nobody said that it may; nothing was changed.

    Look at ``plan`` and give it back, ``run.restart(plan=plan)``, or let what must not happen again be
    kept: ``run.plan("restart", keep=["charge"])``.

    Attributes:
        plan: what the restart would do.
    """

    code = "plan_needed"
    title = "The plan of the restart was not acknowledged"

    def __init__(self, plan: Plan) -> None:
        again = plan.outside_again
        super().__init__(
            f"The restart of run {plan.run_id} would do again, outside, what "
            + (f"{listed(again)} did." if again else "a step did that was under way."),
            means="A step counts as outside unless its effect= says otherwise. Nothing was changed.",
            todo='Look at it, plan = await run.plan("restart"), and say so: run.restart(plan=plan). What must '
            f'not happen again can be kept: run.plan("restart", keep={again[:1] or ["…"]}). '
            "A script that means it writes run.restart(acknowledge=True).",
        )
        self.plan = plan


class AlreadyCompleted(StateConflict):
    """A promise was completed before, with something else; nothing was changed.

    The message says with what it was ended, and when. The same completion again is no error.
    """

    code = "already_completed"
    title = "The promise was completed before"


class PromiseOver(StateConflict):
    """A promise can no longer be completed: it expired, or its run has ended or begun anew."""

    code = "promise_over"
    http_status = 410
    title = "The promise is over"


class KeyCycle(OncewardError):
    """A run calls a run whose key it holds itself, or a run that waits for it: both would wait for ever."""

    code = "key_cycle"
    http_status = 409
    title = "A run would wait for its own key"


class IdClash(OncewardError):
    """An event of the same source and id exists with other content; the first stays.

    Raised to callers of ``app.emit`` and ``app.start``. A provider's delivery is answered 202 and
    recorded as a clash.
    """

    code = "id_clash"
    http_status = 409
    title = "The id is taken by other content"


class LeaseLost(OncewardError):
    """This process no longer holds the run; its write was refused and changed nothing.

    Another process has taken the run over, or an operator has steered it. Where the reply to an earlier
    try was lost as well, the message says that it may have been stored.
    """

    code = "lease_lost"
    http_status = 409
    title = "The lease was lost"


# --- values ---------------------------------------------------------------------------------


class NotStorable(OncewardError):
    """A value that cannot be stored as JSON and come back equal, by step and place; never retried."""

    code = "not_storable"
    http_status = 422
    title = "The value cannot be stored"


class ValueTooLarge(NotStorable):
    """A value whose JSON exceeds ``value_bytes_max``. Store it elsewhere and return its address."""

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
    """A context or step call in a place or form that cannot be made durable; never retried."""

    code = "step_misuse"
    title = "A step was used wrongly"


class StepNameRepeated(StepMisuse):
    """One step name in two branches that run side by side, without ``item=``.

    After a crash they could swap their saved results. Give each its own name, or ``item=``.
    """

    code = "step_name_repeated"
    title = "A step name repeats in parallel branches"


class CallOutsideStep(StepMisuse):
    """``app.emit`` or ``app.start`` in a workflow outside a step; it would happen on every attempt.

    Use ``ctx.step.emit`` or ``ctx.step.start``, or call it inside a step's body.
    """

    code = "call_outside_step"
    title = "An emit or start outside a step"


class TransactionMisuse(StepMisuse):
    """A transaction that cannot commit together with its checkpoint; it was rolled back, never retried."""

    code = "transaction_misuse"
    title = "A transaction was used wrongly"


class NotAwaited(StepMisuse):
    """A verb was called without ``await``, so that nothing of it was done; never retried.

    The run fails at its end, the step at its body's, with the calls by name. Write the ``await``; a
    retry of the run then does what was left out.
    """

    code = "not_awaited"
    title = "A call was never awaited"


class HistoryMismatch(OncewardError):
    """A saved value no longer fits the type that the code says; the run is held."""

    code = "history_mismatch"
    title = "The code does not fit the history"


# --- outcomes seen by workflow code and by callers -------------------------------------------


class StepFailed(OncewardError):
    """A step used up its tries, or failed with an error that is not retried.

    Raised in the workflow, which may catch it, and the same on every attempt: what the body raised
    is kept as text, since an exception cannot be rebuilt in another process; it is never the
    ``__cause__``, which only the first attempt would have.

    Attributes:
        step: the step's name, with its item and number.
        error_type: the name of what the body raised, e.g. ``ValueError`` or ``shop.CardDeclined``.
        message: its message.
        tries: how often it was tried.
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


class WaitTimedOut(StepFailed):
    """What a step waited for did not come in time; raised where the wait has no ``default=``.

    The same on every attempt. A retry of a run that it ended waits anew, for as long again.
    """

    code = "wait_timed_out"
    title = "A wait timed out"

    def __init__(self, step: str, message: str) -> None:
        super().__init__(step, "WaitTimedOut", message)


class StepTimedOut(OncewardError):
    """A try of a step ran longer than its ``timeout=``; whether its effect happened is not known."""

    code = "step_timed_out"
    title = "A step timed out"


class DeadlineExceeded(OncewardError):
    """The run did not end before its ``deadline=``; it failed, and its code was left at once."""

    code = "deadline_exceeded"
    title = "The run's deadline passed"


class RunFailed(OncewardError):
    """The awaited run failed; raised by ``result()``.

    Attributes:
        run_id: which run.
        error_type: the name of what ended it.
        message: its message.
    """

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
    """Raise inside a step or workflow: this will never work, do not try again.

    Also counts as the cause of another exception, or as a part of a group.
    """


class RetryLater(Exception):
    """Raise inside a step or workflow: try again, not before *delay*.

    Within the policy's ``max_tries`` and ``total``.

    Args:
        delay: seconds, a ``timedelta`` or a text such as ``"90s"`` or ``"1h"``.
        message: kept with the failed try.
    """

    def __init__(self, delay: object = 0, message: str = "") -> None:
        super().__init__(message or f"asked to be tried again after {delay}")
        self.delay = delay


class OutcomeUnknown(Exception):
    """Raise inside a step: it cannot be told whether the effect happened.

    What follows is what the step's ``unknown=`` says; by default it is tried again by the policy like
    any failure, with the same idempotency key. In a check function it says that a person must look.
    """


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


# Saved failures and tracebacks name an error by its module; it shall be the one to import it from.
for _error in (
    AlreadyCompleted, CallOutsideStep, ConfigError, DeadlineExceeded, HistoryMismatch, IdClash, KeyCycle, KeyTaken, NotAwaited, NotFound, NotStorable,
    OncewardError, OutcomeUnknown, Permanent, PlanNeeded, PromiseOver, Pruned, RetryLater, RunCancelled, RunFailed, RunWasCancelled,
    StateConflict, StepFailed, StepMisuse, StepNameRepeated, StepTimedOut, StoreUnavailable, Suspended,
    TransactionMisuse, ValueTooLarge, WaitTimedOut, WorkflowUnknown,
):  # fmt: skip
    _error.__module__ = "onceward"
del _error
