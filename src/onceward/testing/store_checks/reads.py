"""Lists, filters, pages and the small questions that programs and people ask."""

from __future__ import annotations

import msgspec

from onceward.core import errors
from onceward.core.model import EventRow
from onceward.core.ports import Accept, EventFilter, RunFilter, Store
from onceward.core.states import RunState
from onceward.testing.store_scene import (
    START,
    Process,
    StoreFactory,
    accept,
    audit,
    event,
    new_run,
    raised,
)


def _ids(store: Store, **where: object) -> list[str]:
    return [run.event_id for run in store.runs(RunFilter(**where))]  # type: ignore[arg-type]


def runs_are_listed_newest_first(stores: StoreFactory) -> None:
    """By their ids, which grow with time."""
    process = Process(stores)
    for number in range(3):
        process.queue(f"evt_{number}")

    assert _ids(process.store) == ["evt_2", "evt_1", "evt_0"]
    assert _ids(process.store, limit=2) == ["evt_2", "evt_1"]


def runs_are_filtered_by_every_column_alone_and_together(stores: StoreFactory) -> None:
    """A filter that is given is used, whichever others there are."""
    process = Process(stores)
    process.accept(accept("evt_1", "fulfil", "invoice"), accept("evt_2", "fulfil", source="github"))
    process.move(process.start("evt_3"), RunState.FAILED)

    assert _ids(process.store, workflow="fulfil") == ["evt_3", "evt_2", "evt_1"]
    assert _ids(process.store, source="github") == ["evt_2"]
    assert _ids(process.store, event_id="evt_1") == ["evt_1", "evt_1"]
    assert _ids(process.store, source="stripe", event_id="evt_1", workflow="invoice") == ["evt_1"]
    assert _ids(process.store, state=RunState.FAILED) == ["evt_3"]
    assert _ids(process.store, state=RunState.FAILED, workflow="invoice") == []
    assert _ids(process.store, problems=True, source="stripe", event_id="evt_3") == ["evt_3"]
    assert _ids(process.store, problems=True, source="github") == []
    assert _ids(process.store, problems=True, event_id="evt_1") == []
    assert _ids(process.store, source="github", event_id="evt_1") == []


def runs_are_found_by_their_key(stores: StoreFactory) -> None:
    """Of every workflow, and with the other filters; no key is not a key."""
    process = Process(stores)
    for number, (workflow, key) in enumerate(
        [("fulfil", "7"), ("invoice", "7"), ("fulfil", "8"), ("fulfil", None)]
    ):
        process.accept(Accept(event(f"evt_{number}"), [new_run(workflow, key=key)]))
    stranger = stores.open("other")

    assert _ids(process.store, key="7") == ["evt_1", "evt_0"]
    assert _ids(process.store, key="7", limit=1) == ["evt_1"]
    assert _ids(process.store, key="7", workflow="fulfil") == ["evt_0"]
    assert _ids(process.store, key="7", source="stripe", event_id="evt_1") == ["evt_1"]
    assert _ids(process.store, key="8", source="stripe", event_id="evt_1") == []
    assert _ids(process.store, key="7", problems=True) == []
    assert _ids(process.store, key="7", state=RunState.COMPLETED) == []
    assert _ids(process.store, key="") == []
    assert stranger.runs(RunFilter(key="7")) == []


def pages_of_runs_show_each_run_once(stores: StoreFactory) -> None:
    """Also pages of one event's many replays, and of problems."""
    process = Process(stores)
    run = process.move(process.start("evt_1"), RunState.FAILED)
    for number in range(6):
        wish = new_run(replay_id=f"request-{number}", replay_of=run.run_id)
        process.store.replay(Accept(event("evt_1"), [wish]), [], audit(run.run_id, "replay"))
    for claimed in process.claim():
        process.move(claimed, RunState.FAILED)

    filters = (
        RunFilter(limit=3),
        RunFilter(limit=3, problems=True),
        RunFilter(limit=3, source="stripe", event_id="evt_1"),
        RunFilter(limit=3, workflow="fulfil"),
    )
    for where in filters:
        seen: list[str] = []
        before = None
        for _ in range(10):
            page = process.store.runs(msgspec.structs.replace(where, before=before))
            if not page:
                break
            seen += [found.run_id for found in page]
            before = page[-1].run_id
        assert 7 == len(seen) == len(set(seen)), where
        assert seen == sorted(seen, reverse=True)


def events_are_listed_newest_first_and_filtered(stores: StoreFactory) -> None:
    """By the time they came, then source and id."""
    process = Process(stores)
    facts = [
        event("a", at=START + 1, type="paid", subject="x"),
        event("b", at=START + 2, type="paid", subject=None),
        event("c", at=START + 2, type="sent", subject="x", source="github"),
    ]
    process.accept(*(Accept(fact, []) for fact in facts))

    def ids(**where: object) -> list[str]:
        return [row.id for row in process.store.events(EventFilter(**where))]  # type: ignore[arg-type]

    assert ids() == ["b", "c", "a"]
    assert ids(limit=1) == ["b"]
    assert ids(source="github") == ["c"]
    assert ids(type="paid") == ["b", "a"]
    assert ids(subject="x") == ["c", "a"]
    assert ids(subject="x", type="paid", source="stripe") == ["a"]


def pages_of_events_show_each_event_once(stores: StoreFactory) -> None:
    """Also where many came in the same millisecond, from several sources."""
    process = Process(stores)
    facts = [
        EventRow(source, f"evt_{number}", "paid", None, START + number % 2)
        for source in ("github", "stripe")
        for number in range(6)
    ]
    process.accept(*(Accept(fact, []) for fact in facts))

    seen: list[tuple[str, str]] = []
    before = None
    for _ in range(10):
        page = process.store.events(EventFilter(before=before, limit=5))
        if not page:
            break
        seen += [(row.source, row.id) for row in page]
        before = (page[-1].received_at, page[-1].source, page[-1].id)

    assert 12 == len(seen) == len(set(seen))


def what_is_not_there_is_none_or_empty(stores: StoreFactory) -> None:
    """Unknown ids are no errors of the store."""
    store = stores.open()

    assert store.run("no such run") is None
    assert store.event("stripe", "no such event") is None
    assert store.runs(RunFilter()) == []
    assert store.events(EventFilter()) == []
    assert store.deliveries("stripe", "no such event") == []
    assert store.attempts("no such run") == []
    assert store.children("no such run") == []
    assert store.states(["no such run"]) == {}
    assert store.states([]) == {}
    assert store.owned("nobody") == {}
    assert not store.resolve("nobody", "no such batch")


def several_runs_are_read_at_once(stores: StoreFactory) -> None:
    """By id, each as ``run`` gives it; unknown ones are missing."""
    process = Process(stores)
    runs = [process.queue(f"evt_{number}") for number in range(3)]

    found = process.store.states([runs[0].run_id, runs[2].run_id, "no such run"])

    assert {runs[0].run_id: runs[0], runs[2].run_id: runs[2]} == found


def a_commit_of_another_process_changes_the_token(stores: StoreFactory) -> None:
    """A store that can tell cheaply does; one that cannot says None, always."""
    process, store = Process(stores, "p1"), stores.open()
    first, quiet = store.changes(), store.changes()
    process.queue("evt_1")
    after = store.changes()

    if first is None:
        assert quiet is None
        assert after is None
    else:
        assert first == quiet
        assert first != after


def a_store_describes_itself(stores: StoreFactory) -> None:
    """For the banner: what it is, how durable, which version."""
    store = stores.open()

    description = store.describe()

    assert store.kind in {"sqlite", "postgres"}
    assert {"store", "durability", "version"} <= set(description)
    assert all(isinstance(text, str) and text for text in description.values())


def the_stores_time_is_in_milliseconds(stores: StoreFactory) -> None:
    """An integer of this century, and it does not run backwards."""
    store = stores.open()

    first, second = store.now_ms(), store.now_ms()

    assert isinstance(first, int)
    assert 1_500_000_000_000 < first <= second < 4_102_444_800_000


def a_closed_store_refuses_and_closing_twice_is_fine(stores: StoreFactory) -> None:
    """It does not come back to life by itself; what is committed stays."""
    process = Process(stores)
    run = process.queue("evt_1")
    survivor = stores.open()

    process.store.close()
    process.store.close()

    raised(errors.StoreError, lambda: process.store.run(run.run_id))
    raised(errors.StoreError, lambda: process.accept(accept("evt_2")))
    raised(errors.StoreError, process.heartbeat)
    assert run == survivor.run(run.run_id)
    process.store.open(migrate=False)
    assert run == process.read(run.run_id)


def a_dump_shows_rows_as_stored(stores: StoreFactory) -> None:
    """Every table by its columns, several at one moment; an unknown table is an error."""
    process = Process(stores)
    run = process.start("evt_1")

    found = process.store.dump("run", "queue", "committer")

    assert {"run", "queue", "committer"} == set(found)
    assert [("default", run.run_id, "running", 1)] == [
        (row["namespace"], row["run_id"], row["state"], row["fence"]) for row in found["run"]
    ]
    assert [process.last_batch] == [row["last_batch"] for row in found["committer"]]
    raised(ValueError, lambda: process.store.dump("run; drop table run"))
