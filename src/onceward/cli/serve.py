"""``onceward serve``: receive deliveries over HTTP and carry the runs."""

from __future__ import annotations

import click

from onceward.cli.options import WholeNumber, setting_options

WORKERS_MAX = 64


@click.command("serve", short_help="Receive deliveries over HTTP and run workflows.")
@click.argument("target", metavar="MODULE:APP")
@setting_options(
    "store", "namespace", "host", "port", "concurrency", "drain", "instance", "log_level", "log_format"
)
@setting_options("dashboard", "api", "allowed_hosts")
@click.option(
    "--workers",
    type=WholeNumber(1, WORKERS_MAX),
    default=1,
    show_default=True,
    help="How many processes share the port. Each imports the app and runs workflows.",
)
@click.option(
    "--insecure",
    is_flag=True,
    help="Listen on an address that others can reach although a source accepts unsigned deliveries.",
)
@click.option("--listener-fd", type=int, hidden=True, help="A bound socket, from the process that shares it.")
@click.option("--parent-fd", type=int, hidden=True, help="A pipe that closes when the parent dies.")
def command(
    target: str,
    workers: int,
    insecure: bool,
    listener_fd: int | None,
    parent_fd: int | None,
    **settings: str | None,
) -> None:
    """Serve the receiver of an app, and run its workflows.

    MODULE:APP names it: shop:app is the App called app in shop.py. Deliveries come in at
    POST /hooks/<source>, GET /healthz says whether they can. The dashboard is at /, the REST API
    below /api/v1; before the first user there is, the banner has a link that logs in once.

    SIGTERM or Ctrl-C drains: nothing new is accepted, steps under way may finish for as long as the
    drain setting says, the rest is given back. A second signal stops at once.
    """
    from onceward.cli import receiving

    receiving.serve(
        target, settings, workers=workers, insecure=insecure, listener_fd=listener_fd, parent_fd=parent_fd
    )
