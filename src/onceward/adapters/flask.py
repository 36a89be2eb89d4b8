"""Flask."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceward.adapters.blocking import BlockingVerbs
from onceward.adapters.front import DEFAULT_PATH, checked_path
from onceward.adapters.wsgi import WsgiFront
from onceward.adapters.wsgi_receiver import WsgiReceiver

if TYPE_CHECKING:
    from flask import Flask


class Adapter(BlockingVerbs):
    """Puts the receiver before a Flask application; see `BlockingVerbs` for its verbs."""

    def mount(self, web: Flask, path: str = DEFAULT_PATH) -> None:
        """Receive deliveries in *web*, before its own request handling.

        Args:
            web: the application.
            path: deliveries come in at ``POST <path>/hooks/<source>``, health is at ``<path>/healthz``.

        Raises:
            ConfigError: the path cannot be used.
        """
        front = WsgiFront(WsgiReceiver(self), web.wsgi_app, checked_path(path))
        web.wsgi_app = front  # type: ignore[method-assign]
