"""A receiver behind a real uvicorn on a loopback port, and clients that can misbehave."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import uvicorn

from onceward.web.port import Limits
from onceward.web.receiver import Receiver
from tests.web.fake_intake import FakeIntake

DEADLINE_SECONDS = 20.0


class Reply(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Served(NamedTuple):
    """A running server."""

    port: int
    intake: FakeIntake
    receiver: Receiver

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE_SECONDS)

    def ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """Send one request; an iterable body goes in chunks."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_SECONDS)
        try:
            connection.request(method, path, body, headers or {})
            return reply_of(connection.getresponse())
        finally:
            connection.close()

    def post(self, path: str, body: Any = b"", headers: Mapping[str, str] | None = None) -> Reply:
        return self.ask("POST", path, body, headers)

    def deliver(self, source: str, body: bytes, *, event_id: str = "", event_type: str = "") -> Reply:
        """Send a delivery signed by the source itself."""
        headers = self.intake.sources[source].sign(
            body, self.intake.now_ms(), event_id=event_id, event_type=event_type
        )
        return self.post(f"/hooks/{source}", body, headers)


def reply_of(response: http.client.HTTPResponse) -> Reply:
    headers = {name.lower(): value for name, value in response.getheaders()}
    return Reply(response.status, headers, response.read())


def read_reply(connection: socket.socket) -> Reply:
    """Read one response from a bare socket."""
    response = http.client.HTTPResponse(connection)
    response.begin()
    return reply_of(response)


@contextmanager
def serving(
    http_parser: str = "httptools", *, limits: Limits | None = None, root_path: str = ""
) -> Iterator[Served]:
    """Run a receiver over a fake intake until the block ends."""
    intake = FakeIntake()
    started = threading.Event()

    async def startup() -> None:
        started.set()

    receiver = Receiver(intake, startup=startup, limits=limits)
    config = uvicorn.Config(
        receiver,
        http=http_parser,
        loop="asyncio",
        log_config=None,
        access_log=False,
        root_path=root_path,
        timeout_graceful_shutdown=5,
    )
    server = uvicorn.Server(config)
    # The port is open before the server runs, so that clients may connect at once.
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            assert started.wait(DEADLINE_SECONDS), "the server did not start"
            yield Served(listener.getsockname()[1], intake, receiver)
        finally:
            server.should_exit = True
            thread.join(DEADLINE_SECONDS)
            assert not thread.is_alive(), "the server did not stop"
