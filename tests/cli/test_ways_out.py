"""What the commands offer where a run failed or is held, and what they say of what they would do."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceward import Context, Event, OutcomeUnknown, Permanent
from tests.cli.test_console_commands import Told
from tests.console.shop import Shop
from tests.engine.running import make_app, run_app
from tests.helpers import eventually_async


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """Give a store of the test's own."""
    return f"sqlite:///{tmp_path / 'shop.db'}"


def test_a_run_whose_steps_were_undone_is_to_be_restarted(sqlite_url: str) -> None:
    shop = Shop(sqlite_url)

    @shop.app.step
    async def reserve() -> str:
        return "shelf 7"

    @reserve.undo
    async def release(shelf: str) -> None: ...

    @shop.app.workflow(undo="on_failure")
    async def take(ctx: Context) -> None:
        await reserve()
        raise Permanent("sold out")

    async def scenario() -> str:
        run_id = (await shop.app.start(take)).run_id
        await shop.stands(run_id, "failed")
        return run_id

    run_id = run_app(shop.app, scenario)
    dead = Told("dead", url=sqlite_url, columns=None).text
    shown = Told("runs", "show", run_id, url=sqlite_url, columns=None).text
    dry = Told("runs", "retry", "--workflow", "take", "--dry-run", url=sqlite_url, columns=None).text
    done = Told("runs", "retry", "--workflow", "take", "--yes", url=sqlite_url, columns=None)

    for told in (dead, shown):
        assert "runs retry" not in told
        assert f"onceward runs restart {run_id}" in told
    assert "it was undone, and is not retried: run every step again" in dead
    assert "its steps were undone, so it is not retried: run every step again: what 'reserve' did" in shown
    assert "retry of 1 run; 1 would be refused: steps of it were undone" in dry
    assert (done.status, done.errors) == (1, "")


def test_an_answer_says_what_becomes_of_the_step_and_names_the_options(sqlite_url: str) -> None:
    shop = Shop(sqlite_url)

    @shop.app.step(unknown="ask")
    async def send_parcel() -> str:
        raise OutcomeUnknown("the connection broke")

    @shop.app.workflow
    async def ship(ctx: Context) -> str:
        return await send_parcel()

    async def scenario() -> str:
        run_id = (await shop.app.start(ship)).run_id
        await shop.stands(run_id, "held")
        return run_id

    run_id = run_app(shop.app, scenario)

    def answered(*more: str) -> Told:
        return Told("runs", "answer", run_id, *more, url=sqlite_url, columns=None)

    happened = answered("--with", "happened", "--result", '"p-1"', "--dry-run").text
    assert "send_parcel  open   kept\n" in happened
    assert "'send_parcel' does not run again: it counts as done, with the result of the answer." in happened
    again = answered("--with", "did_not_happen", "--dry-run").text
    assert "'send_parcel' runs again" in again
    refused = answered("--with", "retry")
    assert refused.status == 1
    assert "Answer 'happened' (with --result, what the step would have returned)" in refused.text
    assert "Give its result as well" in answered("--with", "happened").errors
    misused = answered("--with", "fail", "--result", "1")
    assert "or leave --result out" in misused.errors
    retried = Told("runs", "retry", run_id, url=sqlite_url, columns=None).text
    assert "answer --with retry goes on, answer --with fail gives up" in retried


def test_code_that_fits_comes_before_the_answer_to_a_mismatch(sqlite_url: str) -> None:
    shop = Shop(sqlite_url)
    run_id = run_app(shop.app, lambda: shop.failed("order-1"))
    app = make_app(sqlite_url)

    @app.workflow(on="order.paid")
    async def charge(ctx: Context, event: Event) -> None:
        await ctx.step.sleep("load", "1h")

    async def scenario() -> None:
        await app.run(run_id).retry()

        async def is_held() -> bool:
            return await app.run(run_id).state() == "held"

        await eventually_async(is_held)

    run_app(app, scenario)
    dead = Told("dead", url=sqlite_url, columns=None).text
    shown = Told("runs", "show", run_id, url=sqlite_url, columns=None).text

    assert "once code that fits is deployed: let it go on" in dead
    assert "once code that fits is deployed: go on with another attempt; the saved step is kept" in shown
