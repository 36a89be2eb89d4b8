"""Forward-only migrations: numbered files, one transaction each, checked against what ran.

A store remembers each migration with a checksum. An Onceward that meets a newer store refuses
it by name and touches nothing; a migration that a crash cut off leaves the schema as it was,
since both databases change schemas inside transactions (I30).
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from onceward.core import errors
from onceward.stores.statements import read_sql, render

NAMES = ("0001_initial",)
"""Every migration ever released, oldest first; never edited, only appended to."""

VERSION_TABLE = (
    "create table if not exists {t}migration (version {int} not null primary key, name text not null, "
    "checksum text not null, applied_at {int} not null)"
)


@dataclass(frozen=True)
class Migration:
    """One step of the schema, rendered for one database."""

    version: int
    name: str
    checksum: str
    statements: tuple[str, ...]


def migrations(macros: Mapping[str, str]) -> list[Migration]:
    """Give every migration for the database that *macros* describes, oldest first."""
    return list(_migrations(tuple(macros.items())))


@functools.lru_cache(maxsize=16)
def _migrations(macros: tuple[tuple[str, str], ...]) -> tuple[Migration, ...]:
    found = []
    for version, name in enumerate(NAMES, start=1):
        text = read_sql(f"migrations/{name}.sql")
        # The states' lists are part of the text that ran, the schema's name is not.
        checksum = hashlib.sha256(text.encode()).hexdigest()[:16]
        found.append(
            Migration(version, name, checksum, tuple(_statements(render(_bare(text), dict(macros)))))
        )
    return tuple(found)


def _bare(text: str) -> str:
    return "\n".join(line.split("--")[0].rstrip() for line in text.splitlines())


def _statements(text: str) -> Iterator[str]:
    for part in text.split(";"):
        if part.strip():
            yield part.strip()


def pending(known: list[Migration], applied: Mapping[int, tuple[str, str]], *, store: str) -> list[Migration]:
    """Give the migrations that *applied* lacks.

    Args:
        known: what this Onceward brings.
        applied: version to (name, checksum), as the store remembers.
        store: the store's address for messages, secrets masked.

    Raises:
        SchemaNewer: the store has a migration that this Onceward does not know.
        StoreDamaged: a migration ran with another text than ours.
    """
    newest = max(applied, default=0)
    if newest > len(known):
        name = applied[newest][0]
        raise errors.SchemaNewer(
            f"The store {store} was migrated to {name!r} (version {newest}); this Onceward knows versions up to {len(known)}.",
            means="A newer Onceward uses this store; an older one could damage what it does not understand.",
            todo="Upgrade this Onceward. Nothing was changed.",
        )
    for migration in known:
        ran = applied.get(migration.version)
        if ran is not None and ran[1] != migration.checksum:
            raise errors.StoreDamaged(
                f"Migration {migration.name!r} ran on {store} with another text (checksum {ran[1]}, ours {migration.checksum}).",
                means="The schema may not be what the statements expect.",
                todo="Use the release that made this store, or restore a backup.",
            )
    return [migration for migration in known if migration.version not in applied]


def script(
    macros: Mapping[str, str], *, now_ms: int, begin: str = "begin", setup: tuple[str, ...] = ()
) -> str:
    """Give all migrations as text for people whose own tool migrates."""
    parts = [*setup, render(VERSION_TABLE, macros)]
    for migration in migrations(macros):
        parts += [begin, *migration.statements, record(migration, macros, now_ms=now_ms), "commit"]
    return ";\n\n".join(parts) + ";\n"


def record(migration: Migration, macros: Mapping[str, str], *, now_ms: int) -> str:
    """Give the statement that remembers a migration; its values are our own constants."""
    return (
        f"insert into {macros['t']}migration (version, name, checksum, applied_at) "  # noqa: S608 - our own constants
        f"values ({migration.version}, '{migration.name}', '{migration.checksum}', {now_ms})"
    )
