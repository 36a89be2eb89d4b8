"""`onceward dev` in real processes: it reloads, says why it cannot, and tells what becomes of runs."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import uvicorn
from uvicorn.supervisors.statreload import StatReload

from onceward.cli import reloading
from onceward.sources import Stripe
from tests.cli.running import SHOP, Running, ask, onceward, running
from tests.helpers import eventually

STRIPE = Stripe(secrets="whsec_0123456789abcdefghij")


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(SHOP)
    return tmp_path


APPROVE = """
@app.workflow(on=stripe["refund.asked"])
async def approve(ctx: Context, event) -> None:
    approval = await ctx.step.promise("approval", timeout="1d")
    Path("link").write_text(approval.url)
    await approval.result()
"""


def deliver(port: int, event_id: str, kind: str = "charge.succeeded") -> int:
    body = json.dumps({"id": event_id, "type": kind}).encode()
    headers = STRIPE.sign(body, time.time_ns() // 1_000_000)
    return ask(port, "POST", "/hooks/stripe", body, headers)[0]


def write(shop: Path, text: str) -> None:
    """Write the app's file, later than it was written before, whatever the clock's grain."""
    path = shop / "shop.py"
    at = path.stat().st_mtime + 2
    # In one go: who watches sees one change and not two.
    new = shop / "shop.new"
    new.write_text(text)
    os.utime(new, (at, at))
    new.replace(path)


def lines_of(server: Running, word: str) -> list[str]:
    return [line for line in server.said().splitlines() if word in line]


def test_it_serves_the_code_as_it_is_now(shop: Path) -> None:
    with running("dev", "shop:app", "--port", "0", cwd=shop) as server:
        port = server.port()
        said = server.said()
        assert deliver(port, "evt_1") == 202
        server.wait_for("completed")

        write(shop, SHOP + APPROVE)
        server.wait_for("reloaded")
        eventually(lambda: server.answers(port), what="the new process")
        assert deliver(port, "evt_a", "refund.asked") == 202
        eventually((shop / "link").exists, what="the link of the promise")
        link = urlsplit((shop / "link").read_text())
        assert link.port == port
        assert ask(port, "POST", link.path)[0] == 200
        eventually(lambda: re.search(r"completed +approve", server.said()), what="the end of its run")

        write(shop, SHOP + "\nthis is no Python\n")
        server.wait_for("Waiting for a change.")
        write(shop, SHOP.replace("return event.id", 'raise ValueError("as it is now")'))
        eventually(lambda: server.said().count("reloaded") == 2, what="the second reload")
        eventually(lambda: server.answers(port), what="the new process")
        assert deliver(port, "evt_2") == 202
        server.wait_for("as it is now")

        server.signal(signal.SIGINT)
        status = server.status()

    assert said.startswith("Onceward ")
    assert " dev\n" in said
    assert re.search(r"dashboard +http://127\.0\.0\.1:\d+/login\?link=owl_", said)
    assert re.search(r"completed +charged  run_\w+  stripe  evt_1", server.said())
    assert "invalid syntax" in server.said()
    assert "Traceback" not in server.said().split("as it is now")[0]
    assert status == 0
    eventually(lambda: not is_listened_on(port), what="the end of the serving process")


def test_a_change_while_it_starts_again_is_seen(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process has read the file by then, so nothing else would bring the change in."""
    monkeypatch.chdir(shop)
    monkeypatch.setattr(reloading._Reload, "_end", lambda reload: None)

    def started(reload: StatReload) -> None:
        reload.mtimes = {}
        write(shop, SHOP + APPROVE)

    monkeypatch.setattr(StatReload, "restart", started)
    config = uvicorn.Config("shop:app", log_config=None, reload=True, reload_dirs=[str(shop)])
    config.reload_delay = 0
    with contextlib.closing(socket.socket()) as listener:
        reload = reloading._Reload(config, "shop:app", {}, listener)
        assert not reload.should_restart()
        reload.restart()
        assert reload.should_restart() == [shop / "shop.py"]


def is_listened_on(port: int) -> bool:
    try:
        ask(port, "GET", "/healthz")
    except OSError:
        return False
    return True


def test_what_is_under_way_at_a_change_goes_on_with_the_new_code(shop: Path) -> None:
    slow = SHOP.replace("return event.id", "return await linger(event.id)")
    (shop / "shop.py").write_text(slow)
    with running("dev", "shop:app", "--port", "0", cwd=shop) as server:
        assert deliver(server.port(), "evt_1") == 202
        eventually((shop / "evt_1.begun").exists, what="the step to begin")

        write(shop, slow + "\n# changed\n")
        server.wait_for("reloaded")
        (shop / "evt_1.go").touch()
        server.wait_for("completed")


def test_a_port_that_is_taken_is_told(shop: Path) -> None:
    with running("serve", "shop:app", "--port", "0", cwd=shop) as server:
        done = onceward("dev", "shop:app", "--port", str(server.port()), cwd=shop)

    assert done.returncode == 2
    assert "cannot be listened on" in done.stderr
