"""Waits that keep no memory: parked branches, and when a run may leave.

A wait parks its future. The run leaves memory only when every branch is parked, no step is in
flight, and either all waits have a time that is far enough away or a short linger has passed
(RULINGS 26): the answer of a quick child should not cost a reload.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from onceward.core import errors
from onceward.core.model import Millis
from onceward.runtime import own_timers

if TYPE_CHECKING:
    from onceward.runtime.execution import Execution

_log = logging.getLogger("onceward.run")

TIMER_S_MAX = 86_400
"""The longest timer of an event loop; beyond some weeks its arithmetic is not portable."""

OWN_TIMER_S_MAX = 30
"""How long a run that waits stays in memory for a timer of its code; it holds a slot meanwhile."""

AFTER_TIMER_S = 0.01
"""How long after such a timer the run is looked at again."""


class Parking:
    """The parked branches of one run."""

    __slots__ = ("_execution", "_futures", "_linger", "backing_off", "wakes")

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._futures: dict[asyncio.Future[Any], Millis | None] = {}
        self._linger: asyncio.TimerHandle | None = None
        self.wakes: list[Millis | None] = []  # when the waits end, as the run leaves
        self.backing_off = 0  # branches that wait for the next try of a step

    async def park(self, wake_at: Millis | None, future: asyncio.Future[Any] | None = None) -> Any:
        """Wait without keeping the run in memory: until *wake_at*, or for *future*."""
        execution = self._execution
        loop, worker = execution.loop, execution.worker
        if future is None:
            future = loop.create_future()
        self._futures[future] = wake_at
        timer = None
        if wake_at is not None:
            delay = max(0, wake_at - worker.now_ms()) / 1000
            # A timer of the loop counts from its own clock; it may be early by a millisecond.
            timer = loop.call_later(
                min(delay, TIMER_S_MAX), self._ring, future, wake_at, context=worker.context
            )
        execution.recall.look_when_quiet()
        try:
            return await future
        finally:
            if timer is not None:
                timer.cancel()
            self._futures.pop(future, None)
            if execution.stopping is not None:
                raise errors.Suspended("the run leaves memory; let this exception pass")

    def _ring(self, future: asyncio.Future[Any], wake_at: Millis) -> None:
        if future.done():
            return
        left = wake_at - self._execution.worker.now_ms()
        if left > 0:
            self._execution.loop.call_later(
                min(left / 1000, TIMER_S_MAX),
                self._ring,
                future,
                wake_at,
                context=self._execution.worker.context,
            )
        else:
            future.set_result(None)

    async def back_off(self, wake_at: Millis) -> None:
        """Wait for the next try of a step."""
        if wake_at > self._execution.worker.now_ms():
            self.backing_off += 1
            try:
                await self.park(wake_at)
            finally:
                # What unwinds the code has to know that it left in a back-off.
                self.backing_off -= self._execution.stopping is None

    # --- leaving -------------------------------------------------------------------------------

    def look(self) -> None:
        """Leave memory if that is due now; called when the code is quiet."""
        execution = self._execution
        if not self._are_all_parked():
            return
        if execution.worker.is_draining and not execution.questions:
            has_times = all(wake is not None for wake in self._futures.values())
            self._leave() if has_times else execution.stop("release")
            return
        if execution.unseen:
            return
        now, linger_ms = execution.worker.now_ms(), execution.worker.settings.linger_ms
        wakes = [wake for wake in self._futures.values() if wake is not None]
        earliest = min(wakes, default=None)
        if earliest is not None and earliest - now <= linger_ms:
            return
        if len(wakes) + len(execution.questions) == len(self._futures):
            self._leave_unless_timed()
        elif self._linger is None:
            self._look_again(linger_ms / 1000)

    def _look_again(self, delay_s: float) -> None:
        context = self._execution.worker.context
        self._linger = self._execution.loop.call_later(delay_s, self._lingered, context=context)

    def _lingered(self) -> None:
        execution = self._execution
        self._linger = None
        if execution.stopping is None and self._are_all_parked() and not execution.unseen:
            earliest = min((wake for wake in self._futures.values() if wake is not None), default=None)
            if earliest is None or earliest - execution.worker.now_ms() > execution.worker.settings.linger_ms:
                self._leave_unless_timed()

    def _leave_unless_timed(self) -> None:
        """Leave, but not while the code itself holds a timer that will soon fire."""
        execution = self._execution
        at = own_timers.earliest(execution.loop, execution)
        if at is None:
            self._leave()
            return
        left_s = at - execution.loop.time()
        if left_s <= OWN_TIMER_S_MAX:
            if self._linger is None:
                self._look_again(max(0.0, left_s) + AFTER_TIMER_S)
            return
        _log.warning(
            "run %s of %s leaves memory while its code holds a timer of its own that fires in %.0f s: an "
            "asyncio.timeout or asyncio.sleep begins anew when the run comes back. Use ctx.step.sleep, or "
            "timeout= of the step",
            execution.run_id,
            execution.run.workflow,
            left_s,
        )
        self._leave()

    def _are_all_parked(self) -> bool:
        return bool(self._futures) and self._execution.calls == len(self._futures)

    def _leave(self) -> None:
        self.wakes = list(self._futures.values())
        self._execution.stop("suspend")

    def cut(self) -> None:
        """End every wait: the code unwinds."""
        for future in list(self._futures):
            future.cancel()

    def close(self) -> None:
        """End every wait and forget the linger: the run is gone from memory."""
        if self._linger is not None:
            self._linger.cancel()
        self.cut()
