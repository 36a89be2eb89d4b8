"""One request that hands a notice over, sent with what the standard library has; it blocks.

Apart, since its imports are slow and most processes have nothing to send.
"""

from __future__ import annotations

import contextlib
import errno
import http.client
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, wait
from urllib.parse import urlsplit

from onceward.core.notices import SEND_SECONDS_MAX

HOST_CONNECTING_MAX = 4
"""Connections under way at once to one port of one host, those included that nobody waits for any more.

By host, so that a name that nobody resolves holds up none but its own.
"""

_connecting: Counter[tuple[str, int]] = Counter()
_changed = threading.Condition()


class _Crowded(TimeoutError):
    """Too many connections to the same host hang."""


def post(url: str, body: bytes, headers: dict[str, str], seconds: float = SEND_SECONDS_MAX) -> int:
    """Post *body* to *url* and give the status; redirects are not followed, the reply's body is not read.

    Raises:
        OSError: there is no reply within *seconds*.
    """
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    connect = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    connection = connect(parts.hostname or "", parts.port, timeout=seconds)
    try:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        with cut_after(seconds, connection):
            connection.request("POST", target, body, headers)
            return connection.getresponse().status
    except http.client.HTTPException as error:
        raise ConnectionError(f"no HTTP reply: {type(error).__name__}") from error
    finally:
        connection.close()


@contextlib.contextmanager
def cut_after(seconds: float, connection: http.client.HTTPConnection) -> Iterator[None]:
    """End an exchange that is not over after so long.

    The time-out of a socket is for each read: whoever sends a byte now and then would hold it for ever.
    It connects first, in a thread that is left to itself when the time is over: while a name is looked up
    there is nothing to cut, and each of a host's addresses has a time-out of its own.

    Raises:
        TimeoutError: it was not over.
        OSError: the machine has no thread left for it.
    """
    is_late = threading.Event()

    def cut() -> None:
        is_late.set()
        sock = connection.sock
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, cut)
    timer.daemon = True
    _start(timer)
    try:
        _connect(connection, seconds)
        if not is_late.is_set():  # else nothing would cut what comes now
            yield
    except (OSError, http.client.HTTPException) as error:
        if is_late.is_set() and not isinstance(error, _Crowded):
            raise TimeoutError(f"no reply within {seconds:.0f} s") from error
        raise
    finally:
        timer.cancel()
    if is_late.is_set():  # what was cut off may look like an end
        raise TimeoutError(f"no reply within {seconds:.0f} s")


def _connect(connection: http.client.HTTPConnection, seconds: float) -> None:
    """Connect; what is not done in time goes on in its thread and is closed there.

    Raises:
        OSError: it cannot be reached, or not within *seconds*.
    """
    until = time.monotonic() + seconds
    place = (connection.host, connection.port)
    with _changed:
        if not _changed.wait_for(lambda: _connecting[place] < HOST_CONNECTING_MAX, seconds):
            raise _Crowded(
                f"not connected within {seconds:.0f} s: {HOST_CONNECTING_MAX} others to {place[0]} hang as well"
            )
        _connecting[place] += 1
    ended: Future[None] = Future()

    def connect() -> None:
        try:
            connection.connect()
        except BaseException as error:  # noqa: BLE001 (whoever waits gets it)
            ended.set_exception(error)
        else:
            ended.set_result(None)
        finally:
            _leave(place)

    try:
        _start(threading.Thread(target=connect, name="onceward-connect", daemon=True))
    except OSError:
        _leave(place)
        raise
    wait([ended], max(0.0, until - time.monotonic()))
    if not ended.done():
        ended.add_done_callback(lambda _: connection.close())
        raise TimeoutError(f"no reply within {seconds:.0f} s")
    ended.result()


def _leave(place: tuple[str, int]) -> None:
    """Let the next one connect there."""
    with _changed:
        _connecting[place] -= 1
        if not _connecting[place]:
            del _connecting[place]  # hosts come and go
        _changed.notify_all()


def _start(thread: threading.Thread) -> None:
    """Start a thread.

    Raises:
        OSError: the machine has none left.
    """
    try:
        thread.start()
    except RuntimeError as error:
        raise OSError(errno.EAGAIN, "no thread could be started") from error
