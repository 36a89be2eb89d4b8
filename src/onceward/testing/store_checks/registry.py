"""Claims about registrations of workflows: a commit that was decided by fewer than there are is refused."""

from __future__ import annotations

from onceward.core import errors
from onceward.core.model import ProcessRow, WorkflowRow
from onceward.core.ports import Accept, Batch, BatchResult
from onceward.testing.store_scene import Process, StoreFactory, accept, new_id, raised, step


def _apply(process: Process, registrations: int | None, *accepts: Accept) -> BatchResult:
    return process.store.apply(
        process.process_id, process.epoch, Batch(new_id("batch_"), list(accepts), registrations=registrations)
    )


def each_registration_and_each_forgetting_counts(stores: StoreFactory) -> None:
    """Those without workflows do not, nor do those behind another wall."""
    process = Process(stores, "p1")
    store, first = process.store, process.store.registrations()
    wall = stores.open(namespace="other")
    wall.join(ProcessRow("p1", 1, None, "h", 1, "1", 0, 5), [WorkflowRow("a", "[]", 1)])
    store.join(ProcessRow("p2", 1, None, "h", 1, "1", 0, 5), [])
    unchanged, looked = store.registrations(), store.look("p1", []).registrations
    Process(stores, "p3", store=store)
    store.forget_workflow("fulfil")

    assert first == unchanged == looked
    assert first + 2 == store.registrations() == store.look("p1", []).registrations


def a_batch_that_was_decided_before_a_registration_is_refused_whole(stores: StoreFactory) -> None:
    """Nothing of it is written, and the process goes on: the same decided anew is accepted."""
    process = Process(stores, "p1")
    run, known = process.start("evt_0"), process.store.registrations()
    assert not _apply(process, known, accept("evt_1")).accepted[0].is_duplicate
    Process(stores, "p2")

    late = accept("evt_2")
    for _ in range(2):
        raised(errors.RegistryMoved, lambda: _apply(process, known, late))
    assert process.store.event(late.event.source, late.event.id) is None
    assert process.save(run, step())
    accepted = _apply(process, process.store.registrations(), late).accepted[0]

    assert not accepted.is_duplicate
    assert not accepted.is_refused
    # What was decided by no trigger does not ask.
    assert not _apply(process, None, accept("evt_3")).accepted[0].is_duplicate


def an_evicted_process_hears_that_first(stores: StoreFactory) -> None:
    """Whatever was registered meanwhile: it has to register anew before it decides anything."""
    process = Process(stores, "p1", instance="shop-1")
    known = process.store.registrations()
    Process(stores, "p2", instance="shop-1")

    raised(errors.LeaseLost, lambda: _apply(process, known, accept("evt_1")))
