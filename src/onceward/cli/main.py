"""The ``onceward`` command: finds the command that was asked for, and says why one was refused.

Each command is a module that is imported when it is named, and imports what is heavy when it runs,
so that ``--help`` and ``--version`` answer at once.
"""

from __future__ import annotations

import difflib
import os
from importlib import import_module
from typing import Any

import click

from onceward.cli.refusal import Refusal
from onceward.core.errors import OncewardError
from onceward.version import __version__

INTERRUPTED = 130  # what a shell reports of a program that Ctrl-C ended

EPILOG = """\b
Exit status:
  0    done
  1    the answer is no: a demo that failed, a store that needs a migration, a delivery that the
       receiver did not treat as it should; or another error
  2    a wrong option, setting or application
  3    the store cannot be used
  130  interrupted

Each setting can also be given as ONCEWARD_<NAME>. An option wins over what the code says, and that
over the variable."""

COMMANDS = {
    "audit": "onceward.cli.console.audit",
    "check": "onceward.cli.check",
    "completion": "onceward.cli.console.completion",
    "dead": "onceward.cli.console.dead",
    "deliveries": "onceward.cli.console.events:deliveries",
    "doctor": "onceward.cli.console.doctor",
    "demo": "onceward.cli.demo.command",
    "dev": "onceward.cli.dev",
    "emit": "onceward.cli.console.emit",
    "events": "onceward.cli.console.events:events",
    "export": "onceward.cli.console.export",
    "migrate": "onceward.cli.migrate",
    "notices": "onceward.cli.console.notices",
    "overview": "onceward.cli.console.overview",
    "prune": "onceward.cli.console.prune",
    "redeliver": "onceward.cli.redeliver",
    "runs": "onceward.cli.console.runs",
    "send": "onceward.cli.send",
    "serve": "onceward.cli.serve",
    "sources": "onceward.cli.sources",
    "tokens": "onceward.cli.tokens",
    "users": "onceward.cli.users",
    "worker": "onceward.cli.worker",
    "workers": "onceward.cli.console.workers",
    "workflows": "onceward.cli.workflows",
}


class Commands(click.Group):
    """The commands by name, imported when they are needed; our errors become refusals."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's)
        """Give the names, sorted."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 (click's)
        """Give the command, or None, on which click says what was meant."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), name or "command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the first argument names; an unknown one is told with what was meant."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            close = difflib.get_close_matches(name, COMMANDS, n=1)
            known = f"Did you mean {close[0]!r}?" if close else f"There are: {', '.join(sorted(COMMANDS))}."
            ctx.fail(f"No such command {name!r}. {known}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was named."""
        if os.environ.get("NO_COLOR"):
            ctx.color = False
        try:
            return super().invoke(ctx)
        except OncewardError as error:
            raise Refusal(error) from error
        except click.NoSuchOption as error:
            params = error.ctx.command.params if error.ctx else []
            hidden = {name for one in params if getattr(one, "hidden", False) for name in one.opts}
            shown = [name for name in error.possibilities or () if name not in hidden]
            raise click.NoSuchOption(error.option_name, possibilities=shown, ctx=error.ctx) from None
        except KeyboardInterrupt:
            raise click.exceptions.Exit(INTERRUPTED) from None


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=EPILOG,
)
@click.version_option(__version__, prog_name="onceward", message="%(prog)s %(version)s")
def main() -> None:
    """Receive webhooks and events, make exactly one run of each, carry every run to its end."""
