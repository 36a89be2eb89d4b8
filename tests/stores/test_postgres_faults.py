"""What the network, the server and stopped processes do to commits on PostgreSQL, and what comes of it."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import psycopg
import pytest
from psycopg import pq

from onceward.core import errors, failpoints
from onceward.core.model import PromiseRow
from onceward.core.ports import Accept, Advance, Batch, BatchResult, RunFilter
from onceward.core.states import PromiseState, RunState
from onceward.stores.postgres.errors import Fault, fault_of
from onceward.stores.postgres.session import Carried, Result, Session
from onceward.stores.postgres.statements import statement
from onceward.stores.postgres.store import PostgresStore
from onceward.stores.statements import postgres_macros, render
from onceward.testing import check_invariants
from onceward.testing.servers import PostgresAddress, PostgresServer
from onceward.testing.store_scene import (
    LEASE_MS,
    START,
    Process,
    accept,
    attempt_log,
    audit,
    delivery,
    event,
    move,
    new_id,
    new_run,
    raised,
    restarted,
    rows,
    step,
)
from onceward.testing.tcp_proxy import TcpProxy
from tests.helpers import eventually
from tests.stores.factories import Postgres

pytestmark = pytest.mark.postgres

SHORT_LEASE_MS = 600
"""Locks are waited for half as long."""


@pytest.fixture
def stores(shared_database: str) -> Iterator[Postgres]:
    factory = Postgres(shared_database)
    yield factory
    factory.close()


@pytest.fixture
def proxy(postgres_server: PostgresAddress) -> Iterator[TcpProxy]:
    with TcpProxy(postgres_server) as started:
        yield started


class Faulty(Postgres):
    """Stores behind a proxy; ``plain`` gives one that is not."""

    def __init__(self, dsn: str, proxy: TcpProxy, **options: Any) -> None:
        self.direct_dsn = dsn
        super().__init__(proxy.dsn(dsn.rsplit("/", 1)[1]), **options)

    def plain(self) -> PostgresStore:
        self.dsn, kept = self.direct_dsn, self.dsn
        store = self.open()
        self.dsn = kept
        assert isinstance(store, PostgresStore)
        return store

    def execute(self, statement: str) -> None:
        with psycopg.connect(self.direct_dsn, autocommit=True) as connection:
            connection.execute(render(statement, postgres_macros(self.schema_name)).encode())

    def close(self) -> None:
        self.dsn = self.direct_dsn
        super().close()


@pytest.fixture
def faulty(shared_database: str, proxy: TcpProxy) -> Iterator[Faulty]:
    factory = Faulty(shared_database, proxy)
    yield factory
    factory.close()


# --- looking takes its time ------------------------------------------------------------------------------


def test_a_look_at_every_row_may_take_longer_than_a_lease(faulty: Faulty, proxy: TcpProxy) -> None:
    """Its transaction stands still between two tables, here since the network is slow."""
    faulty.options["lease_ms"] = 100
    store = faulty.open()
    assert isinstance(store, PostgresStore)
    proxy.delay(0.06)

    found = store.dump("run", "event"), store.excerpt(("run", "step"), ["run_1"])

    assert found == ({"run": [], "event": []}, {"run": [], "step": []})


# --- the reply to a commit is lost ----------------------------------------------------------------------

FAULTS: dict[str, Callable[[TcpProxy], None]] = {
    "commit arrives": TcpProxy.drop_commit_reply,
    "commit is lost": TcpProxy.cut_before_commit,
}


@pytest.fixture(params=FAULTS)
def lose(request: pytest.FixtureRequest, proxy: TcpProxy) -> Callable[[], None]:
    """Lose the next commit, or the reply to it; the caller cannot tell which."""
    return lambda: FAULTS[request.param](proxy)


def mixed_batch(process: Process) -> Batch:
    """Give a batch of commits whose answers are all different."""
    now = process.stores.now
    known = event("evt_known", content_hash="one")
    process.accept(Accept(known, [new_run()], [delivery(known)]))
    heard, again = event("evt_heard", content_hash="one"), event("evt_again")
    for emitted in (heard, again):
        process.accept(Accept(emitted, []))
    held, stale = process.start("evt_held"), process.start("evt_stale")
    process.move(stale, RunState.SLEEPING, due_at=now + 10**6)
    fact, clash = event("evt_new"), event("evt_known", content_hash="two")
    nobody = event("evt_nobody")
    guarded, refused = accept("emit_1", source="emit/x"), accept("emit_2", source="emit/x")
    guarded.by_run, guarded.by_fence = held.run_id, held.fence
    refused.by_run, refused.by_fence = held.run_id, held.fence + 7
    ends = move(held, RunState.COMPLETED, now=now, log=attempt_log(held, "retried", now=now))
    return Batch(
        new_id("batch_"),
        [
            Accept(fact, [new_run(), new_run("invoice")], [delivery(fact)]),
            Accept(clash, [new_run()], [delivery(clash, content_hash="two")]),
            Accept(fact, [new_run()], [delivery(fact)]),
            Accept(nobody, [], [delivery(nobody)]),
            guarded,
            refused,
            Accept(event("evt_heard", content_hash="two"), []),
            Accept(msgspec.structs.replace(again, received_at=now + 1), []),
            Accept(event("evt_unheard"), []),
        ],
        [
            process.advance(held, step(), becomes=ends),
            process.advance(stale, step()) if stale.fence < 0 else process.advance(restale(stale), step()),
        ],
    )


def restale(run: Any) -> Any:
    """Give a run as somebody sees it who lost it."""
    run.fence -= 1
    return run


def told(result: BatchResult) -> Any:
    return (
        [(one.is_duplicate, one.is_clash, one.is_refused, set(one.runs)) for one in result.accepted],
        result.held,
    )


def test_a_lost_reply_changes_no_answer(faulty: Faulty, stores: Postgres, lose: Callable[[], None]) -> None:
    """The batch is committed once, and its caller hears what it would have heard."""
    calm, process = Process(stores), Process(faulty)
    expected = told(calm.store.apply("p1", 1, mixed_batch(calm)))
    batch = mixed_batch(process)
    lose()

    result = process.store.apply("p1", 1, batch)

    assert told(result) == expected
    assert expected == (
        [
            (False, False, False, {"fulfil", "invoice"}),
            (True, True, False, {"fulfil"}),
            (True, False, False, {"fulfil", "invoice"}),
            (False, False, False, set()),
            (False, False, False, {"fulfil"}),
            (False, False, True, set()),
            (True, True, False, set()),
            (True, False, False, set()),
            (False, False, False, set()),
        ],
        [True, False],
    )
    for one, two in zip(counts(calm), counts(process), strict=True):
        assert one == two
    assert check_invariants(process.store) == []


def counts(process: Process) -> list[tuple[str, int]]:
    return [(table, len(found)) for table, found in rows(process.store).items()]


def test_who_ends_a_promise_first_is_told_so(
    faulty: Faulty, proxy: TcpProxy, lose: Callable[[], None]
) -> None:
    process = Process(faulty)
    run, now = process.start("evt_1"), faulty.now
    row = PromiseRow("hash", run.run_id, 1, "ask", "", 1, now)
    process.apply(advances=[Advance(run.run_id, 1, run.fence, [step("ask", kind="promise")], promises=[row])])
    lose()

    outcomes = [
        process.store.settle("hash", PromiseState.COMPLETED, value, at)
        for value, at in (('"a"', now), ('"a"', now + 1), ('"b"', now + 2))
    ]

    assert proxy.faults_made == 1
    assert [one is not None and one.is_done for one in outcomes] == [True, False, False]


def test_claims_whose_reply_was_lost_are_adopted_or_made(
    faulty: Faulty, proxy: TcpProxy, lose: Callable[[], None]
) -> None:
    """A committed claim is found among what the process owns; one that was lost is repeated."""
    process = Process(faulty)
    run = process.queue("evt_1")
    lose()

    claimed = process.claim()

    assert proxy.faults_made == 1
    assert process.owned() == {run.run_id: False}
    assert process.read(run.run_id).fence == 1
    assert [found.run_id for found in claimed] in ([], [run.run_id])


def test_operators_actions_happen_once(faulty: Faulty, proxy: TcpProxy, lose: Callable[[], None]) -> None:
    """Steer, replay, join, leave and takeover tell the truth although a reply was lost."""
    process = Process(faulty)
    failed = process.move(process.start("evt_1"), RunState.FAILED)
    done = process.move(process.start("evt_2"), RunState.COMPLETED)
    store = process.store

    lose()
    assert store.steer(restarted(failed, now=faulty.now))
    assert len(store.audits(failed.run_id)) == 1
    lose()
    wish = new_run(replay_id="request-1", replay_of=done.run_id)
    reply = store.replay(Accept(event("evt_2"), [wish]), [step()], audit(done.run_id, "replay"))
    assert (reply.is_duplicate, reply.runs) == (False, {"fulfil": wish.run_id})
    assert len(store.audits(done.run_id)) == 1
    lose()
    other = Process(faulty, "p2")
    assert len(store.processes()) == 2
    lose()
    store.leave("p1", faulty.now)
    other.claim()
    faulty.now += LEASE_MS + 1
    lose()
    taken = store.take_over(faulty.now, crash_limit=4, skip="")
    assert (taken.processes, taken.released) == (("p2",), 2)
    assert proxy.faults_made == 5
    assert check_invariants(store) == []


def test_a_process_that_is_evicted_while_in_doubt_is_told(faulty: Faulty, proxy: TcpProxy) -> None:
    """Its batch did not commit, and nothing of it is repeated."""
    process = Process(faulty)
    rescuer = faulty.plain()
    evict = threading.Event()

    def evict_once(name: str, _detail: str) -> None:
        if name == "accept.before_commit" and not evict.is_set():
            evict.set()
            proxy.cut()
            faulty.now += LEASE_MS + 1
            failpoints.arm(None)
            assert rescuer.take_over(faulty.now, crash_limit=4, skip="").processes == ("p1",)

    failpoints.arm(evict_once)
    try:
        raised(errors.LeaseLost, lambda: process.accept(accept("evt_1")))
    finally:
        failpoints.arm(None)

    assert rescuer.runs(RunFilter()) == []


def test_a_batch_that_the_network_held_up_cannot_follow_a_newer_one(stores: Postgres) -> None:
    """A copy that arrives late names a predecessor that is no longer the last."""
    process = Process(stores)
    process.accept(accept("evt_1"))
    before = process.last_batch
    process.accept(accept("evt_2"))
    writer = process.store._writer  # type: ignore[attr-defined]
    values: dict[str, Any] = {"process_id": b"p1", "epoch": b"1", "batch_id": b"late"}
    values |= {"previous": before.encode(), "registrations": None}

    def arrive(session: Any) -> None:
        raised(psycopg.errors.DivisionByZero, lambda: session.execute(writer._call("guard", **values)))

    process.store._control_link.run(arrive)  # type: ignore[attr-defined]
    assert process.store.resolve("p1", process.last_batch)


def test_a_batch_that_is_given_up_cannot_commit_any_more(stores: Postgres) -> None:
    """Whoever was told that a batch is not committed can rely on it."""
    process = Process(stores)
    process.accept(accept("evt_1"))
    before = process.last_batch

    assert not process.store.resolve("p1", "lost")

    writer = process.store._writer  # type: ignore[attr-defined]
    values: dict[str, Any] = {"process_id": b"p1", "epoch": b"1", "batch_id": b"lost"}
    values |= {"previous": before.encode(), "registrations": None}
    process.store._control_link.run(  # type: ignore[attr-defined]
        lambda session: raised(
            psycopg.errors.DivisionByZero, lambda: session.execute(writer._call("guard", **values))
        )
    )
    assert process.accept(accept("evt_2"))


def test_the_same_batch_again_is_one_batch(stores: Postgres) -> None:
    """A caller that repeats what is committed gets its answers again."""
    process = Process(stores)
    fact = event("evt_1")
    batch = Batch("batch-1", [Accept(fact, [new_run()], [delivery(fact)])])
    first = process.store.apply("p1", 1, batch)

    assert process.store.apply("p1", 1, batch).accepted == first.accepted
    assert len(process.store.runs(RunFilter())) == 1


def test_another_store_may_go_on_for_a_process(stores: Postgres) -> None:
    """It finds out which batch was the last."""
    process = Process(stores)
    process.accept(accept("evt_1"))
    process.store = stores.open()

    assert process.accept(accept("evt_2"))
    assert process.store.resolve("p1", process.last_batch)


# --- connections and servers go and come ------------------------------------------------------------------


def test_cut_connections_are_opened_again(faulty: Faulty, proxy: TcpProxy) -> None:
    """Every verb goes on after each of its connections broke while idle."""
    process = Process(faulty)
    run = process.start("evt_1")
    process.store.now_ms()
    for number in range(3):
        assert proxy.cut() > 0
        assert process.save(run, step(f"s{number}", seq=number))
        process.heartbeat()
        assert process.read(run.run_id) == run
        assert process.store.take_over(faulty.now, crash_limit=4, skip="p1").processes == ()

    assert len(process.store.steps(run.run_id)) == 3


def test_a_terminated_session_is_opened_again(stores: Postgres) -> None:
    """The server ends the writer's session, as at a fast shutdown."""
    process = Process(stores)
    pid = process.store._write_link.backend_pid  # type: ignore[attr-defined]
    process.accept(accept("evt_1"))
    pid = process.store._write_link.backend_pid  # type: ignore[attr-defined]
    with psycopg.connect(stores.dsn, autocommit=True) as connection:
        connection.execute("select pg_terminate_backend(%s)", [pid])

    assert not process.accept(accept("evt_2"))[0].is_duplicate
    assert process.store._write_link.backend_pid != pid  # type: ignore[attr-defined]


def test_a_server_that_is_down_is_unavailable_and_used_again_when_it_is_up() -> None:
    """Immediate shutdown, as in a crash; what was committed is there afterwards."""
    with PostgresServer() as server:
        stores = Postgres(server.dsn(), lease_ms=SHORT_LEASE_MS)
        process = Process(stores)
        run = process.start("evt_1")
        server.halt(immediate=True)

        for action in (
            lambda: process.save(run, step()),
            process.heartbeat,
            lambda: process.store.runs(RunFilter()),
            lambda: process.store.take_over(START, crash_limit=4, skip=""),
        ):
            error = raised(errors.StoreUnavailable, action)
            assert "tries again" in str(error)
        server.start()

        assert process.save(run, step("after"))
        process.heartbeat()
        assert [row.name for row in process.store.steps(run.run_id)] == ["after"]
        stores.close()


def test_a_server_that_does_not_answer_counts_as_lost(faulty: Faulty, proxy: TcpProxy) -> None:
    """Its silence is bounded; the batch is found not to be committed and made again."""
    process = Process(faulty)
    process.accept(accept("evt_1"))
    session = process.store._write_link._session  # type: ignore[attr-defined]
    session.reply_ms = 300
    proxy.blackhole()
    healed = threading.Timer(0.6, proxy.heal)
    healed.start()

    assert process.accept(accept("evt_2"))
    healed.join()
    assert len(process.store.runs(RunFilter())) == 2


# --- locks ---------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def holding(stores: Postgres, statement: str) -> Iterator[psycopg.Connection[Any]]:
    """Hold the locks of a statement in an open transaction of a session that has stopped."""
    with psycopg.connect(stores.dsn) as connection:
        connection.execute(render(statement, postgres_macros(stores.schema_name)).encode())
        yield connection
        with contextlib.suppress(psycopg.Error):
            connection.rollback()


GUARDING = "update {t}committer set last_batch = 'half a batch' where process_id = 'p1'"


def test_a_lock_that_is_held_for_long_is_waited_for_in_tries(shared_database: str) -> None:
    """Longer than one lock time-out, shorter than a lease."""
    stores = Postgres(shared_database, lease_ms=2 * SHORT_LEASE_MS)
    process = Process(stores)
    with holding(stores, GUARDING) as connection:
        release = threading.Timer(SHORT_LEASE_MS * 1.3 / 1000, connection.rollback)
        release.start()

        assert process.accept(accept("evt_1"))

        release.join()
    stores.close()


def test_a_lock_that_is_never_released_is_an_error_within_bounds(shared_database: str) -> None:
    stores = Postgres(shared_database, lease_ms=SHORT_LEASE_MS)
    process = Process(stores)
    with holding(stores, GUARDING):
        error = raised(errors.StoreUnavailable, lambda: process.accept(accept("evt_1")))

    assert "55P03" in str(error)
    assert process.accept(accept("evt_1"))
    stores.close()


def test_a_process_that_stopped_inside_its_batch_is_taken_over(shared_database: str) -> None:
    """It holds its committer's row and will not let go; its connection is ended."""
    stores = Postgres(shared_database, lease_ms=SHORT_LEASE_MS)
    frozen, alive = Process(stores, "p1"), Process(stores, "p2")
    run = frozen.start("evt_1")
    stores.now += LEASE_MS + 1
    alive.heartbeat()
    with holding(stores, GUARDING) as connection:
        taken = alive.store.take_over(stores.now, crash_limit=4, skip="p2")

        assert (taken.processes, taken.released) == (("p1",), 1)
        raised(psycopg.Error, connection.commit)
    raised(errors.LeaseLost, lambda: frozen.save(run, step()))
    assert [run.run_id] == [found.run_id for found in alive.claim()]
    stores.close()


def test_an_instance_that_stopped_inside_its_batch_is_evicted(shared_database: str) -> None:
    stores = Postgres(shared_database, lease_ms=SHORT_LEASE_MS)
    run = Process(stores, "p1", instance="shop-1").start("evt_1")
    with holding(stores, GUARDING):
        new = Process(stores, "p2", instance="shop-1")

    assert [run.run_id] == [found.run_id for found in new.claim()]
    stores.close()


def test_a_lost_batch_that_hangs_in_the_server_is_shut_out(shared_database: str) -> None:
    """It may have sent half of its pipeline: it is ended before the answer is given."""
    stores = Postgres(shared_database, lease_ms=SHORT_LEASE_MS)
    process = Process(stores)
    with holding(stores, GUARDING) as connection:
        assert not process.store.resolve("p1", "half a batch")
        raised(psycopg.Error, connection.commit)
    stores.close()


def test_a_holder_that_stopped_before_its_commit_is_let_go_by_the_server(shared_database: str) -> None:
    """The transaction of a stopped process ends within half a lease, and its return is refused."""
    stores = Postgres(shared_database, lease_ms=SHORT_LEASE_MS)
    process, other = Process(stores, "p1"), Process(stores, "p2")
    stopped, go_on = threading.Event(), threading.Event()

    def stop(name: str, _detail: str) -> None:
        if name == "accept.before_commit":
            stopped.set()
            assert go_on.wait(10)

    outcome: list[BaseException] = []
    thread = threading.Thread(
        target=lambda: outcome.append(raised(errors.LeaseLost, lambda: process.accept(accept("evt_1"))))
    )
    failpoints.arm(stop)
    try:
        thread.start()
        assert stopped.wait(10)
        failpoints.arm(None)
        stores.now += LEASE_MS + 1
        other.heartbeat()
        eventually(lambda: other.store.take_over(stores.now, crash_limit=4, skip="p2").processes == ("p1",))
        go_on.set()
        thread.join(10)
    finally:
        failpoints.arm(None)
        go_on.set()

    assert len(outcome) == 1
    assert other.store.runs(RunFilter()) == []
    stores.close()


# --- what the server refuses ----------------------------------------------------------------------------------


def raising(stores: Postgres, sqlstate: str) -> None:
    """Make the server refuse every event that is inserted, with a code of its own."""
    stores.execute(
        f"create function {{t}}refuse() returns trigger language plpgsql as $$ begin "
        f"raise exception 'refused for a test' using errcode = '{sqlstate}', detail = 'secret payload'; end $$"
    )
    stores.execute(
        "create trigger refuse before insert on {t}event for each row execute function {t}refuse()"
    )


@pytest.mark.parametrize(
    ("sqlstate", "kind", "advice"),
    [
        ("53100", errors.StoreUnavailable, "Free space"),
        ("25006", errors.StoreUnavailable, "primary"),
        ("53300", errors.StoreUnavailable, "max_connections"),
        ("42501", errors.StoreError, "Grant"),
        ("23514", errors.StoreError, "refused a statement"),
        ("42P01", errors.SchemaOutdated, "migrate"),
    ],
)
def test_what_the_server_refuses_is_told_with_advice_and_without_rows(
    shared_database: str, sqlstate: str, kind: type[errors.StoreError], advice: str
) -> None:
    stores = Postgres(shared_database, lease_ms=SHORT_LEASE_MS)
    process = Process(stores)
    raising(stores, sqlstate)

    error = raised(kind, lambda: process.accept(accept("evt_1")))

    assert type(error) is kind
    assert sqlstate in str(error)
    assert advice in str(error)
    assert "secret payload" not in str(error)
    stores.execute("drop trigger refuse on {t}event")
    assert process.accept(accept("evt_1"))
    stores.close()


def test_serialization_failures_are_tried_again(stores: Postgres) -> None:
    """A fault that passes after three tries is not seen by the caller."""
    process = Process(stores)
    stores.execute("create sequence {t}tries")
    stores.execute(
        "create function {t}fail() returns trigger language plpgsql as $$ begin "
        f"if nextval('\"{stores.schema_name}\".tries') < 4 then "
        "raise exception 'could not serialize' using errcode = '40001'; end if; return new; end $$"
    )
    stores.execute("create trigger fail before insert on {t}event for each row execute function {t}fail()")

    assert not process.accept(accept("evt_1"))[0].is_duplicate
    assert len(process.store.runs(RunFilter())) == 1


def test_the_pauses_between_tries_are_drawn_and_bounded(shared_database: str) -> None:
    """Full jitter: shares of a doubling pause, handed to the sleep that was passed in."""
    slept: list[float] = []
    stores = Postgres(shared_database)
    process = Process(stores)
    stores.execute(
        "create function {t}fail() returns trigger language plpgsql as $$ begin "
        "raise exception 'could not serialize' using errcode = '40001'; end $$"
    )
    stores.execute("create trigger fail before insert on {t}event for each row execute function {t}fail()")
    process.store._database._sleep = slept.append  # type: ignore[attr-defined]
    process.store._database._draw = lambda: 0.5  # type: ignore[attr-defined]

    raised(errors.StoreUnavailable, lambda: process.accept(accept("evt_1")))

    assert slept == [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.5, 0.5]
    stores.close()


def test_a_poisoned_batch_leaves_the_connection_usable(stores: Postgres) -> None:
    """A raw NUL is refused by the server; the same connection takes the next batch."""
    process = Process(stores)
    process.accept(accept("evt_1"))
    pid = process.store._write_link.backend_pid  # type: ignore[attr-defined]

    error = raised(errors.StoreError, lambda: process.accept(accept("evt_2", payload='"\x00"')))

    assert type(error) is errors.StoreError
    assert process.accept(accept("evt_2"))
    assert process.store._write_link.backend_pid == pid  # type: ignore[attr-defined]


def test_a_farewell_after_the_last_reply_is_a_lost_connection(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server may be shut down between the last reply of a round and the end of the round."""
    with (
        psycopg.connect(postgres_dsn, autocommit=True) as ended,
        psycopg.connect(postgres_dsn, autocommit=True) as connection,
    ):
        farewell = ended.pgconn.exec_(b"select pg_terminate_backend(pg_backend_pid())")
        session = Session(connection, pins=None, prepares=False, reply_ms=30_000)
        heard = session._next_result

        def interrupted() -> Carried[Result]:
            result = yield from heard()
            return farewell if result.status == pq.ExecStatus.PIPELINE_SYNC else result

        monkeypatch.setattr(session, "_next_result", interrupted)

        with pytest.raises(psycopg.DatabaseError) as caught:
            session.transact([statement("one", "select 1").bind({})])

        assert fault_of(caught.value) is Fault.LOST
        assert not session.is_usable


@pytest.mark.parametrize("lost", [0, 1], ids=["a_statements", "a_rounds_end"])
def test_replies_out_of_step_are_a_lost_connection(
    lost: int, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pooler may give a reply to somebody else; what was under way is in doubt then."""
    with contextlib.closing(psycopg.connect(postgres_dsn, autocommit=True)) as connection:
        session = Session(connection, pins=None, prepares=False, reply_ms=1_000)
        heard = session._next_result
        count = itertools.count()

        def astray() -> Carried[Result]:
            result = yield from heard()
            return (yield from heard()) if next(count) == lost else result

        monkeypatch.setattr(session, "_next_result", astray)
        session.hint(statement("one", "select 1").bind({}))

        with pytest.raises(psycopg.OperationalError) as caught:
            session.transact([statement("two", "select 2").bind({})])

        assert fault_of(caught.value) is Fault.LOST
        assert not session.is_usable
