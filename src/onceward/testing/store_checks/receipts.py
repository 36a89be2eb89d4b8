"""Deliveries as they are listed, those that could not be read, and counts of those that were refused."""

from __future__ import annotations

from typing import Any

import msgspec

from onceward.core.arrival import PROOF_MARGIN_MS, LooseProof
from onceward.core.model import RefusalRow, UnparsedRow
from onceward.core.ports import Accept
from onceward.testing.store_scene import START, Process, StoreFactory, delivery, event


def _unparsed(content_hash: str = "hash-1", **changes: Any) -> UnparsedRow:
    values: dict[str, Any] = {
        "source": "stripe",
        "delivery_id": f"del_{content_hash}",
        "received_at": START,
        "last_at": START,
        "copies": 1,
        "error": "KeyError in acme.py, line 3",
        "request": '{"method": "POST"}',
        "body": bytes(range(256)),
        "secret_index": 1,
        "sent_at": START - 9,
    }
    return UnparsedRow(content_hash=content_hash, **{**values, **changes})


def deliveries_are_listed_newest_first(stores: StoreFactory) -> None:
    """By their ids and in pages, without bodies."""
    process = Process(stores)
    for number in range(4):
        fact = event(f"evt_{number % 3}")
        process.accept(Accept(fact, [], [delivery(fact, body=b"body")]))

    def listed(before: str | None = None, limit: int = 9) -> list[str]:
        return [row.event_id for row in process.store.all_deliveries(before, limit)]

    rows = process.store.all_deliveries(None, 9)
    assert [row.event_id for row in rows] == ["evt_0", "evt_2", "evt_1", "evt_0"]
    assert [row.body for row in rows] == [None] * 4
    assert listed(limit=2) == ["evt_0", "evt_2"]
    assert listed(before=rows[1].delivery_id) == ["evt_1", "evt_0"]


def an_unparsed_delivery_is_kept_once_and_its_copies_counted(stores: StoreFactory) -> None:
    """The first request stays; the count, the last time and the reason are those of the last one."""
    process = Process(stores)
    first = _unparsed()
    process.store.keep_unparsed(first)

    process.store.keep_unparsed(
        _unparsed(delivery_id="del_later", received_at=START + 5, last_at=START + 5, error="another")
    )

    (found,) = process.store.look_for_unparsed(None, None, limit=9, look=9).deliveries
    assert (found.copies, found.last_at, found.error) == (2, START + 5, "another")
    assert (found.delivery_id, found.received_at, found.body) == ("del_hash-1", START, None)
    assert (found.secret_index, found.sent_at, found.skew_ms) == (1, START - 9, 9)
    whole = process.store.unparsed_delivery("del_hash-1")
    assert whole == msgspec.structs.replace(found, body=first.body)
    assert process.store.unparsed_delivery("del_later") is None


def a_look_for_unparsed_deliveries_stops_after_so_many_and_loses_none(stores: StoreFactory) -> None:
    """Beside however many of another source; from where it stopped the next one goes on."""
    process = Process(stores)
    for number in range(6):
        source = "github" if number == 0 else "stripe"
        process.store.keep_unparsed(_unparsed(f"hash-{number}", source=source))

    def found(source: str, before: str | None = None, **bounds: int) -> tuple[list[str], str | None]:
        met = process.store.look_for_unparsed(source, before, **{"limit": 9, **bounds})
        assert all(row.body is None for row in met.deliveries)
        return [row.content_hash for row in met.deliveries], met.edge

    assert found("github", look=3) == ([], "del_hash-3")
    assert found("github", "del_hash-3", look=3) == (["hash-0"], "del_hash-0")
    assert found("github", "del_hash-0", look=3) == ([], None)
    assert found("github", look=7) == (["hash-0"], None)
    assert found("stripe", look=7, limit=2) == (["hash-5", "hash-4"], None)
    assert found("stripe", look=3) == (["hash-5", "hash-4", "hash-3"], "del_hash-3")


def unparsed_deliveries_are_listed_and_forgotten_one_by_one(stores: StoreFactory) -> None:
    """Newest first, by source, in pages; what is forgotten is gone and nothing else."""
    process, other = Process(stores), stores.open("other")
    for number, source in enumerate(("stripe", "github", "stripe")):
        process.store.keep_unparsed(_unparsed(f"hash-{number}", source=source))

    def listed(source: str | None = None, before: str | None = None, limit: int = 9) -> list[str]:
        found = process.store.look_for_unparsed(source, before, limit=limit, look=9)
        return [row.content_hash for row in found.deliveries]

    assert listed() == ["hash-2", "hash-1", "hash-0"]
    assert listed(source="stripe") == ["hash-2", "hash-0"]
    assert listed(limit=1) == ["hash-2"]
    assert listed(before="del_hash-2") == ["hash-1", "hash-0"]
    assert other.look_for_unparsed(None, None, limit=9, look=9).deliveries == []
    process.store.forget_unparsed(_unparsed("hash-1"))
    assert listed() == ["hash-2", "hash-1", "hash-0"]
    process.store.forget_unparsed(_unparsed("hash-1", source="github"))
    assert listed() == ["hash-2", "hash-0"]


def what_came_first_under_a_signature_stays(stores: StoreFactory) -> None:
    """Whatever comes under it later, from whichever process; each source and namespace has its own."""
    process, other, elsewhere = Process(stores), stores.open(), stores.open("other")
    genuine = LooseProof("proof", "first", START)
    forged = LooseProof("proof", "second")

    assert process.store.first_under("mailgun", genuine, START) == "first"
    assert other.first_under("mailgun", forged, START) == "first"
    assert other.first_under("mailgun", genuine, START) == "first"
    assert other.first_under("paypal", forged, START) == "second"
    assert elsewhere.first_under("mailgun", forged, START) == "second"


def a_signature_that_is_too_old_anyhow_is_forgotten(stores: StoreFactory) -> None:
    """An hour after its time, when another comes; one without a time stays."""
    store = Process(stores).store
    late = START + PROOF_MARGIN_MS
    store.first_under("mailgun", LooseProof("timed", "first", START), START)
    store.first_under("mailgun", LooseProof("endless", "first"), START)

    store.first_under("mailgun", LooseProof("another", "x", late), late)
    assert store.first_under("mailgun", LooseProof("timed", "second", START), late) == "first"
    store.first_under("mailgun", LooseProof("another", "x", late), late + 1)
    assert store.first_under("mailgun", LooseProof("timed", "second", START), late + 1) == "second"
    assert store.first_under("mailgun", LooseProof("endless", "second"), late + 1) == "first"


def refusals_add_up_by_source_and_reason(stores: StoreFactory) -> None:
    """Counts grow, the first time stays, the newest samples replace the older ones."""
    process = Process(stores)
    process.store.add_refusals(
        [
            RefusalRow("stripe", "no signature matches", 3, START, START + 1, "[1]"),
            RefusalRow("stripe", "no header", 1, START, START, "[]"),
            RefusalRow("github", "no header", 2, START, START + 2, "[]"),
        ]
    )

    process.store.add_refusals([RefusalRow("stripe", "no signature matches", 4, START + 5, START + 6, "[2]")])

    assert process.store.refusals(None) == [
        RefusalRow("stripe", "no signature matches", 7, START, START + 6, "[2]"),
        RefusalRow("github", "no header", 2, START, START + 2, "[]"),
        RefusalRow("stripe", "no header", 1, START, START, "[]"),
    ]
    assert [row.source for row in process.store.refusals("github")] == ["github"]
    assert stores.open("other").refusals(None) == []
