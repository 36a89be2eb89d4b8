"""What the story looks like: lines while it goes on, a table at its end.

Colours and the moving line on a terminal only. Everything is ASCII and fits 80 columns, so that any
terminal, pipe or log can show it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text

from onceward.cli.demo.verdict import Check, Verdict

_INDENT = " " * 9
"""The width of a time, for the lines below it."""
_HINT_CHARS = 10


class Screen:
    """Where the story is told.

    Args:
        to_stderr: leave the standard output to the machine that reads it.
    """

    def __init__(self, *, to_stderr: bool) -> None:
        self._console = Console(stderr=to_stderr, highlight=False, emoji=False)
        self._began = time.monotonic()
        self._status = self._console.status("", spinner="line", spinner_style="cyan")

    def title(self, text: str, *more: str) -> None:
        """Print what is told."""
        self._line((text, "bold"))
        for line in more:
            self._line((line, "dim"))
        self._line()

    @contextmanager
    def working(self) -> Iterator[None]:
        """Show that something happens, until the block ends."""
        if not self._console.is_terminal:
            yield
            return
        with self._status:
            yield

    def now(self, text: str) -> None:
        """Say what is being done; on a terminal only, gone with the next."""
        self._status.update(Text(text, style="dim"))

    def say(self, text: str, *more: str, style: str = "") -> None:
        """Print what happened, with the time since the beginning; *more* are lines below it."""
        seconds = time.monotonic() - self._began
        self._line((f"{seconds:5.1f} s  ", "dim"), (text, style))
        for line in more:
            self._line(_INDENT, line)

    def table(self, verdict: Verdict) -> None:
        """Print expected beside found."""
        heads = Check("", "expected", "found", is_right=True)
        rows = [heads, *verdict.checks]
        label = max(len(row.label) for row in rows)
        expected = max(len(row.expected) for row in rows)
        found = max(len(row.found) for row in rows)
        self._line()
        for row in rows:
            mark, style = ("ok", "green") if row.is_right else ("NO", "bold red")
            cells = [f"  {row.label:{label}}  {row.expected:>{expected}}  ", f"{row.found:>{found}}"]
            if row is heads:
                self._line(("".join(cells), "dim"))
            else:
                remark = (f"  {row.remark}" if row.remark else "", "dim")
                self._line(cells[0], (cells[1], "" if row.is_right else style), (f"  {mark}", style), remark)
        self._line()

    def verdict(self, text: str, *, is_right: bool) -> None:
        """Print the last word."""
        self._line((f"  {text}", "bold green" if is_right else "bold red"))

    def hint(self, label: str, text: str, *more: str) -> None:
        """Print where to look further; *more* are lines below it, so that *text* can be copied whole."""
        self._line((f"  {label:{_HINT_CHARS}}", "dim"), text)
        for line in more:
            self._line(" " * (_HINT_CHARS + 2), (line, "dim"))

    def _line(self, *parts: str | tuple[str, str]) -> None:
        # Not wrapped by us: a terminal wraps a long path so that it can still be copied.
        self._console.print(Text.assemble(*parts), soft_wrap=True)


def home_relative(path: str) -> str:
    """Give a path as a person types it from here, if that is shorter."""
    relative = os.path.relpath(path)
    return relative if len(relative) < len(path) and not relative.startswith("..") else path
