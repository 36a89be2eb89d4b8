"""An operator's action happens to the run that was looked at, or not at all."""

from __future__ import annotations

import functools

import msgspec

from onceward.core.model import RunRow
from onceward.core.ports import RunFilter, Steer
from onceward.core.states import RunState
from onceward.testing.store_scene import (
    Process,
    StoreFactory,
    attempt_log,
    audit,
    move,
    queue_of,
    restarted,
    retried,
    rows,
    steer,
    step,
    together,
)

RACES = 25


def _cancel(run: RunRow, now: int) -> Steer:
    return steer(run, "cancel", move(run, RunState.CANCELLING, now=now, due_at=now))


def a_run_that_changed_since_it_was_read_is_not_touched(stores: StoreFactory) -> None:
    """State, generation and fence must be as they were seen; otherwise nothing is written."""
    process = Process(stores)
    run = process.start("evt_1")
    process.save(run, step(state="failed"))
    seen = process.move(run, RunState.FAILED)
    before = rows(process.store)
    action = retried(seen, now=stores.now, reopen=[step().key])

    for field, value in (
        ("expected_state", RunState.RUNNING),
        ("expected_generation", 2),
        ("expected_fence", seen.fence - 1),
        ("expected_fence", seen.fence + 1),
        ("run_id", "no such run"),
    ):
        assert not process.store.steer(msgspec.structs.replace(action, **{field: value})), field

    assert before == rows(process.store)
    assert process.store.steer(action)


def an_action_writes_all_its_parts(stores: StoreFactory) -> None:
    """The run's columns, its place in the queue and the audit entry, and the fence grows."""
    process = Process(stores)
    run = process.move(process.start("evt_1"), RunState.FAILED)
    stores.now += 10
    action = retried(run, now=stores.now)

    assert process.store.steer(action)

    after = process.read(run.run_id)
    assert (RunState.QUEUED, 2, run.fence + 1) == (after.state, after.attempt, after.fence)
    assert (after.ended_at, after.error, after.problem_at) == (None, None, None)
    place = queue_of(process.store, run.run_id)
    assert place is not None
    assert (stores.now, None, "fulfil") == (place["due_at"], place["process_id"], place["workflow"])
    assert [action.audit] == process.store.audits(run.run_id)


def of_two_actions_at_once_one_wins(stores: StoreFactory) -> None:
    """Two operators act on the same sight of a run: one action happens, one audit entry is there."""
    here, there = Process(stores, "p1"), Process(stores, "p2")
    for number in range(RACES):
        run = here.move(here.start(f"evt_{number}"), RunState.FAILED)
        actions = [restarted(run, now=stores.now), retried(run, now=stores.now)]

        done = together(
            lambda action=actions[0]: here.store.steer(action),  # type: ignore[misc]
            lambda action=actions[1]: there.store.steer(action),  # type: ignore[misc]
        )

        assert sorted(done) == [False, True]
        winner = actions[done.index(True)]
        after = here.read(run.run_id)
        assert (winner.move.generation, winner.move.attempt) == (after.generation, after.attempt)
        assert [winner.audit] == here.store.audits(run.run_id)


def steering_an_owned_run_shuts_its_owner_out(stores: StoreFactory) -> None:
    """The owner's next batch is refused, the run belongs to nobody and others may claim it."""
    owner, other = Process(stores, "p1"), Process(stores, "p2")
    run = owner.start("evt_1")

    assert other.store.steer(_cancel(run, stores.now))

    assert owner.store.owned("p1") == {}
    before = rows(owner.store)
    assert not owner.save(run, step(), becomes=move(run, RunState.COMPLETED, now=stores.now))
    assert before == rows(owner.store)
    assert [(run.run_id, RunState.CANCELLING)] == [(found.run_id, found.state) for found in other.claim()]


def steering_without_a_time_frees_the_run_at_once(stores: StoreFactory) -> None:
    """An owner that can no longer write must not keep it."""
    owner, other = Process(stores, "p1"), Process(stores, "p2")
    run = owner.start("evt_1")

    assert other.store.steer(steer(run, "cancel", move(run, RunState.CANCELLING, now=stores.now)))

    assert owner.store.owned("p1") == {}
    assert [run.run_id] == [found.run_id for found in other.claim()]


def a_cancel_that_races_the_owners_save_is_before_or_after_it(stores: StoreFactory) -> None:
    """Either the end was saved and the cancel finds another state, or the cancel came first and shut it out."""
    owner, operator = Process(stores, "p1"), Process(stores, "p2")
    for number in range(RACES):
        run = owner.start(f"evt_{number}")

        saved, cancelled = together(
            lambda run=run: owner.save(run, step(), becomes=move(run, RunState.COMPLETED, now=stores.now)),  # type: ignore[misc]
            lambda run=run: operator.store.steer(_cancel(run, stores.now)),  # type: ignore[misc]
        )

        assert saved is not cancelled
        after = owner.read(run.run_id)
        assert (RunState.COMPLETED if saved else RunState.CANCELLING) is after.state
        assert int(saved) == len(owner.store.steps(run.run_id))
        assert int(cancelled) == len(owner.store.audits(run.run_id))


def steering_neighbours_leaves_the_owners_other_runs_alone(stores: StoreFactory) -> None:
    """The owner goes on with whatever was not steered."""
    owner, other = Process(stores, "p1"), Process(stores, "p2")
    run, neighbour = owner.start("evt_1"), owner.start("evt_2")

    assert other.store.steer(_cancel(run, stores.now))

    result = owner.apply(advances=[owner.advance(run, step()), owner.advance(neighbour, step())])
    assert result.held == [False, True]
    assert {neighbour.run_id: False} == owner.owned()


def a_cancel_that_ends_a_run_takes_it_off_the_queue_and_wakes_its_parent(stores: StoreFactory) -> None:
    """What waits for the cancelled run learns of it at once."""
    process = Process(stores)
    parent = process.start("evt_1")
    child = process.call(parent)
    process.wait(parent)

    assert process.store.steer(
        steer(
            child,
            "cancel",
            move(child, RunState.CANCELLED, now=stores.now, wakes_run_id=parent.run_id),
        )
    )

    assert queue_of(process.store, child.run_id) is None
    assert [parent.run_id] == [run.run_id for run in process.claim()]


def a_dismissed_run_stays_failed_and_leaves_the_list(stores: StoreFactory) -> None:
    """The list of open problems has failed and held runs, until somebody dismisses them."""
    process = Process(stores)
    failed = process.move(process.start("evt_1"), RunState.FAILED)
    held = process.move(process.start("evt_2"), RunState.HELD)
    process.move(process.start("evt_3"), RunState.COMPLETED)
    process.start("evt_4")
    assert [held.run_id, failed.run_id] == [
        run.run_id for run in process.store.runs(RunFilter(problems=True))
    ]

    becomes = move(failed, RunState.FAILED, now=stores.now, ended_at=failed.ended_at, dismissed_at=stores.now)
    assert process.store.steer(steer(failed, "dismiss", becomes))

    assert [held.run_id] == [run.run_id for run in process.store.runs(RunFilter(problems=True))]
    assert RunState.FAILED is process.read(failed.run_id).state
    assert queue_of(process.store, failed.run_id) is None


def a_held_run_goes_on_when_it_is_answered(stores: StoreFactory) -> None:
    """It returns to the queue and off the list of problems."""
    process = Process(stores)
    held = process.move(process.start("evt_1"), RunState.HELD)

    assert process.store.steer(
        steer(held, "answer", move(held, RunState.QUEUED, now=stores.now, due_at=stores.now))
    )

    assert process.store.runs(RunFilter(problems=True)) == []
    (again,) = process.claim()
    assert (held.run_id, None) == (again.run_id, again.reason)


def a_back_off_is_brought_forward(stores: StoreFactory) -> None:
    """The next attempt comes now, and a second operator who saw the same finds it changed."""
    process = Process(stores)
    run = process.start("evt_1")
    log = attempt_log(run, "failed", now=stores.now)
    run = process.move(run, RunState.BACKOFF, due_at=stores.now + 60_000, attempt=2, log=log)
    action = steer(run, "retry", move(run, RunState.BACKOFF, now=stores.now, due_at=stores.now))

    assert process.store.steer(action)
    assert not process.store.steer(msgspec.structs.replace(action, audit=audit(run.run_id, "retry")))

    (again,) = process.claim()
    assert (run.run_id, 2) == (again.run_id, again.attempt)


def a_steered_suspect_is_still_claimed_alone(stores: StoreFactory) -> None:
    """Cancelling a run that lost two holders does not make it harmless."""
    process = Process(stores)
    run = process.move(process.start("evt_1"), RunState.QUEUED, due_at=stores.now, crashes=2)

    assert process.store.steer(_cancel(run, stores.now))

    assert process.claim() == []
    assert [run.run_id] == [found.run_id for found in process.claim(suspects=True)]


def a_restart_that_forgives_crashes_is_claimed_with_the_others(stores: StoreFactory) -> None:
    """A new generation begins without suspicion."""
    process = Process(stores)
    run = process.move(process.start("evt_1"), RunState.QUEUED, due_at=stores.now, crashes=3)

    assert process.store.steer(restarted(run, now=stores.now))

    assert [(run.run_id, 0)] == [(found.run_id, found.crashes) for found in process.claim()]


def an_action_that_knows_the_records_is_refused_after_one_more(stores: StoreFactory) -> None:
    """A plan that somebody looked at is not carried out on steps that it does not name."""
    process = Process(stores)
    run = process.start("evt_1")
    assert process.save(run, step("a", seq=3))

    process.save(run, step("b", seq=2))  # one was numbered ahead
    before = rows(process.store)
    assert not process.store.steer(restarted(run, now=stores.now, expected_sum=3))
    assert before == rows(process.store)
    assert process.store.steer(restarted(run, now=stores.now, expected_sum=5))
    fresh = process.read(run.run_id)
    assert not process.store.steer(restarted(fresh, now=stores.now, expected_sum=5))
    assert process.store.steer(restarted(fresh, now=stores.now, expected_sum=0))


def nothing_is_saved_between_the_look_at_the_records_and_the_action(stores: StoreFactory) -> None:
    """A checkpoint and a restart at one instant: one of the two is refused."""
    process, operator = Process(stores, "p1"), stores.open()
    for number in range(RACES):
        run = process.start(f"evt_{number}")

        saved, restarts = together(
            functools.partial(process.save, run, step("a", seq=1)),
            functools.partial(operator.steer, restarted(run, now=stores.now, expected_sum=0)),
        )

        assert saved is not restarts
        assert len(process.store.steps(run.run_id, 1)) == int(saved)


def audits_are_kept_in_order(stores: StoreFactory) -> None:
    """Who did what, oldest first, with every column."""
    process = Process(stores)
    run = process.move(process.start("evt_1"), RunState.FAILED)
    done = []
    for detail in (None, '{"reason": "again"}'):
        action = restarted(process.read(run.run_id), now=stores.now)
        action.audit = audit(run.run_id, "restart", detail=detail, actor="O'Brien <o@example.com>")
        assert process.store.steer(action)
        done.append(action.audit)
        stores.now += 1

    assert done == process.store.audits(run.run_id)
    assert process.store.audits("no such run") == []
