"""Stores as files that can be read: taken down from SQLite, and put up again in either database.

Both databases keep the same rows. A file has one JSON value a line: what it is, then for each table its columns
and its rows, at last what became of each run. The schema is not in it: the migrations that had run are named,
with their checksums, and what they make is made by them.
"""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from onceward.core.store_url import PostgresUrl, parse
from onceward.stores import migrate
from onceward.stores.statements import SQLITE_MACROS, postgres_macros, render

HERE = Path(__file__).parent
PREFIX = "onceward_"
LEFT_OUT = {"clock", "process_lock"}
"""Tables of a machine, not of a store."""

DAY_MS = 86_400_000
AWAY_MS = 2 * DAY_MS
"""How long nobody looked at the store, as far as the runs can tell."""

LEASE_MS = 10_000
"""The default; whoever makes a file holds a longer one, so that nobody takes its runs over meanwhile."""

TIMES = re.compile(r"at|.*_at|lease_until|.*_until")
PATHS = re.compile(r'File \\"[^"]*/(?:site-packages|python3\.\d+|src)/([^"]*)\\"')
OUR_PATHS = re.compile(r'File \\"[^"]*/tests/([^"]*)\\"')

Row = dict[str, Any]
Tables = dict[str, list[Row]]


@dataclass
class Kept:
    """A store that was taken down.

    Attributes:
        version: of the Onceward that left it.
        taken_at: when, by its clock.
        tables: rows by table, the names without prefix or schema.
        ends: what became of each run, by the name of its story.
    """

    version: str
    taken_at: int
    tables: Tables
    ends: dict[str, Any]

    def write(self, path: Path) -> None:
        """Write the file: a row a line, so that a difference can be read."""
        lines: list[Any] = [{"onceward": self.version, "taken_at": self.taken_at}]
        for table, rows in sorted(self.tables.items()):
            if rows:
                lines.append({"table": table, "columns": list(rows[0])})
                lines += [list(row.values()) for row in rows]
        lines += [{"story": name, **end} for name, end in sorted(self.ends.items())]
        path.write_text("".join(f"{json.dumps(line, ensure_ascii=False, default=_hex)}\n" for line in lines))


def read(path: Path) -> Kept:
    """Read a file."""
    first, *lines = (json.loads(line) for line in path.read_text().splitlines())
    tables: Tables = {}
    ends: dict[str, Any] = {}
    columns: list[str] = []
    rows: list[Row] = []
    for line in lines:
        if isinstance(line, list):
            rows.append(dict(zip(columns, map(_value, line), strict=True)))
        elif "story" in line:
            ends[line.pop("story")] = line
        else:
            columns, rows = line["columns"], tables.setdefault(line["table"], [])
    return Kept(first["onceward"], first["taken_at"], tables, ends)


def take_down(path: Path, version: str) -> Kept:
    """Read a SQLite file that nobody has open."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        names = [
            name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")
        ]
        tables = {
            name.removeprefix(PREFIX): [dict(row) for row in connection.execute(f"select * from {name}")]
            for name in sorted(names)
            if name.removeprefix(PREFIX) not in LEFT_OUT
        }
    taken_at = time.time_ns() // 1_000_000
    for row in tables["process"]:
        row["host"], row["pid"] = "a-host", 1
        row["lease_until"] = min(row["lease_until"], taken_at + LEASE_MS)
    for row in (row for rows in tables.values() for row in rows):
        for column, value in row.items():
            if isinstance(value, str) and "File " in value:
                row[column] = OUR_PATHS.sub(
                    r'File \\"/srv/app/\1\\"', PATHS.sub(r'File \\"/srv/lib/\1\\"', value)
                )
    return Kept(version, taken_at, tables, {})


def put_up(kept: Kept, url: str, own_tables: tuple[str, ...]) -> None:
    """Make a store as it was, `AWAY_MS` later, in a database where there is none.

    Args:
        kept: the store.
        url: where.
        own_tables: statements that make the user's own tables.
    """
    later = time.time_ns() // 1_000_000 - kept.taken_at - AWAY_MS
    with _connected(url) as (execute, macros, mark):
        for statement in own_tables:
            execute(statement, ())
        execute(render(migrate.VERSION_TABLE, macros), ())
        known = migrate.migrations(macros)
        for migration in known[: len(kept.tables["migration"])]:
            for statement in migration.statements:
                execute(statement, ())
        for table, rows in kept.tables.items():
            is_ours = any(f"create table {table} " in statement for statement in own_tables)
            name = table if is_ours else f"{macros['t']}{table}"
            for row in rows:
                marks = ", ".join([mark] * len(row))
                text = f"insert into {name} ({', '.join(row)}) values ({marks})"
                execute(text, tuple(_moved(column, value, later) for column, value in row.items()))


def _moved(column: str, value: Any, later: int) -> Any:
    return value + later if TIMES.fullmatch(column) and type(value) is int and value > DAY_MS else value


Execute = Callable[[str, tuple[Any, ...]], Any]


@contextlib.contextmanager
def _connected(url: str) -> Iterator[tuple[Execute, dict[str, str], str]]:
    """Give what executes a statement in one transaction, the macros of the schema, and the mark of a parameter."""
    address = parse(url)
    if isinstance(address, PostgresUrl):
        with psycopg.connect(address.dsn) as postgres:
            postgres.execute(f"create schema {address.schema}".encode())
            yield (
                lambda text, values: postgres.execute(text.encode(), values or None),
                dict(postgres_macros(address.schema)),
                "%s",
            )
        return
    with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as sqlite, sqlite:
        sqlite.execute("pragma journal_mode = wal")
        yield sqlite.execute, dict(SQLITE_MACROS), "?"


def _hex(value: object) -> Any:
    assert isinstance(value, bytes), value
    return {"hex": value.hex()}


def _value(value: Any) -> Any:
    return bytes.fromhex(value["hex"]) if isinstance(value, dict) else value
