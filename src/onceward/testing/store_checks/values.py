"""Hostile text goes in and comes out equal, and never becomes SQL (F44)."""

from __future__ import annotations

from collections.abc import Callable

from onceward.core import errors
from onceward.core.ports import Accept, EventFilter, RunFilter
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
    raised,
    restarted,
    rows,
    step,
)

HOSTILE = (
    "'; drop table onceward_run; --",
    '"quoted" and `ticked` and \\ back\\slashed',
    "%s %(name)s :name ?1 $1 {t} {macro} {{}}",
    "line\nbreak\r\nand\ttab",
    " leading and trailing ",
    "CAFÉ caf\u00e9 cafe\u0301 \u212b \u00c5",
    "\U0001f4b8\U0001f9fe\u200d\u202e right to left \u202c",
    "null",
    "0",
    "%_*?[a-z]",
    "\u0001\u001f\u007f\u0085\ufeff\uffff",
)

MEGABYTE = 1_000_000
FAR = 2**62


def hostile_identities_stay_apart_and_come_back_equal(stores: StoreFactory) -> None:
    """As source, id, type and subject of events; each is its own event and found by every filter."""
    process = Process(stores)
    for text in HOSTILE:
        process.accept(accept(text, source=text, type=text, subject=text))

    for text in HOSTILE:
        found = process.store.event(text, text)
        assert found is not None
        assert (text, text, text, text) == (found.source, found.id, found.type, found.subject)
        for where in (EventFilter(source=text), EventFilter(type=text), EventFilter(subject=text)):
            assert [text] == [row.id for row in process.store.events(where)]
        assert [text] == [run.event_id for run in process.store.runs(RunFilter(source=text, event_id=text))]
        assert process.accept(accept(text, source=text))[0].is_duplicate


def hostile_step_names_stay_apart_and_come_back_equal(stores: StoreFactory) -> None:
    """As name and item; results and errors as well."""
    process = Process(stores)
    run = process.start("evt_1")
    records = [
        step(text, item=text, seq=seq, state="failed", output=text, error=text, inputs_hash=text, begun=text)
        for seq, text in enumerate(HOSTILE, start=1)
    ]

    assert process.save(run, *records)

    assert records == process.store.steps(run.run_id)
    assert records == process.store.histories([run.run_id])[run.run_id]


def hostile_workflow_names_are_claimed(stores: StoreFactory) -> None:
    """A workflow's name is compared as it is, one at a time and all together."""
    process = Process(stores)
    process.accept(accept("evt_1", *HOSTILE))

    for text in HOSTILE[:3]:
        assert [text] == [run.workflow for run in process.claim(workflows=[text])]
    assert sorted(HOSTILE[3:]) == sorted(run.workflow for run in process.claim(workflows=HOSTILE))
    assert [HOSTILE[0]] == [run.workflow for run in process.store.runs(RunFilter(workflow=HOSTILE[0]))]


def hostile_operators_are_recorded(stores: StoreFactory) -> None:
    """Actor, detail and the reasons that people type."""
    process = Process(stores)
    run = process.move(process.start("evt_1"), RunState.FAILED)
    for text in HOSTILE:
        action = restarted(process.read(run.run_id), now=stores.now)
        action.audit = audit(run.run_id, "restart", actor=text, detail=text)
        action.move.warning = text
        assert process.store.steer(action)
        assert text == process.read(run.run_id).warning

    assert list(HOSTILE) == [row.actor for row in process.store.audits(run.run_id)]
    assert list(HOSTILE) == [row.detail for row in process.store.audits(run.run_id)]


def every_byte_of_a_body_survives(stores: StoreFactory) -> None:
    """Bodies are bytes: all 256 of them, and nothing at all."""
    process = Process(stores)
    fact = event("evt_1")
    bodies = [bytes(range(256)) * 3, b"", b"\x00", None]
    requests = [delivery(fact, body=body, received_at=START + n) for n, body in enumerate(bodies)]

    process.accept(Accept(fact, [new_run()], requests))

    assert bodies == [row.body for row in process.store.deliveries("stripe", "evt_1")]


def escaped_nul_in_json_text_survives(stores: StoreFactory) -> None:
    """JSON may name the character NUL; the text has only its escape."""
    process = Process(stores)
    text = '{"a": "\\u0000", "b": "x\\u0000y"}'
    run = process.start("evt_1", payload=text)

    assert process.save(run, step(output=text))

    found = process.store.event("stripe", "evt_1")
    assert found is not None
    assert text == found.payload == process.store.steps(run.run_id)[0].output


def a_megabyte_survives(stores: StoreFactory) -> None:
    """As payload, input, result and body, some of it not ASCII."""
    process = Process(stores)
    text = '"' + "aé€\U0001f4b8" * (MEGABYTE // 10) + '"'
    assert len(text.encode()) >= MEGABYTE
    fact = event("evt_1", payload=text)
    process.accept(Accept(fact, [new_run(input=text, is_claimed=True)], [delivery(fact, body=text.encode())]))
    (run,) = process.store.runs(RunFilter())

    assert process.save(run, step(output=text))

    assert fact == process.store.event("stripe", "evt_1")
    assert text == run.input
    assert text == process.store.steps(run.run_id)[0].output
    assert text.encode() == process.store.deliveries("stripe", "evt_1")[0].body


def nothing_and_the_empty_text_are_different(stores: StoreFactory) -> None:
    """None stays None and an empty text stays a text."""
    process = Process(stores)
    process.accept(
        accept("none", subject=None, payload=None, occurred_at=None),
        accept("empty", subject="", payload="", occurred_at=0),
    )
    run = process.start("evt_1")
    assert process.save(
        run, step("a", seq=1, output=None), step("b", seq=2, output="", error="", origin="", wake_at=0)
    )

    none, empty = process.store.event("stripe", "none"), process.store.event("stripe", "empty")
    assert none is not None
    assert empty is not None
    assert (none.subject, none.payload, none.occurred_at) == (None, None, None)
    assert (empty.subject, empty.payload, empty.occurred_at) == ("", "", 0)
    first, second = process.store.steps(run.run_id)
    assert (first.output, first.error, first.origin, first.wake_at) == (None, None, None, None)
    assert (second.output, second.error, second.origin, second.wake_at) == ("", "", "", 0)


def large_numbers_survive(stores: StoreFactory) -> None:
    """Times beyond what a float can count exactly, counts up to 32 bits."""
    process = Process(stores)
    run = process.start("evt_1", occurred_at=2**53 + 1)
    record = step(ordinal=2**31 - 1, seq=2**31 - 1, tries=2**31 - 1, wake_at=FAR)

    assert process.save(run, record)
    process.move(run, RunState.SLEEPING, due_at=FAR)

    assert [record] == process.store.steps(run.run_id)
    assert process.next_due(["fulfil"]) == FAR
    found = process.store.event("stripe", "evt_1")
    assert found is not None
    assert found.occurred_at == 2**53 + 1


def what_no_database_holds_is_refused_and_nothing_is_written(stores: StoreFactory) -> None:
    """A lone surrogate and a number beyond 64 bits fail with one of our errors, as a whole batch."""
    process = Process(stores)
    run = process.start("evt_1")
    before = rows(process.store)
    attempts: list[Callable[[], object]] = [
        lambda: process.accept(accept("fine"), accept("lone \ud800 surrogate")),
        lambda: process.save(run, step("fine"), step("big", tries=2**63)),
        lambda: process.save(run, step("lone", output='"\udfff"')),
    ]

    for attempt in attempts:
        raised(errors.OncewardError, attempt)
        assert before == rows(process.store)

    assert process.save(run, step("fine"))


def a_raw_nul_survives_or_is_refused(stores: StoreFactory) -> None:
    """Not every database holds it; none may cut the text short."""
    process = Process(stores)
    try:
        process.accept(accept("with \x00 nul"))
    except errors.OncewardError:
        assert process.store.events(EventFilter()) == []
    else:
        assert [row.id for row in process.store.events(EventFilter())] == ["with \x00 nul"]
        assert process.accept(accept("with "))[0].is_duplicate is False
