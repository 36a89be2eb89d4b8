"""The soak for a few seconds, and that it finds what it is there for."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.attack.site import Site
from tests.campaign.soak.samples import Sample
from tests.campaign.soak.soaking import Plan, Soak
from tests.campaign.soak.verdict import SAMPLES_MIN, Bounds, figures, leftovers, slope, violations

WITHIN_S = 100.0
SAMPLES = 200

Column = Callable[[int, random.Random], float]


def soaked(home: Path, store: str, server_pid: int | None = None, *, leak: str = "", **plan: Any) -> Soak:
    with Site(store, home, {"ONCEWARD_LEASE": "10s", "ONCEWARD_TEST_SOAK_LEAK": leak}) as site:
        one = Soak(
            site,
            Plan(seed=7, leak=leak, **{"settle_s": WITHIN_S, "rest_s": 1, **plan}),
            server_pid,
            lambda _: None,
        )
        asyncio.run(one.run())
    return one


def test_a_few_seconds_on_sqlite(tmp_path: Path) -> None:
    one = soaked(tmp_path, f"sqlite:///{tmp_path / 'soak.db'}", seconds=1, rate=15, waiting=5, sample_s=0.25)

    assert one.violations == []
    assert one.figures["runs"] >= 10
    assert one.figures["looks"] >= 1
    assert {"pss_mb", "uss_mb", "descriptors", "threads", "wal_mb"} < one.taken[-1].keys()
    assert {"deliveries", "reply_p99_ms", "waiting_mb", "left"} < one.figures.keys()


@pytest.mark.postgres
def test_a_few_seconds_on_postgresql(tmp_path: Path, postgres_dsn: str) -> None:
    one = soaked(tmp_path, postgres_dsn, server_pid(postgres_dsn), seconds=1, rate=15, sample_s=0.25)

    assert one.violations == []
    assert {"server_uss_mb", "backends", "dead_rows", "tables_mb"} < one.taken[-1].keys()


def test_leaks_and_a_run_that_did_nothing_are_found(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'soak.db'}"

    one = soaked(
        tmp_path,
        store,
        leak="descriptors threads lost",
        seconds=1,
        rate=20,
        sample_s=0.02,
        samples_min=SAMPLES_MIN + 5,
        settle_s=0.5,
        rest_s=0.5,
    )

    told = "; ".join(one.violations)
    assert "descriptors rose by" in told
    assert "threads rose by" in told
    assert "notes of accepted deliveries are missing" in told


# --- the verdict, on samples as they were taken ------------------------------------------------------


def recorded(_count: int = SAMPLES, /, **columns: Column) -> list[Sample]:
    """Give samples of a soak of 40 runs a second, 5 seconds apart; each column is noise around something."""
    draw = random.Random(4)
    return [
        {"at_s": 5.0 * n, "runs": 200.0 * n, **{name: value(n, draw) for name, value in columns.items()}}
        for n in range(_count)
    ]


def steady(level: float, noise: float) -> Column:
    return lambda _, draw: level + draw.uniform(-noise, noise)


def warming(level: float, over: int, noise: float) -> Column:
    """Grows while caches fill, then stays; now and then much is in memory for a moment."""
    return lambda n, draw: (
        level * min(1.0, 0.3 + 0.7 * n / over) + draw.uniform(-noise, noise) + 40 * (draw.random() < 0.1)
    )


def leaking(level: float, per_sample: float, noise: float) -> Column:
    return lambda n, draw: level + per_sample * n + draw.uniform(-noise, noise)


def test_a_process_that_warms_up_and_has_bursts_does_not_leak() -> None:
    samples = recorded(pss_mb=warming(90, 80, 6), descriptors=steady(90, 12), threads=steady(37, 1))

    assert violations(samples) == []


@pytest.mark.parametrize("column", ["pss_mb", "uss_mb", "server_uss_mb"])
def test_memory_that_grows_with_the_runs_is_found(column: str) -> None:
    # 0.24 MB each 200 runs, beside noise of six.
    (told,) = violations(recorded(**{column: leaking(90, 0.24, 6)}))

    assert told.startswith(f"{column} grows by 1.")


@pytest.mark.parametrize("column", ["descriptors", "threads", "backends"])
def test_one_more_every_half_minute_is_found(column: str) -> None:
    (told,) = violations(recorded(**{column: leaking(75, 5 / 30, 9)}))

    assert told.startswith(f"{column} rose by 1")


def test_what_each_run_leaves_in_memory_is_found() -> None:
    before = {"tasks": 6, "waiting": {"serve": 1}, "types": {"dict": 9_000, "shop.Order": 10}}
    after = {"tasks": 20, "waiting": {"serve": 1, "watch": 14}, "types": {"dict": 9_300, "shop.Order": 1_510}}

    grown, told = leftovers(before, after, runs=5_000)

    assert grown == {"shop.Order": 1_500, "dict": 300}
    assert told == [
        "14 more tasks are left at rest: {'watch': 14}",
        "1500 more objects of shop.Order are left after 5000 runs",
    ]
    assert leftovers(before, {**before, "tasks": 9}, runs=5_000) == ({}, [])


def test_a_log_without_end_and_rows_that_nobody_clears_are_found() -> None:
    told = violations(
        recorded(wal_mb=leaking(1, 1, 0), dead_rows=leaking(0, 500, 0), live_rows=steady(9_000, 0))
    )

    assert told == ["the log was 200.0 MB", "there were 8.306 dead rows for each living one"]


def test_what_is_too_short_says_nothing_about_memory() -> None:
    samples = recorded(20, pss_mb=leaking(30, 3, 0))

    assert violations(samples) == []
    assert figures(samples)["pss_mb_per_1000_runs"] == pytest.approx(15)


def test_bounds_are_those_that_are_told() -> None:
    samples = recorded(pss_mb=leaking(90, 0.1, 0))

    assert violations(samples) == []
    assert violations(samples, Bounds(mb_per_1000_runs=0.4)) == ["pss_mb grows by 0.5 MB each 1,000 runs"]


def test_the_fit_is_not_moved_by_a_fifth_of_the_points() -> None:
    points = [(float(x), 2.0 * x + (1_000 if x % 5 == 0 else 0)) for x in range(60)]

    assert slope(points) == pytest.approx(2.0)


def server_pid(dsn: str) -> int:
    """Give the process of the server itself, the parent of every backend."""
    with psycopg.connect(dsn) as connection:
        stat = Path(f"/proc/{connection.info.backend_pid}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])
