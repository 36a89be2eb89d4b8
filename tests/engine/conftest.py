"""Fixtures of the library inside a run: a store of each kind, whose promises hold when a test ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from onceward.testing.invariants import check_invariants
from tests.engine.running import open_store
from tests.recycled import migrated_file

STORES = ("sqlite", "postgres")


@pytest.fixture(params=STORES)
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty store, of each kind in turn; its invariants are checked afterwards."""
    if request.param == "postgres":
        url = str(request.getfixturevalue("postgres_store"))
    else:
        url = migrated_file(tmp_path / "store.db")
    yield url
    assert broken_promises(url) == []


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """The URL of an empty SQLite store, for what no store decides."""
    return migrated_file(tmp_path / "store.db")


def broken_promises(url: str) -> list[str]:
    with open_store(url) as store:
        return [str(violation) for violation in check_invariants(store)]
