"""A SQLite file that is full, refused, shared and locked."""

from __future__ import annotations

import functools
import resource
import sqlite3
import threading
from pathlib import Path

from tests.attack.site import Process, Site, pause
from tests.helpers import eventually


def limit_files(process: Process, size: int) -> None:
    """As if the disk were full: no file of the process may grow beyond that."""
    _, hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size or hard, hard))


def test_a_full_disk_answers_503_and_recovers_without_a_restart(sqlite_site: Site) -> None:
    site = sqlite_site
    server = site.serve()
    assert site.deliver(server.port, "evt_0", "0").status == 202
    shop = site.desk()
    slow = shop.app.sync.start(shop.three, "slow", 1.0)
    site.wait_note("start a slow")
    limit_files(server, 4096)
    replies = [site.deliver(server.port, f"evt_{i}", str(i)) for i in range(1, 6)]
    assert {reply.status for reply in replies} == {503}, replies
    pause(2.5)
    assert server.is_alive()
    limit_files(server, 0)
    for i in range(1, 6):
        eventually(functools.partial(_is_accepted, site, server.port, i), 20)
    assert slow.result("30s") == "c slow"
    assert site.wait_all(shop.app, 7) == {"completed": 7}
    assert len(site.counts("charge")) == 6
    assert server.is_alive()
    site.check(shop.app)


def test_eight_writers_beside_a_stranger_who_locks_the_file(sqlite_site: Site) -> None:
    site = sqlite_site
    servers = [site.serve() for _ in range(3)]
    stop = threading.Event()

    def lock() -> None:
        stranger = sqlite3.connect(site.store.removeprefix("sqlite:///"), timeout=10, isolation_level=None)
        while not stop.is_set():
            stranger.execute("begin immediate")
            pause(1.2)
            stranger.execute("rollback")
            pause(0.6)
        stranger.close()

    thread = threading.Thread(target=lock)
    thread.start()
    try:
        replies = site.storm([server.port for server in servers], [f"evt_{i}" for i in range(25)], 4)
    finally:
        stop.set()
        thread.join()
    assert {reply.status for found in replies.values() for reply in found} == {202}
    shop = site.desk()
    assert site.wait_all(shop.app, 25) == {"completed": 25}
    assert all(server.is_alive() for server in servers)
    assert set(site.counts().values()) == {1}
    site.check(shop.app)


OTHER = """
from ledger import note

from onceward import App, Context, Event

app = App()


@app.workflow(on="shop.told")
async def echo(ctx: Context, event: Event) -> str:
    note("echo", event.payload["order"])
    return event.payload["order"]
"""


def test_two_apps_share_a_file(sqlite_site: Site) -> None:
    """Each runs its own workflows; both start those of the other, also of one that came later."""
    site = sqlite_site
    (site.home / "other.py").write_text(OTHER)
    shop = site.desk()
    site.worker()
    other = site.desk("other")
    waiting = other.app.sync.start(other.echo, {"order": "X"})
    eventually(
        lambda: (
            "echo" in [run.row().workflow for run in shop.app.sync.emit("shop.told", {"order": "Y"}).runs]
        ),
        10,
    )
    assert waiting.state() == "queued"
    site.worker("other:app")

    assert waiting.result("20s") == "X"
    assert site.wait_all(shop.app, 3).keys() == {"completed"}
    assert site.counts()["echo Y"] == 1
    site.check(shop.app)


def test_namespaces_are_walls(site: Site) -> None:
    a = site.serve(ONCEWARD_NAMESPACE="a")
    b = site.serve(ONCEWARD_NAMESPACE="b")
    first, second = site.deliver(a.port, "evt_1", "A"), site.deliver(b.port, "evt_1", "B")
    assert first.status == second.status == 202
    assert first.runs != second.runs
    site.env["ONCEWARD_NAMESPACE"] = "a"
    shop = site.desk()
    site.wait_all(shop.app, 1)
    assert [row.run_id for row in shop.app.sync.runs()] == first.runs
    site.check(shop.app)


def test_a_copy_of_a_running_file_by_backup_can_be_run(sqlite_site: Site, tmp_path: Path) -> None:
    site = sqlite_site
    shop = site.desk()
    worker = site.worker()
    runs = [shop.app.sync.start(shop.three, f"A{i}", 0.2) for i in range(5)]
    site.wait_note("start b A0")
    source = sqlite3.connect(site.store.removeprefix("sqlite:///"))
    copy = sqlite3.connect(tmp_path / "copy.db")
    source.backup(copy)
    copy.close()
    source.close()
    worker.kill()
    with Site(f"sqlite:///{tmp_path / 'copy.db'}", tmp_path / "x", {}) as second:
        (tmp_path / "x").mkdir()
        second.worker()
        desk = second.desk()
        for run in runs:
            assert second.wait_ended(desk.app, run.run_id) == "completed"
        second.check(desk.app)


def test_a_damaged_row_holds_its_run_and_no_other(sqlite_site: Site) -> None:
    site = sqlite_site
    shop = site.desk()
    bad = shop.app.sync.start(shop.sleeper, "bad", "1s")
    worker = site.worker()
    eventually(lambda: bad.state() == "sleeping", 20)
    worker.kill()
    raw = sqlite3.connect(site.store.removeprefix("sqlite:///"), isolation_level=None)
    raw.execute("update onceward_step set output = '{broken' where name = 'started'")
    raw.close()
    good = shop.app.sync.start(shop.three, "good")
    site.worker()
    assert good.result("20s") == "c good"
    eventually(lambda: bad.state() == "held", 20, what=site.logs())
    assert "'started'" in (bad.row().reason or "")


def _is_accepted(site: Site, port: int, number: int) -> bool:
    return site.deliver(port, f"evt_{number}", str(number)).status == 202
