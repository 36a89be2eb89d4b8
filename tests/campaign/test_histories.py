"""The histories: their checker is not fooled, every kind of object is judged, and a planted fault is found."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onceward.testing.servers import PostgresAddress
from tests.campaign import counters
from tests.campaign.histories import __main__ as tool
from tests.campaign.histories import models
from tests.campaign.histories.cluster import NEMESES
from tests.campaign.histories.linear import Model, Op, Verdict, judge
from tests.campaign.histories.workloads import WORKLOADS


def did(verb: str, call: int, reply: int | None, *answer: Any, **args: Any) -> Op:
    return Op(verb, args, call, reply, answer)


def start(name: str, call: int, reply: int | None, *answer: Any) -> Op:
    return did("start", call, reply, *answer, id=name)


def emit(version: int, call: int, reply: int | None, *workflows: str, again: bool = False) -> Op:
    return did("emit", call, reply, "runs", workflows, again, id=f"e{version}", version=version)


def told(at: int, call: int, reply: int | None) -> Op:
    return did("emit", call, reply, "runs", (), False, id=f"e{at}", at=at)


def lease(verb: str, holder: str, call: int, reply: int | None, **args: Any) -> Op:
    return did(verb, call, reply, holder=holder, **args)


def save(holder: str, number: int, call: int) -> Op:
    return lease("save", holder, call, None, number=number, value=f"{holder}/{number}")


BOTH = ("marked", "newest")
RETURNS, QUEUES = models.Key("active", "return"), models.Key("active", "queue")
BEGUN = [
    did("start", 0, 1, "run", "w", False, id="w", at=5),
    told(6, 2, 3),
    told(7, 2, 3),
]
HELD_TWICE = [lease("claim", "a", 0, 1), lease("begin", "a", 1, 2, seen=()), lease("claim", "b", 2, 3)]

ALLOWED: dict[str, tuple[Model[Any], list[Op]]] = {
    "calls side by side in either order": (
        models.Versions(),
        [emit(2, 0, 9, *BOTH), emit(1, 0, 9, "marked")],
    ),
    "a lost call that happened": (
        models.Deliveries(),
        [
            did("deliver", 0, None, body="a"),
            did("deliver", 5, 6, "runs", ("first", "second"), True, body="b"),
            did("look", 7, 8, "body", "a"),
        ],
    ),
    "a lost call that never happened": (
        models.Deliveries(),
        [did("deliver", 0, None, body="a"), did("look", 7, 8, "body", None)],
    ),
    "a lost call that happens long after": (
        models.Deliveries(),
        [
            did("deliver", 0, None, body="a"),
            did("look", 7, 8, "body", None),
            did("look", 9, 10, "body", "a"),
        ],
    ),
    "a key that passes on as its run ends by itself": (
        RETURNS,
        [
            start("a", 0, 1, "run", "a", False),
            start("b", 2, 3, "run", "a", True),
            start("c", 4, 5, "run", "c", False),
        ],
    ),
    "a run that is cancelled in the line": (
        QUEUES,
        [
            start("a", 0, 1, "run", "a", False),
            start("b", 2, 3, "run", "b", False),
            did("cancel", 4, 5, "state", "cancelled", run="b"),
            did("state", 6, 7, "state", "running", run="a"),
        ],
    ),
    "the older event first": (models.Waits(2), [*BEGUN, did("result", 8, 9, "result", "e6", "e7")]),
    "a younger event that was told sooner": (
        models.Waits(2, in_order=False),
        [*BEGUN, did("result", 8, 9, "result", "e7", "e6")],
    ),
    "a zombie whose write was refused": (
        models.Lease(1),
        [
            *HELD_TWICE,
            save("a", 0, 4),
            lease("begin", "b", 5, 6, seen=()),
            save("b", 0, 7),
            did("steps", 8, 9, "saved", "b/0"),
        ],
    ),
    "two answers to a promise of which one counts": (
        models.Promise(expires=False),
        [
            did("complete", 0, 9, "done", False, value="a"),
            did("complete", 0, 9, "already", value="b"),
            did("result", 10, 11, "result", "completed", "a"),
        ],
    ),
    "a promise that somebody ends who asked in time, after another was told that it is over": (
        models.Promise(expires=True),
        [
            did("complete", 0, 9, "done", False, value="a"),
            did("complete", 1, 2, "over", value="b"),
            did("result", 10, 11, "result", "completed", "a"),
        ],
    ),
    "two restarts at once that are one": (
        models.Run(),
        [
            did("restart", 0, 9, "reply", "new generation", "queued", 2),
            did("restart", 0, 9, "reply", "join", "queued", 2),
        ],
    ),
}

PLANTED: dict[str, tuple[Model[Any], list[Op]]] = {
    "an older version that is taken for new after the newer was answered": (
        models.Versions(),
        [emit(2, 0, 1, *BOTH), emit(1, 2, 3, *BOTH)],
    ),
    "one event that is new twice": (models.Versions(), [emit(1, 0, 9, *BOTH), emit(1, 0, 9, *BOTH)]),
    "a redelivery that is told other than the first": (
        models.Versions(),
        [emit(1, 0, 1, *BOTH), emit(2, 2, 3, *BOTH), emit(1, 4, 5, "marked", again=True)],
    ),
    "an answered delivery that is gone": (
        models.Deliveries(),
        [
            did("deliver", 0, 1, "runs", ("first", "second"), False, body="a"),
            did("look", 2, 3, "body", None),
        ],
    ),
    "content that a redelivery has replaced": (
        models.Deliveries(),
        [
            did("deliver", 0, 1, "runs", ("first", "second"), False, body="a"),
            did("deliver", 2, 3, "runs", ("first", "second"), True, body="b"),
            did("look", 4, 5, "body", "b"),
        ],
    ),
    "two runs that hold one key at once": (
        RETURNS,
        [
            start("a", 0, 1, "run", "a", False),
            start("b", 2, 3, "run", "b", False),
            did("state", 4, 5, "state", "running", run="a"),
        ],
    ),
    "a key that is held for ever and passes on": (
        models.Key("ever", "return"),
        [
            start("a", 0, 1, "run", "a", False),
            start("b", 2, 3, "run", "b", False),
            did("state", 4, 5, "state", "completed", run="a"),
        ],
    ),
    "a run that waits for a key and begins before its turn": (
        QUEUES,
        [
            start("a", 0, 1, "run", "a", False),
            start("b", 2, 3, "run", "b", False),
            did("state", 4, 5, "state", "sleeping", run="b"),
            did("state", 6, 7, "state", "sleeping", run="a"),
        ],
    ),
    "a cancelled run that completes": (
        RETURNS,
        [
            start("a", 0, 1, "run", "a", False),
            did("cancel", 2, 3, "state", "cancelling", run="a"),
            did("state", 4, 5, "state", "completed", run="a"),
        ],
    ),
    "a restart that is done twice by one request": (
        models.Run(),
        [
            did("restart", 0, 1, "reply", "new generation", "queued", 2, request="r"),
            did("restart", 2, 3, "reply", "new generation", "queued", 3, request="r"),
        ],
    ),
    "a retry of a run that completed": (
        models.Run(),
        [
            did("state", 0, 1, "state", "completed", 1),
            did("retry", 2, 3, "reply", "new attempt", "queued", 1),
        ],
    ),
    "a wait that leaves the older event out": (
        models.Waits(2),
        [*BEGUN, told(8, 4, 5), did("result", 8, 9, "result", "e6", "e8")],
    ),
    "an event that ends two waits of a run": (
        models.Waits(2),
        [*BEGUN, did("result", 8, 9, "result", "e6", "e6")],
    ),
    "an event from before the run": (
        models.Waits(1),
        [*BEGUN, told(4, 0, 1), did("result", 8, 9, "result", "e4")],
    ),
    "two answers to a promise that both count": (
        models.Promise(expires=False),
        [
            did("complete", 0, 9, "done", False, value="a"),
            did("complete", 0, 9, "done", False, value="b"),
        ],
    ),
    "a promise that was over long ago and is completed": (
        models.Promise(expires=True),
        [
            did("complete", 1, 2, "over", value="b"),
            did("complete", 10**9, 10**9 + 9, "done", False, value="a"),
            did("result", 2 * 10**9, 2 * 10**9 + 9, "result", "completed", "a"),
        ],
    ),
    "an answer that counted and that the run did not get": (
        models.Promise(expires=True),
        [
            did("complete", 0, 1, "done", False, value="a"),
            did("result", 2, 3, "result", "completed", "nobody"),
        ],
    ),
    "a zombie whose write was accepted": (
        models.Lease(1),
        [
            *HELD_TWICE,
            lease("begin", "b", 3, 4, seen=()),
            save("a", 0, 5),
            save("b", 0, 6),
            did("steps", 8, 9, "saved", "a/0"),
        ],
    ),
    "a holder that goes on with what it has lost": (
        models.Lease(2),
        [
            *HELD_TWICE,
            save("a", 0, 4),
            lease("begin", "b", 5, 6, seen=()),
            save("b", 0, 7),
            lease("begin", "a", 4, 9, seen=("a/0",)),
            did("steps", 8, 9, "saved", "b/0"),
        ],
    ),
    "a saved value that changes": (
        models.Lease(1),
        [
            *HELD_TWICE[:2],
            save("a", 0, 2),
            did("steps", 3, 4, "saved", "a/0"),
            did("steps", 5, 6, "saved"),
        ],
    ),
}


@pytest.mark.parametrize("what", ALLOWED)
def test_an_order_is_found(what: str) -> None:
    model, ops = ALLOWED[what]

    judgement = judge(model, ops)

    assert judgement.verdict is Verdict.LINEARIZABLE, str(judgement)


@pytest.mark.parametrize("what", PLANTED)
def test_there_is_no_order_of_a_planted_history(what: str) -> None:
    model, ops = PLANTED[what]

    judgement = judge(model, ops)

    assert judgement.verdict is Verdict.NOT_LINEARIZABLE, str(judgement)
    assert "no place for" in str(judgement)


def test_the_times_of_calls_count() -> None:
    older, newer = emit(1, 0, 5, "marked"), emit(2, 4, 9, *BOTH)

    beside = judge(models.Versions(), [older, newer])
    before = judge(models.Versions(), [older, emit(2, 6, 9, *BOTH)])

    assert (beside.verdict, before.verdict) == (Verdict.LINEARIZABLE, Verdict.NOT_LINEARIZABLE)


def test_a_search_that_takes_too_long_is_told_from_an_order_that_there_is_not() -> None:
    lost = [did("deliver", 0, None, body=str(number)) for number in range(9)]
    ops = [*lost, did("look", 1, 2, "body", "of nobody")]

    assert judge(models.Deliveries(), ops, looks_max=50).verdict is Verdict.UNDECIDED
    assert judge(models.Deliveries(), ops).verdict is Verdict.NOT_LINEARIZABLE


def test_a_campaign_has_every_workload_under_every_nemesis() -> None:
    chosen = tool.cells(0, 500, NEMESES, list(WORKLOADS))

    assert len({number for number, _, _ in chosen}) == 500
    assert len({(nemesis, workload) for _, nemesis, workload in chosen}) == len(NEMESES) * len(WORKLOADS)
    assert tool.cells(137, 1, NEMESES, list(WORKLOADS)) == chosen[137:138]


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A folder with a short name, since sockets have short ones; what is kept goes elsewhere.

    A history of a commit has some thirty calls.
    """
    monkeypatch.setattr(counters, "FOLDER", tmp_path / "kept")
    for workload in WORKLOADS.values():
        monkeypatch.setattr(workload, "calls", 5)
    with tempfile.TemporaryDirectory(prefix="onceward-h-") as folder:
        yield Path(folder)


def made(home: Path, store: str, nemesis: str, names: list[str], server: PostgresAddress | None) -> None:
    findings = tool.Findings(1, store)
    tool.run(findings, [(number, nemesis, name) for number, name in enumerate(names)], home / nemesis, server)

    assert findings.violations == []
    assert findings.counts["histories"] == len(names)


def test_histories_of_every_workload_with_kills_on_sqlite(home: Path) -> None:
    made(home, "sqlite", "kill", [*WORKLOADS, "leases", "verbs", "accepts"], None)


def test_histories_of_every_workload_with_lost_replies_on_postgres(
    home: Path, postgres_server: PostgresAddress
) -> None:
    made(home, "postgres", "lost", [*WORKLOADS, "keys", "waits", "promises"], postgres_server)


def test_a_planted_fault_is_found_and_its_history_can_be_judged_again(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    findings = tool.Findings(1, "sqlite", "version-forgotten")
    tool.run(findings, [(0, "none", "versions")], home / "planted")
    (kept, *_) = sorted(counters.FOLDER.iterdir())

    assert "no order" in findings.violations[0]
    assert "--workload versions --from 0 --histories 1 --plant version-forgotten" in capsys.readouterr().err
    assert tool.recheck(kept).verdict is Verdict.NOT_LINEARIZABLE
    assert tool.main(["--recheck", str(kept)]) == 1
