"""Fixtures of the adapters: a store of each kind, whose promises hold when a test ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.conftest import STORES, broken_promises
from tests.recycled import migrated_file


@pytest.fixture(params=STORES)
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty store, of each kind in turn; its invariants are checked afterwards."""
    if request.param == "postgres":
        url = str(request.getfixturevalue("postgres_store"))
    else:
        url = migrated_file(tmp_path / "store.db")
    yield url
    assert broken_promises(url) == []
