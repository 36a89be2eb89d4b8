"""Timers that a run's code holds itself: ``asyncio.sleep`` and ``asyncio.timeout`` between steps.

They live in memory only, so a run that leaves it would forget them: a branch would stop in its
sleep, a time limit would never fire. A timer remembers the context in which it was made, and with
that the run. Timers of step bodies, and of what they leave behind, are not the code's; those of the
engine are made in ``Worker.context``.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Any

from onceward.authoring.current import Session, frame_var, session_var

_NOTHING: deque[Any] = deque()


def earliest(loop: asyncio.AbstractEventLoop, session: Session) -> float | None:
    """Give when, by the loop's clock, the first timer of a run's code fires; None if it has none.

    Event loops do not show their timers officially. asyncio's own has lists of those to come and of
    what is ready now, fired timers among it; where there are none (uvloop), no timer is seen.
    """
    # A copy, made in one go: the store's threads add to it at any time, and a deque that grows while it
    # is looked through raises. Whoever asks here would never look again, and its run hang.
    ready: deque[Any] = getattr(loop, "_ready", _NOTHING).copy()
    if any(_is_of(handle, session) for handle in ready):
        return loop.time()
    timers: Iterable[Any] = getattr(loop, "_scheduled", ())
    return min((timer.when() for timer in timers if _is_of(timer, session)), default=None)


def _is_of(handle: Any, session: Session) -> bool:
    context = getattr(handle, "_context", None)
    if context is None or handle.cancelled():
        return False
    return context.get(session_var) is session and context.get(frame_var) is None
