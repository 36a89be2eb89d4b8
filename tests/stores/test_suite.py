"""Every store does what the suite says, check by check."""

from __future__ import annotations

import pytest

from onceward.testing.store_suite import CHECKS, Check, StoreFactory


@pytest.mark.parametrize("check", CHECKS, ids=str)
def test_store(check: Check, stores: StoreFactory) -> None:
    check(stores)
