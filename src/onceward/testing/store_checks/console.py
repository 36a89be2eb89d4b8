"""What a console asks: looks that stop after so many rows, counts with a cap, the audit of all."""

from __future__ import annotations

from onceward.core.looks import EventLook, RunLook
from onceward.core.model import Millis
from onceward.core.ports import Accept, Store
from onceward.core.states import RunState
from onceward.testing.store_scene import (
    START,
    Process,
    StoreFactory,
    accept,
    audit,
    delivery,
    event,
    move,
    new_run,
    raised,
    steer,
    step,
)


def _ids(store: Store, **where: object) -> tuple[list[str], str | None]:
    found = store.look_for_runs(RunLook(**where))  # type: ignore[arg-type]
    return [listed.run.event_id for listed in store.listed(found.run_ids)], found.edge


def a_look_for_runs_stops_after_so_many_rows_and_says_where(stores: StoreFactory) -> None:
    """What it did not look at is found from there on; without more to look at there is no edge."""
    process = Process(stores)
    runs = [process.queue(f"evt_{number}", "invoice" if number == 0 else "fulfil") for number in range(5)]

    found, edge = _ids(process.store, workflow="invoice", look=3)
    assert (found, edge) == ([], runs[2].run_id)
    assert _ids(process.store, workflow="invoice", look=3, before=edge) == (["evt_0"], None)
    assert _ids(process.store, workflow="invoice", look=6) == (["evt_0"], None)
    assert _ids(process.store, workflow="fulfil", look=6, limit=2)[0] == ["evt_4", "evt_3"]


def a_look_for_runs_takes_every_filter(stores: StoreFactory) -> None:
    """Alone and together; those of the event and of the failure as well."""
    process = Process(stores)
    stores.now = START + 5
    process.accept(accept("evt_1", at=START, type="sent", subject="order-1"))
    process.accept(accept("evt_2", "invoice", at=START + 5, source="github"))
    failed = process.move(
        process.start("evt_3"), RunState.FAILED, error='{"type":"TimeoutError","message":""}'
    )
    held = process.move(process.start("evt_4"), RunState.HELD, reason="poison: it was lost")
    process.call(process.start("evt_5"))

    def found(**where: object) -> list[str]:
        return _ids(process.store, **where)[0]

    assert found(type="sent") == ["evt_1"]
    assert found(subject="order-1", workflow="fulfil") == ["evt_1"]
    assert found(subject="order-1", workflow="invoice") == []
    assert found(source="github") == ["evt_2"]
    assert found(workflows=["invoice", "nothing"], source="github") == ["evt_2"]
    assert found(workflows=["fulfil"], source="github") == found(workflows=[]) == []
    assert found(created_since=START + 5, created_until=START + 6, source="github") == ["evt_2"]
    assert found(created_until=START + 5) == ["evt_1"]
    assert found(source="stripe", event_id="evt_3") == ["evt_3"]
    assert found(problems=True) == ["evt_4", "evt_3"]
    assert found(problems=True, error="timeout") == ["evt_3"]
    assert found(error="poison") == ["evt_4"]
    assert found(error="poison", state=RunState.FAILED) == []
    parent = process.store.look_for_runs(RunLook(workflow="fulfil", limit=1)).run_ids[0]
    assert len(found(parent=parent)) == 1
    assert found(source="stripe", event_id="evt_3", problems=True, error="timeout") == ["evt_3"]
    assert found(source="stripe", event_id="evt_5", problems=True) == []
    assert found(parent=parent, source="stripe") == []
    process.accept(
        Accept(event("evt_6"), [new_run(key="order-7")]), Accept(event("evt_7"), [new_run(key="order-8")])
    )
    assert found(key="order-7") == ["evt_6"]
    assert found(key="order-7", problems=True) == found(key="order-7", workflow="invoice") == []
    dismissal = move(failed, RunState.FAILED, now=stores.now, dismissed_at=stores.now, error=failed.error)
    assert process.store.steer(steer(failed, "dismiss", dismissal))
    assert found(problems=True) == ["evt_4"]
    assert found(error="timeout") == ["evt_3"]
    assert held.run_id > failed.run_id


def a_listed_run_has_its_event_and_its_place_in_the_queue_beside_it(stores: StoreFactory) -> None:
    """Also a run that is in no queue any more."""
    process = Process(stores)
    queued = process.queue("evt_1", type="sent", subject="order-1")
    begun = process.start("evt_2")
    done = process.move(process.start("evt_3"), RunState.COMPLETED)

    newest, middle, oldest = process.store.listed([queued.run_id, done.run_id, begun.run_id])

    assert (oldest.run.run_id, oldest.event_type, oldest.subject) == (queued.run_id, "sent", "order-1")
    assert (oldest.due_at, oldest.process_id) == (START, None)
    assert middle.process_id == process.process_id
    assert (newest.run.state, newest.due_at, newest.process_id) == (RunState.COMPLETED, None, None)
    assert process.store.listed([]) == []


def a_look_for_events_takes_every_filter_and_stops(stores: StoreFactory) -> None:
    """Payloads stay where they are; events that started nothing are found as such."""
    process = Process(stores)
    process.accept(
        Accept(event("a", at=START + 1, type="paid", subject="x"), []),
        accept("b", at=START + 2, type="paid", subject=None),
        Accept(event("c", at=START + 2, type="sent", subject="x", source="github"), []),
    )

    def found(**where: object) -> list[str]:
        return [row.id for row in process.store.look_for_events(EventLook(**where)).events]  # type: ignore[arg-type]

    assert found() == ["b", "c", "a"]
    assert found(id="a") == ["a"]
    assert found(since=START + 2) == ["b", "c"]
    assert found(type="paid", subject="x") == ["a"]
    assert found(without_runs=True) == ["c", "a"]
    assert found(without_runs=True, source="stripe") == ["a"]
    first = process.store.look_for_events(EventLook(id="a", look=2))
    assert (first.events, first.edge) == ([], (START + 2, "github", "c"))
    (row,) = process.store.look_for_events(EventLook(id="a", look=2, before=first.edge)).events
    assert (row.id, row.payload) == ("a", None)


def filters_that_want_to_be_sql_find_what_they_say(stores: StoreFactory) -> None:
    """What is asked for is bound: a text is compared as it is, whatever stands in it (B077)."""
    process = Process(stores)
    process.accept(accept("evt_1", subject="order-1"))
    hostile = "order-1' or '1'='1' --"
    process.accept(accept(hostile, subject=hostile, type=hostile))

    def runs(**where: object) -> list[str]:
        return _ids(process.store, **where)[0]

    for field in ("workflow", "source", "event_id", "key", "parent", "error"):
        assert runs(**{field: hostile}) == ([hostile] if field == "event_id" else []), field
    assert runs(type=hostile) == runs(subject=hostile) == [hostile]
    for field in ("id", "type", "subject"):
        found = process.store.look_for_events(EventLook(**{field: hostile})).events  # type: ignore[arg-type]
        assert [row.id for row in found] == [hostile], field
    assert process.store.look_for_events(EventLook(source=hostile)).events == []


def what_is_about_one_subject_is_found_beside_any_number_of_others(stores: StoreFactory) -> None:
    """Events and their runs, however little is looked at; where a subject is frequent a look stops."""
    process = Process(stores)
    for number in range(3):
        process.accept(accept(f"evt_{number}", "fulfil", "invoice", subject="order-1", at=START + number))
    for number in range(3, 9):
        process.accept(accept(f"evt_{number}", subject="order-2", at=START + number))

    events = process.store.look_for_events(EventLook(subject="order-1", look=4))
    assert ([row.id for row in events.events], events.edge) == (["evt_2", "evt_1", "evt_0"], None)
    assert _ids(process.store, subject="order-1", look=7)[0] == [
        "evt_2",
        "evt_2",
        "evt_1",
        "evt_1",
        "evt_0",
        "evt_0",
    ]
    assert _ids(process.store, subject="order-1", workflow="invoice", look=7)[0] == [
        "evt_2",
        "evt_1",
        "evt_0",
    ]
    assert _ids(process.store, subject="order-1", type="sent", look=7)[0] == []
    found, edge = _ids(process.store, subject="order-2", look=4)
    assert (found, edge is not None) == (["evt_8", "evt_7", "evt_6", "evt_5"], True)


def live_states_and_open_problems_are_counted_up_to_a_cap(stores: StoreFactory) -> None:
    """What is capped is named, and the longest wait of what is due is told."""
    process = Process(stores)
    for number in range(3):
        process.queue(f"evt_{number}")
    process.move(process.start("evt_3"), RunState.SLEEPING, due_at=START + 1_000)
    process.move(process.start("evt_4"), RunState.COMPLETED)
    failed = process.move(process.start("evt_5"), RunState.FAILED)
    process.move(process.start("evt_6"), RunState.HELD)
    process.start("evt_7")

    tally = process.store.tally(START + 1, 10)
    assert tally.states == {"failed": 1, "held": 1, "queued": 3, "running": 1, "sleeping": 1}
    assert (tally.capped, tally.oldest_due, tally.unparsed) == ([], START, 0)
    capped = process.store.tally(START + 1, 2)
    assert (capped.states["queued"], capped.capped) == (2, ["queued"])
    assert process.store.tally(START - 1, 10).oldest_due is None
    assert process.store.owned_counts() == {process.process_id: 1}
    assert process.store.late_runs(START, 10) == {"fulfil": 3}
    assert (process.store.late_runs(START, 2), process.store.late_runs(START - 1, 10)) == ({"fulfil": 2}, {})

    dismissal = move(failed, RunState.FAILED, now=stores.now, dismissed_at=stores.now)
    assert process.store.steer(steer(failed, "dismiss", dismissal))
    assert "failed" not in process.store.tally(START + 1, 10).states


def recent_runs_and_events_are_given_newest_first(stores: StoreFactory) -> None:
    """No further back than was asked, and no more of them."""
    process = Process(stores)
    first = process.queue("evt_1")
    stores.now = START + 10
    second = process.move(process.start("evt_2"), RunState.COMPLETED)

    def recent(since: str, limit: int) -> list[tuple[RunState, Millis]]:
        return [(run.state, run.created_at) for run in process.store.recent_runs(since, limit)]

    done, queued = (RunState.COMPLETED, START + 10), (RunState.QUEUED, START)
    assert recent("", 10) == [done, queued]
    assert recent("", 1) == recent(second.run_id, 10) == [done]
    assert recent(first.run_id, 10) == [done, queued]
    assert process.store.recent_events(START + 1, 10) == [START + 10]
    assert process.store.recent_events(0, 10) == [START + 10, START]
    assert process.store.recent_events(0, 1) == [START + 10]


def what_operators_did_is_listed_newest_first(stores: StoreFactory) -> None:
    """Of all runs and of none, page by page; each request has one entry."""
    process = Process(stores)
    entries = [audit("", "redeliver", at=START + number // 2) for number in range(4)]
    for entry in entries:
        assert process.store.add_audit(entry)

    first = process.store.all_audits(None, 3)
    assert [row.audit_id for row in first] == [row.audit_id for row in entries[:0:-1]]
    assert process.store.all_audits((first[-1].at, first[-1].audit_id), 3) == entries[:1]

    assert process.store.add_audit(audit("", "bulk retry", request_id="click", detail="first"))
    assert not process.store.add_audit(audit("", "bulk retry", request_id="click", detail="second"))
    found = process.store.audit_of_request("click")
    assert found is not None
    assert (found.verb, found.detail) == ("bulk retry", "first")
    assert process.store.audit_of_request("clack") is None


def runs_of_a_live_state_or_a_failed_one_are_found_beside_however_many_others(stores: StoreFactory) -> None:
    """Those that ended are not looked at for them, and those that failed not for the live ones."""
    process = Process(stores)
    process.queue("evt_1", type="sent")
    process.move(process.start("evt_2"), RunState.SLEEPING, due_at=START + 1_000)
    process.move(process.start("evt_3"), RunState.FAILED)
    process.move(process.start("evt_4"), RunState.HELD)
    for number in range(5, 10):
        process.move(process.start(f"evt_{number}"), RunState.COMPLETED)

    def found(look: int = 3, **where: object) -> tuple[list[str], bool]:
        run_ids, edge = _ids(process.store, look=look, **where)
        return run_ids, edge is not None

    assert found(state=RunState.QUEUED) == (["evt_1"], False)
    assert found(state=RunState.QUEUED, type="sent") == (["evt_1"], False)
    assert found(state=RunState.QUEUED, workflow="invoice") == ([], False)
    assert found(state=RunState.SLEEPING) == (["evt_2"], False)
    assert found(state=RunState.QUEUED, look=1) == ([], True)
    assert found(state=RunState.FAILED) == (["evt_3"], False)
    assert found(state=RunState.HELD) == (["evt_4"], False)
    assert found(state=RunState.COMPLETED)[0] == ["evt_9", "evt_8", "evt_7"]


def a_look_for_deliveries_stops_after_so_many_and_loses_none(stores: StoreFactory) -> None:
    """A delivery of which only some parts were looked at is found by the next look, whole."""
    process = Process(stores)
    facts = [event(f"evt_{number}", source="github" if number < 4 else "stripe") for number in range(7)]
    together = [delivery(facts[0])]
    together += [
        delivery(facts[number], delivery_id=together[0].delivery_id, part=number) for number in (1, 2)
    ]
    for fact, its in zip(facts[:3], together, strict=True):
        process.accept(Accept(fact, [], [its]))
    for fact in facts[3:]:
        process.accept(Accept(fact, [], [delivery(fact, body=b"body")]))

    def found(before: str | None, look: int) -> tuple[list[str], str | None]:
        met = process.store.look_for_deliveries("github", None, before, limit=10, look=look)
        assert all(row.body is None for row in met.deliveries)
        return [row.event_id for row in met.deliveries], met.edge

    assert found(None, 20) == (["evt_3", "evt_0", "evt_1", "evt_2"], None)
    first, edge = found(None, 5)  # cuts the three parts
    assert first == ["evt_3"]
    assert found(edge, 5)[0] == ["evt_0", "evt_1", "evt_2"]
    assert found(edge, 2)[0] == ["evt_1", "evt_2"]  # one delivery of more parts than are looked at
    none = process.store.look_for_deliveries(None, "clash", None, limit=10, look=20)
    assert (none.deliveries, none.edge) == ([], None)
    recent = process.store.recent_deliveries(4)
    assert sorted(row.source for row in recent) == ["github", "stripe", "stripe", "stripe"]


def an_excerpt_has_the_rows_of_its_runs_and_no_others(stores: StoreFactory) -> None:
    """Each once, also an event of two of them; those of processes whole."""
    process = Process(stores)
    first, second = process.accept(accept("evt_1", "fulfil", "invoice"))[0].runs.values()
    other = process.start("evt_2")
    process.save(other, step("charge"))

    found = process.store.excerpt(
        ("event", "run", "queue", "step", "holder", "delivery", "process"), [first, second]
    )
    assert [row["id"] for row in found["event"]] == ["evt_1"]
    assert {row["run_id"] for row in found["run"]} == {first, second}
    assert {row["run_id"] for row in found["queue"]} == {first, second}
    assert (found["step"], found["holder"], found["delivery"]) == ([], [], [])
    assert [row["process_id"] for row in found["process"]] == [process.process_id]
    assert [row["name"] for row in process.store.excerpt(["step"], [other.run_id])["step"]] == ["charge"]
    assert raised(ValueError, lambda: process.store.excerpt(["nothing"], []))

    assert process.store.live(10) == [other.run_id, first, second]
    assert process.store.live(1) == [other.run_id, first]
