"""One run per event and workflow, whoever delivers it, however often, at whatever instant."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from onceward.core import errors
from onceward.core.model import DELIVERIES_KEPT_MAX, EventRow
from onceward.core.ports import Accept, Accepted, RunFilter
from onceward.core.states import RunState
from onceward.testing.store_scene import (
    START,
    Process,
    StoreFactory,
    accept,
    audit,
    delivery,
    event,
    new_run,
    queue_of,
    rows,
    step,
    together,
)

RACERS = 8
RACED_IDS = 50
RACED_BATCH = 10


def accepts_doubled_in_one_batch_make_one_run(stores: StoreFactory) -> None:
    """Two accepts of one event in one batch: the first makes the run, the second gets it."""
    process = Process(stores)
    first, second, other = accept("evt_1"), accept("evt_1"), accept("evt_2")

    one, two, three = process.accept(first, second, other)

    assert [one.is_duplicate, two.is_duplicate, three.is_duplicate] == [False, True, False]
    assert one.runs == two.runs == {"fulfil": first.runs[0].run_id}
    assert len(process.store.runs(RunFilter())) == 2


def a_redelivery_in_a_later_batch_gets_the_first_run(stores: StoreFactory) -> None:
    """A later accept changes nothing and is told the first one's run."""
    process = Process(stores)
    first = process.accept(accept("evt_1", payload='{"n": 1}'))[0]

    again = process.accept(accept("evt_1", payload='{"n": 2}'))[0]

    assert again == Accepted(is_duplicate=True, is_clash=False, runs=first.runs)
    found = process.store.event("stripe", "evt_1")
    assert found is not None
    assert found.payload == '{"n": 1}'


def a_redelivery_to_another_process_gets_the_first_run(stores: StoreFactory) -> None:
    """Which process is asked makes no difference."""
    here, there = Process(stores, "p1"), Process(stores, "p2")
    first = here.accept(accept("evt_1"))[0]

    again = there.accept(accept("evt_1"))[0]

    assert again.is_duplicate
    assert first.runs == again.runs


def processes_that_race_for_the_same_events_make_one_run_of_each(stores: StoreFactory) -> None:
    """Eight processes deliver fifty events at once, each in another order: one run of each, one reply to all."""
    processes = [Process(stores, f"p{number}") for number in range(RACERS)]

    def deliver_all(number: int) -> dict[str, Accepted]:
        start = number * RACED_IDS // RACERS
        ids = [f"evt_{(start + index) % RACED_IDS}" for index in range(RACED_IDS)]
        if number % 2:
            ids.reverse()
        replies: dict[str, Accepted] = {}
        for begin in range(0, RACED_IDS, RACED_BATCH):
            batch = ids[begin : begin + RACED_BATCH]
            facts = [event(event_id) for event_id in batch]
            wanted = [Accept(fact, [new_run()], [delivery(fact)]) for fact in facts]
            replies.update(zip(batch, processes[number].accept(*wanted), strict=True))
        return replies

    everything = together(*(lambda number=number: deliver_all(number) for number in range(RACERS)))

    store = processes[0].store
    runs = store.runs(RunFilter(limit=1_000))
    assert RACED_IDS == len(runs) == len({run.event_id for run in runs})
    for run in runs:
        replies = [replies[run.event_id] for replies in everything]
        assert all(reply.runs == {"fulfil": run.run_id} for reply in replies)
        assert sum(not reply.is_duplicate for reply in replies) == 1
        outcomes = Counter(row.outcome for row in store.deliveries("stripe", run.event_id))
        assert outcomes == {"accepted": 1, "duplicate": RACERS - 1}


def a_large_batch_is_answered_in_its_order(stores: StoreFactory) -> None:
    """A hundred accepts, every third of them doubled, beside a hundred saves, every fourth too late."""
    process = Process(stores)
    runs = [process.start(f"evt_run_{number}") for number in range(100)]
    advances = [process.advance(run, step(), step("ship", seq=2)) for run in runs]
    for advance in advances[::4]:
        advance.fence -= 1
    accepts = [accept(f"evt_{number - number % 3 // 2}") for number in range(100)]

    result = process.apply(accepts=accepts, advances=advances)

    assert result.held == [number % 4 != 0 for number in range(100)]
    assert [len(process.store.steps(run.run_id)) for run in runs] == [
        0 if n % 4 == 0 else 2 for n in range(100)
    ]
    assert [reply.is_duplicate for reply in result.accepted] == [number % 3 == 2 for number in range(100)]
    for number, reply in enumerate(result.accepted):
        first = accepts[number - 1] if number % 3 == 2 else accepts[number]
        assert reply.runs == {"fulfil": first.runs[0].run_id}


def an_event_that_two_runs_emit_is_one_event_and_both_are_saved(stores: StoreFactory) -> None:
    """Steps may emit under an id of their own choice. In one batch that may be refused as a whole."""
    process = Process(stores)
    runs = [process.start(f"evt_{number}") for number in range(2)]
    emits = [accept("order-7", "notify", source="emit/order.paid") for _ in runs]
    advances = [process.advance(run, step(), accepts=[emit]) for run, emit in zip(runs, emits, strict=True)]
    before = rows(process.store)

    try:
        result = process.apply(advances=advances)
    except errors.StoreError:
        assert before == rows(process.store)
        held = [process.apply(advances=[advance]).held for advance in advances]
        assert held == [[True], [True]]
    else:
        assert result.held == [True, True]

    (notified,) = process.store.runs(RunFilter(workflow="notify"))
    assert notified.run_id == emits[0].runs[0].run_id
    assert [len(process.store.steps(run.run_id)) for run in runs] == [1, 1]


def what_is_emitted_and_delivered_in_one_batch_is_one_event(stores: StoreFactory) -> None:
    """A run emits what somebody accepts from outside, in one transaction: one of them is first."""
    process = Process(stores)
    run = process.start("evt_1")
    inside, outside = (accept("order-7", "notify", source="emit/order.paid") for _ in range(2))

    result = process.apply(accepts=[outside], advances=[process.advance(run, step(), accepts=[inside])])

    (notified,) = process.store.runs(RunFilter(workflow="notify"))
    assert result.accepted[0].runs == {"notify": notified.run_id}
    assert result.accepted[0].is_duplicate is (notified.run_id == inside.runs[0].run_id)


def an_event_fans_out_to_one_run_of_each_workflow(stores: StoreFactory) -> None:
    """Several subscribed workflows: a run of each, and a redelivery is told them all."""
    process = Process(stores)

    first = process.accept(accept("evt_1", "fulfil", "invoice", "notify"))[0]
    again = process.accept(accept("evt_1", "fulfil", "invoice", "notify"))[0]

    assert {"fulfil", "invoice", "notify"} == set(first.runs)
    assert len(set(first.runs.values())) == 3
    assert first.runs == again.runs
    assert len(process.store.runs(RunFilter(source="stripe", event_id="evt_1"))) == 3


def a_workflow_that_subscribes_later_gets_no_run_of_an_old_event(stores: StoreFactory) -> None:
    """The first accept decides who runs; a redelivery adds nobody."""
    process = Process(stores)
    first = process.accept(accept("evt_1", "fulfil"))[0]

    again = process.accept(accept("evt_1", "fulfil", "invoice"))[0]

    assert first.runs == again.runs
    assert len(process.store.runs(RunFilter())) == 1


def an_event_that_nobody_subscribed_to_is_kept(stores: StoreFactory) -> None:
    """No run, but the event is there and its redelivery is one."""
    process = Process(stores)
    first = process.accept(Accept(event("evt_1"), []))[0]

    again = process.accept(Accept(event("evt_1"), []))[0]

    assert first == Accepted(is_duplicate=False, is_clash=False, runs={})
    assert again == Accepted(is_duplicate=True, is_clash=False, runs={})
    assert process.store.event("stripe", "evt_1") is not None


def an_id_is_compared_within_its_source_column_by_column(stores: StoreFactory) -> None:
    """Parts that would be equal when joined are different events."""
    process = Process(stores)
    pairs = [("a", "b/c"), ("a/b", "c"), ("a", "b"), ("ab", ""), ("A", "b"), ("a", "b ")]

    replies = process.accept(*(accept(event_id, source=source) for source, event_id in pairs))

    assert not any(reply.is_duplicate for reply in replies)
    assert len(pairs) == len({reply.runs["fulfil"] for reply in replies})


def an_accept_of_all_columns_comes_back_equal(stores: StoreFactory) -> None:
    """Event, delivery and run are read as they were written."""
    process = Process(stores)
    parent = process.start("evt_parent")
    fact = EventRow("github", "evt_1", "push", '{"a":1}', START, "main", START - 5, "hash-1")
    request = delivery(fact, body=bytes(range(256)), secret_index=None)
    run = new_run(
        deadline_at=START + 9,
        parent_run_id=parent.run_id,
        parent_generation=1,
        depth=1,
        input='{"edited": true}',
    )

    process.accept(Accept(fact, [run], [request]))

    assert fact == process.store.event("github", "evt_1")
    (found,) = process.store.deliveries("github", "evt_1")
    assert found.outcome == "accepted"
    for field in ("delivery_id", "received_at", "content_hash", "secret_index", "request", "body"):
        assert getattr(request, field) == getattr(found, field)
    stored = process.read(run.run_id)
    for field in (
        "deadline_at",
        "parent_run_id",
        "parent_generation",
        "depth",
        "input",
        "created_at",
    ):
        assert getattr(run, field) == getattr(stored, field)
    assert (
        stored.state,
        stored.generation,
        stored.attempt,
        stored.fence,
        stored.started_at,
    ) == (RunState.QUEUED, 1, 1, 0, None)


def other_content_under_a_known_id_is_a_clash(stores: StoreFactory) -> None:
    """The first content stays, the clash is told and recorded; the run is the first one's."""
    process = Process(stores)
    first = process.accept(accept("evt_1", content_hash="one", payload="1"))[0]
    other = event("evt_1", content_hash="two", payload="2")

    clash = process.accept(Accept(other, [new_run()], [delivery(other, content_hash="two")]))[0]

    assert clash == Accepted(is_duplicate=True, is_clash=True, runs=first.runs)
    kept = process.store.event("stripe", "evt_1")
    assert kept is not None
    assert (kept.payload, kept.content_hash) == ("1", "one")
    assert [row.outcome for row in process.store.deliveries("stripe", "evt_1")] == ["clash"]


def a_clash_is_seen_within_one_batch(stores: StoreFactory) -> None:
    """Also where both contents arrive together."""
    process = Process(stores)

    replies = process.accept(accept("evt_1", content_hash="one"), accept("evt_1", content_hash="two"))

    assert [reply.is_clash for reply in replies] == [False, True]


def content_without_a_hash_never_clashes(stores: StoreFactory) -> None:
    """Where the id is under the signature nobody compares contents."""
    process = Process(stores)
    process.accept(accept("evt_1", content_hash=None), accept("evt_2", content_hash="one"))

    replies = process.accept(
        accept("evt_1", content_hash="two"),
        accept("evt_2", content_hash=None),
        accept("evt_2", content_hash="one"),
    )

    assert [reply.is_clash for reply in replies] == [False, False, False]


def every_delivery_is_recorded_with_its_outcome(stores: StoreFactory) -> None:
    """Oldest first; only the one that brought the event is accepted, also in a merged accept."""
    process = Process(stores)
    fact = event("evt_1")
    requests = [delivery(fact, received_at=START + offset) for offset in (0, 1, 2)]
    process.accept(Accept(fact, [new_run()], requests[:2]))

    process.accept(Accept(fact, [new_run()], requests[2:]))

    found = process.store.deliveries("stripe", "evt_1")
    assert [row.delivery_id for row in requests] == [row.delivery_id for row in found]
    assert [row.outcome for row in found] == ["accepted", "duplicate", "duplicate"]


def a_delivery_that_is_committed_again_is_kept_once(stores: StoreFactory) -> None:
    """A batch repeated after a lost reply brings the same deliveries: the first record stays."""
    process = Process(stores)
    fact = event("evt_1")
    wanted = Accept(fact, [new_run()], [delivery(fact)])
    first = process.accept(wanted)[0]

    again = process.accept(wanted)[0]

    assert again.is_duplicate
    assert first.runs == again.runs
    assert [row.outcome for row in process.store.deliveries("stripe", "evt_1")] == ["accepted"]


def a_delivery_of_several_events_has_a_part_for_each(stores: StoreFactory) -> None:
    """Parts come back in order, the body once, and each event knows the delivery."""
    process = Process(stores)
    facts = [event(f"evt_{number}") for number in range(3)]
    first = delivery(facts[0], body=b"all of it", sent_at=START - 7)
    parts = [first] + [
        msgspec.structs.replace(first, event_id=fact.id, part=number, body=None)
        for number, fact in enumerate(facts[1:], start=1)
    ]

    process.accept(*(Accept(fact, [], [part]) for fact, part in zip(facts, parts, strict=True)))

    found = process.store.delivery(first.delivery_id)
    assert [(row.part, row.event_id, row.body) for row in found] == [
        (0, "evt_0", b"all of it"),
        (1, "evt_1", None),
        (2, "evt_2", None),
    ]
    assert [row.skew_ms for row in found] == [7, 7, 7]
    assert process.store.deliveries("stripe", "evt_2") == [found[2]]
    assert process.store.delivery("del_none") == []


def a_body_can_be_added_to_a_delivery_and_never_changed(stores: StoreFactory) -> None:
    """A clash brings a body that is not its event's payload."""
    process = Process(stores)
    fact = event("evt_1")
    first, second = delivery(fact), delivery(fact, body=b"there")
    process.accept(Accept(fact, [], [first]), Accept(fact, [], [second]))

    process.store.keep_body(first.delivery_id, bytes(range(256)))
    process.store.keep_body(second.delivery_id, b"other")

    assert [row.body for row in process.store.deliveries("stripe", "evt_1")] == [bytes(range(256)), b"there"]


def deliveries_beyond_the_limit_are_counted(stores: StoreFactory) -> None:
    """However they come, alone or many in a batch: so many are kept, of the rest there is the number."""
    process = Process(stores)
    fact = event("evt_1")

    def deliver(count: int) -> None:
        process.accept(*(Accept(fact, [], [delivery(fact)]) for _ in range(count)))

    deliver(1)
    deliver(DELIVERIES_KEPT_MAX - 2)
    assert process.store.surplus("stripe", "evt_1") == 0
    deliver(4)
    deliver(1)
    process.accept(Accept(event("evt_2"), [], [delivery(event("evt_2"))]))

    found = process.store.deliveries("stripe", "evt_1")
    assert len(found) == DELIVERIES_KEPT_MAX
    assert [row.outcome for row in found] == ["accepted"] + ["duplicate"] * (DELIVERIES_KEPT_MAX - 1)
    assert process.store.surplus("stripe", "evt_1") == 4
    assert process.store.surplus("stripe", "evt_2") == 0
    assert len(process.store.deliveries("stripe", "evt_2")) == 1


def the_same_body_under_another_id_is_found(stores: StoreFactory) -> None:
    """Only among events of the source whose ids are not signed."""
    process = Process(stores)
    loose: dict[str, Any] = {"content_hash": "same", "id_is_signed": False}
    facts = [
        event("evt_1", at=START, **loose),
        event("evt_2", at=START + 1, **loose),
        event("evt_3", content_hash="other", id_is_signed=False),
        event("evt_4", content_hash="same"),
        event("evt_5", source="github", **loose),
    ]

    process.accept(*(Accept(fact, []) for fact in facts))

    assert process.store.same_body("stripe", "same", 10) == ["evt_1", "evt_2"]
    assert process.store.same_body("stripe", "same", 1) == ["evt_1"]
    assert process.store.same_body("stripe", "unknown", 10) == []
    found = [process.store.event(fact.source, fact.id) for fact in facts]
    assert found == facts


def a_run_accepted_where_a_slot_is_free_is_written_claimed(stores: StoreFactory) -> None:
    """Running, with its first fence, owned by the accepting process and out of reach for others."""
    process, other = Process(stores, "p1"), Process(stores, "p2")

    run = process.start("evt_1")

    assert (RunState.RUNNING, 1, stores.now) == (run.state, run.fence, run.started_at)
    assert {run.run_id: False} == process.owned()
    place = queue_of(process.store, run.run_id)
    assert place is not None
    assert place["process_id"] == "p1"
    assert other.claim() == []


def a_redelivery_after_a_replay_gets_the_original_run(stores: StoreFactory) -> None:
    """Replays are runs of the event too, but not the one that deliveries are answered with."""
    process = Process(stores)
    run = process.queue("evt_1")
    wish = new_run(replay_id="request-1", replay_of=run.run_id)
    process.store.replay(Accept(event("evt_1"), [wish]), [], audit(run.run_id, "replay"))

    again = process.accept(accept("evt_1"))[0]

    assert {"fulfil": run.run_id} == again.runs
