"""The app in the processes of a server that has no event loop: opened when it is first needed.

A prefork server imports the application once and forks; nothing that was opened before would live
on in its children. So nothing is opened until a process has a delivery, a verb or an `open` of its
own, then once, in a thread; and it is closed when the process exits.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

from onceward.adapters.front import checked_app
from onceward.app import App
from onceward.core import errors
from onceward.core.duration import Duration
from onceward.sync import SyncApp

R = TypeVar("R")

_log = logging.getLogger("onceward.adapters")


class BlockingVerbs(SyncApp):
    """What every adapter for a framework without an event loop has: the verbs of `SyncApp`.

    Each opens the app in this process if nothing has done so yet.

    Args:
        app: whose deliveries are received, and whose verbs these are.
        runs: whether the web processes run workflows too, or only accept, start and steer; then
            ``onceward worker`` runs them.

    Attributes:
        app: the app.
    """

    def __init__(self, app: App, *, runs: bool = True) -> None:
        super().__init__(checked_app(app))
        self.app = app
        self._runs = runs
        self._closes_in = self._exits_in = 0

    def open(self, *, runs: bool | None = None) -> None:
        """Open the app in a thread of this process; does nothing where it is open already.

        Needs no call: deliveries and verbs do it. A server's hook that runs after the fork may, so
        that runs go on before the first request comes.

        Args:
            runs: instead of what was said when the adapter was made.

        Raises:
            OncewardError: see `App.open`.
            StoreUnavailable: the process exits.
        """
        if self.app.is_open:
            return
        if self._exits_in == os.getpid():
            raise errors.StoreUnavailable(
                "This process exits.", means="Nothing was stored.", todo="Send it again."
            )
        self.app.sync.open(runs=self._runs if runs is None else runs)
        if self._closes_in != os.getpid():
            self._closes_in = os.getpid()
            _before_exit(self._close_at_exit)

    def close(self, grace: Duration | None = None) -> None:
        """Close the app and end the thread; see `App.close`. At exit it is done by itself."""
        self.app.sync.close(grace)

    @contextlib.contextmanager
    def lifespan(self, *_: Any) -> Iterator[None]:
        """Keep the app open for as long as the block runs, in this process.

        Raises:
            OncewardError: see `App.open`.
        """
        self.open()
        try:
            yield
        finally:
            self.close()

    def wait(self, coroutine: Coroutine[Any, Any, R]) -> R:
        """Open the app if need be, and do what `SyncApp.wait` does."""
        try:
            self.open()
        except BaseException:
            coroutine.close()
            raise
        return self.app.sync.wait(coroutine)

    def _close_at_exit(self) -> None:
        if self._closes_in != os.getpid():
            return  # a fork of the process that opened it
        self._exits_in = os.getpid()
        try:
            self.close()
        except Exception:  # noqa: BLE001 (the process exits either way, and the log says why)
            _log.exception("closing at exit failed; the lease of process %d runs out by itself", os.getpid())


def _before_exit(function: Callable[[], None]) -> None:
    """Have *function* called when the interpreter begins to exit, while threads still work.

    By the time of atexit's functions no thread pool takes work any more, and closing needs one.
    Python's own pools register here too; the last to register is called first.
    """
    register: Callable[[Callable[[], None]], Any] = getattr(threading, "_register_atexit", atexit.register)
    register(function)
