"""What only the SQLite store does: files, locks, several processes, forks, faults of the disk."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
import sqlite3
import stat
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onceward import App, Context
from onceward.core import errors, failpoints
from onceward.core.ports import EventFilter, EventPlace, RunFilter
from onceward.core.states import RunState
from onceward.stores import migrate
from onceward.stores.rows import COLUMN_MACROS
from onceward.stores.sqlite.connection import WAL_PAGES_MAX, Connections
from onceward.stores.sqlite.lockfiles import LockFiles
from onceward.stores.sqlite.store import SqliteStore
from onceward.stores.statements import SQLITE_MACROS, load, render
from onceward.testing import check_invariants
from onceward.testing.store_scene import LEASE_MS, START, Process, accept, raised, step, together
from tests.helpers import eventually, eventually_async
from tests.stores.factories import SqliteFile, SqliteMemory
from tests.stores.sqlite_process import Remote

PROCESSES = 4
BUSY_HELD_SECONDS = 1.0
MEGABYTE = 1_000_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "onceward.db"


@pytest.fixture
def stores(path: Path) -> Iterator[SqliteFile]:
    factory = SqliteFile(path)
    yield factory
    factory.close()


@pytest.fixture
def remotes(path: Path) -> Iterator[list[Remote]]:
    """Real processes on the file; killed in the end."""
    started = [Remote(path, f"remote-{number}") for number in range(PROCESSES)]
    yield started
    for remote in started:
        remote.close()


@pytest.fixture
def remote(path: Path) -> Iterator[Remote]:
    started = Remote(path)
    yield started
    started.close()


def connections_of(process: Process) -> Connections:
    return process.store._connections  # type: ignore[attr-defined,no-any-return]


def is_taken(connections: Connections) -> bool:
    """Say whether another thread of this process writes, or waits to."""
    is_free = connections._write_lock.acquire(blocking=False)
    if is_free:
        connections._write_lock.release()
    return not is_free


# --- several processes ---------------------------------------------------------------------------


def test_processes_that_open_a_new_file_at_once_all_can(remotes: list[Remote], stores: SqliteFile) -> None:
    for remote in remotes:
        remote.ask("at", START)
    for remote in remotes:
        remote.send("open")

    assert [remote.receive() for remote in remotes] == [{"ok": None}] * PROCESSES
    stores.make().open(migrate=False)


def test_a_switch_to_wal_that_others_make_too_is_waited_for(tmp_path: Path) -> None:
    """SQLite turns some of them away at once, whatever their timeout."""
    for number in range(40):
        stores = SqliteFile(tmp_path / f"{number}.db")
        fresh = [stores.make() for _ in range(8)]
        try:
            together(*(lambda store=store: store.open(migrate=True) for store in fresh))
        finally:
            stores.close()


def test_processes_share_one_file(remotes: list[Remote], stores: SqliteFile) -> None:
    """Four processes deliver the same hundred events and run them: one run each, each run once."""
    for remote in remotes:
        remote.ask("join")
    ids = [f"evt_{number}" for number in range(100)]
    replies: list[dict[str, str]] = [{} for _ in remotes]
    for begin in range(0, 100, 10):
        for number, remote in enumerate(remotes):
            part = ids[begin : begin + 10]
            remote.send("accept", *(part if number % 2 else reversed(part)))
        for number, remote in enumerate(remotes):
            part = ids[begin : begin + 10]
            runs = remote.receive()["ok"]
            replies[number].update(
                zip(part if number % 2 else reversed(part), (r["fulfil"] for r in runs), strict=True)
            )

    for remote in remotes:
        remote.send("finish_all")
    shares = [remote.receive()["ok"] for remote in remotes]

    assert all(reply == replies[0] for reply in replies)
    done = [run_id for share in shares for run_id in share]
    assert sorted(done) == sorted(replies[0].values())
    store = stores.open()
    runs = store.runs(RunFilter(limit=1_000))
    assert len(runs) == 100
    assert {(run.state, run.fence, run.attempt) for run in runs} == {(RunState.COMPLETED, 1, 1)}
    assert check_invariants(store) == []


@pytest.mark.parametrize(("side", "is_there"), [("before", False), ("after", True)])
def test_a_process_that_is_killed_at_its_commit_leaves_all_or_nothing(
    remote: Remote, stores: SqliteFile, side: str, is_there: bool
) -> None:
    remote.ask("join")
    remote.ask("accept", "evt_1")
    remote.ask("die_at", f"accept.{side}_commit")

    assert remote.reply("accept", "evt_2")["error"] == "gone"
    remote.wait()

    process = Process(stores, "p2")
    assert process.store.event("stripe", "evt_1") is not None
    assert (process.store.event("stripe", "evt_2") is not None) is is_there
    assert process.accept(accept("evt_2"))[0].is_duplicate is is_there
    assert remote.wait() != 0


# --- lock files ---------------------------------------------------------------------------------------


def test_a_killed_process_is_taken_over_at_once(remote: Remote, stores: SqliteFile) -> None:
    """Its lock file is free, so nobody waits for its lease."""
    rescuer = Process(stores, "p2")
    remote.ask("join")
    run_id = remote.ask("start", "evt_1")
    assert rescuer.store.take_over(START, crash_limit=4, skip="p2").processes == ()
    assert rescuer.store.look("p2", ["fulfil"]).oldest_lease == START + LEASE_MS

    remote.kill()

    assert rescuer.store.look("p2", ["fulfil"]).oldest_lease == 0
    taken = rescuer.store.take_over(START, crash_limit=4, skip="p2")
    assert (taken.processes, taken.released) == (("remote",), 1)
    assert [run.run_id for run in rescuer.claim()] == [run_id]


def test_a_missing_lock_file_says_nothing(stores: SqliteFile, path: Path) -> None:
    """Removed by hand, or never made by a process on another host: the lease decides."""
    process, other = Process(stores, "p1"), Process(stores, "p2")
    process.start("evt_1")
    Path(f"{path}-onceward/p1.lock").unlink()

    assert other.store.take_over(stores.now, crash_limit=4, skip="p2").processes == ()
    stores.now += LEASE_MS + 1
    other.heartbeat()
    assert other.store.take_over(stores.now, crash_limit=4, skip="p2").processes == ("p1",)


def test_a_heartbeat_makes_a_removed_lock_file_anew(stores: SqliteFile, path: Path) -> None:
    process, other = Process(stores, "p1"), Process(stores, "p2")
    lock = Path(f"{path}-onceward/p1.lock")
    lock.unlink()

    process.heartbeat()

    assert lock.exists()
    assert not connections_of(other).is_free("p1")
    process.store.leave("p1", stores.now)
    assert not lock.exists()


def test_a_process_that_registers_again_after_an_eviction_can_be_seen_dead(
    remote: Remote, stores: SqliteFile
) -> None:
    """The takeover removed its lock file; a lock on the removed one would be seen by nobody."""
    rescuer = Process(stores, "p2")
    remote.ask("join")
    stores.now += LEASE_MS + 1
    rescuer.heartbeat()
    assert rescuer.store.take_over(stores.now, crash_limit=4, skip="p2").processes == ("remote",)

    remote.ask("at", stores.now)
    remote.ask("join")

    assert rescuer.store.take_over(stores.now, crash_limit=4, skip="p2").processes == ()
    remote.kill()
    assert rescuer.store.take_over(stores.now, crash_limit=4, skip="p2").processes == ("remote",)


def test_a_lock_is_free_when_its_holder_is_gone(tmp_path: Path) -> None:
    ours, theirs = LockFiles(tmp_path / "locks"), LockFiles(tmp_path / "locks")
    assert ours.hold("p1")
    assert ours.hold("p1"), "held already"

    assert not theirs.hold("p1")
    assert not theirs.is_free("p1")
    assert not theirs.is_free("never seen")
    os.close(ours._held["p1"])  # what the kernel does when a process ends, however it ends
    assert theirs.is_free("p1")
    assert not (tmp_path / "locks" / "never seen.lock").exists(), "a look makes no file"


def test_a_look_does_not_keep_the_owner_from_its_lock(tmp_path: Path) -> None:
    """Looking holds the lock for an instant; whoever takes it meanwhile tries again."""
    look = os.open(tmp_path / "p1.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(look, fcntl.LOCK_EX)
    end = threading.Timer(0.01, os.close, [look])
    end.start()

    owner = LockFiles(tmp_path)
    assert owner.hold("p1")

    end.join()
    assert not LockFiles(tmp_path).is_free("p1")


# --- checkpoints and durability ---------------------------------------------------------------------


def test_every_commit_is_synced_and_readers_do_not_write(stores: SqliteFile) -> None:
    process = Process(stores)
    process.store.runs(RunFilter())
    connections = connections_of(process)
    writer, reader = connections._writer, connections._reader
    assert writer is not None
    assert reader is not None

    assert writer.execute("pragma journal_mode").fetchone() == ("wal",)
    assert writer.execute("pragma synchronous").fetchone() == (2,)
    assert reader.execute("pragma query_only").fetchone() == (1,)
    assert reader.execute("pragma wal_autocheckpoint").fetchone() == (0,)
    assert process.store.describe()["durability"] == "WAL, synchronous=FULL"


def test_one_process_at_a_time_checkpoints(remote: Remote, stores: SqliteFile) -> None:
    """The first one does; when it dies the next heartbeat of another takes over."""
    remote.ask("join")
    process = Process(stores, "p2")
    writer = connections_of(process)._writer
    assert writer is not None
    pragma = "pragma wal_autocheckpoint"
    assert remote.ask("autocheckpoint") == WAL_PAGES_MAX
    assert writer.execute(pragma).fetchone() == (0,)
    process.heartbeat()
    assert writer.execute(pragma).fetchone() == (0,)

    remote.kill()
    process.heartbeat()

    assert writer.execute(pragma).fetchone() == (WAL_PAGES_MAX,)


def test_the_log_is_copied_into_the_file_and_does_not_grow_for_ever(stores: SqliteFile, path: Path) -> None:
    process = Process(stores)
    for number in range(100):
        process.accept(accept(f"evt_{number}", payload="x" * MEGABYTE))

    assert path.stat().st_size > 60 * MEGABYTE
    assert Path(f"{path}-wal").stat().st_size < 75 * MEGABYTE


# --- forks -----------------------------------------------------------------------------------------------


def test_a_store_is_refused_in_a_forked_child(remote: Remote) -> None:
    """Reads and writes alike, and the parent goes on."""
    remote.ask("join")

    assert remote.ask("fork", "store.run('run_1')") == "StoreForked"
    assert remote.ask("fork", "store.heartbeat('remote', 1, 1)") == "StoreForked"
    assert len(remote.ask("accept", "evt_1")) == 1


@pytest.mark.parametrize("fork", ["fork", "fork_unheard"])
def test_a_file_that_was_open_before_a_fork_cannot_be_opened_in_the_child(
    fork: str, remote: Remote, stores: SqliteFile, path: Path
) -> None:
    """SQLite keeps notes of its locks in memory: the child inherits them, and not the locks.

    uWSGI forks without Python's hooks. The parent's connections stay the parent's, also when the child closes.
    """
    remote.ask("join")
    anew = (
        "from onceward.stores.sqlite.store import SqliteStore\n"
        "SqliteStore(store.path, namespace='default', now_ms=store.now_ms).open(migrate=False)"
    )

    assert remote.ask(fork, "store.open(migrate=False)") == "StoreForked"
    assert remote.ask(fork, anew) == "StoreForked"
    other_file = anew.replace("store.path", "store.path + '-other'").replace("False)", "True)")
    assert remote.ask(fork, other_file) == "fine"
    assert remote.ask(fork, "store.close()\nstore.close()") == "fine"
    assert Path(f"{path}-onceward/remote.lock").exists()
    assert len(remote.ask("accept", "evt_1")) == 1
    other = Process(stores, "p2")
    assert other.store.take_over(START, crash_limit=4, skip="p2").processes == (), "its lock is still held"


# --- faults ------------------------------------------------------------------------------------------------


def test_a_file_that_is_no_database_is_named(path: Path, stores: SqliteFile) -> None:
    path.write_bytes(b"this is a diary, not a database" * 100)

    error = raised(errors.StoreDamaged, lambda: stores.open())

    assert str(path) in str(error)
    assert path.read_bytes().startswith(b"this is a diary")
    raised(errors.StoreError, lambda: stores.made[0].runs(RunFilter()))


def test_a_database_that_was_cut_short_is_damaged_and_never_crashes(path: Path, stores: SqliteFile) -> None:
    process = Process(stores)
    process.accept(*(accept(f"evt_{number}", payload="x" * 5_000) for number in range(50)))
    process.store.close()
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)

    broken = stores.make()

    def read_all() -> None:
        broken.open(migrate=False)
        for event in broken.events(EventFilter()):
            broken.event(event.source, event.id)

    raised(errors.StoreDamaged, read_all)


def test_a_missing_folder_is_unavailable(tmp_path: Path) -> None:
    stores = SqliteFile(tmp_path / "no such folder" / "onceward.db")

    error = raised(errors.StoreUnavailable, stores.open)

    assert "no such folder" in str(error)


def test_a_writer_that_another_process_blocks_waits_for_it(remote: Remote, stores: SqliteFile) -> None:
    """And reads go on meanwhile."""
    process = Process(stores)
    run = process.queue("evt_1")
    remote.ask("begin")
    done = threading.Event()

    def write() -> None:
        process.accept(accept("evt_2"))
        done.set()

    thread = threading.Thread(target=write)
    thread.start()

    assert not done.wait(BUSY_HELD_SECONDS)
    assert process.read(run.run_id) == run
    remote.ask("commit")
    assert done.wait(10)
    thread.join()

    assert process.store.event("stripe", "evt_2") is not None


def test_a_writer_that_is_blocked_for_too_long_is_told_and_works_afterwards(
    remote: Remote, stores: SqliteFile
) -> None:
    process = Process(stores)
    connections_of(process)._busy_ms = 50
    remote.ask("begin")

    error = raised(errors.StoreUnavailable, lambda: process.accept(accept("evt_1")))
    remote.ask("commit")

    assert "SQLITE_BUSY" in str(error)
    assert not process.accept(accept("evt_1"))[0].is_duplicate


def test_a_writer_that_waits_for_a_stranger_is_turned_away_when_the_store_is_closed(
    remote: Remote, stores: SqliteFile
) -> None:
    process = Process(stores)
    connections = connections_of(process)
    connections._busy_ms = 3_600_000
    remote.ask("begin")
    told: list[BaseException] = []

    def write() -> None:
        told.append(raised(errors.StoreUnavailable, lambda: process.accept(accept("evt_1"))))

    thread = threading.Thread(target=write)
    thread.start()
    eventually(lambda: is_taken(connections), what="the writer waits")
    process.store.close()
    thread.join()

    assert "SQLITE_BUSY" in str(told[0])


def test_an_app_closes_while_a_stranger_holds_the_write_lock(
    remote: Remote, stores: SqliteFile, caplog: pytest.LogCaptureFixture
) -> None:
    """Its grace and a little: an hour for each of its writes would not let this test end."""
    app = App(f"sqlite:///{stores.path}", poll="100ms")
    go_on = threading.Event()

    @app.workflow
    async def flow(ctx: Context) -> bool:
        return await ctx.step.run("body", go_on.wait)

    async def is_in_body() -> bool:
        return any(execution.steps_in_flight for execution in app.worker.executions.values())

    async def waits() -> bool:
        return not app.worker.is_heard

    async def scenario() -> None:
        await app.open()
        store: Any = app.worker.store
        store._connections._busy_ms = 3_600_000
        await app.start(flow)
        await eventually_async(is_in_body, what="the body")
        remote.ask("begin")
        go_on.set()
        await eventually_async(waits, what="the checkpoint waits")
        await app.close(grace="0s")

    asyncio.run(scenario())

    assert [record.message for record in caplog.records if "is held" in record.message] == []


@contextlib.contextmanager
def small_disk(mount: Path) -> Iterator[bool]:
    """Mount a file system of 3 MB; give False where this user may not."""
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(mount)]
    try:
        is_mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        is_mounted = False
    yield is_mounted
    if is_mounted:
        subprocess.run(["umount", "-l", str(mount)], check=True)


def test_a_full_disk_refuses_and_loses_nothing(tmp_path: Path) -> None:
    """A small file system where it can be mounted, else a limit of the process: both end writes early."""
    with small_disk(tmp_path / "disk") as is_mounted:
        path = tmp_path / "disk" / "onceward.db"
        remote = Remote(path)
        remote.ask("join")
        remote.ask("accept", "evt_1")
        if not is_mounted:
            remote.ask("limit", 3 * MEGABYTE)

        filled = remote.ask("fill", 100_000, 100)

        assert 5 < len(filled["done"]) < 60
        assert "cannot be used now" in filled["text"]
        assert "free space" in filled["text"]
        if is_mounted:
            subprocess.run(["mount", "-o", "remount,size=30m", str(path.parent)], check=True)
        else:
            remote.ask("limit", 0)
        remote.ask("accept", "evt_2")
        remote.ask("heartbeat")
        assert remote.ask("check") == "ok"
        stores = SqliteFile(path)
        stored = {event.id for event in stores.open().events(EventFilter(limit=1_000))}
        assert stored == {"evt_1", "evt_2", *filled["done"]}
        stores.close()
        remote.close()


def test_a_failed_write_drops_the_connection_and_the_next_is_a_new_one(stores: SqliteFile) -> None:
    """After a failed write the connection is not trusted (F15)."""
    process = Process(stores)
    connections = connections_of(process)
    before = connections._writer
    assert before is not None
    pages = before.execute("pragma page_count").fetchone()[0]
    before.execute(f"pragma max_page_count = {pages}")

    error = raised(errors.StoreUnavailable, lambda: process.accept(accept("evt_1", payload="x" * MEGABYTE)))

    assert "SQLITE_FULL" in str(error)
    raised(sqlite3.ProgrammingError, lambda: before.execute("select 1"))
    assert not process.accept(accept("evt_1", payload="x" * MEGABYTE))[0].is_duplicate
    assert connections._writer is not before


@pytest.mark.parametrize(
    ("place", "fault", "remedy"),
    [
        ("missing/onceward.db", "missing of the store", "Make the folder"),
        (".", "is a folder", "Name a file in it"),
    ],
)
def test_a_place_that_cannot_hold_the_file_is_refused_by_name(
    tmp_path: Path, place: str, fault: str, remedy: str
) -> None:
    store = SqliteStore(str(tmp_path / place), namespace="default", now_ms=lambda: 0)

    error = raised(errors.StoreUnavailable, lambda: store.open(migrate=True))

    assert fault in str(error)
    assert remedy in str(error)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("what", ["moved", "replaced"])
def test_a_file_that_is_gone_takes_nothing_more_until_it_is_back(
    stores: SqliteFile, path: Path, tmp_path: Path, what: str
) -> None:
    """SQLite goes on with a deleted file; what it accepted there would be lost."""
    process = Process(stores)
    process.accept(accept("evt_1"))
    names = [path.name, f"{path.name}-wal", f"{path.name}-shm"]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in names:
        (path.parent / name).rename(elsewhere / name)
    if what == "replaced":
        path.touch()

    error = raised(errors.StoreUnavailable, lambda: process.accept(accept("evt_2")))
    raised(errors.StoreUnavailable, lambda: process.store.event("a", "b"))
    assert "deleted, moved or replaced" in str(error)
    assert path.exists() is (what == "replaced")  # none is made in its place

    for name in names:
        (elsewhere / name).replace(path.parent / name)
    assert process.accept(accept("evt_1"))[0].is_duplicate
    assert not process.accept(accept("evt_2"))[0].is_duplicate


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_read_only_place_is_unavailable_until_it_is_writable(
    remote: Remote, stores: SqliteFile, path: Path, what: str
) -> None:
    stores.open().close()
    target, mode = (path, 0o444) if what == "file" else (path.parent, 0o555)
    writable = stat.S_IMODE(target.stat().st_mode)
    remote.ask("obey_modes")
    target.chmod(mode)

    refused = remote.reply("open")
    target.chmod(writable)

    assert refused["error"] == "StoreUnavailable", refused
    assert str(path) in refused["text"]
    assert f"The {what} {target}" in refused["text"]
    assert "read-only for this user" in refused["text"]
    remote.ask("open")
    remote.ask("join")
    assert len(remote.ask("accept", "evt_1")) == 1


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o027])
def test_nobody_else_can_read_the_files(stores: SqliteFile, path: Path, umask: int) -> None:
    """Neither the database, its log and index, nor the lock files (F49)."""
    before = os.umask(umask)
    try:
        Process(stores).queue("evt_1")
    finally:
        os.umask(before)

    files = [path, *path.parent.glob("onceward.db-*"), *Path(f"{path}-onceward").iterdir()]
    assert len(files) >= 5
    assert {file.name: oct(file.stat().st_mode & 0o007) for file in files} == {
        file.name: "0o0" for file in files
    }


# --- in memory -----------------------------------------------------------------------------------------------


def test_a_reader_in_memory_does_not_see_an_open_transaction() -> None:
    """Stores that share a connection take turns, so nobody reads what may be taken back."""
    stores = SqliteMemory()
    process, other = Process(stores, "p1"), stores.open()
    inside, go_on = threading.Event(), threading.Event()

    def pause(name: str, _detail: str) -> None:
        if name == "accept.before_commit":
            inside.set()
            assert go_on.wait(10)
            raise RuntimeError("taken back")

    seen: list[object] = []
    writer = threading.Thread(
        target=lambda: seen.append(raised(RuntimeError, lambda: process.accept(accept("evt_1"))))
    )
    reader = threading.Thread(target=lambda: seen.append(other.event("stripe", "evt_1")))
    failpoints.arm(pause)
    try:
        writer.start()
        assert inside.wait(10)
        reader.start()
        reader.join(0.2)
        assert seen == []
        go_on.set()
        writer.join(10)
        reader.join(10)
    finally:
        failpoints.arm(None)
    stores.close()

    assert sorted(type(value).__name__ for value in seen) == ["NoneType", "RuntimeError"]


def test_a_database_in_memory_of_its_own_is_one_database() -> None:
    store = SqliteStore(":memory:", namespace="default", now_ms=lambda: START)
    store.open(migrate=True)

    assert store.runs(RunFilter()) == []
    assert store.changes() is None
    assert "in memory" in store.describe()["durability"]
    store.close()


# --- statements and schema -----------------------------------------------------------------------------------


def _statements(process: Process, action: object) -> list[str]:
    """Give the statements that a read makes."""
    process.store.runs(RunFilter())
    reader = connections_of(process)._reader
    assert reader is not None
    seen: list[str] = []
    reader.set_trace_callback(seen.append)
    action()  # type: ignore[operator]
    reader.set_trace_callback(None)
    return seen


def test_histories_states_and_a_look_are_one_query_each(stores: SqliteFile) -> None:
    process = Process(stores)
    ids = []
    for number in range(20):
        run = process.start(f"evt_{number}")
        process.save(run, step("a"), step("b", seq=2))
        ids.append(run.run_id)
    store = process.store

    assert len(_statements(process, lambda: store.histories(ids))) == 1
    assert len(_statements(process, lambda: store.states(ids))) == 1
    assert len(_statements(process, lambda: store.look("p1", ["fulfil"]))) == 1


def test_a_look_for_waits_is_one_query_where_nobody_waits(stores: SqliteFile) -> None:
    """However many events a batch of deliveries has."""
    process = Process(stores)
    places = [EventPlace("order.paid", f"o-{number}") for number in range(20)]

    assert len(_statements(process, lambda: process.store.waits_for(places))) == 1


WALKS = {
    "runs": "a page, in the order of the key",
    "recent_deliveries": "no more than are looked at, in the order of the key",
    "refusals": "as many rows as there are sources and reasons",
    "events": "a page, in the order of the index",
    "look": "the first due run in the order of the index, and the few processes",
    "workflows": "few rows",
    "move_run": "the moves of one batch, each with its run by the key",
    "registrations": "one row",
    "processes": "few rows",
    "unregistered": "owners by their own index, against few processes",
    "same_instance": "few rows",
    "any_waits": "the first row there is",
    "outbox": "a page, in the order of the key",
    "problems": "a page, in the order of the index of open problems",
    "tally_problems": "no more of the open problems than are counted",
    "count_unparsed": "no more than are counted",
    "oldest_due": "the first row in the order of the index",
    "live_runs": "the first due runs, in the order of the index",
    "add_notices": "few addresses",
    "forget_addresses": "few addresses",
    "notice_addresses": "few addresses",
}
"""Statements that may walk through a namespace, and why that is cheap."""


def _parts(statement: str) -> set[str]:
    """Give the names of what a statement itself puts together: each part is looked at where it is made."""
    made = set(re.findall(r"(?:with|,)\s+(\w+) as \(", statement))
    named = {alias for part in made for alias in re.findall(rf"\b{part} (\w+)", statement)}
    tables = set(re.findall(r"\bonceward_\w+ (?:as )?(\w+)", statement))
    return (made | named | set(re.findall(r"\)\s+(\w+)(?:$| where)", statement, re.MULTILINE))) - tables


@pytest.mark.parametrize("file", ["sqlite.sql", "reads.sql", "looks.sql", "notices.sql"])
def test_no_statement_walks_through_a_whole_namespace(stores: SqliteFile, path: Path, file: str) -> None:
    """Beside a million finished runs nothing may get slower."""
    stores.open()
    connection = sqlite3.connect(path)
    walks = {}
    for name, statement in load(file, {**SQLITE_MACROS, **COLUMN_MACROS}).items():
        count = len(set(re.findall(r"\?\d+", statement))) + len(re.findall(r"\?(?!\d)", statement))
        named = dict.fromkeys(re.findall(r":(\w+)", statement))
        plan = connection.execute(f"explain query plan {statement}", named or (None,) * count)
        bounded = "|".join(["CONSTANT", "json_each", *_parts(statement)])
        found = [row[3] for row in plan if re.search(rf"\(namespace=\?\)$|^SCAN (?!({bounded})\b)", row[3])]
        if found and name not in WALKS:
            walks[name] = found
    connection.close()

    assert walks == {}


@pytest.mark.parametrize("name", ["insert_new_events", "insert_run", "insert_queue", "insert_delivery"])
def test_a_row_of_a_delivery_is_checked_without_a_table_of_its_own(
    stores: SqliteFile, path: Path, name: str
) -> None:
    """SQLite makes a list of three or more, as in ``check (x in (...))``, a table, and fills it for each row."""
    stores.open()
    connection = sqlite3.connect(path)
    statement = load("sqlite.sql", {**SQLITE_MACROS, **COLUMN_MACROS})[name]
    marks = 1 + len(re.findall(r"\?(?!\d)", statement))
    steps = {row[1] for row in connection.execute(f"explain {statement}", (None,) * marks)}
    connection.close()

    assert "Insert" in steps or "IdxInsert" in steps
    assert "OpenEphemeral" not in steps


def test_no_sound_table_looks_damaged(stores: SqliteFile, path: Path) -> None:
    """SQLite 3.40 takes small numbers of some tables for missing in the check that backups end with."""
    stores.open()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("pragma ignore_check_constraints = on")
        tables = connection.execute(
            "select name from sqlite_master where name like 'onceward_%' and type = 'table'"
        )
        for (table,) in tables.fetchall():
            kinds = [column[2] for column in connection.execute(f"pragma table_info({table})")]
            row = [1 if kind.lower() == "integer" else "x" for kind in kinds]
            connection.execute(f"insert or ignore into {table} values ({', '.join('?' * len(row))})", row)

        told = [text for (text,) in connection.execute("pragma integrity_check(1000)")]

    assert [text for text in told if "NULL value" in text] == []


def test_a_store_of_every_older_version_becomes_a_fresh_one(stores: SqliteFile, tmp_path: Path) -> None:
    """Migrations applied one by one, by an older release and then by ours, end in the same schema."""
    macros = {**SQLITE_MACROS, **COLUMN_MACROS}
    known = migrate.migrations(macros)
    fresh = stores.open()
    for count in range(len(known) + 1):
        older = SqliteFile(tmp_path / f"version_{count}.db")
        connection = sqlite3.connect(older.path)
        connection.execute(render(migrate.VERSION_TABLE, macros))
        for migration in known[:count]:
            connection.executescript(";".join(migration.statements))
            connection.execute(migrate.record(migration, macros, now_ms=START))
        connection.commit()
        connection.close()

        assert older.open().schema() == fresh.schema()  # type: ignore[attr-defined]
        older.close()


def test_a_lock_that_is_held_by_a_live_process_is_not_free(remote: Remote, stores: SqliteFile) -> None:
    store = Process(stores, "p2")
    remote.ask("join")

    assert not connections_of(store).is_free("remote")
    remote.kill()
    eventually(lambda: connections_of(store).is_free("remote"))
