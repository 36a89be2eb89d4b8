"""What is counted while a side works: time, CPU, memory, commits and bytes.

Standard library only (psycopg where PostgreSQL is used), since the peers import it with a Python
of their own; both sides are measured by this code. CPU and memory are those of the side's process
with its children and, on PostgreSQL, of the server with its backends.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
SAMPLE_EVERY_S = 0.3

# Backends hand their counters over at most once a second.
STATISTICS_SETTLE_S = 1.2


def percentile(values: Sequence[float], percent: float) -> float:
    """Give the value below which *percent* of the values lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(percent / 100 * (len(ordered) - 1)))]


def latencies_ms(seconds: Sequence[float]) -> dict[str, float]:
    """Give p50, p95 and p99 in milliseconds."""
    return {f"p{percent}_ms": round(percentile(seconds, percent) * 1e3, 3) for percent in (50, 95, 99)}


# --- processes ------------------------------------------------------------------------------


def _stat(pid: int) -> list[str]:
    """Give the fields of ``/proc/<pid>/stat`` after the program's name."""
    text = Path(f"/proc/{pid}/stat").read_text()
    return text[text.rindex(")") + 2 :].split()


def tree(root: int) -> list[int]:
    """Give a process and all its living descendants."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError):
                children.setdefault(int(_stat(int(name))[1]), []).append(int(name))
    found, todo = [], [root]
    while todo:
        pid = todo.pop()
        found.append(pid)
        todo += children.get(pid, [])
    return found


def cpu_s(pids: Iterable[int]) -> float:
    """Give the CPU seconds that processes used so far, with those of their reaped children."""
    ticks = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            ticks += sum(int(value) for value in _stat(pid)[11:15])
    return ticks / TICKS_PER_S


def pss_mb(pids: Iterable[int]) -> float:
    """Give the memory of processes; a page that several share counts once in all."""
    total_kb = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total_kb += int(line.split()[1])
                    break
    return total_kb / 1024


def machine_cpu_s() -> float:
    """Give the CPU seconds that the whole machine used so far."""
    with open("/proc/stat") as file:
        ticks = [int(value) for value in file.readline().split()[1:9]]
    idle, waiting = ticks[3], ticks[4]
    return (sum(ticks) - idle - waiting) / TICKS_PER_S


# --- databases ------------------------------------------------------------------------------


def sqlite_bytes(path: str) -> int:
    """Give the size of a database as it is once its log is copied into it."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("pragma query_only = on")
        # Pages as a reader sees them, those in the log included: nothing has to be copied now.
        (pages,) = connection.execute("pragma page_count").fetchone()
        (page_bytes,) = connection.execute("pragma page_size").fetchone()
    return int(pages * page_bytes)


def postgres_counts(url: str) -> dict[str, int]:
    """Give what a PostgreSQL server counted so far: a database's commits, and the log's bytes."""
    import psycopg

    time.sleep(STATISTICS_SETTLE_S)
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(
            "select s.xact_commit, w.wal_bytes from pg_stat_database s, pg_stat_wal w"
            " where s.datname = current_database()"
        ).fetchone()
    assert row is not None
    return {"commits": int(row[0]), "wal_bytes": int(row[1])}


def postgres_bytes(url: str) -> int:
    """Give the size of a database after a vacuum: rows that were deleted are space for the next."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("vacuum")
        row = connection.execute("select pg_database_size(current_database())").fetchone()
    assert row is not None
    return int(row[0])


def is_postgres(url: str) -> bool:
    """Say which of the two stores a URL names."""
    return url.startswith("postgres")


def sqlite_path(url: str) -> str:
    """Give the file that a SQLite URL names."""
    return url.removeprefix("sqlite:///")


# --- a window -------------------------------------------------------------------------------


@dataclass
class Window:
    """What was used between its start and its end.

    Args:
        url: the store, whose counters are read.
        server_pid: the database server, if it runs on this machine; its tree counts too.
    """

    url: str
    server_pid: int | None = None
    wall_s: float = 0.0
    cpu_side_s: float = 0.0
    cpu_server_s: float = 0.0
    cpu_others_s: float = 0.0
    counters: dict[str, int] = field(default_factory=dict)

    @contextlib.contextmanager
    def measure(self) -> Iterator[Window]:
        """Count what happens inside."""
        size, counts = self._bytes(), self._counts()
        machine = machine_cpu_s()
        side, server = self._cpu()
        began = time.perf_counter()
        try:
            yield self
        finally:
            self.wall_s = time.perf_counter() - began
            side_after, server_after = self._cpu()
            self.cpu_side_s, self.cpu_server_s = side_after - side, server_after - server
            self.cpu_others_s = machine_cpu_s() - machine - self.cpu_side_s - self.cpu_server_s
        counted = self._counts()
        self.counters = {name: counted[name] - counts[name] for name in counted}
        self.counters["bytes"] = self._bytes() - size

    def _counts(self) -> dict[str, int]:
        return postgres_counts(self.url) if is_postgres(self.url) else {}

    def _bytes(self) -> int:
        return postgres_bytes(self.url) if is_postgres(self.url) else sqlite_bytes(sqlite_path(self.url))

    def _cpu(self) -> tuple[float, float]:
        server = [] if self.server_pid is None else tree(self.server_pid)
        return cpu_s(tree(os.getpid())), cpu_s(server)

    def others_share(self) -> float:
        """Give how much of the machine's CPU anything else used meanwhile."""
        share = self.cpu_others_s / max(self.wall_s, 1e-9) / (os.cpu_count() or 1)
        return round(max(0.0, share), 3)

    def per_run(self, runs: int) -> dict[str, Any]:
        """Give rates and costs of each run."""
        cpu_ms = (self.cpu_side_s + self.cpu_server_s) / runs * 1e3
        found: dict[str, Any] = {
            "runs_per_s": round(runs / self.wall_s, 1),
            "cpu_ms_per_run": round(cpu_ms, 3),
            "bytes_per_run": round(self.counters["bytes"] / runs),
        }
        if self.server_pid is not None:
            found["cpu_ms_server"] = round(self.cpu_server_s / runs * 1e3, 3)
        if "commits" in self.counters:
            found["commits_per_run"] = round(self.counters["commits"] / runs, 3)
            found["wal_bytes_per_run"] = round(self.counters["wal_bytes"] / runs)
        return {**found, "others_cpu_share": self.others_share()}


class PeakMemory:
    """The most memory that process trees used; sampled from outside, so that nobody pays for it.

    Args:
        roots: a side's process, and the database server where there is one.
    """

    def __init__(self, roots: Sequence[int]) -> None:
        self._roots = roots
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self.mb = [0.0 for _ in roots]

    def __enter__(self) -> Self:
        """Begin to sample."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self._ended.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._ended.wait(SAMPLE_EVERY_S):
            self.mb = [max(mb, pss_mb(tree(root))) for mb, root in zip(self.mb, self._roots, strict=True)]
