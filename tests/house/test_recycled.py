"""What a test leaves in a store, the next test does not see."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import psycopg
import pytest

from onceward import App, Context
from onceward.stores.rows import TABLES
from onceward.stores.sqlite.store import SqliteStore
from tests.conftest import SCHEMA
from tests.engine.running import open_store, result_of
from tests.recycled import _connection, catalog_of, emptied, migrated_file

pytestmark = pytest.mark.postgres


async def one(ctx: Context) -> int:
    return await ctx.step.run("one", lambda: 1)


@pytest.fixture
def catalog(postgres_dsn: str) -> str:
    with open_store(postgres_dsn):
        return catalog_of(postgres_dsn, SCHEMA, is_alone=True)


def rows(dsn: str) -> dict[str, int]:
    with psycopg.connect(dsn) as connection:
        names = connection.execute("select tablename from pg_tables where schemaname = %s", (SCHEMA,))
        return {
            name: len(connection.execute(f'select * from "{SCHEMA}"."{name}"'.encode()).fetchall())
            for (name,) in names.fetchall()
        }


def test_rows_go_and_the_migrations_stay(postgres_dsn: str, catalog: str) -> None:
    before = rows(postgres_dsn)
    app = App(postgres_dsn)

    assert result_of(app, app.workflow(one)) == 1
    assert rows(postgres_dsn) != before

    assert emptied(postgres_dsn, SCHEMA, catalog, is_alone=True)
    assert rows(postgres_dsn) == before


def test_a_database_is_emptied_again_and_again_over_one_connection(postgres_dsn: str, catalog: str) -> None:
    def backend() -> tuple[int, ...] | None:
        return _connection(postgres_dsn).execute("select pg_backend_pid()").fetchone()

    first = backend()
    for _ in range(7):  # also when its statements are prepared
        result_of(app := App(postgres_dsn), app.workflow(one))
        assert emptied(postgres_dsn, SCHEMA, catalog, is_alone=True)
    assert backend() == first

    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute("select pg_terminate_backend(%s, 10000)", first)
        connection.execute(f"alter table {SCHEMA}.migration add column more text".encode())
    assert not emptied(postgres_dsn, SCHEMA, catalog, is_alone=True)
    assert backend() != first


def test_tables_of_a_test_beside_the_store_go(postgres_dsn: str, catalog: str) -> None:
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute('create table "Orders" (id serial primary key)')
        connection.execute('create table line (of_id int references "Orders")')

    assert emptied(postgres_dsn, SCHEMA, catalog, is_alone=True)
    with psycopg.connect(postgres_dsn) as connection:
        assert connection.execute("select to_regclass('line'), to_regclass('\"Orders\"')").fetchone() == (
            None,
            None,
        )


def test_a_migrated_file_is_a_store_of_its_own_that_nobody_has_used(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path / 'made.db'}") as made:
        schema, rows = cast("SqliteStore", made).schema(), made.dump(*TABLES)
    used = App(migrated_file(tmp_path / "used.db"))
    result_of(used, used.workflow(one))
    with open_store(migrated_file(tmp_path / "new.db")) as new:
        assert (cast("SqliteStore", new).schema(), new.dump(*TABLES)) == (schema, rows)

    assert (tmp_path / "new.db").stat().st_mode == (tmp_path / "made.db").stat().st_mode


@pytest.mark.parametrize(
    "change",
    [
        f"alter table {SCHEMA}.run add column more text",
        f"create index more on {SCHEMA}.run (state)",
        f"update {SCHEMA}.migration set checksum = 'edited'",
        f"drop schema {SCHEMA} cascade",
        "create view public.orders as select 1",
        "create function public.f() returns int language sql as 'select 1'",
        "do $$ begin execute format('alter database %I set work_mem = 64', current_database()); end $$",
    ],
)
def test_what_is_no_longer_as_it_was_made_is_found(postgres_dsn: str, catalog: str, change: str) -> None:
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(change.encode())

    assert not emptied(postgres_dsn, SCHEMA, catalog, is_alone=True)


def test_whoever_is_left_is_sent_away(postgres_dsn: str, catalog: str) -> None:
    with psycopg.connect(postgres_dsn) as left:
        left.execute(f"lock table {SCHEMA}.run".encode())

        assert emptied(postgres_dsn, SCHEMA, catalog, is_alone=True)
        with pytest.raises(psycopg.OperationalError):
            left.execute("select 1")
