"""`onceward serve` in real processes: it receives, drains, and keeps its workers alive."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sqlite3
import time
from pathlib import Path

import pytest

from onceward import App, Context
from onceward.sources import Stripe
from onceward.version import __version__
from tests.cli.running import SHOP, Running, ask, onceward, running
from tests.helpers import eventually

OPEN = ("--insecure", "--dashboard", "off", "--api", "off")
STRIPE = Stripe(secrets="whsec_0123456789abcdefghij")


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(SHOP)
    return tmp_path


def deliver(port: int, event_id: str) -> tuple[int, bytes]:
    body = json.dumps({"id": event_id, "type": "charge.succeeded"}).encode()
    return ask(port, "POST", "/hooks/stripe", body, STRIPE.sign(body, time.time_ns() // 1_000_000))


async def start(store: Path, workflow: str, *args: object) -> str:
    """Start a run of a workflow that only the served process runs."""
    app = App(f"sqlite:///{store}")

    @app.workflow(name=workflow)
    async def stand_in(ctx: Context, *args: object) -> str:
        raise AssertionError("it runs elsewhere")

    await app.open(runs=False)
    try:
        return (await app.start(stand_in, *args)).run_id
    finally:
        await app.close()


async def states(store: Path) -> list[tuple[str, int]]:
    app = App(f"sqlite:///{store}")
    await app.open(runs=False)
    try:
        return [(row.state.value, row.attempt) for row in await app.runs()]
    finally:
        await app.close()


def test_the_banner_says_what_holds_and_masks_secrets(shop: Path) -> None:
    with running(
        "serve", "shop:app", "--port", "0", "--namespace", "blue", cwd=shop, is_afresh=True
    ) as server:
        server.port()
        said = server.said()

    lines = {line[2:14].strip(): line[14:] for line in said.splitlines()[1:]}
    assert said.startswith(f"Onceward {__version__} serve\n")
    assert lines["store"].startswith(f"sqlite {shop}/shop.db, SQLite 3.")
    assert lines["durability"] == "WAL, synchronous=FULL"
    assert lines["namespace"] == "blue"
    assert lines["sources"] == "POST /hooks/stripe  Stripe, whsec_…ghij"
    assert lines["workflows"] == "charged  stripe charge.*"
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+, health at /healthz", lines["address"])
    assert "0123456789" not in said


def test_a_delivery_is_stored_before_it_is_answered_and_its_run_ends(shop: Path) -> None:
    with running("serve", "shop:app", "--port", "0", cwd=shop) as server:
        status, body = deliver(server.port(), "evt_1")
        refused, _ = ask(server.port(), "POST", "/hooks/stripe", b"{}")
        seen = eventually(lambda: [s for s in asyncio.run(states(shop / "shop.db")) if s[0] == "completed"])
        said = server.wait_for("delivery refused")

    assert (status, json.loads(body)["events"][0]["duplicate"]) == (202, False)
    assert refused == 401
    assert seen == [("completed", 1)]
    assert "onceward.receiver: delivery refused: source='stripe' status=401" in said


@pytest.mark.parametrize("command", [["serve", "shop:app", "--port", "0"], ["worker", "shop:app"]])
def test_sigterm_lets_a_step_finish_and_charges_nothing(shop: Path, command: list[str]) -> None:
    with running(*command, cwd=shop, is_afresh=True) as process:
        process.wait_for("at once")
        asyncio.run(start(shop / "shop.db", "wait", "a"))
        eventually((shop / "a.begun").exists)
        process.signal(signal.SIGTERM)
        process.wait_for("draining")
        (shop / "a.go").touch()

        assert process.status() == 0

    assert asyncio.run(states(shop / "shop.db")) in ([("completed", 1)], [("queued", 1)])
    with running("worker", "shop:app", cwd=shop):
        eventually(lambda: asyncio.run(states(shop / "shop.db")) == [("completed", 1)])


@pytest.mark.parametrize("command", [["serve", "shop:app", "--port", "0"], ["worker", "shop:app"]])
def test_a_second_signal_stops_at_once(shop: Path, command: list[str]) -> None:
    with running(*command, cwd=shop, is_afresh=True) as process:
        process.wait_for("at once")
        asyncio.run(start(shop / "shop.db", "wait", "b"))
        eventually((shop / "b.begun").exists)
        process.signal(signal.SIGINT)
        process.wait_for("draining")
        process.signal(signal.SIGINT)

        assert process.status() == 128 + signal.SIGINT
        assert "stopped at once by a second signal" in process.said()


def test_a_store_given_as_an_option_wins_over_the_code(shop: Path) -> None:
    with running("serve", "shop:app", "--port", "0", "--store", "sqlite:///other.db", cwd=shop) as server:
        server.port()

    assert (shop / "other.db").exists()
    assert not (shop / "shop.db").exists()


def workers_of(server: Running) -> list[int]:
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
    return sorted(map(int, children))


def test_workers_share_the_port_are_replaced_and_end_with_their_parent(shop: Path) -> None:
    with running("serve", "shop:app", "--port", "0", "--workers", "2", cwd=shop, is_afresh=True) as server:
        port = server.port()
        first = eventually(lambda: workers_of(server) if len(workers_of(server)) == 2 else None)
        assert first is not None
        os.kill(first[0], signal.SIGKILL)
        second = eventually(lambda: [pid for pid in workers_of(server) if pid not in first])
        assert deliver(port, "evt_1")[0] == 202
        assert "another one is started" in server.wait_for("ended with status -9")
        server.signal(signal.SIGKILL)
        server.status()

        for pid in (first[1], *second):
            eventually(lambda pid=pid: not Path(f"/proc/{pid}/cmdline").exists(), what=f"the end of {pid}")  # type: ignore[misc]

    assert "several processes share this file" in server.said()


def test_workers_of_a_named_instance_have_a_name_each(shop: Path) -> None:
    options = ["--port", "0", "--workers", "2"]
    env = {"ONCEWARD_INSTANCE": "web"}

    with running("serve", "shop:app", *options, cwd=shop, env=env) as server:
        server.port()

        eventually(lambda: asyncio.run(instances(shop / "shop.db")) == ["web-1", "web-2"])


async def instances(store: Path) -> list[str]:
    app = App(f"sqlite:///{store}")
    await app.open(runs=False)
    try:
        return sorted(row.instance for row in await app.processes() if row.instance is not None)
    finally:
        await app.close()


def test_workers_drain_when_their_parent_is_asked_to_stop(shop: Path) -> None:
    with running("serve", "shop:app", "--port", "0", "--workers", "2", cwd=shop) as server:
        port = server.port()
        pids = eventually(lambda: workers_of(server) if len(workers_of(server)) == 2 else None)
        assert pids is not None
        assert deliver(port, "evt_1")[0] == 202
        server.signal(signal.SIGTERM)

        assert server.status() == 0
        assert not any(Path(f"/proc/{pid}/cmdline").exists() for pid in pids)


def test_workers_that_can_never_start_are_not_started_again(shop: Path) -> None:
    (shop / "once.py").write_text(
        "from pathlib import Path\nfrom onceward import App\n"
        'assert not Path("imported").exists(), "it can be imported once"\n'
        'Path("imported").touch()\napp = App("sqlite:///a.db")\n'
    )

    done = onceward("serve", "once:app", "--port", "0", "--workers", "2", cwd=shop)

    assert done.returncode == 2, done.stderr
    assert "AssertionError: it can be imported once" in done.stderr
    assert "A process cannot start; its own error stands above." in done.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["serve", "shpo:app"], 2, "Did you mean shop:app?"),
        (["worker", "shop:nothing"], 2, "Did you mean shop:app?"),
        (["serve", "shop:app", "--port", "70000"], 2, "The setting 'port' cannot be '70000'."),
        (["serve", "shop:app", "--host", "no such host"], 2, "has no address here"),
        (["serve", "shop:app", "--store", "sqlite:////no/such/folder/a.db", "--port", "0"], 3, "store_unavailable"),
        (["serve", "shop:app", "--store", "sqlite:////no/such/folder/a.db", "--port", "0"], 3, "Make the folder"),
        (["worker", "shop:app", "--store", "sqlite:///:memory:"], 2, "A worker cannot find any run"),
        (["serve", "shop:app", "--store", "sqlite:///:memory:", "--port", "0", "--workers", "2"], 2, "in memory"),
        (["worker", "shop:app", "--store", "mysql://a"], 2, "SQLite and PostgreSQL are the stores there are."),
    ],
)  # fmt: skip
def test_what_cannot_start_says_why_without_a_traceback(
    shop: Path, arguments: list[str], status: int, said: str
) -> None:
    done = onceward(*arguments, cwd=shop)

    assert done.returncode == status, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_an_insecure_source_is_not_shown_to_a_network_without_consent(shop: Path) -> None:
    (shop / "shop.py").write_text(
        'from onceward import App\nfrom onceward.sources import GitHub\napp = App("sqlite:///a.db")\n'
        "app.source(GitHub(insecure=True))\n"
    )

    done = onceward("serve", "shop:app", "--host", "0.0.0.0", "--port", "0", cwd=shop)

    assert done.returncode == 2
    assert "--insecure" in done.stderr
    with running("serve", "shop:app", "--host", "0.0.0.0", "--port", "0", *OPEN, cwd=shop) as server:
        assert "INSECURE, accepts anything" in server.wait_for("health at")


def test_a_lock_that_someone_holds_is_told_by_the_health_check(shop: Path) -> None:
    with running("serve", "shop:app", "--port", "0", *OPEN, cwd=shop, env={"ONCEWARD_LEASE": "2s"}) as server:
        port = server.port()
        assert ask(port, "GET", "/healthz")[0] == 200
        stranger = sqlite3.connect(shop / "shop.db", isolation_level=None)
        stranger.execute("begin immediate")
        eventually(lambda: ask(port, "GET", "/healthz")[0] == 503, 20, what="503")

        stranger.execute("rollback")
        stranger.close()

        eventually(lambda: ask(port, "GET", "/healthz")[0] == 200, 20, what="200")
        assert deliver(port, "evt_1")[0] == 202


def test_one_signal_ends_it_while_the_store_is_gone_and_a_run_waits_to_be_saved(shop: Path) -> None:
    with running("serve", "shop:app", "--port", "0", "--drain", "1s", *OPEN, cwd=shop) as server:
        server.port()
        asyncio.run(start(shop / "shop.db", "wait", "one"))
        eventually(lambda: (shop / "one.begun").exists(), what="the step")
        for part in shop.glob("shop.db*"):
            if part.is_file():
                part.unlink()
        (shop / "one.go").touch()
        server.wait_for("checkpoints wait for it")

        server.process.send_signal(signal.SIGTERM)

        assert server.process.wait(30) == 0


def test_a_worker_shows_its_metrics_and_health_where_it_is_told_to(shop: Path) -> None:
    """To who has a token; it receives nothing there, and on other addresses it wants somebody who may look."""
    token = onceward(
        "tokens", "add", "prometheus", "--role", "viewer", "--store", "sqlite:///shop.db", cwd=shop
    )
    (bearer,) = re.findall(r"owt_\S+", token.stdout)
    with running("worker", "shop:app", "--metrics-port", "0", cwd=shop) as worker:
        port = worker.port()
        status, page = ask(port, "GET", "/metrics", headers={"Authorization": f"Bearer {bearer}"})
        refused = [
            ask(port, *request)[0] for request in (("GET", "/metrics"), ("POST", "/hooks/stripe", b"{}"))
        ]
        worker.signal(signal.SIGTERM)
        ended = worker.status()
    outside = [
        "worker",
        "shop:app",
        "--metrics-port",
        "0",
        "--host",
        "0.0.0.0",
        "--store",
        "sqlite:///new.db",
    ]
    open_to_all = onceward(*outside, cwd=shop)

    assert (status, b"onceward_run_slots" in page, refused, ended) == (200, True, [401, 401], 0)
    assert open_to_all.returncode != 0
    assert "onceward tokens add" in open_to_all.stderr
