"""What may change from one look to the next does; what may not is found by number and run."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceward.core.states import RunState
from onceward.testing import History
from onceward.testing.store_scene import (
    LEASE_MS,
    Process,
    accept,
    attempt_log,
    move,
    restarted,
    retried,
    steer,
    step,
)
from tests.stores.factories import SqliteFile
from tests.testing.healthy import Healthy

PLANTED = [
    ("I4", "completed", "update {t}step set output = '2' where run_id = '{completed}' and name = 'load'"),
    ("I4", "completed", "update {t}step set state = 'open', ended_at = null where run_id = '{completed}'"),
    ("I4", "failed", "update {t}step set error = 'other' where run_id = '{failed}' and name = 'ping'"),
    ("I4", "completed", "delete from {t}step where run_id = '{completed}'"),
    ("I5", "emitter", "update {t}run set fence = fence - 1 where run_id = '{emitter}'"),
    ("I6", "stripe evt_done", "update {t}event set type = 'refunded' where id = 'evt_done'"),
    ("I6", "stripe evt_done", "update {t}event set payload = '2' where id = 'evt_done'"),
    ("I6", "stripe evt_done", "delete from {t}event where id = 'evt_done'"),
    ("I6", "stripe evt_delivered", "delete from {t}delivery"),
    ("I6", "stripe evt_delivered", "update {t}delivery set outcome = 'clash'"),
    ("I6", "queued", "delete from {t}run where run_id = '{queued}'"),
    ("I9", "lost", "update {t}attempt set outcome = 'failed' where run_id = '{lost}'"),
    ("I9", "lost", "delete from {t}attempt where run_id = '{lost}'"),
    ("I9", "restarted", "update {t}audit set actor = 'eve'"),
    ("I9", "lost", "update {t}run set attempt = 1 where run_id = '{lost}'"),
    ("I9", "restarted", "update {t}run set generation = 1 where run_id = '{restarted}'"),
    ("I9", "completed", "update {t}run set output = '2' where run_id = '{completed}'"),
    ("I9", "completed", "update {t}run set state = 'queued' where run_id = '{completed}'"),
    ("I9", "queued", "update {t}run set generation = 2 where run_id = '{queued}'"),
    ("I14", "sleeper", "update {t}step set wake_at = wake_at + 1 where run_id = '{sleeper}'"),
    ("I17", "cancelling", "update {t}run set state = 'queued' where run_id = '{cancelling}'"),
    ("I17", "cancelling", "update {t}run set state = 'completed' where run_id = '{cancelling}'"),
    ("I19", "restarted", "update {t}step set output = '2' where run_id = '{restarted}'"),
]  # fmt: skip


@pytest.mark.parametrize(("invariant", "subject", "statement"), PLANTED)
def test_a_planted_change_is_found(healthy: Healthy, invariant: str, subject: str, statement: str) -> None:
    history = History()
    assert history.observe(healthy.store) == []
    assert history.observe(healthy.store) == []
    names = {name: run.run_id for name, run in vars(healthy).items() if hasattr(run, "run_id")}

    healthy.execute(statement.format(t="{t}", **names))
    found = history.observe(healthy.store)

    blamed = getattr(healthy, subject).run_id if hasattr(healthy, subject) else subject
    assert any(v.invariant == invariant and blamed in v.subject and v.sentence for v in found), found
    assert history.observe(healthy.store) == [], "told once"


def test_a_payload_that_retention_prunes_is_no_violation(healthy: Healthy) -> None:
    history = History()
    history.observe(healthy.store)

    healthy.execute("update {t}event set payload = null where id = 'evt_done'")
    healthy.execute("update {t}delivery set body = null, request = null")

    assert history.observe(healthy.store) == []


def test_a_sleep_that_is_cancelled_may_lose_its_deadline(healthy: Healthy) -> None:
    history = History()
    history.observe(healthy.store)

    healthy.execute(
        "update {t}step set state = 'cancelled', ended_at = 1, wake_at = null where kind = 'sleep' and state = 'open'"
    )

    assert history.observe(healthy.store) == []


def test_a_whole_life_is_no_violation(tmp_path: Path) -> None:
    """Accept, sleep, fail, retry, crash, restart, cancel: each step is a look, and none is found at fault."""
    history, stores = History(), SqliteFile(tmp_path / "onceward.db")
    process = Process(stores)

    def look() -> None:
        assert history.observe(process.store) == []
        stores.now += 10

    look()
    run = process.start("evt_1")
    look()
    process.save(run, step("nap", kind="sleep", state="open", at=stores.now, wake_at=stores.now + 5))
    process.move(run, RunState.SLEEPING, due_at=stores.now + 5)
    look()
    (run,) = process.claim()
    process.save(run, step("nap", kind="sleep", seq=2, at=stores.now, wake_at=stores.now - 5, output=None))
    look()
    process.save(run, step("charge", seq=3, state="failed", at=stores.now))
    look()
    log = attempt_log(run, "failed", now=stores.now)
    opened = step("charge", seq=3, state="open", at=stores.now, tries=0)
    backoff = move(run, RunState.BACKOFF, now=stores.now, due_at=stores.now, attempt=2, log=log)
    process.save(run, opened, becomes=backoff)
    look()
    (run,) = process.claim()
    charged = step("charge", seq=4, state="failed", at=stores.now, attempt=2)
    process.save(run, charged)
    run = process.move(run, RunState.FAILED, log=attempt_log(run, "failed", now=stores.now))
    look()
    again = retried(run, now=stores.now, reopen=[charged.key])
    again.move.log = None
    assert process.store.steer(again)
    look()
    process.claim()
    stores.now += LEASE_MS + 1
    rescuer = Process(stores, "p2")
    process.store.take_over(stores.now, crash_limit=4, skip="p2")
    look()
    (run,) = rescuer.claim()
    rescuer.save(run, step("charge", seq=5, at=stores.now, attempt=4))
    run = rescuer.move(run, RunState.COMPLETED)
    look()
    assert process.store.steer(restarted(run, now=stores.now))
    look()
    (run,) = rescuer.claim()
    becomes = move(run, RunState.CANCELLING, now=stores.now, due_at=stores.now)
    assert process.store.steer(steer(run, "cancel", becomes))
    look()
    (run,) = rescuer.claim()
    rescuer.move(run, RunState.CANCELLED)
    rescuer.accept(accept("evt_1"), accept("evt_2"))
    look()
    stores.close()
    assert history.looks == 13
