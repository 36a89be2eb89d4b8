"""The app's verbs for code without an event loop: the same names, blocking.

A thread of its own runs the event loop in which the app lives; it is started after a fork, never
before, so that prefork servers can import the app first.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Future
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, Self, TypeVar, overload

from onceward.authoring.current import frame_var
from onceward.authoring.event import Event
from onceward.core import errors
from onceward.core.arrival import Accepted, Verified
from onceward.core.asked import UNSET
from onceward.core.duration import Duration
from onceward.core.messages import HttpRequest
from onceward.core.model import (
    AttemptRow,
    EventRow,
    ProcessRow,
    RunRow,
    StepRow,
    WorkflowRow,
)
from onceward.core.plan import Plan
from onceward.core.states import RunState
from onceward.core.steer import Reply
from onceward.core.unknown import Question
from onceward.handles import Emitted, EventView, LaterRun, RunHandle
from onceward.planning import PlannedVerb
from onceward.promising import Completed
from onceward.receiving import DeliveryPage
from onceward.runtime.threads import refuse_without_threads

if TYPE_CHECKING:
    from onceward.app import App
    from onceward.authoring.takes import Takes0, Takes1, Takes2, Takes3, Takes4
    from onceward.authoring.workflow import Workflow
    from onceward.refusals import Refusal

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
A1 = TypeVar("A1")
A2 = TypeVar("A2")
A3 = TypeVar("A3")
A4 = TypeVar("A4")

UNWIND_S_MAX = 5
"""How long calls that nobody will answer any more may take to end when the thread does."""


class SyncApp:
    """What ``app.sync`` gives: the app's verbs, blocking, for code without an event loop.

    Args:
        app: whose verbs these are.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._change: Future[None] | None = None  # an opening or a closing that is under way

    # --- life ----------------------------------------------------------------------------------

    def open(self, *, runs: bool = True) -> None:
        """Start the thread and open the app in it; does nothing where the app is open already.

        Threads that call it at once open the app once, and see the same error if that fails.

        Args:
            runs: whether this process runs workflows, or only accepts and steers.

        Raises:
            ConfigError: threads of this process do not run by themselves.
            OncewardError: see `App.open`; then there is no thread either.
        """
        refuse_without_threads()
        change = self._begin(lambda: self._app.is_open)
        if change is None:
            return
        try:
            self._open(runs=runs)
        except BaseException as error:
            self._end(change, error)
            raise
        self._end(change)

    def _begin(self, is_done: Callable[[], bool]) -> Future[None] | None:
        """Take the turn to open or to close, one after the other; None when there is nothing to do.

        Raises:
            OncewardError: another thread, whose turn it was, could not open the app.
        """
        while True:
            with self._lock:
                other = self._change
                if other is None:
                    if is_done():
                        return None
                    self._change = Future()
                    return self._change
            other.result()

    def _end(self, change: Future[None], error: BaseException | None = None) -> None:
        with self._lock:
            self._change = None
        if error is None:
            change.set_result(None)
        else:
            change.set_exception(error)

    def _open(self, *, runs: bool) -> None:
        self._end_thread()  # of an app that was closed elsewhere than here
        loop = self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=loop.run_forever, name="onceward-loop", daemon=True)
        self._thread.start()
        try:
            self.wait(self._app.open(runs=runs))
        except BaseException:
            self._end_thread()
            raise

    def close(self, grace: Duration | None = None) -> None:
        """Close the app and end the thread; see `App.close`. One that was opened elsewhere stays open."""
        if self._loop is not None:
            _refuse_in(self._loop)
        change = self._begin(lambda: self._loop is None)
        if change is None:
            return
        try:
            self.wait(self._app.close(grace))
        finally:
            self._end_thread()
            self._end(change)

    def _end_thread(self) -> None:
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is not None and thread is not None:
            # Whoever still waits for an answer gets a cancellation, and does not wait for ever.
            asyncio.run_coroutine_threadsafe(_cancel_others(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def __enter__(self) -> Self:
        """Open."""
        self.open()
        return self

    def __exit__(self, *exc: object) -> None:
        """Close."""
        self.close()

    def wait(self, coroutine: Coroutine[Any, Any, R]) -> R:
        """Run a verb in the app's event loop and block until it answers.

        Args:
            coroutine: a call of a verb, e.g. ``app.start(…)``.

        Raises:
            StepMisuse: called in that event loop itself, which would wait for itself for ever.
        """
        loop = self._loop
        try:
            if loop is None:
                # Opened elsewhere, in an event loop that this thread must not be: `def` steps.
                loop = self._app.loop
            _refuse_in(loop)
        except BaseException:
            coroutine.close()
            raise
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result()

    # --- verbs ---------------------------------------------------------------------------------

    def emit(
        self,
        type: str,
        payload: Any = None,
        *,
        id: str | None = None,
        subject: str | None = None,
        occurred_at: datetime | None = None,
        within: Any = None,
    ) -> Emitted[SyncRunHandle[Any]]:
        """Store an event; see `App.emit`. What *within* names is used in the calling thread."""
        if within is not None:
            posted = self.wait(self._app._to_emit(type, payload, id, subject, occurred_at))  # noqa: SLF001 - its twin
            self._app.outbox.write_blocking(posted.row, posted.event, within)
            found = [self.run(run_id) for run_id in posted.run_ids]
            return Emitted(posted.event.source, posted.event.id, posted.is_duplicate, found)
        coroutine = self._app.emit(type, payload, id=id, subject=subject, occurred_at=occurred_at)
        emitted = self._say(coroutine, has_id=id is not None)
        runs = [SyncRunHandle(self, handle) for handle in emitted.runs]
        return Emitted(emitted.source, emitted.id, emitted.is_duplicate, runs)

    @overload
    def start(  # type: ignore[overload-overlap]  # no workflow may take a within=
        self, workflow: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> SyncRunHandle[R]: ...
    @overload
    def start(
        self, workflow: Workflow[[Event], R], payload: Any = ..., /, *, id: str | None = ...
    ) -> SyncRunHandle[R]: ...
    @overload
    def start(self, workflow: Takes0[R], /, *, id: str | None = ...) -> SyncRunHandle[R]: ...
    @overload
    def start(self, workflow: Takes1[A1, R], a1: A1, /, *, id: str | None = ...) -> SyncRunHandle[R]: ...
    @overload
    def start(
        self, workflow: Takes2[A1, A2, R], a1: A1, a2: A2, /, *, id: str | None = ...
    ) -> SyncRunHandle[R]: ...
    @overload
    def start(
        self, workflow: Takes3[A1, A2, A3, R], a1: A1, a2: A2, a3: A3, /, *, id: str | None = ...
    ) -> SyncRunHandle[R]: ...
    @overload
    def start(
        self, workflow: Takes4[A1, A2, A3, A4, R], a1: A1, a2: A2, a3: A3, a4: A4, /, *, id: str | None = ...
    ) -> SyncRunHandle[R]: ...
    @overload
    def start(
        self, workflow: Workflow[[Event], R], payload: Any = ..., /, *, id: str | None = ..., within: Any
    ) -> SyncLaterRun[R]: ...
    @overload
    def start(self, workflow: Takes0[R], /, *, id: str | None = ..., within: Any) -> SyncLaterRun[R]: ...
    @overload
    def start(
        self, workflow: Takes1[A1, R], a1: A1, /, *, id: str | None = ..., within: Any
    ) -> SyncLaterRun[R]: ...
    @overload
    def start(
        self, workflow: Takes2[A1, A2, R], a1: A1, a2: A2, /, *, id: str | None = ..., within: Any
    ) -> SyncLaterRun[R]: ...
    @overload
    def start(
        self,
        workflow: Takes3[A1, A2, A3, R],
        a1: A1,
        a2: A2,
        a3: A3,
        /,
        *,
        id: str | None = ...,
        within: Any,
    ) -> SyncLaterRun[R]: ...
    @overload
    def start(
        self,
        workflow: Takes4[A1, A2, A3, A4, R],
        a1: A1,
        a2: A2,
        a3: A3,
        a4: A4,
        /,
        *,
        id: str | None = ...,
        within: Any,
    ) -> SyncLaterRun[R]: ...
    def start(self, workflow: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Start a run; see `App.start`. What ``within=`` names is used in the calling thread."""
        within = kwargs.pop("within", None)
        if within is not None:
            event_id = kwargs.pop("id", None)
            posted = self.wait(self._app._to_start(workflow, args, kwargs, event_id))  # noqa: SLF001
            self._app.outbox.write_blocking(posted.row, posted.event, within)
            return SyncLaterRun(self, self._app._later(workflow, posted))  # noqa: SLF001
        coroutine = self._app.start(workflow, *args, **kwargs)
        return SyncRunHandle(self, self._say(coroutine, has_id="id" in kwargs))

    def _say(self, coroutine: Coroutine[Any, Any, R], *, has_id: bool) -> R:
        """Emit or start: at once inside a step's body, which only notes what to commit."""
        return self.wait(coroutine) if has_id or frame_var.get() is None else _at_once(coroutine)

    def run(self, run_id: str) -> SyncRunHandle[Any]:
        """Give a handle on a run by its id; see `App.run`."""
        return SyncRunHandle(self, self._app.run(run_id))

    def runs(
        self,
        *,
        workflow: str | None = None,
        state: RunState | str | None = None,
        source: str | None = None,
        event_id: str | None = None,
        key: str | None = None,
        problems: bool = False,
        before: str | None = None,
        limit: int = 100,
    ) -> list[RunRow]:
        """List runs, newest first; see `App.runs`."""
        return self.wait(
            self._app.runs(
                workflow=workflow,
                state=state,
                source=source,
                event_id=event_id,
                key=key,
                problems=problems,
                before=before,
                limit=limit,
            )
        )

    def event(self, source: str, id: str) -> EventView:
        """Give an event with its runs and deliveries; see `App.event`."""
        return self.wait(self._app.event(source, id))

    def events(
        self,
        *,
        source: str | None = None,
        type: str | None = None,
        subject: str | None = None,
        before: tuple[int, str, str] | None = None,
        limit: int = 100,
    ) -> list[EventRow]:
        """List events, newest first; see `App.events`."""
        return self.wait(
            self._app.events(source=source, type=type, subject=subject, before=before, limit=limit)
        )

    def deliveries(
        self,
        *,
        state: Literal["accepted", "duplicate", "clash", "unparsed"] | None = None,
        source: str | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> DeliveryPage:
        """List deliveries, newest first; see `App.deliveries`."""
        return self.wait(self._app.deliveries(state=state, source=source, before=before, limit=limit))

    def request(self, delivery_id: str) -> HttpRequest:
        """Give the stored request of a delivery; see `App.request`."""
        return self.wait(self._app.request(delivery_id))

    def verify_again(self, delivery_id: str) -> Verified:
        """Verify a stored request as at the time when it came; see `App.verify_again`."""
        return self.wait(self._app.verify_again(delivery_id))

    def redeliver(self, delivery_id: str) -> Accepted:
        """Read a stored request again; see `App.redeliver`."""
        return self.wait(self._app.redeliver(delivery_id))

    def refusals(self, source: str | None = None) -> list[Refusal]:
        """Give what was refused; see `App.refusals`."""
        return self.wait(self._app.refusals(source))

    def complete_promise(self, token: str, value: Any = None) -> Completed:
        """Complete a promise; see `App.complete_promise`."""
        return self.wait(self._app.complete_promise(token, value))

    def fail_promise(self, token: str, reason: str) -> Completed:
        """Fail a promise; see `App.fail_promise`."""
        return self.wait(self._app.fail_promise(token, reason))

    def describe(self) -> Mapping[str, str]:
        """Give what the store says of itself; see `App.describe`."""
        return self.wait(self._app.describe())

    def processes(self) -> list[ProcessRow]:
        """List the processes that are registered in the store; see `App.processes`."""
        return self.wait(self._app.processes())

    def registered(self) -> list[WorkflowRow]:
        """List the workflows that events start runs of; see `App.registered`."""
        return self.wait(self._app.registered())

    def forget_workflow(self, name: str) -> None:
        """Let events start no more runs of a workflow; see `App.forget_workflow`."""
        self.wait(self._app.forget_workflow(name))


class SyncRunHandle(Generic[R_co]):
    """A run, by id; the blocking twin of `RunHandle`."""

    def __init__(self, app: SyncApp, handle: RunHandle[R_co]) -> None:
        self._app = app
        self._handle = handle

    @property
    def run_id(self) -> str:
        """Give the run's id; see `RunHandle`."""
        return self._handle.run_id

    @property
    def is_duplicate(self) -> bool:
        """Say whether the run existed already; see `RunHandle`."""
        return self._handle.is_duplicate

    def row(self) -> RunRow:
        """Give everything that is stored of the run itself."""
        return self._app.wait(self._handle.row())

    def state(self) -> RunState:
        """Give where the run stands."""
        return self._app.wait(self._handle.state())

    def result(self, timeout: Duration | None = None) -> R_co:
        """Wait for the run's end and give its result; see `RunHandle.result`."""
        return self._app.wait(self._handle.result(timeout))

    def steps(self, generation: int | None = None) -> list[StepRow]:
        """Give the records of a generation in saved order; see `RunHandle.steps`."""
        return self._app.wait(self._handle.steps(generation))

    def attempts(self) -> list[AttemptRow]:
        """Give the attempts that ended without ending their generation well."""
        return self._app.wait(self._handle.attempts())

    def children(self) -> list[RunRow]:
        """Give the runs that this run started or called."""
        return self._app.wait(self._handle.children())

    def retry(self, *, actor: str = "app") -> Reply:
        """Begin the next attempt; see `RunHandle.retry`."""
        return self._app.wait(self._handle.retry(actor=actor))

    def plan(
        self,
        verb: PlannedVerb,
        *,
        from_step: str | None = None,
        keep: str | Iterable[str] | None = None,
        drop: str | Iterable[str] | None = None,
        payload: Any = None,
        answer: str | None = None,
        step: str | None = None,
    ) -> Plan:
        """Tell what a verb would do to each step; see `RunHandle.plan`."""
        return self._app.wait(
            self._handle.plan(
                verb,
                from_step=from_step,
                keep=keep,
                drop=drop,
                payload=payload,
                answer=answer,
                step=step,
            )
        )

    def restart(
        self,
        *,
        plan: Plan | str | None = None,
        from_step: str | None = None,
        keep: str | Iterable[str] | None = None,
        drop: str | Iterable[str] | None = None,
        acknowledge: bool = False,
        request_id: str | None = None,
        actor: str = "app",
    ) -> Reply:
        """Begin a new generation; see `RunHandle.restart`."""
        return self._app.wait(
            self._handle.restart(
                plan=plan,
                from_step=from_step,
                keep=keep,
                drop=drop,
                acknowledge=acknowledge,
                request_id=request_id,
                actor=actor,
            )
        )

    def replay(
        self,
        *,
        from_step: str | None = None,
        keep: str | Iterable[str] | None = None,
        drop: str | Iterable[str] | None = None,
        payload: Any = None,
        plan: Plan | str | None = None,
        request_id: str | None = None,
        actor: str = "app",
    ) -> SyncRunHandle[R_co]:
        """Make a new run of the same event; see `RunHandle.replay`."""
        handle = self._app.wait(
            self._handle.replay(
                from_step=from_step,
                keep=keep,
                drop=drop,
                payload=payload,
                plan=plan,
                request_id=request_id,
                actor=actor,
            )
        )
        return SyncRunHandle(self._app, handle)

    def cancel(self, *, actor: str = "app") -> Reply:
        """End the run from outside; see `RunHandle.cancel`."""
        return self._app.wait(self._handle.cancel(actor=actor))

    def questions(self) -> list[Question]:
        """Give what a person is asked about a held run; see `RunHandle.questions`."""
        return self._app.wait(self._handle.questions())

    def answer(
        self, answer: str, *, step: str | None = None, result: Any = UNSET, actor: str = "app"
    ) -> Reply:
        """Let a held run go on; see `RunHandle.answer`."""
        return self._app.wait(self._handle.answer(answer, step=step, result=result, actor=actor))

    def resume(self, *, actor: str = "app") -> Reply:
        """Let a held run go on with another attempt; see `RunHandle.resume`."""
        return self._app.wait(self._handle.resume(actor=actor))

    def dismiss(self, *, actor: str = "app") -> Reply:
        """Take a failed run off the list of open problems; see `RunHandle.dismiss`."""
        return self._app.wait(self._handle.dismiss(actor=actor))

    def __repr__(self) -> str:
        """Show the id."""
        return repr(self._handle)


class SyncLaterRun(Generic[R_co]):
    """A run that there is when the transaction has committed in which it was started; see `LaterRun`.

    Attributes:
        source: of the event that starts it.
        event_id: of that event.
    """

    def __init__(self, app: SyncApp, handle: LaterRun[R_co]) -> None:
        self._app = app
        self._handle = handle
        self.source = handle.source
        self.event_id = handle.event_id

    def run(self, timeout: Duration = "30s") -> SyncRunHandle[R_co]:
        """Give the run when there is one; see `LaterRun.run`."""
        return SyncRunHandle(self._app, self._app.wait(self._handle.run(timeout)))

    def __repr__(self) -> str:
        """Show what identifies it."""
        return repr(self._handle)


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=UNWIND_S_MAX)


def _refuse_in(loop: asyncio.AbstractEventLoop) -> None:
    """Refuse to block the loop that would have to answer."""
    try:
        is_here = asyncio.get_running_loop() is loop
    except RuntimeError:
        is_here = False
    if is_here:
        raise errors.StepMisuse(
            "A blocking verb of app.sync was called in the app's own event loop.",
            means="The loop would wait for itself for ever.",
            todo="In async code call the verb without sync, e.g. `await app.emit(…)`.",
        )


def _at_once(coroutine: Coroutine[Any, Any, R]) -> R:
    """Run a verb that does not wait: inside a step's body it only notes what to commit."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        value: R = done.value
        return value
    coroutine.close()
    raise AssertionError("a verb inside a step's body waited")
