"""SIGTERM: nothing new, running steps finish or are given back, no attempt is charged."""

from __future__ import annotations

import signal

import pytest

from tests.attack.site import Site, at_once, pause
from tests.helpers import eventually


def test_a_drain_lets_the_step_finish_and_gives_the_rest_back(site: Site) -> None:
    shop = site.desk()
    first = site.worker(is_afresh=True)
    run = shop.app.sync.start(shop.three, "A", 1.5)
    site.wait_note("start b A")
    first.signal(signal.SIGTERM)
    site.worker()
    assert first.wait(20) == 0, first.text()

    assert run.result("30s") == "c A"
    assert set(site.counts("start").values()) == {1}, site.counts("start")
    assert run.attempts() == []
    assert run.row().attempt == 1
    site.check(shop.app)


def test_a_second_sigterm_stops_at_once_and_loses_nothing(site: Site) -> None:
    shop = site.desk()
    first = site.worker(is_afresh=True)
    gate = site.home / "gate"
    run = shop.app.sync.start(shop.gated, "A", str(gate))
    site.wait_note("start A")
    first.signal(signal.SIGTERM)
    first.wait_for("draining")
    first.signal(signal.SIGTERM)
    first.wait()  # the body cannot end before the gate is there
    gate.touch()
    site.worker()
    assert run.result("40s") == "A"
    assert site.counts("start")["start A"] == 2
    assert site.counts("end")["end A"] == 1
    site.check(shop.app)


def test_ten_rolling_restarts_charge_no_attempt(site: Site) -> None:
    site.env["ONCEWARD_DRAIN"] = "0s"
    shop = site.desk()
    run = shop.app.sync.start(shop.three, "A", 2.5)
    plain = shop.app.sync.start(shop.sleeper, "S", "8s")
    for _ in range(6):
        worker = site.worker()
        pause(0.3)
        worker.signal(signal.SIGTERM)
        assert worker.wait(20) == 0, worker.text()
    site.worker()
    assert run.result("40s") == "c A"
    assert plain.result("40s") >= 8
    assert run.row().attempt == 1
    assert plain.row().attempt == 1
    assert run.row().crashes == 0
    site.check(shop.app)


def test_a_drain_of_a_server_under_load_answers_truthfully(site: Site) -> None:
    first, second = site.serve(is_afresh=True), site.serve()
    ids = [f"evt_{i}" for i in range(60)]
    replies = {}

    def load() -> None:
        for event_id in ids:
            replies[event_id] = site.deliver(first.port, event_id, event_id)
            pause(0.01)

    def stop() -> None:
        eventually(lambda: len(replies) > 15, 30)
        first.signal(signal.SIGTERM)

    at_once(load, stop)
    assert first.wait(30) == 0, first.text()
    assert {reply.status for reply in replies.values()} <= {202, 503, 0}, replies
    shop = site.desk()
    for event_id in ids:
        again = site.deliver(second.port, event_id, event_id)
        assert again.status == 202
        if replies[event_id].status == 202:
            assert again.runs == replies[event_id].runs
    site.wait_all(shop.app, 60)
    assert len(shop.app.sync.runs(limit=1000)) == 60
    assert set(site.counts("start").values()) == {1}
    site.check(shop.app)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_a_plain_body_and_a_back_off(site: Site, number: signal.Signals) -> None:
    shop = site.desk()
    first = site.worker()
    run = shop.app.sync.start(shop.three_plain, "A", 1.0)
    flaky = shop.app.sync.start(shop.flaky, "F", 2, "3s")
    site.wait_note("start b A")
    site.wait_note("try F 1")
    first.signal(number)
    assert first.wait(20) == 0, first.text()
    site.worker()
    assert run.result("30s") == "c A"
    assert flaky.result("30s") == 2
    assert site.notes("try F") == ["try F 1", "try F 2"]
    assert set(site.counts("start").values()) == {1}
    assert run.row().attempt == 1
    site.check(shop.app)
