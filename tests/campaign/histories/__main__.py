"""Histories of many clients at once, each judged by a small model: ``python -m tests.campaign.histories``.

The last line of the output is an object of JSON with what was counted; the status is 1 where a history has
no order that its model allows. ``--recheck FILE`` judges one again that was kept.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import itertools
import json
import random
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from onceward.testing.servers import PostgresAddress, PostgresServer
from tests.campaign import counters
from tests.campaign.histories import models
from tests.campaign.histories.cluster import NEMESES, Cluster
from tests.campaign.histories.linear import Judgement, Op, Verdict, judge
from tests.campaign.histories.workloads import WORKLOADS, Told, Waits

AT_ONCE = 2
"""How many histories of each workload one cluster has."""

Cell = tuple[int, str, str]


@dataclasses.dataclass
class Findings:
    """What was counted and what was found."""

    seed: int
    store: str
    plant: str = ""
    counts: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    violations: list[str] = dataclasses.field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        return {"seed": self.seed, **dict(sorted(self.counts.items())), "violations": self.violations}

    def found(self, cell: Cell, what: str, detail: str = "", kept: Path | None = None) -> None:
        """Keep a violation and say it with the command that does the same again."""
        number, nemesis, workload = cell
        command = (
            f"python -m tests.campaign.histories --seed {self.seed} --store {self.store} "
            f"--nemesis {nemesis} --workload {workload} --from {number} --histories 1"
        )
        command += f" --plant {self.plant}" if self.plant else ""
        if kept:
            command += f"; judged again by: python -m tests.campaign.histories --recheck {kept}"
        self.violations.append(f"{workload} under {nemesis}, history {number}: {what}")
        print(f"{self.violations[-1]}\n{detail}\nagain: {command}", file=sys.stderr, flush=True)


def cells(first: int, count: int, nemeses: Sequence[str], workloads: Sequence[str]) -> list[Cell]:
    """Give the fault and the workload of histories by their numbers: all of one fault's come together."""
    block = AT_ONCE * len(workloads)
    return [
        (number, nemeses[number // block % len(nemeses)], workloads[number % len(workloads)])
        for number in range(first, first + count)
    ]


def run(
    findings: Findings,
    chosen: Sequence[Cell],
    home: Path,
    server: PostgresServer | PostgresAddress | None = None,
) -> Findings:
    """Make histories and judge them.

    Args:
        findings: where everything is counted.
        chosen: which ones.
        home: a new folder; it has a short path, since there are sockets in it.
        server: where each cluster has a database of its own; None for SQLite.
    """
    for part, (nemesis, group) in enumerate(itertools.groupby(chosen, key=lambda cell: cell[1])):
        folder = home / str(part)
        folder.mkdir(parents=True)
        mine = list(group)
        dice = random.Random(f"{findings.seed}/{findings.store}/{nemesis}/{mine[0][0]}")
        with Cluster(findings.store, nemesis, folder, server, dice, findings.plant) as cluster:
            for cell in mine:
                _one(findings, cluster, cell)
            for violation in cluster.check():
                findings.found(mine[-1], violation)
        print(f"{len(mine)} histories under {nemesis}: {dict(findings.counts)}", file=sys.stderr, flush=True)
    return findings


def _one(findings: Findings, cluster: Cluster, cell: Cell) -> None:
    """Make one history and judge it."""
    number, nemesis, name = cell
    workload = WORKLOADS[name]
    script = workload.script(random.Random(f"{findings.seed}/{findings.store}/{cell}"), f"h{number}")
    desk = cluster.desk()
    try:
        workload.ready(script, desk)
        cluster.run(script)
        workload.settle(script, desk)
        seen = cluster.seen()
        told = list(workload.objects(seen, desk))
    except AssertionError as error:
        findings.found(cell, str(error).partition("\n")[0][:500], f"{error}\n{cluster.site.logs()}")
        return
    findings.counts["histories"] += 1
    findings.counts[f"under_{nemesis}"] += 1
    findings.counts["calls"] += len(seen)
    findings.counts["replies_lost"] += sum("reply" not in one for one in seen)
    for one in told:
        judgement = judge(one[1], one[2])
        findings.counts["objects"] += 1
        findings.counts["lease_holders"] += sum(op.verb == "claim" for op in one[2])
        findings.counts["looks"] += judgement.looks
        findings.counts["undecided"] += judgement.verdict is Verdict.UNDECIDED
        if judgement.verdict is Verdict.NOT_LINEARIZABLE:
            kept = _keep(findings, cell, one)
            findings.found(cell, f"{one[0]} {one[1]}: no order", str(judgement), kept)


def _keep(findings: Findings, cell: Cell, told: Told) -> Path:
    """Write an object's history where it can be judged again."""
    name, model, ops = told
    counters.FOLDER.mkdir(exist_ok=True)
    number = len(findings.violations)
    path = counters.FOLDER / f"history-{findings.store}-{findings.seed}-{cell[0]}-{number}.json"
    kept = {
        "object": name,
        "model": type(model).__name__,
        "fields": dataclasses.asdict(model),  # type: ignore[call-overload]
        "ops": [{**dataclasses.asdict(op), "beside": []} for op in ops],
    }
    path.write_text(json.dumps(kept) + "\n")
    return path


def recheck(path: Path) -> Judgement:
    """Judge a history that was kept."""
    kept = json.loads(path.read_text())
    ops = [
        Op(op["verb"], op["args"], op["call"], op["reply"], _tuple(op["answer"]), op["by"])
        for op in kept["ops"]
    ]
    return judge(getattr(models, kept["model"])(**kept["fields"]), ops)


def _tuple(answer: Any) -> Any:
    return tuple(map(_tuple, answer)) if isinstance(answer, list) else answer


def main(argv: Sequence[str] | None = None) -> int:
    """Make histories, judge them, and say what was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign.histories", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--histories", type=int, default=70)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--nemesis", choices=NEMESES, action="append")
    parser.add_argument("--workload", choices=tuple(WORKLOADS), action="append")
    parser.add_argument("--plant", default="", help="a fault of a SQLite store that must be found")
    parser.add_argument("--in-order", action="store_true", help="a wait takes the oldest event, always")
    parser.add_argument("--recheck", type=Path)
    given = parser.parse_args(argv)
    if given.recheck:
        judgement = recheck(given.recheck)
        print(judgement)
        return int(judgement.verdict is Verdict.NOT_LINEARIZABLE)
    Waits.in_order = given.in_order
    chosen = cells(given.first, given.histories, given.nemesis or NEMESES, given.workload or list(WORKLOADS))
    findings = Findings(given.seed, given.store, given.plant)
    with (
        tempfile.TemporaryDirectory(prefix="onceward-h-") as home,
        PostgresServer(durable=False) if given.store == "postgres" else nullcontext() as server,
    ):
        run(findings, chosen, Path(home), server)
    counters.record("histories", findings.figures(), variant=given.store)
    print(json.dumps(findings.figures()))
    return int(bool(findings.violations))


if __name__ == "__main__":
    sys.exit(main())
