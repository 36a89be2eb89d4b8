"""The stores that the suite runs over: SQLite on a file and in memory, and PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onceward.testing.servers import PostgresAddress, unique_name
from onceward.testing.store_suite import StoreFactory
from tests.stores.factories import Factory, PostgresUsed, SqliteFile, SqliteMemory


@pytest.fixture(scope="session")
def shared_database(postgres_server: PostgresAddress) -> Iterator[str]:
    """The URL of a database in which each check has a schema of its own."""
    name = unique_name()
    yield postgres_server.create_database(name)
    postgres_server.drop_database(name)


@pytest.fixture(scope="session")
def used_schemas() -> list[tuple[str, str]]:
    """Schemas with an empty store that a check of this process has used, each with its catalog."""
    return []


SQLITE = ("sqlite-file", "sqlite-memory")
SERIALIZABLE = "?options=-c%20default_transaction_isolation%3Dserializable"
POSTGRES: dict[str, dict[str, Any]] = {
    "postgres": {},
    "postgres-bare": {"notify": False, "skip_locked": False},
    "postgres-pgbouncer": {},
    "postgres-serializable": {},
}
"""PostgreSQL as it comes, without the helps that only make it faster, and where others make it harder."""


@pytest.fixture(params=[*SQLITE, *(pytest.param(name, marks=pytest.mark.postgres) for name in POSTGRES)])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreFactory]:
    """An empty database of each kind."""
    factory: Factory
    if request.param == "sqlite-file":
        factory = SqliteFile(tmp_path / "onceward.db")
    elif request.param == "sqlite-memory":
        factory = SqliteMemory()
    else:
        dsn = direct = str(request.getfixturevalue("shared_database"))
        if request.param == "postgres-pgbouncer":
            dsn = request.getfixturevalue("pgbouncer").dsn(dsn.rsplit("/", 1)[1])
        if request.param == "postgres-serializable":
            dsn += SERIALIZABLE
        used = request.getfixturevalue("used_schemas")
        factory = PostgresUsed(dsn, direct, used, **POSTGRES[request.param])
    yield factory
    factory.close()
