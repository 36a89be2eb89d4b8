"""A process dies, stops or fails at every failpoint of every story, and the story ends as it must."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from tests.lifecycle.checks import check
from tests.lifecycle.crash_cases import Case, cases
from tests.lifecycle.procs import Nursery
from tests.lifecycle.scenarios import SCENARIOS

SHORT = {"lease": "240ms"}
PAUSED_S = 0.4
PAUSED: dict[str, Any] = {"lease": "300ms"}


def _settings(nursery: Nursery, case: Case) -> dict[str, Any]:
    """Take over at once: by the lock file on SQLite, by the instance's name on PostgreSQL."""
    settings: dict[str, Any] = {} if nursery.is_sqlite else {"instance": "shop"}
    return settings | (SHORT if case.failpoint == "heartbeat.before_renew" else {})


@pytest.mark.parametrize(("store", "case"), cases("kill"), indirect=["store"])
def test_a_kill_at_every_failpoint(nursery: Nursery, case: Case) -> None:
    scenario, settings = SCENARIOS[case.scenario], _settings(nursery, case)
    first = nursery.fork(case.scenario, failpoint=case.armed, **settings)
    code = first.wait()
    assert code == -signal.SIGKILL or (code == 0 and case.nth > 1), nursery.logs()

    second = nursery.fork(case.scenario, **settings)

    assert second.wait() == 0, nursery.logs()
    check(nursery.store, nursery.ledger, kills=1, width=scenario.width, reopened=scenario.reopened)


@pytest.mark.parametrize(("store", "case"), cases("pause"), indirect=["store"])
def test_a_stopped_process_wakes_up_after_its_lease(nursery: Nursery, case: Case) -> None:
    """The zombie's writes are refused, and it goes on with other work."""
    scenario = SCENARIOS[case.scenario]
    first = nursery.fork(case.scenario, failpoint=case.armed, **PAUSED)
    if not first.wait_stopped():
        # The story was over before the first renewal: there is no zombie to judge.
        assert case.failpoint == "heartbeat.before_renew", nursery.logs()
        assert first.wait() == 0, nursery.logs()
        return

    second = nursery.fork(case.scenario, **PAUSED)
    # On SQLite it may have been stopped inside a transaction, with the file's only write lock.
    is_locked = nursery.is_sqlite and case.failpoint.endswith("before_commit")
    is_over = second.has_ended(PAUSED_S if is_locked else 3 if nursery.is_sqlite else 20)
    assert is_over or nursery.is_sqlite, nursery.logs()
    first.signal(signal.SIGCONT)

    assert [first.wait(), second.wait()] == [0, 0], nursery.logs()
    check(nursery.store, nursery.ledger, kills=1, width=scenario.width, reopened=scenario.reopened)


@pytest.mark.parametrize(("store", "case"), cases("raise"), indirect=["store"])
def test_a_failure_at_every_failpoint(nursery: Nursery, case: Case) -> None:
    scenario = SCENARIOS[case.scenario]

    process = nursery.fork(case.scenario, failpoint=case.armed, **_settings(nursery, case))

    assert process.wait() == 0, nursery.logs()
    check(nursery.store, nursery.ledger, kills=1, width=scenario.width, reopened=scenario.reopened)


@pytest.mark.parametrize(("store", "case"), cases("drop-reply"), indirect=["store"])
def test_a_lost_reply_at_every_commit(nursery: Nursery, case: Case) -> None:
    scenario = SCENARIOS[case.scenario]

    process = nursery.fork(case.scenario, failpoint=case.armed, **_settings(nursery, case))

    assert process.wait() == 0, nursery.logs()
    check(nursery.store, nursery.ledger, kills=0, width=scenario.width, reopened=scenario.reopened)
