"""How a batch gets to the store: in the event loop where the store can, else by the thread."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from onceward.core import errors
from onceward.core.ports import Batch, BatchResult, Begun, Store
from onceward.runtime import commits
from onceward.runtime.commits import Commits, ThreadWriter

BATCH = Batch("batch_1")


class _Sent:
    """A batch whose answer is a byte on a socket."""

    def __init__(self, ours: socket.socket, *, is_ready: bool = True, fails: Exception | None = None) -> None:
        self._socket: socket.socket | None = ours
        self._is_ready = is_ready
        self._fails = fails
        self.finished_in_loop: bool | None = None

    @property
    def fileno(self) -> int | None:
        return None if self._socket is None else self._socket.fileno()

    @property
    def is_ready(self) -> bool:
        return self._is_ready and self._socket is None

    def advance(self) -> bool:
        assert self._socket is not None
        self._socket.recv(1)
        if self._fails is not None:
            raise self._fails
        self._socket = None
        return True

    def finish(self) -> BatchResult:
        try:
            asyncio.get_running_loop()
            self.finished_in_loop = True
        except RuntimeError:
            self.finished_in_loop = False
        return BatchResult([], [], [])


class _Store:
    def __init__(self, begin: Callable[[], Begun | None]) -> None:
        self._begin = begin

    def begin(self, process_id: str, epoch: int, batch: Batch) -> Begun | None:
        assert (process_id, epoch, batch) == ("p1", 1, BATCH)
        return self._begin()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


async def _made(
    begin: Callable[[], Begun | None], answer: Callable[[Commits], Any]
) -> tuple[Any, Any, list[Any]]:
    loop = asyncio.get_running_loop()
    by_thread: list[Any] = []

    def slowly(begun: Begun | None) -> BatchResult:
        by_thread.append(begun)
        return BatchResult([], [], []) if begun is None else begun.finish()

    made = Commits(cast("Store", _Store(begin)), ThreadWriter(loop), loop)
    over: asyncio.Future[tuple[Any, Any]] = loop.create_future()
    made.make("p1", 1, BATCH, slowly, lambda result, error: over.set_result((result, error)))
    answer(made)
    result, error = await asyncio.wait_for(over, 20)
    made.close()
    return result, error, by_thread


def test_an_answer_is_heard_and_finished_by_the_event_loop(pair: tuple[socket.socket, socket.socket]) -> None:
    sent = _Sent(pair[0])
    result, error, by_thread = asyncio.run(_made(lambda: sent, lambda _: pair[1].send(b"x")))
    assert (result, error, by_thread) == (BatchResult([], [], []), None, [])
    assert sent.finished_in_loop is True


def test_what_needs_more_from_the_store_is_finished_by_the_thread(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    sent = _Sent(pair[0], is_ready=False)
    _, error, by_thread = asyncio.run(_made(lambda: sent, lambda _: pair[1].send(b"x")))
    assert (error, by_thread, sent.finished_in_loop) == (None, [sent], False)


def test_a_store_that_cannot_begin_is_written_to_by_the_thread() -> None:
    _, error, by_thread = asyncio.run(_made(lambda: None, lambda _: None))
    assert (error, by_thread) == (None, [None])


def test_an_answer_that_does_not_come_is_waited_for_by_the_thread(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "PATIENCE_S", 0.001)
    sent = _Sent(pair[0])
    _, error, by_thread = asyncio.run(_made(lambda: sent, lambda _: None))
    assert (error, by_thread, sent.finished_in_loop) == (None, [sent], False)


def test_an_answer_that_cannot_be_read_is_left_to_the_thread(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    sent = _Sent(pair[0], fails=ValueError("gibberish"))
    _, error, by_thread = asyncio.run(_made(lambda: sent, lambda _: pair[1].send(b"x")))
    assert (error, by_thread) == (None, [sent])


def test_a_batch_under_way_is_finished_when_the_commits_end(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    sent = _Sent(pair[0])
    _, error, by_thread = asyncio.run(_made(lambda: sent, lambda made: made.close()))
    assert (error, by_thread) == (None, [sent])


def test_a_batch_that_cannot_be_sent_fails_at_once() -> None:
    refused = errors.StoreError("no")

    def begin() -> Begun | None:
        raise refused

    result, error, by_thread = asyncio.run(_made(begin, lambda _: None))
    assert (result, error, by_thread) == (None, refused, [])
