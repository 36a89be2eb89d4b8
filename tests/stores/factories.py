"""The stores that tests run over, each behind one factory."""

from __future__ import annotations

import random
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import psycopg

from onceward.core.model import Millis
from onceward.core.ports import Store
from onceward.stores import migrate
from onceward.stores.postgres.store import PostgresStore
from onceward.stores.sqlite.store import SqliteStore
from onceward.stores.statements import SQLITE_MACROS, postgres_macros, render
from onceward.testing.servers import unique_name
from onceward.testing.store_scene import START
from tests.recycled import catalog_of, emptied

BUSY_SECONDS = 10


class Factory:
    """What the factories share: the clock and the stores to close in the end."""

    def __init__(self) -> None:
        self.now: Millis = START
        self.made: list[Store] = []
        self.others: list[Factory] = []

    def make(self, namespace: str = "default") -> Store:
        store = self.new_store(namespace)
        self.made.append(store)
        return store

    def open(self, namespace: str = "default") -> Store:
        store = self.make(namespace)
        store.open(migrate=True)
        return store

    def close(self) -> None:
        for store in self.made:
            store.close()
        for other in self.others:
            other.close()

    def another(self) -> Factory:
        other = self.new_factory()
        self.others.append(other)
        return other

    def schema(self) -> str:
        store: Any = self.open()
        text: str = store.schema()
        return text

    def new_factory(self) -> Factory:
        raise NotImplementedError

    def run_script(self) -> None:
        raise NotImplementedError

    def new_store(self, namespace: str) -> Store:
        raise NotImplementedError

    def execute(self, statement: str) -> None:
        raise NotImplementedError


class SqliteFile(Factory):
    """Several stores on one file: every store has connections of its own."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def new_store(self, namespace: str) -> Store:
        return SqliteStore(str(self.path), namespace=namespace, now_ms=lambda: self.now)

    def new_factory(self) -> Factory:
        return SqliteFile(self.path.with_name(f"another-{self.path.name}"))

    def run_script(self) -> None:
        connection = sqlite3.connect(self.path)
        connection.executescript(migrate.script(SQLITE_MACROS, now_ms=self.now, begin="begin immediate"))
        connection.close()

    def execute(self, statement: str) -> None:
        connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS)
        with connection:
            connection.execute(render(statement, SQLITE_MACROS))
        connection.close()


class SqliteMemory(Factory):
    """Several stores on one connection, as the simulation has it."""

    def __init__(self) -> None:
        super().__init__()
        self.connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self.lock = threading.RLock()

    def new_store(self, namespace: str) -> Store:
        return SqliteStore(
            ":memory:",
            namespace=namespace,
            now_ms=lambda: self.now,
            connection=self.connection,
            lock=self.lock,
        )

    def new_factory(self) -> Factory:
        return SqliteMemory()

    def run_script(self) -> None:
        self.connection.executescript(migrate.script(SQLITE_MACROS, now_ms=self.now))

    def execute(self, statement: str) -> None:
        self.connection.execute(render(statement, SQLITE_MACROS))

    def close(self) -> None:
        super().close()
        self.connection.close()


class Postgres(Factory):
    """Several stores in one schema of a database, each with connections of its own."""

    def __init__(self, dsn: str, **options: Any) -> None:
        super().__init__()
        self.dsn = dsn
        self.schema_name = unique_name()
        self.options = options

    def new_store(self, namespace: str) -> PostgresStore:
        return PostgresStore(
            self.dsn,
            namespace=namespace,
            schema=self.schema_name,
            monotonic_ms=lambda: time.monotonic() * 1000,
            draw=random.random,
            sleep=time.sleep,
            **self.options,
        )

    def schema(self) -> str:
        return super().schema().replace(self.schema_name, "onceward")

    def new_factory(self) -> Factory:
        return Postgres(self.dsn, **self.options)

    def run_script(self) -> None:
        setup = (f'create schema if not exists "{self.schema_name}"',)
        script = migrate.script(postgres_macros(self.schema_name), now_ms=self.now, setup=setup)
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(script.encode())

    def execute(self, statement: str) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(render(statement, postgres_macros(self.schema_name)).encode())

    def close(self) -> None:
        super().close()
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(f'drop schema if exists "{self.schema_name}" cascade'.encode())


class PostgresUsed(Postgres):
    """A schema that a test before has used, where the test begins with a store that is migrated.

    Args:
        dsn: the database, perhaps behind a pooler.
        direct: the database itself.
        used: schemas that are empty again, each with its catalog.
    """

    def __init__(self, dsn: str, direct: str, used: list[tuple[str, str]], **options: Any) -> None:
        super().__init__(dsn, **options)
        self.direct = direct
        self.used = used
        self.catalog = ""
        self.is_new = False

    def run_script(self) -> None:
        self.is_new = True
        super().run_script()

    def open(self, namespace: str = "default") -> Store:
        is_first = not self.made and not self.is_new
        if is_first and self.used:
            self.schema_name, self.catalog = self.used.pop()
        store = super().open(namespace)
        if is_first and not self.catalog:
            self.catalog = catalog_of(self.direct, self.schema_name, is_alone=False)
        return store

    def close(self) -> None:
        Factory.close(self)
        if self.catalog and emptied(self.direct, self.schema_name, self.catalog, is_alone=False):
            self.used.append((self.schema_name, self.catalog))
        else:
            super().close()
