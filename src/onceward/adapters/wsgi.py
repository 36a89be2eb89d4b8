"""Any WSGI application; the adapters of Flask and Django stand on this one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from onceward.adapters.blocking import BlockingVerbs
from onceward.adapters.front import DEFAULT_PATH, checked_path, is_ours
from onceward.adapters.wsgi_receiver import WsgiReceiver

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment


class WsgiFront:
    """A WSGI application with the receiver before it.

    Args:
        receiver: gets the deliveries.
        app: gets everything else.
        path: where the receiver is mounted.
    """

    def __init__(self, receiver: WSGIApplication, app: WSGIApplication, path: str) -> None:
        self._receiver = receiver
        self.app = app
        self._path = path

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Serve one request."""
        below = environ.get("PATH_INFO", "")
        if not is_ours(below, self._path):
            return self.app(environ, start_response)
        name = environ.get("SCRIPT_NAME", "") + self._path
        moved = {**environ, "SCRIPT_NAME": name, "PATH_INFO": below.removeprefix(self._path)}
        return self._receiver(moved, start_response)


class Adapter(BlockingVerbs):
    """Puts the receiver before a WSGI application; see `BlockingVerbs` for its verbs."""

    def mount(self, application: WSGIApplication, path: str = DEFAULT_PATH) -> WSGIApplication:
        """Give the application that the server is to serve.

        Args:
            application: yours.
            path: deliveries come in at ``POST <path>/hooks/<source>``, health is at ``<path>/healthz``.

        Raises:
            ConfigError: the path cannot be used.
        """
        return WsgiFront(WsgiReceiver(self), application, checked_path(path))
