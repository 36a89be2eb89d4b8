"""A proxy before PostgreSQL that loses connections, replies and time on request.

It reads just enough of the protocol to know where messages end and which of them commit, so
that a test can make the two faults that look the same to a client: the COMMIT that never
arrived, and the COMMIT whose reply got lost. Who holds a proxy sets its mode; every
connection through it obeys from the next message on.

Source: PostgreSQL documentation, "Frontend/Backend Protocol", message formats.
"""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Literal, Self

from onceward.testing.server_home import LOOPBACK
from onceward.testing.servers import PgBouncer, PostgresAddress, PostgresServer

Mode = Literal["pass", "blackhole", "refuse"]
SSL_REQUEST, GSS_REQUEST = 80877103, 80877104
COMMITS = re.compile(rb"(^|;)\s*commit\b", re.IGNORECASE)
RECEIVE_BYTES = 64 * 1024
MESSAGE_BYTES_MAX = 256 * 1024 * 1024


class TcpProxy:
    """Forwards connections to a PostgreSQL server, a pooler or another proxy, until told otherwise.

    Args:
        upstream: what to forward to.

    Use it as a context manager, or call ``start`` and ``stop``.
    """

    def __init__(self, upstream: PostgresServer | PgBouncer | PostgresAddress) -> None:
        self.upstream = upstream if isinstance(upstream, PostgresAddress) else upstream.address
        self._changed = threading.Condition()
        self._mode: Mode = "pass"
        self._delay_seconds = 0.0
        self._replies_to_drop = 0
        self._commits_to_cut = 0
        self._faults_made = 0
        self._links: set[_Link] = set()
        self._listener: socket.socket | None = None
        self._address: PostgresAddress | None = None

    @property
    def address(self) -> PostgresAddress:
        """Where the proxy listens."""
        assert self._address is not None, "start the proxy first"
        return self._address

    def dsn(self, database: str = "postgres") -> str:
        """Give the URL of a database behind the proxy."""
        return self.address.dsn(database)

    def start(self) -> Self:
        """Listen on a free port of the loopback address."""
        self._listener = socket.create_server((LOOPBACK, 0), backlog=128)
        self._address = PostgresAddress(LOOPBACK, self._listener.getsockname()[1])
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()
        return self

    def stop(self) -> None:
        """Cut every connection and stop listening."""
        listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes the thread in accept
            listener.close()
        self.cut()

    # --- what a test asks for -------------------------------------------------------------

    def cut(self) -> int:
        """Close every connection now, both sides; give how many there were."""
        with self._changed:
            links = list(self._links)
            self._changed.notify_all()
        for link in links:
            link.cut()
        return len(links)

    def heal(self) -> None:
        """Forward everything again, at once; what a blackhole held back arrives now."""
        self._set("pass", delay_seconds=0.0)
        with self._changed:
            self._replies_to_drop = self._commits_to_cut = 0

    def delay(self, seconds: float) -> None:
        """Hold each burst of messages back that long, in both directions; a pipeline is one burst."""
        self._set("pass", delay_seconds=seconds)

    def blackhole(self) -> None:
        """Keep connections open, accept new ones, and deliver nothing until healed."""
        self._set("blackhole", delay_seconds=0.0)

    def refuse(self) -> None:
        """Close each new connection at once; the present ones stay."""
        self._set("refuse", delay_seconds=0.0)

    def drop_commit_reply(self, times: int = 1) -> None:
        """Cut the connection instead of delivering the reply to the next commits.

        The server has committed; the client cannot know.
        """
        with self._changed:
            self._replies_to_drop = times

    def cut_before_commit(self, times: int = 1) -> None:
        """Cut the connection instead of delivering the next commits.

        The server has seen everything before the COMMIT and rolls back; the client cannot know.
        """
        with self._changed:
            self._commits_to_cut = times

    @property
    def faults_made(self) -> int:
        """How many commits and replies were lost on request; a test checks that its fault happened."""
        with self._changed:
            return self._faults_made

    @property
    def connections(self) -> int:
        """How many connections are open."""
        with self._changed:
            return len(self._links)

    # --- what the threads do -----------------------------------------------------------------

    def _set(self, mode: Mode, *, delay_seconds: float) -> None:
        with self._changed:
            self._mode, self._delay_seconds = mode, delay_seconds
            self._changed.notify_all()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with self._changed:
                refused = self._mode == "refuse"
            if refused:
                close(client)
                continue
            try:
                server = socket.create_connection((self.upstream.host, self.upstream.port))
            except OSError:
                close(client)
                continue
            link = _Link(self, client, server)
            with self._changed:
                self._links.add(link)
            link.start()

    def may_pass(self, link: _Link, reader: _Reader) -> bool:
        """Wait as the mode asks; False when the link was cut meanwhile."""
        with self._changed:
            if self._delay_seconds and reader.is_new_burst:
                self._changed.wait_for(lambda: link.is_cut, timeout=self._delay_seconds)
            self._changed.wait_for(lambda: link.is_cut or self._mode != "blackhole")
            return not link.is_cut

    def takes_reply(self) -> bool:
        """Tell whether this reply to a COMMIT is to be lost, and count it."""
        with self._changed:
            if self._replies_to_drop == 0:
                return False
            self._replies_to_drop -= 1
            self._faults_made += 1
            return True

    def takes_commit(self) -> bool:
        """Tell whether this COMMIT is to be lost, and count it."""
        with self._changed:
            if self._commits_to_cut == 0:
                return False
            self._commits_to_cut -= 1
            self._faults_made += 1
            return True

    def forget(self, link: _Link) -> None:
        """Take a finished link off the list."""
        with self._changed:
            self._links.discard(link)
            self._changed.notify_all()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class _Reader:
    """Reads messages from one side of a connection."""

    def __init__(self, side: socket.socket) -> None:
        self._side = side
        self._buffer = bytearray()
        self.is_new_burst = True

    def message(self) -> tuple[bytes, bytes]:
        """Read one message: its type and its body.

        Raises:
            EOFError: the connection ended.
        """
        self.is_new_burst = not self._buffer
        return self._take(1), self.body()

    def body(self) -> bytes:
        """Read a length and that many bytes, less the length's own four."""
        (length,) = struct.unpack("!i", self._take(4))
        assert 4 <= length <= MESSAGE_BYTES_MAX, f"not PostgreSQL's protocol: a message of {length} bytes"
        return self._take(length - 4)

    def _take(self, size: int) -> bytes:
        while len(self._buffer) < size:
            part = self._side.recv(RECEIVE_BYTES)
            if not part:
                raise EOFError
            self._buffer += part
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken


class _Link:
    """One client's connection and the server's, with a thread for each direction."""

    def __init__(self, proxy: TcpProxy, client: socket.socket, server: socket.socket) -> None:
        self.proxy = proxy
        self.client = client
        self.server = server
        self.is_cut = False
        self.commit_statements: set[bytes] = set()
        for side in (client, server):
            side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def start(self) -> None:
        for pump in (self._to_server, self._to_client):
            threading.Thread(target=self._until_the_end, args=(pump,), daemon=True).start()

    def cut(self) -> None:
        self.is_cut = True
        for side in (self.client, self.server):
            close(side)
        self.proxy.forget(self)

    def _until_the_end(self, pump: Callable[[], None]) -> None:
        # OSError: a side closed, or cut() closed it under us. Both end the link.
        with contextlib.suppress(OSError, EOFError):
            pump()
        self.cut()

    def _to_server(self) -> None:
        client = _Reader(self.client)
        if not self._forward_startup(client):
            return
        while True:
            kind, body = client.message()
            if not self.proxy.may_pass(self, client):
                return
            if self._is_commit(kind, body) and self.proxy.takes_commit():
                return
            send_message(self.server, kind, body)
            if kind == b"X":
                return

    def _to_client(self) -> None:
        server = _Reader(self.server)
        while True:
            kind, body = server.message()
            if not self.proxy.may_pass(self, server):
                return
            if kind == b"C" and body == b"COMMIT\0" and self.proxy.takes_reply():
                return
            send_message(self.client, kind, body)

    def _forward_startup(self, client: _Reader) -> bool:
        """Forward the message that opens a session; decline encryption, which we could not read."""
        while True:
            body = client.body()
            if not self.proxy.may_pass(self, client):
                return False
            if len(body) == 4 and struct.unpack("!i", body)[0] in (SSL_REQUEST, GSS_REQUEST):
                self.client.sendall(b"N")
                continue
            send_message(self.server, b"", body)
            return True

    def _is_commit(self, kind: bytes, body: bytes) -> bool:
        """Tell whether this message makes the server commit: a query, or a prepared one at work."""
        if kind == b"Q":
            return COMMITS.search(body) is not None
        if kind == b"P":
            statement, query, _ = body.split(b"\0", 2)
            self.commit_statements.discard(statement)
            if COMMITS.search(query):
                self.commit_statements.add(statement)
        if kind == b"B":
            _, statement, _ = body.split(b"\0", 2)
            return statement in self.commit_statements
        return False


def send_message(side: socket.socket, kind: bytes, body: bytes) -> None:
    """Write one message; *kind* is empty for the first one of a session."""
    side.sendall(kind + struct.pack("!i", len(body) + 4) + body)


def close(side: socket.socket) -> None:
    """Close a connection at once, and wake who reads from it."""
    with contextlib.suppress(OSError):
        side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        side.shutdown(socket.SHUT_RDWR)
    side.close()
