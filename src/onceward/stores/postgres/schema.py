"""The schema of a PostgreSQL store: migrated one file a transaction, described, compared.

Migrators that start together wait for each other at the table of migrations, which is a lock
that a transaction has and a pooler cannot lose. What is not ours in the database is not touched.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import psycopg

from onceward.core import errors, failpoints
from onceward.core.model import Millis
from onceward.stores.migrate import VERSION_TABLE, Migration, migrations, pending, record
from onceward.stores.postgres.session import Session
from onceward.stores.postgres.statements import statement
from onceward.stores.statements import load, postgres_macros, render

MIGRATION_MS_MAX = 3_600_000
"""How long one statement of a migration may take, its wait for other migrators included."""

BEGIN = statement("begin_migration", "begin isolation level read committed")
"""What another migrator did must be seen after the wait for its lock, whatever the default says."""

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")


def checked_schema(name: str) -> str:
    """Give a schema's name that can be part of a statement.

    Raises:
        ConfigError: it cannot.
    """
    if not _NAME.fullmatch(name):
        raise errors.ConfigError(
            f"The schema's name {name!r} cannot be used.",
            means="The store cannot be opened.",
            todo="Use small letters, digits and underscores, at most 63, no digit first.",
        )
    return name


class PostgresSchema:
    """The tables of one store.

    Args:
        schema: their schema; a checked identifier.
        address: of the database, for messages.
    """

    def __init__(self, schema: str, address: str) -> None:
        self._schema = schema
        self._address = address
        self._macros = postgres_macros(schema)
        self._sql = {name: statement(f"schema_{name}", sql) for name, sql in _load(schema).items()}
        self._known = migrations(self._macros)

    def check(self, session: Session) -> None:
        """Refuse a schema that is not exactly ours.

        Raises:
            SchemaOutdated: a migration is missing.
            SchemaNewer: there is one that this Onceward does not know.
        """
        if not self._exists(session):
            raise self._outdated(self._known)
        missing = self._missing(session)
        if missing:
            raise self._outdated(missing)

    def migrate(self, session: Session, now_ms: Millis) -> None:
        """Run the migrations that are missing, each in a transaction of its own."""
        try:
            self._prepare(session)
        except (
            psycopg.errors.UniqueViolation,
            psycopg.errors.DuplicateTable,
            psycopg.errors.DuplicateSchema,
        ):
            # "if not exists" looks before another migrator's commit and inserts after it.
            self._prepare(session)
        usual_ms, session.reply_ms = session.reply_ms, MIGRATION_MS_MAX
        try:
            while self._migrate_once(session, now_ms):
                pass
        finally:
            session.reply_ms = usual_ms

    def _prepare(self, session: Session) -> None:
        if self._exists(session):
            return
        with session.transaction():
            # Asked first, since it wants the right to create schemas even where there is nothing to do.
            if not session.execute((self._sql["has_schema"], [self._schema.encode()])):
                session.execute((self._sql["create_schema"], []))
            session.execute((statement("version_table", render(VERSION_TABLE, self._macros)), []))

    def _migrate_once(self, session: Session, now_ms: Millis) -> bool:
        with session.transaction(BEGIN):
            # A migration takes as long as it takes, and waits for the one that another process runs.
            session.execute((self._sql["unbind"], []))
            session.execute((self._sql["lock"], []))
            missing = self._missing(session)
            if not missing:
                return False
            migration = missing[0]
            for number, text in enumerate(migration.statements, start=1):
                session.execute((statement(f"{migration.name}_{number}", text), []))
                failpoints.hit("migrate.statement", f"{migration.name}:{number}")
            done = record(migration, self._macros, now_ms=now_ms)
            session.execute((statement(f"{migration.name}_record", done), []))
            failpoints.hit("migrate.before_commit")
        return len(missing) > 1

    def _exists(self, session: Session) -> bool:
        return bool(session.execute((self._sql["has_version_table"], [self._schema.encode()])))

    def _missing(self, session: Session) -> list[Migration]:
        rows = session.execute((self._sql["applied"], []))
        applied = {version: (name, checksum) for version, name, checksum in rows}
        return pending(self._known, applied, store=self._address)

    def _outdated(self, missing: Sequence[Migration]) -> errors.SchemaOutdated:
        return errors.SchemaOutdated(
            f"The store {self._address} lacks migration {missing[0].name!r}.",
            means="This Onceward cannot use it yet.",
            todo="Run `onceward migrate MODULE:APP`, or with --store.",
        )

    def text(self, session: Session) -> str:
        """Give the whole schema as text, for comparing a migrated store with a fresh one."""
        lines = []
        for name in ("tables", "columns", "constraints", "indexes"):
            rows = session.execute((self._sql[name], [self._schema.encode()]))
            lines += [" ".join(str(value) for value in row) for row in rows]
        return "\n".join(lines)

    def durability(self, session: Session) -> str:
        """Say whether a commit that returned survives, and what it does not survive."""
        fsync, synchronous_commit, full_page_writes, standbys = session.execute(
            (self._sql["durability"], [])
        )[0]
        said = f"fsync={fsync}, synchronous_commit={synchronous_commit}, full_page_writes={full_page_writes}"
        if "off" in (fsync, synchronous_commit, full_page_writes):
            return f"{said}: commits may be lost with the server"
        if not standbys:
            return f"{said}; no synchronous standby: a failover to a replica may lose the last commits"
        return f"{said}, synchronous standby {standbys}"


def _load(schema: str) -> dict[str, str]:
    return load("postgres_schema.sql", {**postgres_macros(schema), "schema": f'"{schema}"'})
