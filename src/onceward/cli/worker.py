"""``onceward worker``: carry runs without receiving anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from onceward.cli.options import setting_options

if TYPE_CHECKING:
    from onceward.app import App


@click.command("worker", short_help="Run workflows only.")
@click.argument("target", metavar="MODULE:APP")
@setting_options("store", "namespace", "concurrency", "drain", "instance", "log_level", "log_format")
def command(target: str, **settings: str | None) -> None:
    """Run the workflows of an app, without HTTP.

    Start as many as you like on one store. SIGTERM or Ctrl-C drains, a second signal stops at once.
    """
    import asyncio

    from onceward.cli.starting import prepared, refuse_memory

    app = prepared(target, settings)
    refuse_memory(app, "A worker cannot find any run")
    asyncio.run(_work(app))


async def _work(app: App) -> None:
    import asyncio
    import logging

    from onceward.cli import banner
    from onceward.cli.signals import stop_signals

    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    with stop_signals(lambda: loop.call_soon_threadsafe(stopped.set)):
        async with app:
            banner.show(app, await banner.facts(app, "worker"))
            await stopped.wait()
            logging.getLogger("onceward.cli").info("draining, a second signal stops at once")
