"""Who lost the right to write changes nothing: old fences, old epochs, evicted processes."""

from __future__ import annotations

from onceward.core import errors
from onceward.core.model import EventRow, RunRow
from onceward.core.ports import Accept, Advance, RunFilter
from onceward.core.states import RunState
from onceward.testing.store_scene import (
    LEASE_MS,
    Process,
    StoreFactory,
    accept,
    attempt_log,
    event,
    move,
    new_run,
    queue_of,
    raised,
    restarted,
    rows,
    step,
)


def _emit(run: RunRow) -> Accept:
    fact = EventRow(f"run/{run.run_id}", '[1,"charge","",1,1]', "order.paid", "{}", run.created_at)
    return Accept(fact, [new_run("notify")])


def every_claim_raises_the_fence(stores: StoreFactory) -> None:
    """A run claimed again has a higher fence, also by the same process."""
    process = Process(stores)
    run = process.queue("evt_1")
    fences = [run.fence]
    for _ in range(3):
        (run,) = process.claim()
        fences.append(run.fence)
        process.move(run, RunState.SLEEPING, due_at=stores.now)

    assert fences == sorted(set(fences))
    assert process.read(run.run_id).fence == fences[-1]


def an_old_fence_writes_nothing(stores: StoreFactory) -> None:
    """Neither steps nor emits, moves, logs or wake-ups of a holder that lost its run are written."""
    process = Process(stores)
    asleep = process.move(process.start("evt_0"), RunState.SLEEPING, due_at=stores.now + 99)
    stale = process.start("evt_1")
    process.move(stale, RunState.SLEEPING, due_at=stores.now)
    (fresh,) = process.claim(workflows=["fulfil"])
    before = rows(process.store)
    becomes = move(
        stale,
        RunState.COMPLETED,
        now=stores.now,
        log=attempt_log(stale, "failed", now=stores.now),
        wakes_run_id=asleep.run_id,
    )

    held = process.save(stale, step(), accepts=[_emit(stale)], becomes=becomes)

    assert not held
    assert before == rows(process.store)
    assert process.save(fresh, step())


def a_fence_from_the_future_or_an_unknown_run_writes_nothing(stores: StoreFactory) -> None:
    """Only the present fence of a run that exists holds."""
    process = Process(stores)
    run = process.start("evt_1")
    before = rows(process.store)
    steps = [step()]

    result = process.apply(
        advances=[Advance(run.run_id, 1, run.fence + 1, steps), Advance("no such run", 1, 1, steps)]
    )

    assert result.held == [False, False]
    assert before == rows(process.store)


def a_refused_commit_sinks_only_itself(stores: StoreFactory) -> None:
    """In one batch the neighbours of a lost run are saved, answered in the batch's order."""
    process = Process(stores)
    runs = [process.start(f"evt_{number}") for number in range(3)]
    lost = Advance(runs[1].run_id, 1, runs[1].fence - 1, [step()])

    result = process.apply(
        advances=[process.advance(runs[0], step()), lost, process.advance(runs[2], step())],
        accepts=[accept("evt_new")],
    )

    assert result.held == [True, False, True]
    assert [len(process.store.steps(run.run_id)) for run in runs] == [1, 0, 1]
    assert process.store.event("stripe", "evt_new") is not None


def an_accept_by_a_run_that_lost_its_fence_is_refused(stores: StoreFactory) -> None:
    """An emit that names its run is written only while that run's fence holds."""
    process = Process(stores)
    run = process.start("evt_1")
    good, stale = _emit(run), _emit(run)
    good.by_run, good.by_fence = run.run_id, run.fence
    stale.by_run, stale.by_fence = run.run_id, run.fence - 1
    before = rows(process.store)

    refused = process.accept(stale)[0]
    assert refused.is_refused
    assert refused.runs == {}
    assert before == rows(process.store)

    assert process.save(run, step())
    accepted = process.accept(good)[0]
    assert not accepted.is_refused
    assert {"notify"} == set(accepted.runs)


def a_process_that_was_taken_over_loses_its_lease_and_writes_nothing(stores: StoreFactory) -> None:
    """Its batches and heartbeats are refused as a whole, whatever is in them."""
    frozen, alive = Process(stores, "p1"), Process(stores, "p2")
    run = frozen.start("evt_1")
    stores.now += LEASE_MS + 1
    alive.heartbeat()
    assert alive.store.take_over(stores.now, crash_limit=4, skip="p2").processes == ("p1",)
    before = rows(alive.store)

    raised(errors.LeaseLost, lambda: frozen.save(run, step(), accepts=[_emit(run)]))
    raised(errors.LeaseLost, lambda: frozen.accept(accept("evt_2")))
    raised(errors.LeaseLost, frozen.claim)
    raised(errors.LeaseLost, frozen.heartbeat)

    assert before == rows(alive.store)


def a_process_with_the_same_instance_evicts_the_older_at_once(stores: StoreFactory) -> None:
    """A restarted process takes its runs back without waiting for the lease; the old one is shut out."""
    old = Process(stores, "p1", instance="shop-1")
    run = old.start("evt_1")

    new = Process(stores, "p2", instance="shop-1")

    assert [row.process_id for row in new.store.processes()] == ["p2"]
    raised(errors.LeaseLost, lambda: old.save(run, step()))
    raised(errors.LeaseLost, old.heartbeat)
    (again,) = new.claim()
    assert (run.run_id, 2, 1) == (again.run_id, again.attempt, again.crashes)
    assert again.fence > run.fence
    assert new.store.steps(run.run_id) == []


def another_instance_is_left_alone(stores: StoreFactory) -> None:
    """Only the same name evicts; processes without a name never do."""
    first, second = Process(stores, "p1", instance="shop-1"), Process(stores, "p2", instance="shop-2")
    third, fourth = Process(stores, "p3"), Process(stores, "p4")

    for process in (first, second, third, fourth):
        process.heartbeat()

    assert [row.process_id for row in first.store.processes()] == ["p1", "p2", "p3", "p4"]


def another_epoch_is_refused(stores: StoreFactory) -> None:
    """Batch and heartbeat name the epoch that the process registered with."""
    process = Process(stores, epoch=2)
    run = process.start("evt_1")
    before = rows(process.store)

    for epoch in (1, 3):
        process.epoch = epoch
        raised(errors.LeaseLost, lambda: process.save(run, step()))
        raised(errors.LeaseLost, process.heartbeat)

    assert before == rows(process.store)


def an_evicted_process_may_register_again_but_its_old_runs_are_gone(stores: StoreFactory) -> None:
    """A higher epoch opens the door for new claims; the fences of before stay shut out."""
    frozen, alive = Process(stores, "p1"), Process(stores, "p2")
    run = frozen.start("evt_1")
    stores.now += LEASE_MS + 1
    alive.heartbeat()
    alive.store.take_over(stores.now, crash_limit=4, skip="p2")

    back = Process(stores, "p1", store=frozen.store, epoch=2)

    assert back.store.owned("p1") == {}
    assert not back.save(run, step())
    raised(errors.LeaseLost, lambda: frozen.save(run, step()))
    (again,) = back.claim()
    assert back.save(again, step())


def an_unknown_process_writes_nothing(stores: StoreFactory) -> None:
    """Who never registered has no row to update."""
    process = Process(stores, "p1")
    process.process_id = "stranger"

    raised(errors.LeaseLost, lambda: process.accept(accept("evt_1")))

    assert process.store.runs(RunFilter()) == []


def a_fence_lost_to_a_restart_is_refused_by_the_same_process(stores: StoreFactory) -> None:
    """Fences grow within one process too: the life before a restart cannot write into the new one."""
    process = Process(stores)
    run = process.start("evt_1")
    assert process.store.steer(restarted(run, now=stores.now))

    assert not process.save(run, step(), becomes=move(run, RunState.COMPLETED, now=stores.now))

    assert RunState.QUEUED is process.read(run.run_id).state
    (again,) = process.claim()
    assert (2, run.run_id) == (again.generation, again.run_id)
    assert process.save(again, step())
    assert process.store.steps(run.run_id, 1) == []


def emits_of_a_step_commit_with_its_record(stores: StoreFactory) -> None:
    """The event, its run and the checkpoint are there together; the same emit again is a duplicate."""
    process = Process(stores)
    run = process.start("evt_1")

    assert process.save(run, step(), accepts=[_emit(run)])
    assert process.save(run, accepts=[_emit(run)])

    (notified,) = process.store.runs(RunFilter(workflow="notify"))
    assert f"run/{run.run_id}" == notified.source
    assert queue_of(process.store, notified.run_id) is not None
    assert len(process.store.steps(run.run_id)) == 1
    assert event("evt_1", at=run.created_at) == process.store.event("stripe", "evt_1")
