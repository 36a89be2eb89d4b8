"""A thread that waits for notifications: hints that make wake-ups faster, never needed.

It has a connection of its own, tries for ever to keep it, and tests at its start whether a
notification arrives at all: through a pooler that shares connections by transaction it does not.
Then it says so once and ends, and polling does the work.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
from psycopg import pq

from onceward.core import errors
from onceward.stores.postgres.connection import Database

SELF_TEST_SECONDS = 3.0
REST_SECONDS = 0.002
"""A pause after each wake-up, in which the hints of a busy neighbour gather into one."""

RETRY_SECONDS_FIRST, RETRY_SECONDS_MAX = 0.1, 10.0

_log = logging.getLogger("onceward.store")


class Listener:
    """Calls back when another process says that there is something to do.

    Args:
        database: where to connect.
        channel: the name of the channel; a checked identifier.
        namespace: the payload that concerns us.
        callback: called in the listener's thread; it should only set something.
        is_own: says of a server process whether it is ours; its hints are no news.
        notify: sends a payload on another connection, for the self-test.
        draw: gives numbers in [0, 1), for jitter.
    """

    def __init__(
        self,
        database: Database,
        *,
        channel: str,
        namespace: str,
        callback: Callable[[], object],
        is_own: Callable[[int], bool],
        notify: Callable[[str], None],
        draw: Callable[[], float],
    ) -> None:
        self._database = database
        self._channel = channel
        self._namespace = namespace.encode()
        self._callback = callback
        self._is_own = is_own
        self._notify = notify
        self._draw = draw
        self._wake_read, self._wake_write = os.pipe()
        self._is_closed = False
        self._is_tested = False
        self.works = threading.Event()
        """Set once a notification has arrived in the self-test."""
        self._thread = threading.Thread(target=self._run, name="onceward-listen", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether it still listens, or tries to."""
        return self._thread.is_alive()

    def close(self) -> None:
        """End the thread; safe to call twice, and from the callback."""
        if self._is_closed:
            return
        self._is_closed = True
        os.write(self._wake_write, b"x")
        if threading.current_thread() is not self._thread:
            self._thread.join()
            os.close(self._wake_read)
            os.close(self._wake_write)

    # --- in the thread -----------------------------------------------------------------------

    def _run(self) -> None:
        longest = RETRY_SECONDS_FIRST
        while not self._is_closed:
            # ConfigError: a failover to a server that we cannot use; it may be replaced as well.
            with (
                contextlib.suppress(psycopg.Error, errors.StoreError, errors.ConfigError, OSError),
                self._connected() as connection,
            ):
                longest = RETRY_SECONDS_FIRST
                if not self._is_tested and not self._passes_self_test(connection):
                    return
                self._call_back()  # for what came while nobody listened
                self._listen(connection)
            self._rest(longest * self._draw())
            longest = min(longest * 2, RETRY_SECONDS_MAX)

    @contextlib.contextmanager
    def _connected(self) -> Iterator[psycopg.Connection[Any]]:
        connection = self._database.connect_bare()
        try:
            connection.execute(f'listen "{self._channel}"'.encode())
            yield connection
        finally:
            connection.close()

    def _passes_self_test(self, connection: psycopg.Connection[Any]) -> bool:
        token = f"test {connection.info.backend_pid} {self._draw()}"
        self._notify(token)
        until_ms = self._database.monotonic_ms() + SELF_TEST_SECONDS * 1000
        while not self._is_closed and (left_ms := until_ms - self._database.monotonic_ms()) > 0:
            if any(heard.extra == token.encode() for heard in self._heard(connection, left_ms)):
                self._is_tested = True
                self.works.set()
                return True
        if not self._is_closed:
            _log.info(
                "Notifications of %s do not arrive, a pooler may be in between: other processes' work is found by polling.",
                self._database.address,
            )
        return False

    def _listen(self, connection: psycopg.Connection[Any]) -> None:
        while not self._is_closed:
            heard = self._heard(connection, None)
            if any(hint.extra == self._namespace and not self._is_own(hint.be_pid) for hint in heard):
                self._call_back()
                self._rest(REST_SECONDS)

    def _heard(self, connection: psycopg.Connection[Any], wait_ms: float | None) -> list[pq.PGnotify]:
        """Wait for notifications and give them; none when the time is up or the listener closes."""
        pgconn = connection.pgconn
        waiting = select.poll()
        waiting.register(pgconn.socket, select.POLLIN)
        waiting.register(self._wake_read, select.POLLIN)
        ready = {descriptor for descriptor, _ in waiting.poll(wait_ms)}
        if self._is_closed or pgconn.socket not in ready:
            return []
        pgconn.consume_input()
        found = []
        while (hint := pgconn.notifies()) is not None:
            found.append(hint)
        return found

    def _call_back(self) -> None:
        try:
            self._callback()
        except Exception:  # noqa: BLE001 - the thread must outlive it
            _log.exception("A listener's callback failed; it is called again at the next notification.")

    def _rest(self, seconds: float) -> None:
        select.select([self._wake_read], [], [], seconds)
