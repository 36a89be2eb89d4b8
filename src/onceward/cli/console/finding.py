"""The filters of runs, as options; the same for lists and for what is done to many."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from onceward.cli.console.times import Moment
from onceward.core.states import RunState

if TYPE_CHECKING:
    from onceward.console.port import RunQuery

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--workflow", metavar="NAME", help="Of this workflow."),
    click.option("--state", type=click.Choice([state.value for state in RunState]), help="In this state."),
    click.option("--problems", is_flag=True, help="Failed and held ones that nobody dismissed."),
    click.option(
        "--error", metavar="WORDS", help="Whose failure or reason has words that begin so; with --problems."
    ),
    click.option("--source", metavar="NAME", help="Of an event of this source."),
    click.option("--event", "event_id", metavar="ID", help="Of this event; with --source."),
    click.option("--type", metavar="TYPE", help="Of an event of this type."),
    click.option("--subject", metavar="TEXT", help="Of an event about this."),
    click.option("--key", metavar="TEXT", help="Of this key."),
    click.option("--tag", metavar="NAME", help="Of workflows with this tag."),
    click.option("--parent", metavar="RUN", help="Started or called by this run."),
    click.option("--since", type=Moment(), metavar="TIME", help="Accepted since then: 2h, 7d, or a date."),
    click.option("--until", type=Moment(), metavar="TIME", help="Accepted before then."),
)

NAMES = (
    "workflow",
    "state",
    "problems",
    "error",
    "source",
    "event_id",
    "type",
    "subject",
    "key",
    "tag",
    "parent",
    "since",
    "until",
)


def filters(function: F) -> F:
    """Give a command the options that say which runs."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def query_of(options: dict[str, Any], **more: Any) -> RunQuery:
    """Give the query of the options, which are taken out of them; an error alone means problems."""
    from onceward.console.port import RunQuery

    values = {name: options.pop(name) for name in NAMES}
    if values["error"] is not None and values["state"] is None:
        values["problems"] = True
    return RunQuery(**values, **more)
