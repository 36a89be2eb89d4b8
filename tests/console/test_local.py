"""The questions of a console, answered from an open app's store."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest

from onceward import App, ConfigError, Context, NotFound
from onceward.console.overview import servings
from onceward.console.port import ACKNOWLEDGED, DeliveryQuery, EventQuery, RunQuery
from onceward.console.shaping import Serving
from onceward.core.model import Millis
from onceward.core.redact import HIDDEN
from tests.console.shop import Shop
from tests.engine.running import run_app
from tests.helpers import eventually_async
from tests.pages import call

BODY = b'{"id": "evt_1", "type": "invoice.paid", "data": {"client_secret": "pi_s"}, "api_version": "1"}'


def change(url: str, statement: str) -> None:
    """Change rows by hand."""
    if url.startswith("sqlite"):
        with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file, file:
            file.execute(statement.replace("{t}", "onceward_"))
    else:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(statement.replace("{t}", "onceward."))


def test_runs_are_found_by_every_filter(store_url: str) -> None:
    shop = Shop(store_url)

    async def scenario() -> None:
        one = await shop.failed("order-1", subject="customer-1")
        two = await shop.failed("order-2", subject="customer-2")
        seen = await shop.completed("order-3")
        nap = (await shop.app.start(shop.nap, "x")).run_id
        await shop.stands(nap, "sleeping")

        assert await shop.ids() == [nap, seen, two, one]
        assert await shop.ids(workflow="charge") == [two, one]
        assert await shop.ids(state="sleeping") == [nap]
        assert await shop.ids(source="emit/order.seen") == [seen]
        assert await shop.ids(source="emit/order.paid", event_id="order-1") == [one]
        assert await shop.ids(type="order.seen") == [seen]
        assert await shop.ids(subject="customer-1") == [one]
        assert await shop.ids(subject="customer-1", type="order.seen") == []
        assert await shop.ids(problems=True) == [two, one]
        assert await shop.ids(problems=True, error="declin order") == [two, one]
        assert await shop.ids(problems=True, error="DECLINED order-2") == [two]
        assert await shop.ids(state="failed", error="permanent") == [two, one]
        assert await shop.ids(problems=True, error="ined") == []
        await shop.do(one, "dismiss")
        assert await shop.ids(problems=True) == [two]
        assert await shop.ids(state="failed", error="declined") == [two, one]

    run_app(shop.app, scenario)


def test_runs_are_found_by_time(sqlite_url: str) -> None:
    shop = Shop(sqlite_url)

    async def scenario() -> None:
        one = await shop.completed("order-1")
        at: Millis = (await shop.console.run(one)).run.created_at

        assert await shop.ids(since=at) == [one]
        assert await shop.ids(since=at + 1) == []
        assert await shop.ids(until=at) == []
        assert await shop.ids(until=at + 1) == [one]
        events = await shop.console.events(EventQuery(since=at + 1))
        assert events.items == []
        assert len((await shop.console.events(EventQuery(until=at + 1))).items) == 1

    run_app(shop.app, scenario)


def test_pages_show_each_run_and_event_once(store_url: str) -> None:
    shop = Shop(store_url)

    async def scenario() -> None:
        made = {await shop.completed(f"order-{number}") for number in range(5)}
        runs: list[str] = []
        events: list[str] = []
        after = after_event = None
        for _ in range(5):
            page = await shop.console.runs(RunQuery(limit=2, after=after, type="order.seen"))
            runs += [run.run_id for run in page.items]
            after = page.next
            if after is None:
                break
        for _ in range(5):
            found = await shop.console.events(EventQuery(limit=2, after=after_event))
            events += [event.id for event in found.items]
            after_event = found.next
            if after_event is None:
                break

        assert (set(runs), len(runs)) == (made, 5)
        assert sorted(events) == [f"order-{number}" for number in range(5)]

    run_app(shop.app, scenario)


def test_a_run_whose_process_is_gone_or_that_is_held_says_since_when(store_url: str) -> None:
    shop = Shop(store_url)

    async def scenario() -> None:
        run_id = (await shop.app.start(shop.nap, "x")).run_id
        await shop.stands(run_id, "sleeping")
        detail = await shop.console.run(run_id)
        assert detail.stopped_at is None
        change(store_url, f"update {{t}}queue set process_id = 'p_gone' where run_id = '{run_id}'")
        detail = await shop.console.run(run_id)
        assert (detail.run.process_id, detail.stopped_at) == ("p_gone", detail.run.started_at)
        here = shop.app.worker.process_id
        change(store_url, f"update {{t}}queue set process_id = '{here}' where run_id = '{run_id}'")
        assert (await shop.console.run(run_id)).stopped_at is None
        change(store_url, f"update {{t}}queue set process_id = null where run_id = '{run_id}'")
        held = f"set state = 'held', problem_at = 1234, reason = 'poison' where run_id = '{run_id}'"
        change(store_url, f"update {{t}}run {held}")
        assert (await shop.console.run(run_id)).stopped_at == 1_234
        again = f"set state = 'sleeping', problem_at = null, reason = null where run_id = '{run_id}'"
        change(store_url, f"update {{t}}run {again}")

    run_app(shop.app, scenario)


def test_a_run_is_shown_with_all_that_is_known_of_it(store_url: str) -> None:
    shop = Shop(store_url)

    async def scenario() -> None:
        run_id = await shop.failed("order-1")
        await shop.do(run_id, "replay", plan=ACKNOWLEDGED, request_id="again")

        detail = await shop.console.run(run_id)

        assert detail.event is not None
        assert (detail.run.event_type, detail.payload) == ("order.paid", {"order": "order-1"})
        assert [(step.label, step.state) for step in detail.steps] == [("load", "done"), ("pay", "failed")]
        assert detail.steps[0].output == {"order": "order-1", "access_token": HIDDEN}
        assert detail.failure is not None
        assert detail.failure.message.endswith(f"card declined for order-1, password={HIDDEN}")
        assert "hunter2" not in (detail.failure.traceback or "")
        assert [attempt.outcome for attempt in detail.attempts] == ["failed"]
        assert [verb.verb for verb in detail.verbs if verb.is_allowed] == [
            "retry",
            "restart",
            "replay",
            "dismiss",
        ]
        assert [run.replay_of for run in detail.replays] == [run_id]
        assert detail.run.is_open_problem

        with pytest.raises(NotFound):
            await shop.console.run("run_00000000000000000000000000")

    run_app(shop.app, scenario)


def test_a_run_says_what_it_waits_for(sqlite_url: str) -> None:
    shop = Shop(sqlite_url)

    async def scenario() -> None:
        parent = (await shop.app.start(shop.parent)).run_id
        await shop.stands(parent, "waiting")
        (child,) = (await shop.console.run(parent)).children
        await shop.stands(child.run_id, "sleeping")

        assert (await shop.console.run(parent)).waits_for == f"'napping': the end of {child.run_id}"
        asleep = await shop.console.run(child.run_id)
        assert asleep.waits_for == "the end of 'a long nap'"
        assert asleep.run.due_at is not None
        assert asleep.run.parent_run_id == parent

        packed = (await shop.app.start(shop.pack)).run_id
        await shop.stands(packed, "waiting")
        assert (await shop.console.run(packed)).waits_for == "warehouse.packed, for 'packed'"

    run_app(shop.app, scenario)


def test_a_run_whose_workflow_no_process_has_says_so_and_the_overview_counts_it(
    store_url: str,
) -> None:
    """It would wait for ever for a free process."""
    older = Shop(store_url)

    @older.app.workflow
    async def gone(ctx: Context) -> None:
        await ctx.step.sleep("an hour", "1h")

    async def before() -> str:
        for _ in range(2):
            run = await older.app.start(gone)
            await older.stands(run.run_id, "sleeping")
        await older.stands((await older.app.start(older.nap, "x")).run_id, "sleeping")
        return run.run_id

    run_id = run_app(older.app, before)
    change(store_url, "update {t}run set state = 'queued' where workflow = 'gone'")
    change(store_url, "update {t}queue set due_at = due_at - 3700000 where workflow = 'gone'")
    shop = Shop(store_url)

    async def scenario() -> None:
        change(store_url, f"update {{t}}workflow set seen_at = {shop.app.worker.now_ms()}")
        found = await shop.console.run(run_id)
        assert found.waits_for == "a process that has the workflow 'gone'; none that is alive is known to"
        assert (await shop.console.overview()).unserved == {}  # an older process may have it
        # Whoever registered them is long gone: nobody has them but this process, which knows of itself.
        change(store_url, "update {t}workflow set seen_at = 1")
        assert await servings(shop.app, ["charge", "gone"]) == {"charge": Serving.YES, "gone": Serving.NO}
        assert (await shop.console.overview()).unserved == {"gone": 2}
        found = await shop.console.run(run_id)
        assert found.waits_for == "a process that has the workflow 'gone'; none that is alive has it"

    run_app(shop.app, scenario)


def test_deliveries_are_found_by_when_they_were_stored(store_url: str) -> None:
    shop = Shop(store_url)

    async def scenario() -> None:
        marks = []
        for number in range(4):
            body = BODY.replace(b"evt_1", b"evt_%d" % number)
            if number == 2:
                shop.stripe.normalize = broken  # type: ignore[method-assign,assignment]
            now = shop.app.worker.now_ms()
            await call(shop.app.asgi(), "POST", "/hooks/stripe", shop.stripe.sign(body, now), body)
            marks.append(shop.app.worker.now_ms() + 1)
            await eventually_async(is_past(marks[-1]), what="the clock goes on")

        async def found(**query: Any) -> list[str]:
            page = await shop.console.deliveries(DeliveryQuery(**query))
            assert page.next is None or len(page.items) == query["limit"]
            return [row.outcome if row.outcome == "unparsed" else row.events[0] for row in page.items]

        everything = ["unparsed", "unparsed", "stripe/evt_1", "stripe/evt_0"]
        assert await found() == everything
        between: dict[str, Any] = {"since": marks[0], "until": marks[2]}
        for more in ({}, {"source": "stripe"}, {"limit": 2}):
            assert await found(**between, **more) == everything[1:3]
        assert await found(**between, outcome="unparsed") == ["unparsed"]
        assert await found(since=marks[0], limit=1) == ["unparsed"]
        page = await shop.console.deliveries(DeliveryQuery(**between, limit=1))
        rest = await shop.console.deliveries(DeliveryQuery(**between, limit=1, after=page.next))
        assert ([row.events for row in rest.items], rest.next) == ([["stripe/evt_1"]], None)
        assert await found(until=marks[0]) == everything[3:]
        assert await found(since=marks[3]) == []

    def broken(*_: Any) -> Any:
        raise ValueError("the plug-in fails")

    def is_past(mark: Millis) -> Callable[[], Awaitable[bool]]:
        async def say() -> bool:
            return shop.app.worker.now_ms() > mark

        return say

    run_app(shop.app, scenario)


def test_events_and_deliveries_are_shown_redacted(store_url: str) -> None:
    shop = Shop(store_url)

    async def scenario() -> None:
        headers = shop.stripe.sign(BODY, shop.app.worker.now_ms())
        status, _ = await call(shop.app.asgi(), "POST", "/hooks/stripe", headers, BODY)
        assert status == 202
        await shop.completed("order-1")

        (lonely,) = (await shop.console.events(EventQuery(without_runs=True))).items
        assert (lonely.source, lonely.id, lonely.type) == ("stripe", "evt_1", "invoice.paid")
        event = await shop.console.event("stripe", "evt_1")
        assert event.payload["data"] == {"client_secret": HIDDEN}
        assert (event.runs, event.delivery_count) == ([], 1)

        (listed,) = (await shop.console.deliveries(DeliveryQuery(source="stripe"))).items
        assert (listed.outcome, listed.body, listed.events) == ("accepted", None, ["stripe/evt_1"])
        shown = await shop.console.delivery(listed.delivery_id)
        assert shown.body is not None
        assert "pi_s" not in shown.body
        assert HIDDEN in shown.body
        (source,) = await shop.console.sources()
        assert (source.kind, source.path) == ("stripe", "/hooks/stripe")
        assert source.last_received_at == listed.received_at

        again = await shop.console.redeliver(listed.delivery_id, actor="ann")
        assert again["events"] == [{"id": "evt_1", "duplicate": True, "runs": []}]
        (entry,) = (await shop.console.audit()).items
        assert (entry.verb, entry.actor, entry.detail) == ("redeliver", "ann", listed.delivery_id)

    run_app(shop.app, scenario)


def test_an_overview_counts_what_happened_and_what_stands_where(store_url: str) -> None:
    shop = Shop(store_url)

    async def scenario() -> None:
        await shop.failed("order-1")
        await shop.completed("order-2")
        nap = (await shop.app.start(shop.nap, "x")).run_id
        await shop.stands(nap, "sleeping")

        page = await shop.console.overview()

        assert page.counts.states == {"failed": 1, "sleeping": 1}
        assert (page.counts.is_capped, page.counts.oldest_due_at) == ([], None)
        assert sum(slot.events for slot in page.slots) == 3
        assert sum(slot.completed for slot in page.slots) == 1
        assert sum(slot.failed for slot in page.slots) == 1
        assert [worker.is_here for worker in page.workers] == [True]
        assert len(page.problems) == 1
        assert {view.name for view in await shop.console.workflows()} == {
            "charge",
            "nap",
            "notice",
            "pack",
            "parent",
            "sign",
        }

    run_app(shop.app, scenario)


def test_runs_are_found_by_a_tag_of_their_workflow(store_url: str) -> None:
    """As it is registered now; a run itself has none."""
    shop = Shop(store_url)

    @shop.app.workflow(tags=["billing", "eu", "billing"])
    async def invoice(ctx: Context) -> None: ...

    async def scenario() -> None:
        await shop.failed("order-1")
        run_id = (await shop.app.start(invoice)).run_id
        await shop.stands(run_id, "completed")

        assert await shop.ids(tag="eu") == await shop.ids(tag="eu", state="completed") == [run_id]
        assert await shop.ids(tag="billing", workflow="charge") == await shop.ids(tag="us") == []
        tags = {view.name: view.tags for view in await shop.console.workflows()}
        assert (tags["invoice"], tags["charge"]) == (["billing", "eu"], [])
        with pytest.raises(ConfigError):
            await shop.ids(tag="eu", limit=0)

    run_app(shop.app, scenario)


@pytest.mark.parametrize(
    "tags", ["billing", [1], [""], ["x" * 400], [str(n) for n in range(21)], None], ids=repr
)
def test_tags_that_cannot_be_kept_are_refused(tags: Any) -> None:
    with pytest.raises(ConfigError):
        App("sqlite:///:memory:").workflow(tags=tags)


@pytest.mark.parametrize(
    "query",
    [
        RunQuery(limit=0),
        RunQuery(limit=201),
        RunQuery(state="lost"),
        RunQuery(event_id="evt_1"),
        RunQuery(error="declined"),
        RunQuery(error="declined", state="completed"),
        RunQuery(since=-1),
        RunQuery(workflow="\0"),
    ],
    ids=str,
)
def test_a_question_that_cannot_be_answered_is_refused(sqlite_url: str, query: RunQuery) -> None:
    shop = Shop(sqlite_url)

    async def scenario() -> None:
        with pytest.raises(ConfigError):
            await shop.console.runs(query)
        with pytest.raises(ConfigError):
            await shop.console.events(EventQuery(after="nonsense"))

    run_app(shop.app, scenario)


def test_changes_are_told(store_url: str) -> None:
    shop = Shop(store_url)

    async def scenario() -> None:
        changes = shop.console.changed()
        waiting = anext(changes)
        await shop.app.emit("nobody.wants", {})
        await waiting

    run_app(shop.app, scenario)
