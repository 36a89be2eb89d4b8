"""uvicorn as every command uses it: it leaves the signals to us and cuts off heads that do not end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from time import monotonic

import uvicorn

from onceward.cli.heads import protocol_class, sweep

# uvicorn ticks ten times a second.
_TICKS_PER_SWEEP = 10


class Server(uvicorn.Server):
    """uvicorn's server; set ``should_exit`` to end it."""

    async def on_tick(self, counter: int) -> bool:
        """Do what uvicorn does ten times a second, and look at the connections now and then."""
        if counter % _TICKS_PER_SWEEP == 0:
            sweep(self.server_state.connections, monotonic())
        return await super().on_tick(counter)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone."""
        yield


def config(app: object, *, has_lifespan: bool, drain_ms: int) -> uvicorn.Config:
    """Give uvicorn's configuration for an ASGI application.

    Args:
        app: it.
        has_lifespan: whether it opens and closes something.
        drain_ms: how long replies may take when the server ends.
    """
    return uvicorn.Config(
        app,  # type: ignore[arg-type]  # ours; uvicorn's type is the three kinds it knows
        http=protocol_class(),
        lifespan="on" if has_lifespan else "off",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        # The receiver itself looks at what proxies say: at those that `trusted_proxies` names.
        proxy_headers=False,
        timeout_graceful_shutdown=max(1, drain_ms // 1000),
    )
