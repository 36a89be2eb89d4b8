"""The receiver as a WSGI application: the ASGI one, fed from a blocking input.

The receiver runs in the app's event loop and decides as ever: what it refuses by its head it never
reads, and of a body it asks for one piece after the other, so no more is held than it wants. The
server's thread reads a piece whenever the receiver asks for one.
"""

from __future__ import annotations

import asyncio
import io
import queue
from collections.abc import Iterable, Iterator
from concurrent.futures import CancelledError
from http import HTTPStatus
from typing import Any
from urllib.parse import quote
from wsgiref.types import StartResponse, WSGIEnvironment

from onceward.adapters.blocking import BlockingVerbs
from onceward.adapters.front import log
from onceward.core.errors import OncewardError, StoreUnavailable
from onceward.core.messages import HttpResponse
from onceward.web.port import Message, Scope
from onceward.web.problems import problem
from onceward.web.replies import FAILED, UNAVAILABLE

PIECE_BYTES = 64 * 1024

_UNREADABLE = problem(400, "body_unreadable", "The body cannot be read", "Nothing was stored.")
_ENDLESS = problem(
    501, "chunked_unsupported", "A length is needed", "Nothing was stored. Send the body with its length."
)


class WsgiReceiver:
    """Serves what `Receiver` serves, for WSGI servers; opens the app in this process if need be.

    Args:
        verbs: the app's.
    """

    def __init__(self, verbs: BlockingVerbs) -> None:
        self._verbs = verbs

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Serve one request."""
        response = self._respond(environ)
        # Which connection is kept is between the server and its client; WSGI forbids to say it.
        headers = [
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in response.headers
            if name != b"connection"
        ]
        start_response(f"{response.status} {_reason(response.status)}", headers)
        return [response.body]

    def _respond(self, environ: WSGIEnvironment) -> HttpResponse:
        if not environ.get("CONTENT_LENGTH") and _has_body(environ) and not _has_end(environ):
            log.error("delivery failed: this server does not say where a body without a length ends")
            return _ENDLESS
        try:
            self._verbs.open()
            return self._ask(scope_of(environ), _pieces(environ))
        except OncewardError as error:
            return unopened(error)
        except CancelledError:
            return UNAVAILABLE  # the app was closed meanwhile
        except OSError as error:
            # The sender hung up, or what it sent is not HTTP.
            log.warning("a body could not be read: %s", type(error).__name__)
            return _UNREADABLE
        except Exception as error:  # noqa: BLE001 (the last line of defence: a fault is a 500, and logged)
            log.error("delivery failed: error=%s", type(error).__name__, exc_info=error)
            return FAILED

    def _ask(self, scope: Scope, pieces: Iterator[Message]) -> HttpResponse:
        """Run the receiver in the app's event loop, and read for it in this thread."""
        loop = self._verbs.app.loop
        wanted: queue.SimpleQueue[asyncio.Future[Message] | None] = queue.SimpleQueue()
        sent: list[Message] = []

        async def receive() -> Message:
            message: asyncio.Future[Message] = loop.create_future()
            wanted.put(message)
            return await message

        async def send(message: Message) -> None:
            sent.append(message)

        serving = asyncio.run_coroutine_threadsafe(self._verbs.app.asgi()(scope, receive, send), loop)
        serving.add_done_callback(lambda _: wanted.put(None))
        try:
            while (waiting := wanted.get()) is not None:
                loop.call_soon_threadsafe(_give, waiting, next(pieces))
        except BaseException:
            serving.cancel()
            raise
        serving.result()
        if not sent:
            return _UNREADABLE
        return HttpResponse(sent[0]["status"], tuple(sent[0]["headers"]), sent[1]["body"])


def unopened(error: OncewardError) -> HttpResponse:
    """Give the reply where the app cannot be opened, and log why."""
    log.error("delivery failed: %s", " ".join(str(error).split()))
    return UNAVAILABLE if isinstance(error, StoreUnavailable) else FAILED


def scope_of(environ: WSGIEnvironment) -> Scope:
    """Give a WSGI request as ASGI has it.

    What WSGI does not keep stays lost: a header that comes twice arrives as one, joined by a comma.
    """
    root = _text(environ.get("SCRIPT_NAME", ""))
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": environ.get("SERVER_PROTOCOL", "HTTP/1.1").removeprefix("HTTP/"),
        "method": environ["REQUEST_METHOD"],
        "scheme": environ.get("wsgi.url_scheme", "http"),
        "path": root + _text(environ.get("PATH_INFO", "")),
        "raw_path": _raw_path(environ),
        "query_string": environ.get("QUERY_STRING", "").encode("latin-1"),
        "root_path": root,
        "headers": list(_headers(environ)),
        "client": (environ.get("REMOTE_ADDR", ""), 0),
        "server": (environ.get("SERVER_NAME", ""), _number(str(environ.get("SERVER_PORT", "")))),
    }


def _headers(environ: WSGIEnvironment) -> Iterator[tuple[bytes, bytes]]:
    for key, value in environ.items():
        name = key.removeprefix("HTTP_")
        is_bare = key in ("CONTENT_TYPE", "CONTENT_LENGTH")
        if isinstance(value, str) and (name != key or (is_bare and value)):
            yield name.replace("_", "-").lower().encode("latin-1"), value.encode("latin-1")


def _raw_path(environ: WSGIEnvironment) -> bytes:
    """Give the path as it was sent, where the server keeps it, else one that means the same."""
    for key in ("RAW_URI", "REQUEST_URI"):
        uri = environ.get(key, "")
        if uri.startswith("/"):
            return uri.partition("?")[0].encode("latin-1")  # type: ignore[no-any-return]
    path = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
    return quote(path.encode("latin-1")).encode()


def _pieces(environ: WSGIEnvironment) -> Iterator[Message]:
    """Give the body piece by piece; reads nothing before it is asked for."""
    source: Any = environ["wsgi.input"]
    length = environ.get("CONTENT_LENGTH")
    left = _number(length) if length else None
    got = 0
    while left is None or got < left:
        if left is None and not _has_end(environ):
            break
        try:
            piece = source.read(PIECE_BYTES if left is None else min(PIECE_BYTES, left - got))
        except Exception as error:
            raise OSError(f"{type(error).__name__}: {error}") from error
        if not piece:
            break
        got += len(piece)
        yield {"type": "http.request", "body": piece, "more_body": True}
    if left is not None and 0 < got < left:
        yield {"type": "http.disconnect"}
    yield {"type": "http.request", "body": b"", "more_body": False}
    while True:
        yield {"type": "http.disconnect"}


def _has_body(environ: WSGIEnvironment) -> bool:
    """Say whether a request without a length may have a body; from HTTP/2 on nothing tells that there is one."""
    if "HTTP_TRANSFER_ENCODING" in environ:
        return True
    is_newer = environ.get("SERVER_PROTOCOL", "").startswith(("HTTP/2", "HTTP/3"))
    return is_newer and environ["REQUEST_METHOD"] not in ("GET", "HEAD")


def _has_end(environ: WSGIEnvironment) -> bool:
    """Say whether a body without a length has an end; at that of others a read would block.

    One that is in memory has: Hypercorn and uvicorn read it whole, and do not say so.
    """
    return bool(environ.get("wsgi.input_terminated")) or type(environ["wsgi.input"]) is io.BytesIO


def _give(waiting: asyncio.Future[Message], message: Message) -> None:
    if not waiting.done():  # the receiver may have given up meanwhile
        waiting.set_result(message)


def _text(latin: str) -> str:
    return latin.encode("latin-1").decode(errors="replace")


def _number(digits: str) -> int:
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 20 else 0


def _reason(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"
