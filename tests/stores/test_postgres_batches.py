"""How PostgreSQL takes a batch: one round trip, few statements, plans and rows that stay cheap."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import psycopg
import pytest

from onceward.core import errors
from onceward.core.model import StepRow
from onceward.core.ports import Accept, Advance, Batch, Claim, RunFilter
from onceward.core.states import RunState, StepState
from onceward.stores.postgres.connection import pins
from onceward.stores.postgres.statements import Statement
from onceward.stores.postgres.store import PostgresStore
from onceward.testing.store_scene import (
    LEASE_MS,
    WORKFLOWS,
    Process,
    accept,
    attempt_log,
    delivery,
    event,
    move,
    new_id,
    new_run,
    raised,
    step,
    together,
)
from tests.helpers import eventually
from tests.stores.factories import Postgres

pytestmark = pytest.mark.postgres

LOCKSTEP = 64
MEGABYTE = 1_000_000


@pytest.fixture
def stores(shared_database: str) -> Iterator[Postgres]:
    factory = Postgres(shared_database)
    yield factory
    factory.close()


def postgres(process: Process) -> PostgresStore:
    assert isinstance(process.store, PostgresStore)
    return process.store


def sent_by(store: PostgresStore, action: Callable[[], object], link: str = "_write_link") -> list[str]:
    """Give the kinds of messages that an action sends to the server on one of the store's connections."""
    session = getattr(store, link)._session
    assert session is not None
    with tempfile.TemporaryFile("w+") as file:
        session._pgconn.trace(file.fileno())
        action()
        session._pgconn.untrace()
        file.seek(0)
        lines = [line.rstrip("\n").split("\t") for line in file]
    return [fields[3] for fields in lines if fields[1:2] == ["F"]]


def everything(process: Process, number: int) -> Batch:
    """Give a batch that has every kind of commit in it."""
    now = process.stores.now
    runs = [process.start(f"evt_{number}_{kind}") for kind in ("save", "end", "sleep", "emit", "child")]
    parent = process.wait(process.start(f"evt_{number}_parent"))
    process.queue(f"evt_{number}_due")
    fact = event(f"evt_{number}_new")
    ends = move(
        runs[1],
        RunState.FAILED,
        now=now,
        log=attempt_log(runs[1], "failed", now=now),
        wakes_run_id=parent.run_id,
    )
    emit = accept(new_id("emit_"), "notify", source=f"run/{runs[3].run_id}")
    return Batch(
        new_id("batch_"),
        [Accept(fact, [new_run()], [delivery(fact)])],
        [
            process.advance(runs[0], step()),
            process.advance(runs[1], step(), becomes=ends),
            process.advance(runs[2], becomes=move(runs[2], RunState.SLEEPING, now=now, due_at=now + 9)),
            process.advance(runs[3], step(), accepts=[emit]),
            Advance(runs[4].run_id, 1, runs[4].fence),
        ],
        [Claim(10, WORKFLOWS, now)],
    )


# --- the pipeline ---------------------------------------------------------------------------------


def test_a_batch_is_one_round_trip_with_one_statement_for_each_kind(shared_database: str) -> None:
    """All together: begin, guard, nine kinds (notices too), the queue's lock, commit, who waits; one Sync."""
    stores = Postgres(shared_database, notify=False)
    process = Process(stores)
    process.store.apply("p1", 1, everything(process, 1))  # prepares the statements
    batch = everything(process, 2)

    sent = sent_by(postgres(process), lambda: process.store.apply("p1", 1, batch))

    assert sent.count("Sync") == 1
    assert sent.count("Execute") == 14
    assert sent.count("Parse") == 0
    stores.close()


def test_a_step_alone_is_four_statements(stores: Postgres) -> None:
    """What a lone run's commit costs: begin, guard, the step, commit."""
    process = Process(stores)
    run = process.start("evt_1")
    process.save(run, step("a"))

    sent = sent_by(postgres(process), lambda: process.save(run, step("b", seq=2)))

    assert (sent.count("Execute"), sent.count("Sync"), sent.count("Parse")) == (4, 1, 0)


def sent_to_take_over(stores: Postgres, runs: int) -> list[str]:
    """Give what taking over a process with so many runs sends."""
    dead, alive = Process(stores, "p1"), Process(stores, "p2")
    for begin in range(0, runs, 500):
        events = range(begin, min(runs, begin + 500))
        dead.accept(*(accept(f"evt_{number}", is_claimed=True) for number in events))
    stores.now += LEASE_MS + 1
    alive.heartbeat()
    sent = sent_by(
        postgres(alive),
        lambda: alive.store.take_over(stores.now, crash_limit=4, skip="p2"),
        "_control_link",
    )
    assert len(alive.store.dump("attempt")["attempt"]) == runs
    assert len(alive.claim(limit=10_000)) == runs
    stores.close()
    return sent


def test_thousands_of_runs_are_taken_over_with_the_statements_of_one(shared_database: str) -> None:
    """Set by set, not row by row."""
    one, many = (sent_to_take_over(Postgres(shared_database, notify=False), runs) for runs in (1, 3_000))

    assert one.count("Execute") > 1
    assert many.count("Execute") == one.count("Execute")


def test_a_hint_follows_the_commit_and_nobody_waits_for_it(stores: Postgres) -> None:
    """At most one a batch, in a transaction of its own; only where others may care."""
    process = Process(stores)
    store = postgres(process)
    runs = [process.start(f"evt_{number}") for number in range(3)]
    process.move(runs[0], RunState.COMPLETED)

    quiet = sent_by(store, lambda: process.save(runs[1], step()))
    loud = sent_by(store, lambda: process.move(runs[1], RunState.COMPLETED))

    assert quiet.count("Sync") == 1
    assert loud.count("Sync") == 2
    session = store._write_link._session
    assert session is not None
    assert session._hints == 1, "its reply is still unread"
    assert process.save(runs[2], step())
    assert session._hints == 0


def test_an_answer_to_losers_is_one_query_more(stores: Postgres) -> None:
    process = Process(stores)
    process.accept(*(accept(f"evt_{number}") for number in range(20)))

    sent = sent_by(postgres(process), lambda: process.accept(*(accept(f"evt_{n}") for n in range(20))))

    assert sent.count("Sync") == 2


def test_batches_larger_than_any_buffer_go_through(stores: Postgres) -> None:
    """Megabytes out and megabytes back in one pipeline; neither side waits for the other."""
    process = Process(stores)
    payload = json.dumps("x" * 100_000)
    process.accept(*(accept(f"evt_{number}", payload=payload) for number in range(80)))

    result = process.apply(
        accepts=[accept(f"more_{number}", payload=payload) for number in range(80)],
        claims=[Claim(100, WORKFLOWS, stores.now)],
    )

    assert len(result.claimed) == 100
    assert {len(claimed.event.payload or "") for claimed in result.claimed} == {len(payload)}


def test_two_emits_of_one_event_in_a_batch_are_refused_together(stores: Postgres) -> None:
    """Which of them is written would hang on the first one's fence; apart both are in order."""
    process = Process(stores)
    one, two = process.start("evt_1"), process.start("evt_2")
    emits = [
        process.advance(run, step(), accepts=[accept("order-7", "notify", source="emit/order.paid")])
        for run in (one, two)
    ]

    raised(errors.StoreError, lambda: process.apply(advances=emits))
    assert process.store.steps(one.run_id) == []

    assert process.apply(advances=emits[:1]).held == [True]
    assert process.apply(advances=emits[1:]).held == [True]
    assert len(process.store.runs(RunFilter(workflow="notify"))) == 1


def test_a_callers_accept_beats_an_emit_of_the_same_event(stores: Postgres) -> None:
    """One run, and the caller is told which."""
    process = Process(stores)
    run = process.start("evt_1")
    emit = accept("order-7", "notify", source="emit/order.paid")
    asked = accept("order-7", "notify", source="emit/order.paid")

    result = process.apply(accepts=[asked], advances=[process.advance(run, step(), accepts=[emit])])

    assert result.held == [True]
    assert result.accepted[0].runs == {"notify": asked.runs[0].run_id}
    assert len(process.store.runs(RunFilter(workflow="notify"))) == 1


def test_an_accept_that_names_a_run_but_no_fence_is_refused(stores: Postgres) -> None:
    process = Process(stores)
    run = process.start("evt_1")
    emit = accept("order-7", "notify", source="emit/order.paid")
    emit.by_run = run.run_id

    refused, accepted = process.accept(emit, accept("evt_2"))

    assert (refused.is_refused, accepted.is_refused) == (True, False)
    assert process.store.event("emit/order.paid", "order-7") is None


def test_a_step_that_comes_twice_in_an_advance_is_written_as_if_in_turn(stores: Postgres) -> None:
    """Its beginning from the first record, its outcome from the second, and an outcome stays."""
    process = Process(stores)
    run = process.start("evt_1")
    begun = step("charge", state="open", at=stores.now, inputs_hash="abc")
    ended = step("charge", at=stores.now + 5, attempt=2)
    late = step("charge", seq=9, state="failed")

    assert process.save(run, begun, ended, late)

    (found,) = process.store.steps(run.run_id)
    assert (found.state, found.seq, found.started_at, found.inputs_hash) == (
        StepState.DONE,
        1,
        stores.now,
        "abc",
    )


# --- plans ------------------------------------------------------------------------------------------

BATCH_STATEMENTS = (
    "guard",
    "fences",
    "save_steps",
    "accept",
    "deliver",
    "lock_queue",
    "move_runs",
    "wake",
    "log_attempts",
    "claim",
    "notify",
    "heartbeat",
)
"""What is prepared once, perhaps while every table is empty, and then runs for weeks."""

JUDGING_STATEMENTS = (
    "raise_versions",
    "start_judged",
    "lock_queue_joined",
    "free_keys",
    "drop_unclaimed",
    "skipped_of",
)
WAIT_STATEMENTS = (
    "open_waits",
    "end_some_waits",
    "end_waits",
    "make_promises",
    "waits_for",
    "insert_offers",
    "wake_runs",
    "offers",
    "promises",
    "settle_promise",
)
KEYED_STATEMENTS = (
    *BATCH_STATEMENTS,
    *JUDGING_STATEMENTS,
    *WAIT_STATEMENTS,
    "histories",
    "states",
    "lose_runs",
    "requeue_lost",
    "leave_queue",
)


def plan_of(dsn: str, made: Statement) -> list[dict[str, Any]]:
    """Give the nodes of the plan that a session of ours keeps for a statement."""
    with psycopg.connect(dsn, autocommit=True, prepare_threshold=None) as connection:
        connection.execute(pins(10_000, 150000, is_hot=True, is_local=False).sql)
        connection.execute(b"prepare made as " + made.sql)
        arguments = ", ".join("null" for _ in made.parameters)
        row = connection.execute(f"explain (format json) execute made({arguments})".encode()).fetchone()
    assert row is not None
    return list(nodes(row[0][0]["Plan"]))


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from nodes(child)


def walks(plan: list[dict[str, Any]]) -> list[str]:
    """Give the parts of a plan that go through a table or a whole namespace of an index.

    Of registrations a namespace has one row.
    """
    found = []
    for node in plan:
        kind = node["Node Type"]
        if kind == "Seq Scan" or "Bitmap" in kind:
            found.append(f"{kind} on {node.get('Relation Name')}")
        if kind.startswith("Index"):
            columns = set(re.findall(r"\(?(\w+) (?:=|<=)", node.get("Index Cond", "")))
            if not columns - {"namespace"} and node["Index Name"] != "registry_pkey":
                found.append(f"{node['Index Name']}: {node.get('Index Cond')}")
    return found


@pytest.mark.parametrize("statistics", ["none", "of empty tables", "of few rows", "fresh"])
def test_plans_do_not_hang_on_statistics(stores: Postgres, statistics: str) -> None:
    """Whatever the planner believes, every row is looked up by its whole key."""
    process = Process(stores)
    if statistics == "of empty tables":
        stores.execute("analyze")
    if statistics in ("of few rows", "fresh"):
        for number in range(3):
            run = process.start(f"evt_{number}")
            process.save(run, step(), becomes=move(run, RunState.COMPLETED, now=stores.now))
        stores.execute("analyze")
    if statistics == "fresh":
        process.accept(*(accept(f"many_{number}") for number in range(2_000)))
        stores.execute("analyze")

    found = {
        name: walks(plan_of(stores.dsn, postgres(process)._statements[name])) for name in KEYED_STATEMENTS
    }

    # The few processes are gone through to learn whether there is another one.
    allowed = {name: [] if name != "notify" else found["notify"] for name in KEYED_STATEMENTS}
    assert found == allowed


def test_the_queue_is_claimed_in_the_order_of_its_index(stores: Postgres) -> None:
    """20,000 sleepers do not make a claim look through them."""
    process = Process(stores)
    plan = plan_of(stores.dsn, postgres(process)._statements["claim"])

    due = next(node for node in plan if node.get("Index Name") == "queue_due")
    assert "due_at" in due["Index Cond"]


# --- rows ---------------------------------------------------------------------------------------------


def three_steps_in_lockstep(process: Process, count: int, *, has_keys: bool = False) -> None:
    """Carry runs through three steps together, a commit for each, the last with the end."""
    now = process.stores.now
    wanted = [accept(new_id("evt_"), is_claimed=True, payload=json.dumps("x" * 300)) for _ in range(count)]
    for made in wanted if has_keys else ():
        made.runs = [msgspec.structs.replace(made.runs[0], key=made.event.id, once="active")]
    process.accept(*wanted)
    run_ids = [made.runs[0].run_id for made in wanted]
    for number in (1, 2, 3):
        record = StepRow(f"step {number}", "", 1, number, "run", StepState.DONE, 1, now, now, output="null")
        advances = [Advance(run_id, 1, 1, [record]) for run_id in run_ids]
        if number == 3:
            for advance in advances:
                run = process.read(advance.run_id)
                advance.move = move(run, RunState.COMPLETED, now=now)
        process.apply(advances=advances)


@pytest.mark.parametrize("has_keys", [False, True])
def test_updates_of_runs_stay_in_their_page(stores: Postgres, has_keys: bool) -> None:
    """HOT, all of them, also where all runs of a page end in one transaction, and beside an index of keys."""
    process = Process(stores)
    for _ in range(5):
        three_steps_in_lockstep(process, LOCKSTEP, has_keys=has_keys)
    process.store.close()  # a session tells its counts at its end

    def updates() -> tuple[int, int] | None:
        with psycopg.connect(stores.dsn) as connection:
            row = connection.execute(
                "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where schemaname = %s and relname = 'run'",
                [stores.schema_name],
            ).fetchone()
        assert row is not None
        return row if row[0] >= 5 * LOCKSTEP else None

    assert eventually(updates) == (5 * LOCKSTEP, 5 * LOCKSTEP)


# --- many at once ---------------------------------------------------------------------------------------


def test_processes_that_wake_and_end_each_others_runs_never_deadlock(stores: Postgres) -> None:
    """Each batch gives up parents and ends children of the other's parents; rows are taken in one order."""
    sides = [Process(stores, "p1"), Process(stores, "p2")]
    rounds, pairs = 15, 6

    def scene(number: int) -> list[list[tuple[Any, Any]]]:
        made: list[list[tuple[Any, Any]]] = [[], []]
        for pair in range(pairs):
            for side, other in ((0, 1), (1, 0)):
                parent = sides[side].start(f"parent_{number}_{pair}_{side}")
                child = sides[other].start(f"child_{number}_{pair}_{side}")
                made[side].append(("wait", parent))
                made[other].append((parent, child))
        return made

    def batch(process: Process, parts: list[tuple[Any, Any]]) -> list[bool]:
        now = stores.now
        advances = []
        for what, run in parts:
            if what == "wait":
                becomes = move(run, RunState.WAITING, now=now, due_at=now + 10**9)
            else:
                becomes = move(run, RunState.COMPLETED, now=now, wakes_run_id=what.run_id)
            advances.append(process.advance(run, becomes=becomes))
        return process.apply(advances=advances).held

    parents = []
    for number in range(rounds):
        parts = scene(number)
        parents += [run for what, run in parts[0] + parts[1] if what == "wait"]
        held = together(
            lambda parts=parts: batch(sides[0], parts[0]),  # type: ignore[misc]
            lambda parts=parts: batch(sides[1], parts[1]),  # type: ignore[misc]
        )
        assert all(held[0] + held[1])

    with psycopg.connect(stores.dsn) as connection:
        row = connection.execute(
            "select deadlocks from pg_stat_database where datname = current_database()"
        ).fetchone()
    assert row == (0,)
    claimed = {run.run_id for run in sides[0].claim(limit=1_000)}
    assert {run.run_id for run in parents} == claimed
