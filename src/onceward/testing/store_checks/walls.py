"""Namespaces are walls: what one holds, another neither sees nor changes."""

from __future__ import annotations

from onceward.core.ports import EventFilter, RunFilter
from onceward.core.states import RunState
from onceward.testing.store_scene import (
    LEASE_MS,
    WORKFLOWS,
    Process,
    StoreFactory,
    accept,
    move,
    restarted,
    rows,
    steer,
    step,
)


def one_event_in_two_namespaces_is_two_events(stores: StoreFactory) -> None:
    """The same id makes a run on either side."""
    ours, theirs = Process(stores), Process(stores, namespace="other")

    mine, yours = ours.accept(accept("evt_1"))[0], theirs.accept(accept("evt_1"))[0]

    assert not mine.is_duplicate
    assert not yours.is_duplicate
    assert len(ours.store.runs(RunFilter())) == 1
    assert len(theirs.store.runs(RunFilter())) == 1


def no_read_shows_another_namespace(stores: StoreFactory) -> None:
    """Every read, asked for the ids of the other side, finds nothing."""
    ours = Process(stores, "p1")
    parent = ours.start("evt_1")
    child = ours.call(parent)
    failed = ours.move(ours.start("evt_2"), RunState.FAILED)
    assert ours.store.steer(restarted(failed, now=stores.now))
    stranger = stores.open("other")
    ids = [parent.run_id, child.run_id, failed.run_id]

    assert [stranger.run(run_id) for run_id in ids] == [None] * 3
    assert stranger.runs(RunFilter()) == []
    assert stranger.runs(RunFilter(problems=True)) == []
    assert stranger.runs(RunFilter(source="stripe", event_id="evt_1")) == []
    assert stranger.event("stripe", "evt_1") is None
    assert stranger.events(EventFilter()) == []
    assert stranger.deliveries("stripe", "evt_1") == []
    assert stranger.steps(parent.run_id) == []
    assert stranger.attempts(failed.run_id) == []
    assert stranger.audits(failed.run_id) == []
    assert stranger.children(parent.run_id) == []
    assert stranger.states(ids) == {}
    assert {run_id: [] for run_id in ids} == stranger.histories(ids)
    assert stranger.workflows() == []
    assert stranger.processes() == []
    assert stranger.owned("p1") == {}
    assert stranger.look("p1", WORKFLOWS).next_due is None
    assert stranger.credentials() == []
    assert not any(stranger.dump("event", "run", "queue", "step", "audit", "committer").values())


def no_write_reaches_another_namespace(stores: StoreFactory) -> None:
    """Claims, saves, wakes, steers, takeovers and farewells stop at the wall."""
    ours, theirs = Process(stores, "p1"), Process(stores, "p1", namespace="other")
    queued, running = ours.queue("evt_1"), ours.start("evt_2")
    asleep = ours.move(ours.start("evt_3"), RunState.SLEEPING, due_at=stores.now + 10 * LEASE_MS)
    before = rows(ours.store)
    their_run = theirs.start("evt_1")
    stores.now += LEASE_MS + 1
    theirs.heartbeat()

    assert theirs.claim() == []
    assert not theirs.save(running, step(), becomes=move(running, RunState.COMPLETED, now=stores.now))
    theirs.move(their_run, RunState.COMPLETED, wakes_run_id=asleep.run_id)
    assert not theirs.store.steer(steer(queued, "cancel", move(queued, RunState.CANCELLED, now=stores.now)))
    taken = theirs.store.take_over(stores.now, crash_limit=4, skip="nobody")
    theirs.store.leave("p1", stores.now)

    assert taken.processes == ()
    assert before == rows(ours.store)


def a_process_id_may_be_used_on_both_sides(stores: StoreFactory) -> None:
    """Each side has its own epoch and its own last batch."""
    ours, theirs = Process(stores, "p1", epoch=1), Process(stores, "p1", namespace="other", epoch=7)

    theirs.accept(accept("evt_1"))
    ours.accept(accept("evt_1"))

    assert ours.store.resolve("p1", ours.last_batch)
    assert theirs.store.resolve("p1", theirs.last_batch)
    assert not theirs.store.resolve("p1", ours.last_batch)
