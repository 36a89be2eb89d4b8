"""Litestar."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from onceward.adapters.asgi import AsgiVerbs
from onceward.adapters.front import DEFAULT_PATH, AsgiApplication, AsgiFront, checked_path

if TYPE_CHECKING:
    from litestar import Litestar


class Adapter(AsgiVerbs):
    """Puts the receiver before a Litestar application; see `AsgiVerbs` for its verbs."""

    def mount(self, web: Litestar, path: str = DEFAULT_PATH) -> None:
        """Receive deliveries in *web*; open the app first and close it last of its start-up hooks.

        A context manager of Litestar's ``lifespan=[…]`` begins before those hooks. For one that needs
        the app, give `lifespan` as the first of them.

        Args:
            web: the application.
            path: deliveries come in at ``POST <path>/hooks/<source>``, health is at ``<path>/healthz``.

        Raises:
            ConfigError: the path cannot be used.
        """
        inner = cast("AsgiApplication", web.asgi_handler)
        web.asgi_handler = cast("Any", AsgiFront(self.app.asgi(), inner, checked_path(path)))
        web.on_startup.insert(0, self.open)
        web.on_shutdown.append(self.close)
