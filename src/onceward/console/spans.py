"""From when to when a step was worked on, as far as the records tell; every timeline draws this."""

from __future__ import annotations

from dataclasses import dataclass

from onceward.console.views import RunDetail, StepView
from onceward.core.model import Millis

WAITS = frozenset({"sleep", "call", "wait", "promise"})
"""Kinds of steps in which nothing of the run's works."""

UNDER_WAY, LEFT, OVER, CUT_OFF = "under way", "left", "over", "cut off"


@dataclass(frozen=True)
class Span:
    """A step in time.

    Attributes:
        begin: when it began.
        work: since when it was worked on last: before it is time in which an attempt ended or was lost.
        end: when it ended; of an open one until when it goes on, or went on at most.
        standing: of an open one: ``under way``; ``left``: it wakes later; ``over``: its time has passed and nobody
            took it up yet; ``cut off``: nobody is at it. Empty where it ended.
    """

    begin: Millis
    work: Millis
    end: Millis
    standing: str = ""

    @property
    def worked(self) -> Millis:
        """Give how long it was worked on, at most."""
        return self.end - self.work


def span_of(step: StepView, detail: RunDetail, now: Millis) -> Span:
    """Give a step's span."""
    ended = [one.ended_at for one in detail.attempts if one.generation == step.generation]
    end, standing = step.ended_at, ""
    if end is None:
        is_dead = detail.run.process_id is None or detail.stopped_at is not None
        if step.wake_at is not None and step.wake_at > now:
            end, standing = now, LEFT
        elif step.kind in WAITS:
            is_over = step.wake_at is not None
            end, standing = (step.wake_at or now), (OVER if is_over else UNDER_WAY)
        elif is_dead and detail.shown_generation == detail.run.generation:
            stopped = (
                detail.stopped_at if detail.stopped_at is not None else max(ended, default=step.started_at)
            )
            end, standing = min(stopped, now), CUT_OFF
        else:
            end, standing = now, UNDER_WAY
    begin = min(step.started_at, end) if standing in ("", UNDER_WAY, LEFT) else step.started_at
    end = max(begin, end)
    work = begin
    if step.kind not in WAITS and step.origin is None:
        work = max([begin, *(at for at in ended if begin < at < end)])
    return Span(begin, work, end, standing)
