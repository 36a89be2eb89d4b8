"""A process dies, stops or fails at every failpoint of every story, and the story ends as it must."""

from __future__ import annotations

import pytest

from tests.lifecycle.checks import check
from tests.lifecycle.crash_cases import COMMITS, Case, cases
from tests.lifecycle.procs import Nursery
from tests.lifecycle.scenarios import SCENARIOS

SHORT = {"lease": "240ms"}


def _settings(case: Case) -> dict[str, str]:
    return SHORT if case.failpoint == "heartbeat.before_renew" else {}


@pytest.mark.parametrize("case", cases("kill", range(1, 2)), ids=str)
def test_a_kill_at_every_failpoint(nursery: Nursery, case: Case) -> None:
    scenario = SCENARIOS[case.scenario]
    first = nursery.fork(case.scenario, failpoint=case.armed, **_settings(case))
    code = first.wait()
    assert code == -9 or (code == 0 and case.nth > 1), nursery.logs()

    second = nursery.fork(case.scenario)

    assert second.wait() == 0, nursery.logs()
    check(nursery.store, nursery.ledger, kills=1, width=scenario.width, reopened=scenario.reopened)


@pytest.mark.parametrize("case", cases("raise", range(1, 2)), ids=str)
def test_a_failure_at_every_failpoint(nursery: Nursery, case: Case) -> None:
    scenario = SCENARIOS[case.scenario]

    process = nursery.fork(case.scenario, failpoint=case.armed, **_settings(case))

    assert process.wait() == 0, nursery.logs()
    check(nursery.store, nursery.ledger, kills=1, width=scenario.width, reopened=scenario.reopened)


@pytest.mark.parametrize("case", cases("drop-reply", range(1, 2), only=COMMITS), ids=str)
def test_a_lost_reply_at_every_commit(nursery: Nursery, case: Case) -> None:
    scenario = SCENARIOS[case.scenario]

    process = nursery.fork(case.scenario, failpoint=case.armed, **_settings(case))

    assert process.wait() == 0, nursery.logs()
    check(nursery.store, nursery.ledger, kills=0, width=scenario.width, reopened=scenario.reopened)
