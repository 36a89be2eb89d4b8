"""``onceward worker``: carry runs without receiving anything."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import click

from onceward.cli.options import setting_options

if TYPE_CHECKING:
    import socket

    from onceward.app import App


@click.command("worker", short_help="Run workflows only.")
@click.argument("target", metavar="MODULE:APP")
@setting_options("store", "namespace", "concurrency", "drain", "instance", "log_level", "log_format")
@setting_options("metrics_port", "host", "allowed_hosts")
def command(target: str, **settings: str | None) -> None:
    """Run the workflows of an app, and receive nothing.

    Start as many as you like on one store. With --metrics-port GET /metrics shows its metrics to who has
    a token, and GET /healthz says whether it can work. SIGTERM or Ctrl-C drains, a second signal stops at once.
    """
    import asyncio

    from onceward.cli.starting import prepared, refuse_memory

    app = prepared(target, settings)
    refuse_memory(app, "A worker cannot find any run")
    settings_read = app.settings
    if settings_read.metrics_port is None:
        asyncio.run(_work(app, None))
        return
    from onceward.cli.listen import bound

    with bound(settings_read.host, settings_read.metrics_port) as listener:
        asyncio.run(_work(app, listener))


async def _work(app: App, listener: socket.socket | None) -> None:
    import asyncio
    import logging

    from onceward.cli import banner
    from onceward.cli.signals import stop_signals

    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    with stop_signals(lambda: loop.call_soon_threadsafe(stopped.set)):
        async with app, contextlib.AsyncExitStack() as stack:
            shown_at = None
            if listener is not None:
                from onceward.cli.listen import address_of

                shown_at = address_of(listener)
                await stack.enter_async_context(_showing(app, listener))
            banner.show(app, await banner.facts(app, "worker", shown_at=shown_at))
            await stopped.wait()
            logging.getLogger("onceward.cli").info("draining, a second signal stops at once")


@contextlib.asynccontextmanager
async def _showing(app: App, listener: socket.socket) -> AsyncIterator[None]:
    """Serve metrics and health at a socket for as long as the context lasts.

    Raises:
        ConfigError: others than this machine can reach it, and there is nobody yet who may look.
    """
    import asyncio

    from onceward.cli import serving
    from onceward.cli.listen import is_loopback, listen
    from onceward.core.errors import ConfigError
    from onceward.web.site import accounts_of
    from onceward.web.worker_site import WorkerSite

    if not is_loopback(app.settings.host) and await app.worker.read(accounts_of(app).is_empty):
        raise ConfigError(
            f"Nobody may look at metrics yet, and {app.settings.host} can be reached from outside.",
            means="Every request would be refused.",
            todo="Give Prometheus a token: onceward tokens add NAME --role viewer",
        )
    server = serving.Server(serving.config(WorkerSite(app), has_lifespan=False, drain_ms=0))
    listen(listener)
    task = asyncio.ensure_future(server.serve([listener]))
    try:
        yield
    finally:
        server.should_exit = True
        await asyncio.wait([task])
