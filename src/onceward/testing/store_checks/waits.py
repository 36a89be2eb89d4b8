"""Giving a run up until a time or a wake-up, and no wake-up is lost on the way."""

from __future__ import annotations

from onceward.core.model import RunRow
from onceward.core.ports import RunMove
from onceward.core.states import RunState
from onceward.testing.store_scene import (
    NEVER,
    WORKFLOWS,
    Process,
    StoreFactory,
    attempt_log,
    move,
    queue_of,
    step,
    together,
    waiting,
)

RACES = 25


def _ends(process: Process, child: RunRow, parent: RunRow) -> bool:
    becomes = move(
        child, RunState.COMPLETED, now=process.stores.now, output='"packed"', wakes_run_id=parent.run_id
    )
    return process.save(child, becomes=becomes)


def a_run_that_is_given_up_belongs_to_nobody_until_its_time(stores: StoreFactory) -> None:
    """Asleep, backing off, waiting or released: the state is kept, the owner is not."""
    process, other = Process(stores, "p1"), Process(stores, "p2")
    states = (RunState.SLEEPING, RunState.BACKOFF, RunState.WAITING, RunState.QUEUED)
    for number, state in enumerate(states):
        run = process.move(process.start(f"evt_{number}"), state, due_at=stores.now + 10 * (number + 1))
        assert state is run.state

    assert process.store.owned("p1") == {}
    assert stores.now + 10 == process.next_due(WORKFLOWS)
    assert other.claim() == []
    stores.now += 25
    assert {"evt_0", "evt_1"} == {run.event_id for run in other.claim()}
    assert stores.now + 5 == process.next_due(WORKFLOWS)


def a_run_that_is_kept_stays_with_its_holder(stores: StoreFactory) -> None:
    """A move without a due time changes the run, not its owner, its fence or its place."""
    process = Process(stores)
    run = process.start("evt_1")

    after = process.move(run, RunState.RUNNING, warning="step 'old' is no longer reached", failures=1)

    assert (run.fence, 1, "step 'old' is no longer reached") == (after.fence, after.failures, after.warning)
    assert {run.run_id: False} == process.owned()


def a_move_writes_every_column_it_names(stores: StoreFactory) -> None:
    """The mutable part of a run comes back as it was given."""
    process = Process(stores)
    run = process.start("evt_1")
    becomes = move(
        run,
        RunState.HELD,
        now=stores.now,
        attempt=2,
        failures=2,
        log=attempt_log(run, "failed", now=stores.now),
        crashes=1,
        deadline_at=stores.now + 50,
        error='{"type": "Declined"}',
        reason="outcome unknown",
        warning="a warning",
    )

    assert process.save(run, becomes=becomes)

    after = process.read(run.run_id)
    for field in (
        "state",
        "generation",
        "attempt",
        "failures",
        "crashes",
        "deadline_at",
        "started_at",
        "ended_at",
        "output",
        "error",
        "reason",
        "problem_at",
        "dismissed_at",
        "warning",
    ):
        assert getattr(becomes, field) == getattr(after, field), field


def a_waiting_run_is_due_when_its_child_ends(stores: StoreFactory) -> None:
    """The child's end and the wake-up are one commit."""
    process = Process(stores)
    parent = process.start("evt_1")
    child = process.call(parent)
    process.wait(parent)
    assert [child.run_id] == [run.run_id for run in process.claim()]
    stores.now += 7

    assert _ends(process, process.read(child.run_id), parent)

    assert stores.now == process.next_due(WORKFLOWS)
    assert [parent.run_id] == [run.run_id for run in process.claim()]


def a_wake_up_that_comes_before_the_parent_is_given_up_is_kept(stores: StoreFactory) -> None:
    """The child ends while the parent is still held: giving it up makes it due at once."""
    process = Process(stores)
    parent = process.start("evt_1")
    child = process.call(parent)
    (child,) = process.claim()
    assert _ends(process, child, parent)
    assert {parent.run_id: True} == process.owned()

    process.wait(parent)

    assert [parent.run_id] == [run.run_id for run in process.claim()]


def a_wake_up_at_the_very_instant_is_not_lost(stores: StoreFactory) -> None:
    """The child's end and the parent's unloading race, many times: the parent is always due after."""
    process, other = Process(stores, "p1"), Process(stores, "p2")
    for number in range(RACES):
        parent = process.start(f"evt_{number}")
        child = process.call(parent)
        (child,) = other.claim(workflows=["invoice"])

        together(
            lambda parent=parent: process.wait(parent),  # type: ignore[misc]
            lambda parent=parent, child=child: _ends(other, child, parent),  # type: ignore[misc]
        )

        assert [parent.run_id] == [run.run_id for run in other.claim()], f"wake-up lost in race {number}"
        other.move(other.read(parent.run_id), RunState.COMPLETED)


def a_parents_wait_and_its_childs_end_may_share_a_batch(stores: StoreFactory) -> None:
    """One process holds both: in either order of the two commits the parent is due afterwards."""
    process = Process(stores)
    for number, is_parent_first in enumerate((True, False)):
        parent = process.start(f"evt_{number}")
        process.call(parent)
        (child,) = process.claim(workflows=["invoice"])
        waits = process.advance(parent, becomes=waiting(parent, now=stores.now))
        ends = process.advance(
            child, becomes=move(child, RunState.COMPLETED, now=stores.now, wakes_run_id=parent.run_id)
        )

        result = process.apply(advances=[waits, ends] if is_parent_first else [ends, waits])

        assert result.held == [True, True]
        assert [run.run_id for run in process.claim()] == [parent.run_id], f"parent first: {is_parent_first}"
        assert process.save(process.read(parent.run_id), becomes=_completed(process, parent))


def _completed(process: Process, run: RunRow) -> RunMove:
    return move(process.read(run.run_id), RunState.COMPLETED, now=process.stores.now)


def children_that_end_in_one_batch_wake_their_parent(stores: StoreFactory) -> None:
    """Two wake-ups of one run in one transaction are one wake-up."""
    process = Process(stores)
    parent = process.start("evt_1")
    process.call(parent, name="pack")
    process.call(parent, name="ship", seq=2)
    process.wait(parent)
    children = process.claim()

    result = process.apply(
        advances=[
            process.advance(
                child, becomes=move(child, RunState.COMPLETED, now=stores.now, wakes_run_id=parent.run_id)
            )
            for child in children
        ]
    )

    assert result.held == [True, True]
    assert [run.run_id for run in process.claim()] == [parent.run_id]


def a_claim_uses_the_wake_up_up(stores: StoreFactory) -> None:
    """Who claimed after the wake-up has seen its cause; the next wait is a wait again."""
    process = Process(stores)
    parent = process.start("evt_1")
    first, second = process.call(parent, name="pack"), process.call(parent, name="ship", seq=2)
    process.wait(parent)
    process.claim(workflows=["invoice"])
    assert _ends(process, process.read(first.run_id), parent)
    (parent,) = process.claim()
    done = step("pack", kind="call", seq=3, child_run_id=first.run_id, output='"packed"')
    assert process.save(parent, done)
    assert {parent.run_id: False, second.run_id: False} == process.owned()

    process.wait(parent)

    assert process.claim() == []


def a_wake_up_brings_forward_and_never_delays(stores: StoreFactory) -> None:
    """A run that is due already stays due since then; one that sleeps is due now."""
    process = Process(stores)
    early = process.move(process.start("evt_1"), RunState.SLEEPING, due_at=stores.now)
    late = process.move(process.start("evt_2"), RunState.SLEEPING, due_at=stores.now + 99)
    wakers = [process.start(f"waker_{number}") for number in range(2)]
    due_at = stores.now
    stores.now += 10

    for waker, run in zip(wakers, (early, late), strict=True):
        process.move(waker, RunState.COMPLETED, wakes_run_id=run.run_id)

    places = [queue_of(process.store, run.run_id) for run in (early, late)]
    assert [due_at, stores.now] == [place and place["due_at"] for place in places]


def a_wake_up_for_an_ended_run_does_nothing(stores: StoreFactory) -> None:
    """An ended or held parent, or one that never was, is not put back into the queue."""
    process = Process(stores)
    ended = process.move(process.start("evt_1"), RunState.COMPLETED)
    held = process.move(process.start("evt_2"), RunState.HELD)

    for number, run_id in enumerate((ended.run_id, held.run_id, "no such run")):
        process.move(process.start(f"waker_{number}"), RunState.COMPLETED, wakes_run_id=run_id)

    assert process.store.dump("queue")["queue"] == []
    assert ended == process.read(ended.run_id)


def nothing_due_is_none(stores: StoreFactory) -> None:
    """The next due time is that of unowned runs of known workflows."""
    process = Process(stores)
    assert process.next_due(WORKFLOWS) is None
    process.start("evt_1")
    assert process.next_due(WORKFLOWS) is None
    stores.now += 5
    process.queue("evt_2", "notify")

    assert process.next_due(["fulfil", "invoice"]) is None
    assert process.next_due([]) is None
    assert stores.now == process.next_due(["fulfil", "notify"])


def a_run_that_waits_for_a_wake_up_only_is_due_at_no_real_time(stores: StoreFactory) -> None:
    """A time in a hundred years: it fits the column, and nothing claims the run before."""
    process = Process(stores)
    parent = process.start("evt_1")
    process.call(parent)
    process.wait(parent)
    stores.now = NEVER - 1

    assert process.next_due(["fulfil"]) == NEVER
    assert process.claim(workflows=["fulfil"]) == []


def a_checkpoint_alone_changes_neither_run_nor_queue(stores: StoreFactory) -> None:
    """Saving a step keeps the run with its holder as it is."""
    process = Process(stores)
    run = process.start("evt_1")
    place = queue_of(process.store, run.run_id)

    assert process.save(run, step())

    assert run == process.read(run.run_id)
    assert place == queue_of(process.store, run.run_id)
