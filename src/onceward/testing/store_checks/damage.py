"""Rows that somebody edited by hand concern themselves and nobody else (F27)."""

from __future__ import annotations

from onceward.core import errors
from onceward.core.ports import RunFilter
from onceward.core.states import RunState
from onceward.testing.store_scene import (
    LEASE_MS,
    Process,
    StoreFactory,
    accept,
    queue_of,
    raised,
    step,
)


def _damage(stores: StoreFactory, run_id: str) -> None:
    stores.execute(f"update {{t}}run set is_called = 7 where run_id = '{run_id}'")  # noqa: S608 - our own id


def a_damaged_run_is_reported_by_its_id(stores: StoreFactory) -> None:
    """Reading it says which row and which column; its neighbours are read."""
    process = Process(stores)
    good, bad = process.queue("evt_1"), process.queue("evt_2")
    _damage(stores, bad.run_id)

    error = raised(errors.StoreDamaged, lambda: process.store.run(bad.run_id))

    assert bad.run_id in str(error)
    assert "is_called" in str(error)
    assert good == process.read(good.run_id)


def a_damaged_run_is_listed_as_held(stores: StoreFactory) -> None:
    """A list shows that it is there and what is wrong with it; the others are as ever."""
    process = Process(stores)
    good, bad = process.queue("evt_1"), process.queue("evt_2")
    _damage(stores, bad.run_id)

    found = process.store.runs(RunFilter())

    assert [bad.run_id, good.run_id] == [run.run_id for run in found]
    assert (found[0].state, found[0].workflow, found[0].event_id) == (RunState.HELD, "fulfil", "evt_2")
    assert "damaged" in (found[0].reason or "")
    assert good == found[1]


def a_damaged_run_does_not_stop_its_neighbours_from_being_claimed(stores: StoreFactory) -> None:
    """The claim holds it with its reason and goes on; the batch's other commits are kept."""
    process = Process(stores)
    good, bad, orphan = (process.queue(f"evt_{number}") for number in range(3))
    mine = process.start("evt_mine")
    _damage(stores, bad.run_id)
    stores.execute("delete from {t}event where id = 'evt_2'")

    assert [good.run_id] == [run.run_id for run in process.claim()]
    assert process.save(mine, step())

    assert process.claim() == []
    for run in (bad, orphan):
        assert queue_of(process.store, run.run_id) is None
    held = {run.run_id: run for run in process.store.runs(RunFilter(problems=True))}
    assert {bad.run_id, orphan.run_id} == set(held)
    assert all(run.state is RunState.HELD and "damaged" in (run.reason or "") for run in held.values())


def a_damaged_run_does_not_stop_a_takeover(stores: StoreFactory) -> None:
    """The dead process's other runs are freed, the damaged one is held."""
    dead = Process(stores, "p1")
    good, bad = dead.start("evt_1"), dead.start("evt_2")
    _damage(stores, bad.run_id)
    stores.now += LEASE_MS + 1

    taken = dead.store.take_over(stores.now, crash_limit=4, skip="")

    assert (("p1",), 1, (bad.run_id,)) == (taken.processes, taken.released, taken.held)
    assert [good.run_id] == [run.run_id for run in Process(stores, "p2").claim()]


def text_that_is_not_json_is_given_back_as_it_is(stores: StoreFactory) -> None:
    """The store looks into no JSON, so a broken one breaks nothing here."""
    process = Process(stores)
    process.accept(accept("evt_1", payload="{not json"))

    (run,) = process.claim()

    found = process.store.event("stripe", run.event_id)
    assert found is not None
    assert found.payload == "{not json"
