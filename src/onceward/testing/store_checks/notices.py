"""Notices: written with the failure or hold that they tell of, taken by one process at a time."""

from __future__ import annotations

import msgspec

from onceward.core.notices import TAKEN_MS, UNSEEN_MS, NoticeAddressRow, NoticeRow
from onceward.core.ports import Accept, Store
from onceward.core.retention import Rules, What
from onceward.core.states import NoticeState, RunState
from onceward.testing.store_scene import (
    LEASE_MS,
    START,
    Process,
    StoreFactory,
    event,
    move,
    new_run,
    restarted,
    retried,
    steer,
    together,
)

DAY = 86_400_000


def _know(store: Store, *address_ids: str, kinds: str = "failed held", at: int = START) -> None:
    rows = [
        NoticeAddressRow(address_id=one, shown="https://ops.example/…", kinds=kinds, seen_at=at)
        for one in address_ids
    ]
    store.know_addresses(rows, is_start=True)


def _told(store: Store) -> list[tuple[str, str]]:
    return sorted((row.type, row.run_id) for row in store.notices(100))


def _failed(process: Process, event_id: str) -> str:
    run = process.start(event_id)
    process.move(run, RunState.FAILED)
    return run.run_id


def nothing_is_written_where_nobody_wants_a_notice(stores: StoreFactory) -> None:
    """Not of what failed before an address was known, nor for one of another namespace."""
    process = Process(stores)
    _know(stores.open("other"), "aa")
    _failed(process, "evt_1")

    assert process.store.notices(10) == []
    assert stores.open("other").notices(10) == []
    assert process.store.look("p1", ["fulfil"], ["aa"]).notice_due is None


def a_failure_and_a_hold_are_told_to_every_address_that_wants_them(stores: StoreFactory) -> None:
    """With what the run says of itself then; an end that is none of these is not told."""
    process = Process(stores)
    _know(process.store, "aa")
    _know(process.store, "bb", kinds="held")
    failed, held, done = (process.start(name) for name in ("evt_1", "evt_2", "evt_3"))
    stores.now += 5
    process.move(failed, RunState.FAILED)
    process.move(held, RunState.HELD)
    process.move(done, RunState.COMPLETED)
    rows = process.store.notices(10)

    assert sorted((row.address_id, row.type, row.run_id) for row in rows) == [
        ("aa", "run.failed", failed.run_id),
        ("aa", "run.held", held.run_id),
        ("bb", "run.held", held.run_id),
    ]
    (of_failed,) = [row for row in rows if row.run_id == failed.run_id]
    expected = NoticeRow(
        notice_id=of_failed.notice_id,
        address_id="aa",
        type="run.failed",
        at=stores.now,
        state=NoticeState.OWED,
        due_at=stores.now,
        ended_at=None,
        tries=0,
        trouble=None,
        run_id=failed.run_id,
        workflow="fulfil",
        source="stripe",
        event_id="evt_1",
        event_type="paid",
        key=None,
        generation=1,
        attempt=1,
        reason=None,
        error='{"type": "Declined"}',
    )
    assert expected == of_failed
    assert {row.reason for row in rows if row.type == "run.held"} == {"a person must look"}
    assert process.store.look("p1", ["fulfil"], ["aa"]).notice_due == stores.now
    assert process.store.look("p1", ["fulfil"], ["cc"]).notice_due is None


def a_run_that_is_held_before_it_begins_is_told(stores: StoreFactory) -> None:
    """Its key cannot be told, so it is held in the transaction that stores its event."""
    process = Process(stores)
    _know(process.store, "aa")
    wishes = [new_run(hold_reason="no key: KeyError", at=stores.now) for _ in range(2)]
    process.accept(*(Accept(event(f"evt_{number}"), [wish]) for number, wish in enumerate(wishes)))
    process.accept(Accept(event("evt_0"), [new_run(hold_reason="no key: KeyError", at=stores.now)]))

    assert _told(process.store) == sorted(("run.held", wish.run_id) for wish in wishes)


def a_takeover_that_holds_a_run_tells_of_it(stores: StoreFactory) -> None:
    """In its own transaction, though no code of the run's process is left to say anything."""
    process = Process(stores)
    _know(process.store, "aa")
    poison, _ = process.start("evt_1"), process.start("evt_2")
    process.save(poison, becomes=move(poison, RunState.RUNNING, now=stores.now, crashes=4))
    rescuer = Process(stores, "p2")
    stores.now += LEASE_MS + 1
    rescuer.heartbeat()
    rescuer.store.take_over(stores.now, crash_limit=5, skip="p2")

    assert _told(rescuer.store) == [("run.held", poison.run_id)]


def an_operator_who_lets_a_run_fail_tells_of_it_and_one_who_dismisses_it_does_not(
    stores: StoreFactory,
) -> None:
    """A second failure is another notice; what only repeats the first is none."""
    process = Process(stores)
    store = process.store
    _know(store, "aa")
    run = process.move(process.start("evt_1"), RunState.HELD)
    assert store.steer(steer(run, "answer", move(run, RunState.FAILED, now=stores.now)))
    run = process.read(run.run_id)
    told = _told(store)
    gone = move(run, RunState.FAILED, now=stores.now, dismissed_at=stores.now)
    assert store.steer(steer(run, "dismiss", gone))

    assert told == [("run.failed", run.run_id), ("run.held", run.run_id)]
    assert _told(store) == told
    assert store.steer(retried(process.read(run.run_id), now=stores.now))
    (again,) = process.claim()
    process.move(again, RunState.FAILED)
    assert [kind for kind, _ in _told(store)] == ["run.failed", "run.failed", "run.held"]


def who_lost_the_fence_tells_nothing(stores: StoreFactory) -> None:
    """Its failure was not written, so there is nothing to tell."""
    process = Process(stores)
    _know(process.store, "aa")
    run = process.start("evt_1")
    process.move(run, RunState.FAILED)
    first = _told(process.store)
    failed = process.read(run.run_id)
    assert process.store.steer(restarted(failed, now=stores.now))

    assert not process.save(run, becomes=move(run, RunState.FAILED, now=stores.now))
    assert first == _told(process.store)


def one_of_two_processes_takes_a_notice_and_after_a_while_the_other_may(stores: StoreFactory) -> None:
    """Who takes it and dies does not keep it; the tries are counted."""
    process = Process(stores)
    _know(process.store, "aa", "bb")
    for number in range(3):
        _failed(process, f"evt_{number}")
    other, now = stores.open(), stores.now

    mine, theirs = together(
        lambda: process.store.take_notices(["aa"], now, 10), lambda: other.take_notices(["aa"], now, 10)
    )
    assert len(mine) + len(theirs) == 3
    assert {row.notice_id for row in mine}.isdisjoint(row.notice_id for row in theirs)
    assert {(row.tries, row.due_at) for row in (*mine, *theirs)} == {(1, now + TAKEN_MS)}
    assert other.take_notices(["aa"], now + TAKEN_MS - 1, 10) == []
    again = other.take_notices(["aa"], now + TAKEN_MS, 2)
    assert [row.tries for row in again] == [2, 2]
    assert len(other.take_notices(["aa", "bb"], now + TAKEN_MS, 10)) == 4


def what_is_told_is_over_and_what_is_put_off_comes_again(stores: StoreFactory) -> None:
    """Who put it off too late, after others had taken it, changes nothing; who told it does."""
    process = Process(stores)
    store, now = process.store, stores.now
    _know(store, "aa")
    _failed(process, "evt_1")
    (late,) = store.take_notices(["aa"], now, 10)
    (taken,) = store.take_notices(["aa"], now + TAKEN_MS, 10)
    store.put_off_notices([msgspec.structs.replace(late, due_at=now, trouble="late")])
    assert store.notices(1)[0].due_at == taken.due_at

    store.put_off_notices([msgspec.structs.replace(taken, due_at=now + 7, trouble="HTTP 500")])
    (put_off,) = store.notices(1)
    assert (put_off.due_at, put_off.trouble, put_off.state, put_off.tries) == (now + 7, "HTTP 500", "owed", 2)
    store.notice_told(late, now + 9)
    (told,) = store.notices(1)
    assert (told.state, told.due_at, told.ended_at, told.trouble) == ("told", None, now + 9, None)
    store.give_up_notices([taken], now + 10)
    store.put_off_notices([taken])
    assert store.notices(1) == [told]
    assert store.look("p1", ["fulfil"], ["aa"]).notice_due is None


def an_address_that_is_off_gets_nothing_until_a_process_starts_with_it(stores: StoreFactory) -> None:
    """What it was owed is given up; the others go on."""
    process = Process(stores)
    store, now = process.store, stores.now
    _know(store, "aa", "bb")
    _failed(process, "evt_1")
    assert store.turn_off_address("aa", now, "HTTP 410") == 1
    _failed(process, "evt_2")
    states = sorted((row.address_id, row.state) for row in store.notices(10))

    assert states == [("aa", "given_up"), ("bb", "owed"), ("bb", "owed")]
    rows = store.notice_addresses()
    store.know_addresses(rows, is_start=False)
    assert [row.off_at for row in store.notice_addresses()] == [now, None]
    _know(store, "aa")
    _failed(process, "evt_3")
    assert [row.state for row in store.notices(10) if row.address_id == "aa"] == ["owed", "given_up"]


def an_address_that_no_process_has_any_more_gets_nothing(stores: StoreFactory) -> None:
    """After a while; it goes when the next process says what it has, and what is old is given up."""
    process = Process(stores)
    store = process.store
    _know(store, "aa")
    _failed(process, "evt_1")
    stores.now += UNSEEN_MS
    _failed(process, "evt_2")
    _know(store, "bb", at=stores.now + 1)

    assert [row.event_id for row in store.notices(10)] == ["evt_1"]
    assert [row.address_id for row in store.notice_addresses()] == ["bb"]
    assert store.give_up_old_notices(START, stores.now, "too old") == 0
    assert store.give_up_old_notices(START + 1, stores.now, "too old") == 1
    (row,) = store.notices(10)
    assert (row.state, row.trouble, row.due_at) == ("given_up", "too old", None)


def what_is_told_is_pruned_by_its_age_and_what_is_owed_stays(stores: StoreFactory) -> None:
    """A page at a time."""
    process = Process(stores)
    store, now = process.store, stores.now
    _know(store, "aa")
    for number in range(3):
        _failed(process, f"evt_{number}")
    for row in store.take_notices(["aa"], now, 2):
        store.notice_told(row, now)
    rules = Rules(notices=DAY)

    assert store.prune(What.NOTICES, rules, now + DAY).rows == 0
    assert store.prune(What.NOTICES, rules, now + DAY + 1, is_dry=True).rows == 2
    pages = 0
    after: str | None = ""
    while after is not None:
        found = store.prune(What.NOTICES, rules, now + DAY + 1, after=after, limit=1)
        pages, after = pages + found.rows, found.next
    assert pages == 2
    assert [row.state for row in store.notices(10)] == ["owed"]
