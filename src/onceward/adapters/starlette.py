"""Starlette, and what is built on it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from onceward.adapters.asgi import AsgiVerbs
from onceward.adapters.front import DEFAULT_PATH, AsgiFront, checked_path
from onceward.core import errors

if TYPE_CHECKING:
    from starlette.applications import Starlette


class Adapter(AsgiVerbs):
    """Puts the receiver before a Starlette application; see `AsgiVerbs` for its verbs."""

    def mount(self, web: Starlette, path: str = DEFAULT_PATH) -> None:
        """Receive deliveries in *web*, and open the app around its lifespan.

        Args:
            web: the application; before or after its routes and middleware are added.
            path: deliveries come in at ``POST <path>/hooks/<source>``, health is at ``<path>/healthz``.

        Raises:
            ConfigError: the path cannot be used, or *web* has started.
        """
        clean = checked_path(path)
        if web.middleware_stack is not None:
            raise errors.ConfigError(
                "The web application has started already.",
                means="It would not see the receiver.",
                todo="Mount it where the application is made.",
            )
        build, receiver = web.build_middleware_stack, self.app.asgi()
        # The stack is built at the first request, so this stands before middleware that is added later.
        web.build_middleware_stack = lambda: AsgiFront(receiver, build(), clean)  # type: ignore[method-assign]
        inner = web.router.lifespan_context

        @contextlib.asynccontextmanager
        async def around(application: Any) -> AsyncIterator[Any]:
            async with self.lifespan(), inner(application) as state:
                yield state

        web.router.lifespan_context = around
