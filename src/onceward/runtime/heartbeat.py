"""Keeps a process's lease from a thread of its own.

User code that blocks the event loop must not lose the lease (B022), so nothing here waits for
the loop; but a blocked loop is reported, with the steps that are running.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from onceward.core import errors, failpoints
from onceward.core.model import Millis
from onceward.runtime.outage import Outage
from onceward.runtime.threads import call_on

if TYPE_CHECKING:
    from onceward.runtime.worker import Worker

_log = logging.getLogger("onceward.lease")

BEATS_PER_LEASE = 4
"""Renewals in the time of one lease: two may fail and the third still comes in time."""


class Heartbeat:
    """The heartbeat thread of one worker."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._stop = threading.Event()
        self._is_left = False  # the store may be closed under the last renewal
        self._loop_seen = threading.Event()
        self._outage = Outage(_log, "the lease could not be renewed", "the lease is renewed again")
        self._begun_at: float | None = None
        self._thread = threading.Thread(target=self._beat_forever, name="onceward-heartbeat", daemon=True)

    def start(self) -> None:
        """Begin to renew."""
        self._thread.start()

    @property
    def waits_s(self) -> float:
        """Give for how long the store has not taken a renewal; without end where the last one failed."""
        if self._outage.lasts:
            return math.inf
        begun_at = self._begun_at
        return 0.0 if begun_at is None else time.monotonic() - begun_at

    def stop(self, within_s: float | None = None) -> None:
        """Stop renewing and wait for the thread, at most so long; a store may keep it waiting."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(within_s)
        self._is_left = True

    def _beat_forever(self) -> None:
        worker = self._worker
        pause_s = worker.settings.lease_ms / 1000 / BEATS_PER_LEASE
        self._loop_seen.set()
        blocked_s = took_s = 0.0
        # A renewal that the store kept waiting counts from before the wait, so its lease may have
        # ended when it is written: the next one follows at once.
        while not self._stop.wait(max(0.0, pause_s - took_s)):
            blocked_s = self._watch_loop(blocked_s, pause_s)
            started = self._begun_at = time.monotonic()
            self.beat()
            self._begun_at = None
            took_s = time.monotonic() - started

    def beat(self) -> None:
        """Renew the lease once; whatever happens, the next beat tries again."""
        process_id = self._worker.committer.process_id
        try:
            self._renew(process_id)
        except errors.LeaseLost:
            self._on_loop(self._worker.evicted, process_id)
        except errors.OncewardError as error:
            if not self._is_left:
                self._outage.failed(error)
        except Exception:  # noqa: BLE001 - whatever it is, the next renewal must be tried
            _log.exception("the lease could not be renewed, trying again")
        else:
            self._outage.worked()

    def _renew(self, process_id: str) -> None:
        worker = self._worker
        if failpoints.is_armed():
            failpoints.hit("heartbeat.before_renew")
        lease_until = self._renewed_until(process_id)
        # The store's clock is measured on the way; where it was set, the lease is to end by it too.
        if worker.refresh_clock():
            lease_until = self._renewed_until(process_id)
            self._on_loop(worker.clock_was_set)
        self._on_loop(worker.renewed, lease_until)

    def _renewed_until(self, process_id: str) -> Millis:
        worker = self._worker
        lease_until = worker.now_ms() + worker.settings.lease_ms
        worker.store.heartbeat(process_id, worker.committer.epoch, lease_until)
        return lease_until

    def _watch_loop(self, blocked_s: float, pause_s: float) -> float:
        if self._loop_seen.is_set():
            self._loop_seen.clear()
            self._on_loop(self._loop_seen.set)
            return 0.0
        blocked_s += pause_s
        running = [
            f"{execution.run_id} {key}"
            for execution in list(self._worker.executions.values())
            for key in list(execution.steps_in_flight)
        ]
        _log.warning(
            "the event loop has been blocked for %.1f s; steps in flight: %s. Blocking code belongs in a plain "
            "function, which runs in a thread",
            blocked_s,
            ", ".join(running[:5]) or "none",
        )
        return blocked_s

    def _on_loop(self, call: Callable[..., object], *args: object) -> None:
        if not call_on(self._worker.loop, call, *args):
            self._stop.set()
