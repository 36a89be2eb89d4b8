"""What retention takes, in which order, and what it never takes."""

from __future__ import annotations

from typing import Any

from onceward.core import errors
from onceward.core.model import NewRun, RunRow
from onceward.core.ports import Accept, Store
from onceward.core.retention import Keep, Pruned, Rules, What
from onceward.core.states import RunState
from onceward.testing.invariants import check_invariants
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
    restarted,
    rows,
    steer,
    step,
)

DAY = 86_400_000
VALUES = Rules(Keep(values=7 * DAY), alone=7 * DAY)
ROWS = Rules(Keep(completed=30 * DAY, failed=30 * DAY, cancelled=30 * DAY, values=7 * DAY), alone=7 * DAY)


def _completed(process: Process, event_id: str = "evt_1", **changes: Any) -> RunRow:
    run = process.start(event_id, **changes)
    assert process.save(run, step())
    return process.move(run, RunState.COMPLETED)


def _prune(process: Process, rules: Rules, *whats: What, limit: int = 200, is_dry: bool = False) -> Pruned:
    """Prune everything, page by page."""
    looked = values = gone = 0
    for what in whats or tuple(rules.whats):
        after: str | None = ""
        while after is not None:
            found = process.store.prune(
                what, rules, process.stores.now, after=after, limit=limit, is_dry=is_dry
            )
            looked, values, gone = looked + found.looked, values + found.values, gone + found.rows
            after = found.next
    assert check_invariants(process.store) == []
    return Pruned(looked, values, gone)


def _payload(store: Store, event_id: str = "evt_1") -> str | None:
    found = store.event("stripe", event_id)
    assert found is not None, "the identity of an event went"
    return found.payload


def nothing_goes_before_its_time_or_without_rules(stores: StoreFactory) -> None:
    """Not a millisecond, and nothing where nothing is said."""
    process = Process(stores)
    _completed(process)
    before = rows(process.store, "event", "run", "step")
    stores.now += 7 * DAY - 1
    assert _prune(process, VALUES, *What).values == 0
    stores.now += 4000 * DAY
    assert _prune(process, Rules(), *What) == Pruned()
    assert rows(process.store, "event", "run", "step") == before


def values_go_first_and_identity_stays(stores: StoreFactory) -> None:
    """Result, outputs and payload are gone; run, steps and event are told as they were, and redeliveries too."""
    process = Process(stores)
    run = _completed(process)
    stores.now += 8 * DAY

    found = _prune(process, VALUES)

    assert (found.values, found.rows) == (2, 0)
    left = process.read(run.run_id)
    assert (left.state, left.output, left.pruned_at) == (RunState.COMPLETED, None, stores.now)
    assert [(row.name, row.state, row.output) for row in process.store.steps(run.run_id)] == [
        ("charge", "done", None)
    ]
    assert _payload(process.store) is None
    (again,) = process.accept(accept("evt_1"))
    assert (again.is_duplicate, again.runs) == (True, {"fulfil": run.run_id})
    assert _prune(process, VALUES).values == 0


def rows_go_after_their_values_and_the_event_still_deduplicates(stores: StoreFactory) -> None:
    """A redelivery of an event whose run is gone is a duplicate without a run, and starts nothing."""
    process = Process(stores)
    run = _completed(process)
    stores.now += 31 * DAY
    assert _prune(process, ROWS).values == 2
    assert _prune(process, ROWS).rows == 1

    assert process.store.run(run.run_id) is None
    left = rows(process.store, "run", "step", "attempt", "event")
    assert (left["run"], left["step"], left["attempt"], len(left["event"])) == ([], [], [], 1)
    (again,) = process.accept(accept("evt_1"))
    assert (again.is_duplicate, again.runs) == (True, {})
    assert rows(process.store, "run")["run"] == []


def a_dry_prune_counts_and_writes_nothing(stores: StoreFactory) -> None:
    """It says what would go."""
    process = Process(stores)
    _completed(process)
    stores.now += 8 * DAY
    before = rows(process.store, "event", "run", "step")
    assert _prune(process, VALUES, is_dry=True).values == 1
    assert rows(process.store, "event", "run", "step") == before


def pages_are_small_and_lead_to_the_end(stores: StoreFactory) -> None:
    """Whatever their size, the same goes."""
    process = Process(stores)
    for number in range(7):
        _completed(process, f"evt_{number}")
    stores.now += 8 * DAY
    first = process.store.prune(What.RUNS, VALUES, stores.now, limit=3)
    assert (first.looked, first.values, first.next is None) == (3, 3, False)
    assert _prune(process, VALUES, limit=2).values == 4 + 7


def live_runs_and_open_problems_lose_nothing(stores: StoreFactory) -> None:
    """Waiting, held, failed and not dismissed: however old, they keep run, steps and payload."""
    process = Process(stores)
    waiting, held = process.start("evt_1"), process.start("evt_2")
    failed, queued = process.start("evt_3"), process.queue("evt_4", "invoice")
    for run in (waiting, held, failed):
        assert process.save(run, step())
    process.move(waiting, RunState.SLEEPING, due_at=START + 800 * DAY)
    process.move(held, RunState.HELD)
    failed = process.move(failed, RunState.FAILED)
    before = rows(process.store, "event", "run", "step")
    stores.now += 400 * DAY
    assert _prune(process, ROWS, *What).values == 0
    assert rows(process.store, "event", "run", "step") == before
    assert process.read(queued.run_id).state is RunState.QUEUED

    dismissal = move(
        failed, RunState.FAILED, now=stores.now, dismissed_at=stores.now, ended_at=failed.ended_at
    )
    assert process.store.steer(steer(failed, "dismiss", dismissal))
    assert _prune(process, ROWS).values == 1
    assert process.read(failed.run_id).pruned_at == stores.now


def events_since_a_live_run_began_keep_their_payload(stores: StoreFactory) -> None:
    """It may still wait for any of them; when it has ended they go."""
    process = Process(stores)
    old = process.start("evt_0")
    stores.now += DAY
    process.accept(Accept(event("evt_1", at=stores.now), []))
    stores.now += 30 * DAY
    assert _prune(process, VALUES).values == 0
    assert _payload(process.store) is not None
    process.move(old, RunState.COMPLETED)
    assert _prune(process, VALUES).values == 1
    assert (_payload(process.store), _payload(process.store, "evt_0") is None) == (None, False)


def a_live_replay_keeps_the_window_of_its_original(stores: StoreFactory) -> None:
    """The replay began with the old event, so that what came since then stays."""
    process = Process(stores)
    run = _completed(process)
    stores.now += DAY
    process.accept(Accept(event("evt_2", at=stores.now), []))
    stores.now += 3 * DAY
    assert process.store.replay(_replay(run, stores), [], audit("", "replay")).runs
    stores.now += 30 * DAY
    assert _prune(process, VALUES).values == 1  # the original's own
    assert None not in (_payload(process.store), _payload(process.store, "evt_2"))


def _replay(run: RunRow, stores: StoreFactory, **changes: Any) -> Accept:
    new: NewRun = new_run(at=stores.now, replay_id="again", replay_of=run.run_id, **changes)
    return Accept(event("evt_1"), [new])


def a_fan_out_keeps_its_payload_for_the_last_run(stores: StoreFactory) -> None:
    """One run of the event ended, the other did not: the payload is still needed."""
    process = Process(stores)
    (accepted,) = process.accept(accept("evt_1", "fulfil", "invoice", is_claimed=True))
    first, second = (process.read(run_id) for run_id in accepted.runs.values())
    process.move(first, RunState.COMPLETED)
    stores.now += 60 * DAY
    assert _prune(process, ROWS).values == 1
    assert _payload(process.store) is not None
    assert _prune(process, ROWS).rows == 0
    process.move(second, RunState.COMPLETED)
    stores.now += 60 * DAY
    found = _prune(process, ROWS)
    assert found.values == 2
    assert _payload(process.store) is None
    assert found.rows + _prune(process, ROWS).rows == 2


def families_stay_together_while_one_of_them_is_under_way(stores: StoreFactory) -> None:
    """A child's result while its parent may ask for it, a parent while its child is under way."""
    process = Process(stores)
    parent = process.start("evt_1")
    child = process.call(parent)
    process.wait(parent)
    (claimed,) = process.claim(workflows=("invoice",))
    assert claimed.run_id == child.run_id
    process.move(claimed, RunState.COMPLETED, wakes_run_id=parent.run_id)
    stores.now += 60 * DAY
    assert _prune(process, ROWS).values == 0
    assert process.read(child.run_id).output is not None


def workflows_have_rules_of_their_own(stores: StoreFactory) -> None:
    """The workflow's word before the app's, and one of them alone where that is asked."""
    process = Process(stores)
    _completed(process, "evt_1", workflow="fulfil")
    _completed(process, "evt_2", workflow="invoice")
    stores.now += 8 * DAY
    alone = Rules(VALUES.keep, only="notify")
    assert _prune(process, alone).values == 0
    mixed = Rules(Keep(), {"invoice": Keep(values=DAY)})
    assert _prune(process, mixed).values == 2
    assert (_payload(process.store) is None, _payload(process.store, "evt_2") is None) == (False, True)


def a_pruned_run_cannot_come_back(stores: StoreFactory) -> None:
    """Whoever read it before is refused by the fence, and a replay for want of a payload."""
    process = Process(stores)
    run = _completed(process)
    stores.now += 8 * DAY
    _prune(process, VALUES)

    assert process.store.steer(restarted(run, now=stores.now)) is False
    raised(errors.Pruned, lambda: process.store.replay(_replay(run, stores), [], audit("", "replay")))
    assert len(rows(process.store, "run")["run"]) == 1
    given = _replay(run, stores, input='{"order": 8}')
    assert process.store.replay(given, [], audit("", "replay")).runs
    assert check_invariants(process.store) == []


def deliveries_go_and_stay_counted(stores: StoreFactory) -> None:
    """The request is gone, and that it came is known."""
    process = Process(stores)
    fact = event("evt_1")
    process.apply(accepts=[Accept(fact, [], deliveries=[delivery(fact)])])
    process.apply(accepts=[Accept(fact, [], deliveries=[delivery(fact)])])
    assert len(process.store.deliveries("stripe", "evt_1")) == 2
    stores.now += 15 * DAY
    rules = Rules(deliveries=14 * DAY)
    assert _prune(process, rules, limit=1).rows == 2
    assert process.store.deliveries("stripe", "evt_1") == []
    assert process.store.surplus("stripe", "evt_1") == 2


def identity_goes_last_and_only_by_name(stores: StoreFactory) -> None:
    """Not while a run or a delivery of the event is there; afterwards its id is free again."""
    process = Process(stores)
    _completed(process)
    stores.now += 500 * DAY
    rules = Rules(Keep(completed=30 * DAY), identity=400 * DAY)
    assert _prune(process, rules, What.IDENTITY).rows == 0
    assert _prune(process, rules, What.RUNS, What.EVENTS).values == 2
    assert _prune(process, rules, What.RUNS, What.IDENTITY).rows == 2
    assert rows(process.store, "event", "run") == {"event": [], "run": []}
    (again,) = process.accept(accept("evt_1", at=stores.now))
    assert again.is_duplicate is False
