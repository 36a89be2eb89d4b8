"""A process that is stopped for longer than its lease and goes on: it may not write."""

from __future__ import annotations

import signal
import sqlite3

import pytest

from tests.attack.site import Site, pause


def test_a_holder_stopped_in_a_body_cannot_save_when_it_goes_on(site: Site) -> None:
    shop = site.desk()
    first = site.worker()
    run = shop.app.sync.start(shop.three, "A", 0.5)
    site.wait_note("start b A")
    first.signal(signal.SIGSTOP)
    site.worker()

    assert run.result("30s") == "c A"
    first.signal(signal.SIGCONT)
    again = shop.app.sync.start(shop.three, "B")
    assert again.result("30s") == "c B"
    # The zombie, alone, must still be of use.
    site.processes[-1].kill()
    assert shop.app.sync.start(shop.three, "C").result("30s") == "c C"
    counts = site.counts("start")
    assert counts["start a A"] == 1
    assert counts["start b A"] == 2
    assert counts["start c A"] == 1, site.notes()
    assert first.is_alive()
    assert "lease" in first.text().lower(), first.text()
    site.check(shop.app)


OUTSIDE_A_TRANSACTION = [
    "step.after_body:pause:2",
    "save.after_commit:pause:2",
    "step.before_body:pause:2",
    "end.after_commit:pause",
    "claim.after_commit:pause",
    "heartbeat.before_renew:pause",
    "load.after_claim:pause",
]
INSIDE = ["save.before_commit:pause:2", "end.before_commit:pause", "claim.before_commit:pause"]


def finishes_beside_a_zombie(site: Site, failpoint: str, *, frozen_s: float) -> None:
    shop = site.desk()
    run = shop.app.sync.start(shop.three, "A", 0.3)
    first = site.spawn("-m", "onceward", "worker", "shop:app", failpoint=failpoint)
    if failpoint.startswith("load"):
        shop.app.sync.start(shop.sleeper, "N", "200ms")  # what was begun before is read when it is claimed
    first.wait_stopped()
    second = site.worker() if not frozen_s else None
    if frozen_s:
        pause(frozen_s)
    else:
        assert run.result("30s") == "c A"
    first.signal(signal.SIGCONT)

    assert run.result("30s") == "c A"
    assert shop.app.sync.start(shop.three, "B").result("30s") == "c B"
    if second is not None:
        second.kill()
    assert shop.app.sync.start(shop.three, "C").result("30s") == "c C"
    counts = site.counts("start")
    assert max(counts.values()) <= 2, counts
    assert sum(times - 1 for times in counts.values()) <= 1, counts
    assert first.is_alive()
    site.check(shop.app)


@pytest.mark.parametrize("failpoint", OUTSIDE_A_TRANSACTION)
def test_a_holder_frozen_at_a_failpoint_past_its_lease(site: Site, failpoint: str) -> None:
    finishes_beside_a_zombie(site, failpoint, frozen_s=0)


@pytest.mark.parametrize("failpoint", INSIDE)
def test_a_holder_frozen_inside_its_transaction_on_postgres(postgres_site: Site, failpoint: str) -> None:
    finishes_beside_a_zombie(postgres_site, failpoint, frozen_s=0)


@pytest.mark.parametrize("failpoint", INSIDE)
def test_a_holder_frozen_inside_its_transaction_blocks_a_file_only_for_so_long(
    sqlite_site: Site, failpoint: str
) -> None:
    finishes_beside_a_zombie(sqlite_site, failpoint, frozen_s=3)


def test_a_stranger_who_holds_the_write_lock_past_the_lease_costs_nothing(sqlite_site: Site) -> None:
    site = sqlite_site
    shop = site.desk()
    workers = [site.worker() for _ in range(3)]
    runs = [shop.app.sync.start(shop.three, f"A{i}", 1.0) for i in range(12)]
    site.wait_note("start b A0")
    stranger = sqlite3.connect(site.store.removeprefix("sqlite:///"), timeout=10, isolation_level=None)
    stranger.execute("begin immediate")
    pause(5)
    stranger.execute("rollback")
    stranger.close()

    assert {run.result("30s") for run in runs} == {f"c A{i}" for i in range(12)}
    assert all(worker.is_alive() for worker in workers)
    assert set(site.counts("start").values()) == {1}, site.counts("start")
    assert not any(run.attempts() for run in runs)
    site.check(shop.app)
