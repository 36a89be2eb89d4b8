"""Events that an operator makes, and promises that he ends: as if they had come, each once, audited."""

from __future__ import annotations

from typing import Any

import pytest

from onceward import ConfigError, Context, Event, IdClash, NotFound
from onceward.console.asking import cursor
from onceward.console.port import Completion, Emit, Prune
from onceward.core.errors import AlreadyCompleted, PromiseOver, StateConflict
from tests.console.shop import Shop
from tests.engine.running import make_app, run_app

SECRET = "only-for-tests-0123456789-0123456789"


def test_an_event_made_by_hand_starts_what_subscribed_once(store_url: str) -> None:
    shop = Shop(store_url)

    async def scenario() -> None:
        asked = Emit(type="order.seen", actor="ann", payload={"order": 7}, request_id="r1", subject="o-7")
        made = await shop.console.emit(asked)
        again = await shop.console.emit(asked)

        assert (made.event.source, made.event.id, made.event.subject) == ("emit/order.seen", "r1", "o-7")
        assert [run.workflow for run in made.runs] == ["notice"]
        assert (made.is_duplicate, again.is_duplicate) == (False, True)
        assert [run.run_id for run in again.runs] == [run.run_id for run in made.runs]
        assert [(one.verb, one.actor, one.detail) for one in (await shop.console.audit()).items] == [
            ("emit", "ann", "emit/order.seen/r1")
        ]
        with pytest.raises(StateConflict, match=r"was emit of emit/order\.seen/r1"):
            await shop.console.emit(Emit(type="order.paid", actor="ann", request_id="r1"))
        with pytest.raises(IdClash):
            await shop.console.emit(Emit(type="order.seen", actor="ann", id="r1", payload=8))
        unheard = await shop.console.emit(Emit(type="nobody.listens", actor="ann"))
        assert (unheard.runs, unheard.skipped, unheard.waits) == ([], [], [])

    run_app(shop.app, scenario)


def test_an_event_made_by_hand_starts_what_another_process_registered_meanwhile(store_url: str) -> None:
    shop = Shop(store_url, lease="10m", poll="5m", notify=False)  # it does not look by itself
    other = make_app(store_url)

    @other.workflow(on="order.told")
    async def told(ctx: Context, event: Event) -> None:
        return None

    async def scenario() -> None:
        async with other:
            made = await shop.console.emit(Emit(type="order.told", actor="ann"))
            assert [run.workflow for run in made.runs] == ["told"]

    run_app(shop.app, scenario)


def test_an_event_made_by_hand_ends_the_wait_that_it_fits(store_url: str) -> None:
    shop = Shop(store_url)

    async def scenario() -> None:
        run_id = (await shop.app.start(shop.pack)).run_id
        await shop.stands(run_id, "waiting")
        (step,) = (await shop.console.run(run_id)).steps
        (awaited,) = step.awaits
        assert (awaited.type, awaited.subject, awaited.source) == ("warehouse.packed", None, None)
        assert awaited.until_at == step.wake_at

        made = await shop.console.emit(Emit(type=awaited.type, actor="ann"))

        assert made.waits == [run_id]
        await shop.stands(run_id, "completed")
        assert (await shop.console.run(run_id)).steps[0].awaits == []

    run_app(shop.app, scenario)


def test_one_may_stand_in_for_a_sender_and_never_take_an_id_of_its_own(sqlite_url: str) -> None:
    shop = Shop(sqlite_url)

    async def scenario() -> None:
        first = Emit(type="charge.refunded", actor="ann", source="stripe", request_id="r1")
        made = await shop.console.emit(first)

        assert made.event.source == "stripe"
        assert made.event.id.startswith("operator-")
        assert (await shop.console.emit(first)).is_duplicate
        with pytest.raises(ConfigError, match="given an id"):
            await shop.console.emit(Emit(type="charge.refunded", actor="ann", source="stripe", id="evt_1"))
        with pytest.raises(ConfigError, match="There is no source 'strpie'"):
            await shop.console.emit(Emit(type="charge.refunded", actor="ann", source="strpie"))

    run_app(shop.app, scenario)


def test_a_promise_is_ended_without_its_token_and_once(store_url: str) -> None:
    shop = Shop(store_url, promise_secret=SECRET, public_url="https://shop.example")

    async def scenario() -> None:
        console = shop.console
        run_id = (await shop.app.start(shop.sign)).run_id
        await shop.stands(run_id, "waiting")
        made = (await console.run(run_id)).steps[0].promise
        assert made is not None
        assert made.state == "open"
        assert made.expires_at is not None

        with pytest.raises(NotFound, match="has no promise 'nothing'"):
            await console.complete(run_id, Completion(actor="ann", promise="nothing"))
        done = await console.complete(run_id, Completion(actor="ann", value="yes", request_id="r1"))
        again = await console.complete(run_id, Completion(actor="ann", value="yes", request_id="r1"))

        assert (done.effect, done.is_duplicate, again.is_duplicate) == ("completed", False, True)
        await shop.stands(run_id, "completed")
        after = await console.run(run_id)
        assert after.output == "yes"
        assert [(one.verb, one.actor, one.detail) for one in after.audits] == [
            ("complete", "ann", "approval: completed")
        ]
        with pytest.raises(AlreadyCompleted):
            await console.complete(run_id, Completion(actor="ann", value="no"))

        refused = (await shop.app.start(shop.sign)).run_id
        await shop.stands(refused, "waiting")
        await console.complete(refused, Completion(actor="ann", reason="not today"))
        await shop.stands(refused, "failed")
        over = (await shop.app.start(shop.sign)).run_id
        await shop.stands(over, "waiting")
        await shop.do(over, "cancel")
        await shop.stands(over, "cancelled")
        with pytest.raises(PromiseOver):
            await console.complete(over, Completion(actor="ann", value="yes"))
        with pytest.raises(NotFound, match="has no promise"):
            await console.complete(await shop.completed("order-1"), Completion(actor="ann"))

    run_app(shop.app, scenario)


@pytest.mark.parametrize("more", [{"older_than": "0s"}, {"subject": "customer-1"}])
def test_pruning_goes_on_only_from_where_the_audit_says_that_it_began(store_url: str, more: Any) -> None:
    """Else a place from a dry run, or one that somebody made, would prune what nobody can find out later."""
    shop = Shop(store_url)

    async def scenario() -> None:
        for number in range(3):
            await shop.failed(f"order-{number}", subject="customer-1")
        dry = Prune(actor="ann", dry_run=True, **more)
        is_subject = "subject" in more
        place = cursor("", "{}") if is_subject else cursor("", 0, 0, "", 0)
        forged = cursor("made up", "{}") if is_subject else cursor("made up", 0, 0, "", 0)
        assert (await shop.console.prune(dry)).looked
        for after in (place, forged):
            with pytest.raises(ConfigError):
                await shop.console.prune(Prune(actor="ann", dry_run=False, after=after, **more))
        page = await shop.console.prune(Prune(actor="ann", dry_run=False, **more))
        while page.next is not None:
            with pytest.raises(ConfigError):
                await shop.console.prune(Prune(actor="bob", dry_run=False, after=page.next, **more))
            with pytest.raises(ConfigError):
                await shop.console.prune(Prune(actor="ann", dry_run=False, after=page.next, older_than="1ms"))
            page = await shop.console.prune(Prune(actor="ann", dry_run=False, after=page.next, **more))
        entries = (await shop.console.audit()).items
        assert [(entry.verb, entry.actor) for entry in entries if entry.verb == "prune"] == [("prune", "ann")]

    run_app(shop.app, scenario)
