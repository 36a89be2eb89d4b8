"""An empty database of each kind for every check of the suite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("onceward.testing.store_checks", "onceward.testing.store_scene")

from onceward.testing.store_suite import StoreFactory  # noqa: E402 - rewritten first
from tests.stores.factories import SqliteFile, SqliteMemory  # noqa: E402


@pytest.fixture(params=["sqlite-file", "sqlite-memory"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreFactory]:
    """An empty database of each kind."""
    is_file = request.param == "sqlite-file"
    factory = SqliteFile(tmp_path / "onceward.db") if is_file else SqliteMemory()
    yield factory
    factory.close()
