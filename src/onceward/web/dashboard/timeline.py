"""The timeline of a run, as geometry: attempts and steps to scale, in per cent of what is shown.

Time runs from left to right, linearly, from the generation's beginning to its end or to now. What
would be too short to see gets a hair's width; what has a fixed future (a sleep, a back-off) is
drawn on beyond now. An attempt can be looked at alone (`Window`), which is a link and no script.
"""

from __future__ import annotations

from dataclasses import dataclass

from onceward.console.spans import CUT_OFF, OVER, span_of
from onceward.console.views import AttemptView, RunDetail, StepView
from onceward.core.model import Millis
from onceward.web.dashboard import words

HAIR = 0.4
TICKS = 5
STEPS_SHOWN = 200
_NICE = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 15_000, 30_000, 60_000, 120_000)
_NICE_LONG = (300_000, 600_000, 1_800_000, 3_600_000, 7_200_000, 21_600_000, 43_200_000, 86_400_000)


@dataclass(frozen=True)
class Bar:
    """A stretch of a lane, with the state that gives its colour; *is_future* has not happened yet."""

    x: float
    width: float
    state: str
    is_future: bool = False


@dataclass(frozen=True)
class Lane:
    """One attempt or step.

    Attributes:
        label: its name.
        state: where it stands.
        bars: what is drawn; none where it lies outside the window.
        told: the same in words.
        from_ms: when it began, since the beginning of the generation.
        lasted: how long, in words.
        step: the step; None for an attempt.
        attempt: which attempt it is, or was saved in.
        begin: when it began.
        end: when it ended, or now.
    """

    label: str
    state: str
    bars: list[Bar]
    told: str
    from_ms: Millis
    lasted: str
    attempt: int
    begin: Millis
    end: Millis
    step: StepView | None = None
    ended: AttemptView | None = None


@dataclass(frozen=True)
class Timeline:
    """What the page draws.

    Attributes:
        attempts: of the shown generation.
        steps: likewise, in saved order.
        ticks: place and text of the lines.
        now: place of now; None where it is not in the window.
        begin: of the window.
        end: of the window.
        is_zoomed: the window is less than all.
    """

    attempts: list[Lane]
    steps: list[Lane]
    ticks: list[tuple[float, str]]
    now: float | None
    begin: Millis
    end: Millis
    is_zoomed: bool


@dataclass(frozen=True)
class Part:
    """The steps that one page shows, of a run that may have thousands.

    Attributes:
        steps: in saved order.
        first: place of the first of them, counted from 0.
        total: how many there are.
        places: first places of all parts.
    """

    steps: list[Lane]
    first: int
    total: int
    places: list[int]

    @classmethod
    def of(cls, steps: list[Lane], at: int | None) -> Part:
        """Give the part that begins at *at*; by default the last one, where the run is."""
        places = list(range(0, len(steps), STEPS_SHOWN)) or [0]
        first = places[-1] if at is None else min(at, places[-1]) // STEPS_SHOWN * STEPS_SHOWN
        return cls(steps[first : first + STEPS_SHOWN], first, len(steps), places)


@dataclass(frozen=True)
class Window:
    """The part of the time that is to be shown."""

    begin: Millis
    end: Millis


def timeline(detail: RunDetail, now: Millis, window: Window | None = None) -> Timeline:
    """Give the timeline of a run's shown generation."""
    run = detail.run
    is_current = detail.shown_generation == run.generation
    ended = [attempt for attempt in detail.attempts if attempt.generation == detail.shown_generation]
    over_at = run.ended_at if is_current else max((attempt.ended_at for attempt in ended), default=None)
    origin = _origin(detail, ended)
    last = over_at if over_at is not None else max(now, origin)
    ahead = [step.wake_at for step in detail.steps if step.state == "open" and step.wake_at]
    if is_current and run.due_at is not None and over_at is None:
        ahead.append(run.due_at)
    ends = [step.ended_at or step.started_at for step in detail.steps if not step.origin]
    whole = Window(origin, max([last, *ends, *(_near(at, origin, last) for at in ahead), origin + 1]))
    shown = window if window and window.begin < window.end else whole
    scale = _Scale(shown)
    return Timeline(
        attempts=_attempts(detail, ended, origin, over_at, now, scale),
        steps=[_step(detail, step, origin, last, scale) for step in detail.steps],
        ticks=_ticks(shown, origin),
        now=scale.place(now) if over_at is None and shown.begin <= now <= shown.end else None,
        begin=shown.begin,
        end=shown.end,
        is_zoomed=shown != whole,
    )


def _near(at: Millis, origin: Millis, last: Millis) -> Millis:
    """Keep a far future from squeezing the past: at most half of the picture lies ahead."""
    return min(at, last + max(last - origin, 1_000))


def _origin(detail: RunDetail, ended: list[AttemptView]) -> Millis:
    if detail.shown_generation == 1:
        return detail.run.created_at
    begins = [step.started_at for step in detail.steps if not step.origin]
    begins += [attempt.started_at for attempt in ended if attempt.started_at is not None]
    if detail.shown_generation == detail.run.generation and detail.run.started_at is not None:
        begins.append(detail.run.started_at)
    return min(begins, default=detail.run.created_at)


class _Scale:
    def __init__(self, window: Window) -> None:
        self.window = window
        self.span = window.end - window.begin

    def place(self, at: Millis) -> float:
        return round(min(100.0, max(0.0, 100 * (at - self.window.begin) / self.span)), 3)

    def bar(self, begin: Millis, end: Millis, state: str, *, is_future: bool = False) -> list[Bar]:
        if end < self.window.begin or begin > self.window.end:
            return []
        left, right = self.place(begin), self.place(max(begin, end))
        width = max(right - left, HAIR)
        return [Bar(min(left, 100 - HAIR), round(width, 3), state, is_future)]


def _attempts(
    detail: RunDetail,
    ended: list[AttemptView],
    origin: Millis,
    over_at: Millis | None,
    now: Millis,
    scale: _Scale,
) -> list[Lane]:
    lanes = []
    before = origin
    for row in sorted(ended, key=lambda attempt: (attempt.attempt, attempt.ended_at)):
        begin = _begin(detail, row.attempt, before, row.started_at if row.attempt == 1 else None)
        lanes.append(_attempt(row.attempt, row.outcome, begin, row.ended_at, origin, scale, row))
        before = row.ended_at
    run = detail.run
    is_current = detail.shown_generation == run.generation
    if is_current and not any(row.attempt == run.attempt for row in ended):
        begin = _begin(detail, run.attempt, before, run.started_at if run.attempt == 1 else None)
        end = over_at if over_at is not None else now
        lanes.append(_attempt(run.attempt, run.state, begin, max(begin, end), origin, scale, None))
    return lanes


def _begin(detail: RunDetail, attempt: int, before: Millis, known: Millis | None) -> Millis:
    """Give when an attempt began: only the first is recorded, of others the first thing they saved."""
    if known is not None:
        return max(known, before)
    begins = [
        step.started_at
        for step in detail.steps
        if step.attempt == attempt and step.started_at >= before and not step.origin
    ]
    return min(begins, default=before)


def _attempt(
    number: int,
    state: str,
    begin: Millis,
    end: Millis,
    origin: Millis,
    scale: _Scale,
    row: AttemptView | None,
) -> Lane:
    lasted = words.length(end - begin)
    return Lane(
        label=f"attempt {number}",
        state=state,
        bars=scale.bar(begin, end, state),
        told=f"attempt {number}: {state}, from {_since(begin, origin)}, {lasted}",
        from_ms=begin - origin,
        lasted=lasted,
        attempt=number,
        begin=begin,
        end=end,
        ended=row,
    )


def _step(detail: RunDetail, step: StepView, origin: Millis, last: Millis, scale: _Scale) -> Lane:
    span = span_of(step, detail, max(last, step.started_at))
    end = span.end
    state = "asleep" if step.state == "open" and step.kind == "sleep" else step.state
    bars = scale.bar(span.work, end, "copied" if step.origin else state)
    if span.work > span.begin:
        bars = [*scale.bar(span.begin, span.work, state, is_future=True), *bars]
    if step.state == "open" and step.wake_at is not None and step.wake_at > end:
        bars += scale.bar(end, step.wake_at, state, is_future=True)
    lasted = words.length(span.worked) + _STANDING.get(span.standing, " so far")
    tries = f", {step.tries} tries" if step.tries > 1 else ""
    if step.origin:
        told = f"{step.label}: {step.state}, copied from {step.origin}"
    else:
        told = f"{step.label}: {step.state}, from {_since(step.started_at, origin)}, {lasted}{tries}"
    return Lane(
        label=step.label,
        state=step.state,
        bars=bars,
        told=told,
        from_ms=step.started_at - origin,
        lasted="copied" if step.origin else lasted,
        attempt=step.attempt,
        begin=step.started_at,
        end=end,
        step=step,
    )


_STANDING = {"": "", CUT_OFF: " at most, cut off", OVER: ", over"}


def _since(at: Millis, origin: Millis) -> str:
    return f"+{words.length(at - origin)}" if at >= origin else f"-{words.length(origin - at)}"


def _ticks(window: Window, origin: Millis) -> list[tuple[float, str]]:
    span = window.end - window.begin
    every = next((step for step in (*_NICE, *_NICE_LONG) if span / step <= TICKS), 0)
    if not every:
        every = -(-span // TICKS // 86_400_000) * 86_400_000
    first = -(-(window.begin - origin) // every) * every
    return [
        (round(100 * (origin + at - window.begin) / span, 3), _tick(at))
        for at in range(first, window.end - origin + 1, every)
    ]


def _tick(at: Millis) -> str:
    return "0" if at == 0 else f"+{words.length(at)}" if at > 0 else f"-{words.length(-at)}"
