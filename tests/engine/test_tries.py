"""Tries: how a failing step is tried again, and what counts as its failure."""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import functools
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from onceward import (
    App,
    Context,
    OutcomeUnknown,
    Permanent,
    Retry,
    RetryLater,
    RunFailed,
    RunHandle,
    RunState,
    StepFailed,
    SyncContext,
)
from tests.engine.running import ONCE, SOON, evict, make_app, result_of, run_app
from tests.helpers import eventually, eventually_async


class Failing:
    """A body that fails as told, and notes when it was called."""

    def __init__(self, *failures: BaseException | None) -> None:
        self.failures = list(failures)
        self.at: list[float] = []

    async def __call__(self) -> int:
        self.at.append(time.monotonic())
        failure = self.failures[min(len(self.at), len(self.failures)) - 1]
        if failure is not None:
            raise failure
        return len(self.at)

    @property
    def gaps_ms(self) -> list[float]:
        return [1000 * (later - earlier) for earlier, later in zip(self.at, self.at[1:], strict=False)]


def run_step(app: App, body: Callable[..., Any], **options: Any) -> Any:
    """Run a workflow of the one step *body*; give its result, or what it failed with."""

    @app.workflow()
    async def flow(ctx: Context) -> Any:
        try:
            return await ctx.step.run("the step", body, **options)
        except StepFailed as failure:
            return {"type": failure.error_type, "message": failure.message, "tries": failure.tries}

    return result_of(app, flow)


def test_a_failing_step_is_tried_again_until_it_works(store_url: str) -> None:
    body = Failing(ValueError("1"), ValueError("2"), None)

    assert run_step(make_app(store_url), body, retry=SOON) == 3


def test_the_tries_end_and_the_failure_is_raised_in_the_workflow(store_url: str) -> None:
    body = Failing(ValueError("always"))

    failed = run_step(make_app(store_url), body, retry=Retry(max_tries=3, base="1ms"))

    assert failed == {"type": "ValueError", "message": "always", "tries": 3}
    assert len(body.at) == 3


def test_waits_between_tries_are_a_share_of_the_growing_bound(sqlite_url: str) -> None:
    body = Failing(ValueError("always"))

    run_step(make_app(sqlite_url), body, retry=Retry(max_tries=5, base="40ms", factor=2, cap="100ms"))

    # Full jitter has no lower bound; what commits and a busy machine take comes on top.
    for gap, bound in zip(body.gaps_ms, (40, 80, 100, 100), strict=True):
        assert gap < bound + 250


def test_a_body_that_asks_for_a_delay_gets_at_least_that(sqlite_url: str) -> None:
    body = Failing(RetryLater("150ms"), RetryLater(0.15), None)

    assert run_step(make_app(sqlite_url), body, retry=Retry(base="1ms")) == 3
    assert min(body.gaps_ms) >= 150


class HttpError(Exception):
    """As clients raise it: the answer is on the error."""

    def __init__(self, header: str) -> None:
        super().__init__("429")
        self.response = type("Answer", (), {"headers": {"Retry-After": header}})()


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_an_answers_retry_after_is_respected(sqlite_url: str, form: str) -> None:
    header = "1" if form == "seconds" else email.utils.formatdate(time.time() + 2, usegmt=True)
    body = Failing(HttpError(header), None)

    assert run_step(make_app(sqlite_url), body, retry=Retry(base="1ms")) == 2
    assert body.gaps_ms[0] >= 950


def test_what_is_permanent_is_not_tried_again_by_step_or_run(sqlite_url: str) -> None:
    app = make_app(sqlite_url)
    body = Failing(Permanent("card is stolen"))

    @app.workflow(retry=SOON)
    async def flow(ctx: Context) -> None:
        try:
            await ctx.step.run("pay", body, retry=SOON)
        finally:
            await ctx.step.sleep("recalled from here on", "60ms")

    with pytest.raises(RunFailed, match="card is stolen"):
        result_of(app, flow)

    assert len(body.at) == 1


def test_policies_may_differ_by_exception_type(sqlite_url: str) -> None:
    policy = Retry(
        max_tries=4,
        base="1ms",
        only=(OSError, KeyError),
        never=(FileNotFoundError,),
        on={KeyError: Retry(max_tries=2, base="1ms")},
    )
    counts = {}
    for failure in (
        OSError("a"),
        ConnectionError("b"),
        FileNotFoundError("c"),
        KeyError("d"),
        ValueError("e"),
    ):
        body = Failing(failure)
        run_step(make_app(sqlite_url), body, retry=policy)
        counts[type(failure).__name__] = len(body.at)

    assert counts == {
        "OSError": 4,
        "ConnectionError": 4,
        "FileNotFoundError": 1,
        "KeyError": 2,
        "ValueError": 1,
    }


def test_no_try_begins_after_the_total(sqlite_url: str) -> None:
    body = Failing(RetryLater("100ms"))

    failed = run_step(make_app(sqlite_url), body, retry=Retry(max_tries=100, base="1ms", total="350ms"))

    assert 2 <= failed["tries"] <= 4
    assert 1000 * (body.at[-1] - body.at[0]) <= 400


def test_the_total_begins_anew_with_an_operators_retry(sqlite_url: str) -> None:
    app = make_app(sqlite_url)
    body = Failing(ValueError("1"), ValueError("2"), ValueError("3"), None)

    @app.workflow()
    async def flow(ctx: Context) -> int:
        return await ctx.step.run("pay", body, retry=Retry(max_tries=2, base="1ms", total="300ms"))

    async def scenario() -> int:
        handle = await app.start(flow)
        with pytest.raises(RunFailed):
            await handle.result()
        await asyncio.sleep(0.4)
        await handle.retry()
        return await handle.result()

    assert run_app(app, scenario) == 4


def test_a_failed_try_is_durable_before_the_next_begins(store_url: str) -> None:
    app = make_app(store_url)
    saved: list[int] = []

    @app.workflow()
    async def flow(ctx: Context) -> int:
        async def body() -> int:
            rows = await app.run(ctx.run_id).steps()
            saved.append(sum(row.tries for row in rows))
            if len(saved) < 4:
                raise ValueError
            return ctx.try_number

        return await ctx.step.run("count", body, retry=SOON)

    assert result_of(app, flow) == 4
    assert saved == [0, 1, 2, 3]


def test_tries_are_counted_across_goes_and_never_exceed_the_most(store_url: str) -> None:
    app = make_app(store_url)
    tries: list[int] = []

    @app.workflow()
    async def flow(ctx: Context) -> None:
        def body() -> None:
            tries.append(ctx.try_number)
            raise ValueError

        await ctx.step.run("count", body, retry=Retry(max_tries=3, base="200ms", cap="200ms"))

    async def scenario() -> None:
        handle = await app.start(flow)
        for count in (1, 2):
            await eventually_async(functools.partial(tried, app, handle.run_id, count))
            await evict(app, handle.run_id)
        with pytest.raises(RunFailed, match="after 3 tries"):
            await handle.result()

    run_app(app, scenario)

    assert tries == [1, 2, 3]


async def tried(app: App, run_id: str, count: int) -> bool:
    rows = await app.run(run_id).steps()
    return bool(rows) and rows[0].tries >= count


def test_a_long_wait_for_the_next_try_leaves_memory(store_url: str) -> None:
    """Also where another branch sleeps: the run is in a back-off, which an operator can shorten."""
    app = make_app(store_url)
    body = Failing(RetryLater("1h"), None)

    @app.workflow()
    async def flow(ctx: Context) -> list[int]:
        async def nap() -> int:
            await ctx.step.sleep("nap", "150ms")
            return 0

        return list(await asyncio.gather(ctx.step.run("pay", body), nap()))

    async def scenario() -> list[int]:
        handle = await app.start(flow)
        await eventually_async(lambda: has_napped_and_left(handle))
        await handle.retry()
        return await handle.result()

    async def has_napped_and_left(handle: RunHandle[Any]) -> bool:
        has_napped = any(row.name == "nap" and row.state == "done" for row in await handle.steps())
        is_away = handle.run_id not in app.worker.executions
        return has_napped and is_away and await handle.state() is RunState.BACKOFF

    assert run_app(app, scenario) == [2, 0]


# --- what counts as a failure ------------------------------------------------------------------------


class TwoArguments(Exception):
    def __init__(self, code: int, detail: str) -> None:
        super().__init__(f"{code} {detail}")


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Holding(Exception):
    """Holds what cannot be copied or rebuilt."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.file = sys.stdout
        super().__init__("holds a lock", self.lock)


def cyclic() -> Exception:
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    return one


FAILURES: dict[str, tuple[Callable[[], BaseException], str]] = {
    "two arguments": (lambda: TwoArguments(7, "x"), "TwoArguments"),
    "unprintable": (Unprintable, "Unprintable"),
    "holding a lock": (Holding, "Holding"),
    "a cycle of causes": (cyclic, "ValueError"),
    "a group": (lambda: ExceptionGroup("many", [ValueError("a"), KeyError("b")]), "ExceptionGroup"),
    "a group of base exceptions": (
        lambda: BaseExceptionGroup("many", [KeyboardInterrupt(), ValueError("b")]),
        "BaseExceptionGroup",
    ),
    "10 MB of text": (lambda: ValueError("x" * 10_000_000), "ValueError"),
    "half a surrogate pair": (lambda: ValueError("\ud800"), "ValueError"),
    "an unknown outcome": (lambda: OutcomeUnknown("who knows"), "OutcomeUnknown"),
    "CancelledError": (asyncio.CancelledError, "CancelledError"),
    "KeyboardInterrupt": (KeyboardInterrupt, "KeyboardInterrupt"),
    "SystemExit": (lambda: SystemExit(3), "SystemExit"),
    "GeneratorExit": (GeneratorExit, "GeneratorExit"),
    "BaseException": (lambda: BaseException("bare"), "BaseException"),
    "StopIteration": (lambda: StopIteration(7), "RuntimeError"),
    "TimeoutError": (lambda: TimeoutError("theirs"), "TimeoutError"),
}


@pytest.mark.parametrize("is_plain", [False, True], ids=["async", "plain"])
@pytest.mark.parametrize("name", FAILURES)
def test_whatever_a_body_raises_is_its_steps_failure(sqlite_url: str, name: str, is_plain: bool) -> None:
    make, type_name = FAILURES[name]
    if is_plain and name == "GeneratorExit":
        type_name = "RuntimeError"  # as for StopIteration: it would end the coroutine that awaits it
    app = make_app(sqlite_url)
    calls = 0

    def plain() -> None:
        nonlocal calls
        calls += 1
        raise make()

    async def not_plain() -> None:
        plain()

    @app.workflow()
    async def flow(ctx: Context) -> list[Any]:
        body: Any = plain if is_plain else not_plain
        try:
            await ctx.step.run("the step", body, timeout="20s", retry=Retry(max_tries=2, base="1ms"))
        except StepFailed as failure:
            after = await ctx.step.run("after", len, "four")
            return [
                failure.error_type.rpartition(".")[2],
                len(failure.message) < 20_000,
                failure.__cause__,
                after,
            ]
        return []

    async def scenario() -> Any:
        handle = await app.start(flow)
        result = await handle.result()
        return result, [(row.state.value, row.tries) for row in await handle.steps()]

    assert run_app(app, scenario) == ([type_name, True, None, 4], [("failed", 2), ("done", 1)])
    assert calls == 2


def test_a_socket_in_an_error_harms_nobody(sqlite_url: str) -> None:
    with contextlib.closing(socket.socket()) as left:
        failed = run_step(make_app(sqlite_url), Failing(ValueError("broken", left)), retry=ONCE)

    assert failed["tries"] == 1


def test_a_caught_failure_is_the_same_after_a_recall(store_url: str) -> None:
    app = make_app(store_url)
    body = Failing(ValueError("no"))
    seen: list[tuple[Any, ...]] = []

    @app.workflow()
    async def flow(ctx: Context) -> None:
        try:
            await ctx.step.run("pay", body, retry=Retry(max_tries=2, base="1ms"))
        except StepFailed as error:
            seen.append(
                (str(error), error.error_type, error.message, error.tries, error.step, error.__cause__)
            )
        await ctx.step.sleep("nap", "60ms")

    result_of(app, flow)

    assert len(body.at) == 2
    assert len(seen) >= 2
    assert len(set(seen)) == 1


# --- time-outs ----------------------------------------------------------------------------------------


def test_a_try_that_takes_too_long_is_cut_off_and_tried_again(store_url: str) -> None:
    app = make_app(store_url)
    ended: list[str] = []

    async def slow() -> str:
        try:
            await asyncio.sleep(30)
        finally:
            ended.append("cut off")
        return "never"

    failed = run_step(app, slow, timeout="30ms", retry=Retry(max_tries=2, base="1ms"))

    assert failed["type"] == "onceward.StepTimedOut"
    assert "ran longer than 30 ms" in failed["message"]
    assert ended == ["cut off", "cut off"]


def test_a_plain_body_that_takes_too_long_is_abandoned_and_its_result_dropped(store_url: str) -> None:
    app = make_app(store_url)
    gate = threading.Event()
    calls: list[int] = []

    def stuck() -> str:
        calls.append(len(calls) + 1)
        if calls[-1] == 1:
            gate.wait(30)
            return "the abandoned one"
        return "the second one"

    @app.workflow()
    async def flow(ctx: Context) -> str:
        result = await ctx.step.run("slow", stuck, timeout="50ms", retry=SOON)
        gate.set()
        await ctx.step.sleep("nap", "60ms")
        return result

    assert result_of(app, flow) == "the second one"


def test_a_timeout_of_the_bodys_own_is_an_ordinary_failure(sqlite_url: str) -> None:
    async def own() -> None:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(30)

    failed = run_step(make_app(sqlite_url), own, timeout="20s", retry=ONCE)

    assert failed["type"] == "TimeoutError"


def test_abandoned_bodies_do_not_shrink_the_pool(sqlite_url: str) -> None:
    """B088: time-outs near the end of many blocking bodies, then as many at once as ever."""
    app = make_app(sqlite_url, threads=4, concurrency=50)
    meeting = threading.Barrier(4)

    @app.workflow()
    async def blocks(ctx: Context, ms: int) -> None:
        gate = threading.Event()
        with contextlib.suppress(StepFailed):
            await ctx.step.run("block", gate.wait, ms / 1000, timeout="20ms", retry=ONCE)

    @app.workflow()
    async def meets(ctx: Context) -> int:
        return await ctx.step.run("meet", meeting.wait, 10, retry=ONCE)

    async def scenario() -> list[int]:
        for handle in [await app.start(blocks, 10 + n % 20) for n in range(100)]:
            await handle.result()
        # Only if all four run at once does any of them return.
        return sorted([await handle.result() for handle in [await app.start(meets) for _ in range(4)]])

    assert run_app(app, scenario) == [0, 1, 2, 3]


def test_a_job_that_waits_for_a_stuck_thread_gets_another(sqlite_url: str) -> None:
    app = make_app(sqlite_url, threads=1)
    gate = threading.Event()

    @app.workflow()
    async def stuck(ctx: Context) -> None:
        with contextlib.suppress(StepFailed):
            await ctx.step.run("block", gate.wait, 30, timeout="300ms", retry=ONCE)

    @app.workflow()
    async def waits(ctx: Context) -> str:
        return await ctx.step.run("quick", lambda: "ran")

    async def scenario() -> str:
        await app.start(stuck)
        await eventually_async(lambda: has_waiter(gate))
        result = await (await app.start(waits)).result("10s")
        assert not gate.is_set()
        gate.set()
        return result

    assert run_app(app, scenario) == "ran"


async def has_waiter(gate: threading.Event) -> bool:
    return bool(gate._cond._waiters)  # type: ignore[attr-defined]


def test_threads_end_with_the_app(sqlite_url: str) -> None:
    before = set(threading.enumerate())
    app = make_app(sqlite_url)

    @app.workflow()
    def flow(ctx: SyncContext) -> int:
        return ctx.step.run("plain", len, "four") + ctx.step.run("async", asyncio.sleep, 0, 4)

    async def scenario() -> int:
        return sum([await handle.result() for handle in [await app.start(flow) for _ in range(20)]])

    assert run_app(app, scenario) == 160
    eventually(lambda: not own_threads() - before, what="threads of the app end")


def own_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("onceward")}
