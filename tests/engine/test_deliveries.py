"""Deliveries as an operator sees them: each counted, clashes shown, raw requests kept and read again."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
from typing import Any, ClassVar

import msgspec
import psycopg
import pytest

from onceward import App, Context, Event, NotFound
from onceward.console.local import LocalConsole
from onceward.console.port import DeliveryQuery
from onceward.core.arrival import Incoming, Verified
from onceward.core.asked import LOOK_MAX
from onceward.core.errors import BodyMalformed, ConfigError, SignatureInvalid, StoreUnavailable
from onceward.core.messages import HttpRequest
from onceward.core.model import DELIVERIES_KEPT_MAX, DeliveryRow
from onceward.core.ports import DeliveryFilter
from onceward.receiving import found_deliveries
from onceward.refusals import OTHER_REASONS, REASONS_MAX, SAMPLES_MAX
from onceward.sources import GitHub, Source, Stripe, create
from onceward.sources.base import parse_json
from onceward.sources.signing import check_window, hex_hmac, matching_secret, sole_header, unix_ms
from onceward.testing.store_scene import failing_at
from tests.engine.conftest import broken_promises
from tests.engine.running import make_app, open_store, run_app
from tests.pages import call

NEW, OLD = "whsec_new_new_new", "whsec_old_old_old"
PAID = b'{"id": "evt_1", "type": "invoice.paid", "note": "na\xc3\xafve"}'


class Batch(Source):
    """A source of batches whose normalize a test can break, and which signs a time."""

    kind = "batch"
    is_batching: ClassVar[bool] = True
    is_broken = False

    def verify(self, request: HttpRequest, now_ms: int) -> Verified:
        sent_at = unix_ms(sole_header(request, "X-Time"), "ms")
        given = sole_header(request, "X-Batch-Signature")
        index = matching_secret(self.secrets, b"%d.%s" % (sent_at, request.body), [given])
        request.header("authorization")
        request.header("x-batch-token")
        assert self.tolerance is None
        check_window(sent_at, now_ms, self.window)
        return Verified(index, sent_at)

    def normalize(self, request: HttpRequest) -> list[Incoming]:
        kind = request.header("x-batch-kind") or "none"
        if self.is_broken:
            raise KeyError(request.body.decode())
        return [Incoming(id=item["id"], type=kind, payload=item) for item in parse_json(request.body)]

    def sign(self, body: bytes, now_ms: int, **_: object) -> dict[str, str]:
        signed = hex_hmac(self.signing_key(), b"%d.%s" % (now_ms, body)).decode()
        return {
            "X-Time": str(now_ms),
            "X-Batch-Signature": signed,
            "X-Batch-Kind": "stock.changed",
            "X-Batch-Token": "not to be kept",
            "Authorization": "Basic bm90IHRvIGJlIGtlcHQ=",
            "Cookie": "not=to-be-kept",
            "X-Other": "nobody asked for this",
            "User-Agent": "batch/1",
        }

    @property
    def window(self) -> Any:
        from datetime import timedelta

        return timedelta(minutes=5)


class Door:
    """An app with three sources and one workflow, and what a sender does to it."""

    def __init__(self, url: str) -> None:
        self.app = app = make_app(url)
        self.stripe = app.source(Stripe(secrets=[NEW, OLD]))
        self.github = app.source(GitHub(secrets="a secret of hub"))
        self.batch = app.source(Batch(secrets="a secret of batch"))

        @app.workflow(on=[self.stripe["*"], self.github["*"], self.batch["*"]])
        async def note(ctx: Context, event: Event) -> str:
            return event.id

    async def send(self, source: Source, body: bytes, **how: Any) -> tuple[int, Any]:
        at = how.pop("at", None) or self.app.worker.now_ms()
        headers = source.sign(body, at, **how)
        return await self.post(source, body, headers)

    async def post(self, source: Source, body: bytes, headers: dict[str, str]) -> tuple[int, Any]:
        status, text = await call(self.app.asgi(), "POST", f"/hooks/{source.name}", headers, body)
        return status, msgspec.json.decode(text)


# --- the deliveries of an event ----------------------------------------------------------------------


def test_each_delivery_is_seen_with_its_time_outcome_secret_and_skew(store_url: str) -> None:
    door = Door(store_url)

    async def scenario() -> None:
        now = door.app.worker.now_ms()
        await door.send(door.stripe, PAID, at=now - 90_000)
        await door.send(door.stripe, PAID, secret_index=1)
        await door.send(door.stripe, PAID.replace(b"na", b"NA"))
        event = await door.app.event("stripe", "evt_1")

        assert [(one.outcome, one.secret_index) for one in event.deliveries] == [
            ("accepted", 0),
            ("duplicate", 1),
            ("clash", 0),
        ]
        assert (event.delivery_count, event.has_clash, len(event.runs)) == (3, True, 1)
        first = event.deliveries[0]
        assert now <= first.received_at
        assert first.skew_ms is None or first.skew_ms >= 90_000
        listed = await door.app.deliveries(source="stripe")
        assert [one.delivery_id for one in listed] == [one.delivery_id for one in reversed(event.deliveries)]
        assert [one.outcome for one in await door.app.deliveries(state="clash")] == ["clash"]
        with pytest.raises(ConfigError, match="no state 'lost' of deliveries"):
            await door.app.deliveries(state="lost")  # type: ignore[arg-type]

    run_app(door.app, scenario)


def test_a_filter_looks_at_so_many_deliveries_and_says_where_to_go_on(postgres_store: str) -> None:
    door = Door(postgres_store)

    async def scenario() -> None:
        await door.send(door.stripe, PAID)
        (old,) = await door.app.deliveries()
        with psycopg.connect(postgres_store, autocommit=True) as connection:
            connection.execute(
                "insert into onceward.delivery select received_at, null, 0, null, namespace, "
                "'del_zz' || lpad(n::text, 10, '0'), 'other', event_id, 'duplicate', content_hash, request, body "
                f"from onceward.delivery, generate_series(1, {LOOK_MAX}) as n"
            )

            connection.execute(
                "insert into onceward.unparsed select received_at, received_at, null, 1, null, namespace, source, "
                "'hash', '0' || delivery_id, 'KeyError', request, '' from onceward.delivery where source = 'stripe'"
            )

        first = await door.app.deliveries(source="stripe")
        assert (first, bool(first.next)) == ([], True)
        rest = await door.app.deliveries(source="stripe", before=first.next)
        # What lies behind the edge of a look comes with the page on which its place is.
        assert ([row.delivery_id for row in rest], rest.next) == (
            [old.delivery_id, f"0{old.delivery_id}"],
            None,
        )
        page = await door.app.deliveries(source="other", limit=2)
        assert page.next == page[-1].delivery_id

    run_app(door.app, scenario)


def test_all_deliveries_are_listed_in_the_order_in_which_they_came_those_too_that_could_not_be_read(
    store_url: str,
) -> None:
    """On every page, whether or not a source is named, in the library and on the console alike."""
    door = Door(store_url)

    async def scenario() -> None:
        outcomes = []
        for number in range(6):
            door.batch.is_broken = number % 3 != 2
            assert (await door.send(door.batch, b'[{"id": "%d"}, {"id": "%d b"}]' % (number, number)))[
                0
            ] == 202
            outcomes.append("unparsed" if door.batch.is_broken else "accepted")
        for source in (None, "batch"):
            seen: list[tuple[str, str]] = []
            before = None
            for _ in range(10):
                page = await door.app.deliveries(source=source, before=before, limit=4)
                seen += [(row.delivery_id, row.outcome) for row in page]
                before = page.next
                if before is None:
                    break
            ids = list(dict.fromkeys(seen))
            assert sorted(outcome for _, outcome in ids) == sorted(outcomes)
            assert ids == sorted(ids, reverse=True)
            shown: list[tuple[str, str, int]] = []
            after = None
            for _ in range(10):
                found = await LocalConsole(door.app).deliveries(
                    DeliveryQuery(source=source, after=after, limit=3)
                )
                shown += [(row.delivery_id, row.outcome, len(row.events)) for row in found.items]
                after = found.next
                if after is None:
                    break
            assert shown == [(*row, 0 if row[1] == "unparsed" else 2) for row in ids]
        assert await door.app.deliveries(source="stripe") == []

    run_app(door.app, scenario)


def test_no_event_of_a_delivery_falls_between_two_pages(store_url: str) -> None:
    """Pages go on by the ids of deliveries, so the last one is given whole, whatever it holds."""
    door = Door(store_url)

    async def scenario() -> None:
        for ids in (["1"], ["2", "3", "4", "5", "6"], ["7"]):
            assert (await door.send(door.batch, json.dumps([{"id": one} for one in ids]).encode()))[0] == 202
        filters: list[dict[str, Any]] = [{}, {"source": "batch"}, {"state": "accepted"}]
        for where, limit in itertools.product(filters, (1, 2, 3, 6)):
            seen: list[str] = []
            before = None
            for _ in range(10):
                page = await door.app.deliveries(before=before, limit=limit, **where)
                assert all(row.body is None for row in page if isinstance(row, DeliveryRow))
                seen += [row.event_id for row in page if isinstance(row, DeliveryRow)]
                before = page.next
                if before is None:
                    break
            assert seen == ["7", "2", "3", "4", "5", "6", "1"], (where, limit)

    run_app(door.app, scenario)


def test_a_console_does_not_promise_a_page_behind_the_last_delivery(store_url: str) -> None:
    """A delivery may have more events than a page has room for; it is one line of the list."""
    door = Door(store_url)

    async def scenario() -> None:
        for ids in (["1", "2", "3", "4"], ["5"], ["6", "7", "8"]):
            assert (await door.send(door.batch, json.dumps([{"id": one} for one in ids]).encode()))[0] == 202
        console = LocalConsole(door.app)
        filters: list[dict[str, Any]] = [{}, {"source": "batch"}, {"outcome": "accepted"}]
        for where, limit in itertools.product(filters, (1, 2, 3)):
            pages, after = [], None
            while True:
                page = await console.deliveries(DeliveryQuery(limit=limit, after=after, **where))
                pages.append([len(row.events) for row in page.items])
                after = page.next
                if after is None:
                    break
            assert all(pages), (where, limit)
            assert [*itertools.chain(*pages)] == [3, 1, 4], (where, limit)

    run_app(door.app, scenario)


def test_pages_of_short_looks_have_each_delivery_once_and_in_order(store_url: str) -> None:
    """Of both kinds, whichever of the two looks stops first, beside those of another source."""
    door = Door(store_url)
    other = door.app.source(Batch(name="other", secrets="a secret of another"))
    # Unparsed ones (u, and x of the other source) are first dense and then rare among the others (a and o).
    kinds = "uuxxxxxuuxxxauaaoooooooaaaoxaooooou"

    async def scenario() -> None:
        for number, kind in enumerate(kinds):
            source = door.batch if kind in "ua" else other
            source.is_broken = kind in "ux"
            assert (await door.send(source, b'[{"id": "%d"}]' % number))[0] == 202
        rows, edge = await found_deliveries(door.app.worker, DeliveryFilter(limit=len(kinds) + 1))
        assert (len(rows), edge) == (len(kinds), None)

        for source_name, outcome in itertools.product(("batch", "other", "stripe", None), (None, "unparsed")):
            wanted = [
                row.delivery_id
                for row in rows
                if source_name in (None, row.source) and outcome in (None, row.outcome)
            ]
            seen: list[str] = []
            before = None
            for _ in range(len(kinds)):
                where = DeliveryFilter(source=source_name, outcome=outcome, before=before, limit=3)
                page, edge = await found_deliveries(door.app.worker, where, look=4)
                seen += [row.delivery_id for row in page]
                before = page[-1].delivery_id if len(page) == 3 else edge
                if before is None:
                    break
            assert (seen, before) == (wanted, None)

    run_app(door.app, scenario)


def test_deliveries_beyond_the_limit_are_a_number(store_url: str) -> None:
    door = Door(store_url)

    async def scenario() -> None:
        replies = await asyncio.gather(
            *(door.send(door.stripe, PAID) for _ in range(DELIVERIES_KEPT_MAX + 7))
        )
        event = await door.app.event("stripe", "evt_1")

        assert {status for status, _ in replies} == {202}
        assert len({reply["events"][0]["runs"][0] for _, reply in replies}) == 1
        assert (len(event.deliveries), event.delivery_count) == (DELIVERIES_KEPT_MAX, DELIVERIES_KEPT_MAX + 7)

    run_app(door.app, scenario)


def test_the_same_body_under_a_new_id_is_flagged_where_the_id_is_not_signed(store_url: str) -> None:
    app = make_app(store_url)
    hub = app.source(GitHub(secrets="a secret of hub"))
    stripe = app.source(Stripe(secrets=NEW))

    async def scenario() -> None:
        for event_id, body in (("d1", b'{"a":1}'), ("d2", b'{"a":1}'), ("d3", b'{"a":2}')):
            headers = hub.sign(body, 0, event_id=event_id, event_type="push")
            assert (await call(app.asgi(), "POST", "/hooks/github", headers, body))[0] == 202
        headers = stripe.sign(PAID, app.worker.now_ms())
        assert (await call(app.asgi(), "POST", "/hooks/stripe", headers, PAID))[0] == 202

        found = {event_id: (await app.event("github", event_id)).same_body for event_id in ("d1", "d2", "d3")}
        assert found == {"d1": ["d2"], "d2": ["d1"], "d3": []}
        assert (await app.event("stripe", "evt_1")).same_body == []

    run_app(app, scenario)


def test_an_app_that_was_closed_and_opened_again_takes_deliveries(sqlite_url: str) -> None:
    door = Door(sqlite_url)

    async def scenario() -> None:
        assert (await door.send(door.stripe, PAID))[0] == 202

    run_app(door.app, scenario)
    run_app(door.app, scenario)


# --- raw requests ------------------------------------------------------------------------------------


def test_the_request_is_kept_byte_for_byte_and_verifies_again_as_of_then(store_url: str) -> None:
    door = Door(store_url)

    async def scenario() -> None:
        now = door.app.worker.now_ms()
        other = PAID.replace(b"na", b"NA")
        await door.send(door.stripe, PAID, at=now - 250_000)
        await door.send(door.stripe, other, secret_index=1)
        first, second = (await door.app.event("stripe", "evt_1")).deliveries

        request = await door.app.request(first.delivery_id)
        assert (request.method, request.path, request.body) == ("POST", "/hooks/stripe", PAID)
        assert request.url == "http://127.0.0.1:80/hooks/stripe"
        assert (await door.app.verify_again(first.delivery_id)).secret_index == 0
        clash = await door.app.request(second.delivery_id)
        assert clash.body == other
        assert (await door.app.verify_again(second.delivery_id)).secret_index == 1
        door.stripe.secrets = door.stripe.secrets[:1]
        with pytest.raises(SignatureInvalid):
            await door.app.verify_again(second.delivery_id)
        with pytest.raises(NotFound):
            await door.app.request("del_none")

    run_app(door.app, scenario)


def test_what_a_source_asks_for_is_kept_and_no_credential(store_url: str) -> None:
    door = Door(store_url)
    body = b'[{"id": "a", "n": 1}, {"id": "b", "n": 2}]'

    async def scenario() -> None:
        await door.send(door.batch, body)
        (first,) = (await door.app.event("batch", "a")).deliveries
        (second,) = (await door.app.event("batch", "b")).deliveries

        assert first.delivery_id == second.delivery_id
        assert (first.part, second.part) == (0, 1)
        request = await door.app.request(first.delivery_id)
        assert request.body == body
        names = sorted(name.decode() for name, _ in request.headers)
        assert names == ["user-agent", "x-batch-kind", "x-batch-signature", "x-time"]
        assert (await door.app.verify_again(first.delivery_id)).sent_at_ms == first.sent_at

    run_app(door.app, scenario)
    with open_store(store_url) as store:
        dumped = repr(store.dump("event", "delivery", "run", "unparsed", "refusal"))
    for text in ("not to be kept", "bm90IHRv", "to-be-kept", "nobody asked", "a secret of"):
        assert text not in dumped


def test_a_header_that_holds_a_secret_is_not_kept_whatever_it_is_called(store_url: str) -> None:
    app = make_app(store_url)

    class Static(Source):
        kind = "static"

        def verify(self, request: HttpRequest, now_ms: int) -> Verified:
            if sole_header(request, "X-Hook-Id") != self.secrets[0].key:
                raise SignatureInvalid("another token")
            return Verified(0)

        def normalize(self, request: HttpRequest) -> list[Incoming]:
            return [Incoming(id=request.header("x-event") or "", type="a", payload={})]

    app.source(Static(secrets="open-sesame"))

    async def scenario() -> None:
        headers = {"X-Hook-Id": "open-sesame", "X-Event": "e1"}
        assert (await call(app.asgi(), "POST", "/hooks/static", headers, b""))[0] == 202
        (delivery,) = (await app.event("static", "e1")).deliveries
        request = await app.request(delivery.delivery_id)
        assert request.headers == ((b"x-event", b"e1"),)

    run_app(app, scenario)


# --- batches -----------------------------------------------------------------------------------------

MANY = json.dumps([{"id": f"e{number}"} for number in range(700)]).encode()


def test_the_events_of_a_delivery_are_stored_in_one_transaction(store_url: str) -> None:
    door = Door(store_url)

    async def scenario() -> None:
        store = door.app.worker.store
        sizes = []
        apply = store.apply

        def counted(process_id: str, epoch: int, batch: Any) -> Any:
            sizes.append(len(batch.accepts))
            return apply(process_id, epoch, batch)

        store.apply = counted  # type: ignore[method-assign]
        replies = await asyncio.gather(door.send(door.batch, MANY), door.send(door.batch, MANY))

        assert [status for status, _ in replies] == [202, 202]
        assert all(size % 700 == 0 for size in sizes)
        assert len(await door.app.events(source="batch", limit=1000)) == 700
        runs = [[event["runs"][0] for event in reply["events"]] for _, reply in replies]
        assert runs[0] == runs[1]

    run_app(door.app, scenario)


@pytest.mark.parametrize("place", ["accept.before_commit", "accept.after_commit"])
def test_a_failure_around_the_commit_leaves_all_events_or_none(store_url: str, place: str) -> None:
    door = Door(store_url)

    async def scenario() -> None:
        with failing_at(place):
            status, _ = await door.send(door.batch, MANY)
        stored = await door.app.events(source="batch", limit=1000)
        assert len(stored) == (700 if status == 202 else 0)

        status, reply = await door.send(door.batch, MANY)

        assert status == 202
        assert len({event["runs"][0] for event in reply["events"]}) == 700
        assert len(await door.app.events(source="batch", limit=1000)) == 700

    run_app(door.app, scenario)


def test_a_batch_in_which_one_payload_cannot_be_stored_is_kept_whole(store_url: str) -> None:
    door = Door(store_url)
    broken = Batch.normalize

    class Odd(Batch):
        kind = "odd"

        def normalize(self, request: HttpRequest) -> list[Incoming]:
            found = broken(self, request)
            return [*found, Incoming(id="odd", type="a", payload={1, 2})]

    odd = door.app.source(Odd(secrets="a secret of odd"))

    async def scenario() -> None:
        status, _ = await door.send(odd, b'[{"id": "a"}]')
        assert status == 202
        assert await door.app.events(source="odd") == []
        (kept,) = await door.app.deliveries(state="unparsed")
        assert "set" in kept.error  # type: ignore[union-attr]

    run_app(door.app, scenario)


# --- unparsed ----------------------------------------------------------------------------------------


def test_an_unparsed_delivery_is_kept_once_and_read_after_the_fix(store_url: str) -> None:
    door = Door(store_url)
    body = b'[{"id": "a"}, {"id": "b"}]'

    async def scenario() -> None:
        door.batch.is_broken = True
        for _ in range(3):
            assert await door.send(door.batch, body) == (202, {"events": []})
        assert (await door.send(door.batch, b'[{"id": "c"}]'))[0] == 202

        newest, kept = await door.app.deliveries(state="unparsed")
        assert (kept.source, kept.outcome, kept.copies, kept.secret_index) == ("batch", "unparsed", 3, 0)  # type: ignore[union-attr]
        assert kept.error.startswith("KeyError in ")  # type: ignore[union-attr]
        assert '"id"' not in kept.error  # type: ignore[union-attr]
        assert kept.skew_ms is not None
        assert (await door.app.request(kept.delivery_id)).body == body
        await door.app.verify_again(kept.delivery_id)
        with pytest.raises(BodyMalformed, match="cannot be read: KeyError in"):
            await door.app.redeliver(kept.delivery_id)
        assert len(await door.app.deliveries(state="unparsed")) == 2

        door.batch.is_broken = False
        accepted = await door.app.redeliver(kept.delivery_id)

        assert [(event.event_id, event.duplicate, len(event.run_ids)) for event in accepted.events] == [
            ("a", False, 1),
            ("b", False, 1),
        ]
        assert await door.app.deliveries(state="unparsed") == [newest]
        event = await door.app.event("batch", "b")
        assert event.type == "stock.changed"
        (delivery,) = event.deliveries
        assert (delivery.delivery_id, delivery.received_at) == (kept.delivery_id, kept.received_at)
        assert await door.app.run(event.runs[0].run_id).result("10s") == "b"
        assert (await door.send(door.batch, body))[1]["events"][0]["duplicate"]

    run_app(door.app, scenario)


def test_an_unparsed_delivery_keeps_what_a_corrected_source_may_ask_for_and_no_credential(
    store_url: str,
) -> None:
    door = Door(store_url)

    async def scenario() -> None:
        door.batch.is_broken = True
        headers = door.batch.sign(b"[]", door.app.worker.now_ms())
        await door.post(door.batch, b"[]", headers | {"X-Forwarded-For": "192.0.2.7", "X-Api-Key": "k"})
        (kept,) = await door.app.deliveries(state="unparsed")
        request = await door.app.request(kept.delivery_id)
        assert sorted(name.decode() for name, _ in request.headers) == [
            "user-agent",
            "x-batch-kind",
            "x-batch-signature",
            "x-other",
            "x-time",
        ]

    run_app(door.app, scenario)


def test_deliveries_that_differ_in_what_normalize_looks_at_are_kept_apart(store_url: str) -> None:
    door = Door(store_url)

    async def scenario() -> None:
        door.batch.is_broken = True
        now = door.app.worker.now_ms()
        for kind in ("one", "two"):
            headers = door.batch.sign(b"[]", now) | {"X-Batch-Kind": kind}
            await door.post(door.batch, b"[]", headers)
        assert len(await door.app.deliveries(state="unparsed")) == 2

    run_app(door.app, scenario)


def test_a_redelivery_of_what_was_read_gives_the_same_runs_and_is_marked(store_url: str) -> None:
    door = Door(store_url)

    async def scenario() -> None:
        _, reply = await door.send(door.stripe, PAID)
        (first,) = (await door.app.event("stripe", "evt_1")).deliveries

        accepted = await door.app.redeliver(first.delivery_id)

        assert accepted.events[0].duplicate
        assert accepted.events[0].run_ids == reply["events"][0]["runs"]
        event = await door.app.event("stripe", "evt_1")
        assert [one.outcome for one in event.deliveries] == ["accepted", "duplicate"]
        assert first.delivery_id in (event.deliveries[1].request or "")

    run_app(door.app, scenario)


# --- refusals ----------------------------------------------------------------------------------------


def test_refusals_are_counted_by_source_and_reason_and_written_together(store_url: str) -> None:
    door = Door(store_url)

    async def scenario() -> None:
        store = door.app.worker.store
        writes = []
        add = store.add_refusals

        def counted(rows: Any) -> None:
            writes.append(len(rows))
            add(rows)

        store.add_refusals = counted  # type: ignore[method-assign]
        for _ in range(SAMPLES_MAX + 5):
            await door.post(door.stripe, PAID, Stripe(secrets="whsec_wrong").sign(PAID, 1))
        await door.post(door.stripe, b"x" * 5_300_000, {})
        for number in range(3):
            await call(door.app.asgi(), "POST", f"/hooks/nobody-{number}", {}, b"")
        await door.send(door.stripe, PAID, at=door.app.worker.now_ms() - 400_000)
        await door.send(door.stripe, b"[]")
        assert writes == []

        found = {(one.source, one.reason): one for one in await door.app.refusals()}

        assert len(writes) == 1
        assert {key: one.count for key, one in found.items()} == {
            ("stripe", "no signature matches"): SAMPLES_MAX + 5,
            ("stripe", "more than N bytes"): 1,
            ("", "no such source"): 3,
            ("stripe", "timestamp is N s in the past, tolerance is N s"): 1,
            ("stripe", "The body is a JSON list, not an object."): 1,
        }
        malformed = found["stripe", "The body is a JSON list, not an object."]
        assert "Compare how the source reads a delivery" in malformed.hint
        wrong = found["stripe", "no signature matches"]
        assert len(wrong.samples) == SAMPLES_MAX
        assert (wrong.samples[0].status, wrong.samples[0].bytes) == (401, len(PAID))
        assert "Compare the secret" in wrong.hint
        assert (
            "onceward send stripe checkout.session.completed --to http://127.0.0.1:8000/hooks/stripe"
            in wrong.hint
        )
        late = found["stripe", "timestamp is N s in the past, tolerance is N s"]
        assert 400_000 <= (late.samples[0].skew_ms or 0) < 460_000
        assert "behind ours" in late.hint
        assert [one.source for one in await door.app.refusals("")] == [""]

    run_app(door.app, scenario)
    with open_store(store_url) as store:
        assert len(store.refusals(None)) == 5
        assert "invoice" not in repr(store.dump("refusal"))


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (json.dumps(json.loads(PAID), separators=(",", ":"), ensure_ascii=False).encode(), "JSON compact"),
        (json.dumps(json.loads(PAID)).encode(), "JSON with spaces after commas and colons, other"),
        (PAID + b"\n", "with a line end"),
        (b'{"other": 1}', None),
    ],
)
def test_a_body_that_was_written_anew_on_the_way_is_recognised(
    sqlite_url: str, written: bytes, expected: str | None
) -> None:
    door = Door(sqlite_url)

    async def scenario() -> None:
        # What was signed is another writing of what arrives.
        headers = door.stripe.sign(written, door.app.worker.now_ms())
        assert (await door.post(door.stripe, PAID, headers))[0] == 401
        (found,) = await door.app.refusals("stripe")
        if expected is None:
            assert found.samples[-1].rewritten == ""
            assert "parses it and writes it again" not in found.hint
        else:
            assert (found.samples[-1].rewritten or "").startswith(expected)
            assert "parses it and writes it again" in found.hint

    run_app(door.app, scenario)


def test_reasons_that_a_plug_in_makes_up_do_not_grow_without_end(sqlite_url: str) -> None:
    app = make_app(sqlite_url)

    class Chatty(Source):
        kind = "chatty"

        def verify(self, request: HttpRequest, now_ms: int) -> Verified:
            raise SignatureInvalid("no " + request.body.decode())

        def normalize(self, request: HttpRequest) -> list[Incoming]:
            return []

    app.source(Chatty(secrets="x"))

    async def scenario() -> None:
        for number in range(REASONS_MAX + 20):
            await call(app.asgi(), "POST", "/hooks/chatty", {}, f"x{number}y".encode())
        found = {one.reason: one.count for one in await app.refusals()}
        assert len(found) == REASONS_MAX + 1
        assert found[OTHER_REASONS] == 20

    run_app(app, scenario)


def test_refusals_that_cannot_be_written_are_counted_later(sqlite_url: str) -> None:
    door = Door(sqlite_url)

    async def scenario() -> None:
        store = door.app.worker.store
        add = store.add_refusals

        def away(rows: object) -> None:
            raise StoreUnavailable("It is away.")

        await door.post(door.stripe, PAID, {})
        store.add_refusals = away  # type: ignore[method-assign]
        with pytest.raises(StoreUnavailable):
            await door.app.refusals()
        store.add_refusals = add  # type: ignore[method-assign]
        await door.post(door.stripe, PAID, {})
        (found,) = await door.app.refusals()
        assert found.count == 2

    run_app(door.app, scenario)


def test_what_is_counted_when_the_app_closes_is_written(sqlite_url: str) -> None:
    door = Door(sqlite_url)

    async def scenario() -> None:
        await door.post(door.stripe, PAID, {})

    run_app(door.app, scenario)

    with open_store(sqlite_url) as store:
        assert [(row.source, row.count) for row in store.refusals(None)] == [("stripe", 1)]
    assert broken_promises(sqlite_url) == []


def test_the_blocking_twins_do_the_same(sqlite_url: str) -> None:
    door = Door(sqlite_url)
    app: App = door.app
    with app.sync:
        app.sync.wait(door.send(door.stripe, PAID))
        app.sync.wait(door.post(door.stripe, PAID, {}))

        (delivery,) = app.sync.deliveries(state="accepted")

        assert app.sync.request(delivery.delivery_id).body == PAID
        assert app.sync.verify_again(delivery.delivery_id).secret_index == 0
        assert app.sync.redeliver(delivery.delivery_id).events[0].duplicate
        assert [one.count for one in app.sync.refusals()] == [1]


# --- encodings ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("signed", ["as-sent", "decoded"])
def test_a_compressed_delivery_is_kept_verified_and_read_again(store_url: str, signed: str) -> None:
    app = make_app(store_url)
    hooks = app.source(
        create(
            "hmac",
            name="packed",
            secrets="a secret of packed",
            header="X-Signature",
            id_from="/id",
            type_from="/type",
        )
    )
    assert hooks.encoded_bodies == "as-sent"
    hooks.encoded_bodies = signed  # type: ignore[assignment]
    body = gzip.compress(PAID)

    async def scenario() -> None:
        how = hex_hmac(b"a secret of packed", body if signed == "as-sent" else PAID).decode()
        headers = {"X-Signature": how, "Content-Encoding": "gzip"}
        status, text = await call(app.asgi(), "POST", "/hooks/packed", headers, body)
        assert status == 202, text
        (delivery,) = (await app.event("packed", "evt_1")).deliveries

        assert (await app.request(delivery.delivery_id)).body == (body if signed == "as-sent" else PAID)
        assert (await app.verify_again(delivery.delivery_id)).secret_index == 0
        assert (await app.redeliver(delivery.delivery_id)).events[0].duplicate
        assert not (await app.event("packed", "evt_1")).has_clash

    run_app(app, scenario)
