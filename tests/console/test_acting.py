"""Actions from a console: by the table, once for each request, and on many runs at once."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from onceward import ConfigError, Context, NotFound, NotStorable, OncewardError, OutcomeUnknown, Permanent
from onceward.console.acting import AGAIN
from onceward.console.bulks import begun
from onceward.console.port import ACKNOWLEDGED, Action, RunQuery
from onceward.console.views import AgainView, BulkReply
from onceward.core.bulks import SILENT_MS
from onceward.core.errors import IdClash, PlanNeeded, StateConflict
from onceward.core.ids import composed, content_hash
from onceward.core.redact import HIDDEN
from onceward.core.states import UNDONE
from tests.console.shop import Shop
from tests.engine.running import run_app


def test_each_verb_does_what_the_table_says_and_leaves_its_entry(store_url: str) -> None:
    shop = Shop(store_url)

    async def scenario() -> None:
        run_id = await shop.failed("order-1")
        shop.is_mended = True
        reply = await shop.do(run_id, "retry")
        assert (reply.effect, reply.state, reply.attempt) == ("new attempt", "queued", 2)
        await shop.stands(run_id, "completed")

        with pytest.raises(PlanNeeded):
            await shop.do(run_id, "restart")
        plan = await shop.console.plan(run_id, Action(verb="restart", actor="ann", keep=["load"]))
        assert [(step.step, step.fate.value) for step in plan.steps] == [
            ("load", "kept"),
            ("pay", "runs again"),
        ]
        restarted = await shop.do(run_id, "restart", keep=["load"], plan=plan.token)
        assert (restarted.effect, restarted.generation) == ("new generation", 2)
        await shop.stands(run_id, "completed")

        edited: dict[str, Any] = {"payload": {"order": "order-9"}}
        plan = await shop.console.plan(run_id, Action(verb="replay", actor="ann", **edited))
        replayed = await shop.do(run_id, "replay", plan=plan.token, **edited)
        assert replayed.run_id != run_id
        await shop.stands(replayed.run_id, "completed")
        assert (await shop.console.run(replayed.run_id)).output == "order-9"

        nap = (await shop.app.start(shop.nap, "x")).run_id
        await shop.stands(nap, "sleeping")
        assert (await shop.do(nap, "cancel")).effect == "begin cancel"
        await shop.stands(nap, "cancelled")

        with pytest.raises(StateConflict):
            await shop.do(run_id, "resume")
        with pytest.raises(NotFound):
            await shop.do("run_00000000000000000000000000", "retry")
        verbs = [(entry.verb, entry.actor) for entry in (await shop.console.audit()).items]
        assert verbs == [("cancel", "ann"), ("replay", "ann"), ("restart", "ann"), ("retry", "ann")]

    run_app(shop.app, scenario)


def test_the_audit_is_paged_newest_first(store_url: str) -> None:
    shop = Shop(store_url)

    async def scenario() -> None:
        runs = [await shop.failed(f"order-{number}") for number in range(5)]
        for run_id in runs:
            await shop.do(run_id, "dismiss")

        seen: list[str] = []
        after = None
        for _ in range(5):
            page = await shop.console.audit(after=after, limit=2)
            seen += [entry.run_id for entry in page.items]
            after = page.next
            if after is None:
                break

        assert seen == runs[::-1]

    run_app(shop.app, scenario)


def test_a_request_is_done_once_whichever_process_it_reaches(store_url: str) -> None:
    shop, other = Shop(store_url), Shop(store_url)

    async def scenario() -> None:
        run_id = await shop.failed("order-1")
        async with other.app:
            replies = await asyncio.gather(
                *(
                    one.do(run_id, "restart", request_id="click-1", plan=ACKNOWLEDGED)
                    for one in (shop, other, shop, other)
                )
            )
            assert sorted(reply.is_duplicate for reply in replies) == [False, True, True, True]
            await shop.stands(run_id, "failed")

            again = await other.do(run_id, "restart", request_id="click-1", plan=ACKNOWLEDGED)
            assert (again.is_duplicate, again.generation) == (True, 2)
            second = await shop.do(run_id, "restart", request_id="click-2", plan=ACKNOWLEDGED)
            assert second.generation == 3
            with pytest.raises(StateConflict, match="One request is one action"):
                await other.do(run_id, "dismiss", request_id="click-1")

    run_app(shop.app, scenario)


def test_a_question_about_a_step_is_shown_and_answered_once(store_url: str) -> None:
    shop = Shop(store_url)

    @shop.app.step(unknown="ask")
    async def transfer(amount: int, api_key: str) -> str:
        raise OutcomeUnknown("the connection broke")

    @shop.app.workflow
    async def pay_out(ctx: Context) -> str:
        return await transfer(7, "key-of-the-bank")

    async def scenario() -> None:
        run_id = (await shop.app.start(pay_out)).run_id
        await shop.stands(run_id, "held")
        (step,) = (await shop.console.run(run_id)).steps
        assert step.question["arguments"] == {"amount": 7, "api_key": HIDDEN}
        assert step.question["answers"] == ["happened", "did_not_happen", "fail"]
        assert step.question["idempotency_key"] == step.idempotency_key

        with pytest.raises(OncewardError):
            await shop.do(run_id, "resume")
        with pytest.raises(NotStorable, match=r"step 'transfer' of run .* cannot be 12: str is expected"):
            await shop.do(run_id, "answer", answer="happened", result=12)
        given = {"answer": "happened", "result": "tx_1", "request_id": "click"}
        assert (await shop.do(run_id, "answer", **given)).is_duplicate is False
        assert (await shop.do(run_id, "answer", **given)).is_duplicate is True
        await shop.stands(run_id, "completed")
        assert (await shop.console.run(run_id)).output == "tx_1"

    run_app(shop.app, scenario)


def test_a_request_that_joined_does_not_begin_another_attempt_later(store_url: str) -> None:
    shop = Shop(store_url)

    async def scenario() -> None:
        nap = (await shop.app.start(shop.nap, "x")).run_id
        await shop.stands(nap, "sleeping")
        assert (await shop.do(nap, "retry", request_id="click")).effect == "join"

        assert (await shop.do(nap, "retry", request_id="click")).is_duplicate

    run_app(shop.app, scenario)


def test_a_run_whose_steps_were_undone_is_offered_no_retry_anywhere(store_url: str) -> None:
    shop = Shop(store_url)

    @shop.app.step
    async def reserve(order: str) -> str:
        return order

    @reserve.undo
    async def release(shelf: str) -> None: ...

    @shop.app.workflow(undo="on_failure")
    async def take(ctx: Context, order: str) -> None:
        await reserve(order)
        raise Permanent("sold out")

    async def scenario() -> None:
        run_id = (await shop.app.start(take, "order-1")).run_id
        await shop.stands(run_id, "failed")
        plain = await shop.failed("order-2")

        verbs = {view.verb: view for view in (await shop.console.run(run_id)).verbs}
        assert (verbs["retry"].is_allowed, verbs["restart"].is_allowed) == (False, True)
        assert (verbs["retry"].reply, verbs["retry"].hint) == (UNDONE.reply, UNDONE.hint)
        page = await shop.console.runs(RunQuery(problems=True))
        assert [(run.run_id, run.is_undone) for run in page.items] == [(plain, False), (run_id, True)]
        retry = Action(verb="retry", actor="ann")
        for is_dry in (True, False):
            told = await shop.console.bulk(RunQuery(workflow="take"), retry, dry_run=is_dry)
            assert (told.matched, told.refused, told.reasons) == (1, 1, [UNDONE.reply])
        await shop.do(run_id, "restart", plan=ACKNOWLEDGED)
        await shop.stands(run_id, "failed")

    run_app(shop.app, scenario)


def test_a_replay_is_made_once_for_each_request(store_url: str) -> None:
    shop = Shop(store_url)

    async def scenario() -> None:
        run_id = await shop.completed("order-1")
        first = await shop.do(run_id, "replay", request_id="click")
        second = await shop.do(run_id, "replay", request_id="click")

        assert (first.run_id, first.is_duplicate) == (second.run_id, False)
        assert second.is_duplicate

    run_app(shop.app, scenario)


def test_a_bulk_action_tells_beforehand_and_acts_once_on_each(store_url: str) -> None:
    shop = Shop(store_url)

    async def scenario() -> None:
        failed = [await shop.failed(f"order-{number}") for number in range(12)]
        await shop.completed("order-x")
        query, action = RunQuery(problems=True), Action(verb="retry", actor="ann", request_id="mend")

        dry = await shop.console.bulk(query, action, dry_run=True)
        assert (dry.matched, dry.done, dry.is_dry_run) == (12, 0, True)
        assert [run.run_id for run in dry.sample] == failed
        assert dry.again == [AgainView(step="pay", runs=12, is_outside=True)]
        assert shop.charged == 12

        shop.is_mended = True
        told: list[BulkReply] = []
        done = await shop.console.bulk(query, action, dry_run=False, progress=told.append)
        assert (done.matched, done.done, done.refused, done.is_over) == (12, 12, 0, True)
        assert [reply.done for reply in told] == sorted(reply.done for reply in told)
        assert told[-1] == done
        for run_id in failed:
            await shop.stands(run_id, "completed")

        assert await shop.console.bulk(query, action, dry_run=False) == done
        assert shop.charged == 24
        (entry,) = [entry for entry in (await shop.console.audit()).items if entry.verb == "bulk retry"]
        assert entry.run_id == ""

    run_app(shop.app, scenario)


def test_two_processes_share_a_bulk_action(store_url: str) -> None:
    shop, other = Shop(store_url), Shop(store_url)

    async def scenario() -> None:
        failed = [await shop.failed(f"order-{number}") for number in range(6)]
        unplanned = Action(verb="restart", actor="ann")
        dry = await shop.console.bulk(RunQuery(workflow="charge"), unplanned, dry_run=True)
        assert dry.reasons == [f"6 of the first 6: {AGAIN}"]
        refused = await shop.console.bulk(RunQuery(workflow="charge"), unplanned, dry_run=False)
        assert (refused.done, refused.refused, refused.reasons) == (0, 6, [AGAIN])
        action = Action(verb="restart", actor="ann", request_id="mend", plan=ACKNOWLEDGED)
        async with other.app:
            await asyncio.gather(
                *(
                    one.console.bulk(RunQuery(workflow="charge"), action, dry_run=False)
                    for one in (shop, other)
                )
            )
            for run_id in failed:
                await shop.stands(run_id, "failed")
                assert (await shop.console.run(run_id)).run.generation == 2

    run_app(shop.app, scenario)


def test_how_far_a_bulk_action_has_come_is_known_to_every_process(store_url: str) -> None:
    shop, other = Shop(store_url), Shop(store_url)

    async def scenario() -> None:
        failed = [await shop.failed(f"order-{number}") for number in range(4)]
        action = Action(verb="dismiss", actor="ann", request_id="mend")
        with pytest.raises(NotFound):
            await shop.console.bulk_progress("mend")
        done = await shop.console.bulk(RunQuery(problems=True), action, dry_run=False, run_ids=failed[:3])
        async with other.app:
            assert await other.console.bulk_progress("mend") == done
            assert (done.matched, done.done, done.actor) == (3, 3, "ann")
            assert await other.ids(problems=True) == [failed[3]]
            with pytest.raises(NotFound):
                await other.console.bulk_progress("nothing")

    run_app(shop.app, scenario)


def test_a_bulk_action_whose_process_is_gone_is_interrupted_and_goes_on_by_its_id(store_url: str) -> None:
    """What was done is not done twice, and the same id does not ask for something else."""
    shop = Shop(store_url)

    async def scenario() -> None:
        failed = [await shop.failed(f"order-{number}") for number in range(3)]
        query, action = RunQuery(problems=True), Action(verb="dismiss", actor="ann", request_id="mend")
        worker = shop.app.worker
        dead = begun(shop.app, "mend", query, action, None)
        assert await dead.take()
        await dead.tell(msgspec.structs.replace(dead.reply, matched=3, done=1))
        await shop.do(failed[0], "dismiss", request_id=content_hash(composed("mend", failed[0])))
        assert not (await shop.console.bulk_progress("mend")).is_over
        with pytest.raises(IdClash):
            await shop.console.bulk(RunQuery(workflow="charge"), action, dry_run=False)

        silent = msgspec.structs.replace(dead.row, told_at=worker.now_ms() - SILENT_MS - 1)
        assert worker.store.tell_bulk(silent)
        reply = await shop.console.bulk_progress("mend")
        assert (reply.is_over, reply.is_interrupted) == (True, True)
        assert reply.reasons[-1].startswith("Interrupted after 1 of 3: ")

        done = await shop.console.bulk(query, action, dry_run=False)
        assert (done.matched, done.done, done.is_interrupted) == (2, 2, False)
        assert await shop.console.bulk_progress("mend") == done
        assert await shop.ids(problems=True) == []

    run_app(shop.app, scenario)


@pytest.mark.parametrize("verb", ["replay", "restart"])
def test_a_bulk_action_that_goes_on_is_about_the_runs_that_it_found_first(store_url: str, verb: str) -> None:
    """What it made itself, and what came meanwhile, is none of them."""
    shop = Shop(store_url)

    async def scenario() -> None:
        found = [await shop.failed(f"order-{number}") for number in range(3)]
        query = RunQuery(workflow="charge", state="failed")
        plan = ACKNOWLEDGED if verb == "restart" else None
        action = Action(verb=verb, actor="ann", request_id="mend", plan=plan)
        dead = begun(shop.app, "mend", query, action, None)
        assert await dead.take()
        assert await dead.choose(found)
        first = await shop.do(found[0], verb, plan=plan, request_id=content_hash(composed("mend", found[0])))
        await shop.stands(first.run_id, "failed")
        late = await shop.failed("order-late")
        silent = msgspec.structs.replace(dead.row, told_at=shop.app.worker.now_ms() - SILENT_MS - 1)
        assert shop.app.worker.store.tell_bulk(silent)

        done = await shop.console.bulk(query, action, dry_run=False)

        assert (done.matched, done.done, done.refused) == (3, 3, 0)
        rows = await shop.app.runs(limit=100)
        if verb == "replay":
            assert sorted(row.replay_of for row in rows if row.replay_of) == sorted(found)
        else:
            assert {row.run_id for row in rows if row.generation == 2} == set(found)
        assert late in {row.run_id for row in rows if row.generation == 1}

    run_app(shop.app, scenario)


def test_one_request_id_is_one_bulk_action(store_url: str) -> None:
    """Also after it is over, at the same moment, in another process, and with the id of one run's action."""
    shop, other = Shop(store_url), Shop(store_url)

    async def scenario() -> None:
        failed = [await shop.failed(f"order-{number}") for number in range(3)]
        query = RunQuery(problems=True)

        def action(verb: str, request_id: str, **more: Any) -> Action:
            return Action(verb=verb, actor="ann", request_id=request_id, **more)

        async def refused(query: RunQuery, action: Action) -> OncewardError:
            with pytest.raises((StateConflict, IdClash)) as caught:
                await shop.console.bulk(query, action, dry_run=False)
            return caught.value

        async with other.app:
            for here, there in ((shop, shop), (shop, other)):
                request_id = f"both-{here is there}"
                told = await asyncio.gather(
                    here.console.bulk(query, action("replay", request_id), dry_run=False),
                    there.console.bulk(query, action("dismiss", request_id), dry_run=False),
                    return_exceptions=True,
                )
                assert sorted(type(one).__name__ for one in told) == ["BulkReply", "IdClash"]
        await shop.console.bulk(query, action("cancel", "monday"), dry_run=False)
        await refused(query, action("dismiss", "monday"))
        await refused(RunQuery(workflow="charge"), action("cancel", "monday"))
        await shop.console.bulk(query, action("replay", "tuesday", payload=1), dry_run=False)
        await refused(query, action("replay", "tuesday", payload=2))

        await shop.do(failed[0], "replay", request_id="one")
        assert "was replay of run" in (await refused(query, action("replay", "one"))).what
        with pytest.raises(StateConflict, match="was bulk cancel of many runs"):
            await shop.do(failed[0], "cancel", request_id="monday")

    run_app(shop.app, scenario)


@pytest.mark.parametrize("verb", ["retry", "restart", "replay", "cancel", "dismiss"])
def test_a_request_id_is_of_one_action_on_one_run(store_url: str, verb: str) -> None:
    shop, other = Shop(store_url), Shop(store_url)

    async def scenario() -> None:
        run_id, another = [await shop.failed(f"order-{number}") for number in range(2)]
        plan = {"plan": ACKNOWLEDGED} if verb == "restart" else {}
        asked = {"cancel": "restart", "replay": "dismiss"}.get(verb, "replay")
        if verb == "cancel":
            run_id = (await shop.app.start(shop.nap, "x")).run_id
        async with other.app:
            told = await asyncio.gather(
                *(one.do(run_id, verb, request_id="once", **plan) for one in (shop, other, shop, other))
            )
            assert len({one.run_id for one in told}) == 1
            assert sorted(one.is_duplicate for one in told) == [False, True, True, True]
            for one in (shop, other):
                with pytest.raises(StateConflict, match="The request 'once' was"):
                    await one.do(another, verb, request_id="once", **plan)
                with pytest.raises(StateConflict, match="The request 'once' was"):
                    await one.do(run_id, asked, request_id="once")
        rows = await shop.app.runs(limit=100)
        assert len([row for row in rows if row.replay_of]) == (1 if verb == "replay" else 0)

    run_app(shop.app, scenario)


def test_a_run_that_does_not_have_the_step_does_not_end_a_bulk_action(store_url: str) -> None:
    shop = Shop(store_url)

    async def scenario() -> None:
        await shop.completed("order-1")
        await shop.failed("order-2")
        action = Action(verb="replay", actor="ann", from_step="pay")
        dry = await shop.console.bulk(RunQuery(since=0), action, dry_run=True)
        assert [(one.step, one.is_outside) for one in dry.again] == [("pay", True)]
        done = await shop.console.bulk(RunQuery(since=0), action, dry_run=False)

        assert (done.matched, done.done, done.refused) == (2, 1, 1)
        restart = Action(verb="restart", actor="ann", from_step="pay")
        dry = await shop.console.bulk(RunQuery(since=0), restart, dry_run=True)
        assert dry.matched == 3
        assert any("'pay'" in reason for reason in dry.reasons)

    run_app(shop.app, scenario)


def test_who_joins_a_bulk_action_hears_at_once_how_far_it_is(store_url: str) -> None:
    shop = Shop(store_url)

    async def scenario() -> None:
        for number in range(3):
            await shop.failed(f"order-{number}")
        console = shop.console  # one: each has its own under way
        query, action = RunQuery(problems=True), Action(verb="dismiss", actor="ann", request_id="mend")
        joined: list[BulkReply] = []
        joining: list[asyncio.Task[BulkReply]] = []

        def begun(_: BulkReply) -> None:
            if not joining:
                second = console.bulk(query, action, dry_run=False, progress=joined.append)
                joining.append(asyncio.create_task(second))

        done = await console.bulk(query, action, dry_run=False, progress=begun)
        assert await joining[0] == done
        assert (joined[0].is_over, joined[-1]) == (False, done)

    run_app(shop.app, scenario)


def test_what_the_table_refuses_is_counted_with_its_reason(sqlite_url: str) -> None:
    shop = Shop(sqlite_url)

    async def scenario() -> None:
        await shop.completed("order-1")
        await shop.failed("order-2")
        action = Action(verb="dismiss", actor="ann")
        query = RunQuery(since=0)

        for is_dry in (True, False):
            reply = await shop.console.bulk(query, action, dry_run=is_dry)
            assert (reply.matched, reply.refused) == (2, 1)
            assert reply.reasons == ["the run is not an open problem"]

    run_app(shop.app, scenario)


@pytest.mark.parametrize(
    "action",
    [
        Action(verb="explode", actor="ann"),
        Action(verb="answer", actor="ann"),
        Action(verb="retry", actor="ann", answer="retry"),
        Action(verb="cancel", actor="ann", payload=None),
        Action(verb="retry", actor=""),
    ],
    ids=lambda action: action.verb,
)
def test_an_action_that_means_nothing_is_refused(sqlite_url: str, action: Action) -> None:
    shop = Shop(sqlite_url)

    async def scenario() -> None:
        run_id = await shop.failed("order-1")
        with pytest.raises(ConfigError):
            await shop.console.act(run_id, action)
        with pytest.raises(ConfigError):
            await shop.console.bulk(RunQuery(problems=True), action, dry_run=True)

    run_app(shop.app, scenario)


def test_a_bulk_action_needs_a_filter(sqlite_url: str) -> None:
    shop = Shop(sqlite_url)

    async def scenario() -> None:
        with pytest.raises(ConfigError, match="needs a filter"):
            await shop.console.bulk(RunQuery(limit=5), Action(verb="cancel", actor="ann"), dry_run=True)

    run_app(shop.app, scenario)
