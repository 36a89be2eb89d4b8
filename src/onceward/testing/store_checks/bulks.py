"""How far bulk actions have come: told by one at a time, taken over from who is silent, kept for a while."""

from __future__ import annotations

from typing import Any

from onceward.core.bulks import KEPT_MS, SILENT_MS, BulkRow
from onceward.testing.store_scene import START, StoreFactory


def _bulk(teller: str = "one", **changes: Any) -> BulkRow:
    values: dict[str, Any] = {
        "bulk_id": "mend",
        "begun_at": START,
        "told_at": START,
        "is_over": False,
        "actor": "ann",
        "asked": "hash-1",
        "reply": "{}",
    }
    return BulkRow(teller=teller, **{**values, **changes})


def a_bulk_action_is_taken_by_one_at_a_time(stores: StoreFactory) -> None:
    """Another takes it when the first is silent or over, and then the first cannot tell any more."""
    store = stores.open()
    assert store.bulk("mend") is None
    assert store.take_bulk(_bulk())
    assert store.take_bulk(_bulk())  # the same call, whose reply was lost
    assert not store.take_bulk(_bulk("two", told_at=START + SILENT_MS))
    assert store.bulk("mend") == _bulk()

    told = _bulk(told_at=START + 5, reply='{"done":1}')
    assert store.tell_bulk(told)
    assert store.bulk("mend") == told
    assert not store.take_bulk(_bulk("two", told_at=START + SILENT_MS + 5))
    assert store.take_bulk(_bulk("two", told_at=START + SILENT_MS + 6))
    assert not store.tell_bulk(told)
    over = _bulk("two", told_at=START + SILENT_MS + 7, is_over=True)
    assert store.tell_bulk(over)
    assert store.bulk("mend") == over
    assert store.take_bulk(_bulk("three", told_at=START + SILENT_MS + 8))
    assert stores.open("other").bulk("mend") is None


def the_runs_of_a_bulk_action_are_chosen_by_whoever_is_at_it(stores: StoreFactory) -> None:
    """Who takes it over finds what the first chose; and the first cannot choose any more."""
    store = stores.open()
    assert store.bulk_runs("mend") is None
    assert store.take_bulk(_bulk())
    assert store.bulk_runs("mend") is None
    assert not store.choose_bulk("mend", "two", "[]")
    assert store.choose_bulk("mend", "one", '["run_1"]')
    assert store.choose_bulk("mend", "one", '["run_1"]')  # the reply was lost
    assert not store.choose_bulk("mend", "one", '["run_2"]')

    assert store.take_bulk(_bulk("two", told_at=START + SILENT_MS + 1))
    assert store.bulk_runs("mend") == '["run_1"]'
    assert not store.choose_bulk("mend", "one", "[]")
    assert stores.open("other").bulk_runs("mend") is None


def what_was_told_long_ago_goes_when_another_begins(stores: StoreFactory) -> None:
    """So that there are never more of them than people began in a month."""
    store = stores.open()
    assert store.take_bulk(_bulk())
    assert store.take_bulk(_bulk(bulk_id="later", told_at=START + 1))

    assert store.take_bulk(_bulk(bulk_id="last", told_at=START + KEPT_MS + 1))

    assert store.bulk("mend") is None
    assert store.bulk("later") is not None
