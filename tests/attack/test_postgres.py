"""PostgreSQL that restarts, loses connections and replies, pools them, and defaults to SERIALIZABLE."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from onceward.testing.servers import PgBouncer, PostgresAddress, PostgresServer
from onceward.testing.tcp_proxy import TcpProxy
from tests.attack.site import Site, pause


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    with PostgresServer(durable=False) as server:
        yield server


@pytest.fixture
def own_site(own_server: PostgresServer, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Site]:
    from onceward.testing.servers import unique_name

    with Site(own_server.create_database(unique_name()), tmp_path) as site:
        yield site


def load(
    site: Site, ports: list[int], count: int, stop: threading.Event
) -> tuple[threading.Thread, dict[str, list[Any]]]:
    replies: dict[str, list[Any]] = {f"evt_{i}": [] for i in range(count)}

    def send() -> None:
        for i in range(count):
            if stop.is_set():
                return
            replies[f"evt_{i}"].append(site.deliver(ports[i % len(ports)], f"evt_{i}", str(i), timeout=30))
            pause(0.02)

    thread = threading.Thread(target=send)
    thread.start()
    return thread, replies


def judge_load(site: Site, ports: list[int], replies: dict[str, list[Any]]) -> None:
    statuses = {reply.status for found in replies.values() for reply in found}
    assert statuses <= {202, 503}, statuses
    for i, event_id in enumerate(replies):
        again = site.deliver(ports[i % len(ports)], event_id, str(i), timeout=30)
        assert again.status == 202, again
        replies[event_id].append(again)
    shop = site.desk()
    tally = site.wait_all(shop.app, len(replies), 60)
    assert tally == {"completed": len(replies)}, tally
    for event_id, found in replies.items():
        assert len({tuple(reply.runs) for reply in found if reply.status == 202}) == 1, (event_id, found)
    charges = site.counts("charge")
    assert len(charges) == len(replies)
    print(
        "charged",
        charges.total(),
        "of",
        len(charges),
        "503s",
        sum(r.status == 503 for f in replies.values() for r in f),
    )
    site.check(shop.app)


def test_restarts_as_in_a_crash_under_load(own_site: Site, own_server: PostgresServer) -> None:
    servers = [own_site.serve() for _ in range(2)]
    ports = [server.port for server in servers]
    thread, replies = load(own_site, ports, 150, threading.Event())
    for _ in range(3):
        pause(0.7)
        own_server.restart(immediate=True)
    thread.join()
    judge_load(own_site, ports, replies)
    assert all(server.is_alive() for server in servers)


def test_backends_are_terminated_under_load(own_site: Site, own_server: PostgresServer) -> None:
    servers = [own_site.serve() for _ in range(2)]
    ports = [server.port for server in servers]
    thread, replies = load(own_site, ports, 100, threading.Event())
    name = own_site.store.rpartition("/")[2]
    killed = 0
    with psycopg.connect(own_server.dsn(), autocommit=True) as connection:
        while thread.is_alive():
            rows = connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", (name,)
            ).fetchall()
            killed += len(rows)
            pause(0.4)
    thread.join()
    assert killed > 5
    judge_load(own_site, ports, replies)


def test_an_outage_longer_than_the_lease_takes_no_run_from_its_living_holder(
    own_site: Site, own_server: PostgresServer
) -> None:
    shop = own_site.desk()
    workers = [own_site.worker() for _ in range(3)]
    runs = [shop.app.sync.start(shop.three, f"A{i}", 2.0) for i in range(9)]
    for i in range(9):
        own_site.wait_note(f"start a A{i}")
    own_server.halt(immediate=True)
    pause(4)
    own_server.start()
    assert {run.result("60s") for run in runs} == {f"c A{i}" for i in range(9)}
    assert all(worker.is_alive() for worker in workers)
    assert set(own_site.counts("start").values()) == {1}, own_site.counts("start")
    assert not any(run.attempts() for run in runs)
    own_site.check(shop.app)


def test_replies_to_commits_are_dropped(postgres_site: Site, postgres_server: PostgresAddress) -> None:
    site = postgres_site
    with TcpProxy(postgres_server) as proxy:
        name = site.store.rpartition("/")[2]
        site.store = proxy.dsn(name)
        servers = [site.serve() for _ in range(2)]
        ports = [server.port for server in servers]
        thread, replies = load(site, ports, 60, threading.Event())
        faults = 0
        while thread.is_alive():
            proxy.drop_commit_reply(1)
            pause(0.25)
            proxy.cut_before_commit(1)
            pause(0.25)
            faults += 2
        thread.join()
        proxy.heal()
        judge_load(site, ports, replies)


@pytest.mark.parametrize("kill", [False, True])
def test_through_a_pooler_in_transaction_mode(postgres_site: Site, pgbouncer: PgBouncer, kill: bool) -> None:
    site = postgres_site
    name = site.store.rpartition("/")[2]
    site.store = pgbouncer.dsn(name)
    servers = [site.serve() for _ in range(2)]
    ports = [server.port for server in servers]
    thread, replies = load(site, ports, 60, threading.Event())
    if kill:
        pause(0.7)
        servers[0].kill()
        servers[0] = site.serve()
        ports[0] = servers[0].port
    thread.join()
    for found in replies.values():
        found[:] = [reply for reply in found if reply.status != 0]
    judge_load(site, ports, replies)


def test_serializable_by_default(postgres_site: Site, postgres_server: PostgresAddress) -> None:
    site = postgres_site
    name = site.store.rpartition("/")[2]
    with psycopg.connect(postgres_server.dsn(), autocommit=True) as connection:
        connection.execute(f'alter database "{name}" set default_transaction_isolation = serializable')
        connection.execute(f'alter database "{name}" set deadlock_timeout = 10')
    servers = [site.serve() for _ in range(3)]
    ports = [server.port for server in servers]
    ids = [f"evt_{i}" for i in range(30)]
    replies = site.storm(ports, ids, 6)
    assert {reply.status for found in replies.values() for reply in found} <= {202, 503}
    assert sum(reply.status == 503 for found in replies.values() for reply in found) == 0
    shop = site.desk()
    assert site.wait_all(shop.app, 30) == {"completed": 30}
    assert all(len({tuple(reply.runs) for reply in found}) == 1 for found in replies.values())
    assert set(site.counts("start").values()) == {1}
    site.check(shop.app)


def test_blackhole_for_longer_than_the_lease(postgres_site: Site, postgres_server: PostgresAddress) -> None:
    """One of two processes cannot reach the database and does not hear so."""
    site = postgres_site
    direct = site.store
    shop = site.desk()
    with TcpProxy(postgres_server) as proxy:
        site.store = proxy.dsn(direct.rpartition("/")[2])
        first = site.worker()
        run = shop.app.sync.start(shop.three, "A", 1.0)
        site.wait_note("start a A")
        proxy.blackhole()
        site.store = direct
        second = site.worker()
        assert run.result("40s") == "c A"
        proxy.heal()
        second.kill()
        assert shop.app.sync.start(shop.three, "B").result("40s") == "c B", first.text()
        assert max(site.counts("start").values()) <= 2
        site.check(shop.app)
