"""Requests that never begin, or never end, behind both of uvicorn's parsers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

import pytest
import uvicorn
from uvicorn.server import ServerState

from onceward.cli.heads import HEAD_SECONDS_MAX, BoundedH11, protocol_class, sweep

pytestmark = pytest.mark.anyio

FAST = protocol_class()
HEAD = b"POST /hooks/x HTTP/1.1\r\nHost: x\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"
MEGABYTE = b"a" * 1_000_000


class Server(NamedTuple):
    port: int
    state: ServerState
    held: asyncio.Event
    writers: list[asyncio.StreamWriter]
    headers: list[list[tuple[bytes, bytes]]]
    bodies: list[bytes]

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writers.append(writer)
        await until(lambda: bool(self.state.connections))
        return reader, writer

    def sole(self) -> Any:
        (connection,) = self.state.connections
        return connection


@asynccontextmanager
async def served(protocol: type[asyncio.Protocol]) -> AsyncIterator[Server]:
    """Serve an application that reads each body and answers when it is told to."""
    held = asyncio.Event()
    held.set()
    headers: list[list[tuple[bytes, bytes]]] = []
    bodies: list[bytes] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        body, is_more = b"", True
        while is_more:
            message = await receive()
            body, is_more = body + message.get("body", b""), message.get("more_body", False)
        bodies.append(body)
        headers.append(list(scope["headers"]))
        await held.wait()
        await send({"type": "http.response.start", "status": 202, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    config = uvicorn.Config(application, http=protocol, lifespan="off", log_config=None, access_log=False)
    config.load()
    state = ServerState()
    writers: list[asyncio.StreamWriter] = []

    def connection() -> asyncio.Protocol:
        made: Callable[..., asyncio.Protocol] = protocol
        return made(config=config, server_state=state, app_state={})

    server = await asyncio.get_running_loop().create_server(connection, "127.0.0.1", 0)
    try:
        yield Server(server.sockets[0].getsockname()[1], state, held, writers, headers, bodies)
    finally:
        held.set()
        for one in list(state.connections):
            one.transport.abort()
        await until(lambda: not state.connections)
        for writer in writers:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
        server.close()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110 (nothing of uvicorn's tells us)
            await asyncio.sleep(0)


async def what_comes(reader: asyncio.StreamReader) -> bytes:
    try:
        return await asyncio.wait_for(reader.read(), 20)
    except ConnectionResetError:
        return b""


async def write(writer: asyncio.StreamWriter, *parts: bytes) -> None:
    with suppress(ConnectionError):  # cut off, as it should be
        for part in parts:
            writer.write(part)
            await writer.drain()


@pytest.mark.parametrize("begun", [b"POST /", HEAD, HEAD + b"X: "], ids=["path", "name", "value"])
@pytest.mark.parametrize("protocol", [FAST, BoundedH11])
async def test_a_head_without_an_end_is_cut_off_early(protocol: type[asyncio.Protocol], begun: bytes) -> None:
    async with served(protocol) as server:
        reader, writer = await server.connect()
        await write(writer, begun, MEGABYTE)

        status = (await what_comes(reader))[:12]

        # By h11 uvicorn resets the connection, sometimes before its reply is read.
        assert status in ((b"HTTP/1.1 400", b"") if protocol is BoundedH11 else (b"HTTP/1.1 431",))


@pytest.mark.parametrize("more", [b"0\r\nX: " + MEGABYTE, b"2;" + MEGABYTE, b"0\r\n" + b"X: y\r\n" * 200_000])
async def test_so_are_trailers_and_extensions_of_chunks(more: bytes) -> None:
    async with served(FAST) as server:
        reader, writer = await server.connect()
        await write(writer, CHUNKED, more)

        assert b"HTTP/1.1 2" not in await what_comes(reader)
        await until(lambda: not server.state.connections)


@pytest.mark.parametrize("protocol", [FAST, BoundedH11])
async def test_a_large_body_is_no_head(protocol: type[asyncio.Protocol]) -> None:
    async with served(protocol) as server:
        reader, writer = await server.connect()
        await write(writer, HEAD + b"Connection: close\r\nContent-Length: 1000000\r\n\r\n", MEGABYTE)

        assert (await what_comes(reader))[:12] == b"HTTP/1.1 202"


@pytest.mark.parametrize("protocol", [FAST, BoundedH11])
async def test_a_head_that_takes_too_long_is_told_so_and_silence_is_not(
    protocol: type[asyncio.Protocol],
) -> None:
    async with served(protocol) as server:
        for begun, reply in ((HEAD, b"HTTP/1.1 408"), (b"", b"")):
            reader, writer = await server.connect()
            await write(writer, begun)
            connection = server.sole()
            await until(lambda one=connection, sent=begun: one._has_begun or not sent)  # type: ignore[misc]
            now = connection._since

            sweep(server.state.connections, now + HEAD_SECONDS_MAX - 1)
            assert not connection.transport.is_closing()
            sweep(server.state.connections, now + HEAD_SECONDS_MAX + 1)
            assert (await what_comes(reader))[:12] == reply
            # What still comes is thrown away for a while, and then the connection ends.
            sweep(server.state.connections, now + 2 * HEAD_SECONDS_MAX)
            await until(lambda: not server.state.connections)


@pytest.mark.parametrize("protocol", [FAST, BoundedH11])
async def test_a_request_under_way_and_an_idle_connection_are_left_alone(
    protocol: type[asyncio.Protocol],
) -> None:
    async with served(protocol) as server:
        server.held.clear()
        reader, writer = await server.connect()
        connection = server.sole()
        await write(writer, HEAD + b"Content-Length: 2\r\n\r\n{}")
        await until(lambda: connection.cycle is not None)

        sweep(server.state.connections, 1e12)
        server.held.set()
        assert await asyncio.wait_for(reader.readline(), 20) == b"HTTP/1.1 202 Accepted\r\n"
        sweep(server.state.connections, 1e12)
        assert not connection.transport.is_closing()
        # The next head has a time of its own.
        await write(writer, b"POST")
        await until(lambda: connection._since is not None)
        sweep(server.state.connections, 1e12)
        await until(lambda: not server.state.connections)


async def test_who_sends_ahead_without_end_is_cut_off() -> None:
    async with served(FAST) as server:
        server.held.clear()
        _, writer = await server.connect()
        connection = server.sole()
        await write(writer, (HEAD + b"Content-Length: 0\r\n\r\n") * 1000)

        await until(lambda: not server.state.connections)
        assert len(connection.pipeline) <= 256


async def test_who_sends_a_little_ahead_is_answered_in_order() -> None:
    async with served(FAST) as server:
        reader, writer = await server.connect()
        one = HEAD + b"Content-Length: 2\r\n\r\n{}"
        await write(writer, one * 100, HEAD + b"Connection: close\r\nContent-Length: 0\r\n\r\n")

        assert (await what_comes(reader)).count(b"HTTP/1.1 202") == 101


@pytest.mark.parametrize("protocol", [FAST, BoundedH11])
async def test_a_trailer_is_no_header(protocol: type[asyncio.Protocol]) -> None:
    async with served(protocol) as server:
        reader, writer = await server.connect()
        last = HEAD + b"Connection: close\r\nContent-Length: 0\r\n\r\n"
        await write(writer, CHUNKED, b"0\r\nX-Signature: y\r\nHost: z\r\n\r\n", last)

        assert (await what_comes(reader)).count(b"HTTP/1.1 202") == 2
        assert [sorted(dict(seen)) for seen in server.headers] == [
            [b"host", b"transfer-encoding"],
            [b"connection", b"content-length", b"host"],
        ]
        assert {value for seen in server.headers for name, value in seen if name == b"host"} == {b"x"}


# By uvloop a write to a connection that is gone is an exception.
@pytest.mark.parametrize("anyio_backend", [("asyncio", {"use_uvloop": True})])
@pytest.mark.parametrize("count", [3, 1000], ids=["hung up", "cut off"])
async def test_a_reply_to_who_is_gone_is_no_exception(count: int, caplog: pytest.LogCaptureFixture) -> None:
    async with served(FAST) as server:
        server.held.clear()
        _, writer = await server.connect()
        connection = server.sole()
        await write(writer, (HEAD + b"Content-Length: 0\r\n\r\n") * count)
        await until(lambda: bool(connection.pipeline))
        if count == 3:
            writer.transport.abort()
        await until(lambda: not server.state.connections)
        server.held.set()
        await until(lambda: not connection.tasks)

    assert [one.getMessage() for one in caplog.records if one.levelname == "ERROR"] == []


OFFER = HEAD + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAA\r\n"
OFFERED = {
    "length": (OFFER + b"Content-Length: 7\r\n\r\none-two", [b"one-two"]),
    "chunks": (OFFER + b"Transfer-Encoding: chunked\r\n\r\n4\r\none-\r\n3\r\ntwo\r\n0\r\n\r\n", [b"one-two"]),
    "nothing": (OFFER.replace(b"POST", b"GET") + b"\r\n", [b""]),
}
PLAIN = HEAD + b"Content-Length: 5\r\n\r\nplain"


@pytest.mark.parametrize("cut", [None, 20, -30, -10, -1], ids=lambda at: f"cut at {at}")
@pytest.mark.parametrize("offer", OFFERED)
@pytest.mark.parametrize("protocol", [FAST, BoundedH11])
async def test_an_offer_to_upgrade_is_passed_over(
    protocol: type[asyncio.Protocol], offer: str, cut: int | None
) -> None:
    """Java's HttpClient makes one with each request; its body must not be lost."""
    request, bodies = OFFERED[offer]
    async with served(protocol) as server:
        reader, writer = await server.connect()

        await write(writer, request[:cut])
        if cut is not None:
            await until(lambda: bool(server.sole()._has_begun))
            await write(writer, request[cut:])
        for _ in range(2):
            await write(writer, PLAIN)
        await until(lambda: len(server.bodies) == 3)

        assert server.bodies == [*bodies, b"plain", b"plain"]
        assert (b"upgrade", b"h2c") in server.headers[0]
        for _ in range(3):
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 202")


async def test_many_offers_sent_ahead_are_answered_in_order(caplog: pytest.LogCaptureFixture) -> None:
    async with served(FAST) as server:
        reader, writer = await server.connect()
        requests = [OFFER + b"Content-Length: 3\r\n\r\n%03d" % number for number in range(200)]

        await write(writer, b"".join(requests))
        for _ in requests:
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 202")

        assert server.bodies == [b"%03d" % number for number in range(200)]
        assert caplog.records == []


async def test_what_follows_an_offer_and_is_no_http_is_refused() -> None:
    async with served(FAST) as server:
        reader, writer = await server.connect()

        await write(writer, OFFER + b"Transfer-Encoding: chunked\r\n\r\nPRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")

        assert (await what_comes(reader)).startswith(b"HTTP/1.1 400")
