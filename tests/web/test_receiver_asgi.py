"""The receiver called as a bare ASGI application, for what a well-behaved server never shows."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvicorn

from onceward.core.errors import ConfigError
from onceward.web.receiver import Limits, Receiver, Scope
from tests.web.fake_intake import NOW_MS, FakeIntake

BODY = b'{"id": "evt_1", "type": "invoice.paid"}'
LIMITS = Limits(body_bytes_max=10_000, body_seconds_max=0.05)
Messages = Iterator[dict[str, Any]] | list[dict[str, Any]]


def scope(intake: FakeIntake, path: str = "/hooks/stripe", **changes: Any) -> Scope:
    signed = intake.sources["stripe"].sign(BODY, NOW_MS)
    headers = [[name.lower().encode(), value.encode()] for name, value in signed.items()]
    return {"type": "http", "method": "POST", "path": path, "headers": headers} | changes


def chunk(body: bytes, *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


async def answer(receiver: Receiver, asked: Scope, messages: Messages) -> list[dict[str, Any]]:
    """Call the receiver; when the messages run out, the sender stays silent."""
    left = iter(messages)
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(0)
        for message in left:
            return message
        return await asyncio.Event().wait()  # type: ignore[return-value]

    async def send(message: Any) -> None:
        sent.append(message)

    await receiver(asked, receive, send)
    return sent


def status(sent: list[dict[str, Any]]) -> int:
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    return int(sent[0]["status"])


@pytest.mark.parametrize(
    ("path", "root_path", "expected"),
    [
        ("/hooks/stripe", "", 202),
        ("/api/hooks/stripe", "/api", 202),
        ("/api/hooks/stripe", "/api/", 202),
        ("/hooks/hooks/stripe", "/hooks", 202),
        # A server that leaves the prefix out of the path.
        ("/hooks/stripe", "/api", 202),
        ("/hooks/stripe", "/ho", 202),
        ("/api/hooks/stripe", "", 404),
        ("/apihooks/stripe", "/api", 404),
    ],
)
def test_the_address_below_a_mount_prefix_decides(path: str, root_path: str, expected: int) -> None:
    intake = FakeIntake()

    sent = asyncio.run(answer(Receiver(intake), scope(intake, path, root_path=root_path), [chunk(BODY)]))

    assert status(sent) == expected


def test_a_server_without_raw_path_or_query_is_served_and_the_path_is_escaped_again() -> None:
    intake = FakeIntake()
    asked = scope(intake, "/ä b/hooks/stripe", root_path="/ä b")

    asyncio.run(answer(Receiver(intake), asked, [chunk(BODY)]))

    [(_, request, _)] = intake.requests
    assert (request.path, request.query) == ("/%C3%A4%20b/hooks/stripe", "")
    assert request.header("stripe-signature") is not None


def endless(size: int) -> Iterator[dict[str, Any]]:
    while True:
        yield chunk(b"x" * size, more=True)


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([chunk(BODY)], 202),
        ([chunk(BODY[:5], more=True), chunk(BODY[5:])], 202),
        ([chunk(BODY, more=True), chunk(b"")], 202),
        ([{"type": "http.request"}], 401),
        ([chunk(b"x" * 10_001)], 413),
        (endless(1_000), 413),
        (endless(0), 408),
        ([chunk(BODY, more=True)], 408),
        ([], 408),
        ([{"type": "http.disconnect"}], None),
        ([chunk(BODY, more=True), {"type": "http.disconnect"}], None),
    ],
)
def test_however_a_body_comes_nothing_of_it_stays_held(messages: Messages, expected: int | None) -> None:
    intake = FakeIntake()
    receiver = Receiver(intake, limits=LIMITS)

    sent = asyncio.run(answer(receiver, scope(intake), messages))

    assert (status(sent) if sent else None) == expected
    assert receiver._held_bytes == 0
    assert len(intake.requests) == (expected == 202)


def test_an_endless_body_is_read_one_chunk_beyond_the_limit_and_no_further() -> None:
    intake = FakeIntake()
    given = 0

    def counted() -> Iterator[dict[str, Any]]:
        nonlocal given
        for message in endless(1_000):
            given += 1
            yield message

    asyncio.run(answer(Receiver(intake, limits=LIMITS), scope(intake), counted()))

    assert given * 1_000 == LIMITS.body_bytes_max + 1_000


def test_a_server_that_cancels_a_request_cancels_it() -> None:
    async def cancelled() -> bool:
        intake = FakeIntake()
        asked_for_more = asyncio.Event()

        def half() -> Iterator[dict[str, Any]]:
            yield chunk(BODY, more=True)
            asked_for_more.set()

        task = asyncio.create_task(answer(Receiver(intake), scope(intake), half()))
        await asked_for_more.wait()
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    assert asyncio.run(cancelled())


def test_one_receiver_can_serve_one_loop_after_another() -> None:
    intake = FakeIntake()
    receiver = Receiver(intake, limits=LIMITS)
    for _ in range(2):
        assert status(asyncio.run(answer(receiver, scope(intake), [chunk(BODY, more=True)]))) == 408


def test_a_websocket_is_closed() -> None:
    sent = asyncio.run(answer(Receiver(FakeIntake()), {"type": "websocket"}, [{"type": "websocket.connect"}]))

    assert [message["type"] for message in sent] == ["websocket.close"]


# --- lifespan -------------------------------------------------------------------------------------

LIFESPAN = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]


def test_the_hooks_run_at_start_and_end_and_the_end_drains() -> None:
    ran: list[str] = []

    def hook(name: str) -> Callable[[], Any]:
        async def run() -> None:
            ran.append(name)

        return run

    intake = FakeIntake()
    receiver = Receiver(intake, startup=hook("startup"), shutdown=hook("shutdown"))

    async def whole_life() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        life = await answer(receiver, {"type": "lifespan"}, LIFESPAN)
        return life, await answer(receiver, scope(intake), [chunk(BODY)])

    life, late = asyncio.run(whole_life())

    assert [message["type"] for message in life] == [
        "lifespan.startup.complete",
        "lifespan.shutdown.complete",
    ]
    assert ran == ["startup", "shutdown"]
    assert status(late) == 503


def test_without_hooks_the_lifespan_is_answered_all_the_same() -> None:
    life = asyncio.run(answer(Receiver(FakeIntake()), {"type": "lifespan"}, LIFESPAN))

    assert [message["type"] for message in life] == [
        "lifespan.startup.complete",
        "lifespan.shutdown.complete",
    ]


def test_a_server_does_not_start_when_the_startup_fails(caplog: pytest.LogCaptureFixture) -> None:
    async def startup() -> None:
        raise ConfigError("The store is missing.", todo="Say where it is.")

    config = uvicorn.Config(Receiver(FakeIntake(), startup=startup), log_config=None)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener, pytest.raises(SystemExit) as stop:
        server.run(sockets=[listener])

    assert stop.value.code != 0
    assert not server.started
    assert "The store is missing. Say where it is." in caplog.text


@pytest.mark.parametrize(("messages", "expected"), [([chunk(b"")], 500), ([], 408)])
def test_a_body_that_was_read_before_is_said_to_be(
    messages: Messages, expected: int, caplog: pytest.LogCaptureFixture
) -> None:
    intake = FakeIntake()
    asked = scope(intake)
    asked["headers"].append([b"content-length", b"%d" % len(BODY)])

    assert status(asyncio.run(answer(Receiver(intake, limits=LIMITS), asked, messages))) == expected
    assert "something read" in caplog.text


def test_a_receiver_that_drained_can_be_resumed() -> None:
    intake = FakeIntake()
    receiver = Receiver(intake)
    receiver.drain()
    assert status(asyncio.run(answer(receiver, scope(intake), [chunk(BODY)]))) == 503

    receiver.resume()

    assert status(asyncio.run(answer(receiver, scope(intake), [chunk(BODY)]))) == 202
