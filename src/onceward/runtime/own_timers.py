"""Timers that a run's code holds itself: ``asyncio.sleep`` and ``asyncio.timeout`` between steps.

They live in memory only, so a run that leaves it would forget them: a branch would stop in its
sleep, a time limit would never fire. A timer remembers the context in which it was made, and with
that the run. Timers of step bodies, and of what they leave behind, are not the code's; those of the
engine are made in ``Worker.context``.
"""

from __future__ import annotations

import asyncio
from typing import Any

from onceward.authoring.current import Session, frame_var, session_var


def earliest(loop: asyncio.AbstractEventLoop, session: Session) -> float | None:
    """Give when, by the loop's clock, the first timer of a run's code fires; None if it has none.

    Event loops do not show their timers officially. asyncio's own has a list; where there is none
    (uvloop), no timer is seen.
    """
    found: float | None = None
    timers: list[Any] = getattr(loop, "_scheduled", [])
    for timer in timers:
        context = getattr(timer, "_context", None)
        if context is None or timer.cancelled() or context.get(session_var) is not session:
            continue
        if context.get(frame_var) is None and (found is None or timer.when() < found):
            found = timer.when()
    return found
