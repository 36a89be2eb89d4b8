"""Checkpoints: what is saved comes back equal, in order, and an outcome never changes."""

from __future__ import annotations

from onceward.core.model import StepRow
from onceward.core.states import RunState, StepState
from onceward.testing.store_scene import (
    Process,
    StoreFactory,
    attempt_log,
    move,
    restarted,
    retried,
    steer,
    step,
)


def a_checkpoint_comes_back_with_every_column(stores: StoreFactory) -> None:
    """Also those that most steps leave empty."""
    process = Process(stores)
    run = process.start("evt_1")
    full = StepRow(
        name="charge",
        item="order-7",
        ordinal=2,
        seq=9,
        kind="run",
        state=StepState.FAILED,
        attempt=1,
        started_at=stores.now,
        ended_at=stores.now + 1,
        tries=3,
        output='{"a": 1}',
        error='{"type": "Declined"}',
        wake_at=stores.now + 2,
        child_run_id=process.queue("evt_2").run_id,
        origin="run_y/1",
        inputs_hash="abc",
        effect="own database",
        key_scope="business",
        key_memory_ms=3_600_000,
        begun='{"at": 1}',
    )

    assert process.save(run, full)

    assert [full] == process.store.steps(run.run_id)
    assert {run.run_id: [full]} == process.store.histories([run.run_id])


def checkpoints_are_read_in_saved_order(stores: StoreFactory) -> None:
    """By their number, whatever their names and whichever batch brought them."""
    process = Process(stores)
    run = process.start("evt_1")

    assert process.save(run, step("zebra", seq=1), step("ant", seq=10))
    assert process.save(run, step("bee", seq=2))

    assert [row.name for row in process.store.steps(run.run_id)] == ["zebra", "bee", "ant"]
    assert [row.name for row in process.store.histories([run.run_id])[run.run_id]] == ["zebra", "bee", "ant"]


def a_saved_outcome_never_changes(stores: StoreFactory) -> None:
    """A second outcome of the same step is not written, whatever the first one was."""
    process = Process(stores)
    run = process.start("evt_1")
    for number, state in enumerate(("done", "failed", "cancelled", "cut"), start=1):
        first = step(state, seq=number, state=state)
        assert process.save(run, first)

        process.save(run, step(state, seq=number + 50, state="done", output='"other"', tries=9))
        if state not in ("failed", "cut"):  # these an attempt may open again
            process.save(run, step(state, seq=number + 50, state="open"))

        assert first in process.store.steps(run.run_id), state
    assert len(process.store.steps(run.run_id)) == 4


def an_open_record_changes_until_it_has_its_outcome(stores: StoreFactory) -> None:
    """Tries, the next time and the end replace each other under one key."""
    process = Process(stores)
    run = process.start("evt_1")
    began = step(state="open", seq=1, at=stores.now)
    failed_once = step(state="open", seq=1, at=stores.now, tries=2, error='"x"', wake_at=stores.now + 9)
    done = step(state="done", seq=3, at=stores.now, tries=2, ended_at=stores.now + 20)

    for record in (began, failed_once, done):
        assert process.save(run, record)
        assert [record] == process.store.steps(run.run_id)


def a_record_may_begin_and_end_in_one_batch(stores: StoreFactory) -> None:
    """Two states of one record in one commit: the last one stands."""
    process = Process(stores)
    run = process.start("evt_1")

    assert process.save(run, step("a", state="open", seq=1), step("b", seq=2), step("a", state="done", seq=3))

    assert [row.name for row in process.store.steps(run.run_id)] == ["b", "a"]
    assert all(row.state is StepState.DONE for row in process.store.steps(run.run_id))


def name_item_and_ordinal_are_compared_column_by_column(stores: StoreFactory) -> None:
    """Keys that look alike when joined are different steps."""
    process = Process(stores)
    run = process.start("evt_1")
    keys = [
        ("a", "", 1),
        ("a", "", 2),
        ("a", "b", 1),
        ("a[b]", "", 1),
        ("ab", "", 1),
        ("A", "", 1),
        ("a ", "", 1),
    ]

    assert process.save(
        run,
        *(
            step(name, item=item, ordinal=ordinal, seq=seq)
            for seq, (name, item, ordinal) in enumerate(keys, start=1)
        ),
    )

    assert keys == [tuple(row.key) for row in process.store.steps(run.run_id)]


def the_last_checkpoint_and_the_end_share_a_commit(stores: StoreFactory) -> None:
    """Both are there after one batch."""
    process = Process(stores)
    run = process.start("evt_1")

    assert process.save(run, step(), becomes=move(run, RunState.COMPLETED, now=stores.now))

    assert RunState.COMPLETED is process.read(run.run_id).state
    assert len(process.store.steps(run.run_id)) == 1


def histories_are_those_of_the_present_generations(stores: StoreFactory) -> None:
    """One question for many runs; a run without records, or an unknown one, has an empty history."""
    process = Process(stores)
    runs = [process.start(f"evt_{number}") for number in range(3)]
    process.save(runs[0], step("a"))
    process.save(runs[1], step("b"), step("c", seq=2))
    assert process.store.steer(restarted(process.read(runs[1].run_id), now=stores.now))
    (again,) = process.claim()
    process.save(again, step("d"))

    found = process.store.histories([run.run_id for run in runs] + ["no such run"])

    names = {run_id: [row.name for row in steps] for run_id, steps in found.items()}
    assert names == {runs[0].run_id: ["a"], runs[1].run_id: ["d"], runs[2].run_id: [], "no such run": []}
    assert process.store.histories([]) == {}


def a_generation_keeps_its_own_records(stores: StoreFactory) -> None:
    """After a restart the same step is saved anew and the old record stays readable."""
    process = Process(stores)
    run = process.start("evt_1")
    process.save(run, step(output='"first"'))
    assert process.store.steer(restarted(run, now=stores.now))
    (again,) = process.claim()

    process.save(again, step(output='"second"'))

    assert [row.output for row in process.store.steps(run.run_id)] == ['"second"']
    assert [row.output for row in process.store.steps(run.run_id, 1)] == ['"first"']
    assert [row.output for row in process.store.steps(run.run_id, 2)] == ['"second"']
    assert process.store.steps(run.run_id, 3) == []
    assert process.store.steps("no such run") == []


def records_copied_into_a_new_generation_name_their_origin(stores: StoreFactory) -> None:
    """What a restart keeps is copied forward, in the same commit."""
    process = Process(stores)
    run = process.start("evt_1")
    process.save(run, step("a", seq=1), step("b", seq=2))
    kept = step("a", seq=1, origin=f"{run.run_id}/1")

    assert process.store.steer(restarted(run, now=stores.now, copies=[kept]))

    assert [kept] == process.store.steps(run.run_id)
    assert [row.name for row in process.store.steps(run.run_id, 1)] == ["a", "b"]


def only_named_failures_are_reopened(stores: StoreFactory) -> None:
    """A retry runs the failures again that ended the attempt; those that were caught stay saved."""
    process = Process(stores)
    run = process.start("evt_1")
    done, caught = step("load", seq=1), step("ping", seq=2, state="failed")
    fatal = step("charge", seq=3, state="failed", tries=8, begun='{"at": 1}')
    cut = step("ship", seq=4, state="cut", tries=2, begun='{"at": 2}')
    nap = step("nap", seq=5, state="cut", kind="sleep", wake_at=stores.now + 60_000)
    log = attempt_log(run, "failed", now=stores.now, failed_steps='[["charge","",1]]')
    failed = move(run, RunState.FAILED, now=stores.now, log=log)
    process.save(run, done, caught, fatal, cut, nap, becomes=failed)

    assert process.store.steer(
        retried(
            process.read(run.run_id),
            now=stores.now,
            reopen=[fatal.key, done.key, cut.key, nap.key],
        )
    )

    records = {row.name: row for row in process.store.steps(run.run_id)}
    assert (done, caught) == (records["load"], records["ping"])
    opened = records["charge"]
    assert (
        opened.state,
        opened.tries,
        opened.ended_at,
        opened.output,
        opened.error,
    ) == (StepState.OPEN, 0, None, None, None)
    assert (records["ship"].state, records["ship"].tries) == (StepState.OPEN, 0)
    # What failed is known to have ended; what was cut off may have taken effect all the same.
    assert (opened.begun, records["ship"].begun) == (None, cut.begun)
    assert (records["nap"].state, records["nap"].wake_at) == (StepState.OPEN, nap.wake_at)
    (again,) = process.claim()
    assert process.save(again, step("charge", seq=6, attempt=2))
    assert StepState.DONE is process.store.steps(run.run_id)[-1].state


def a_failure_is_opened_for_the_next_attempt_by_its_holder(stores: StoreFactory) -> None:
    """The automatic retry: the failed record opens in the commit that ends the attempt, once."""
    process = Process(stores)
    run = process.start("evt_1")
    assert process.save(run, step("charge", seq=1, state="failed", tries=8), step("ship", seq=2, state="cut"))
    opened = step("charge", seq=1, state="open", tries=0)
    freed = step("ship", seq=2, state="open", tries=0)
    backoff = move(
        run,
        RunState.BACKOFF,
        now=stores.now,
        due_at=stores.now,
        attempt=2,
        failures=1,
        log=attempt_log(run, "failed", now=stores.now),
    )

    assert process.save(run, opened, freed, becomes=backoff)

    assert process.store.steps(run.run_id) == [opened, freed]
    (again,) = process.claim()
    done = step("charge", seq=3, attempt=2)
    assert process.save(again, done)
    assert process.save(again, opened)
    assert process.store.steps(run.run_id) == [freed, done]


def a_step_that_backs_off_is_brought_forward_with_the_tries_it_has_left(stores: StoreFactory) -> None:
    """An operator's retry: the wait is over, the count goes on."""
    process = Process(stores)
    run = process.start("evt_1")
    waiting = step("charge", state="open", tries=3, error='"x"', wake_at=stores.now + 60_000)
    process.save(run, waiting)
    backoff = process.move(run, RunState.BACKOFF, due_at=stores.now + 60_000)
    becomes = move(backoff, RunState.QUEUED, now=stores.now, due_at=stores.now)

    assert process.store.steer(steer(backoff, "retry", becomes, reopen=[waiting.key]))

    (record,) = process.store.steps(run.run_id)
    assert (record.state, record.tries, record.wake_at) == (StepState.OPEN, 3, None)


def an_attempt_is_logged_once_and_read_in_order(stores: StoreFactory) -> None:
    """The first record of an attempt stays; generations come one after the other."""
    process = Process(stores)
    run = process.start("evt_1")
    full = attempt_log(run, "failed", now=stores.now, error='"x"', process_id="p1", failed_steps="[]")
    backoff = process.move(run, RunState.RUNNING, attempt=2, failures=1, log=full)
    second = attempt_log(backoff, "failed", now=stores.now)
    failed = process.move(backoff, RunState.FAILED, log=second)
    again = attempt_log(failed, "retried", now=stores.now)
    becomes = move(failed, RunState.QUEUED, now=stores.now, due_at=stores.now, attempt=3, log=again)
    steering = retried(failed, now=stores.now)
    steering.move = becomes
    assert process.store.steer(steering)

    assert [full, second] == process.store.attempts(run.run_id)

    present = process.read(run.run_id)
    ended = restarted(present, now=stores.now)
    ended.move.log = attempt_log(present, "restarted", now=stores.now)
    assert process.store.steer(ended)
    assert [(row.generation, row.attempt) for row in process.store.attempts(run.run_id)] == [
        (1, 1),
        (1, 2),
        (1, 3),
    ]


def children_are_listed_with_their_parent(stores: StoreFactory) -> None:
    """Called and detached ones, oldest first."""
    process = Process(stores)
    parent, other = process.start("evt_1"), process.start("evt_2")
    first = process.call(parent, name="pack")
    second = process.call(parent, name="ship", seq=2)
    process.call(other)

    assert [first, second] == process.store.children(parent.run_id)
    assert process.store.children(first.run_id) == []
    assert (parent.run_id, 1, True, 1) == (
        first.parent_run_id,
        first.parent_generation,
        first.is_called,
        first.depth,
    )
