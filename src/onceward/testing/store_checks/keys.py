"""One run of a workflow holds a key: who claims it, who waits, who gets it next."""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any

from onceward.core import errors
from onceward.core.model import KeyClaim, RunRow, Skip
from onceward.core.ports import Accept, Accepted, RunFilter
from onceward.core.rules import WAITS_FOR_KEY
from onceward.core.states import RunState
from onceward.testing.store_scene import (
    NEVER,
    Process,
    StoreFactory,
    audit,
    event,
    move,
    new_run,
    queue_of,
    raised,
    restarted,
    retried,
    rows,
    steer,
    step,
    together,
)

DAY_MS = 86_400_000
RACERS = 6
RACED_KEYS = 4
RACED_EVENTS = 30
RACED_BATCH = 5


def _keyed(
    process: Process,
    name: str,
    *,
    once: str = "active",
    clash: str = "return",
    key: str = "order-7",
    workflow: str = "fulfil",
    **changes: Any,
) -> Accept:
    now = process.stores.now
    options = {"payload_hash": "same", "window_ms": DAY_MS if once == "window" else None, **changes}
    wish = new_run(workflow, at=now, key=key, once=once, clash=clash, **options)
    return Accept(event(name, at=now), [wish])


def _made(process: Process, name: str, **options: Any) -> RunRow:
    """Accept an event that gets a run, and give it."""
    wish = _keyed(process, name, **options)
    (reply,) = process.accept(wish)
    assert reply.runs == {wish.runs[0].workflow: wish.runs[0].run_id}, reply
    return process.read(wish.runs[0].run_id)


def _end(process: Process, run: RunRow, state: RunState = RunState.COMPLETED) -> RunRow:
    """End a run that holds its key, by its holder."""
    run = process.read(run.run_id)
    becomes = move(run, state, now=process.stores.now, started_at=process.stores.now)
    becomes.key = (run.workflow, run.key or "")
    assert process.save(run, becomes=becomes)
    return process.read(run.run_id)


def _cancel(process: Process, run: RunRow) -> RunRow:
    """Cancel a run that has not begun, as an operator does."""
    becomes = move(run, RunState.CANCELLED, now=process.stores.now)
    becomes.key = (run.workflow, run.key or "")
    assert process.store.steer(steer(run, "cancel", becomes))
    return process.read(run.run_id)


def _holder(process: Process, key: str = "order-7") -> str | None:
    return process.store.holder("fulfil", key)


def _is_due(process: Process, run: RunRow) -> bool:
    place = queue_of(process.store, run.run_id)
    return place is not None and place["due_at"] <= process.stores.now


def _joined(process: Process, name: str, holder: RunRow, **options: Any) -> RunRow:
    """Let a run call for another of a key that is held, and give it up until it is woken."""
    parent = process.start(name)
    wish = _keyed(
        process, f"call {name}", parent_run_id=parent.run_id, parent_generation=1, is_called=True, **options
    )
    record = step("pack", kind="call", state="open", child_run_id=wish.runs[0].run_id)
    assert process.save(parent, record, accepts=[wish])
    (kept,) = process.store.skipped("stripe", f"call {name}")
    assert (kept.parent_run_id, kept.holder_run_id) == (parent.run_id, holder.run_id)
    return process.wait(parent)


def the_end_of_a_holder_wakes_whoever_called_for_its_key(stores: StoreFactory) -> None:
    """However it ends, and again when it ends once more; nobody else is woken."""
    process = Process(stores)
    for number, end in enumerate((_end, _cancel)):
        key = f"key-{number}"
        holder = _made(process, f"evt_{number}", key=key)
        other = _made(process, f"other_{number}", key=f"other {key}")
        parents = [_joined(process, f"parent_{number}_{one}", holder, key=key) for one in range(3)]
        stranger = _joined(process, f"stranger_{number}", other, key=f"other {key}")
        detached = _keyed(process, f"loser_{number}", key=key)
        process.accept(detached)
        if end is _end:
            (holder,) = [run for run in process.claim() if run.run_id == holder.run_id]

        end(process, holder)

        assert [_is_due(process, parent) for parent in parents] == [True] * 3
        assert not _is_due(process, stranger)
        claimed = {run.run_id: run for run in process.claim()}
        waiting = [process.wait(claimed[parent.run_id]) for parent in parents]
        claim = KeyClaim("fulfil", key, "active", "same")
        assert process.store.steer(restarted(process.read(holder.run_id), now=stores.now, claim=claim))
        _cancel(process, process.read(holder.run_id))
        assert [_is_due(process, parent) for parent in waiting] == [True] * 3


def a_call_for_a_key_and_the_end_of_its_holder_lose_no_wake_up(stores: StoreFactory) -> None:
    """At one instant: the call gets a run of its own, or its caller is woken, or sees that it ended."""
    sides = [Process(stores, f"p{number}") for number in range(2)]
    for number in range(RACED_EVENTS // 2):
        key = f"key-{number}"
        holder = _made(sides[0], f"evt_{number}", key=key)
        claimed = {run.run_id: run for run in sides[0].claim()}
        holder = claimed[holder.run_id]
        parent = sides[1].start(f"parent_{number}")
        wish = _keyed(
            sides[1],
            f"call {number}",
            key=key,
            parent_run_id=parent.run_id,
            parent_generation=1,
            is_called=True,
        )
        record = step("pack", kind="call", state="open", child_run_id=wish.runs[0].run_id)

        together(
            functools.partial(_end, sides[0], holder),
            functools.partial(sides[1].save, parent, record, accepts=[wish]),
        )

        place = queue_of(sides[1].store, parent.run_id)
        assert place is not None
        is_made = sides[1].store.run(wish.runs[0].run_id) is not None
        assert is_made or place["woken"] == 1, number


def the_loser_of_a_key_points_at_the_holder(stores: StoreFactory) -> None:
    """Return and reject make no run; what is kept of the loser names the holder and whether it asked the same."""
    for once in ("ever", "active", "window"):
        process = Process(stores, f"p-{once}")
        first = _made(process, f"{once}-1", once=once, key=once)
        lost = _keyed(process, f"{once}-2", once=once, key=once)
        other = _keyed(process, f"{once}-3", once=once, key=once, clash="reject", payload_hash="other")

        returned, rejected = process.accept(lost, other)
        again = process.accept(lost)[0]

        assert (returned.runs, returned.answers()) == ({}, {"fulfil": first.run_id})
        assert (rejected.runs, rejected.answers()) == ({}, {})
        (kept,) = process.store.skipped("stripe", f"{once}-2")
        assert kept == returned.skipped["fulfil"] == again.skipped["fulfil"]
        assert (kept.reason, kept.key, kept.holder_run_id) == (Skip.RETURNED, once, first.run_id)
        assert (kept.run_id, kept.is_other_payload) == (lost.runs[0].run_id, False)
        (kept,) = process.store.skipped("stripe", f"{once}-3")
        assert (kept.reason, kept.is_other_payload) == (Skip.REJECTED, True)
        assert first.run_id in kept.why
        assert f'(clash="{kept.reason.value.removesuffix("ed")}")' in kept.why


def keys_workflows_and_namespaces_do_not_meet(stores: StoreFactory) -> None:
    """The scope of a key is namespace and workflow."""
    process, walled = Process(stores), Process(stores, namespace="other")
    _made(process, "evt_1", once="ever")

    _made(process, "evt_2", once="ever", key="order-8")
    _made(process, "evt_3", once="ever", workflow="invoice")
    _made(walled, "evt_4", once="ever")


def an_active_key_is_free_when_its_run_has_ended(stores: StoreFactory) -> None:
    """Completed, failed and cancelled release it; held counts as active."""
    process = Process(stores)
    for number, state in enumerate((RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED)):
        run = _made(process, f"evt_{number}", is_claimed=True)
        assert _holder(process) == run.run_id
        _end(process, run, state)
        assert _holder(process) is None
    held = _made(process, "evt_held", is_claimed=True)
    assert process.save(held, becomes=move(held, RunState.HELD, now=stores.now))

    (reply,) = process.accept(_keyed(process, "evt_last"))

    assert reply.answers() == {"fulfil": held.run_id}


def a_key_for_ever_is_kept_by_all_but_a_cancelled_run(stores: StoreFactory) -> None:
    """Completed and failed keep it; cancelled gives it free."""
    process = Process(stores)
    for state in (RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED):
        run = _made(process, f"evt_{state}", key=state, once="ever", is_claimed=True)
        _end(process, run, state)

    replies = process.accept(
        *(
            _keyed(process, f"again_{s}", key=s, once="ever")
            for s in (RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED)
        )
    )

    assert [bool(reply.runs) for reply in replies] == [False, False, True]


def a_key_for_a_time_is_held_from_the_claim_on(stores: StoreFactory) -> None:
    """However the run ends, until the window is over; cancelled gives it back at once."""
    process = Process(stores)
    run = _made(process, "evt_1", once="window", is_claimed=True)
    _end(process, run)
    stores.now += DAY_MS - 1
    (busy,) = process.accept(_keyed(process, "evt_2", once="window"))
    stores.now += 1

    second = _made(process, "evt_3", once="window", is_claimed=True)
    _end(process, second, RunState.CANCELLED)
    third = _made(process, "evt_4", once="window")

    assert busy.answers() == {"fulfil": run.run_id}
    assert _holder(process) == third.run_id


def who_queues_is_next_in_line_when_the_holder_ends(stores: StoreFactory) -> None:
    """End, release and promotion are one commit, and lines are in order of arrival."""
    process = Process(stores)
    first = _made(process, "evt_1", clash="queue")
    second = _made(process, "evt_2", clash="queue")
    third = _made(process, "evt_3", clash="queue")
    assert (second.state, second.reason) == (RunState.QUEUED, WAITS_FOR_KEY)
    (claimed,) = process.claim()
    assert claimed.run_id == first.run_id

    _end(process, claimed)

    assert _holder(process) == second.run_id
    assert process.read(second.run_id).reason is None
    (claimed,) = process.claim()
    assert claimed.run_id == second.run_id
    assert not _is_due(process, third)
    _end(process, claimed, RunState.FAILED)
    (claimed,) = process.claim()
    assert claimed.run_id == third.run_id
    _end(process, claimed, RunState.CANCELLED)
    assert _holder(process) is None
    assert rows(process.store, "holder", "waiter") == {"holder": [], "waiter": []}


def a_line_within_one_batch_is_in_its_order(stores: StoreFactory) -> None:
    """Accepts of one key beside the end of its holder: one holds it, the others wait, nobody is lost."""
    process = Process(stores)
    first = _made(process, "evt_1", clash="queue", is_claimed=True)
    wishes = [_keyed(process, f"evt_{number}", clash="queue") for number in (2, 3, 4)]
    becomes = move(first, RunState.COMPLETED, now=stores.now)
    becomes.key = ("fulfil", "order-7")

    process.apply(accepts=wishes, advances=[process.advance(first, becomes=becomes)])

    (claimed,) = process.claim()
    assert claimed.run_id == wishes[0].runs[0].run_id == _holder(process)
    assert [row["run_id"] for row in rows(process.store, "waiter")["waiter"]] == [
        wish.runs[0].run_id for wish in wishes[1:]
    ]


def who_leaves_the_line_is_not_promoted(stores: StoreFactory) -> None:
    """A run that is cancelled while it waits gives its place up."""
    process = Process(stores)
    first = _made(process, "evt_1", clash="queue", is_claimed=True)
    second, third = (_made(process, f"evt_{number}", clash="queue") for number in (2, 3))

    _cancel(process, second)
    _end(process, first)

    (claimed,) = process.claim()
    assert claimed.run_id == third.run_id == _holder(process)


def queued_windows_follow_each_other(stores: StoreFactory) -> None:
    """With a window each run has its own, one behind the other; one that is cancelled leaves its."""
    process = Process(stores)
    start = stores.now
    first, second, third = (
        _made(process, f"evt_{number}", once="window", clash="queue") for number in (1, 2, 3)
    )
    due = {row["run_id"]: row["due_at"] for row in process.store.dump("queue")["queue"]}
    assert due == {first.run_id: start, second.run_id: start + DAY_MS, third.run_id: start + 2 * DAY_MS}

    _cancel(process, third)
    fourth = _made(process, "evt_4", once="window", clash="queue")

    place = queue_of(process.store, fourth.run_id)
    assert place is not None
    assert place["due_at"] == start + 2 * DAY_MS


def who_replaces_waits_until_the_holder_has_ended(stores: StoreFactory) -> None:
    """The holder is named to be cancelled by anybody; once it is being cancelled nobody asks again."""
    process, other = Process(stores, "p1"), Process(stores, "p2")
    first = _made(process, "evt_1", clash="replace", is_claimed=True)
    second = _made(process, "evt_2", clash="replace")
    assert not _is_due(process, second)
    assert other.store.look("p2", ["fulfil"]).replaced == (first.run_id,)

    becomes = move(first, RunState.CANCELLING, now=stores.now, due_at=stores.now)
    becomes.key = ("fulfil", "order-7")
    assert other.store.steer(steer(first, "cancel", becomes))
    assert other.store.look("p2", ["fulfil"]).replaced == ()
    assert _holder(process) == first.run_id
    (cleaning,) = process.claim()
    assert cleaning.run_id == first.run_id
    _end(process, cleaning, RunState.CANCELLED)

    (claimed,) = process.claim()
    assert claimed.run_id == second.run_id == _holder(process)


def a_later_replacement_takes_the_place_of_the_one_that_waits(stores: StoreFactory) -> None:
    """It has not begun, so it is cancelled at once, and says by whom."""
    process = Process(stores)
    _made(process, "evt_1", clash="replace", is_claimed=True)
    second, third = (_made(process, f"evt_{number}", clash="replace") for number in (2, 3))

    displaced = process.read(second.run_id)
    assert (displaced.state, displaced.ended_at) == (RunState.CANCELLED, stores.now)
    assert displaced.reason == f"displaced by run {third.run_id}"
    assert displaced.fence == second.fence + 1
    assert queue_of(process.store, second.run_id) is None
    assert [row["run_id"] for row in rows(process.store, "waiter")["waiter"]] == [third.run_id]


def nobody_makes_room_for_a_run_that_has_gone(stores: StoreFactory) -> None:
    """The newer run is cancelled before the holder: that one may go on."""
    process = Process(stores)
    first = _made(process, "evt_1", clash="replace", is_claimed=True)
    second = _made(process, "evt_2", clash="replace")

    _cancel(process, second)

    assert process.store.look("p1", ["fulfil"]).replaced == ()
    assert _holder(process) == first.run_id


def a_replacement_of_a_run_that_has_ended_begins_at_once(stores: StoreFactory) -> None:
    """Within the window of a run that is over there is nothing to cancel."""
    process = Process(stores)
    first = _made(process, "evt_1", once="window", clash="replace", is_claimed=True)
    _end(process, first)

    second = _made(process, "evt_2", once="window", clash="replace")

    assert _is_due(process, second)
    assert _holder(process) == second.run_id
    assert process.store.look("p1", ["fulfil"]).replaced == ()


def a_run_that_runs_again_needs_its_active_key(stores: StoreFactory) -> None:
    """Retry and restart claim it again; while another run holds it they change nothing."""
    process = Process(stores)
    failed = _end(process, _made(process, "evt_1", is_claimed=True), RunState.FAILED)
    second = _made(process, "evt_2", is_claimed=True)
    claim = KeyClaim("fulfil", "order-7", "active", "same")
    before = rows(process.store)

    for action in (retried(failed, now=stores.now), restarted(failed, now=stores.now)):
        action.claim = claim
        error = raised(errors.KeyTaken, functools.partial(process.store.steer, action))
        assert isinstance(error, errors.KeyTaken)
        assert error.holder_run_id == second.run_id
    assert before == rows(process.store)
    _end(process, second)
    assert process.store.steer(retried(failed, now=stores.now, claim=claim))
    assert _holder(process) == failed.run_id


def a_replay_needs_its_active_key(stores: StoreFactory) -> None:
    """While another run holds it there is no replay; then it holds it."""
    process = Process(stores)
    first = _made(process, "evt_1", is_claimed=True)

    def replay() -> Accepted:
        wish = new_run(
            at=stores.now, replay_id="request-1", replay_of=first.run_id, key="order-7", once="active"
        )
        return process.store.replay(Accept(event("evt_1"), [wish]), [], audit(wish.run_id, "replay"))

    raised(errors.KeyTaken, replay)
    assert len(process.store.runs(RunFilter())) == 1
    _end(process, first)
    replayed = replay()

    assert _holder(process) == replayed.runs["fulfil"]
    assert process.read(replayed.runs["fulfil"]).key == "order-7"


def a_run_whose_key_cannot_be_told_is_held(stores: StoreFactory) -> None:
    """Its event is stored, a person decides; answered with a key it holds that."""
    process = Process(stores)
    wish = new_run(hold_reason="no key: KeyError", at=stores.now)
    (reply,) = process.accept(Accept(event("evt_1", at=stores.now), [wish]))
    run = process.read(reply.runs["fulfil"])
    assert (run.state, run.reason, run.problem_at) == (RunState.HELD, "no key: KeyError", stores.now)
    assert queue_of(process.store, run.run_id) is None

    action = retried(run, now=stores.now, claim=KeyClaim("fulfil", "order-7", "ever", "same"))
    assert process.store.steer(action)

    assert process.read(run.run_id).key == "order-7"
    assert _holder(process) == run.run_id


def a_stale_event_claims_no_key(stores: StoreFactory) -> None:
    """What makes no run keeps no other from beginning."""
    process = Process(stores)
    for version in ("2", "1"):
        wish = _keyed(process, f"evt_{version}", key=f"order-{version}", version=version, drops_stale=True)
        process.accept(wish)

    assert _holder(process, "order-2") is not None
    assert _holder(process, "order-1") is None
    assert len(rows(process.store, "holder")["holder"]) == 1


def a_lost_fence_gives_no_key_free(stores: StoreFactory) -> None:
    """What a run may not write, it may not end either; nor does it claim for what it emits."""
    process = Process(stores)
    first = _made(process, "evt_1", is_claimed=True)
    late = process.advance(first, becomes=move(first, RunState.COMPLETED, now=stores.now))
    late.fence -= 1
    late.move.key = ("fulfil", "order-7")  # type: ignore[union-attr]
    emits = process.advance(first, step(), accepts=[_keyed(process, "evt_2", key="order-8")])
    emits.fence -= 1

    assert process.apply(advances=[late]).held == [False]
    assert process.apply(advances=[emits]).held == [False]

    assert _holder(process) == first.run_id
    assert _holder(process, "order-8") is None
    assert len(rows(process.store, "holder")["holder"]) == 1


def an_action_that_comes_too_late_leaves_nothing_at_the_key(stores: StoreFactory) -> None:
    """A cancel that meets a run that has ended is refused, and so is the row by which it locked its key."""
    process = Process(stores)
    run = _made(process, "evt_1", is_claimed=True)
    late = move(run, RunState.CANCELLING, now=stores.now)
    late.key = ("fulfil", "order-7")
    cancel = steer(run, "cancel", late)
    _end(process, run)

    assert not process.store.steer(cancel)

    assert rows(process.store, "holder")["holder"] == []


def a_displaced_call_wakes_its_parent(stores: StoreFactory) -> None:
    """Whoever waits for the end of a run that never begins hears of it."""
    process = Process(stores)
    _made(process, "evt_1", clash="replace", workflow="invoice", is_claimed=True)
    parent = process.start("evt_parent")
    wish = _keyed(
        process,
        "child",
        clash="replace",
        workflow="invoice",
        parent_run_id=parent.run_id,
        parent_generation=1,
        is_called=True,
        depth=1,
    )
    record = step("call", kind="call", state="open", at=stores.now, child_run_id=wish.runs[0].run_id)
    assert process.save(parent, record, accepts=[wish])
    parent = process.wait(parent)
    place = queue_of(process.store, parent.run_id)
    assert place is not None
    assert place["due_at"] == NEVER

    _made(process, "evt_3", clash="replace", workflow="invoice")

    assert _is_due(process, parent)


def processes_that_race_for_one_key_make_one_run(stores: StoreFactory) -> None:
    """Different events of the same orders from every process at once: one holder, the losers point at it."""
    processes = [Process(stores, f"p{number}") for number in range(RACERS)]

    def deliver(number: int) -> list[tuple[str, Accepted]]:
        found: list[tuple[str, Accepted]] = []
        wishes = [
            _keyed(processes[number], f"evt_{number}_{index}", key=f"order-{index % RACED_KEYS}", once="ever")
            for index in range(RACED_EVENTS)
        ]
        if number % 2:
            wishes.reverse()
        for begin in range(0, RACED_EVENTS, RACED_BATCH):
            batch = wishes[begin : begin + RACED_BATCH]
            replies = processes[number].accept(*batch)
            found += [(wish.runs[0].key or "", reply) for wish, reply in zip(batch, replies, strict=True)]
        return found

    everything = together(*(lambda number=number: deliver(number) for number in range(RACERS)))

    runs = processes[0].store.runs(RunFilter(limit=1_000))
    assert sorted(run.key or "" for run in runs) == [f"order-{number}" for number in range(RACED_KEYS)]
    holders = {run.key: run.run_id for run in runs}
    for key, reply in [one for replies in everything for one in replies]:
        assert reply.answers() == {"fulfil": holders[key]}
    assert sum(bool(reply.runs) for replies in everything for _, reply in replies) == RACED_KEYS


def processes_that_race_in_line_run_one_after_the_other(stores: StoreFactory) -> None:
    """Everybody queues, claims and ends at once: every event has its run, never two of a key at a time."""
    processes = [Process(stores, f"p{number}") for number in range(RACERS)]
    total = RACERS * RACED_EVENTS // RACED_BATCH * 2

    def work(number: int) -> list[str]:
        process, ended = processes[number], []
        for index in range(total // RACERS):
            process.accept(
                _keyed(process, f"evt_{number}_{index}", clash="queue", key=f"order-{index % RACED_KEYS}")
            )
            for run in process.claim(2):
                _end(process, run)
                ended.append(run.run_id)
        return ended

    done = Counter(
        run_id for ended in together(*(lambda n=n: work(n) for n in range(RACERS))) for run_id in ended
    )
    while rest := processes[0].claim():
        assert len({run.key for run in rest}) == len(rest)
        for run in rest:
            _end(processes[0], run)
            done[run.run_id] += 1

    assert len(done) == total
    assert set(done.values()) == {1}
    assert rows(processes[0].store, "holder", "waiter", "queue") == {"holder": [], "waiter": [], "queue": []}
