"""How a batch gets to the store and its answer back, without the event loop waiting for either.

Where the store can send a batch and hear of its answer by a socket, the event loop does both: handing
it to a thread and back costs two wake-ups and, while code runs, a turn at Python's lock. Every other
commit, and whatever has to wait after all, is made by one thread.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable
from contextvars import Context
from typing import Any, NamedTuple, Protocol

from onceward.core.ports import Batch, BatchResult, Begun, Store
from onceward.runtime.threads import call_on

PATIENCE_S = 1.0
"""How long the event loop listens for an answer; then the thread waits for it, and sees what is wrong."""

Done = Callable[[Any, BaseException | None], None]
Slowly = Callable[[Begun | None], BatchResult]

_log = logging.getLogger("onceward.committer")


class Writer(Protocol):
    """Runs blocking store calls one after another, away from the event loop."""

    def submit(self, call: Callable[[], Any], done: Done) -> None:
        """Run *call*; *done* gets its result or error on the event loop."""
        ...

    def close(self) -> None:
        """Finish what was submitted and stop."""
        ...


class ThreadWriter:
    """One thread that makes the commits of a process that take time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="onceward-writer", daemon=True)
        self._thread.start()

    def submit(self, call: Callable[[], Any], done: Done) -> None:
        """Run *call* in the thread; *done* gets its result or error on the event loop."""
        self._calls.put((call, done))

    def _work(self) -> None:
        while (item := self._calls.get()) is not None:
            call, done = item
            result, error = None, None
            try:
                result = call()
            except BaseException as caught:  # noqa: BLE001 - handed to the event loop, whatever it is
                error = caught
            if not call_on(self._loop, done, result, error):
                return

    def close(self) -> None:
        """Finish what was submitted and stop; blocks for as long as a commit takes."""
        self._calls.put(None)


class _UnderWay(NamedTuple):
    """A batch that was sent by the event loop, which listens for the answer."""

    begun: Begun
    number: int  # of the socket
    slowly: Slowly
    done: Done
    timer: asyncio.TimerHandle


class Commits:
    """Makes commits, one at a time.

    Args:
        store: where to.
        writer: makes those that take time.
        loop: the event loop.
    """

    def __init__(self, store: Store, writer: Writer, loop: asyncio.AbstractEventLoop) -> None:
        self._store = store
        self._writer = writer
        self._loop = loop
        self._under_way: _UnderWay | None = None
        self.overlaps = False
        """Whether the last one left Python's lock to others while the store worked."""

    def make(self, process_id: str, epoch: int, batch: Batch, slowly: Slowly, done: Done) -> None:
        """Commit a batch.

        Args:
            process_id: who writes.
            epoch: its epoch.
            batch: what.
            slowly: makes the commit where it takes time, or finishes the one it is given.
            done: gets the result or the error, on the event loop, perhaps at once.
        """
        try:
            begun = self._store.begin(process_id, epoch, batch)
        except Exception as error:  # noqa: BLE001 - as the thread does: handed on, whatever it is
            self.overlaps = False
            done(None, error)
            return
        self.overlaps = begun is not None
        if begun is None:
            self._writer.submit(lambda: slowly(None), done)
        elif (number := begun.fileno) is None:
            self._finish(begun, slowly, done)
        else:
            # The timer is not the code's whose operation made this batch.
            timer = self._loop.call_later(PATIENCE_S, self._wait_no_longer, context=Context())
            self._under_way = _UnderWay(begun, number, slowly, done, timer)
            self._loop.add_reader(number, self._heard)

    def make_slowly(self, slowly: Slowly, done: Done) -> None:
        """Commit in the thread."""
        self.overlaps = False
        self._writer.submit(lambda: slowly(None), done)

    def _heard(self) -> None:
        way = self._under_way
        assert way is not None
        try:
            is_over = way.begun.advance()
        except Exception:  # noqa: BLE001 - the thread finds out what it means
            _log.exception("an answer of the store cannot be read")
            is_over = True
        if is_over:
            self._stop_listening()
            self._finish(way.begun, way.slowly, way.done)

    def _wait_no_longer(self) -> None:
        way = self._under_way
        if way is not None:
            self._stop_listening()
            self._writer.submit(lambda: way.slowly(way.begun), way.done)

    def _stop_listening(self) -> None:
        way, self._under_way = self._under_way, None
        assert way is not None
        way.timer.cancel()
        self._loop.remove_reader(way.number)

    def _finish(self, begun: Begun, slowly: Slowly, done: Done) -> None:
        if not begun.is_ready:
            self._writer.submit(lambda: slowly(begun), done)
            return
        try:
            result = begun.finish()
        except Exception as error:  # noqa: BLE001 - handed on, whatever it is
            done(None, error)
        else:
            done(result, None)

    def close(self) -> None:
        """Finish what is under way in the thread, and stop it."""
        self._wait_no_longer()
        self._writer.close()
