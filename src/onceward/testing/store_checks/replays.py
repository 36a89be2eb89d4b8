"""A replay is a new run of an old event; the same request twice is one run."""

from __future__ import annotations

from onceward.core import errors
from onceward.core.model import RunRow
from onceward.core.ports import Accept, Accepted, RunFilter, Store
from onceward.core.states import RunState
from onceward.testing.store_scene import (
    Process,
    StoreFactory,
    audit,
    event,
    new_run,
    queue_of,
    raised,
    rows,
    step,
    together,
)

REPLAYERS = 4


def _replay(store: Store, run: RunRow, request_id: str, **changes: object) -> Accepted:
    wish = new_run(run.workflow, at=run.created_at, replay_id=request_id, replay_of=run.run_id, **changes)
    kept = [step("load", origin=f"{run.run_id}/{run.generation}")]
    return store.replay(Accept(event(run.event_id), [wish]), kept, audit(run.run_id, "replay"))


def _ended(process: Process, event_id: str = "evt_1") -> RunRow:
    run = process.start(event_id)
    assert process.save(run, step("load"), step("charge", seq=2))
    return process.move(run, RunState.COMPLETED)


def a_replay_is_a_new_run_and_the_old_one_stays_as_it_is(stores: StoreFactory) -> None:
    """Linked, queued, with the copied records; of the old run not a byte changes."""
    process = Process(stores)
    run = _ended(process)
    before = rows(process.store, "run", "step", "attempt", "event")

    reply = _replay(process.store, run, "request-1", input='{"order": 8}')

    assert not reply.is_duplicate
    replayed = process.read(reply.runs["fulfil"])
    assert (run.run_id, "request-1", '{"order": 8}', run.event_id) == (
        replayed.replay_of,
        replayed.replay_id,
        replayed.input,
        replayed.event_id,
    )
    assert [row.name for row in process.store.steps(replayed.run_id)] == ["load"]
    after = rows(process.store, "run", "step", "attempt", "event")
    for table, kept in before.items():
        assert all(row in after[table] for row in kept), table
    assert [row.verb for row in process.store.audits(run.run_id)] == ["replay"]
    assert [replayed.run_id] == [found.run_id for found in process.claim()]


def the_same_request_joins_its_run(stores: StoreFactory) -> None:
    """A doubled click gives one run, one audit entry and one set of copies."""
    process, other = Process(stores, "p1"), Process(stores, "p2")
    run = _ended(process)
    first = _replay(process.store, run, "request-1")
    before = rows(process.store)

    again = _replay(other.store, run, "request-1")

    assert again == Accepted(is_duplicate=True, is_clash=False, runs=first.runs)
    assert before == rows(process.store)


def another_request_is_another_run(stores: StoreFactory) -> None:
    """Replaying twice on purpose gives two runs beside the original."""
    process = Process(stores)
    run = _ended(process)

    replies = [_replay(process.store, run, f"request-{number}") for number in (1, 2)]

    assert len({reply.runs["fulfil"] for reply in replies}) == 2
    assert len(process.store.runs(RunFilter(source="stripe", event_id="evt_1"))) == 3


def a_request_id_is_compared_within_its_event_and_workflow(stores: StoreFactory) -> None:
    """The same text for another event is another replay."""
    process = Process(stores)
    one, two = _ended(process, "evt_1"), _ended(process, "evt_2")

    replies = [_replay(process.store, run, "request-1") for run in (one, two)]

    assert [reply.is_duplicate for reply in replies] == [False, False]


def the_same_request_at_once_makes_one_run(stores: StoreFactory) -> None:
    """Several operators' machines send one request at the same instant: all get the one run."""
    processes = [Process(stores, f"p{number}") for number in range(REPLAYERS)]
    run = _ended(processes[0])

    replies = together(
        *(lambda process=process: _replay(process.store, run, "request-1") for process in processes)
    )

    assert len({reply.runs["fulfil"] for reply in replies}) == 1
    assert sum(not reply.is_duplicate for reply in replies) == 1
    (replayed,) = [found for found in processes[0].store.runs(RunFilter()) if found.replay_of]
    assert len(processes[0].store.steps(replayed.run_id)) == 1
    assert len(processes[0].store.audits(run.run_id)) == 1
    assert queue_of(processes[0].store, replayed.run_id) is not None


def an_unknown_event_cannot_be_replayed(stores: StoreFactory) -> None:
    """A run whose event does not exist could never be claimed; it is not made."""
    process = Process(stores)
    wish = Accept(event("no such event"), [new_run(replay_id="request-1", replay_of="run_x")])

    raised(errors.NotFound, lambda: process.store.replay(wish, [], audit("run_x", "replay")))

    assert process.store.runs(RunFilter()) == []
    assert process.store.audits("run_x") == []
