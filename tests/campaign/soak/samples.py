"""What a process and its store use at one moment, read from outside.

PSS counts a page that several processes share once in all, USS only what nobody shares: what a backend of
PostgreSQL has seen of the shared buffers is no leak of its.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterable
from pathlib import Path

import psycopg

from benchmarks.measure import tree

Sample = dict[str, float]
"""Figures of one moment by name; ``at_s`` and ``runs`` say when it was."""


def of_processes(root: int) -> Sample:
    """Give what a process and its descendants use."""
    pids = tree(root)
    memory = memory_mb(pids)
    return {
        "pss_mb": memory["Pss"],
        "uss_mb": memory["Private_Clean"] + memory["Private_Dirty"],
        "descriptors": sum(_count(f"/proc/{pid}/fd") for pid in pids),
        "threads": sum(_count(f"/proc/{pid}/task") for pid in pids),
    }


def of_store(url: str, server_pid: int | None) -> Sample:
    """Give what the store takes."""
    return (
        of_sqlite(Path(url.removeprefix("sqlite:///")))
        if server_pid is None
        else of_postgres(url, server_pid)
    )


def of_sqlite(path: Path) -> Sample:
    """Give the sizes of a database's file and of its log."""
    return {"file_mb": _mb(path), "wal_mb": _mb(path.with_name(f"{path.name}-wal"))}


def of_postgres(url: str, server_pid: int) -> Sample:
    """Give what the server's processes use alone, and how the tables look."""
    memory = memory_mb(tree(server_pid))
    with psycopg.connect(url, autocommit=True) as connection:
        dead, live, size = _row(
            connection,
            "select coalesce(sum(n_dead_tup), 0), coalesce(sum(n_live_tup), 0),"
            " coalesce(sum(pg_total_relation_size(relid)), 0) from pg_stat_user_tables",
        )
        backends, old_s = _row(
            connection,
            "select count(*), coalesce(extract(epoch from max(now() - xact_start)), 0) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()",
        )
    return {
        "server_uss_mb": memory["Private_Clean"] + memory["Private_Dirty"],
        "backends": backends,
        "dead_rows": dead,
        "live_rows": live,
        "tables_mb": size / 2**20,
        "oldest_transaction_s": old_s,
    }


def memory_mb(pids: Iterable[int]) -> dict[str, float]:
    """Give kinds of memory, of all processes together."""
    total = {"Pss": 0.0, "Private_Clean": 0.0, "Private_Dirty": 0.0}
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended meanwhile
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                name, _, value = line.partition(":")
                if name in total:
                    total[name] += int(value.split()[0]) / 1024
    return total


def page_mb(path: Path) -> float:
    """Give the size of a page of a database."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return float(connection.execute("pragma page_size").fetchone()[0]) / 2**20


def _row(connection: psycopg.Connection[tuple[object, ...]], query: str) -> list[float]:
    row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return [float(str(value)) for value in row]


def _count(folder: str) -> int:
    with contextlib.suppress(OSError):
        return len(os.listdir(folder))
    return 0


def _mb(path: Path) -> float:
    return path.stat().st_size / 2**20 if path.exists() else 0.0
