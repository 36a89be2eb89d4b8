"""A process dies between an effect and its save: what was looked for first is there once."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from tests.lifecycle.checks import check
from tests.lifecycle.procs import Nursery
from tests.lifecycle.scenarios import N
from tests.lifecycle.shop import Shop


@pytest.mark.parametrize(("nth", "tickets", "payments"), [(1, 1, 1), (2, 1, 2)])
def test_a_kill_between_the_effect_and_the_save(
    nursery: Nursery, nth: int, tickets: int, payments: int
) -> None:
    """The payment, which nobody looks for, is made twice, both times with one key."""
    settings: dict[str, Any] = {} if nursery.is_sqlite else {"instance": "shop"}
    first = nursery.fork("ensured", failpoint=f"step.after_body:kill:{nth}", **settings)
    assert first.wait() == -signal.SIGKILL, nursery.logs()

    assert nursery.fork("ensured", **settings).wait() == 0, nursery.logs()

    made = Shop("sqlite:///:memory:", nursery.ledger).made()
    assert [what for what, _ in made] == [f"ticket-{N}"] * tickets + [f"payment-{N}"] * payments
    assert len(set(made)) == 2
    assert all(key.startswith("ow_") for _, key in made)
    check(nursery.store, nursery.ledger, kills=1, width=1)
