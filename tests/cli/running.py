"""``onceward`` in processes of its own, and app files for it to serve."""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests import starts
from tests.helpers import eventually

SRC = Path(__file__).resolve().parents[2] / "src"
SECONDS = 30

SHOP = """
import asyncio
from pathlib import Path

from onceward import App, Context
from onceward.sources import Stripe

app = App("sqlite:///shop.db", poll="100ms")
stripe = app.source(Stripe(secrets="whsec_0123456789abcdefghij"))

@app.step
async def linger(name: str) -> str:
    Path(f"{name}.begun").touch()
    while not Path(f"{name}.go").exists():
        await asyncio.sleep(0.01)
    return name

@app.workflow(on=stripe["charge.*"])
async def charged(ctx: Context, event) -> str:
    return event.id

@app.workflow
async def wait(ctx: Context, name: str) -> str:
    return await linger(name)
"""


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ONCEWARD_")}
    return kept | {"PYTHONPATH": str(SRC), "PYTHONWARNINGS": "error", **more}


def onceward(
    *arguments: str, cwd: Path, env: Mapping[str, str] | None = None, stdin: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return starts.run(
        "-m",
        "onceward",
        *arguments,
        cwd=cwd,
        env=environment(**(env or {})),
        stdin=stdin,
        timeout=SECONDS,
    )


class Running:
    """A command that runs until it is told to stop."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self._log = log

    def said(self) -> str:
        return self._log.read_text()

    def wait_for(self, text: str) -> str:
        """Give what it has said when *text* is in it."""

        def found() -> str:
            said = self.said()
            assert self.process.poll() is None or text in said, said
            return said if text in said else ""

        return eventually(found, SECONDS, what=text)

    def port(self) -> int:
        """Wait until it listens; give the port."""
        said = self.wait_for(", health at /healthz")
        found = re.search(r"http://127\.0\.0\.1:(\d+), health", said)
        assert found is not None
        port = int(found[1])
        eventually(lambda: self.answers(port), SECONDS, what="a healthy server")
        return port

    def answers(self, port: int) -> bool:
        assert self.process.poll() is None, self.said()
        try:
            return ask(port, "GET", "/healthz")[0] == 200
        except OSError:
            return False

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def status(self) -> int:
        """Wait for its end."""
        return self.process.wait(SECONDS)


@contextmanager
def running(
    *arguments: str, cwd: Path, env: Mapping[str, str] | None = None, is_afresh: bool = False
) -> Iterator[Running]:
    log = cwd / f"{arguments[0]}.log"
    with log.open("wb") as file:
        process = starts.start(
            "-m",
            "onceward",
            *arguments,
            cwd=cwd,
            env=environment(**(env or {})),
            stdout=file,
            stderr=file,
            is_afresh=is_afresh,
        )
    try:
        yield Running(process, log)
    finally:
        process.kill()
        process.wait()


def ask(
    port: int, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    try:
        connection.request(method, path, body, dict(headers or {}))
        reply = connection.getresponse()
        return reply.status, reply.read()
    finally:
        connection.close()
