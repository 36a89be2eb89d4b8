"""The stores that the suite runs over: SQLite on a file and in memory, and PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.register_assert_rewrite("onceward.testing.store_checks", "onceward.testing.store_scene")

from onceward.testing.servers import PostgresAddress, unique_name  # noqa: E402 - rewritten first
from onceward.testing.store_suite import StoreFactory  # noqa: E402
from tests.stores.factories import Factory, Postgres, SqliteFile, SqliteMemory  # noqa: E402


@pytest.fixture(scope="session")
def shared_database(postgres_server: PostgresAddress) -> Iterator[str]:
    """The URL of a database in which each check has a schema of its own."""
    name = unique_name()
    yield postgres_server.create_database(name)
    postgres_server.drop_database(name)


SQLITE = ("sqlite-file", "sqlite-memory")
POSTGRES: dict[str, dict[str, Any]] = {
    "postgres": {},
}


@pytest.fixture(params=[*SQLITE, *(pytest.param(name, marks=pytest.mark.postgres) for name in POSTGRES)])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreFactory]:
    """An empty database of each kind."""
    factory: Factory
    if request.param == "sqlite-file":
        factory = SqliteFile(tmp_path / "onceward.db")
    elif request.param == "sqlite-memory":
        factory = SqliteMemory()
    else:
        factory = Postgres(request.getfixturevalue("shared_database"), **POSTGRES[request.param])
    yield factory
    factory.close()
