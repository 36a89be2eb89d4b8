"""Fixtures of the attacks: a site on each kind of store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attack.site import Site
from tests.recycled import migrated_file

EVERY = {"test_ambiguous": 3, "test_branches": 11, "test_operators": 5, "test_zombie": 2, "test_shutdown": 2}
"""Of which modules a commit takes every so many cases; a campaign takes all of them."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if os.environ.get("ONCEWARD_TEST_TIER") == "campaign" or len(items) < 100:
        return
    seen: dict[str, int] = {}
    left_out = []
    for item in list(items):
        module = item.path.stem
        if item.path.parent.name == "attack" and module in EVERY:
            number = seen[module] = seen.get(module, -1) + 1
            if number % EVERY[module]:
                left_out.append(item)
    if left_out:
        chosen = set(left_out)
        items[:] = [item for item in items if item not in chosen]
        config.hook.pytest_deselected(items=left_out)


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty store, of each kind in turn."""
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_store"))
    return migrated_file(tmp_path / "attack.db")


@pytest.fixture
def site(store: str, tmp_path: Path) -> Iterator[Site]:
    with Site(store, tmp_path) as site:
        yield site


@pytest.fixture
def sqlite_site(tmp_path: Path) -> Iterator[Site]:
    with Site(migrated_file(tmp_path / "attack.db"), tmp_path) as site:
        yield site


@pytest.fixture
def postgres_site(postgres_store: str, tmp_path: Path) -> Iterator[Site]:
    with Site(postgres_store, tmp_path) as site:
        yield site
