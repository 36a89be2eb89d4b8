"""What surrounds a PostgreSQL store: addresses, poolers, hints, clocks, forks, migrations."""

from __future__ import annotations

import logging
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

from onceward.core import errors
from onceward.core.ports import Batch, RunFilter
from onceward.core.states import RunState
from onceward.stores import migrate
from onceward.stores.postgres.clock import SAMPLES, ServerClock
from onceward.stores.postgres.listen import Listener
from onceward.stores.postgres.statements import Call, load_statements
from onceward.stores.postgres.store import PostgresStore
from onceward.stores.statements import postgres_macros
from onceward.testing.servers import PgBouncer, PostgresAddress, unique_name
from onceward.testing.store_scene import START, Process, accept, raised, step
from onceward.testing.tcp_proxy import TcpProxy
from tests.helpers import eventually
from tests.stores.factories import Postgres

pytestmark = pytest.mark.postgres

ROOT = Path(__file__).resolve().parents[2]
QUICK_SECONDS = 10.0
QUIET_SECONDS = 0.3


@pytest.fixture
def stores(shared_database: str) -> Iterator[Postgres]:
    factory = Postgres(shared_database)
    yield factory
    factory.close()


def store_at(dsn: str, **options: Any) -> PostgresStore:
    return PostgresStore(
        dsn,
        **{
            "namespace": "default",
            "monotonic_ms": lambda: time.monotonic() * 1000,
            "draw": random.random,
            "sleep": time.sleep,
            "lease_ms": 500,
            **options,
        },
    )


# --- addresses ---------------------------------------------------------------------------------------


def test_nothing_is_connected_before_it_is_needed() -> None:
    """A store for a server that does not exist can be made and closed."""
    store = store_at("postgresql://nobody@127.0.0.1:1/none")
    store.close()
    store.close()


def test_a_second_store_of_a_schema_renders_no_statement_again() -> None:
    store_at("postgresql://nobody@127.0.0.1:1/none")
    rendered = load_statements.cache_info().misses
    store_at("postgresql://nobody@127.0.0.1:1/other")

    assert load_statements.cache_info().misses == rendered
    assert rendered > 0


def test_an_unreachable_server_is_unavailable_and_no_password_is_shown() -> None:
    store = store_at("postgresql://shop:s3cret@127.0.0.1:1/orders")

    error = raised(errors.StoreUnavailable, lambda: store.open(migrate=True))

    assert "postgresql://shop@127.0.0.1:1/orders" in str(error)
    assert "s3cret" not in str(error)
    assert "Check that the server runs" in str(error)


def test_a_missing_database_is_told_at_once(postgres_server: PostgresAddress) -> None:
    """Trying again would not make it."""
    slept: list[float] = []
    store = store_at(postgres_server.dsn("no_such_database"), sleep=slept.append)

    error = raised(errors.StoreUnavailable, lambda: store.open(migrate=True))

    assert "no_such_database" in str(error)
    assert slept == []


@pytest.mark.parametrize(
    "dsn", ["postgresql://a:s3cret@[/x", "host=h passw0rd s3cret", "postgresql://h/d?s3cret=1"]
)
def test_an_address_that_cannot_be_read_is_not_repeated(dsn: str) -> None:
    error = raised(errors.ConfigError, lambda: store_at(dsn))

    assert "s3cret" not in str(error)
    assert error.__cause__ is None


@pytest.mark.parametrize("schema", ['x"; drop schema public; --', "", "Upper", "1st", "a" * 64])
def test_a_schema_that_cannot_be_a_name_is_refused(schema: str) -> None:
    raised(errors.ConfigError, lambda: store_at("postgresql://h/d", schema=schema))


def test_a_database_of_another_encoding_is_refused(postgres_server: PostgresAddress) -> None:
    name = unique_name()
    with psycopg.connect(postgres_server.dsn(), autocommit=True) as connection:
        connection.execute(
            f"create database \"{name}\" encoding 'SQL_ASCII' locale 'C' template template0".encode()
        )
    store = store_at(postgres_server.dsn(name))

    error = raised(errors.ConfigError, lambda: store.open(migrate=True))

    assert "SQL_ASCII" in str(error)
    postgres_server.drop_database(name)


def test_the_banner_says_what_is_there_and_what_may_be_lost(stores: Postgres) -> None:
    """The tests' server runs without fsync, which a person should know."""
    said = stores.open().describe()

    assert said["store"].startswith("postgresql://postgres@127.0.0.1:")
    assert said["version"].startswith("PostgreSQL ")
    assert "fsync=off" in said["durability"]
    assert "may be lost" in said["durability"]
    assert "direct" in said["connection"]


def test_a_closed_store_is_refused_until_it_is_opened_again(stores: Postgres) -> None:
    process = Process(stores)
    process.store.close()
    process.store.close()

    raised(errors.StoreUnavailable, lambda: process.accept(accept("evt_1")))
    raised(errors.StoreUnavailable, lambda: process.store.runs(RunFilter()))
    raised(errors.StoreUnavailable, process.heartbeat)
    process.store.open(migrate=False)
    assert process.accept(accept("evt_1"))


def test_closing_ends_every_session(postgres_dsn: str) -> None:
    """Writer, reader, pulse, control and listener: the server knows none of them afterwards."""
    stores = Postgres(postgres_dsn)
    process = Process(stores)
    process.accept(accept("evt_1"))
    process.heartbeat()
    process.read(next(iter(process.store.owned("p1")), "") or process.store.runs(RunFilter())[0].run_id)
    process.store.listen(lambda: None)

    def sessions() -> int:
        with psycopg.connect(postgres_dsn) as connection:
            row = connection.execute(
                "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
            ).fetchone()
        assert row is not None
        return int(row[0])

    assert eventually(lambda: sessions() == 5)
    process.store.close()
    assert eventually(lambda: sessions() == 0)
    stores.close()


# --- poolers -----------------------------------------------------------------------------------------


@pytest.fixture
def pooled(shared_database: str, pgbouncer: PgBouncer) -> Callable[..., Postgres]:
    return lambda **options: Postgres(pgbouncer.dsn(shared_database.rsplit("/", 1)[1]), **options)


def prepared_in(process: Process) -> set[bytes]:
    session = process.store._write_link._session  # type: ignore[attr-defined]
    prepared: set[bytes] = session._prepared
    return prepared


def test_statements_are_prepared_where_nothing_is_in_between(stores: Postgres) -> None:
    process = Process(stores)
    process.accept(accept("evt_1"))

    assert b"onceward_accept" in prepared_in(process)


def test_a_pooler_is_noticed_and_nothing_is_prepared(pooled: Callable[..., Postgres]) -> None:
    stores = pooled()
    process = Process(stores)
    process.accept(accept("evt_1"))

    assert prepared_in(process) == set()
    assert "pooler" in process.store.describe()["connection"]
    stores.close()


def test_a_pooler_that_was_denied_is_noticed_at_the_first_clash(
    postgres_dsn: str, pgbouncer: PgBouncer
) -> None:
    """Two clients that share a server connection prepare the same names; both go on without."""
    stores = Postgres(pgbouncer.dsn(postgres_dsn.rsplit("/", 1)[1]), pooler=False)
    processes = [Process(stores, f"p{number}") for number in range(4)]

    for number in range(3):
        for process in processes:
            event_id = f"evt_{process.process_id}_{number}"
            assert not process.accept(accept(event_id))[0].is_duplicate

    assert len(stores.open().runs(RunFilter())) == 12
    stores.close()


def test_no_round_is_sent_to_a_pooler_before_the_replies_to_the_last_are_here(
    pooled: Callable[..., Postgres], monkeypatch: pytest.MonkeyPatch
) -> None:
    """PgBouncer 1.18 takes the server away between two rounds: half of the second went elsewhere."""
    stores = pooled()
    process = Process(stores)
    process.queue()  # of which others are told
    store = process.store
    assert isinstance(store, PostgresStore)
    session = store._write_link._session
    assert session is not None
    assert session._hints == 1, "its reply is still unread"
    unread: list[int] = []
    send = session._send

    def watched(calls: Sequence[Call]) -> None:
        unread.append(session._hints)
        send(calls)

    monkeypatch.setattr(session, "_send", watched)
    for number in range(10):
        process.queue(f"evt_at_once_{number}")
        begun = store.begin("p1", 1, Batch(f"batch_{number}", [accept(f"evt_begun_{number}")], [], []))
        if begun is not None:
            begun.finish()

    assert len(unread) >= 20, "rounds and hints"
    assert set(unread) == {0}
    stores.close()


def test_settings_for_plans_do_not_stay_in_a_shared_session(
    pooled: Callable[..., Postgres], shared_database: str, pgbouncer: PgBouncer
) -> None:
    """Whoever gets the server connection next finds it as it was."""
    stores = pooled()
    process = Process(stores)
    process.accept(accept("evt_1"))
    stores.open().runs(RunFilter())

    with psycopg.connect(pgbouncer.dsn(shared_database.rsplit("/", 1)[1]), autocommit=True) as connection:
        for _ in range(5):
            for name, value in (("enable_seqscan", "on"), ("jit", "on"), ("lock_timeout", "0")):
                row = connection.execute(f"show {name}".encode()).fetchone()
                assert row == (value,)
    stores.close()


# --- hints -------------------------------------------------------------------------------------------


class Heard:
    """Counts how often a listener calls."""

    def __init__(self, store: PostgresStore) -> None:
        self.count = 0
        self.called = threading.Event()
        self.listener: Listener = store.listen(self)
        assert self.listener.works.wait(QUICK_SECONDS)
        self.wait()

    def __call__(self) -> None:
        self.count += 1
        self.called.set()

    def wait(self, seconds: float = QUICK_SECONDS) -> bool:
        """Wait for a call and forget it."""
        was_called = self.called.wait(seconds)
        self.called.clear()
        return was_called


def postgres(process: Process) -> PostgresStore:
    assert isinstance(process.store, PostgresStore)
    return process.store


def test_others_are_told_of_due_runs_ends_and_operators_actions(stores: Postgres) -> None:
    from onceward.testing.store_scene import restarted

    here, there = Process(stores, "p1"), Process(stores, "p2")
    heard = Heard(postgres(there))
    actions: dict[str, Callable[[], object]] = {
        "a run that anybody may claim": lambda: here.queue("evt_1"),
        "an end": lambda: here.move(here.start("evt_2"), RunState.COMPLETED),
        "a run that is given up": lambda: here.move(
            here.start("evt_3"), RunState.SLEEPING, due_at=stores.now + 5
        ),
        "a restart": lambda: here.store.steer(restarted(here.store.runs(RunFilter())[0], now=stores.now)),
        "a process that leaves": lambda: here.store.leave("p1", stores.now),
    }
    for name, action in actions.items():
        action()
        assert heard.wait(), name


def test_what_concerns_nobody_else_is_not_told(stores: Postgres) -> None:
    """Steps, runs that are accepted claimed, redeliveries, and one's own hints."""
    here, there = Process(stores, "p1"), Process(stores, "p2")
    here.queue("evt_0")
    mine, others = Heard(postgres(here)), Heard(postgres(there))

    run = here.start("evt_1")
    here.save(run, step())
    here.accept(accept("evt_0"))
    assert not others.wait(QUIET_SECONDS)

    here.queue("evt_2")
    assert others.wait()
    assert not mine.wait(QUIET_SECONDS)


def test_a_process_alone_tells_nobody(stores: Postgres) -> None:
    """The hint is a query that finds no other process, not a notification."""
    process = Process(stores)
    with psycopg.connect(stores.dsn, autocommit=True) as connection:
        connection.execute(f'listen "{stores.schema_name}"'.encode())
        process.queue("evt_1")
        assert list(connection.notifies(timeout=QUIET_SECONDS)) == []

        Process(stores, "p2")
        process.queue("evt_2")
        (hint,) = connection.notifies(timeout=QUICK_SECONDS, stop_after=1)
    assert (hint.channel, hint.payload) == (stores.schema_name, "default")


def test_another_namespace_is_not_told(stores: Postgres) -> None:
    here, there = Process(stores, "p1"), Process(stores, "p2")
    Process(stores, "q2", namespace="other")
    stranger = Process(stores, "q1", namespace="other")
    heard, foreign = Heard(postgres(there)), Heard(postgres(stranger))

    here.queue("evt_1")

    assert heard.wait()
    assert not foreign.wait(QUIET_SECONDS)


def test_nobody_is_told_with_hints_off(shared_database: str) -> None:
    stores = Postgres(shared_database, notify=False)
    here, there = Process(stores, "p1"), Process(stores, "p2")
    heard = Heard(postgres(there))

    here.queue("evt_1")

    assert not heard.wait(QUIET_SECONDS)
    stores.close()


def test_a_listener_connects_again_and_calls_for_what_it_missed(
    shared_database: str, postgres_server: PostgresAddress
) -> None:
    with TcpProxy(postgres_server) as proxy:
        direct = Postgres(shared_database)
        here = Process(direct, "p1")
        direct.dsn = proxy.dsn(shared_database.rsplit("/", 1)[1])
        heard = Heard(postgres(Process(direct, "p2")))
        for _ in range(2):
            proxy.cut()
            assert heard.wait(), "called after it came back"
            here.queue(f"evt_{heard.count}")
            assert heard.wait()
        direct.dsn = shared_database
        direct.close()


def test_a_listener_behind_a_pooler_says_so_once_and_ends(
    pooled: Callable[..., Postgres], caplog: pytest.LogCaptureFixture
) -> None:
    stores = pooled()
    process = Process(stores)
    with caplog.at_level(logging.INFO, "onceward.store"):
        listener = postgres(process).listen(lambda: None)
        eventually(lambda: not listener.is_alive)

    assert not listener.works.is_set()
    assert [record.message for record in caplog.records if "do not arrive" in record.message] != []
    stores.close()


def test_a_callback_that_fails_is_called_again(stores: Postgres, caplog: pytest.LogCaptureFixture) -> None:
    here, there = Process(stores, "p1"), Process(stores, "p2")
    calls = threading.Semaphore(0)

    def fail() -> None:
        calls.release()
        raise RuntimeError("a bug of the caller")

    listener = postgres(there).listen(fail)
    assert listener.works.wait(QUICK_SECONDS)
    assert calls.acquire(timeout=QUICK_SECONDS)
    here.queue("evt_1")

    assert calls.acquire(timeout=QUICK_SECONDS)
    assert "callback failed" in caplog.text


# --- the clock ---------------------------------------------------------------------------------------


def test_the_store_has_the_servers_time(stores: Postgres) -> None:
    store = stores.open()
    with psycopg.connect(stores.dsn) as connection:
        row = connection.execute("select extract(epoch from clock_timestamp()) * 1000").fetchone()
    assert row is not None

    assert abs(store.now_ms() - float(row[0])) < 500


def test_the_clock_is_the_servers_though_this_hosts_clock_is_anything(shared_database: str) -> None:
    """Only differences of the monotonic clock count."""
    ticks = iter(range(10**9))
    store = store_at(shared_database, monotonic_ms=lambda: next(ticks) * 0.001 - 77_000)

    assert abs(store.now_ms() - time.time() * 1000) < 60_000
    store.close()


def test_the_quickest_measurement_counts() -> None:
    times = [0.0]
    clock = ServerClock(lambda: times[0])

    def ask(out_ms: float, back_ms: float) -> Callable[[], float]:
        def answer() -> float:
            times[0] += out_ms
            server_ms = 1_000_000 + times[0]
            times[0] += back_ms
            return server_ms

        return answer

    clock.measure(ask(1, 1))
    clock.measure(ask(400, 0))
    assert clock.now_ms() == int(1_000_000 + times[0])

    for _ in range(SAMPLES):
        clock.measure(ask(90, 10))
    assert clock.now_ms() == int(1_000_000 + times[0] + 40), "an old measurement counts no longer"


# --- forks -------------------------------------------------------------------------------------------

FORK = """
import os, random, sys, time
from onceward.core import errors
from onceward.core.ports import Batch, RunFilter
from onceward.stores.postgres.statements import Call
from onceward.stores.postgres.store import PostgresStore

def new_store():
    return PostgresStore(sys.argv[1], namespace="default", schema=sys.argv[2], draw=random.random,
        sleep=time.sleep, monotonic_ms=lambda: time.monotonic() * 1000)

def in_child(action):
    pid = os.fork()
    if pid == 0:
        try:
            action()
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            os._exit(1)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0

def refused(store):
    for action in (lambda: store.runs(RunFilter()), lambda: store.resolve("p1", "b"), lambda: store.heartbeat("p1", 1, 1)):
        try:
            action()
        except errors.StoreForked as error:
            assert "after the fork" in str(error)
        else:
            raise AssertionError("not refused")
    store.close()

def anew(store):
    store.open(migrate=False)
    assert store.runs(RunFilter()) == []
    store.close()
    store.close()

store = new_store()
in_child(lambda: (store.open(migrate=True), store.close()))   # imported before the fork, opened after it
store.open(migrate=True)
store.runs(RunFilter())
store.listen(lambda: None)
in_child(lambda: refused(store))
in_child(lambda: anew(store))
assert store.runs(RunFilter()) == []
assert store.resolve("p1", "b") is False
store.close()
print("fine")
"""


def test_a_store_is_refused_after_a_fork_and_may_be_opened_anew(stores: Postgres) -> None:
    """The parent's sessions live on whatever its children do."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", FORK, stores.dsn, stores.schema_name],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.stdout.strip(), done.stderr) == ("fine", "")


# --- migrations --------------------------------------------------------------------------------------


def run_script(dsn: str, script: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(script.encode())


def text_of(store: Any, stores: Postgres) -> str:
    text: str = store.schema()
    assert len(text.splitlines()) > 50
    return text.replace(stores.schema_name, "onceward")


def test_a_store_of_every_older_version_becomes_a_fresh_one(stores: Postgres, shared_database: str) -> None:
    fresh = text_of(stores.open(), stores)
    for count in range(len(migrate.NAMES) + 1):
        older = Postgres(shared_database)
        macros = postgres_macros(older.schema_name)
        known = migrate.migrations(macros)[:count]
        parts = [f'create schema "{older.schema_name}"', migrate.VERSION_TABLE.format(**macros)]
        for migration in known:
            parts += [*migration.statements, migrate.record(migration, macros, now_ms=START)]
        run_script(older.dsn, ";".join(parts))

        assert text_of(older.open(), older) == fresh
        older.close()


def test_a_role_without_rights_on_the_database_can_use_a_schema_made_for_it(
    postgres_dsn: str, postgres_server: PostgresAddress
) -> None:
    """Creating schemas is a right that few roles have; asking for it where there is nothing to do fails."""
    role = unique_name()
    database = postgres_dsn.rsplit("/", 1)[1]
    run_script(
        postgres_dsn,
        f'create role "{role}" login; create schema shop authorization "{role}"; '
        f'revoke create on database "{database}" from public',
    )
    store = store_at(
        f"postgresql://{role}@{postgres_server.host}:{postgres_server.port}/{database}", schema="shop"
    )

    store.open(migrate=True)
    assert store.runs(RunFilter()) == []
    store.close()

    other = store_at(
        store._database.options["host"] and postgres_dsn.replace("postgres@", f"{role}@"), schema="new"
    )
    error = raised(errors.StoreError, lambda: other.open(migrate=True))
    assert "42501" in str(error)
    assert "CREATE on the database" in str(error)
    run_script(postgres_dsn, f'drop schema shop cascade; drop role "{role}"')
