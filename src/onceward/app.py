"""The app: picks the store, wires the parts, and is what users talk to.

One `App` a process. It is made at import time without touching anything, opened where its code
runs (an ASGI lifespan, ``async with``, or a thread of its own for frameworks without a loop),
and closed there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from onceward.authoring.current import session_var
from onceward.core import asked, errors
from onceward.core.duration import Duration, to_ms
from onceward.core.ids import IdSource
from onceward.core.model import EventRow, Millis, ProcessRow, RunRow, WorkflowRow
from onceward.core.ports import EventFilter, RunFilter, Store
from onceward.core.retention import Retention
from onceward.core.settings import SETTINGS, Settings, resolve
from onceward.core.shown import shown
from onceward.core.states import RunState
from onceward.desk import Desk
from onceward.handles import EventView, RunHandle
from onceward.promising import Promising
from onceward.receiving import Receiving
from onceward.registry import Registry
from onceward.runtime import failpoints
from onceward.runtime.clock import StoreClock, SystemEntropy, wall_ms
from onceward.runtime.threads import call_on
from onceward.runtime.transactions.outbox import Outbox
from onceward.runtime.worker import Worker
from onceward.sending import Sending
from onceward.stores.choose import make_store
from onceward.version import __version__

if TYPE_CHECKING:
    from onceward.sync import SyncApp

P = ParamSpec("P")
R = TypeVar("R")
A1 = TypeVar("A1")
A2 = TypeVar("A2")
A3 = TypeVar("A3")
A4 = TypeVar("A4")

_log = logging.getLogger("onceward.app")


class App(Registry, Receiving, Sending, Promising):
    """Receives events, makes exactly one run of each, carries every run to its end.

    Args:
        store: where events and runs are kept, e.g. ``sqlite:///orders.db`` or
            ``postgresql://user@host/database``; by default ``ONCEWARD_STORE``.
        retention: how long what is over is kept; without it everything is, for ever.
        settings: any other setting of the settings table, by name, e.g. ``concurrency=16``.

    Raises:
        ConfigError: a setting is unknown, cannot be read or contradicts another.
    """

    def __init__(
        self, store: str | None = None, *, retention: Retention | None = None, **settings: Any
    ) -> None:
        super().__init__()
        self.retention = retention
        self._arguments: dict[str, Any] = {"store": store, **settings}
        self.settings: Settings = resolve(SETTINGS, self._arguments, os.environ)
        self._worker: Worker | None = None
        self._carrying: Worker | None = None  # from its start to its stop; what its runs use
        self._syncs: dict[int, SyncApp] = {}  # by process: a fork needs one of its own
        self._pid = 0
        self._opening: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None
        self._desk = self.desk = Desk(self._workflows, self._steps, lambda: self.worker)
        self._prepare_receiving()

    def configure(self, **settings: Any) -> None:
        """Change settings before the app is opened, as the command line does; these win.

        Args:
            settings: by name, as for `App`; None leaves one as it is.

        Raises:
            ConfigError: the app is open, or as for `App`.
        """
        if self.is_open:
            raise errors.ConfigError(
                f"The settings {', '.join(settings)} were changed after the app was opened.",
                means="Its parts have read them already.",
                todo="Change them before open(), or pass them to App(…).",
            )
        given = {name: value for name, value in settings.items() if value is not None}
        self.settings = resolve(SETTINGS, self._arguments | given, os.environ)
        self._arguments |= given

    # --- life --------------------------------------------------------------------------------

    async def open(self, *, runs: bool = True) -> None:
        """Open the store, migrate it, and begin to carry runs in this event loop.

        Args:
            runs: whether this process runs workflows, or only accepts and steers.

        Raises:
            ConfigError: no store is named, or its driver is not installed.
            StoreUnavailable: the database cannot be reached.
            SchemaNewer: the store belongs to a newer Onceward.
        """
        async with self._opening_lock():
            if not self.is_open:
                await self._open(runs=runs)

    def _opening_lock(self) -> asyncio.Lock:
        """Give the lock by which tasks that open the app at once take turns, one for each event loop."""
        loop = asyncio.get_running_loop()
        if self._opening is None or self._opening[0] is not loop:
            self._opening = (loop, asyncio.Lock())
        return self._opening[1]

    async def _open(self, *, runs: bool) -> None:
        failpoints.arm_from_environment()
        if runs:
            for workflow in self._workflows.values():
                workflow.check()
        entropy = SystemEntropy()
        draws = IdSource(now_ms=wall_ms, random_bytes=entropy.random_bytes)
        store = self._make_store(draws)
        try:
            await asyncio.to_thread(store.open, migrate=True)
            self._pid = os.getpid()
            self._worker = await self._begin(store, entropy, runs=runs)
        except BaseException:
            await asyncio.to_thread(store.close)
            raise
        if self._receiver is not None:
            self._receiver.resume()

    @property
    def is_open(self) -> bool:
        """Say whether the app is open in this process, in an event loop that is not over."""
        worker = self._worker
        return worker is not None and self._pid == os.getpid() and not worker.loop.is_closed()

    async def _begin(self, store: Store, entropy: SystemEntropy, *, runs: bool) -> Worker:
        clock = await asyncio.to_thread(StoreClock, store.now_ms, follows=store.kind == "postgres")
        id_source = IdSource(now_ms=clock.now_ms, random_bytes=entropy.random_bytes)
        worker = Worker(
            store,
            self.settings,
            self._workflows,
            runs=runs,
            now_ms=clock.now_ms,
            ids=id_source,
            version=__version__,
            refresh_clock=clock.refresh,
        )
        self._wire(worker)
        self._carrying = worker  # what it takes over may go on before it has come to the end of its start
        try:
            await worker.start()
        except BaseException:
            self._carrying = None
            worker.abort()
            raise
        if self.settings.notify:
            store.listen(lambda: call_on(worker.loop, worker.hint))
        return worker

    def _wire(self, worker: Worker) -> None:
        """Tell a worker what the app knows; the testing kit makes workers of its own."""
        worker.steer_child = self._desk.steer_child
        worker.transactions.default = self._databases[0] if self._databases else None
        worker.transactions.told = self._databases
        worker.pruning.retention = self.retention

    def _make_store(self, draws: IdSource) -> Store:
        """Give the store that the settings name; a subclass may wrap it, to count or to disturb."""
        return make_store(self.settings, now_ms=wall_ms, draw=draws.draw)

    async def close(self, grace: Duration | None = None) -> None:
        """Stop: finish running steps within *grace*, give the rest back, close the store.

        Args:
            grace: the setting ``drain`` by default.

        Raises:
            ConfigError: *grace* is no length of time; the app stays open.
        """
        grace_ms = self.settings.drain_ms if grace is None else to_ms(grace, what="grace")
        is_ours = self.is_open
        worker, self._worker = self._worker, None
        if worker is not None and is_ours:
            try:
                if self._receiver is not None:
                    self._receiver.drain()
                await self.refused.close(worker)
                await worker.stop(grace_ms / 1000)
            finally:
                self._carrying = None
            await asyncio.to_thread(worker.store.close)

    async def __aenter__(self) -> Self:
        """Open the app in this event loop."""
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close the app."""
        await self.close()

    @contextlib.asynccontextmanager
    async def lifespan(self, *_: Any) -> AsyncIterator[None]:
        """Open and close around a web application: ``FastAPI(lifespan=app.lifespan)``.

        Raises:
            OncewardError: as `open`; the web application does not start then.
        """
        async with self:
            yield

    @property
    def sync(self) -> SyncApp:
        """Give the same verbs, blocking, for code without an event loop."""
        from onceward.sync import SyncApp

        pid = os.getpid()
        # In one go: two threads that ask first, at once, must not get two.
        return self._syncs.get(pid) or self._syncs.setdefault(pid, SyncApp(self))

    @property
    def worker(self) -> Worker:
        """Give the worker of the open app; for the layers above.

        Raises:
            ConfigError: the app is not open, or was opened in another event loop than this one.
            StoreForked: it was opened in a process of which this one is a fork.
        """
        worker = self._opened()
        try:
            is_elsewhere = asyncio.get_running_loop() is not worker.loop
        except RuntimeError:
            is_elsewhere = False  # `def` code, which goes through `sync`
        if is_elsewhere:
            raise errors.ConfigError(
                "The app was opened in another event loop than the one that uses it now.",
                means="What one loop waits for, another cannot wake.",
                todo="Use the app where it was opened, or its blocking verbs, app.sync, in a thread.",
            )
        return worker

    @property
    def now_ms(self) -> Millis:
        """Give the store's time in Unix milliseconds, for the layers above; wherever it is asked.

        Raises:
            ConfigError: the app is not open.
        """
        # Asked for each delivery, which asks for the worker as well; that checks loop and process.
        worker = self._worker
        return (self._opened() if worker is None else worker).now_ms()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Give the event loop in which the app is open; for the layers above.

        Raises:
            ConfigError: the app is not open.
            StoreForked: it was opened in a process of which this one is a fork.
        """
        return self._opened().loop

    @property
    def outbox(self) -> Outbox:
        """Give the outbox of the open app, from any thread; for the sync twin.

        Raises:
            ConfigError: the app is not open.
            StoreForked: it was opened in a process of which this one is a fork.
        """
        return self._opened().outbox

    def _opened(self) -> Worker:
        worker = self._worker
        if worker is None and session_var.get() is not None:
            # A step that is let finish while the app closes, or goes on before it is open, needs the app as
            # at any other time. Refused, it would fail for good, and its run with it, at a deploy.
            worker = self._carrying
        if worker is None:
            raise errors.ConfigError(
                "The app is not open.",
                means="There is no connection to the store yet.",
                todo="Use `async with app:` or `with app.sync:`. Where app.asgi() is mounted in another "
                "application, its lifespan opens it: FastAPI(lifespan=app.lifespan). A test client runs that as a "
                "context manager only: `with TestClient(web) as client`.",
            )
        if self._pid != os.getpid():
            raise errors.StoreForked(
                f"The app was opened by process {self._pid} and is used by its child {os.getpid()}.",
                means="Connections and threads do not survive a fork.",
                todo="Open the app after the fork, in the child.",
            )
        if worker.loop.is_closed():
            raise errors.ConfigError(
                "The event loop in which the app was opened is over.",
                means="Nothing answers there any more.",
                todo="Open and use the app in one event loop: `async with app:` inside one asyncio.run(…).",
            )
        return worker

    # --- looking -----------------------------------------------------------------------------

    def run(self, run_id: str) -> RunHandle[Any]:
        """Give a handle on a run by its id; whether it exists is seen when it is asked something.

        Args:
            run_id: as in replies, logs and rows: ``run_`` and 26 characters.

        Raises:
            ConfigError: it is no text.
        """
        return RunHandle(self._desk, asked.checked_text(run_id, "run id"))

    async def runs(
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
        """List runs, newest first.

        Args:
            workflow: only of this workflow.
            state: only in this state.
            source: with *event_id*, only the runs of this event.
            event_id: see *source*.
            key: only those about this, as `RunRow.key` has it, of every workflow or of *workflow*.
            problems: only failed and held runs that nobody dismissed.
            before: only runs older than this run id, for the next page.
            limit: at most this many, up to 1,000.

        Raises:
            ConfigError: there is no such state, or *limit* is out of range.
        """
        where = RunFilter(
            **asked.checked_texts(
                workflow=workflow, source=source, event_id=event_id, key=key, before=before
            ),
            state=None if state is None else asked.checked_state(state),
            limit=asked.checked_limit(limit),
            problems=problems,
        )
        return await self._ask("runs", where)  # type: ignore[no-any-return]

    async def event(self, source: str, id: str) -> EventView:
        """Give a stored event with its runs and deliveries.

        Args:
            source: the source's name; ``emit/<type>`` for what `emit` stored.
            id: the event's id there.

        Raises:
            NotFound: no such event in this namespace.
        """
        row = await self._ask("event", asked.checked_text(source, "source"), asked.checked_text(id, "id"))
        if row is None:
            raise errors.NotFound(
                f"There is no event {shown(id)} of source {shown(source)} in this namespace.",
                means="It never came, or was refused, or its source could not read it.",
                todo="Look at what was refused and at unparsed deliveries, and whether the id is whole.",
            )
        runs = await self._ask("runs", RunFilter(source=source, event_id=id, limit=1_000))
        deliveries = await self._ask("deliveries", source, id)
        surplus = await self._ask("surplus", source, id)
        twins = []
        if row.content_hash is not None and not row.id_is_signed:
            twins = await self._ask("same_body", source, row.content_hash, asked.LIMIT_MAX)
        skipped = await self._ask("skipped", source, id)
        return EventView(
            row, list(reversed(runs)), deliveries, skipped, surplus, [twin for twin in twins if twin != id]
        )

    async def events(
        self,
        *,
        source: str | None = None,
        type: str | None = None,
        subject: str | None = None,
        before: tuple[int, str, str] | None = None,
        limit: int = 100,
    ) -> list[EventRow]:
        """List events, newest first.

        Args:
            source: only of this source.
            type: only of this type.
            subject: only about this subject.
            before: only older than this (received_at, source, id), for the next page.
            limit: at most this many, up to 1,000.

        Raises:
            ConfigError: *limit* is out of range.
        """
        where = EventFilter(
            **asked.checked_texts(source=source, type=type, subject=subject),
            before=asked.checked_event_place(before),
            limit=asked.checked_limit(limit),
        )
        return await self._ask("events", where)  # type: ignore[no-any-return]

    async def describe(self) -> Mapping[str, str]:
        """Give what the store says of itself: address, durability, version; secrets masked."""
        return await self._ask("describe")  # type: ignore[no-any-return]

    async def processes(self) -> list[ProcessRow]:
        """List the processes that are registered in the store, this one included."""
        return await self._ask("processes")  # type: ignore[no-any-return]

    async def registered(self) -> list[WorkflowRow]:
        """List the workflows that events start runs of: those of every process that ever registered some.

        `workflows` are those in the code of this app.
        """
        return await self._ask("workflows")  # type: ignore[no-any-return]

    async def forget_workflow(self, name: str) -> None:
        """Let events start no more runs of a workflow that is no longer in the code.

        Its runs stay: they are listed, and can be cancelled. Processes that run already know within
        a lease; one whose code still has the workflow registers it again when it starts.

        Args:
            name: of the workflow, as `registered` lists it.

        Raises:
            ConfigError: the workflow is in the code of this app.
            NotFound: the store does not have it.
        """
        await self._desk.forget_workflow(name)

    async def _ask(self, read: str, *args: Any) -> Any:
        return await self._desk.ask(read, *args)
