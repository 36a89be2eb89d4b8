"""Waits for events and promises: who is told, what is seen by whom, and what ends once."""

from __future__ import annotations

import msgspec

from onceward.core.model import DoneWait, EventRow, Offer, PromiseRow, RunRow, StepKey, WaitRow
from onceward.core.ports import Accept, Advance, Awaited, Batch, EventPlace
from onceward.core.states import PromiseState, RunState
from onceward.testing.store_scene import (
    Process,
    StoreFactory,
    move,
    restarted,
    steer,
    step,
    together,
)

RACES = 25
KEY = StepKey("packed", "", 1)


def _wait(
    run: RunRow, *, type_: str = "packed", subject: str = "", part: int = 0, key: StepKey = KEY
) -> WaitRow:
    return WaitRow(run.run_id, run.generation, *key, part, type_, subject, "own", since_at=0)


def _open(process: Process, run: RunRow, *waits: WaitRow, fence: int | None = None) -> bool:
    row = step("packed", kind="wait", state="open", at=process.stores.now)
    advance = Advance(run.run_id, run.generation, run.fence if fence is None else fence, [row])
    advance.waits = list(waits)
    (held,) = process.apply(advances=[advance]).held
    return held


def _event(number: int = 1, *, type_: str = "packed", subject: str | None = None, at: int = 0) -> EventRow:
    return EventRow(f"emit/{type_}", f"evt_{number}", type_, "{}", at, subject=subject)


def _waits(process: Process, type_: str = "packed", subject: str = "") -> list[WaitRow]:
    return process.store.waits_for([EventPlace(type_, subject)])


def an_open_wait_is_found_by_its_type_and_subject(stores: StoreFactory) -> None:
    """The row comes back as it was written, at its place and at no other."""
    process = Process(stores)
    run = process.start("evt_1")
    about = _wait(run, subject="o-1")
    about = msgspec.structs.replace(about, until_at=99, condition='["==",1]')
    anything = _wait(run, part=1)

    assert _open(process, run, about, anything)

    assert [about] == _waits(process, subject="o-1")
    assert [anything] == _waits(process)
    assert _waits(process, subject="o-2") == []
    assert _waits(process, "sent", "o-1") == []
    assert process.store.waits_for([]) == []
    assert process.store.waits_of(run.run_id) == [about, anything]
    assert process.store.waits_of("run_other") == []


def a_batch_that_stores_an_event_says_who_waits_for_it(stores: StoreFactory) -> None:
    """Also one that a run emits; a start of a workflow is no event to wait for."""
    process, other = Process(stores, "p1"), Process(stores, "p2")
    run = process.start("evt_a")
    _open(process, run, _wait(run, subject="o-1"))

    def found(*accepts: Accept) -> int:
        return len(other.apply(accepts=list(accepts)).waits)

    assert found(Accept(_event(1, subject="o-1"), [])) == 1
    assert found(Accept(_event(2, subject="o-2"), [])) == 0
    assert found(Accept(_event(3, type_="sent", subject="o-1"), [])) == 0
    start = EventRow("start/packed", "evt_4", "packed", "{}", 0, subject="o-1")
    assert found(Accept(start, [])) == 0
    emitted = EventRow(f"run/{run.run_id}", '[1,"tell","",1]', "packed", "{}", 0, subject="o-1")
    advance = Advance(run.run_id, 1, run.fence, [step("tell", kind="emit", seq=2)], [Accept(emitted, [])])
    assert len(process.apply(advances=[advance]).waits) == 1


def a_wait_and_an_event_that_race_see_each_other(stores: StoreFactory) -> None:
    """Each side looks after its own commit: at least one of the two finds the other."""
    waiter, sender = Process(stores, "p1"), Process(stores, "p2")
    for number in range(RACES):
        run = waiter.start(f"run_{number}")
        subject = f"o-{number}"
        place = EventPlace("packed", subject)

        def wait(run: RunRow = run, subject: str = subject, place: EventPlace = place) -> bool:
            _open(waiter, run, _wait(run, subject=subject))
            return bool(waiter.store.awaited(Awaited(place, 0)))

        def send(number: int = number, subject: str = subject) -> bool:
            accept = Accept(_event(number, subject=subject, at=1), [])
            return bool(sender.apply(accepts=[accept]).waits)

        assert any(together(wait, send)), f"race {number}: neither saw the other"


def a_lost_holder_opens_and_ends_no_wait(stores: StoreFactory) -> None:
    """Waits and promises are guarded by the fence, like records."""
    process = Process(stores)
    run = process.start("evt_1")

    assert not _open(process, run, _wait(run), fence=run.fence + 1)
    assert _waits(process) == []

    assert _open(process, run, _wait(run))
    late = Advance(run.run_id, 1, run.fence + 1, [step("packed", kind="wait")], done_waits=[DoneWait(KEY)])
    late.promises = [PromiseRow("hash", run.run_id, 1, *KEY, stores.now)]
    assert process.apply(advances=[late]).held == [False]
    assert len(_waits(process)) == 1
    assert process.store.promises(["hash"]) == {}


def a_wait_that_is_over_is_found_by_nobody(stores: StoreFactory) -> None:
    """Its rows go with its outcome, and so does the offer that it took; other waits stay."""
    process = Process(stores)
    run = process.start("evt_1")
    other = _wait(run, key=StepKey("other", "", 1))
    _open(process, run, _wait(run), _wait(run, subject="o-1", part=1), other)
    for number in (1, 2):
        process.accept(Accept(_event(number), []))
    process.store.offer([Offer(run.run_id, "emit/packed", f"evt_{n}") for n in (1, 2)], stores.now)

    advance = Advance(run.run_id, 1, run.fence, [step("packed", kind="wait", output=None)])
    advance.done_waits = [DoneWait(KEY, "emit/packed", "evt_1")]
    process.apply(advances=[advance])

    assert [other] == _waits(process)
    assert _waits(process, subject="o-1") == []
    assert [event.id for event in process.store.offers([run.run_id])[run.run_id]] == ["evt_2"]


def waits_and_offers_end_with_their_run(stores: StoreFactory) -> None:
    """With its end, and with a restart; not with another move."""
    process = Process(stores)
    for state in (RunState.SLEEPING, RunState.COMPLETED, RunState.FAILED):
        run = process.start(f"evt_{state}")
        _open(process, run, _wait(run, subject=state))
        process.accept(Accept(_event(1, subject=state), []))
        process.store.offer([Offer(run.run_id, "emit/packed", "evt_1")], stores.now)
        due_at = stores.now + 50 if state is RunState.SLEEPING else None
        process.move(run, state, due_at=due_at, has_waits=True)
        kept = int(state is RunState.SLEEPING)
        assert kept == len(_waits(process, subject=state)) == len(process.store.offers([run.run_id]))
    run = process.start("evt_again")
    _open(process, run, _wait(run, subject="again"))
    assert process.store.steer(restarted(process.read(run.run_id), now=stores.now))
    assert _waits(process, subject="again") == []


def an_offer_wakes_its_run_and_twice_is_once(stores: StoreFactory) -> None:
    """Its events come oldest first; a run that sleeps is due, one that is held in memory is woken."""
    process, other = Process(stores, "p1"), Process(stores, "p2")
    away, here = process.start("evt_a"), process.start("evt_b")
    process.move(away, RunState.WAITING, due_at=stores.now + 1_000)
    for number, at in ((1, 30), (2, 20), (3, 10)):
        other.accept(Accept(_event(number, at=at), []))
    offers = [Offer(run.run_id, "emit/packed", f"evt_{n}") for n in (1, 2, 3) for run in (away, here)]

    other.store.offer(offers, stores.now)
    other.store.offer(offers[:2], stores.now)

    told = process.store.offers([away.run_id, here.run_id, "no such run"])
    assert {away.run_id, here.run_id} == set(told)
    assert [event.id for event in told[away.run_id]] == ["evt_3", "evt_2", "evt_1"]
    assert {here.run_id: True} == process.owned()
    assert [away.run_id] == [run.run_id for run in other.claim()]
    other.store.offer([Offer("no such run", "emit/packed", "evt_1")], stores.now)


def stored_events_are_found_from_a_time_on(stores: StoreFactory) -> None:
    """Oldest first, page by page, of one type, about one subject or anything, between two times."""
    process = Process(stores)
    for number in range(6):
        process.accept(Accept(_event(number, subject=f"o-{number % 2}", at=100 + number), []))
    process.accept(Accept(_event(7, type_="sent", subject="o-0", at=103), []))
    process.accept(Accept(_event(8, at=104), []))

    def ids(subject: str, **more: int) -> list[str]:
        where = Awaited(EventPlace("packed", subject), more.get("since", 0), more.get("until"), limit=2)
        found: list[str] = []
        while True:
            page = process.store.awaited(where)
            found += [event.id for event in page]
            if len(page) < 2:
                return found
            last = page[-1]
            where = Awaited(
                where.place, where.since, where.until, (last.received_at, last.source, last.id), limit=2
            )

    assert ids("o-0") == ["evt_0", "evt_2", "evt_4"]
    assert ids("o-0", since=101, until=103) == ["evt_2"]
    assert ids("") == ["evt_0", "evt_1", "evt_2", "evt_3", "evt_4", "evt_8", "evt_5"]
    assert ids("", since=104, until=104) == ["evt_4", "evt_8"]
    assert ids("o-9") == []


def a_promise_is_ended_once_and_wakes_its_run(stores: StoreFactory) -> None:
    """Whoever comes second is told what the first one did."""
    process, other = Process(stores, "p1"), Process(stores, "p2")
    run = process.start("evt_1")
    row = PromiseRow("hash", run.run_id, 1, *KEY, stores.now, expires_at=stores.now + 100)
    process.apply(advances=[Advance(run.run_id, 1, run.fence, [step("ask", kind="promise")], promises=[row])])
    process.move(run, RunState.WAITING, due_at=stores.now + 1_000)
    assert {"hash": row} == process.store.promises(["hash", "none"])

    outcomes = together(
        lambda: process.store.settle("hash", PromiseState.COMPLETED, '"a"', stores.now),
        lambda: other.store.settle("hash", PromiseState.COMPLETED, '"b"', stores.now),
    )

    assert sorted(settled is not None and settled.is_done for settled in outcomes) == [False, True]
    assert len({settled.promise for settled in outcomes if settled is not None}) == 1
    assert [run.run_id] == [one.run_id for one in other.claim()]
    assert other.store.settle("none", PromiseState.COMPLETED, "1", stores.now) is None


def a_promise_ends_with_its_time_its_generation_and_its_run(stores: StoreFactory) -> None:
    """After that it cannot be completed; it can expire whenever its run says so."""
    process = Process(stores)

    def made(name: str, expires_at: int | None = None) -> RunRow:
        run = process.start(name)
        row = PromiseRow(name, run.run_id, 1, *KEY, stores.now, expires_at=expires_at)
        advance = Advance(run.run_id, 1, run.fence, [step("ask", kind="promise")], promises=[row])
        assert process.apply(advances=[advance]).held == [True]
        return run

    made("late", stores.now + 10)
    process.move(made("over"), RunState.COMPLETED)
    again = made("again")
    assert process.store.steer(restarted(process.read(again.run_id), now=stores.now))
    made("open")
    cancelled = process.read(made("cancelled").run_id)
    becomes = move(cancelled, RunState.CANCELLING, now=stores.now, due_at=stores.now)
    assert process.store.steer(steer(cancelled, "cancel", becomes))
    undone = made("undone")
    mark = step("undo everything", kind="undo", state="open", seq=2)
    assert process.apply(advances=[Advance(undone.run_id, 1, undone.fence, [mark])]).held == [True]

    for name in ("late", "over", "again", "cancelled", "undone"):
        settled = process.store.settle(name, PromiseState.COMPLETED, "1", stores.now + 10)
        assert settled is not None
        assert (settled.is_done, settled.promise.state) == (False, PromiseState.OPEN), name
    settled = process.store.settle("late", PromiseState.EXPIRED, None, stores.now + 10)
    assert settled is not None
    assert (settled.is_done, settled.promise.state) == (True, PromiseState.EXPIRED)
    settled = process.store.settle("open", PromiseState.FAILED, '"no"', stores.now)
    assert settled is not None
    assert (settled.is_done, settled.promise.output) == (True, '"no"')


def a_takeover_says_since_when_nobody_was_heard_of(stores: StoreFactory) -> None:
    """Whoever takes over looks for what the dead stored and did not look for waits of."""
    dead, other = Process(stores, "p1"), Process(stores, "p2")
    leased_until = next(row.lease_until for row in other.store.processes() if row.process_id == "p1")
    dead.start("evt_1")
    stores.now = leased_until + 1
    other.heartbeat()

    taken = other.store.take_over(stores.now, crash_limit=4, skip="p2")

    assert (("p1",), leased_until) == (taken.processes, taken.leased_until)


def an_empty_batch_looks_for_nobody(stores: StoreFactory) -> None:
    """What stores no event costs no look."""
    process = Process(stores)
    run = process.start("evt_1")
    _open(process, run, _wait(run))

    result = process.store.apply(process.process_id, 1, Batch("batch-x"))

    assert result.waits == []
    assert move(run, RunState.RUNNING, now=stores.now).has_waits is False
