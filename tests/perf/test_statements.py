"""What a batch of the whole engine costs PostgreSQL, by the server's own log."""

from __future__ import annotations

import re
from collections import Counter

from onceward.testing.servers import PostgresServer
from tests.engine.running import run_app
from tests.perf.counting import CountedApp, saturate, three_steps

RUNS = 300

CLAIMS_MAX = 2
"""Suspects are claimed one at a time, by a statement of their own."""


def transactions(log: str) -> list[list[str]]:
    """What the backend of the batches executed, cut before each ``begin``."""
    told = re.findall(r"^(\d+)\|LOG:  (?:execute|statement:?) (?:onceward_)?(\w+)", log, re.MULTILINE)
    backend = next(pid for pid, name in told if name == "guard")
    cut: list[list[str]] = []
    for pid, name in told:
        if pid == backend:
            if name == "begin":
                cut.append([])
            if cut:
                cut[-1].append(name)
    return cut


def test_a_batch_executes_one_statement_of_each_kind(talkative: PostgresServer) -> None:
    """Whatever gathers: begin, guard, each kind once, commit, and behind it at most one hint to others."""
    app = CountedApp(talkative.create_database("counted"))
    three = three_steps(app)
    run_app(app, lambda: saturate(app, three, RUNS, 64))

    cut = transactions((talkative.home.path / "postgres.log").read_text())

    assert RUNS / 64 * 4 < len(cut) < RUNS / 4, "runs share their batches"
    for statements in cut:
        end = statements.index("commit") + 1
        inside, behind = statements[:end], statements[end:]
        counted = Counter(inside)
        assert inside[:2] == ["begin", "guard"]
        assert counted.pop("claim", 0) <= CLAIMS_MAX
        assert set(counted.values()) == {1}
        assert behind in ([], ["notify"])
