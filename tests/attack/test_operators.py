"""Operators at bad moments: retry, restart, cancel and replay, twice, at once, from two processes."""

from __future__ import annotations

import functools

import pytest

from onceward import StateConflict
from tests.attack.site import Site, at_once, pause
from tests.helpers import eventually


def test_two_retries_at_once_from_two_processes_are_one_attempt(site: Site) -> None:
    site.worker()
    ours, theirs = site.desk(), site.desk()
    for i in range(4):
        run = ours.app.sync.start(ours.breaks, f"A{i}")
        assert site.wait_ended(ours.app, run.run_id) == "failed"
        there = theirs.app.sync.run(run.run_id)
        replies = at_once(run.retry, there.retry, run.retry, there.retry)

        assert not [reply for reply in replies if isinstance(reply, Exception)], replies
        assert {reply.attempt for reply in replies} == {2}, replies
        assert run.result("30s") == "mended"
        assert there.result("30s") == "mended"
        assert site.counts(f"broken A{i}") == {f"broken A{i} 1 1": 1, f"broken A{i} 1 2": 1}
        assert site.counts(f"start before A{i}") == {f"start before A{i}": 1}
    site.check(ours.app)


def test_a_retry_brings_an_automatic_back_off_forward_once(site: Site) -> None:
    site.worker()
    ours, theirs = site.desk(), site.desk()
    run = ours.app.sync.start(ours.backs_off, "A")
    eventually(lambda: run.state() == "backoff", 20)
    replies = at_once(run.retry, theirs.app.sync.run(run.run_id).retry)

    assert not [reply for reply in replies if isinstance(reply, Exception)], replies
    assert run.result("20s") == 2
    assert site.counts("start") == {"start before A": 1, "start after A": 1}
    site.check(ours.app)


def test_a_retry_brings_a_steps_back_off_forward(site: Site) -> None:
    site.worker()
    shop = site.desk()
    run = shop.app.sync.start(shop.flaky, "A", 3, "20s")
    eventually(lambda: run.state() == "backoff", 20)
    run.retry()
    eventually(lambda: len(site.notes("try A")) == 2, 20)
    eventually(lambda: run.state() == "backoff", 20)
    run.retry()

    assert run.result("20s") == 3
    assert site.notes("try A") == ["try A 1", "try A 2", "try A 3"]
    site.check(shop.app)


def test_a_restart_while_it_runs_begins_one_new_generation(site: Site) -> None:
    site.worker()
    ours, theirs = site.desk(), site.desk()
    run = ours.app.sync.start(ours.three, "A", 0.4)
    site.wait_note("start b A")
    restarts = (run.restart, theirs.app.sync.run(run.run_id).restart)
    replies = at_once(*(functools.partial(restart, acknowledge=True) for restart in restarts))

    assert not [reply for reply in replies if isinstance(reply, Exception)], replies
    assert run.result("30s") == "c A"
    assert run.row().generation == 2
    assert site.counts("start")["start a A"] == 2
    assert site.counts("start")["start b A"] == 2
    assert site.counts("start")["start c A"] == 1
    assert [step.name for step in run.steps(1)] == ["a"]
    site.check(ours.app)


def test_a_restart_of_a_completed_run_runs_every_step_again(site: Site) -> None:
    site.worker()
    shop = site.desk()
    run = shop.app.sync.start(shop.three, "A")
    assert run.result("30s") == "c A"
    before = run.steps()
    run.restart(acknowledge=True)
    assert run.result("30s") == "c A"
    eventually(lambda: site.counts("start").total() == 6, 10)
    assert run.steps(1) == before
    with pytest.raises(StateConflict):
        run.retry()
    site.check(shop.app)


@pytest.mark.parametrize("offset", [0.0, 0.03, 0.06, 0.1, 0.13])
def test_cancel_races_with_a_step_that_finishes(site: Site, offset: float) -> None:
    site.worker()
    shop = site.desk()
    runs = [shop.app.sync.start(shop.cleans, f"A{i}", 0.1) for i in range(8)]
    site.wait_note("start loop0 A7")
    pause(offset)
    replies = at_once(*(run.cancel for run in runs))
    noted = {i: len([n for n in site.notes("start loop") if n.endswith(f"A{i}")]) for i in range(8)}

    assert not [reply for reply in replies if isinstance(reply, Exception)], replies
    for run in runs:
        assert site.wait_ended(shop.app, run.run_id) == "cancelled"
    for i in range(8):
        assert site.counts(f"start clean A{i}") == {f"start clean A{i}": 1}
        assert len([n for n in site.notes("start loop") if n.endswith(f"A{i}")]) <= noted[i]
    site.check(shop.app)


def test_300_queued_runs_are_cancelled_while_workers_claim(site: Site) -> None:
    shop = site.desk()
    runs = [shop.app.sync.start(shop.three, f"A{i}", 0.05) for i in range(300)]
    for _ in range(2):
        site.worker(ONCEWARD_CONCURRENCY="4")
    replies = {run.run_id: run.cancel() for run in runs}

    site.wait_all(shop.app, 300)
    for i, run in enumerate(runs):
        reply, state = replies[run.run_id], run.state()
        if reply.state == "cancelled":
            assert state == "cancelled"
            if "at once" in reply.text or reply.effect == "cancel now":
                assert not site.notes(f"start a A{i}\n"), reply
        elif reply.state == "cancelling":
            assert state == "cancelled"
        else:
            assert state == reply.state == "completed", (reply, state)
        if reply.effect == "cancel now":
            assert f"start a A{i}" not in site.counts(), reply
    site.check(shop.app)


def test_cancel_twice_and_of_an_ended_run_tells_the_truth(site: Site) -> None:
    site.worker()
    shop = site.desk()
    done = shop.app.sync.start(shop.three, "D")
    assert done.result("30s") == "c D"
    reply = done.cancel()
    assert reply.state == "completed"
    run = shop.app.sync.start(shop.cleans, "A", 0.2)
    site.wait_note("start loop0 A")
    first, second = at_once(run.cancel, run.cancel)
    assert {first.state, second.state} <= {"cancelling", "cancelled"}
    assert site.wait_ended(shop.app, run.run_id) == "cancelled"
    assert site.counts("start clean") == {"start clean A": 1}
    with pytest.raises(StateConflict):
        run.retry()
    site.check(shop.app)


def test_a_cancelled_run_whose_clean_up_is_killed_cleans_up_elsewhere(site: Site) -> None:
    first = site.worker(failpoint="step.after_body@clean:kill")
    shop = site.desk()
    run = shop.app.sync.start(shop.cleans, "A", 0.2)
    site.wait_note("start loop1 A")
    run.cancel()
    first.wait()
    site.worker()

    assert site.wait_ended(shop.app, run.run_id) == "cancelled"
    assert site.counts("start clean") == {"start clean A": 2}
    assert site.counts("start loop2") == {}
    site.check(shop.app)


STEER = """
import sys

import shop

verb, run_id = sys.argv[1:]
shop.app.sync.open(runs=False)
options = {"replay": {"request_id": "r1"}, "restart": {"acknowledge": True}}.get(verb, {})
print("REPLY", getattr(shop.app.sync.run(run_id), verb)(**options), flush=True)
shop.app.sync.close()
"""


@pytest.mark.parametrize(
    "fault", ["before_commit:kill", "after_commit:kill", "after_commit:raise", "after_commit:drop-reply"]
)
@pytest.mark.parametrize("verb", ["cancel", "retry", "restart", "replay"])
def test_a_fault_at_an_operators_commit(site: Site, verb: str, fault: str) -> None:
    (site.home / "steer.py").write_text(STEER)
    site.worker()
    shop = site.desk()
    if verb == "retry":
        run = shop.app.sync.start(shop.breaks, "A")
        assert site.wait_ended(shop.app, run.run_id) == "failed"
    elif verb == "cancel":
        run = shop.app.sync.start(shop.cleans, "A", 0.5)
        site.wait_note("start loop1 A")
    else:
        run = shop.app.sync.start(shop.three, "A", 0.5)
        site.wait_note("start b A")
    kind = "cancel" if verb == "cancel" else "steer"
    first = site.spawn("steer.py", verb, run.run_id, failpoint=f"{kind}.{fault}")
    first.wait()
    if "drop-reply" in fault:
        assert "REPLY" in first.text(), first.text()
    second = site.spawn("steer.py", verb, run.run_id)
    assert second.wait() == 0 or verb == "retry", second.text()

    state = site.wait_ended(shop.app, run.run_id)
    if verb == "cancel":
        assert state == "cancelled"
    else:
        assert state == "completed"
    if verb == "retry":
        assert site.counts("broken") == {"broken A 1 1": 1, "broken A 1 2": 1}
    if verb == "replay":
        site.wait_all(shop.app, 2)
        assert len(shop.app.sync.runs()) == 2
    site.check(shop.app)
