"""`onceward doctor`: broken promises, stuck runs and dangerous settings, told and counted in the status."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onceward.cli.console import diagnosis
from onceward.cli.console.promises import PROMISES, ROWS
from onceward.console.shaping import LATE_MS
from onceward.core.model import ProcessRow, WorkflowRow
from onceward.core.notices import SEEN_EVERY_MS, NoticeAddressRow
from onceward.core.states import RunState
from onceward.testing.store_scene import LEASE_MS, START, Process, StoreFactory
from tests.cli.test_console_commands import Told
from tests.console.conftest import sqlite_url
from tests.console.shop import Shop
from tests.engine.running import run_app
from tests.stores.factories import Factory, Postgres, SqliteFile

__all__ = ["sqlite_url"]

CONTRACT = Path(__file__).resolve().parents[2] / "docs" / "contract.md"
LATE = START + LATE_MS + 1


@pytest.fixture(params=["sqlite", "postgres"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreFactory]:
    """An empty database of each kind."""
    is_sqlite = request.param == "sqlite"
    factory: Factory
    factory = (
        SqliteFile(tmp_path / "o.db") if is_sqlite else Postgres(request.getfixturevalue("postgres_dsn"))
    )
    yield factory
    factory.close()


def test_a_sound_store_is_told_to_be_sound(sqlite_url: str) -> None:
    shop = Shop(sqlite_url)
    run_app(shop.app, lambda: shop.completed("order-1"))

    told = Told("doctor", "--promises", url=sqlite_url)

    assert told.status == 0
    assert told.text.rstrip().endswith("\n\nNothing is wrong.")
    assert "I3   not checkable here" in told.text
    assert " hold in the rows of 1 run: " in told.text
    found = Told("doctor", "--json", url=sqlite_url).json
    assert (found["checked_runs"], found["is_whole"]) == (1, True)
    assert [finding["kind"] for finding in found["findings"]] == ["note"]
    assert found["promises"]["I8"] == "holds"


def test_the_promises_are_those_of_the_page() -> None:
    """By number and how each is watched; the words may be fewer."""
    rows = re.findall(r"^\| (I\d+) \| .*? \| (.*?) \|$", CONTRACT.read_text("utf-8"), re.MULTILINE)

    assert dict(rows) == {number: watched for number, (_, watched) in PROMISES.items()}
    assert any(ROWS in watched for _, watched in PROMISES.values())


def test_the_doctor_looks_at_a_store_itself(sqlite_url: str) -> None:
    assert Told("doctor", "--api", "http://127.0.0.1:1", url=sqlite_url).status == 2


def stuck(process: Process, now: int) -> dict[str, str]:
    return {
        finding.subject.partition(" ")[0]: finding.says
        for finding in diagnosis.stuck_runs(process.store, now)
    }


def test_each_stuck_run_is_told_with_why(stores: StoreFactory) -> None:
    process = Process(stores)
    held = process.move(process.start("evt_1"), RunState.HELD, reason="poison")
    parent = process.start("evt_2")
    child = process.call(parent)
    process.wait(parent)
    (claimed,) = [run for run in process.claim() if run.run_id == child.run_id]
    process.move(claimed, RunState.HELD, reason="code mismatch")
    due, owned = process.queue("evt_3"), process.start("evt_4")
    asleep = process.move(process.start("evt_5"), RunState.SLEEPING, due_at=LATE + 60_000)

    found = stuck(process, LATE)
    assert found.keys() == {held.run_id, parent.run_id, child.run_id, due.run_id}
    assert found[held.run_id] == "held for a person: poison"
    assert found[parent.run_id].endswith(f"run {child.run_id}, which is held: code mismatch")
    assert found[due.run_id] == "due for 30 s and nobody claims it: no process is alive"
    assert stuck(process, LATE + 3_600_000)[due.run_id].startswith("due for 1 h and nobody")
    assert "is silent and nobody has taken it over" in stuck(process, LATE + LEASE_MS)[owned.run_id]
    assert asleep.run_id not in found


def test_a_run_whose_workflow_nobody_has_is_told_so(stores: StoreFactory) -> None:
    process = Process(stores)
    run = process.queue("evt_1")
    row = ProcessRow("p2", 1, None, "host-2", 4712, "0.1.0", START + 1, LATE + LEASE_MS)
    process.store.join(row, [WorkflowRow("other", "[]", START + 1)])

    assert (
        "no process that is alive is known to have the workflow 'fulfil'" in stuck(process, LATE)[run.run_id]
    )
    later = ProcessRow("p3", 1, None, "host-3", 4713, "0.1.0", START + 2, LATE + LEASE_MS)
    process.store.join(later, [WorkflowRow("fulfil", "[]", START + 2)])
    assert stuck(process, LATE)[run.run_id].endswith("every process is busy")


def test_an_older_process_may_have_a_workflow_that_another_registered_last_and_a_newer_one_has_not(
    stores: StoreFactory,
) -> None:
    process = Process(stores)
    run = process.queue("evt_1")
    older = ProcessRow("p2", 1, None, "host-2", 4712, "0.1.0", START + 1, LATE + LEASE_MS)
    process.store.join(older, [WorkflowRow("fulfil", "[]", START + 1)])
    # A command that looked at the store with the app's code, and is gone.
    looker = ProcessRow("p3", 1, None, "host-3", 4713, "0.1.0", START + 2, START + LEASE_MS)
    process.store.join(looker, [WorkflowRow("fulfil", "[]", START + 2)])
    process.store.leave("p3", START + 3)

    def told(now: int) -> str:
        return stuck(process, now)[run.run_id]

    assert "no process that is alive is known to have the workflow 'fulfil'" in told(LATE)
    process.store.leave("p2", LATE)
    newer = ProcessRow("p4", 1, None, "host-4", 4714, "0.1.0", 2 * LATE, 3 * LATE)
    process.store.join(newer, [WorkflowRow("other", "[]", 2 * LATE)])
    assert "no process that is alive has the workflow 'fulfil'" in told(2 * LATE)


@pytest.mark.parametrize("is_large", [False, True], ids=["whole", "excerpt"])
def test_a_broken_promise_is_found_in_whole_stores_and_in_excerpts(
    stores: StoreFactory, is_large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_large:
        monkeypatch.setattr(diagnosis, "WHOLE_MAX", 2)
    process = Process(stores)
    parent = process.start("evt_1")
    process.call(parent)
    process.wait(parent)
    runs = [process.queue(f"evt_{number}") for number in range(2, 5)]
    assert diagnosis.check_promises(process.store, 3).violations == []

    stores.execute(f"delete from {{t}}queue where run_id = '{runs[0].run_id}'")
    checked = diagnosis.check_promises(process.store, 3)

    assert checked.is_whole is not is_large
    assert [(one.subject, one.says) for one in checked.violations] == [
        (f"I8 {runs[0].run_id}", "it is queued and not in the queue")
    ]


def test_that_no_process_is_alive_is_wrong_as_soon_as_a_run_is_due(stores: StoreFactory) -> None:
    """Not only once the run is late, which is half a minute later."""
    process = Process(stores)
    dead = ProcessRow("p1", 1, None, "host", 1, "0.1.0", START, START - 1)

    def told() -> list[tuple[str, str]]:
        found = diagnosis.dangers(process.store, [dead], START + 1_000)
        return [(one.kind, one.says) for one in found if one.subject == "processes"]

    assert told() == [("note", "no process is alive: nothing runs")]
    process.start("evt_1")
    process.move(process.start("evt_2"), RunState.SLEEPING, due_at=LATE)
    assert told() == [("danger", "no process is alive: nothing runs, and 1 run due or under way")]
    process.queue("evt_3")
    assert told() == [("danger", "no process is alive: nothing runs, and 2 runs due or under way")]


class Describing:
    """A store that only describes itself."""

    def __init__(self, kind: str, **told: str) -> None:
        self.kind, self.told = kind, told

    def describe(self) -> dict[str, str]:
        return self.told


@pytest.mark.parametrize(
    ("kind", "durability", "expected"),
    [
        ("postgres", "synchronous_commit=off: commits may be lost with the server", ["danger"]),
        ("postgres", "fsync=on; no synchronous standby: a failover may lose the last commits", ["note"]),
        ("postgres", "fsync=on, synchronous standby b", []),
        ("sqlite", "in memory, lost at exit", ["danger"]),
        ("sqlite", "WAL, synchronous=FULL", []),
    ],
)
def test_settings_that_can_lose_data_are_dangers(kind: str, durability: str, expected: list[str]) -> None:
    store: Any = Describing(kind, durability=durability, store="sqlite /nowhere/shop.db")
    alive = ProcessRow("p1", 1, None, "host", 1, "0.1.0", START, START + 10)

    assert [one.kind for one in diagnosis.dangers(store, [alive], START)] == expected


MOUNTS = """\
/dev/vda / ext4 rw 0 0
server:/export /srv nfs4 rw 0 0
/dev/vdb /srv/local\\040disk ext4 rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/shop.db", "ext4"),
        ("/srv/shop.db", "nfs4"),
        ("/srvx/shop.db", "ext4"),
        ("/srv/local disk/shop.db", "ext4"),
        ("relative.db", ""),
    ],
)
def test_the_file_system_of_a_path_is_that_of_its_nearest_mount(path: str, kind: str) -> None:
    assert diagnosis.file_system_of(path, MOUNTS) == kind


def test_an_address_that_cannot_be_told_is_a_danger(stores: StoreFactory) -> None:
    """Whether it is off, owed for long, had by no process, or was given up; not while all is well."""
    process = Process(stores)
    store = process.store

    def found(now: int) -> list[tuple[str, str]]:
        return [(one.subject, one.says) for one in diagnosis.untold(store, now)]

    def know(*names: str, at: int = START) -> None:
        rows = [
            NoticeAddressRow(address_id=name, shown=f"https://{name}.example", kinds="failed", seen_at=at)
            for name in names
        ]
        store.know_addresses(rows, is_start=True)

    late = START + diagnosis.UNTOLD_MS + 1
    know("a", "b", "c", "d")
    process.move(process.start("evt_1"), RunState.FAILED)
    assert found(START + 1) == []

    store.turn_off_address("a", START, "HTTP 410")
    (row,) = store.take_notices(["b"], START, 10)
    store.put_off_notices([msgspec.structs.replace(row, trouble="HTTP 500")])
    (row,) = store.take_notices(["c"], START, 10)
    store.give_up_notices([msgspec.structs.replace(row, trouble="no reply: refused")], START)
    know("b", "c", at=late)
    assert found(late) == [
        ("notices to https://a.example", "it answered HTTP 410 and gets no more"),
        ("notices to https://b.example", "1 is owed: HTTP 500"),
        ("notices to https://c.example", "1 was given up: no reply: refused"),
        ("notices to https://d.example", "1 is owed: nobody has sent them yet"),
    ]
    silent = START + 2 * SEEN_EVERY_MS + 1
    assert ("notices to https://d.example", "1 is owed and no process has it") in found(silent)
    assert [subject for subject, _ in found(START + diagnosis.LOST_SHOWN_MS)] == [
        f"notices to https://{name}.example" for name in "abd"
    ]
