"""Every store does what the suite says, check by check, and its rows stay sound meanwhile."""

from __future__ import annotations

import pytest

from onceward.testing import check_invariants
from onceward.testing.store_suite import CHECKS, Check, StoreFactory

UNSOUND = {"damage", "migrations", "values"}
"""Topics whose checks write on purpose what no engine would."""


@pytest.mark.parametrize("check", CHECKS, ids=str)
def test_store(check: Check, stores: StoreFactory) -> None:
    check(stores)

    if check.topic not in UNSOUND:
        for namespace in ("default", "other"):
            assert check_invariants(stores.open(namespace)) == []
