"""The outbox and settled steps: what transactions of the user's leave, as the worker finds it."""

from __future__ import annotations

from onceward.core.model import OutboxRow, StepKey
from onceward.testing.store_scene import Process, StoreFactory, step


def what_waits_in_the_outbox_is_given_oldest_first_and_forgotten_once(stores: StoreFactory) -> None:
    """Of the own namespace, and no more than are asked for."""
    process = Process(stores)
    for namespace, outbox_id in (("default", "b"), ("default", "a"), ("other", "0"), ("default", "c")):
        columns, values = "namespace, outbox_id, at, body", f"'{namespace}', '{outbox_id}', 7, 'text'"
        stores.execute(f"insert into {{t}}outbox ({columns}) values ({values})")  # noqa: S608 - our own words
    store = process.store

    assert [OutboxRow(name, 7, "text") for name in "ab"] == store.outbox(2)
    assert store.look(process.process_id, ["fulfil"]).has_outbox
    store.forget_posted(["a", "c", "gone"])
    assert [row.outbox_id for row in store.outbox(9)] == ["b"]
    store.forget_posted(["b"])
    assert not store.look(process.process_id, ["fulfil"]).has_outbox


def a_settled_step_is_its_record_or_nothing(stores: StoreFactory) -> None:
    """By its whole key, in its generation."""
    process = Process(stores)
    run = process.start("evt_1")
    row = step("charge", seq=1)
    assert process.save(run, row)
    store = process.store

    assert row == store.settled(run.run_id, 1, row.key)
    assert store.settled(run.run_id, 2, row.key) is None
    assert store.settled(run.run_id, 1, StepKey("charge", "", 2)) is None
    assert store.settled("run_x", 1, row.key) is None
