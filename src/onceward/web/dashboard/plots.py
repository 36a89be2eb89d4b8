"""The plots of the overview, as geometry: slots in, rectangles and lines in per cent out.

The server draws them: they are there without JavaScript, print, and cost a browser nothing. All
lengths are in per cent of the plot, so that a plot is as wide as its column and no text is stretched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onceward.console.views import Slot
from onceward.core.model import Millis
from onceward.web.dashboard import words

HEIGHT = 100
TICKS = 4


@dataclass(frozen=True)
class Bar:
    """One rectangle; *name* is its series, *title* what it says when it is pointed at."""

    x: float
    y: float
    width: float
    height: float
    name: str
    title: str


@dataclass(frozen=True)
class Plot:
    """One plot.

    Attributes:
        title: what it shows.
        summary: the same in words, for who does not see it.
        bars: to be drawn.
        top: what its upper edge stands for.
        ticks: place and text of the times below it.
        series: name and words of each series, for the legend.
        is_empty: nothing happened.
    """

    title: str
    summary: str
    bars: list[Bar]
    top: str
    ticks: list[tuple[float, str]]
    series: list[tuple[str, str]]
    is_empty: bool


def plots(slots: Sequence[Slot], slot_ms: Millis) -> list[Plot]:
    """Give what came in, how runs ended, and how long they took."""
    return [
        _stacked("Events received", slots, slot_ms, [("events", "events")]),
        _stacked("Runs that ended", slots, slot_ms, [("failed", "ended badly"), ("completed", "completed")]),
        _latency(slots, slot_ms),
    ]


def _stacked(title: str, slots: Sequence[Slot], slot_ms: Millis, series: Sequence[tuple[str, str]]) -> Plot:
    totals = [sum(int(getattr(slot, name)) for name, _ in series) for slot in slots]
    top = round_up(max(totals, default=0))
    bars = []
    for index, slot in enumerate(slots):
        told = ", ".join(f"{getattr(slot, name):,} {label}" for name, label in series)
        below = 0.0
        for name, _ in series:
            height = HEIGHT * int(getattr(slot, name)) / top
            if height:
                bars.append(_bar(index, len(slots), below, height, name, f"{_when(slot, slot_ms)}: {told}"))
            below += height
    summary = ", ".join(
        f"{sum(int(getattr(slot, name)) for slot in slots):,} {label}" for name, label in series
    )
    return Plot(title, summary, bars, f"{top:,}", _ticks(slots), list(series), not any(totals))


def _latency(slots: Sequence[Slot], slot_ms: Millis) -> Plot:
    known = [slot for slot in slots if slot.p95_ms is not None or slot.p50_ms is not None]
    top = round_up(max((max(slot.p95_ms or 0, slot.p50_ms or 0) for slot in known), default=0))
    bars = []
    for index, slot in enumerate(slots):
        half, most = slot.p50_ms or 0, slot.p95_ms or 0
        title = f"{_when(slot, slot_ms)}: half within {words.length(half)}, 95 % within {words.length(most)}"
        if most:
            bars.append(_bar(index, len(slots), 0, HEIGHT * most / top, "p95", title))
        if half:
            bars.append(_bar(index, len(slots), 0, HEIGHT * half / top, "p50", title))
    newest = known[-1] if known else None
    summary = (
        f"latest: half within {words.length(newest.p50_ms)}, 95 % within {words.length(newest.p95_ms)}"
        if newest
        else "no run ended"
    )
    series = [("p50", "half within"), ("p95", "95 % within")]
    return Plot("How long runs took", summary, bars, words.length(top), _ticks(slots), series, newest is None)


def _bar(index: int, slots: int, below: float, height: float, name: str, title: str) -> Bar:
    width = 100 / slots
    drawn = max(height, 1.5)  # one failure among thousands must be seen
    y = max(0.0, HEIGHT - below - drawn)
    return Bar(round(index * width, 3), round(y, 2), round(width * 0.86, 3), round(drawn, 2), name, title)


def _when(slot: Slot, slot_ms: Millis) -> str:
    return f"{words.clock(slot.at)} to {words.clock(slot.at + slot_ms)} UTC"


def _ticks(slots: Sequence[Slot]) -> list[tuple[float, str]]:
    every = max(1, len(slots) // TICKS)
    return [
        (round(100 * index / len(slots), 2), words.clock(slot.at))
        for index, slot in enumerate(slots)
        if index % every == 0 and index + every // 2 < len(slots)
    ]


def round_up(value: int) -> int:
    """Give the next of 1, 2, 5, 10, 20, 50 …, so that the edge of a plot moves rarely."""
    power = 1
    while True:
        for factor in (1, 2, 5):
            if factor * power >= value:
                return factor * power
        power *= 10
