"""Of each subject the newest version counts, whoever accepts, in whatever order."""

from __future__ import annotations

from typing import Any

from onceward.core.model import NewRun, Skip
from onceward.core.ports import Accept, Accepted, RunFilter
from onceward.core.rules import version_text
from onceward.testing.store_scene import (
    Process,
    StoreFactory,
    event,
    new_run,
    rows,
    step,
    together,
)

RACERS = 6
RACED_VERSIONS = 40
RACED_SUBJECTS = 3
RACED_BATCH = 8


def _run(version: int, workflow: str = "fulfil", *, drops: bool = True, **changes: Any) -> NewRun:
    return new_run(workflow, version=version_text(version), drops_stale=drops, **changes)


def _accept(version: int, *, subject: str | None = "order-7", drops: bool = True, name: str = "") -> Accept:
    fact = event(name or f"evt_{version}", subject=subject)
    return Accept(fact, [_run(version, drops=drops)])


def an_event_that_is_not_newer_makes_no_run(stores: StoreFactory) -> None:
    """Older or equal: it is stored, its run is not, and why not is there to be read."""
    process = Process(stores)
    process.accept(_accept(5))

    older, equal = _accept(4), _accept(5, name="evt_other")
    replies = process.accept(older, equal)

    assert [reply.runs for reply in replies] == [{}, {}]
    assert [reply.is_duplicate for reply in replies] == [False, False]
    (skipped,) = process.store.skipped("stripe", "evt_4")
    assert skipped == replies[0].skipped["fulfil"]
    assert (skipped.reason, skipped.run_id) == (Skip.STALE, older.runs[0].run_id)
    assert skipped.why == "its version 4 is not newer than 5, which had been accepted"
    assert process.store.event("stripe", "evt_4") == older.event
    assert len(process.store.runs(RunFilter())) == 1


def a_newer_event_makes_a_run_and_is_the_newest_from_then_on(stores: StoreFactory) -> None:
    """The mark only rises."""
    process = Process(stores)
    replies = [process.accept(_accept(version))[0] for version in (5, 9, 7, 10)]

    assert [bool(reply.runs) for reply in replies] == [True, True, False, True]
    assert replies[2].skipped["fulfil"].newest == version_text(9)


def a_stale_event_is_marked_where_it_is_not_dropped(stores: StoreFactory) -> None:
    """Both events run; the late one says that it is."""
    process = Process(stores)
    first, late = process.accept(_accept(5, drops=False), _accept(4, drops=False))

    assert [process.read(reply.runs["fulfil"]).is_stale for reply in (first, late)] == [False, True]
    assert late.skipped == {}


def a_redelivery_is_told_what_the_first_was(stores: StoreFactory) -> None:
    """Also when the newest has risen since, and also to another process and within one batch."""
    process, other = Process(stores, "p1"), Process(stores, "p2")
    process.accept(_accept(5))
    stale, twin = process.accept(_accept(4), _accept(4))
    process.accept(_accept(6))

    again, kept = other.accept(_accept(4), _accept(5))

    assert again == twin == Accepted(True, False, {}, stale.skipped)
    assert kept.runs
    assert kept.skipped == {}
    assert [row.reason for row in process.store.skipped("stripe", "evt_4")] == [Skip.STALE]
    assert process.store.skipped("stripe", "evt_5") == []


def events_of_one_subject_are_judged_in_the_order_of_their_batch(stores: StoreFactory) -> None:
    """Three of one batch: the second is late, the third is new again."""
    process = Process(stores)
    replies = process.accept(*(_accept(version) for version in (5, 3, 8, 8)), _accept(1, name="evt_x"))

    assert [bool(reply.runs) for reply in replies] == [True, False, True, True, False]
    assert replies[3].is_duplicate


def subjects_workflows_and_namespaces_have_their_own_newest(stores: StoreFactory) -> None:
    """None of them makes another's event stale."""
    process, walled = Process(stores), Process(stores, namespace="other")
    process.accept(_accept(9))
    fact = event("evt_1")

    (elsewhere,) = process.accept(_accept(5, subject="order-8"))
    (several,) = process.accept(Accept(fact, [_run(5), _run(5, "invoice"), new_run("notify")]))
    (over_there,) = walled.accept(_accept(5))

    assert elsewhere.runs
    assert over_there.runs
    assert set(several.runs) == {"invoice", "notify"}
    assert set(several.skipped) == {"fulfil"}


def an_event_without_a_subject_is_not_judged(stores: StoreFactory) -> None:
    """Nothing says what it would be older than."""
    process = Process(stores)
    replies = process.accept(_accept(9, subject=None), _accept(5, subject=None))

    assert all(reply.runs for reply in replies)


def a_duplicate_does_not_raise_the_newest(stores: StoreFactory) -> None:
    """Only the accept that stores the event counts, whatever a later one says of its version."""
    process = Process(stores)
    process.accept(_accept(5))
    process.accept(_accept(99, name="evt_5"))

    (next_one,) = process.accept(_accept(6))

    assert next_one.runs


def what_a_step_emits_is_judged_with_its_checkpoint(stores: StoreFactory) -> None:
    """Two emits about one subject in one commit; with a lost fence neither counts."""
    process = Process(stores)
    run = process.start("evt_start")
    facts = [event(f"order-7/{version}", source="emit/order.paid") for version in (5, 4)]
    emits = [Accept(fact, [_run(version)]) for fact, version in zip(facts, (5, 4), strict=True)]
    before = rows(process.store, "version", "skipped", "run")

    late = process.advance(run, step(), accepts=emits)
    late.fence -= 1
    assert process.apply(advances=[late]).held == [False]
    assert before == rows(process.store, "version", "skipped", "run")
    assert process.save(run, step(), accepts=emits)

    assert [bool(process.store.skipped(fact.source, fact.id)) for fact in facts] == [False, True]
    assert len(process.store.runs(RunFilter(source="emit/order.paid"))) == 1


def a_stale_run_is_not_begun_where_a_slot_is_free(stores: StoreFactory) -> None:
    """A run that is not made belongs to nobody."""
    process = Process(stores)
    process.accept(_accept(5))
    wish = _run(4, is_claimed=True)
    (reply,) = process.accept(Accept(event("evt_4"), [wish]))
    fresh = _run(6, is_claimed=True)
    process.accept(Accept(event("evt_6"), [fresh]))

    assert reply.runs == {}
    assert {fresh.run_id: False} == process.owned()


def processes_that_race_leave_the_newest(stores: StoreFactory) -> None:
    """Each version from every process at once: one judgement of each, the same for all; the newest has a run."""
    processes = [Process(stores, f"p{number}") for number in range(RACERS)]

    def name(subject: int, version: int) -> str:
        return f"evt_{subject}_{version}"

    def deliver_all(number: int) -> dict[str, Accepted]:
        places = [(index % RACED_SUBJECTS, index // RACED_SUBJECTS) for index in range(RACED_VERSIONS)]
        start = number * RACED_VERSIONS // RACERS
        places = places[start:] + places[:start]
        if number % 2:
            places.reverse()
        replies: dict[str, Accepted] = {}
        for begin in range(0, len(places), RACED_BATCH):
            batch = places[begin : begin + RACED_BATCH]
            wanted = [
                _accept(version, subject=f"order-{subject}", name=name(subject, version))
                for subject, version in batch
            ]
            found = processes[number].accept(*wanted)
            replies.update(zip([name(*place) for place in batch], found, strict=True))
        return replies

    everything = together(*(lambda number=number: deliver_all(number) for number in range(RACERS)))

    store = processes[0].store
    for event_id in everything[0]:
        answers = [replies[event_id] for replies in everything]
        assert all((reply.runs, reply.skipped) == (answers[0].runs, answers[0].skipped) for reply in answers)
        assert sum(not reply.is_duplicate for reply in answers) == 1
        assert len(answers[0].runs) + len(answers[0].skipped) == 1
    for subject in range(RACED_SUBJECTS):
        newest = max(index // RACED_SUBJECTS for index in range(subject, RACED_VERSIONS, RACED_SUBJECTS))
        assert everything[0][name(subject, newest)].runs, "the newest event of a subject is never stale"
        (row,) = [row for row in store.dump("version")["version"] if row["subject"] == f"order-{subject}"]
        assert row["version"] == version_text(newest)
