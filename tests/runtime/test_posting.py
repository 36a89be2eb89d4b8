"""A request of a notice ends in time, whatever the other side does."""

from __future__ import annotations

import http.client
import http.server
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from onceward.runtime.posting import HOST_CONNECTING_MAX, cut_after, post


class _Late(http.client.HTTPConnection):
    """Connects only after its time is over, as where the first address of a host swallows what it gets."""

    def __init__(self, port: int) -> None:
        self.is_over = threading.Event()
        super().__init__("127.0.0.1", port, timeout=5)

    @property
    def sock(self) -> socket.socket | None:
        if isinstance(threading.current_thread(), threading.Timer):
            self.is_over.set()
        return self._sock

    @sock.setter
    def sock(self, sock: socket.socket | None) -> None:
        self._sock = sock

    def connect(self) -> None:
        assert self.is_over.wait(20)
        super().connect()


@contextmanager
def dripping() -> Iterator[int]:
    """Give the port of a server that sends a header's byte now and then, and no whole reply."""
    over = threading.Event()
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        server.settimeout(0.05)
        peers: list[socket.socket] = []
        while not over.is_set():
            try:
                peers.append(server.accept()[0])
                peers[-1].sendall(b"HTTP/1.1 200 OK\r\nx-drip: ")
            except TimeoutError:
                pass
            for peer in list(peers):
                try:
                    peer.sendall(b"x")
                except OSError:
                    peer.close()
                    peers.remove(peer)
        for peer in peers:
            peer.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield server.getsockname()[1]
    finally:
        over.set()
        thread.join()
        server.close()


def test_a_reply_that_drips_is_cut() -> None:
    with dripping() as port, pytest.raises(TimeoutError, match="no reply within"):
        post(f"http://127.0.0.1:{port}/", b"{}", {}, seconds=0.2)


def test_nothing_is_sent_over_a_connection_that_came_too_late() -> None:
    """There was no socket to cut when its time was over; what came then had no end."""
    with dripping() as port:
        connection = _Late(port)
        is_sent = False
        with pytest.raises(TimeoutError, match="no reply within"), cut_after(0.1, connection):
            is_sent = True
        connection.close()

    assert not is_sent


def test_a_name_that_is_not_found_in_time_ends_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """A resolver that is silent would hold a thread of ours, and what it sends, for as long as it likes."""
    is_over, is_back = threading.Event(), threading.Event()

    def silent(*_: object, **__: object) -> list[object]:
        is_over.wait(10)
        is_back.set()
        raise socket.gaierror("the test is over")

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    try:
        with pytest.raises(TimeoutError, match="no reply within"):
            post("http://hooks.example/", b"{}", {}, seconds=0.2)
        assert not is_back.is_set()
    finally:
        is_over.set()


@contextmanager
def replying() -> Iterator[int]:
    """Give the port of a server that answers 204."""

    class Reply(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Reply) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def test_a_host_that_hangs_holds_up_none_but_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many of its connections hang and no more; when they are over, the next one comes through."""
    is_over = threading.Event()
    look_up = socket.getaddrinfo

    def slow(host: str, *how: Any, **which: Any) -> Any:
        if host == "hooks.example":
            is_over.wait(20)
        return look_up("127.0.0.1", *how, **which)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    with replying() as port:
        try:
            for _ in range(HOST_CONNECTING_MAX):
                with pytest.raises(TimeoutError, match="no reply within"):
                    post(f"http://hooks.example:{port}/", b"{}", {}, seconds=0.1)

            with pytest.raises(TimeoutError, match=r"4 others to hooks\.example hang as well"):
                post(f"http://hooks.example:{port}/", b"{}", {}, seconds=0.1)
            assert post(f"http://other.example:{port}/", b"{}", {}, seconds=20) == 204
        finally:
            is_over.set()
        for _ in range(2 * HOST_CONNECTING_MAX):
            assert post(f"http://hooks.example:{port}/", b"{}", {}, seconds=20) == 204


@pytest.mark.parametrize("which", [threading.Timer, threading.Thread])
def test_a_machine_without_threads_refuses_and_keeps_no_place(
    monkeypatch: pytest.MonkeyPatch, which: type[threading.Thread]
) -> None:
    """What could not begin to connect is told as any failure to connect, and is not counted for ever."""
    start = threading.Thread.start

    def refusing(thread: threading.Thread) -> None:
        if type(thread) is which:
            raise RuntimeError("can't start new thread")
        start(thread)

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    url = f"http://127.0.0.1:{port}/"
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refusing)
        for _ in range(HOST_CONNECTING_MAX + 1):
            with pytest.raises(OSError, match="no thread could be started"):
                post(url, b"{}", {}, seconds=0.2)

    with pytest.raises(ConnectionRefusedError):
        post(url, b"{}", {}, seconds=5)


def test_a_connection_that_comes_after_its_time_is_closed() -> None:
    may_connect = threading.Event()

    class Slow(http.client.HTTPConnection):
        def connect(self) -> None:
            assert may_connect.wait(20)
            super().connect()

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(20)
        connection = Slow("127.0.0.1", server.getsockname()[1], timeout=5)
        with pytest.raises(TimeoutError), cut_after(0.1, connection):
            pass
        may_connect.set()
        peer, _ = server.accept()
        with peer:
            peer.settimeout(20)
            assert peer.recv(1) == b""


def test_what_is_wrong_with_a_connection_is_told_as_it_is() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(ConnectionRefusedError):
        post(f"http://127.0.0.1:{port}/", b"{}", {}, seconds=5)
