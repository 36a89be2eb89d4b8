"""A run's steps and attempts as bars, to scale, under one line of time."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from onceward.cli.console.words import STYLES, length, terminal, text
from onceward.console.spans import CUT_OFF, LEFT, WAITS, span_of
from onceward.console.views import AttemptView, RunDetail, StepView
from onceward.core.model import Millis

LABEL_MAX = 24
BAR_MIN, BAR_MAX = 12, 60
PIPED_WIDTH = 100
SAID_WIDTH = 26
"""What stands behind a bar: a length and a few words."""


@dataclass(frozen=True)
class Bar:
    """One line: what, from when to when, and what is said of it; before *work* nobody was at it."""

    label: str
    start: Millis
    end: Millis
    state: str
    said: str
    is_wait: bool = False
    is_open: bool = False
    work: Millis | None = None


def draw(detail: RunDetail, now: Millis) -> None:
    """Print the timeline of the generation that is shown; nothing where it has not begun."""
    bars = bars_of(detail, now)
    if not bars:
        return
    out = terminal()
    is_ascii = not (sys.stdout.encoding or "").lower().startswith("utf")
    width = min(out.width, 200) if sys.stdout.isatty() or out.width < PIPED_WIDTH else PIPED_WIDTH
    label_width = min(max(len(bar.label) for bar in bars), LABEL_MAX)
    room = max(min(width - label_width - SAID_WIDTH - 6, BAR_MAX), BAR_MIN)
    begin, end = min(bar.start for bar in bars), max(bar.end for bar in bars)
    scale = length(end - begin)
    ruler = f"0{'-' if is_ascii else '─'}"
    ruler += ("-" if is_ascii else "─") * (room - len(ruler) - len(scale) - 1) + f" {scale}"
    out.print(Text(f"  {' ' * label_width}  {ruler}", style="dim"))
    for bar in bars:
        label = bar.label if len(bar.label) <= label_width else f"{bar.label[: label_width - 1]}…"
        line = Text("  ").append_text(text(label.ljust(label_width))).append("  ")
        line.append(drawn(bar, begin, end, room, is_ascii=is_ascii), style=STYLES.get(bar.state, ""))
        line.append("  ").append_text(text(bar.said))
        out.print(line, no_wrap=True, overflow="ellipsis", crop=True)


def bars_of(detail: RunDetail, now: Millis) -> list[Bar]:
    """Give the bars: attempts that ended badly and steps, in the order in which they began."""
    began = detail.run.started_at or detail.run.created_at
    bars = _attempts([one for one in detail.attempts if one.generation == detail.shown_generation], began)
    bars += [_step(detail, step, now) for step in detail.steps]
    return sorted(bars, key=lambda bar: bar.start)


def _step(detail: RunDetail, step: StepView, now: Millis) -> Bar:
    span = span_of(step, detail, now)
    took = length(span.worked)
    said = f"{took}  {step.state}"
    if step.question is not None:
        said = f"{took}  is asked about"
    elif span.standing == CUT_OFF:
        said = f"at most {took}  {step.kind}, {CUT_OFF}"
    elif span.standing:
        is_left = span.standing == LEFT and step.wake_at is not None
        rest = f"{length(step.wake_at - now)} {LEFT}" if is_left and step.wake_at else span.standing
        said = f"{took}  {step.kind}, {rest}"
    elif step.kind not in ("run", "ensure"):
        said = f"{took}  {step.kind}"
    if span.work > span.begin and step.ended_at is not None:
        said += ", begun anew"
    if step.tries > 1:
        said += f", {step.tries} tries"
    if step.origin is not None:
        said = f"kept  {step.state}"
    return Bar(
        step.label,
        span.begin,
        span.end,
        step.state,
        said,
        is_wait=step.kind in WAITS,
        is_open=step.ended_at is None,
        work=span.work,
    )


def _attempts(attempts: Sequence[AttemptView], began: Millis) -> list[Bar]:
    bars = []
    for attempt in attempts:
        start = min(began if attempt.started_at is None else max(attempt.started_at, began), attempt.ended_at)
        took = length(attempt.ended_at - start)
        bars.append(
            Bar(
                f"attempt {attempt.attempt}",
                start,
                attempt.ended_at,
                attempt.outcome,
                f"{took}  {attempt.outcome}",
            )
        )
        began = attempt.ended_at
    return bars


def drawn(bar: Bar, begin: Millis, end: Millis, room: int, *, is_ascii: bool = False) -> str:
    """Give a bar of *room* characters, of which at least one is drawn."""
    scale = room / max(end - begin, 1)
    first = min(int((bar.start - begin) * scale), room - 1)
    last = min(max(round((bar.end - begin) * scale), first + 1), room)
    idle = "." if is_ascii else "┄"
    fill = idle if bar.is_wait else ("#" if is_ascii else "█")
    work = first if bar.work is None else min(max(round((bar.work - begin) * scale), first), last - 1)
    body = idle * (work - first) + fill * (last - work)
    if bar.is_open:
        body = body[:-1] + (">" if is_ascii else "▸")
    return " " * first + body + " " * (room - last)
