"""A run that kills its process is held after a bounded number of times; its neighbours finish."""

from __future__ import annotations

import signal
import threading

from tests.attack.site import Site, pause
from tests.helpers import eventually


def test_a_poison_run_beside_healthy_ones(site: Site) -> None:
    site.env["ONCEWARD_LEASE"] = "1s"
    shop = site.desk()
    healthy = [shop.app.sync.start(shop.three, f"H{i}", 0.2) for i in range(10)]
    poison = shop.app.sync.start(shop.poison, "P")
    more = [shop.app.sync.start(shop.three, f"M{i}", 0.2) for i in range(10)]
    stop = threading.Event()

    def supervise() -> None:
        while not stop.is_set():
            process = site.spawn("-m", "onceward", "worker", "shop:app")
            while not stop.is_set() and process.is_alive():
                pause(0.05)

    supervisors = [threading.Thread(target=supervise) for _ in range(2)]
    for thread in supervisors:
        thread.start()
    try:
        eventually(lambda: poison.state() == "held", 60, what=site.logs())
        assert {run.result("30s")[0] for run in healthy + more} == {"c"}
    finally:
        stop.set()
        for thread in supervisors:
            thread.join()
    assert "poison" in (poison.row().reason or "")
    assert 2 <= len(site.notes("poison")) <= 5, site.notes("poison")
    assert not [run for run in healthy + more if run.state() != "completed"]
    assert any(row.run_id == poison.run_id for row in shop.app.sync.runs(problems=True))
    # It is answered, kills again, and is held again; nothing loops.
    before = len(site.notes("poison"))
    print("poison bodies", before, [len(run.attempts()) for run in healthy + more])
    poison.answer("fail")
    assert poison.state() == "failed"
    site.check(shop.app)


def test_a_long_step_through_many_process_deaths_is_not_poison_when_it_saves(site: Site) -> None:
    """Each death comes after a new checkpoint, so the run is never a suspect for long."""
    shop = site.desk()
    run = shop.app.sync.start(shop.cleans, "A", 0.15)
    for i in range(1, 6):
        worker = site.spawn("-m", "onceward", "worker", "shop:app")
        site.wait_note(f"end loop{i * 2} A")
        worker.signal(signal.SIGKILL)
        worker.wait()
    assert run.state() != "held"
    run.cancel()
    site.worker()
    assert site.wait_ended(shop.app, run.run_id) == "cancelled"
    site.check(shop.app)
