"""Promises: completed once from outside, by whoever has the token, and by nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from onceward import (
    AlreadyCompleted,
    App,
    ConfigError,
    Context,
    NotFound,
    NotStorable,
    PromiseOver,
    Retry,
    RunFailed,
    RunHandle,
    RunState,
    RunWasCancelled,
    StepFailed,
    SyncContext,
    WaitTimedOut,
)
from onceward.core.errors import ReplyLost
from tests.engine.running import evict, make_app, open_store, result_of, run_app
from tests.helpers import eventually_async

SECRET = "0123456789" * 4
OLDER = "9876543210" * 4


def promising_app(url: str, **settings: Any) -> App:
    return make_app(url, **{"promise_secret": SECRET, "public_url": "https://shop.example/", **settings})


async def has_left(app: App, handle: RunHandle[Any]) -> bool:
    is_waiting = await handle.state() is RunState.WAITING
    return is_waiting and handle.run_id not in app.worker.executions


def asking(app: App, sent: list[str], timeout: str | None = "7d") -> Any:
    @app.workflow()
    async def flow(ctx: Context) -> Any:
        approval = await ctx.step.promise("approval", timeout=timeout)
        await ctx.step.run("send mail", lambda: sent.append(approval.token))
        try:
            return await approval.result()
        except WaitTimedOut:
            return "nobody"
        except StepFailed as error:
            return [error.error_type, error.message]

    return flow


async def asked(app: App, flow: Any, sent: list[str]) -> tuple[RunHandle[Any], str]:
    """Start a run; give it when it waits, and the token that it sent."""
    handle = await app.start(flow)
    await eventually_async(lambda: has_left(app, handle))
    return handle, sent[-1]


@pytest.mark.parametrize("value", [{"by": "ann"}, None, False, 0, "", [1]])
def test_a_completion_is_what_the_run_gets(store_url: str, value: Any) -> None:
    app, sent = promising_app(store_url), list[str]()
    flow = asking(app, sent)

    async def scenario() -> Any:
        handle, token = await asked(app, flow, sent)
        assert (await handle.row()).reason == "waits for promise approval"
        completed = await app.complete_promise(token, value)
        assert (completed.run_id, completed.name, completed.is_duplicate) == (
            handle.run_id,
            "approval",
            False,
        )
        return await handle.result("10s")

    assert run_app(app, scenario) == value


def test_a_failure_is_raised_in_the_run(store_url: str) -> None:
    app, sent = promising_app(store_url), list[str]()
    flow = asking(app, sent)

    async def scenario() -> Any:
        handle, token = await asked(app, flow, sent)
        await app.fail_promise(token, "the budget is used up")
        return await handle.result("10s")

    assert run_app(app, scenario) == ["PromiseFailed", "the budget is used up"]


def test_it_is_completed_once_and_the_same_again_is_no_error(store_url: str) -> None:
    app, sent = promising_app(store_url), list[str]()
    flow = asking(app, sent)

    async def scenario() -> Any:
        handle, token = await asked(app, flow, sent)
        await app.complete_promise(token, "yes")
        assert (await app.complete_promise(token, "yes")).is_duplicate
        result = await handle.result("10s")
        assert (await app.complete_promise(token, "yes")).is_duplicate
        address = f"https://shop.example/promises/{token}"
        assert (await app.complete_promise(address, "yes")).is_duplicate
        with pytest.raises(AlreadyCompleted) as twice:
            await app.complete_promise(token, "no")
        with pytest.raises(AlreadyCompleted):
            await app.fail_promise(token, "yes")
        return [result, str(twice.value)]

    result, told = run_app(app, scenario)

    assert result == "yes"
    assert "'approval' was completed" in told
    assert '"yes"' in told


def test_of_many_that_complete_it_at_once_one_is_told_that_he_did(store_url: str) -> None:
    app, sent = promising_app(store_url), list[str]()
    flow = asking(app, sent)

    async def scenario() -> None:
        handle, token = await asked(app, flow, sent)
        outcomes = await asyncio.gather(
            *(app.complete_promise(token, number) for number in range(20)), return_exceptions=True
        )
        won = [number for number, one in enumerate(outcomes) if not isinstance(one, BaseException)]
        assert len(won) == 1
        assert all(isinstance(one, AlreadyCompleted) for one in outcomes if isinstance(one, BaseException))
        assert await handle.result("10s") == won[0]

    run_app(app, scenario)


@pytest.mark.parametrize(
    "forge", [lambda token: token[:-1], lambda token: token + "A", lambda _: "", str.lower]
)
def test_a_forged_token_is_not_found(store_url: str, forge: Callable[[str], str]) -> None:
    app, sent = promising_app(store_url), list[str]()
    flow = asking(app, sent)

    async def scenario() -> None:
        handle, token = await asked(app, flow, sent)
        with pytest.raises(NotFound):
            await app.complete_promise(forge(token), "mine")
        assert await handle.state() is RunState.WAITING

    run_app(app, scenario)


def test_nothing_in_the_store_is_the_token(store_url: str) -> None:
    app, sent = promising_app(store_url), list[str]()
    flow = asking(app, sent)
    run_app(app, lambda: asked(app, flow, sent))

    with open_store(store_url) as store:
        everything = repr(store.dump("run", "step", "promise", "event", "wait", "audit", "attempt"))

    assert sent[0] not in everything
    assert SECRET not in everything


def test_the_token_is_the_same_whenever_the_run_comes_back_and_unique_to_run_and_generation(
    store_url: str,
) -> None:
    app, sent = promising_app(store_url), list[str]()

    @app.workflow()
    async def flow(ctx: Context) -> str:
        approval = await ctx.step.promise("approval", timeout="7d")
        assert approval.url == f"https://shop.example/promises/{approval.token}"
        assert approval.token not in repr(approval)
        sent.append(approval.token)
        return str(await approval.result())

    async def scenario() -> None:
        handle, token = await asked(app, flow, sent)
        await evict(app, handle.run_id)
        await app.complete_promise(token, 1)
        await handle.result("10s")
        assert set(sent) == {token}
        await handle.restart()
        await eventually_async(lambda: has_left(app, handle))
        assert sent[-1] != token
        with pytest.raises(AlreadyCompleted):
            await app.complete_promise(token, 2)
        await app.complete_promise(sent[-1], 3)
        assert await handle.result("10s") == "3"
        _, another = await asked(app, flow, sent)
        assert another not in sent[:-1]

    run_app(app, scenario)


def test_it_expires_and_then_nobody_can_complete_it(store_url: str) -> None:
    app, sent = promising_app(store_url), list[str]()
    flow = asking(app, sent, "300ms")

    async def scenario() -> Any:
        handle, token = await asked(app, flow, sent)
        result = await handle.result("10s")
        with pytest.raises(PromiseOver):
            await app.complete_promise(token, "late")
        return result

    assert run_app(app, scenario) == "nobody"


def test_whoever_is_told_that_it_counts_is_told_the_truth(store_url: str) -> None:
    """Completions race the end of the time; the run gets exactly what was acknowledged."""
    app = promising_app(store_url)
    sent: dict[str, str] = {}

    @app.workflow()
    async def flow(ctx: Context) -> Any:
        approval = await ctx.step.promise("approval", timeout="100ms")
        sent[ctx.run_id] = approval.token
        return await approval.result(default="expired")

    async def scenario() -> None:
        async def race(number: int) -> str:
            handle = await app.start(flow)
            await eventually_async(lambda: has_token(handle))
            await asyncio.sleep(0.085 + 0.001 * number)
            try:
                await app.complete_promise(sent[handle.run_id], number)
            except PromiseOver:
                assert await handle.result("10s") == "expired"
                return "expired"
            assert await handle.result("10s") == number
            return "completed"

        await asyncio.gather(*(race(number) for number in range(30)))

    async def has_token(handle: RunHandle[Any]) -> bool:
        return handle.run_id in sent

    run_app(app, scenario)


@pytest.mark.parametrize("verb", ["cancel", "restart"])
def test_after_the_end_of_its_run_it_is_over(store_url: str, verb: str) -> None:
    app, sent = promising_app(store_url), list[str]()
    flow = asking(app, sent)

    async def scenario() -> str:
        handle, token = await asked(app, flow, sent)
        await (handle.restart(acknowledge=True) if verb == "restart" else handle.cancel())
        await eventually_async(lambda: is_changed(handle, token))
        with pytest.raises(PromiseOver) as caught:
            await app.complete_promise(token)
        return str(caught.value)

    async def is_changed(handle: RunHandle[Any], token: str) -> bool:
        return await handle.state() is RunState.CANCELLED or sent[-1] != token

    told = run_app(app, scenario)

    assert ("cancelled" if verb == "cancel" else "restarted") in told


def test_while_its_run_is_being_cancelled_only_what_the_clean_up_waits_for_counts(store_url: str) -> None:
    """Whoever is told that it counts, is told the truth: the code is told of nothing else any more."""
    app, tokens, got = promising_app(store_url), dict[str, str](), list[Any]()
    cleaning, gate = asyncio.Event(), asyncio.Event()

    async def clean() -> None:
        cleaning.set()
        await gate.wait()

    @app.workflow
    async def flow(ctx: Context) -> None:
        kept = await ctx.step.promise("kept")
        approval = await ctx.step.promise("approval")
        tokens.update(kept=kept.token, approval=approval.token)
        try:
            await approval.result()
        finally:
            await ctx.step.run("clean", clean)
            late = await ctx.step.promise("late")
            tokens.update(late=late.token)
            got.extend([await kept.result(), await late.result()])

    async def is_over(name: str) -> bool:
        with pytest.raises(PromiseOver, match="is being cancelled"):
            await app.complete_promise(tokens[name], "too late")
        return True

    async def scenario() -> tuple[Any, ...]:
        handle = await app.start(flow)
        await eventually_async(lambda: has_left(app, handle))
        await handle.cancel()
        assert await is_over("approval")
        await asyncio.wait_for(cleaning.wait(), 20)
        assert await is_over("approval")
        assert await is_over("kept")
        gate.set()
        await eventually_async(made)
        await app.complete_promise(tokens["late"], "late")  # made after the code was told
        await eventually_async(completed)
        with pytest.raises(RunWasCancelled):
            await handle.result("10s")
        return tuple(got)

    async def made() -> bool:
        return "late" in tokens

    async def completed() -> bool:
        try:
            await app.complete_promise(tokens["kept"], "kept")
        except PromiseOver:
            return False  # the clean-up does not wait for it yet
        return True

    assert run_app(app, scenario) == ("kept", "late")


def test_while_its_run_is_being_undone_it_is_over(store_url: str) -> None:
    app, tokens = promising_app(store_url), list[str]()
    undoing, gate = asyncio.Event(), asyncio.Event()

    @app.step
    async def reserve() -> int:
        return 1

    @reserve.undo
    async def release(count: int) -> None:
        undoing.set()
        await gate.wait()

    @app.workflow(undo="on_failure")
    async def flow(ctx: Context) -> None:
        await reserve()
        tokens.append((await ctx.step.promise("approval")).token)
        raise ValueError("no")

    async def scenario() -> str:
        handle = await app.start(flow)
        await asyncio.wait_for(undoing.wait(), 20)
        with pytest.raises(PromiseOver) as caught:
            await app.complete_promise(tokens[0])
        gate.set()
        with pytest.raises(RunFailed, match="no"):
            await handle.result("10s")
        return str(caught.value)

    assert "what it did is being undone" in run_app(app, scenario)


def test_a_restart_that_keeps_it_keeps_the_link(store_url: str) -> None:
    app, sent = promising_app(store_url), list[str]()
    flow = asking(app, sent)

    async def scenario() -> Any:
        handle, token = await asked(app, flow, sent)
        await handle.restart(plan=await handle.plan("restart", keep=["approval", "send mail"]))
        await eventually_async(lambda: is_waiting_again(handle))
        await app.complete_promise(token, "in time")
        return [await handle.result("10s"), sent == [token]]

    async def is_waiting_again(handle: RunHandle[Any]) -> bool:
        return await has_left(app, handle) and (await handle.row()).generation == 2

    assert run_app(app, scenario) == ["in time", True]


@pytest.mark.parametrize("is_cancelled", [False, True], ids=["waiting", "cancelled"])
def test_a_replay_makes_its_own_promise_where_the_originals_is_open(
    store_url: str, is_cancelled: bool
) -> None:
    app, sent = promising_app(store_url), list[str]()
    flow = asking(app, sent, timeout=None)

    async def scenario() -> list[Any]:
        handle, token = await asked(app, flow, sent)
        if is_cancelled:
            await handle.cancel()
            await eventually_async(lambda: _is_cancelled(handle))
        with pytest.raises(ConfigError, match="promise to that run"):
            await handle.replay(keep="approval")
        again = await handle.replay(drop="send mail")
        await eventually_async(lambda: has_left(app, again))
        assert len(set(sent)) == 2
        await app.complete_promise(sent[-1], "the copy's")
        if not is_cancelled:
            await app.complete_promise(token, "the original's")
            assert await handle.result("10s") == "the original's"
            copy = await handle.replay(keep="approval")
            assert await copy.result("10s") == "the original's"
        return [await again.result("10s"), len(set(sent))]

    async def _is_cancelled(handle: RunHandle[Any]) -> bool:
        return await handle.state() is RunState.CANCELLED

    assert run_app(app, scenario) == ["the copy's", 2]


def test_the_secret_can_be_changed_while_a_link_is_out(store_url: str) -> None:
    sent: list[str] = []
    older = promising_app(store_url, promise_secret=OLDER)
    flow = asking(older, sent)
    run_app(older, lambda: asked(older, flow, sent))
    newer = promising_app(store_url, promise_secret=f"{SECRET} {OLDER}")
    asking(newer, sent)

    async def scenario() -> Any:
        ((row),) = await newer.runs()
        await newer.complete_promise(sent[0], "in time")
        return await newer.run(row.run_id).result("10s")

    assert run_app(newer, scenario) == "in time"


def test_a_secret_that_was_lost_holds_the_run_and_says_so(store_url: str) -> None:
    sent: list[str] = []
    older = promising_app(store_url, promise_secret=OLDER)
    flow = asking(older, sent)
    run_app(older, lambda: asked(older, flow, sent))
    newer = promising_app(store_url)
    asking(newer, sent)

    async def scenario() -> str | None:
        ((row),) = await newer.runs()
        await newer.complete_promise(sent[0], "in time")
        await eventually_async(lambda: is_held(row.run_id))
        return (await newer.run(row.run_id).row()).reason

    async def is_held(run_id: str) -> bool:
        return await newer.run(run_id).state() is RunState.HELD

    assert "promise_secret" in str(run_app(newer, scenario))


def test_a_promise_without_a_secret_holds_its_run_which_goes_on_once_there_is_one(sqlite_url: str) -> None:
    """What came before it may have been a charge: the run must not fail for a setting, nor be undone."""
    charges: list[str] = []

    def having(**settings: Any) -> tuple[App, Any]:
        app = make_app(sqlite_url, **settings)

        @app.workflow(retry=Retry(max_tries=1))
        async def flow(ctx: Context) -> str:
            await ctx.step.run("charge", charges.append, "card")
            approval = await ctx.step.promise("approval", timeout="1h")
            return approval.token

        return app, flow

    bare, flow = having()

    async def held() -> tuple[str, str]:
        handle = await bare.start(flow)

        async def is_held() -> bool:
            return await handle.state() is RunState.HELD

        await eventually_async(is_held)
        return handle.run_id, str((await handle.row()).reason)

    run_id, reason = run_app(bare, held)
    assert reason.startswith("at step 'approval': A promise was made without the setting promise_secret.")
    assert "token_urlsafe(32)" in reason
    assert "ONCEWARD_PUBLIC_URL" in reason  # what is missing is asked for at once

    whole, _ = having(promise_secret=SECRET)

    async def goes_on() -> Any:
        await whole.run(run_id).answer("retry")
        return await whole.run(run_id).result("20s")

    assert run_app(whole, goes_on)
    assert charges == ["card"]


def test_without_a_public_address_it_has_a_token_and_no_url(sqlite_url: str) -> None:
    app = make_app(sqlite_url, promise_secret=SECRET)

    @app.workflow()
    async def flow(ctx: Context) -> str:
        approval = await ctx.step.promise("approval", timeout="1h")
        with pytest.raises(ConfigError) as caught:
            _ = approval.url
        return str(caught.value)

    assert "ONCEWARD_PUBLIC_URL" in result_of(app, flow)


def test_a_value_that_cannot_be_stored_completes_nothing(sqlite_url: str) -> None:
    app, sent = promising_app(sqlite_url), list[str]()
    flow = asking(app, sent)

    async def scenario() -> None:
        handle, token = await asked(app, flow, sent)
        with pytest.raises(NotStorable):
            await app.complete_promise(token, object())
        with pytest.raises(ConfigError):
            await app.fail_promise(token, 7)  # type: ignore[arg-type]
        with pytest.raises(ConfigError):
            await app.complete_promise(7)  # type: ignore[arg-type]
        assert await handle.state() is RunState.WAITING

    run_app(app, scenario)


def test_a_time_out_that_nobody_catches_fails_the_run(store_url: str) -> None:
    app = promising_app(store_url)

    @app.workflow()
    async def flow(ctx: Context) -> Any:
        return await (await ctx.step.promise("approval", timeout="50ms")).result()

    async def scenario() -> str:
        with pytest.raises(RunFailed) as caught:
            await (await app.start(flow)).result("10s")
        return str(caught.value)

    assert "WaitTimedOut" in run_app(app, scenario)


def test_a_plain_workflow_and_plain_code_have_the_same_verbs(store_url: str) -> None:
    app, sent = promising_app(store_url), list[str]()

    @app.workflow()
    def flow(ctx: SyncContext) -> Any:
        approval = ctx.step.promise("approval", timeout="1h")
        sent.append(approval.token)
        return [approval.result(), ctx.step.promise("other", timeout="20ms").result(default="late")]

    with app.sync as blocking:
        handle = blocking.start(flow)
        while not sent:
            handle.state()
        blocking.complete_promise(sent[0], "yes")
        result = handle.result("10s")
        with pytest.raises(AlreadyCompleted):
            blocking.fail_promise(sent[0], "no")

    assert result == ["yes", "late"]


async def is_later(app: App, at: int) -> bool:
    return app.now_ms > at


def test_who_completed_it_first_hears_so_when_the_reply_to_the_commit_is_lost(store_url: str) -> None:
    app, sent = promising_app(store_url), list[str]()
    flow = asking(app, sent)

    async def scenario() -> Any:
        handle, token = await asked(app, flow, sent)
        settle = app.worker.store.settle
        lost = iter((True, False, True))

        def without_a_reply(*asked: Any) -> Any:
            settled = settle(*asked)
            if next(lost, False):
                raise ReplyLost("lost")
            return settled

        app.worker.store.settle = without_a_reply  # type: ignore[method-assign, assignment]
        first = await app.complete_promise(token, "yes")
        at = app.now_ms
        await eventually_async(
            lambda: is_later(app, at)
        )  # one of the same millisecond is taken for the first
        second = await app.complete_promise(token, "yes")
        with pytest.raises(AlreadyCompleted):
            await app.complete_promise(token, "no")

        assert [first.is_duplicate, second.is_duplicate] == [False, True]
        return await handle.result("10s")

    assert run_app(app, scenario) == "yes"
