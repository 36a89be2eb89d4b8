"""``onceward dev``: serve an app on this machine, and again whenever its code changes."""

from __future__ import annotations

import click

from onceward.cli.options import setting_options


@click.command("dev", short_help="Serve while you write: reloads, with the dashboard and a live log.")
@click.argument("target", metavar="MODULE:APP")
@setting_options("store", "namespace", "port", "concurrency", "drain", "log_level", "log_format")
def command(target: str, **settings: str | None) -> None:
    """Serve an app on this machine only, and start it anew whenever a Python file below changes.

    It says what comes in and what becomes of each run. What is under way at a change goes on from its
    last saved step, as after a crash. Promises have an address here, where public_url and promise_secret
    are not set. Dashboard and REST API are on; a link logs in for the first look.
    """
    from onceward.cli import reloading

    reloading.serve(target, settings)
