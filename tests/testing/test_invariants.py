"""A sound store shows no violation; every planted one is found by its number and its subject."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from onceward.core.states import RunState, StepState
from onceward.testing import Violation, check_invariants
from onceward.testing.invariants import COLUMNS, STEP_COLUMNS
from onceward.testing.store_scene import NEVER, Process, accept, step
from tests.stores.factories import SqliteFile
from tests.testing.healthy import Healthy

BUDGET_SECONDS = 0.002

# Invariant, the run (or text) that is blamed, and what a person or a bug did to the rows.
PLANTED = [
    ("I1", "failed", "drop index {t}run_identity;update {t}run set event_id = 'evt_failed' where run_id = '{failed}' or run_id = '{completed}'"),
    ("I1", "stripe evt_old", "update {t}skipped set newest = '000000000000000000001'"),
    ("I1", "stripe evt_old", "update {t}version set version = '000000000000000000001'"),
    ("I1", "stripe evt_queued", "update {t}skipped set event_id = 'evt_queued'"),
    ("I1", "queued", "update {t}holder set run_id = '{queued}'"),
    ("I1", "queued", "update {t}run set key = 'order-7' where run_id = '{queued}'"),
    ("I8", "holder", "update {t}run set state = 'failed', ended_at = 1, error = '1' where run_id = '{holder}'"),
    ("I8", "holder", "delete from {t}waiter"),
    ("I8", "waiter", "delete from {t}holder"),
    ("I8", "waiter", "update {t}run set state = 'cancelled', ended_at = 1 where run_id = '{waiter}'"),
    ("I6", "stripe nowhere", "update {t}skipped set event_id = 'nowhere'"),
    ("I6", "stripe nowhere", "update {t}version set event_id = 'nowhere'"),
    ("I2", "stripe evt_delivered", "update {t}delivery set outcome = 'accepted'"),
    ("I2", "stripe evt_other", "update {t}delivery set event_id = 'evt_other' where outcome = 'duplicate'"),
    ("I4", "completed", "update {t}step set ended_at = null where run_id = '{completed}' and name = 'load'"),
    ("I4", "completed", "update {t}step set error = null where run_id = '{completed}' and name = 'ping'"),
    ("I4", "completed", "update {t}step set error = 'x' where run_id = '{completed}' and name = 'load'"),
    ("I4", "sleeper", "update {t}step set output = 'x' where run_id = '{sleeper}'"),
    ("I4", "completed", "update {t}step set seq = 1 where run_id = '{completed}'"),
    ("I4", "no such run", "update {t}step set run_id = 'no such run' where run_id = '{failed}'"),
    ("I12", "waiting", "update {t}step set output = (select output from {t}step where name = 'first' and run_id = '{waiting}') where name = 'late'"),
    ("I12", "waiting", "update {t}step set wake_at = 1 where name = 'first' and run_id = '{waiting}'"),
    ("I12", "waiting", "update {t}event set received_at = received_at + 1 where id = 'evt_waiting'"),
    ("I12", "waiting", "delete from {t}wait"),
    ("I12", "waiting", "update {t}step set output = null where name = 'first' and run_id = '{waiting}';update {t}process set lease_until = lease_until + 100000"),
    ("I13", "waiting", "update {t}wait set generation = 2"),
    ("I13", "completed", "insert into {t}wait select since_at, until_at, 1, ordinal, part, namespace, '{completed}', name, item, type, subject, source, condition from {t}wait"),
    ("I13", "waiting", "update {t}step set wake_at = wake_at + 1 where name = 'late' and run_id = '{waiting}'"),
    ("I5", "completed", "update {t}run set fence = 0 where run_id = '{completed}'"),
    ("I5", "emitter", "update {t}run set fence = 0, started_at = null where run_id = '{emitter}'"),
    ("I5", "p1", "delete from {t}committer"),
    ("I5", "p1", "update {t}committer set epoch = 7"),
    ("I6", "completed", "delete from {t}event where id = 'evt_done'"),
    ("I8", "queued", "delete from {t}queue where run_id = '{queued}'"),
    ("I8", "completed", "insert into {t}queue select namespace, '{completed}', workflow, due_at, null, 0, 0 from {t}queue where run_id = '{queued}'"),
    ("I8", "held", "insert into {t}queue select namespace, '{held}', workflow, due_at, null, 0, 0 from {t}queue where run_id = '{queued}'"),
    ("I8", "emitter", "update {t}queue set process_id = 'p9' where run_id = '{emitter}'"),
    ("I8", "emitter", "update {t}queue set process_id = null where run_id = '{emitter}'"),
    ("I8", "queued", "update {t}queue set workflow = 'refund' where run_id = '{queued}'"),
    ("I8", "sleeper", "update {t}queue set due_at = {never} where run_id = '{sleeper}'"),
    ("I8", "parent", "update {t}step set state = 'cut', ended_at = 1 where run_id = '{parent}'"),
    ("I8", "no such run", "update {t}queue set run_id = 'no such run' where run_id = '{queued}'"),
    ("I8", "no such run", "update {t}attempt set run_id = 'no such run' where run_id = '{failed}'"),
    ("I8", "no such run", "update {t}audit set run_id = 'no such run' where run_id = '{cancelling}'"),
    ("I9", "completed", "update {t}run set ended_at = null where run_id = '{completed}'"),
    ("I9", "completed", "update {t}run set problem_at = 1 where run_id = '{completed}'"),
    ("I9", "queued", "update {t}run set output = '1' where run_id = '{queued}'"),
    ("I9", "held", "update {t}run set reason = null where run_id = '{held}'"),
    ("I9", "failed", "update {t}run set error = null where run_id = '{failed}'"),
    ("I9", "cancelling", "update {t}run set dismissed_at = 1 where run_id = '{cancelling}'"),
    ("I9", "queued", "update {t}run set attempt = 0 where run_id = '{queued}'"),
    ("I9", "restarted", "delete from {t}audit where run_id = '{restarted}'"),
    ("I10", "emitter", "delete from {t}step where run_id = '{emitter}'"),
    ("I10", "emitter", "update {t}step set ordinal = 2 where run_id = '{emitter}'"),
    ("I10", "emitter", "update {t}event set id = 'charge/1' where source = 'run/{emitter}'"),
    ("I10", "child", "update {t}run set parent_run_id = 'no such run' where run_id = '{child}'"),
    ("I10", "child", "update {t}run set parent_generation = 2 where run_id = '{child}'"),
    ("I10", "child", "update {t}step set child_run_id = '{queued}' where run_id = '{parent}'"),
    ("I10", "parent", "update {t}step set child_run_id = 'no such run' where run_id = '{parent}'"),
    # Where retention took something, what is missing of a run that is not over is missing all the same.
    ("I10", "parent", "update {t}event set payload = null where id = 'evt_done';update {t}step set child_run_id = 'run_gone' where run_id = '{parent}'"),
    ("I10", "child", "update {t}event set payload = null where id = 'evt_done';update {t}run set parent_run_id = 'run_gone' where run_id = '{child}'"),
    ("I11", "caller", "update {t}run set output = '2' where run_id = '{called}'"),
    ("I11", "caller", "update {t}run set state = 'cancelled', output = null where run_id = '{called}'"),
    ("I11", "caller", "update {t}step set state = 'failed', error = '1', output = null where run_id = '{caller}'"),
    ("I12", "parent", "update {t}run set state = 'completed', ended_at = created_at where run_id = '{child}'"),
    ("I14", "rested", "update {t}step set ended_at = wake_at - 1 where run_id = '{rested}'"),
    ("I14", "rested", "update {t}step set wake_at = null where run_id = '{rested}'"),
    ("I15", "completed", "update {t}step set tries = 0 where run_id = '{completed}'"),
    ("I15", "completed", "update {t}step set attempt = 2 where run_id = '{completed}'"),
    ("I15", "lost", "delete from {t}attempt where run_id = '{lost}'"),
    ("I15", "lost", "update {t}attempt set attempt = 2 where run_id = '{lost}'"),
    ("I15", "queued", "update {t}run set attempt = 3 where run_id = '{queued}'"),
    ("I16", "queued", "update {t}run set crashes = 4 where run_id = '{queued}'"),
    ("I16", "queued", "update {t}run set crashes = 2 where run_id = '{queued}'"),
    ("I16", "queued", "update {t}queue set is_suspect = 1 where run_id = '{queued}'"),
    ("I19", "replayed", "update {t}run set replay_of = null where run_id = '{replayed}'"),
    ("I19", "replayed", "update {t}run set replay_of = 'no such run' where run_id = '{replayed}'"),
    ("I19", "replayed", "update {t}run set replay_of = '{failed}' where run_id = '{replayed}'"),
    ("I19", "queued", "update {t}run set replay_id = 'x' where run_id = '{queued}'"),
    ("I19", "completed", "update {t}step set generation = 2 where run_id = '{completed}'"),
    ("I19", "lost", "update {t}attempt set generation = 2 where run_id = '{lost}'"),
]  # fmt: skip


def _planted(healthy: Healthy, statements: str) -> list[Violation]:
    names = {name: run.run_id for name, run in vars(healthy).items() if hasattr(run, "run_id")}
    for statement in statements.split(";"):
        healthy.execute(statement.format(t="{t}", never=NEVER, **names))
    return check_invariants(healthy.store)


def test_a_sound_store_shows_no_violation(healthy: Healthy) -> None:
    assert check_invariants(healthy.store) == []
    states = {run["state"] for run in healthy.store.dump("run")["run"]}
    assert states >= set(RunState) - {RunState.BACKOFF, RunState.CANCELLED}


@pytest.mark.parametrize(("invariant", "subject", "statements"), PLANTED)
def test_a_planted_violation_is_found(
    healthy: Healthy, invariant: str, subject: str, statements: str
) -> None:
    found = _planted(healthy, statements)

    blamed = getattr(healthy, subject).run_id if hasattr(healthy, subject) else subject
    ours = [
        violation for violation in found if violation.invariant == invariant and blamed in violation.subject
    ]
    assert ours, f"not found among {[str(violation) for violation in found]}"
    assert all(violation.sentence and str(violation).startswith(f"{invariant} ") for violation in ours)


def test_every_rule_has_a_planted_violation() -> None:
    claimed = {
        "I1",
        "I2",
        "I4",
        "I5",
        "I6",
        "I8",
        "I9",
        "I10",
        "I11",
        "I12",
        "I13",
        "I14",
        "I15",
        "I16",
        "I19",
    }
    assert {invariant for invariant, _, _ in PLANTED} == claimed


def test_every_state_has_its_columns() -> None:
    assert set(COLUMNS) == set(RunState)
    assert set(STEP_COLUMNS) == set(StepState)


def test_a_store_without_unique_keys_shows_doubled_rows(healthy: Healthy) -> None:
    for table in ("event", "step"):
        healthy.execute(f"create table copy as select * from {{t}}{table}")
        healthy.execute(f"drop table {{t}}{table}")
        healthy.execute(f"create table {{t}}{table} as select * from copy")
        healthy.execute(f"insert into {{t}}{table} select * from copy")
        healthy.execute("drop table copy")

    found = check_invariants(healthy.store)

    assert any(v.invariant == "I1" and "stored twice" in v.sentence for v in found)
    assert any(v.invariant == "I4" and "two records" in v.sentence for v in found)


def test_rows_that_cannot_be_compared_are_reported(healthy: Healthy) -> None:
    found = _planted(healthy, "update {t}run set attempt = 'many' where run_id = '{queued}'")

    assert any("cannot be compared" in violation.sentence for violation in found)


def test_rows_of_two_namespaces_are_reported(healthy: Healthy) -> None:
    class Leaky(SqliteFile):
        def dump(self, *tables: str) -> dict[str, list[dict[str, object]]]:
            found = healthy.store.dump(*tables)
            found["run"][0]["namespace"] = "other"
            return found

    found = check_invariants(Leaky(healthy.path))  # type: ignore[arg-type]

    assert [violation.invariant for violation in found] == ["I23"]


def test_what_another_namespace_has_is_not_looked_at(healthy: Healthy) -> None:
    other = Process(healthy, namespace="other")
    other.accept(accept("evt_1"))

    healthy.execute("delete from {t}queue where namespace = 'other'")

    assert check_invariants(healthy.store) == []
    assert [violation.invariant for violation in check_invariants(other.store)] == ["I8"]


def test_twenty_runs_are_checked_in_two_milliseconds(tmp_path: Path) -> None:
    factory = SqliteFile(tmp_path / "onceward.db")
    process = Process(factory)
    for number in range(20):
        run = process.start(f"evt_{number}")
        process.save(run, *(step(f"s{seq}", seq=seq) for seq in range(1, 4)))
    times = []
    for _ in range(30):
        begun = time.perf_counter()
        assert check_invariants(process.store) == []
        times.append(time.perf_counter() - begun)
    factory.close()

    assert min(times) < BUDGET_SECONDS
