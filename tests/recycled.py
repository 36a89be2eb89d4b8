"""Empty stores that are not made anew for each test.

On PostgreSQL tests use one after the other: a database and its schema take a fifth of a second of
work; taking rows out of it takes a few milliseconds. What a test changes besides rows and tables of
its own (a trigger, a setting of the database) is seen in the catalog, and then the next test gets a
new one. On SQLite each test gets a copy of a migrated file, which takes a quarter of a migration.
"""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

import psycopg

from tests.engine.running import open_store

LEAVES_WITHIN_MS = 10_000

_END_OTHERS = """
select pg_terminate_backend(pid, %s) from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid()
"""

_CATALOG = """
with wanted as (
  select oid from pg_namespace where case when %(schema)s = '' then nspname !~ '^(pg_|information_schema$)'
  else nspname = %(schema)s end
), relation as (
  select oid, xmin from pg_class where relnamespace in (select oid from wanted)
)
select md5(string_agg(one, ',' order by one)) from (
  select oid || ' ' || xmin from pg_namespace where oid in (select oid from wanted)
  union all select oid || ' ' || xmin from relation
  union all select attrelid || ' ' || attnum || ' ' || a.xmin from pg_attribute a join relation r on attrelid = r.oid
  union all select t.oid || ' ' || t.xmin from pg_trigger t join relation r on tgrelid = r.oid
  union all select c.oid || ' ' || c.xmin from pg_constraint c join relation r on conrelid = r.oid
  union all select oid || ' ' || xmin from pg_proc where pronamespace in (select oid from wanted)
  union all select s.setdatabase || ' ' || s.setrole || ' ' || s.xmin from pg_db_role_setting s
    join pg_database d on d.oid = s.setdatabase and d.datname = current_database()
) as every(one)
"""

_TABLES = """
select format('%%I.%%I', schemaname, tablename) from pg_tables
where schemaname = %s and tablename <> 'migration'
"""


_OTHERS = (
    "select format('%I', relname) from pg_class where relnamespace = 'public'::regnamespace and relkind = 'r'"
)


def migrated_file(path: Path) -> str:
    """Put an empty store there and give its URL."""
    path.touch(0o640)
    path.write_bytes(_migrated())
    return f"sqlite:///{path}"


@functools.cache
def _migrated() -> bytes:
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "store.db"
        with open_store(f"sqlite:///{path}"):
            pass
        assert [each for each in path.parent.iterdir() if each.name.endswith("-wal")] == []
        return path.read_bytes()


def catalog_of(dsn: str, schema: str, *, is_alone: bool) -> str:
    """Give what tells one state of a store's catalog from another; see `emptied`."""
    return _catalog(_connection(dsn), schema, is_alone=is_alone)


def emptied(dsn: str, schema: str, catalog: str, *, is_alone: bool) -> bool:
    """Take every row out of a migrated schema; False when it is no longer as it was made.

    Args:
        dsn: the database.
        schema: where the store's tables are.
        catalog: what `catalog_of` gave when it was made.
        is_alone: nobody else uses the database: whoever is left in it is sent away first, as when it is
            dropped, the tables that a test made in ``public`` are dropped, and other schemas must be
            as they were, too.
    """
    connection = _connection(dsn)
    if is_alone:
        connection.execute(_END_OTHERS, (LEAVES_WITHIN_MS,))
        for (name,) in connection.execute(_OTHERS).fetchall():
            connection.execute(f"drop table public.{name} cascade".encode())
    if _catalog(connection, schema, is_alone=is_alone) != catalog:
        return False
    tables = [name for (name,) in connection.execute(_TABLES, (schema,))]
    connection.execute(";".join(f"delete from {name}" for name in tables).encode())
    return True


_kept: dict[str, psycopg.Connection[tuple[Any, ...]]] = {}


def _connection(dsn: str) -> psycopg.Connection[tuple[Any, ...]]:
    """Give the connection of this process to a database, whose backend knows its catalog already.

    A new one would read all of that again for each test: ten times the work (measured).
    """
    kept = _kept.get(dsn)
    if kept is not None:
        try:
            kept.execute("select 1", prepare=False)
        except psycopg.OperationalError:  # a test restarted the server, or sent everybody away
            kept.close()
        else:
            return kept
    kept = _kept[dsn] = psycopg.connect(dsn, autocommit=True)
    return kept


def hang_up() -> None:
    """Close what is kept, when the tests of this process are over."""
    while _kept:
        _kept.popitem()[1].close()


def _catalog(connection: psycopg.Connection[tuple[Any, ...]], schema: str, *, is_alone: bool) -> str:
    if connection.execute("select to_regclass(%s)", (f'"{schema}".migration',)).fetchone() == (None,):
        return "not migrated"
    migrations = connection.execute(f'select * from "{schema}".migration'.encode(), prepare=False).fetchall()
    found = connection.execute(_CATALOG, {"schema": "" if is_alone else schema}).fetchone()
    return f"{found} {sorted(migrations)}"
