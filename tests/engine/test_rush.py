"""Deliveries first: in a rush their runs wait in the queue, for seconds at most, and none is lost."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any, cast

import pytest

from onceward import App, Context, Event
from onceward.runtime import rush
from onceward.runtime.claiming import KEPT_SHARE
from onceward.runtime.rush import (
    AFTER_CLAIM_MAX,
    CLAIM_MAX,
    HOLD_S,
    RUSH_S_MAX,
    UNDER_WAY_MIN,
    WINDOW_S,
    Rush,
)
from onceward.runtime.worker import Worker
from onceward.sources import GitHub
from tests.engine.running import make_app, run_app
from tests.helpers import eventually_async
from tests.pages import call

SECRET = "a secret of hub"


class Stand:
    """A worker of which only the clocks move."""

    def __init__(self) -> None:
        self.now = 100.0
        self.cpu = 7.0
        self.planned: list[float] = []
        self.context = contextvars.Context()
        self.loop = self.committer = self
        self.rush = Rush(cast("Worker", self), lambda: self.cpu)

    def elapsed_s(self) -> float:
        return self.now

    def call_later(self, after_s: float, call: Any, context: contextvars.Context) -> None:
        assert context is self.context
        self.planned.append(after_s)
        call()

    def claim(self) -> None:
        pass

    def passes(self, seconds: float, *, share: float, under_way: int) -> None:
        """Let time pass in which so many deliveries are under way and so much of a core is used."""
        until = self.now + seconds
        while self.now < until - 1e-9:
            self.now += WINDOW_S / 2
            self.cpu += share * WINDOW_S / 2
            for _ in range(under_way):
                self.rush.came(is_delivery=True)
            for _ in range(under_way):
                self.rush.went(is_delivery=True)


def test_a_rush_takes_many_deliveries_and_all_of_the_cpu() -> None:
    for share, under_way, is_rush in (
        (1.0, UNDER_WAY_MIN, True),
        (1.0, UNDER_WAY_MIN - 1, False),
        (0.4, 4 * UNDER_WAY_MIN, False),
        (0.0, 4 * UNDER_WAY_MIN, False),
    ):
        stand = Stand()
        assert not stand.rush.is_on()
        stand.passes(1, share=share, under_way=under_way)
        assert stand.rush.is_on() is is_rush, (share, under_way)
        assert stand.rush.claims_max(64) == (CLAIM_MAX if is_rush else 64)


@pytest.mark.parametrize(("share", "is_full"), [(1.0, True), (1.6, True), (0.8, False)])
def test_a_core_is_full_when_hardly_anything_is_waited_for(share: float, is_full: bool) -> None:
    stand = Stand()
    assert not stand.rush.is_core_full()
    stand.passes(1, share=share, under_way=1)
    assert stand.rush.is_core_full() is is_full
    stand.now += 1
    stand.rush.came(is_delivery=True)
    assert not stand.rush.is_core_full(), "what was used over a long time says nothing about now"


def test_what_is_no_delivery_makes_no_rush() -> None:
    stand = Stand()
    for _ in range(200):
        stand.now += WINDOW_S / 5
        stand.cpu += WINDOW_S / 5
        for _ in range(UNDER_WAY_MIN):
            stand.rush.came(is_delivery=False)
    assert not stand.rush.is_on()


def test_a_rush_is_over_when_nothing_renews_it(caplog: pytest.LogCaptureFixture) -> None:
    stand = Stand()
    with caplog.at_level("INFO", "onceward.worker"):
        stand.passes(1, share=1, under_way=64)
    assert caplog.messages == ["a rush of deliveries: for 8 s at most their runs wait in the queue"]
    assert stand.rush.is_on()
    stand.now += HOLD_S
    assert not stand.rush.is_on()
    assert stand.rush.claims_max(64) == 64, "nobody is held up"
    stand.rush.came(is_delivery=True)
    assert stand.rush.claims_max(64) == AFTER_CLAIM_MAX, "somebody would be"
    stand.rush.caught_up()
    assert stand.rush.claims_max(64) == 64, "there is nothing to catch up with"


def test_in_a_rush_a_few_are_claimed_now_and_then() -> None:
    stand = Stand()
    stand.passes(1, share=1, under_way=64)
    assert stand.rush.claims_max(64) == CLAIM_MAX
    assert [stand.rush.claims_max(64) for _ in range(3)] == [0, 0, 0]
    assert stand.planned == [HOLD_S] * 3, "each time the last plan had been carried out"
    stand.passes(HOLD_S, share=1, under_way=64)
    assert stand.rush.claims_max(3) == 3


def test_a_rush_lasts_so_long_and_then_what_waits_has_its_turn() -> None:
    stand = Stand()
    stand.passes(RUSH_S_MAX - 1, share=1, under_way=64)
    assert stand.rush.is_on()
    stand.passes(2, share=1, under_way=64)
    assert not stand.rush.is_on()
    stand.passes(3 * RUSH_S_MAX, share=1, under_way=64)
    assert not stand.rush.is_on(), "the queue has not been empty since"
    stand.rush.caught_up()
    stand.passes(1, share=1, under_way=64)
    assert stand.rush.is_on()
    stand.rush.caught_up()  # the few that were claimed were all there were
    stand.passes(RUSH_S_MAX, share=1, under_way=64)
    assert not stand.rush.is_on(), "a rush that is on goes on as the same"


# --- in an app ---------------------------------------------------------------------------------------


def _make(url: str) -> tuple[App, GitHub]:
    app = make_app(url)
    hub = app.source(GitHub(secrets=SECRET))

    @app.workflow(on=hub["*"])
    async def note(ctx: Context, event: Event) -> str:
        return str(await ctx.step.run("note", _note, event.id))

    return app, hub


async def _note(value: str) -> str:
    return value


async def _deliver(app: App, hub: GitHub, number: int) -> None:
    body = b'{"action": "opened", "number": %d}' % number
    headers = {
        **hub.sign(body, app.worker.now_ms()),
        "X-GitHub-Event": "issues",
        "X-GitHub-Delivery": f"d-{number}",
    }
    status, text = await call(app.asgi(), "POST", f"/hooks/{hub.name}", headers, body)
    assert status == 202, text


async def _all_completed(app: App, count: int) -> bool:
    runs = await app.runs(limit=1_000)
    return [str(run.state) for run in runs] == ["completed"] * count


def test_runs_of_a_rush_are_stored_at_once_and_run_soon_after(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many clients at once; whatever else this machine does, the process counts as busy."""
    monkeypatch.setattr(rush, "BUSY_MIN", -1.0)
    monkeypatch.setattr(rush, "WINDOW_S", 0.02)
    app, hub = _make(store_url)
    seen: list[bool] = []

    async def scenario() -> None:
        numbers = iter(range(600))

        async def client() -> None:
            for number in numbers:
                await _deliver(app, hub, number)
                seen.append(app.worker.rush.is_on())

        await asyncio.gather(*(client() for _ in range(4 * UNDER_WAY_MIN)))
        assert any(seen), "there was a rush"
        assert len(await app.runs(limit=1_000)) == 600, "each has its run"
        await eventually_async(lambda: _all_completed(app, 600), what="every run is finished")
        assert not app.worker.rush.is_on()

    run_app(app, scenario, within_s=60)


def test_in_a_rush_that_does_not_end_runs_still_come_to_their_ends(
    store_url: str,
) -> None:
    """What waits is claimed in turn, what is started begins at once, what slept is woken."""
    app, hub = _make(store_url)

    @app.workflow
    async def sleeper(ctx: Context) -> str:
        await ctx.step.sleep("a while", "200ms")
        return "woken"

    async def scenario() -> None:
        app.worker.rush._until = float("inf")
        slept = await app.start(sleeper)
        assert slept.run_id in app.worker.executions
        await asyncio.gather(*(_deliver(app, hub, number) for number in range(3 * CLAIM_MAX)))
        assert await slept.result() == "woken"
        await eventually_async(lambda: _all_completed(app, 3 * CLAIM_MAX + 1), what="every run is finished")

    run_app(app, scenario)


def test_a_rush_that_had_nothing_more_to_claim_is_not_on_the_account_of_the_next(store_url: str) -> None:
    """It is claimed until after its end: where the queue was empty before, nothing else would tell."""
    app, hub = _make(store_url)

    async def scenario() -> None:
        rush, elapsed_s = app.worker.rush, app.worker.elapsed_s
        rush._until, rush._began_at = float("inf"), elapsed_s() - RUSH_S_MAX
        await _deliver(app, hub, 1)
        await eventually_async(lambda: _all_completed(app, 1), what="the run is finished")
        at = elapsed_s() + 2 * HOLD_S
        await eventually_async(lambda: _is(rush._claimed_at > at), what="a claim that finds nothing")
        rush._until = elapsed_s()
        await eventually_async(lambda: _is(rush._began_at is None), what="the rush is made up for")

    run_app(app, scenario)


async def _is(value: bool) -> bool:
    return value


def test_a_process_that_only_accepts_has_no_rush(
    store_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rush, "BUSY_MIN", -1.0)
    app, hub = _make(store_url)

    async def scenario() -> None:
        await app.open(runs=False)
        for begin in range(0, 10 * UNDER_WAY_MIN, 2 * UNDER_WAY_MIN):
            await asyncio.gather(*(_deliver(app, hub, begin + more) for more in range(2 * UNDER_WAY_MIN)))
        await app.close()

    with caplog.at_level("INFO", "onceward.worker"):
        asyncio.run(scenario())
    assert "a rush of deliveries" not in caplog.text


def test_of_the_slots_a_share_is_kept_for_what_waits(store_url: str) -> None:
    """In an overload that lasts, runs that begin at once would take every slot that becomes free."""
    app = make_app(store_url, concurrency=2 * KEPT_SHARE)
    hub = app.source(GitHub(secrets=SECRET))
    gate = asyncio.Event()

    @app.workflow(on=hub["*"])
    async def note(ctx: Context, event: Event) -> None:
        await ctx.step.run("pass", gate.wait)

    @app.workflow
    async def started(ctx: Context) -> None:
        await ctx.step.run("pass", gate.wait)

    async def scenario() -> None:
        rush, executions = app.worker.rush, app.worker.executions
        rush._until = rush._claimed_at = float("inf")  # nothing is claimed meanwhile
        await _deliver(app, hub, 1)
        handles = [await app.start(started) for _ in range(2 * KEPT_SHARE)]
        assert list(executions) == [handle.run_id for handle in handles[:-2]]
        rush._until = 0.0
        waited = (await app.runs(workflow="note"))[0].run_id
        await eventually_async(lambda: _is(waited in executions), what="what waited begins first")
        gate.set()
        await eventually_async(lambda: _all_completed(app, 2 * KEPT_SHARE + 1), what="every run is finished")

    run_app(app, scenario)
