"""What the samples of a soak say: whether something grows that should not, by a fit that outliers do not move."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.campaign.soak.samples import Sample

WARM_UP_SHARE = 0.5
"""What is filled once, caches and pools and arenas, is filled by then; the fit is over what comes after."""

SAMPLES_MIN = 20
RUNS_MIN = 2_000
"""Below these in the fitted part memory says nothing: an arena more or less is half a megabyte."""

JUDGED_LATENCY_S = 900
MEMORY = ("pss_mb", "uss_mb", "server_uss_mb")
RISE_MAX = 3.0
"""How much what should be flat may rise over the fitted part, by its slope."""

FLAT = {"descriptors": 80, "threads": 64, "backends": 20}
"""Up to where a rise says nothing: pools of threads and connections fill as chance has it. A leak goes on."""


TASKS_RISE_MAX = 10
OBJECTS_PER_RUN_MAX = 0.2
"""Of one type, of those that are left at rest; one leaked for each run of some kind is more."""

SHOWN = 12


@dataclass(frozen=True)
class Bounds:
    """What is allowed.

    Attributes:
        mb_per_1000_runs: slope of memory.
        wal_mb: of SQLite's log, at any time.
        dead_rows_share: dead rows for each living one, at the end, of PostgreSQL's tables.
    """

    mb_per_1000_runs: float = 1.0
    wal_mb: float = 160.0
    dead_rows_share: float = 4.0


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Give the median of the slopes through all pairs of points (Theil and Sen).

    Up to 29 % of the points can be anything without moving it far, so one late collection of garbage
    or one burst of connections is no leak.
    """
    slopes = [
        (y2 - y1) / (x2 - x1)
        for number, (x1, y1) in enumerate(points)
        for x2, y2 in points[number + 1 :]
        if x2 != x1
    ]
    return statistics.median(slopes) if slopes else 0.0


def doubt(points: Sequence[tuple[float, float]]) -> float:
    """Give by how much `slope` can be wrong for what scatters around it, in its unit; hardly ever by more.

    Four standard errors of a slope through points that are evenly spread, the scatter measured by the
    median distance from the line.
    """
    if len(points) < 2:
        return 0.0
    grows = slope(points)
    rest = [y - grows * x for x, y in points]
    middle = statistics.median(rest)
    scatter = 1.4826 * statistics.median(abs(one - middle) for one in rest)
    width = max(x for x, _ in points) - min(x for x, _ in points)
    return 4 * scatter * math.sqrt(12 / len(points)) / width if width else 0.0


def fitted(samples: Sequence[Sample]) -> list[Sample]:
    """Give the samples after the warm-up."""
    if not samples:
        return []
    begin, end = samples[0]["at_s"], samples[-1]["at_s"]
    return [one for one in samples if one["at_s"] >= begin + WARM_UP_SHARE * (end - begin)]


def figures(samples: Sequence[Sample]) -> dict[str, float]:
    """Give what is judged, by name: slopes of memory, rises of what should be flat, the largest log."""
    part = fitted(samples)
    found: dict[str, float] = {}
    for name in MEMORY:
        if points := _points(part, name, by="runs"):
            found[f"{name}_per_1000_runs"] = round(1_000 * slope(points), 3)
    for name in FLAT:
        if points := _points(part, name, by="at_s"):
            found[f"{name}_rise"] = round(slope(points) * (points[-1][0] - points[0][0]), 2)
    for name in ("wal_mb", "oldest_transaction_s"):
        if values := [one[name] for one in samples if name in one]:
            found[f"{name}_max"] = round(max(values), 1)
    if part and "dead_rows" in part[-1]:
        # Autovacuum comes when it comes: the middle of the fitted part, not the last moment.
        shares = [one["dead_rows"] / max(1.0, one["live_rows"]) for one in part]
        found["dead_rows_share"] = round(statistics.median(shares), 3)
    return found


def _points(part: Sequence[Sample], name: str, *, by: str) -> list[tuple[float, float]]:
    return [(one[by], one[name]) for one in part if name in one]


def is_enough(samples: Sequence[Sample]) -> bool:
    """Say whether there are samples and runs enough to judge memory."""
    part = fitted(samples)
    return len(part) >= SAMPLES_MIN and part[-1]["runs"] - part[0]["runs"] >= RUNS_MIN


def violations(samples: Sequence[Sample], bounds: Bounds | None = None) -> list[str]:
    """Give what grows, or is larger than it may be."""
    bounds = bounds or Bounds()
    part, found, told = fitted(samples), figures(samples), []
    for name in MEMORY if is_enough(samples) else ():
        points = _points(part, name, by="runs")
        grows = found.get(f"{name}_per_1000_runs", 0.0)
        if grows >= bounds.mb_per_1000_runs and slope(points) > doubt(points):
            told.append(f"{name} grows by {grows} MB each 1,000 runs")
    for name, level in FLAT.items() if len(part) >= SAMPLES_MIN else ():
        points = _points(part, name, by="at_s")
        rise = found.get(f"{name}_rise", 0.0)
        if rise > RISE_MAX and slope(points) > doubt(points) and points[-1][1] > level:
            told.append(f"{name} rose by {rise} after the warm-up")
    if found.get("wal_mb_max", 0.0) > bounds.wal_mb:
        told.append(f"the log was {found['wal_mb_max']} MB")
    if is_enough(samples) and found.get("dead_rows_share", 0.0) > bounds.dead_rows_share:
        told.append(f"there were {found['dead_rows_share']} dead rows for each living one")
    return told


def leftovers(
    before: Mapping[str, Any], after: Mapping[str, Any], runs: float
) -> tuple[dict[str, int], list[str]]:
    """Compare what a process has in memory at rest with what it had so many runs ago.

    Args:
        before: the earlier look: ``tasks``, and what they do (``waiting``), and how many objects there
            are of which of the ``types``.
        after: the later one.
        runs: how many came between.

    Returns:
        The types of which there are the most more, and what is told of it.
    """
    grown = {name: count - before["types"].get(name, 0) for name, count in after["types"].items()}
    most = dict(sorted(grown.items(), key=lambda item: -item[1])[:SHOWN])
    told = []
    waiting = Counter(after["waiting"]) - Counter(before["waiting"])
    if after["tasks"] - before["tasks"] > TASKS_RISE_MAX:
        told.append(f"{after['tasks'] - before['tasks']} more tasks are left at rest: {dict(waiting)}")
    if runs >= RUNS_MIN:
        told += [
            f"{count} more objects of {name} are left after {runs:.0f} runs"
            for name, count in most.items()
            if count > OBJECTS_PER_RUN_MAX * runs
        ]
    return {name: count for name, count in most.items() if count > 0}, told
