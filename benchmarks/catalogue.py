"""The works: what each is called, what counts most in it, and how much of it a round does."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Work:
    """One work.

    Attributes:
        headline: the figure of which the ratio is made.
        more_is_better: which way it points; the ratio always says how many times better ours is.
        runs: how much a round of ours does (``-n``): runs, events, steps, sleepers or seconds.
        dbos_runs: how much a round of DBOS does; less where it would take minutes.
        peers: whom it can be compared with.
        shown: figures of ours for the report, in order.
    """

    name: str
    says: str
    headline: str
    more_is_better: bool
    runs: int
    dbos_runs: int
    shown: tuple[str, ...]
    peers: tuple[str, ...] = ("dbos",)


WORKS = {
    work.name: work
    for work in (
        Work(
            "three-step",
            "runs of three steps that do nothing, 64 in flight",
            "runs_per_s",
            True,
            6_000,
            600,
            ("runs_per_s", "cpu_ms_per_run", "bytes_per_run", "batches_per_run", "peak_mb"),
            ("dbos", "prototype"),
        ),
        Work(
            "low-load",
            "the same runs one at a time",
            "p50_ms",
            False,
            300,
            150,
            ("p50_ms", "p95_ms", "p99_ms", "batches_per_run"),
            ("dbos", "prototype"),
        ),
        Work(
            "dedup",
            "200 events, each delivered 20 times at once over HTTP to three processes",
            "accepted_per_s",
            True,
            200,
            200,
            ("accepted_per_s", "replies_2xx", "runs", "p99_ms"),
        ),
        Work(
            "ingest",
            "signed deliveries over HTTP to one core, durable before the reply, beside a bare hello",
            "accepted_per_s",
            True,
            6,
            6,
            (
                "accepted_per_s",
                "hello_per_s",
                "share_of_hello",
                "p99_ms",
                "accepted_2k_per_s",
                "share_of_hello_2k",
                "p99_2k_ms",
            ),
            (),
        ),
        Work(
            "history",
            "5,000 steps in one run, a kill, and the recall",
            "recall_s",
            False,
            5_000,
            5_000,
            ("first_run_s", "last_thousand_over_first", "recall_1000_s", "recall_5000_s"),
        ),
        Work(
            "sleepers",
            "20,000 sleeping runs: due over 60 s, then all at once",
            "runs_per_s",
            True,
            20_000,
            500,
            ("sleepers_mb", "spread_late_p99_ms", "all_at_once_s", "all_at_once_over_allowed"),
        ),
        Work(
            "waiters",
            "20,000 runs that wait for an event each, and then 20,000 events",
            "runs_per_s",
            True,
            20_000,
            0,
            ("waiters_mb", "starts_per_s", "all_told_s"),
            (),
        ),
        Work(
            "recovery",
            "SIGKILL with 500 runs of three 50 ms steps under way, and a restart",
            "all_finished_s",
            False,
            500,
            500,
            ("first_body_s", "all_finished_s", "unsaved_at_kill_max", "bodies_run_twice"),
        ),
        Work(
            "children",
            "one run that calls 1,000 others and waits for them",
            "took_s",
            False,
            1_000,
            1_000,
            ("took_s", "batches"),
        ),
        Work(
            "idle",
            "a process with nothing to do",
            "cpu_percent",
            False,
            10,
            10,
            ("transactions_per_s", "cpu_percent", "peak_mb"),
        ),
    )
}
