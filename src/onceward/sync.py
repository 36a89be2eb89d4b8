"""The app's verbs for code without an event loop: the same names, blocking.

A thread of its own runs the event loop in which the app lives; it is started after a fork, never
before, so that prefork servers can import the app first.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from onceward.authoring.current import frame_var
from onceward.core.duration import Duration, to_ms
from onceward.core.model import AttemptRow, EventRow, RunRow, StepRow
from onceward.core.states import RunState
from onceward.core.steer import Reply
from onceward.handles import Emitted, EventView, RunHandle

if TYPE_CHECKING:
    from onceward.app import App
    from onceward.authoring.workflow import Workflow

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class SyncApp:
    """What ``app.sync`` gives."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self.pid = os.getpid()

    # --- life ----------------------------------------------------------------------------------

    def open(self, *, runs: bool = True) -> None:
        """Start the thread and open the app in it; calling it again does nothing."""
        with self._lock:
            if self._loop is None:
                loop = self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=loop.run_forever, name="onceward-loop", daemon=True)
                self._thread.start()
        self._wait(self._app.open(runs=runs))

    def close(self, grace: Duration | None = None) -> None:
        """Close the app and end the thread."""
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is None or thread is None:
            return
        asyncio.run_coroutine_threadsafe(self._app.close(grace), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    def __enter__(self) -> SyncApp:
        """Open."""
        self.open()
        return self

    def __exit__(self, *exc: object) -> None:
        """Close."""
        self.close()

    def _wait(self, coroutine: Coroutine[Any, Any, R]) -> R:
        if self._loop is None:
            # Opened elsewhere, in an event loop that this thread must not be: `def` steps.
            worker = self._app._open_worker()
            return asyncio.run_coroutine_threadsafe(coroutine, worker.loop).result()
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    # --- verbs ---------------------------------------------------------------------------------

    def emit(
        self, type: str, payload: Any = None, *, id: str | None = None, subject: str | None = None
    ) -> Emitted:
        """Store an event; see `App.emit`."""
        if frame_var.get() is not None:
            return _at_once(self._app.emit(type, payload, id=id, subject=subject))
        return self._wait(self._app.emit(type, payload, id=id, subject=subject))

    def start(self, workflow: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs) -> SyncRunHandle[R]:
        """Start a run; see `App.start`."""
        coroutine = self._app.start(workflow, *args, **kwargs)
        handle = _at_once(coroutine) if frame_var.get() is not None else self._wait(coroutine)
        return SyncRunHandle(self, handle)

    def run(self, run_id: str) -> SyncRunHandle[Any]:
        """Give a handle on a run by its id."""
        return SyncRunHandle(self, self._app.run(run_id))

    def runs(self, **where: Any) -> list[RunRow]:
        """List runs; see `App.runs`."""
        return self._wait(self._app.runs(**where))

    def event(self, source: str, id: str) -> EventView:
        """Give an event with its runs and deliveries; see `App.event`."""
        return self._wait(self._app.event(source, id))

    def events(self, **where: Any) -> list[EventRow]:
        """List events; see `App.events`."""
        return self._wait(self._app.events(**where))


class SyncRunHandle(Generic[R_co]):
    """A run, by id; the blocking twin of `RunHandle`."""

    def __init__(self, app: SyncApp, handle: RunHandle[R_co]) -> None:
        self._app = app
        self._handle = handle
        self.run_id = handle.run_id
        self.is_duplicate = handle.is_duplicate

    def row(self) -> RunRow:
        """Give everything that is stored of the run itself."""
        return self._app._wait(self._handle.row())

    def state(self) -> RunState:
        """Give where the run stands."""
        return self._app._wait(self._handle.state())

    def result(self, timeout: Duration | None = None) -> R_co:
        """Wait for the run's end and give its result; see `RunHandle.result`."""
        if timeout is not None:
            to_ms(timeout, what="timeout")
        return self._app._wait(self._handle.result(timeout))

    def steps(self, generation: int | None = None) -> list[StepRow]:
        """Give the records of a generation in saved order."""
        return self._app._wait(self._handle.steps(generation))

    def attempts(self) -> list[AttemptRow]:
        """Give the attempts that ended without ending their generation well."""
        return self._app._wait(self._handle.attempts())

    def children(self) -> list[RunRow]:
        """Give the runs that this run started or called."""
        return self._app._wait(self._handle.children())

    def retry(self, *, actor: str = "app") -> Reply:
        """Begin the next attempt; see `RunHandle.retry`."""
        return self._app._wait(self._handle.retry(actor=actor))

    def restart(self, *, actor: str = "app") -> Reply:
        """Begin a new generation; see `RunHandle.restart`."""
        return self._app._wait(self._handle.restart(actor=actor))

    def replay(
        self,
        *,
        from_step: str | None = None,
        payload: Any = None,
        request_id: str | None = None,
        actor: str = "app",
    ) -> SyncRunHandle[R_co]:
        """Make a new run of the same event; see `RunHandle.replay`."""
        handle = self._app._wait(
            self._handle.replay(from_step=from_step, payload=payload, request_id=request_id, actor=actor)
        )
        return SyncRunHandle(self._app, handle)

    def cancel(self, *, actor: str = "app") -> Reply:
        """End the run from outside; see `RunHandle.cancel`."""
        return self._app._wait(self._handle.cancel(actor=actor))

    def answer(self, answer: str, *, actor: str = "app") -> Reply:
        """Let a held run go on; see `RunHandle.answer`."""
        return self._app._wait(self._handle.answer(answer, actor=actor))

    def dismiss(self, *, actor: str = "app") -> Reply:
        """Take a failed run off the list of open problems."""
        return self._app._wait(self._handle.dismiss(actor=actor))


def _at_once(coroutine: Coroutine[Any, Any, R]) -> R:
    """Run a verb that does not wait: inside a step's body it only notes what to commit."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        value: R = done.value
        return value
    coroutine.close()
    raise AssertionError("a verb inside a step's body waited")
