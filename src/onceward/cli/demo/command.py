"""``onceward demo``: a true story; the exit status is its verdict."""

from __future__ import annotations

import click

from onceward.cli.options import WholeNumber


@click.command("demo", short_help="Tell the true story of a crash.")
@click.option(
    "--seed",
    type=WholeNumber(min=0),
    default=1,
    show_default=True,
    help="Varies orders, ids, amounts, deliveries and the moment of the crash.",
)
@click.option(
    "--store",
    default="sqlite",
    show_default=True,
    metavar="sqlite|postgres|URL",
    help="postgres starts a server of its own; a URL uses that store, in a namespace of its own.",
)
@click.option(
    "--break",
    "sabotage",
    type=click.Choice(["no-dedup", "no-key"]),
    help="Take something out, and see the verdict fail: the dedup of deliveries, or the key that the "
    "shop sends with a charge.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON object on the standard output, the story beside it.",
)
@click.option("--keep", is_flag=True, help="Leave ledger, logs and the SQLite store behind, and say where.")
def command(seed: int, store: str, sabotage: str | None, as_json: bool, keep: bool) -> None:
    """Tell the true story of a crash, and count.

    A shop receives signed Stripe and GitHub webhooks, several copies of each and forged ones among
    them. It is killed (SIGKILL) between a charge and its checkpoint, is started again, and finishes.
    Nothing is simulated: processes, sockets, signatures and the store are real, and each number is
    counted by whoever is in a position to. The exit status is 0 if all of them are as promised.
    """
    from onceward.cli.demo.story import Options
    from onceward.cli.demo.telling import run

    status = run(Options(seed, store, sabotage or "", keep), to_json=as_json)
    raise click.exceptions.Exit(status)
