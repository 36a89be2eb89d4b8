"""Notices as their receivers see them: signed, at least once, with the same id, and never a payload."""

from __future__ import annotations

import base64
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import WebhookVerificationError

from onceward import App, Context, Event, NoticeAddress, Permanent, Retry
from onceward.console.local import LocalConsole
from onceward.console.views import NoticesView
from onceward.core.notices import HORIZON_MS, NoticeRow
from tests import starts
from tests.cli.test_console_commands import Told
from tests.engine.receivers import Receiver
from tests.engine.running import make_app, open_store, run_app
from tests.engine.ways import outside
from tests.helpers import eventually_async

ROOT = Path(__file__).parents[2]
NEW, OLD, OTHER = ("whsec_" + base64.b64encode(bytes([number]) * 32).decode() for number in (1, 2, 3))


def notified(url: str, receiver: Receiver, *secrets: str, **settings: Any) -> App:
    """Give an app with a workflow that fails and one that is held, which tells *receiver*."""
    address = NoticeAddress(receiver.url, secrets=secrets or [NEW])
    app = make_app(url, notices=[address], **settings)

    @app.workflow(on="order.broken")
    async def broken(ctx: Context, event: Event) -> None:
        raise Permanent(f"no such order; password=hunter2; {'x' * 2_000}")

    async def ask() -> str:
        return "?"

    @app.workflow(on="order.odd", key=event_key())
    async def odd(ctx: Context, event: Event) -> None:
        await ctx.step.run("charge", ask)

    return app


def event_key() -> Any:
    from onceward import event as e

    return e.payload["order"]


async def rows(app: App) -> list[NoticeRow]:
    found: list[NoticeRow] = await app.worker.read(app.worker.store.notices, 100)
    return found


async def has(app: App, **wanted: Any) -> list[NoticeRow]:
    """Give the notices when all of them are as wanted."""

    async def are() -> list[NoticeRow]:
        found = await rows(app)
        return [row for row in found if all(getattr(row, k) == v for k, v in wanted.items())]

    return await eventually_async(are, what=f"a notice with {wanted}")


async def counted(app: App, values: dict[tuple[str, ...], int]) -> None:
    """Wait until the process has counted so: it does when the store has told it."""

    async def is_counted() -> bool:
        return app.worker.counters.notices.values == values

    await eventually_async(is_counted, what=f"{values} is counted")


def soon(app: App) -> None:
    app.worker.noticing.retry = Retry(max_tries=1_000, base="10ms", cap="20ms")


def test_failed_and_held_runs_are_told_signed_and_without_payloads(store_url: str) -> None:
    """A receiver knows them by each of the secrets; what rules hide is hidden, what is long is cut."""
    with Receiver() as receiver:
        app = notified(store_url, receiver, NEW, OLD, public_url="https://shop.example/")

        async def scenario() -> tuple[str, str]:
            (failed,) = (await app.emit("order.broken", {"card": "4242"}, id="evt_1")).runs
            (held,) = (await app.emit("order.odd", {"card": "4242"}, id="evt_2")).runs
            await has(app, type="run.failed", state="told")
            await has(app, type="run.held", state="told")
            await counted(app, {("told",): 2})
            return failed.run_id, held.run_id

        failed_id, held_id = run_app(app, scenario)

    of = {told.data["id"]: told for told in receiver.told}
    assert sorted(of) == sorted([failed_id, held_id])
    told = of[failed_id]
    assert told.path == "/hooks/ops?key=hidden"
    for secret in (NEW, OLD):
        body = told.verified(secret)
    with pytest.raises(WebhookVerificationError):
        told.verified(OTHER)
    data = body["data"]
    assert body["type"] == "run.failed"
    assert data["error"].pop("message").startswith("no such order; password=[redacted]")
    assert data == {
        "id": failed_id,
        "namespace": "default",
        "workflow": "broken",
        "state": "failed",
        "error": {"type": "onceward.Permanent"},
        "event": {"source": "emit/order.broken", "id": "evt_1", "type": "order.broken"},
        "generation": 1,
        "attempt": 1,
        "url": f"https://shop.example/runs/{failed_id}",
    }
    held = of[held_id].verified(OLD)
    assert held["type"] == "run.held"
    assert held["data"]["reason"].startswith("no key")
    assert all(b"4242" not in told.body and len(told.body) < 2_000 for told in receiver.told)


def test_a_receiver_that_fails_gets_the_same_notice_until_it_answers_2xx(store_url: str) -> None:
    """Redirects are not followed; what it is told stays the same though the run goes on meanwhile."""
    with Receiver([500, 307]) as receiver:
        app = notified(store_url, receiver)

        async def scenario() -> None:
            soon(app)
            await app.emit("order.broken", {})
            (row,) = await has(app, state="told")
            assert (row.tries, row.trouble) == (3, None)
            await counted(app, {("failed",): 2, ("told",): 1})

        run_app(app, scenario)

    assert len({(told.id, told.body) for told in receiver.told}) == 1
    assert [told.path for told in receiver.told] == ["/hooks/ops?key=hidden"] * 3


def test_a_receiver_that_is_down_is_told_when_it_is_up(sqlite_url: str) -> None:
    with Receiver() as receiver:
        pass
    app = notified(sqlite_url, receiver)

    async def scenario() -> None:
        soon(app)
        await app.emit("order.broken", {}, id="1")
        await app.emit("order.broken", {}, id="2")

        async def is_in_trouble() -> bool:
            found = await rows(app)
            return len(found) == 2 and all((row.trouble or "").startswith("no reply: ") for row in found)

        await eventually_async(is_in_trouble, what="both are in trouble")
        with receiver:
            await eventually_async(lambda: _all_told(app), what="both are told")

    run_app(app, scenario)

    assert len({told.id for told in receiver.told}) == 2


async def _all_told(app: App) -> bool:
    return all(row.state == "told" for row in await rows(app))


def test_a_receiver_that_is_gone_gets_no_more_until_a_process_starts_anew(
    sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Receiver([410]) as receiver:
        app = notified(sqlite_url, receiver)

        async def scenario() -> None:
            await app.emit("order.broken", {})
            (row,) = await has(app, state="given_up")
            assert row.trouble == "HTTP 410"
            (run,) = (await app.emit("order.broken", {}, id="later")).runs
            await eventually_async(lambda: _is_failed(run), what="the second fails")
            assert len(await rows(app)) == 1

        run_app(app, scenario)
        assert "http://127.0.0.1" in caplog.text
        assert "hidden" not in caplog.text

        async def again() -> None:
            await app.emit("order.broken", {}, id="again")
            await has(app, state="told")

        run_app(app, again)


async def _is_failed(run: Any) -> bool:
    return bool(await run.state() == "failed")


def test_a_notice_that_nobody_takes_is_given_up_in_the_end(
    sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Receiver([500, 500]) as receiver:
        app = notified(sqlite_url, receiver)

        async def scenario() -> None:
            app.worker.noticing.retry = Retry(max_tries=1_000, base="1h", cap="1h")
            await app.emit("order.broken", {})
            await has(app, trouble="HTTP 500")
            outside(sqlite_url, f"update onceward_notice set at = at - {HORIZON_MS}, due_at = 1")
            (row,) = await has(app, state="given_up")
            assert (row.tries, row.trouble) == (2, "HTTP 500")

        run_app(app, scenario)

    assert "is given up after 2 tries: HTTP 500" in caplog.text


def test_nothing_is_told_or_written_where_no_address_is_set(sqlite_url: str) -> None:
    app = make_app(sqlite_url)

    @app.workflow(on="order.broken")
    async def broken(ctx: Context, event: Event) -> None:
        raise Permanent("no")

    async def scenario() -> None:
        (run,) = (await app.emit("order.broken", {})).runs
        await eventually_async(lambda: _is_failed(run), what="it fails")

    run_app(app, scenario)

    with open_store(sqlite_url) as store:
        assert store.dump("notice", "notice_address") == {"notice": [], "notice_address": []}


def test_the_console_and_the_command_line_show_the_latest(sqlite_url: str) -> None:
    """With scheme and host of the address only."""
    with Receiver([500]) as receiver:
        app = notified(sqlite_url, receiver)

        async def scenario() -> tuple[str, NoticesView]:
            (run,) = (await app.emit("order.broken", {})).runs
            await has(app, trouble="HTTP 500")
            return run.run_id, await LocalConsole(app).notices()

        run_id, view = run_app(app, scenario)

    (address,), (latest,) = view.addresses, view.latest
    assert (address.address, address.kinds, address.off_at) == (
        f"http://127.0.0.1:{receiver.port}/…",
        ["failed", "held"],
        None,
    )
    assert (latest.run_id, latest.type, latest.state, latest.tries, latest.trouble, latest.address) == (
        run_id,
        "run.failed",
        "owed",
        1,
        "HTTP 500",
        address.address,
    )
    told = Told("notices", url=sqlite_url, columns=200)
    assert told.errors == ""
    assert (told.status, run_id in told.text, "HTTP 500" in told.text) == (0, True, True)
    assert "hidden" not in told.text
    assert Told("notices", "--json", url=sqlite_url).json["latest"][0]["notice_id"] == latest.notice_id


SENDER = """
import asyncio, sys
from onceward import App, NoticeAddress, Permanent
app = App(sys.argv[1], poll="50ms", notices=[NoticeAddress(sys.argv[2], secrets=[sys.argv[3]])])

@app.workflow
async def broken(ctx):
    raise Permanent("no")

async def main():
    async with app:
        await app.start(broken)
        await asyncio.Event().wait()

asyncio.run(main())
"""


def test_a_sender_that_is_killed_before_it_notes_the_answer_leaves_it_to_another(store_url: str) -> None:
    """Sent twice, with the same id and body, by which a receiver knows the second."""
    with Receiver() as receiver:
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT / "src"),
            "ONCEWARD_FAILPOINT": "notice.after_send:kill:1",
        }
        killed = starts.run("-c", SENDER, store_url, receiver.url, NEW, cwd=ROOT, env=environment)
        assert killed.returncode == -signal.SIGKILL
        assert len(receiver.told) == 1
        app = notified(store_url, receiver)

        async def scenario() -> None:
            (row,) = await rows(app)
            assert (row.state, row.tries) == ("owed", 1)
            table = "onceward_notice" if store_url.startswith("sqlite") else "onceward.notice"
            outside(store_url, f"update {table} set due_at = 1")  # the time that it was left to the dead
            await has(app, state="told", tries=2)

        run_app(app, scenario)

    first, second = receiver.told
    assert (first.id, first.body) == (second.id, second.body)
    assert second.verified(NEW)["type"] == "run.failed"
