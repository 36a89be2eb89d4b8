"""What goes of one subject, what stays of it, and what a run that is not over keeps."""

from __future__ import annotations

import json
from typing import Any

from onceward.core import awaiting
from onceward.core.model import DoneWait, EventRow, Offer, RunRow, StepKey, WaitRow
from onceward.core.ports import Accept, Advance
from onceward.core.retention import Kept, SubjectPruned
from onceward.core.states import RunState
from onceward.testing.invariants import check_invariants
from onceward.testing.store_scene import (
    Process,
    StoreFactory,
    attempt_log,
    delivery,
    event,
    move,
    new_run,
    rows,
    steer,
    step,
)

ADA = "cus_ada"
MAIL = "ada@example.com"
KNOWN: dict[str, Any] = {"payload": json.dumps({"mail": MAIL}), "subject": ADA}
TABLES = ("event", "delivery", "run", "step", "attempt", "promise", "notice", "unparsed")


def _prune(process: Process, *, limit: int = 200, is_dry: bool = False) -> SubjectPruned:
    """Prune everything about Ada, page by page; give the sum."""
    counts, kept_events, after = [0, 0, 0, 0], 0, ""
    kept: dict[str, Kept] = {}
    while True:
        found = process.store.prune_subject(ADA, process.stores.now, after=after, limit=limit, is_dry=is_dry)
        page = (found.runs, found.events, found.deliveries, found.copies)
        counts = [one + more for one, more in zip(counts, page, strict=True)]
        kept.update({run.run_id: run for run in found.kept})
        kept_events += found.kept_events
        if found.next is None:
            assert check_invariants(process.store) == []
            runs, events, deliveries, copies = counts
            return SubjectPruned(0, runs, events, deliveries, copies, list(kept.values()), kept_events)
        after = found.next


def _told(process: Process) -> str:
    return json.dumps(rows(process.store, *TABLES), default=str)


def _counts(found: SubjectPruned) -> tuple[int, int, int, int]:
    return found.runs, found.events, found.deliveries, found.copies


def _ended(process: Process, event_id: str = "evt_1", *, says: str = MAIL, **changes: Any) -> RunRow:
    run = process.start(event_id, **{**KNOWN, **changes})
    assert process.save(run, step(output=json.dumps(says)))
    return process.move(run, RunState.COMPLETED, output=json.dumps(says))


def all_about_a_subject_goes_and_its_identity_stays(stores: StoreFactory) -> None:
    """Payload, request, result, outputs, errors; ids, states and times stay, and it still deduplicates."""
    process = Process(stores)
    run = _ended(process)
    fact = event("evt_2", **KNOWN)
    body = delivery(fact, body=MAIL.encode(), request=json.dumps({"from": MAIL}))
    process.apply(accepts=[Accept(fact, [], deliveries=[body])])
    _ended(process, "evt_3", says="of bob", subject="cus_bob", payload='"bob@example.com"')
    stores.now += 1
    dry = _prune(process, is_dry=True)
    assert MAIL in _told(process)

    found = _prune(process)

    assert dry == found
    assert (_counts(found), found.kept, found.kept_events) == ((1, 2, 1, 0), [], 0)
    assert MAIL not in _told(process)
    assert "bob@example.com" in _told(process)
    left = process.read(run.run_id)
    assert (left.state, left.ended_at, left.pruned_at) == (RunState.COMPLETED, run.ended_at, stores.now)
    assert process.store.surplus("stripe", "evt_2") == 1
    again = process.accept(Accept(event("evt_1", **KNOWN), [new_run()]))
    assert (again[0].is_duplicate, again[0].runs) == (True, {"fulfil": run.run_id})
    assert _counts(_prune(process)) == (0, 0, 0, 0)


def errors_of_a_subject_go_once_its_failure_is_dismissed(stores: StoreFactory) -> None:
    """Until then they are needed; afterwards neither run, step nor attempt says anything."""
    process = Process(stores)
    run = process.start("evt_1", **KNOWN)
    told = json.dumps({"type": "Declined", "message": f"no card of {MAIL}"})
    advance = process.advance(run, step(state="failed", error=told))
    log = attempt_log(run, "failed", now=stores.now, error=told)
    advance.move = move(run, RunState.FAILED, now=stores.now, error=told, log=log)
    assert process.apply(advances=[advance]).held == [True]
    run = process.read(run.run_id)

    found = _prune(process)
    assert (_counts(found), found.kept_events) == ((0, 0, 0, 0), 1)
    assert [(one.run_id, one.why) for one in found.kept] == [(run.run_id, "problem")]
    assert process.read(run.run_id).error == told

    gone = move(
        run, RunState.FAILED, now=stores.now, dismissed_at=stores.now, ended_at=run.ended_at, error=told
    )
    assert process.store.steer(steer(run, "dismiss", gone))
    assert _counts(_prune(process)) == (1, 1, 0, 0)
    assert MAIL not in _told(process)
    assert process.read(run.run_id).state is RunState.FAILED


def what_a_live_run_of_a_subject_may_need_stays(stores: StoreFactory) -> None:
    """Its own event and those that came since, for which it may still wait; what was before goes."""
    process = Process(stores)
    _ended(process, "evt_0")
    stores.now += 10
    live = process.start("evt_1", **KNOWN)
    stores.now += 10
    after = _ended(process, "evt_2")
    process.accept(Accept(event("evt_3", at=stores.now, **KNOWN), []))

    found = _prune(process, limit=1)

    assert [(run.run_id, run.state, run.why) for run in found.kept] == [(live.run_id, "running", "live")]
    assert (_counts(found), found.kept_events) == ((2, 1, 0, 0), 3)
    assert process.read(after.run_id).pruned_at is not None
    process.move(live, RunState.COMPLETED)
    assert _counts(_prune(process)) == (1, 3, 0, 0)
    assert MAIL not in _told(process)


def what_came_of_a_subject_goes_with_it(stores: StoreFactory) -> None:
    """Children and emitted events, page by page; an emitted event that names another subject stays."""
    process = Process(stores)
    parent = process.start("evt_1", **KNOWN)
    family = f"run/{parent.run_id}"
    mine: dict[str, Any] = {"source": family, "payload": json.dumps(MAIL), "subject": None, "type": "call"}
    for number in range(4):
        own = event(f'[1,"pack {number}","",1,1]', **mine)
        run = new_run(
            "invoice",
            at=stores.now,
            is_claimed=True,
            parent_run_id=parent.run_id,
            parent_generation=1,
            depth=1,
        )
        record = step(f"pack {number}", seq=number + 1, kind="start", child_run_id=run.run_id)
        assert process.save(parent, record, accepts=[Accept(own, [run])])
        child = process.read(run.run_id)
        if number < 3:
            process.move(child, RunState.COMPLETED, output=json.dumps(MAIL))
    bob = event('[1,"tell","",1]', source=family, payload='"of bob"', subject="cus_bob")
    assert process.save(parent, step("tell", seq=5, kind="emit"), accepts=[Accept(bob, [])])
    process.move(parent, RunState.COMPLETED)

    found = _prune(process, limit=2)
    assert [(run.run_id, run.why) for run in found.kept] == [
        (parent.run_id, "family"),
        (child.run_id, "live"),
    ]
    assert (found.runs, found.events) == (3, 3)

    process.move(child, RunState.COMPLETED)
    assert _counts(_prune(process, limit=2)) == (2, 2, 0, 0)
    assert MAIL not in _told(process)
    assert "of bob" in _told(process)


def a_run_about_something_else_keeps_what_it_waits_for(stores: StoreFactory) -> None:
    """An event of which it was told, until it has taken it; its own copy of that goes when it is over."""
    process = Process(stores)
    other = process.start("evt_1", subject="order-7")
    key = StepKey("packed", "", 1)
    opening = Advance(other.run_id, 1, other.fence, [step("packed", kind="wait", state="open")])
    opening.waits = [WaitRow(other.run_id, 1, *key, 0, "packed", ADA, "own", since_at=0)]
    process.apply(advances=[opening])
    fact = EventRow("emit/packed", "evt_2", "packed", KNOWN["payload"], stores.now, subject=ADA)
    process.accept(Accept(fact, []))
    process.store.offer([Offer(other.run_id, "emit/packed", "evt_2")], stores.now)
    other = process.read(other.run_id)

    found = _prune(process)
    assert [(run.run_id, run.why) for run in found.kept] == [(other.run_id, "waits")]
    assert (found.events, found.kept_events) == (0, 1)

    taken = step("packed", kind="wait", output=awaiting.taken_text(None, fact))
    advance = process.advance(other, taken)
    advance.done_waits = [DoneWait(key, "emit/packed", "evt_2")]
    assert process.apply(advances=[advance]).held == [True]
    found = _prune(process)
    assert [(run.run_id, run.why) for run in found.kept] == [(other.run_id, "taken")]

    process.move(other, RunState.COMPLETED)
    before = process.read(other.run_id)
    assert _counts(_prune(process, is_dry=True)) == (0, 0, 0, 1)
    assert _counts(_prune(process, limit=1)) == (0, 0, 0, 1)
    assert MAIL not in _told(process)
    (record,) = process.store.steps(other.run_id)
    assert awaiting.taken_of(record.output or "")[1].payload is None
    after = process.read(other.run_id)
    assert (after.pruned_at, after.output, after.fence > before.fence) == (None, before.output, True)
