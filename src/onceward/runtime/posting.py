"""One request that hands a notice over, sent with what the standard library has; it blocks.

Apart, since its imports are slow and most processes have nothing to send.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

from onceward.core.notices import SEND_SECONDS_MAX


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
    It connects first: while it does there is no socket to cut, and each of its waits ends by itself.

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
        connection.connect()
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
