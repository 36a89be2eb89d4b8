"""One life of an app in a test: the real worker over a real store, in virtual time.

A life can end at any moment, as a process dies: nothing of it runs any more, what it had not
committed is gone, its lock is free. The next life begins over the same store, at the same time.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import random
import threading
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, cast

from onceward.core.ids import IdSource
from onceward.core.messages import HttpRequest
from onceward.core.model import Millis, RunRow
from onceward.core.ports import Batch, RunFilter, Store
from onceward.core.states import TERMINAL, RunState
from onceward.runtime.threads import Threads
from onceward.runtime.worker import Worker
from onceward.testing.clock import EPOCH_MS, SeededEntropy
from onceward.testing.kit.homes import Home
from onceward.testing.kit.lent import LifeTransactions
from onceward.testing.kit.loop import VirtualLoop
from onceward.testing.kit.outside import NOBODY, THREAD, Outside

if TYPE_CHECKING:
    from onceward.app import App
    from onceward.authoring.workflow import Workflow

T = TypeVar("T")

YEAR_MS: Millis = 365 * 86_400_000
POLL_MS: Millis = 30 * 86_400_000

PROMISE_SECRET = "for-tests-" * 5  # nobody guesses a token there
"""For an app that is told its own in production."""

JUMPS_MAX = 20_000
"""How often time may jump before a run is said to never end."""

YEARS_MAX = 20

STEP_ENDS_S = 10.0
"""How long a thread of a dead life may take to end, in real time."""

POLLS_WITHOUT_NEWS = 3
"""Jumps after which runs that wait for nothing that has a time are left waiting."""


class Killed(BaseException):
    """The process that ran this is dead; nothing of it goes on."""


class Unending(AssertionError):
    """A run in a test does not come to an end, however much time passes."""


class Place:
    """What outlives the lives of an app in a test: its store, the time, the outside.

    Args:
        app: the user's; its own store is never touched.
        workflow: the one under test, or None.
        home: where the store is; emptied.
        outside: what its steps reach.
        seed: decides every draw of the engine and of Python's `random`.
        stays: whether runs that sleep or wait stay in memory.
    """

    def __init__(
        self,
        app: App,
        workflow: Workflow[..., Any] | None,
        home: Home,
        outside: Outside,
        *,
        seed: int = 0,
        stays: bool = False,
    ) -> None:
        self.app = app
        self.workflow = workflow
        self.home = home
        home.empty()
        self.outside = outside
        self.seed = seed
        self.markers_namespace = f"onceward_test_{uuid.uuid4().hex}"  # not seeded: see LifeTransactions
        self.lives = 0
        self.seconds = 0.0
        self.settings = dataclasses.replace(
            app.settings,
            store=home.url,
            # One process, whose death is seen at once; polls and beats would only cost jumps.
            lease_ms=100 * YEAR_MS,
            poll_ms=POLL_MS,
            linger_ms=100 * YEAR_MS if stays else 0,
            instance=home.instance,
            notify=False,
            promise_secret=app.settings.promise_secret or PROMISE_SECRET,
        )


@contextlib.contextmanager
def borrowed(app: App) -> Iterator[None]:
    """Use a user's app for lives of a test, and give it back as it was, and Python's `random` with it."""
    names = ("settings", "_worker", "_pid", "_receiver", "_syncs", "_opening")
    kept, drawn = {name: getattr(app, name) for name in names}, random.getstate()
    hook = threading.excepthook

    def hear(args: threading.ExceptHookArgs) -> None:
        if not issubclass(args.exc_type, Killed):  # threads of a dead process end without a word
            hook(args)

    threading.excepthook = hear
    try:
        yield
    finally:
        threading.excepthook = hook
        random.setstate(drawn)
        for name, value in kept.items():
            setattr(app, name, value)


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Keep logs still that tell of deaths: here they are what is asked for."""
    loggers = [logging.getLogger(name) for name in ("onceward", "psycopg")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


class Life:
    """One life.

    Args:
        place: where.

    Attributes:
        is_dead: it was killed, or is over.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.app = place.app
        self.workflow = place.workflow
        self.number = place.lives
        place.lives += 1
        self.is_dead = False
        self.was_killed = False
        self.loop = VirtualLoop(place.seconds)
        self.on_quiet: Callable[[], None] = lambda: None
        self.database: Store | None = None
        self.worker: Worker | None = None
        self.transactions: LifeTransactions | None = None
        self._thread = threading.get_ident()

    def now_ms(self) -> Millis:
        """Give the time in Unix milliseconds."""
        return EPOCH_MS + int(self.loop.time() * 1000)

    # --- life and death -------------------------------------------------------------------------

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in this life, which must be open.

        Raises:
            Killed: the life ended meanwhile.
        """
        try:
            value = self.loop.run_until_complete(main)
        except Killed:
            raise
        except RuntimeError as error:
            if self.is_dead:
                raise Killed from error
            raise
        except BaseException as error:
            if self.is_dead:  # what code makes of its death means nothing
                raise Killed from error
            raise
        if self.is_dead:
            raise Killed
        return value

    async def open(self) -> None:
        """Open the store and start the worker."""
        place, app, loop = self.place, self.app, self.loop
        random.seed(f"{place.seed} {self.number}")
        self.database = place.home.open(self.now_ms)
        entropy = SeededEntropy(f"{place.seed} {self.number}")
        app.settings = place.settings
        app._receiver, app._syncs, app._opening = None, {}, None
        worker = self.worker = Worker(
            cast("Store", _Gate(self, self.database)),
            place.settings,
            app._workflows,
            now_ms=self.now_ms,
            ids=IdSource(now_ms=self.now_ms, random_bytes=entropy.random_bytes),
            writer=_Writer(self),
            reads=_read,
            elapsed_s=loop.time,
            cpu_s=lambda: 0.0,
            beats=False,
            version="test",
        )
        worker.step_threads = _Threads(self, place.settings.threads, "onceward-step")
        worker.workflow_threads = _Threads(self, place.settings.concurrency, "onceward-workflow")
        transactions = worker.transactions = self.transactions = LifeTransactions(
            worker, place.markers_namespace
        )
        loop.has_replies_due = lambda: transactions.is_talking
        loop.has_bodies = lambda: bool(self.bodies())
        place.outside.whose = self.whose
        app._wire(worker)
        worker.ends._is_watching = True  # every run ends in this process: nobody need ask twice a second
        app._worker, app._pid = worker, os.getpid()
        await worker.start()
        # A look at the store sees when the next run is due; without it a poll would, days later.
        loop.on_still = worker.hint

    def kill(self) -> None:
        """End it as a process dies. Does not return where code of this life calls it: it raises.

        Raises:
            Killed: always.
        """
        self.die()
        raise Killed

    def die(self) -> None:
        """Let nothing of it run any more."""
        if self.is_dead:
            return
        self.is_dead = self.was_killed = True
        if self.worker is not None:
            for execution in self.worker.executions.values():
                execution.stopping = "lost"
        if threading.get_ident() == self._thread:
            self.loop.cut()
        else:
            asyncio.SelectorEventLoop.call_soon_threadsafe(self.loop, self.loop.cut)

    def check_alive(self) -> None:
        """Raise `Killed` where the process is dead."""
        if self.is_dead:
            raise Killed

    def end(self) -> None:
        """Clear away what is left of it; the time goes on from here in the next life."""
        self.is_dead = True
        self.place.seconds = self.loop.time()
        if self.worker is not None:
            self.worker.abort()
            for execution in self.worker.executions.values():
                execution.stopping = "lost"
        self._join(lambda: self.loop.running)  # in the next life they would be somebody else's
        self.loop.unwind()
        self._join(lambda: len(self.loop._turns))
        if self.transactions is not None:
            self.loop.finish(self.transactions.close())
        self.loop.close()
        if self.worker is not None:
            self.worker.step_threads.close()
            self.worker.workflow_threads.close()
        if self.database is not None:
            self.place.home.end(self.database)
        self.app._worker = None

    def _join(self, running: Callable[[], int]) -> None:
        until = time.monotonic() + STEP_ENDS_S
        while running() > 0 and time.monotonic() < until:
            self.loop.turn()
            if running() > 0:
                time.sleep(0.001)  # a thread ends in real time, and tells nobody

    # --- what happens in it ---------------------------------------------------------------------

    async def post(self, source: str, request: HttpRequest) -> tuple[int, str]:
        """Hand a delivery to the app's real receiver; give status and text of the reply."""
        url = request.url.removeprefix("https://")
        _host, _, path = url.partition("/")
        path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "method": request.method,
            "scheme": "https",
            "path": f"/{path}" if path else f"/hooks/{source}",
            "query_string": query.encode(),
            "headers": [*request.headers, (b"host", b"app.example")],
        }
        sent: list[dict[str, Any]] = []
        parts = [{"type": "http.request", "body": request.body}]

        async def receive() -> dict[str, Any]:
            return parts.pop() if parts else {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        await self.app.asgi()(scope, receive, send)
        self.check_alive()
        body = b"".join(message.get("body", b"") for message in sent)
        return (sent[0]["status"] if sent else 0), body.decode("utf-8", "replace")

    def runs(self) -> list[RunRow]:
        """Give all runs, the oldest first."""
        assert self.database is not None
        return list(reversed(self.database.runs(RunFilter(limit=1_000))))

    def bodies(self) -> list[str]:
        """Give the steps whose bodies run now."""
        executions = [] if self.worker is None else self.worker.executions.values()
        return [str(key) for execution in executions for key in execution.steps_in_flight]

    def whose(self) -> str:
        """Give whose code runs here that belongs to no run by its context: a thread's that a body started."""
        bodies = [] if threading.get_ident() == self._thread else self.bodies()
        return NOBODY if not bodies else bodies[0] if len(bodies) == 1 else THREAD

    def open_runs(self) -> list[RunRow]:
        """Give the runs that are neither over nor held."""
        return [run for run in self.runs() if run.state not in TERMINAL and run.state is not RunState.HELD]

    async def quiet(self) -> None:
        """Return when nothing goes on without time going on."""
        await self.loop.quiet()
        self.on_quiet()

    async def advance(self, seconds: float) -> None:
        """Let time pass, and what is due meanwhile happen."""
        until = self.loop.time() + seconds
        for _ in range(JUMPS_MAX):
            await self.quiet()
            if self.loop.time() >= until:
                return
            self.loop.jump(until)
        raise Unending(
            f"Something was due more than {JUMPS_MAX} times within {seconds:.0f} s of virtual time."
        )

    async def settle(self) -> None:
        """Let time go on until every run has ended, is held, or waits for what has no time.

        Raises:
            Unending: time goes on for ever.
        """
        without_news = 0
        for _ in range(JUMPS_MAX):
            await self.quiet()
            running = self.open_runs()
            if not running:
                return
            is_waiting = all(run.state is RunState.WAITING for run in running)
            without_news = without_news + 1 if is_waiting else 0
            if without_news > POLLS_WITHOUT_NEWS or not self.loop.jump():
                return
            if self.loop.time() - self.place.seconds > YEARS_MAX * YEAR_MS / 1000:
                break
        named = ", ".join(f"{run.workflow} ({run.state})" for run in self.open_runs())
        raise Unending(
            f"After {self.loop.time() / 86_400:.0f} days of virtual time these runs go on: {named}. A run that waits "
            "for an event or an answer without a timeout= needs it from the test, as a second event."
        )


class _Gate:
    """The store as a life reaches it: not at all once that is over."""

    def __init__(self, life: Life, inner: Store) -> None:
        self._life = life
        self._inner = inner

    def begin(self, process_id: str, epoch: int, batch: Batch) -> None:  # noqa: ARG002 - as a store has it
        """Give None: every commit is made in line."""
        return

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if not callable(method):
            return method

        def call(*args: Any, **kwargs: Any) -> Any:
            self._life.check_alive()
            return method(*args, **kwargs)

        self.__dict__[name] = call
        return call


class _Writer:
    """Makes commits in line, each in a turn of the loop of its own."""

    def __init__(self, life: Life) -> None:
        self._life = life

    def submit(self, call: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        self._life.loop.call_soon(self._commit, call, done)

    def _commit(self, call: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        result, error = None, None
        try:
            result = call()
        except Killed:
            return
        except BaseException as caught:  # noqa: BLE001 - handed to the committer, whatever it is
            error = caught
        done(result, error)

    def close(self) -> None:
        """Stop; there is no thread."""


async def _read(function: Callable[..., Any], *args: Any) -> Any:
    """Make a blocking call of the store in line."""
    return function(*args)


class _Threads(Threads):
    """Threads in which time stands still; see `VirtualLoop.lent`."""

    def __init__(self, life: Life, count: int, name: str) -> None:
        super().__init__(count, name)
        self._life = life

    async def run(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        may_begin: Callable[[], bool] | None = None,
    ) -> Any:
        """Run *function* in a thread; see the base."""
        loop = self._life.loop
        loop.working += 1
        try:
            return await super().run(loop.lent(function), args, kwargs, may_begin=may_begin)
        finally:
            loop.working -= 1

    def close(self) -> None:
        """Let the idle threads end; the base tells each that there could have been, which takes longer."""
        for _ in range(self._alive):
            self._jobs.put(None)
