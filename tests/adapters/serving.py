"""Web servers in processes of their own, and what is sent to them."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from onceward.sources import Stripe
from onceward.testing.server_home import LOOPBACK, free_port
from tests.helpers import eventually

ROOT = Path(__file__).parents[2]
SECRET = "whsec_0123456789abcdefghij"
WITHIN_S = 60


class Reply(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        """Give the text that a handler returned, which some frameworks make JSON of."""
        return self.body.decode().strip().strip('"')

    @property
    def event(self) -> str:
        """Give the id of the one event."""
        (event,) = self.json["events"]
        return str(event["id"])

    @property
    def run(self) -> str:
        """Give the one run of the one event."""
        (event,) = self.json["events"]
        (run_id,) = event["runs"]
        return str(run_id)


class Site:
    """A site that is being served.

    Attributes:
        home: where its ledger is.
    """

    def __init__(self, process: subprocess.Popen[bytes], port: int, home: Path) -> None:
        self._process = process
        self._port = port
        self.home = home

    def ask(
        self, method: str, path: str, body: bytes | Iterable[bytes] = b"", headers: Mapping[str, str] = {}
    ) -> Reply:
        """Send a request over a connection of its own; an iterable body goes in chunks."""
        connection = http.client.HTTPConnection(LOOPBACK, self._port, timeout=WITHIN_S)
        try:
            connection.connect()
            with suppress(ConnectionError):  # a body that is refused need not be taken to its end
                connection.request(method, path, body, headers)
            reply = connection.getresponse()
            return Reply(
                reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read()
            )
        finally:
            connection.close()

    def deliver(
        self, event_id: str, *, secret: str = SECRET, is_chunked: bool = False, pad: int = 0
    ) -> Reply:
        """Send a signed delivery of a charge."""
        event = {"id": event_id, "type": "charge.succeeded", "data": {"object": {"id": "ch_1"}}}
        body = json.dumps(event | {"pad": "x" * pad}).encode()
        headers = Stripe(secrets=secret).sign(body, time.time_ns() // 1_000_000)
        sent = (body[at : at + 4096] for at in range(0, len(body), 4096)) if is_chunked else body
        return self.ask(
            "POST",
            "/webhooks/hooks/stripe",
            sent,
            {**headers, "Content-Type": "application/x-www-form-urlencoded"},
        )

    def taken(self, event_id: str) -> Reply | None:
        """Give the reply to a delivery that was accepted, None where the sender has to try again."""
        with suppress(OSError, http.client.HTTPException):
            reply = self.deliver(event_id)
            assert reply.status in (202, 503), reply
            return reply if reply.status == 202 else None
        return None

    def answers(self) -> bool:
        assert self._process.poll() is None, self.log()
        with suppress(OSError):
            return self.ask("GET", "/webhooks/healthz").status == 200
        return False

    def ledger(self) -> list[str]:
        """Give what was noted, sorted."""
        path = self.home / "ledger"
        return sorted(path.read_text().splitlines()) if path.exists() else []

    def log(self) -> str:
        return (self.home / "server.log").read_text()

    def stop(self) -> None:
        """Ask it to stop as a supervisor does."""
        self._process.send_signal(signal.SIGTERM)

    def status(self) -> int:
        """Wait for its end."""
        return self._process.wait(WITHIN_S)


@contextmanager
def serving(command: list[str], store: str, home: Path) -> Iterator[Site]:
    """Run a server, with ``PORT`` in its command replaced, until the block ends."""
    port = free_port()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ONCEWARD_")}
    environment |= {
        "ONCEWARD_STORE": store,
        "SHOP_HOME": str(home),
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
    }
    with (home / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", *(word.replace("PORT", str(port)) for word in command)],
            cwd=home,
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        site = Site(process, port, home)
        eventually(site.answers, WITHIN_S, what=f"{' '.join(command)} answers")
        yield site
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
