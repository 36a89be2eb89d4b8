"""Processes come, renew, leave and die; what they held goes on and is charged fairly."""

from __future__ import annotations

from typing import Any

import msgspec

from onceward.core import errors
from onceward.core.model import ProcessRow, RunRow, WorkflowRow
from onceward.core.ports import Look, RunFilter, Store, TakenOver
from onceward.core.states import RunState
from onceward.core.takeover import CRASH_LIMIT, SUSPECT_FROM
from onceward.testing.store_scene import (
    LEASE_MS,
    WORKFLOWS,
    Process,
    StoreFactory,
    accept,
    move,
    queue_of,
    raised,
    rows,
    steer,
    step,
    together,
)

RACES = 10


def _take_over(store: Store, stores: StoreFactory, *, skip: str = "", limit: int = CRASH_LIMIT) -> TakenOver:
    """Take over; when the dead were last alive is another question."""
    taken = store.take_over(stores.now, crash_limit=limit, skip=skip)
    return msgspec.structs.replace(taken, leased_until=None)


def _lose(stores: StoreFactory, run_id: str, times: int) -> RunRow:
    """Kill *times* processes, one after the other, while each holds the run."""
    for _ in range(times):
        victim = Process(stores, f"victim-{stores.now}")
        held = victim.claim() or victim.claim(suspects=True)
        assert [run_id] == [run.run_id for run in held]
        stores.now += LEASE_MS + 1
        _take_over(victim.store, stores)
    run = victim.store.run(run_id)
    assert run is not None
    return run


def a_process_is_registered_with_its_workflows(stores: StoreFactory) -> None:
    """Every column comes back; a workflow seen again is updated, not doubled."""
    store = stores.open()
    row = ProcessRow("p1", 3, "shop-1", "host-9", 99, "1.2.3", stores.now, stores.now + 5)
    workflows = [WorkflowRow("a", '["x"]', stores.now), WorkflowRow("b", "[]", stores.now, 60_000)]
    store.join(row, workflows)

    newer = WorkflowRow("a", '["y"]', stores.now + 1, 5)
    store.join(ProcessRow("p2", 1, None, "h", 1, "1", stores.now, stores.now + 5), [newer])

    assert row == store.processes()[0]
    assert [found.process_id for found in store.processes()] == ["p1", "p2"]
    assert [newer, workflows[1]] == store.workflows()


def a_hundred_workflows_are_registered_at_once(stores: StoreFactory) -> None:
    """However many there are and whichever of their columns are empty, each comes back, also when seen again."""
    store = stores.open()
    for number, deadline_ms in enumerate((60_000, None), start=1):
        workflows = [
            WorkflowRow(f"w{place:03}", f'["{number}"]', stores.now, deadline_ms if place % 3 else 5)
            for place in range(100)
        ]
        store.join(ProcessRow(f"p{number}", 1, None, "h", 1, "1", stores.now, stores.now + 5), workflows)

        assert workflows == store.workflows()
        assert number == store.registrations()


def a_workflow_is_forgotten_in_its_namespace_and_its_runs_stay(stores: StoreFactory) -> None:
    """Its registration goes and comes again with a process that has it; nothing else changes."""
    process, wall = Process(stores, "p1"), stores.open(namespace="other")
    store = process.store
    known = [row.name for row in store.workflows()]
    wall.join(ProcessRow("p1", 1, None, "h", 1, "1", 0, 5), store.workflows())
    run = process.start("evt_1")

    assert store.forget_workflow(run.workflow)
    assert not store.forget_workflow(run.workflow)
    assert not store.forget_workflow("never seen")

    assert [name for name in known if name != run.workflow] == [row.name for row in store.workflows()]
    assert known == [row.name for row in wall.workflows()]
    assert [run.run_id] == [row.run_id for row in store.runs(RunFilter(workflow=run.workflow))]
    store.join(ProcessRow("p2", 1, None, "h", 1, "1", 0, 5), [WorkflowRow(run.workflow, "[]", 7)])
    assert run.workflow in [row.name for row in store.workflows()]


def a_heartbeat_renews_the_lease(stores: StoreFactory) -> None:
    """A process that renews in time is left alone."""
    process, other = Process(stores, "p1"), Process(stores, "p2")
    run = process.start("evt_1")
    for _ in range(3):
        stores.now += LEASE_MS - 1
        process.heartbeat()
        other.heartbeat()
        assert TakenOver((), 0, ()) == _take_over(other.store, stores, skip="p2")

    assert stores.now + LEASE_MS == process.store.processes()[0].lease_until
    assert process.save(run, step())


def the_runs_of_a_dead_process_are_freed_and_charged(stores: StoreFactory) -> None:
    """A new attempt each, due now, with the lost one in the log; what it did not hold is untouched."""
    dead, alive = Process(stores, "p1"), Process(stores, "p2")
    run = dead.start("evt_1")
    dead.save(run, step())
    asleep = dead.move(dead.start("evt_2"), RunState.SLEEPING, due_at=stores.now + 10 * LEASE_MS)
    other = alive.start("evt_3")
    stores.now += LEASE_MS + 1
    alive.heartbeat()

    taken = _take_over(alive.store, stores, skip="p2")

    assert TakenOver(("p1",), 1, ()) == taken
    after = alive.read(run.run_id)
    assert (RunState.QUEUED, 2, 1, run.fence + 1) == (after.state, after.attempt, after.crashes, after.fence)
    (logged,) = alive.store.attempts(run.run_id)
    assert (1, 1, "lost", "p1", stores.now) == (
        logged.generation,
        logged.attempt,
        logged.outcome,
        logged.process_id,
        logged.ended_at,
    )
    assert asleep == alive.read(asleep.run_id)
    assert other == alive.read(other.run_id)
    assert [row.process_id for row in alive.store.processes()] == ["p2"]
    assert stores.now == alive.next_due(WORKFLOWS)
    assert [(run.run_id, 2)] == [(found.run_id, found.attempt) for found in alive.claim()]
    assert len(alive.store.steps(run.run_id)) == 1


def a_lease_ends_after_its_last_millisecond(stores: StoreFactory) -> None:
    """At the very end it still holds."""
    process = Process(stores, "p1")
    store = stores.open()
    stores.now += LEASE_MS

    assert _take_over(store, stores).processes == ()
    process.heartbeat()
    stores.now += LEASE_MS + 1
    assert _take_over(store, stores).processes == ("p1",)


def a_process_does_not_take_itself_over(stores: StoreFactory) -> None:
    """However late it is; others will."""
    process = Process(stores, "p1")
    run = process.start("evt_1")
    stores.now += 10 * LEASE_MS

    assert TakenOver((), 0, ()) == _take_over(process.store, stores, skip="p1")
    assert run == process.read(run.run_id)


def a_process_whose_row_is_gone_leaves_no_orphans(stores: StoreFactory) -> None:
    """Somebody cleaned the table by hand: its runs are freed like those of any dead process."""
    gone, alive = Process(stores, "p1"), Process(stores, "p2")
    run = gone.start("evt_1")
    stores.execute("delete from {t}process where process_id = 'p1'")

    assert TakenOver(("p1",), 1, ()) == _take_over(alive.store, stores, skip="p2")

    raised(errors.LeaseLost, lambda: gone.save(run, step()))
    assert [(run.run_id, 2)] == [(found.run_id, found.attempt) for found in alive.claim()]
    assert TakenOver((), 0, ()) == _take_over(alive.store, stores, skip="p2")


def a_dead_process_without_runs_is_forgotten(stores: StoreFactory) -> None:
    """And a second look finds nothing."""
    Process(stores, "p1")
    store = stores.open()
    stores.now += LEASE_MS + 1

    assert TakenOver(("p1",), 0, ()) == _take_over(store, stores)
    assert TakenOver((), 0, ()) == _take_over(store, stores)
    assert store.processes() == []


def a_takeover_by_several_at_once_charges_each_run_once(stores: StoreFactory) -> None:
    """Two processes notice the same death: one crash, one log entry."""
    dead = Process(stores, "p0")
    runs = [dead.start(f"evt_{number}") for number in range(10)]
    rescuers = [stores.open() for _ in range(3)]
    stores.now += LEASE_MS + 1

    found = together(*(lambda store=store: _take_over(store, stores) for store in rescuers))

    assert [process_id for taken in found for process_id in taken.processes] == ["p0"]
    assert sum(taken.released for taken in found) == 10
    store = rescuers[0]
    assert all((run.attempt, run.crashes) == (2, 1) for run in store.runs(RunFilter()))
    assert all(len(store.attempts(run.run_id)) == 1 for run in runs)


def a_run_is_suspect_from_its_second_lost_holder(stores: StoreFactory) -> None:
    """Until then its neighbours and it are claimed alike."""
    run = Process(stores, "p0").queue("evt_1")

    assert not _suspect(stores, _lose(stores, run.run_id, SUSPECT_FROM - 1))
    assert _suspect(stores, _lose(stores, run.run_id, 1))


def _suspect(stores: StoreFactory, run: RunRow) -> bool:
    place = queue_of(stores.open(), run.run_id)
    assert place is not None
    return bool(place["is_suspect"])


def a_run_that_takes_its_process_down_is_held_at_the_limit(stores: StoreFactory) -> None:
    """With a reason, on the list of problems, off the queue; the attempts say what happened."""
    run = Process(stores, "p0").queue("evt_1")

    before = _lose(stores, run.run_id, CRASH_LIMIT - 1)
    assert RunState.QUEUED is before.state
    after = _lose(stores, run.run_id, 1)

    assert (RunState.HELD, CRASH_LIMIT, stores.now) == (after.state, after.crashes, after.problem_at)
    assert "poison" in (after.reason or "")
    store = stores.open()
    assert queue_of(store, run.run_id) is None
    assert [run.run_id] == [found.run_id for found in store.runs(RunFilter(problems=True))]
    assert [row.outcome for row in store.attempts(run.run_id)] == ["lost"] * CRASH_LIMIT
    assert after.attempt == CRASH_LIMIT


def a_takeover_says_what_it_held(stores: StoreFactory) -> None:
    """The poisoned run is named, its neighbour is released."""
    dead = Process(stores, "p1")
    poison, neighbour = dead.start("evt_1"), dead.start("evt_2")
    assert dead.save(poison, becomes=move(poison, RunState.RUNNING, now=stores.now, crashes=1))
    stores.now += LEASE_MS + 1

    taken = _take_over(dead.store, stores, limit=2)

    assert TakenOver(("p1",), 1, (poison.run_id,)) == taken
    assert RunState.QUEUED is dead.read(neighbour.run_id).state


def an_instance_that_is_restarted_for_ever_reaches_the_limit_too(stores: StoreFactory) -> None:
    """A supervisor that starts a killed process again must not keep a killer alive."""
    process = Process(stores, "p0", instance="shop-1")
    run = process.start("evt_1")
    for number in range(1, CRASH_LIMIT + 1):
        process = Process(stores, f"p{number}", instance="shop-1")
        if number < CRASH_LIMIT:
            assert [run.run_id] == [found.run_id for found in process.claim() + process.claim(suspects=True)]

    assert RunState.HELD is process.read(run.run_id).state
    assert [row.outcome for row in process.store.attempts(run.run_id)] == ["lost"] * CRASH_LIMIT


def a_run_that_is_being_cancelled_stays_so_when_its_holder_dies(stores: StoreFactory) -> None:
    """The next holder goes on with the clean-up."""
    dead = Process(stores, "p1")
    run = dead.start("evt_1")
    assert dead.store.steer(
        steer(run, "cancel", move(run, RunState.CANCELLING, now=stores.now, due_at=stores.now))
    )
    dead.claim()
    stores.now += LEASE_MS + 1

    _take_over(dead.store, stores)

    after = dead.read(run.run_id)
    assert (after.state, after.attempt, after.crashes) == (RunState.CANCELLING, 2, 1)


def a_woken_run_of_a_dead_process_is_due(stores: StoreFactory) -> None:
    """The wake-up that its holder never saw needs no second one."""
    dead, alive = Process(stores, "p1"), Process(stores, "p2")
    parent = dead.start("evt_1")
    dead.call(parent)
    (child,) = alive.claim()
    alive.move(child, RunState.COMPLETED, wakes_run_id=parent.run_id)
    stores.now += LEASE_MS + 1
    alive.heartbeat()

    _take_over(alive.store, stores, skip="p2")

    assert [parent.run_id] == [run.run_id for run in alive.claim()]


def who_leaves_is_charged_nothing(stores: StoreFactory) -> None:
    """A drained process gives its runs back as they are: same attempt, due now, no log."""
    process, other = Process(stores, "p1"), Process(stores, "p2")
    running, cancelling = process.start("evt_1"), process.start("evt_2")
    assert process.store.steer(
        steer(cancelling, "cancel", move(cancelling, RunState.CANCELLING, now=stores.now, due_at=stores.now))
    )
    process.claim()
    kept = other.start("evt_3")
    stores.now += 5

    process.store.leave("p1", stores.now)

    for run, state in ((running, RunState.QUEUED), (cancelling, RunState.CANCELLING)):
        after = other.read(run.run_id)
        assert (state, 1, 0) == (after.state, after.attempt, after.crashes)
        assert other.store.attempts(run.run_id) == []
    assert [row.process_id for row in other.store.processes()] == ["p2"]
    assert kept == other.read(kept.run_id)
    raised(errors.LeaseLost, lambda: process.accept(accept("evt_4")))
    assert stores.now == other.next_due(WORKFLOWS)
    assert {running.run_id, cancelling.run_id} == {run.run_id for run in other.claim()}
    assert not Process(stores, "p1", store=process.store, epoch=2).save(running, step())


def leaving_twice_or_after_an_eviction_changes_nothing(stores: StoreFactory) -> None:
    """What was taken over meanwhile stays with its new holder."""
    process, other = Process(stores, "p1"), Process(stores, "p2")
    process.start("evt_1")
    stores.now += LEASE_MS + 1
    other.heartbeat()
    _take_over(other.store, stores, skip="p2")
    other.claim()
    before = rows(other.store)

    process.store.leave("p1", stores.now)
    process.store.leave("p1", stores.now)

    assert before == rows(other.store)


def a_heartbeat_that_comes_after_the_takeover_is_told(stores: StoreFactory) -> None:
    """It does not bring the process back."""
    process, other = Process(stores, "p1"), Process(stores, "p2")
    stores.now += LEASE_MS + 1
    other.heartbeat()
    _take_over(other.store, stores, skip="p2")

    raised(errors.LeaseLost, process.heartbeat)

    assert [row.process_id for row in other.store.processes()] == ["p2"]


def a_takeover_that_races_a_batch_is_before_or_after_it(stores: StoreFactory) -> None:
    """Either the checkpoint was saved and then the process was lost, or it was lost and nothing is saved."""
    rescuer = stores.open()
    for number in range(RACES):
        owner = Process(stores, f"owner-{number}")
        run = owner.start(f"evt_{number}")
        stores.now += LEASE_MS + 1

        outcomes: list[Any] = together(
            lambda owner=owner, run=run: _saves(owner, run),  # type: ignore[misc]
            lambda: _take_over(rescuer, stores),
        )
        saved, taken = outcomes

        assert taken == TakenOver((owner.process_id,), 1, ())
        assert len(rescuer.steps(run.run_id)) == int(saved)
        after = rescuer.states([run.run_id])[run.run_id]
        assert (after.state, after.attempt, after.crashes) == (RunState.QUEUED, 2, 1)
        assert not _saves(owner, run), "after the takeover nothing goes through"


def _saves(owner: Process, run: RunRow) -> bool:
    try:
        return owner.save(run, step())
    except errors.LeaseLost:
        return False


def a_heartbeat_that_races_a_takeover_comes_in_time_or_is_told(stores: StoreFactory) -> None:
    """The process goes on or is gone; never is it told that all is well and taken over all the same."""
    rescuer = stores.open()
    for number in range(RACES):
        owner = Process(stores, f"owner-{number}")
        run = owner.start(f"evt_{number}")
        stores.now += LEASE_MS + 1

        outcomes: list[Any] = together(
            lambda owner=owner: _renews(owner),  # type: ignore[misc]
            lambda: _take_over(rescuer, stores),
        )
        renewed, taken = outcomes

        assert renewed is (taken.processes == ())
        assert _saves(owner, run) is renewed
        owner.store.leave(owner.process_id, stores.now)


def _renews(owner: Process) -> bool:
    try:
        owner.heartbeat()
    except errors.LeaseLost:
        return False
    return True


def one_look_tells_what_a_poll_wants_to_know(stores: StoreFactory) -> None:
    """What is due, whose lease ends first, how much is owned, what woke."""
    process = Process(stores, "p1")
    assert Look(None, None, 0, (), registrations=1) == process.store.look("p1", WORKFLOWS)
    other = Process(stores, "p2", lease_ms=500)
    Process(stores, "p3", lease_ms=900)
    parent = process.start("evt_1")
    process.start("evt_2")
    process.call(parent)
    (child,) = other.claim()
    process.move(process.start("evt_3"), RunState.SLEEPING, due_at=stores.now + 70)
    process.queue("evt_4", "notify")

    before = process.store.look("p1", ["fulfil", "invoice"])
    other.move(child, RunState.COMPLETED, wakes_run_id=parent.run_id)
    after = process.store.look("p1", WORKFLOWS)

    assert before == Look(stores.now + 70, stores.now + 500, 2, (), registrations=3)
    assert after == Look(stores.now, stores.now + 500, 2, (parent.run_id,), registrations=3)


def a_look_sees_only_what_can_be_claimed(stores: StoreFactory) -> None:
    """Not what others own, nor what a process has no code for, nor ended and held runs."""
    process = Process(stores, "p1")
    Process(stores, "p2").start("evt_1")
    process.queue("evt_2", "notify")
    process.move(process.start("evt_3"), RunState.HELD)
    process.move(process.start("evt_4"), RunState.COMPLETED)

    assert process.next_due(["fulfil", "invoice"]) is None
    assert process.next_due([]) is None


def what_is_given_back_is_due_again_and_not_charged(stores: StoreFactory) -> None:
    """Runs that a process owns and does not have in memory; only its own ones."""
    process, other = Process(stores, "p1"), Process(stores, "p2")
    stray, kept, foreign = process.start("evt_1"), process.start("evt_2"), other.start("evt_3")
    cancelling = process.start("evt_4")
    action = steer(cancelling, "cancel", move(cancelling, RunState.CANCELLING, now=stores.now))
    assert process.store.steer(action)
    process.claim()
    stores.now += 5

    process.store.give_back(
        "p1", [stray.run_id, foreign.run_id, cancelling.run_id, "no such run"], stores.now
    )

    assert {kept.run_id} == set(process.store.owned("p1"))
    assert {foreign.run_id} == set(other.store.owned("p2"))
    after = process.read(stray.run_id)
    assert (after.state, after.attempt, after.crashes) == (RunState.QUEUED, 1, 0)
    assert process.read(cancelling.run_id).state is RunState.CANCELLING
    assert stores.now == process.next_due()
    again = {run.run_id: run for run in other.claim()}
    assert {stray.run_id, cancelling.run_id} == set(again)
    assert not process.save(stray, step())
    assert other.save(again[stray.run_id], step())


def heartbeats_and_batches_do_not_wait_for_each_other_for_ever(stores: StoreFactory) -> None:
    """A process renews, saves and is looked at, all at once, and nobody is refused."""
    process, other = Process(stores, "p1"), Process(stores, "p2")
    run = process.start("evt_1")

    def save() -> None:
        for number in range(1, 21):
            assert process.save(run, step(f"s{number}", seq=number))

    def renew() -> None:
        for _ in range(20):
            process.heartbeat()

    def look() -> None:
        for _ in range(20):
            assert TakenOver((), 0, ()) == _take_over(other.store, stores, skip="p2")

    together(save, renew, look)

    assert len(process.store.steps(run.run_id)) == 20
