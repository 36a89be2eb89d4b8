"""An app lives in a test: delivered to through the real receiver, in time that the test moves."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from onceward import App, Context, Event, SyncContext
from onceward.core.errors import ConfigError
from onceward.sources import Stripe
from onceward.testing import AppInTest, Outside, Unending, delivery

PAID = "checkout.session.completed"


def shop() -> App:
    app = App("sqlite:///never-made.db")
    stripe = app.source(Stripe(secrets="whsec_for_tests"))

    @app.workflow(on=stripe[PAID])
    async def fulfil(ctx: Context, event: Event) -> str:
        async with httpx.AsyncClient() as client:
            pass
        await ctx.step.run("charge", charge, event.payload["data"]["object"]["client_reference_id"])
        await ctx.step.sleep("cool", "3d")
        await ctx.step.run("ship", ship)
        del client
        return "shipped"

    async def charge(order: str) -> None:
        async with httpx.AsyncClient() as client:
            await client.post("https://pay.example/charges", json={"order": order})

    async def ship() -> None:
        async with httpx.AsyncClient() as client:
            await client.post("https://ship.example/parcels", json={})

    return app


@pytest.fixture
def outside() -> Outside:
    outside = Outside()
    outside.http.post("https://pay.example/charges", {"id": "ch_1"})
    outside.http.post("https://ship.example/parcels", {"id": "p_1"})
    return outside


def test_a_delivery_goes_through_the_real_receiver_and_time_passes_when_the_test_says(
    outside: Outside,
) -> None:
    with AppInTest(shop(), outside=outside) as test:
        begun = test.now
        test.deliver("stripe", PAID, set={"data.object.client_reference_id": "A-7"})

        assert [effect.detail for effect in outside.effects] == [
            'https://pay.example/charges {"order":"A-7"}'
        ]
        test.advance("2d 23h")
        assert test.runs()[0].state == "sleeping"
        test.advance("2h")
        assert test.wait(test.run("fulfil").result()) == "shipped"
        assert test.now - begun == timedelta(days=3, hours=1)
        assert outside.count("POST https://ship.example/parcels") == 1
        assert [str(step.key) for step in test.wait(test.run().steps())] == ["charge", "cool", "ship"]

    assert not Path("never-made.db").exists()


def test_a_crash_loses_what_was_not_saved_and_nothing_else(outside: Outside) -> None:
    with AppInTest(shop(), outside=outside) as test:
        test.deliver("stripe", PAID)
        test.crash()
        test.settle()

        assert test.runs()[0].state == "completed"
        assert outside.count("POST https://pay.example/charges") == 1


def test_the_same_delivery_twice_at_once_is_one_run(outside: Outside) -> None:
    paid = delivery("stripe", PAID)

    with AppInTest(shop(), outside=outside) as test:
        test.send(paid, paid)
        test.send(paid.under_new_id())

        assert len(test.runs()) == 2
        assert [row.outcome for row in test.wait(test.app.deliveries())].count("duplicate") == 1


def test_a_run_that_never_ends_is_told_of(outside: Outside) -> None:
    app = App("sqlite:///never-made.db")

    @app.workflow
    async def forever(ctx: Context) -> None:
        for number in range(1_000_000):
            await ctx.step.sleep("long", "400d", item=str(number))

    with AppInTest(app) as test:
        test.wait(app.start(forever))
        with pytest.raises(Unending, match=r"forever \(sleeping\)"):
            test.settle()


def test_time_stands_still_while_a_thread_works_and_goes_on_while_it_waits() -> None:
    app = App("sqlite:///never-made.db")
    seen: list[float] = []
    gate = threading.Event()

    def slow() -> str:
        seen.append(asyncio_time())
        threading.Timer(0.05, gate.set).start()  # real time, in which no sleep of a week may end
        assert gate.wait(10)
        seen.append(asyncio_time())
        return "done"

    def asyncio_time() -> float:
        return test.life.loop.time()

    @app.workflow
    def plain(ctx: SyncContext) -> str:
        done = ctx.step.run("slow", slow)
        ctx.step.sleep("a week", "7d")
        return done

    @app.workflow
    async def timer(ctx: Context) -> str:
        await asyncio.sleep(5)
        return "rang"

    with AppInTest(app) as test:
        run = test.wait(app.start(plain))
        other = test.wait(app.start(timer))
        assert test.wait(run.result()) == "done"
        assert test.wait(other.result()) == "rang"
        assert seen[0] == seen[1]
        assert test.life.loop.time() == pytest.approx(7 * 86_400, abs=60)


def test_it_is_used_in_its_block_and_with_a_closed_app() -> None:
    app = App("sqlite:///:memory:")
    with pytest.raises(ConfigError, match="in its block"):
        AppInTest(app).settle()
    with app.sync, pytest.raises(ConfigError, match="open already"):
        AppInTest(app)


def test_what_a_source_refuses_is_told(outside: Outside) -> None:
    with AppInTest(shop(), outside=outside) as test, pytest.raises(ConfigError, match="Did you mean"):
        test.deliver("stripe", "checkout.session.complete")


def test_the_plugin_gives_its_fixtures_and_imports_nothing_before(tmp_path: Path) -> None:
    (tmp_path / "test_shop.py").write_text(
        "import sys\n"
        "LOADED = {'onceward.app', 'onceward.runtime.worker', 'sqlite3', 'onceward.testing.history'} & set(sys.modules)\n"
        "from onceward import App\n"
        "app = App('sqlite:///never-made.db')\n"
        "@app.workflow\n"
        "async def hello(ctx):\n"
        "    await ctx.step.run('say', lambda: None)\n"
        "def test_light():\n"
        "    assert not LOADED\n"
        "def test_it(app_in_test, outside):\n"
        "    shop = app_in_test(app)\n"
        "    assert shop.outside is outside\n"
        "    shop.wait(app.start(hello))\n"
        "    assert shop.run().run_id\n"
    )

    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "onceward.testing.plugin",
        "-p",
        "no:cacheprovider",
    ]
    done = subprocess.run(
        [*command, "-p", "no:randomly", "."],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={"PATH": "", "PYTHONPATH": str(Path(__file__).parents[2] / "src")},
    )

    assert "2 passed" in done.stdout, done.stdout + done.stderr
