"""One request of a sender, sent with what the standard library has."""

from __future__ import annotations

import http.client
import os
import time
from urllib.parse import urlsplit

import msgspec

from onceward.core.errors import ConfigError, OncewardError
from onceward.core.messages import HttpRequest
from onceward.core.settings import SETTINGS, resolve
from onceward.version import __version__

SECONDS_MAX = 30.0
REPLY_BYTES_MAX = 65_536


class Reply(msgspec.Struct, frozen=True):
    """What the receiver said, and after how many milliseconds."""

    status: int
    text: str
    ms: int


def checked_address(url: str) -> str:
    """Give *url* back when something can be sent there; `ConfigError` when not."""
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if is_usable and url.isascii() and url.isprintable() and " " not in url:
        return url
    raise ConfigError(
        f"Nothing can be sent to {url!r}.",
        means="It is no http or https address.",
        todo=f"Write the receiver's, e.g. {_example()}/hooks/stripe.",
    )


def _example() -> str:
    """Give where an app with the settings of this environment is reached."""
    try:
        return resolve(SETTINGS, {}, os.environ).address
    except ConfigError:  # about another setting, and nobody asked
        return "http://127.0.0.1:8000"


def post(url: str, request: HttpRequest) -> Reply:
    """Send a request to *url* and give the reply, redirects included as they are.

    Raises:
        OncewardError: there is no reply within `SECONDS_MAX`.
    """
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    connect = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    connection = connect(parts.hostname or "", parts.port, timeout=SECONDS_MAX)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    begun = time.monotonic()
    try:
        connection.putrequest(request.method, target)
        for name, value in ((b"user-agent", f"onceward/{__version__}".encode()), *request.headers):
            connection.putheader(name.decode("latin-1"), value)
        connection.putheader("content-length", str(len(request.body)))
        connection.endheaders(request.body)
        answer = connection.getresponse()
        text = answer.read(REPLY_BYTES_MAX).decode("utf-8", "replace")
        return Reply(answer.status, text, round((time.monotonic() - begun) * 1000))
    except (OSError, http.client.HTTPException) as error:
        raise OncewardError(
            f"There is no reply from {url}: {error or type(error).__name__}.",
            means="The delivery may or may not have arrived.",
            todo="Start the receiver there, e.g. with: onceward serve MODULE:APP",
        ) from error
    finally:
        connection.close()
