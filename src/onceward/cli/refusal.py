"""How an error of ours looks on the command line: what happened, what it means, what to do."""

from __future__ import annotations

from typing import IO, Any

import click

from onceward.cli.plain import plain
from onceward.core.errors import ConfigError, OncewardError, StoreError


class Refusal(click.ClickException):
    """An error of ours, told without a traceback.

    Args:
        error: what was raised.
    """

    def __init__(self, error: OncewardError) -> None:
        super().__init__(error.what)
        self.error = error
        # Asked here: the context has been left when the error is shown.
        context = click.get_current_context(silent=True)
        self._color = None if context is None else context.color
        self.exit_code = exit_code_of(error)  # type: ignore[misc]  # click reads it from the instance

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the parts, one below the other, to the standard error by default."""
        is_err, color = file is None, self._color
        head = click.style(f"Error [{self.error.code}]:", fg="red", bold=True)
        parts = [part for part in (self.error.means, self.error.todo) if part]
        click.echo(f"{head} {indented(self.error.what)}", file=file, err=is_err, color=color)
        for part in parts:
            click.echo(f"  {indented(part)}", file=file, err=is_err, color=color)


def exit_code_of(error: OncewardError) -> int:
    """Give 3 where the store is to blame, 2 for what was configured, 1 for all else."""
    if isinstance(error, StoreError):
        return 3
    return 2 if isinstance(error, ConfigError) else 1


def indented(text: str) -> str:
    """Give a text of one or several lines, those after the first indented; nothing controls the terminal."""
    return "\n    ".join(plain(line) for line in text.rstrip().split("\n"))
