"""`onceward migrate`: the same schema by the command, by the printed text, on either database."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from random import Random

import psycopg
import pytest
from click.testing import CliRunner

from onceward.cli.main import main
from onceward.core.ports import Store
from onceward.core.settings import SETTINGS, resolve
from onceward.runtime.clock import wall_ms
from onceward.stores.choose import make_store
from onceward.stores.migrate import NAMES


def told(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["migrate", *arguments])
    return done.exit_code, done.output


def schema_of(url: str) -> str:
    store: Store = make_store(resolve(SETTINGS, {"store": url}, {}), now_ms=wall_ms, draw=Random(1).random)
    store.open(migrate=False)
    try:
        return store.schema()  # type: ignore[attr-defined, no-any-return]
    finally:
        store.close()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def urls(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """Two empty stores of one kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/a.db", f"sqlite:///{tmp_path}/b.db"
    dsn = request.getfixturevalue("postgres_dsn")
    return f"{dsn}?schema=a", f"{dsn}?schema=b"


def run_text(url: str, text: str) -> None:
    if url.startswith("sqlite"):
        connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        connection.executescript(text)
        connection.close()
        return
    with psycopg.connect(url.partition("?")[0], autocommit=True) as postgres:
        postgres.execute(text.encode())


def test_check_migrate_check(urls: tuple[str, str]) -> None:
    url, _ = urls

    assert told("--check", "--store", url)[0] == 1
    status, text = told("--store", url)
    assert (status, f"to {NAMES[-1]}." in text) == (0, True)
    status, text = told("--check", "--store", url)
    assert (status, text.startswith("Nothing to do: ")) == (0, True)
    assert told("--store", url)[1].startswith("Nothing to do: ")


def test_the_printed_text_makes_the_same_schema(urls: tuple[str, str]) -> None:
    migrated, by_hand = urls
    assert told("--store", migrated)[0] == 0

    status, text = told("--sql", "--store", by_hand)
    assert status == 0
    run_text(by_hand, text)

    assert told("--check", "--store", by_hand)[0] == 0
    assert schema_of(by_hand).replace(" b.", " a.") == schema_of(migrated)


def test_a_newer_store_is_refused_by_name_and_not_touched(urls: tuple[str, str]) -> None:
    url, _ = urls
    assert told("--store", url)[0] == 0
    table = "onceward_migration" if url.startswith("sqlite") else "a.migration"
    run_text(
        url, f"insert into {table} (version, name, checksum, applied_at) values (99, '0099_future', 'x', 1)"
    )
    before = schema_text(url)

    for arguments in ([], ["--check"]):
        status, text = told(*arguments, "--store", url)

        assert status == 3
        assert "Error [schema_newer]" in text
        assert "'0099_future'" in text
    assert schema_text(url) == before


def schema_text(url: str) -> list[tuple[object, ...]]:
    """Give the remembered migrations, read without our code."""
    if url.startswith("sqlite"):
        connection = sqlite3.connect(url.removeprefix("sqlite:///"))
        rows = connection.execute("select * from onceward_migration order by version").fetchall()
        connection.close()
        return rows
    with psycopg.connect(url.partition("?")[0]) as postgres:
        return postgres.execute("select * from a.migration order by version").fetchall()


def test_looking_does_not_create_a_file(tmp_path: Path) -> None:
    status, text = told("--check", "--store", f"sqlite:///{tmp_path}/absent.db")

    assert status == 1
    assert text.startswith(f"There is no file {tmp_path}/absent.db. ")
    assert list(tmp_path.iterdir()) == []


def test_sql_connects_to_nothing() -> None:
    status, text = told("--sql", "--store", "postgresql://nobody@192.0.2.1/none?schema=ours")

    assert status == 0
    assert text.startswith('create schema if not exists "ours";')


def test_a_password_is_never_printed() -> None:
    url = "postgresql://me:hunter2@127.0.0.1:1/none?connect_timeout=1"

    status, text = told("--store", url)

    assert status == 3
    assert "hunter2" not in text
