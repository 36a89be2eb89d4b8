"""``python -m benchmarks three-step --store sqlite --peer dbos --json``; see ``README.md``."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from benchmarks import console, report
from benchmarks.catalogue import WORKS, Work
from benchmarks.databases import open_databases
from benchmarks.rounds import Side, compare
from onceward.core.errors import OncewardError

CONSOLE_RUNS = 1_000_000
DBOS_THREADS_ALONE, DBOS_THREADS_TOGETHER = 8, 3
"""The best that was found of one process, and of each of several."""


def parser() -> argparse.ArgumentParser:
    """Give the command line."""
    works = "\n".join(f"  {work.name:<12}{work.says}" for work in WORKS.values())
    made = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measures Onceward beside a peer, in alternating rounds.",
        epilog=f"works:\n{works}\n  console     how fast a store of a million runs answers, beside one of ten thousand; -n for another number"
        f"\n  report      all of them on both stores; writes the table in benchmarks/README.md",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument(
        "work", choices=[*WORKS, "console", "report"], metavar="work", help="which work, or 'report'"
    )
    made.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    made.add_argument("--peer", choices=("dbos", "prototype", "none"), default="none")
    made.add_argument("--rounds", type=int, default=5, help="of each side (default 5)")
    made.add_argument("-n", type=int, help="how much our side does in a round")
    made.add_argument("--peer-n", type=int, help="how much the peer does in a round")
    made.add_argument("--peer-processes", type=int, default=1, help="processes of DBOS (default 1)")
    made.add_argument("--peer-threads", type=int, help="threads of each DBOS process (default 8, several: 3)")
    made.add_argument(
        "--url", help="a PostgreSQL to use; default ONCEWARD_STORE if it names one, else a server of our own"
    )
    made.add_argument("--browser", action="store_true", help="of console: open its pages in Chromium as well")
    made.add_argument("--json", action="store_true", help="print one JSON object on the last line")
    return made


def main(arguments: list[str] | None = None) -> int:
    """Measure; the exit code is 1 when a count is wrong and 2 when something is missing."""
    asked = parser().parse_args(arguments)
    try:
        if asked.work == "report":
            report.write(asked.rounds, lambda words: measure(parser().parse_args(words)))
            return 0
        if asked.work == "console":
            answers = console.measure(asked.store, asked.url, asked.n or CONSOLE_RUNS, browser=asked.browser)
            print(json.dumps(answers) if asked.json else console.table(answers))
            return 0
        found = measure(asked)
    except OncewardError as error:
        print(error, file=sys.stderr)
        return 1 if type(error).__name__ == "RoundFailed" else 2
    if asked.json:
        print(json.dumps(found))
    else:
        print(summary(found))
    return 0


def measure(asked: argparse.Namespace) -> dict[str, Any]:
    """Compare as the command line asks."""
    work = WORKS[asked.work]
    url = asked.url or os.environ.get("ONCEWARD_STORE", "")
    if not url.startswith("postgres"):
        url = None
    peer = _peer(work, asked)
    with open_databases(asked.store, url) as databases:
        ours = Side("ours", asked.n or work.runs)
        found = compare(work, databases, ours, peer, asked.rounds, _tell)
    # What has no peer stands for itself.
    own = {} if work.peers else {name: found["ours"][name] for name in work.shown}
    return {"store": asked.store, **own, **found}


def _peer(work: Work, asked: argparse.Namespace) -> Side | None:
    if asked.peer == "none":
        return None
    if asked.peer not in work.peers:
        raise OncewardError(
            f"{work.name} is not measured beside {asked.peer}.",
            todo=f"It can be: {', '.join(work.peers) or 'none'}.",
        )
    if asked.peer == "prototype":
        return Side("prototype", asked.peer_n or asked.n or work.runs)
    processes = asked.peer_processes
    threads = asked.peer_threads or (DBOS_THREADS_ALONE if processes == 1 else DBOS_THREADS_TOGETHER)
    return Side("dbos", asked.peer_n or work.dbos_runs, threads=threads, processes=processes)


def _tell(number: int, side: str, figures: dict[str, Any]) -> None:
    shown = (
        "runs_per_s",
        "accepted_per_s",
        "p50_ms",
        "took_s",
        "recall_s",
        "all_finished_s",
        "cpu_ms_per_run",
    )
    told = "  ".join(f"{name} {figures[name]:g}" for name in shown if name in figures)
    print(f"round {number}  {side:<10} {told}", file=sys.stderr, flush=True)


def summary(found: dict[str, Any]) -> str:
    """Give the result for people."""
    lines = []
    for side in ("ours", "peer"):
        figures = found[side]
        if figures is not None:
            lines.append(figures.get("name", side))
            lines += [f"  {name:<28}{_text(value)}" for name, value in figures.items() if name != "name"]
    if found["ratio"] is not None:
        lines.append(f"ours is {found['ratio']:g} times better in {found['ratio_of']}")
    return "\n".join(lines)


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {inner}" for name, inner in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.exit(main())
