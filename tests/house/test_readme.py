"""The README's fifteen lines, in a real server, under real signed deliveries."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from onceward import App
from onceward.testing.server_home import LOOPBACK, free_port
from onceward.testing.servers import PostgresAddress, answers
from tests.helpers import eventually
from tests.pages import ROOT, runnable

EVENT = {
    "id": "evt_1",
    "type": "checkout.session.completed",
    "data": {"object": {"id": "cs_1", "client_reference_id": "A-1"}},
}


@contextmanager
def serving(folder: Path) -> Iterator[int]:
    """Serve ``shop:app`` from *folder*; give the port."""
    port = free_port()
    command = ["-m", "uvicorn", "--factory", "shop:app.asgi", "--port", str(port), "--log-level", "warning"]
    path = os.pathsep.join([str(folder), str(ROOT / "src")])
    with subprocess.Popen(
        [sys.executable, *command], cwd=folder, env=os.environ | {"PYTHONPATH": path}
    ) as server:
        try:
            eventually(lambda: server.poll() is not None or answers(PostgresAddress(LOOPBACK, port)), 30)
            yield port
        finally:
            server.terminate()


def imported(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("readme_shop", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def deliver(port: int, body: bytes, headers: dict[str, str]) -> dict[str, object]:
    request = urllib.request.Request(f"http://{LOOPBACK}:{port}/hooks/stripe", body, headers)
    with urllib.request.urlopen(request, timeout=30) as reply:
        assert 200 <= reply.status < 300
        event: dict[str, object] = json.loads(reply.read())["events"][0]
    return event


def test_the_readme_makes_one_run_of_three_deliveries_and_charges_once(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(runnable(ROOT / "README.md"))
    shop = imported(tmp_path / "shop.py")
    body = json.dumps(EVENT).encode()
    headers = shop.stripe.sign(body, time.time_ns() // 1_000_000)

    with serving(tmp_path) as port:
        replies = [deliver(port, body, headers) for _ in range(3)]
        seen = eventually(lambda: look(tmp_path / "shop.db"))

    assert [reply["duplicate"] for reply in replies] == [False, True, True]
    assert len({str(reply["runs"]) for reply in replies}) == 1
    assert seen == [("sleeping", ["charge", "cooling off"])]


def look(store: Path) -> list[tuple[str, list[str]]]:
    """Give the runs that sleep, each with its state and the names of its steps."""

    async def ask() -> list[tuple[str, list[str]]]:
        app = App(f"sqlite:///{store}")
        await app.open(runs=False)
        try:
            handles = [app.run(row.run_id) for row in await app.runs()]
            return [
                (await handle.state(), [step.name for step in await handle.steps()]) for handle in handles
            ]
        finally:
            await app.close()

    return [seen for seen in asyncio.run(ask()) if seen[0] == "sleeping"]
