"""One request that hands a notice over, sent with what the standard library has; it blocks.

Apart, since its imports are slow and most processes have nothing to send.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, wait
from urllib.parse import urlsplit

from onceward.core.notices import SEND_SECONDS_MAX

CONNECTING_MAX = 32
"""Connections under way at once, those included that nobody waits for any more."""

_connecting = threading.BoundedSemaphore(CONNECTING_MAX)


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
    timer.start()
    try:
        _connect(connection, seconds)
        if not is_late.is_set():  # else nothing would cut what comes now
            yield
    except (OSError, http.client.HTTPException) as error:
        if is_late.is_set():
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
    if not _connecting.acquire(timeout=seconds):
        raise TimeoutError(f"not connected within {seconds:.0f} s: {CONNECTING_MAX} others hang as well")
    ended: Future[None] = Future()

    def connect() -> None:
        try:
            connection.connect()
        except BaseException as error:  # noqa: BLE001 (whoever waits gets it)
            ended.set_exception(error)
        else:
            ended.set_result(None)
        finally:
            _connecting.release()

    threading.Thread(target=connect, name="onceward-connect", daemon=True).start()
    wait([ended], max(0.0, until - time.monotonic()))
    if not ended.done():
        ended.add_done_callback(lambda _: connection.close())
        raise TimeoutError(f"no reply within {seconds:.0f} s")
    ended.result()
