"""Fixtures of the attacks: a site on each kind of store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attack.site import Site


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty store, of each kind in turn."""
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_dsn"))
    return f"sqlite:///{tmp_path / 'attack.db'}"


@pytest.fixture
def site(store: str, tmp_path: Path) -> Iterator[Site]:
    with Site(store, tmp_path) as site:
        yield site


@pytest.fixture
def sqlite_site(tmp_path: Path) -> Iterator[Site]:
    with Site(f"sqlite:///{tmp_path / 'attack.db'}", tmp_path) as site:
        yield site


@pytest.fixture
def postgres_site(postgres_dsn: str, tmp_path: Path) -> Iterator[Site]:
    with Site(postgres_dsn, tmp_path) as site:
        yield site
