"""A fresh store of each kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from onceward.testing.servers import PostgresServer


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_dsn"))
    return f"sqlite:///{tmp_path / 'store.db'}"


@pytest.fixture(scope="module")
def talkative() -> Iterator[PostgresServer]:
    """A server that writes every statement into its log, with the backend that executed it."""
    with PostgresServer(durable=False, settings={"log_statement": "all", "log_line_prefix": "%p|"}) as server:
        yield server
