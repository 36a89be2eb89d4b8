"""Alternating rounds: ours, the peer, ours, the peer … each in a fresh process on a fresh store.

The machine's speed drifts, with the neighbours' work above all; sides that take turns drift alike,
and a median drops the rounds that were disturbed.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.catalogue import Work
from benchmarks.databases import PostgresDatabases, SqliteFiles
from benchmarks.job import Job
from benchmarks.measure import PeakMemory
from onceward.core.errors import ConfigError, OncewardError

ROOT = Path(__file__).resolve().parents[1]
PEERS_PYTHON = ROOT / ".venv-peers" / "bin" / "python"
ROUND_SECONDS_MAX = 900

Databases = SqliteFiles | PostgresDatabases


class RoundFailed(OncewardError):
    """A side's process ended without a result, or with a wrong one."""


class Side:
    """One of the two that are compared.

    Args:
        name: ``ours``, ``dbos`` or ``prototype``.
        runs: how much it does in a round.
        threads: of a DBOS process.
        processes: of DBOS.

    Raises:
        ConfigError: DBOS is not installed.
    """

    def __init__(self, name: str, runs: int, *, threads: int = 0, processes: int = 1) -> None:
        modules = {
            "ours": "benchmarks.ours",
            "dbos": "benchmarks.peers.dbos_peer",
            "prototype": "benchmarks.prototype",
        }
        if name == "dbos" and not PEERS_PYTHON.exists():
            raise ConfigError(
                "DBOS is not installed for the benchmarks.",
                means="There is nothing to compare with.",
                todo="Run `make peers` (it makes .venv-peers), or measure without: --peer none.",
            )
        self.name = name
        self.runs = runs
        self._module = modules[name]
        self._python = str(PEERS_PYTHON) if name == "dbos" else sys.executable
        self._threads = threads
        self._processes = processes

    def round(self, work: Work, databases: Databases, number: int) -> dict[str, Any]:
        """Do one round.

        Raises:
            RoundFailed: the process ended with an error, or what it found is wrong.
        """
        with databases.fresh(f"{self.name}_{number}") as fresh:
            job = Job(
                module=self._module,
                work=work.name,
                url=fresh.url,
                server_pid=databases.server_pid,
                runs=self.runs,
                directory=fresh.directory,
                phase="",
                threads=self._threads,
                processes=self._processes,
            )
            # Settings of the shell must not decide what is measured.
            environment = {
                name: value for name, value in os.environ.items() if not name.startswith("ONCEWARD_")
            }
            command = [self._python, "-m", self._module, *job.arguments()]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT)
            roots = [process.pid] if job.server_pid is None else [process.pid, job.server_pid]
            with process, PeakMemory(roots) as peak:
                try:
                    output, _ = process.communicate(timeout=ROUND_SECONDS_MAX)
                finally:
                    process.kill()
        lines = output.strip().splitlines()
        if process.returncode != 0 or not lines:
            raise RoundFailed(
                f"Round {number} of {work.name} by {self.name} ended with {process.returncode} and no result.",
                means="Nothing can be said about it.",
                todo="What the process said stands above.",
            )
        found: dict[str, Any] = json.loads(lines[-1])
        found["peak_mb"] = round(sum(peak.mb), 1)
        if job.server_pid is not None:
            found["peak_server_mb"] = round(peak.mb[1], 1)
        if found.get("is_right") is False:
            raise RoundFailed(
                f"Round {number} of {work.name} by {self.name} found {json.dumps(found)}.",
                means="A count is wrong: this is a defect, not a matter of speed.",
            )
        return found


def compare(
    work: Work,
    databases: Databases,
    ours: Side,
    peer: Side | None,
    rounds: int,
    told: Callable[[int, str, dict[str, Any]], None],
) -> dict[str, Any]:
    """Give the medians of alternating rounds, their ratio and the settings of both.

    Args:
        work: what is done.
        databases: gives fresh stores.
        ours: our side.
        peer: the other, or None.
        rounds: how many each side does.
        told: called after each round with its number, side and figures.
    """
    sides = [ours] if peer is None else [ours, peer]
    found: dict[str, list[dict[str, Any]]] = {side.name: [] for side in sides}
    for number in range(1, rounds + 1):
        for side in sides:
            figures = side.round(work, databases, number)
            found[side.name].append(figures)
            told(number, side.name, figures)
    our_medians = medians(found[ours.name])
    peer_medians = None if peer is None else {"name": peer.name, **medians(found[peer.name])}
    return {
        "work": work.name,
        "ours": our_medians,
        "peer": peer_medians,
        "ratio": None if peer_medians is None else ratio(work, our_medians, peer_medians),
        "ratio_of": work.headline,
        "rounds": rounds,
        "headlines": {name: [one[work.headline] for one in rows] for name, rows in found.items()},
        "machine": {
            **databases.describe(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "system": platform.system(),
        },
    }


def medians(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Give the median of each figure; what is not a number is the first round's."""
    found: dict[str, Any] = {}
    for name, value in rows[0].items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            found[name] = value
        else:
            middle = median(row[name] for row in rows)
            found[name] = round(middle, 4) if isinstance(value, float) else middle
    return found


def ratio(work: Work, ours: dict[str, Any], peer: dict[str, Any]) -> float:
    """Say how many times better ours is in the work's headline."""
    mine, theirs = float(ours[work.headline]), float(peer[work.headline])
    better, worse = (mine, theirs) if work.more_is_better else (theirs, mine)
    return round(better / worse, 2) if worse else float("inf")
