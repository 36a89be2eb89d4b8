"""How a terminal shows things: times as people say them, tables, colours; and JSON for programs."""

from __future__ import annotations

import json
import os
import sys
import textwrap
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click
import msgspec
from rich.console import Console as Terminal
from rich.text import Text

from onceward.cli.plain import plain
from onceward.core.model import Millis

STYLES = {
    "completed": "green",
    "done": "green",
    "accepted": "green",
    "failed": "bold red",
    "held": "bold magenta",
    "lost": "red",
    "clash": "red",
    "unparsed": "red",
    "running": "bold cyan",
    "queued": "cyan",
    "backoff": "yellow",
    "cancelling": "yellow",
    "sleeping": "blue",
    "waiting": "blue",
    "open": "cyan",
}
"""Colours of states; what is not here has none."""

PIPED_WIDTH = 10_000
"""Nothing is cut short where a program reads."""


def terminal(*, is_error: bool = False) -> Terminal:
    """Give where to print: as wide as the terminal, or without a limit in a pipe."""
    stream = sys.stderr if is_error else sys.stdout
    is_terminal = stream.isatty()
    width = None if is_terminal or os.environ.get("COLUMNS") else PIPED_WIDTH
    return Terminal(
        file=stream, width=width, highlight=False, soft_wrap=False, no_color=bool(os.environ.get("NO_COLOR"))
    )


def now_ms() -> Millis:
    """Give this machine's time, for what is said beside a stored one."""
    return time.time_ns() // 1_000_000


# --- times ------------------------------------------------------------------------------------------


def rfc3339(at: Millis) -> str:
    """Give a time as programs read it, in UTC to the millisecond."""
    moment = datetime.fromtimestamp(at / 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{at % 1000:03d}Z"


def length(ms: Millis) -> str:
    """Give a length of time in one unit or two: ``12 ms``, ``1.2 s``, ``3 min``, ``2 h``, ``5 d``."""
    if ms < 1_000:
        return f"{ms} ms"
    if ms < 59_500:
        return f"{ms / 1000:.1f} s" if ms < 9_950 else f"{round(ms / 1000)} s"
    for unit, size, above in (("min", 60_000, 60), ("h", 3_600_000, 48)):
        if _rounded(ms, size) < above:
            return f"{_rounded(ms, size)} {unit}"
    return f"{_rounded(ms, 86_400_000)} d"


def _rounded(ms: Millis, size: Millis) -> int:
    return (ms + size // 2) // size


def when(at: Millis | None, now: Millis) -> str:
    """Give a time as people say it; as programs read it where no terminal is."""
    if at is None:
        return "-"
    if not sys.stdout.isatty() and not os.environ.get("COLUMNS"):
        return rfc3339(at)
    away = abs(now - at)
    if away < 1_000:
        return "now"
    return f"{length(away)} ago" if at < now else f"in {length(away)}"


# --- what is printed --------------------------------------------------------------------------------


def text(value: object, style: str = "") -> Text:
    """Give a user's text as one line that controls no terminal."""
    return Text(plain(str(value)), style=style)


def state(name: str) -> Text:
    """Give a state in its colour."""
    return text(name, STYLES.get(name, ""))


def print_table(
    *columns: str,
    rows: Sequence[Sequence[Text | str]],
    narrow: Sequence[str],
    is_indented: bool = False,
    ends_below: bool = False,
) -> None:
    """Print a table without lines.

    Args:
        columns: their names.
        rows: a cell for each column.
        narrow: the columns that are cut where the terminal is narrow, the first one first; ids are
            not among them, since they are copied.
        is_indented: by two.
        ends_below: the last column has lines of its own where there is no room for it.
    """
    out = terminal()
    lines = [[text(name, "dim") for name in columns]]
    lines += [[cell if isinstance(cell, Text) else text(cell) for cell in row] for row in rows]
    indent = 2 if is_indented else 0
    widths = [max(line[number].cell_len for line in lines) for number in range(len(columns))]
    left = out.width - indent - sum(width + 2 for width in widths[:-1])
    below: list[Text] = []
    if ends_below and left < min(widths[-1], LAST_MIN):
        below = [line.pop() for line in lines]
        widths.pop()
    over = sum(widths) + 2 * (len(widths) - 1) + indent - out.width
    for name in narrow:
        number = columns.index(name)
        if number == len(widths):
            continue
        given = max(min(over, widths[number] - COLUMN_MIN), 0)
        widths[number] -= given
        over -= given
    for at, line in enumerate(lines):
        joined = Text(" " * indent)
        for number, (cell, width) in enumerate(zip(line, widths, strict=True)):
            cut = cell.copy()
            cut.truncate(width, overflow="ellipsis", pad=number < len(widths) - 1)
            joined.append_text(cut).append("" if number == len(widths) - 1 else "  ")
        out.print(joined, no_wrap=True, overflow="ellipsis", crop=True)
        if below and below[at].plain:
            out.print(
                Text(" " * (indent + 2)).append_text(below[at]), no_wrap=True, overflow="ellipsis", crop=True
            )


COLUMN_MIN = 8
"""So much of a column stays, however narrow the terminal is."""

LAST_MIN = 40
"""A last column that says why has so much, or a line of its own."""


def fields(rows: Sequence[tuple[str, Text | str | None]], indent: str = "  ") -> None:
    """Print names with values below each other; None leaves one out. A terminal gets long values folded."""
    shown = [(plain(name), value) for name, value in rows if value is not None]
    width = max((len(name) for name, _ in shown), default=0)
    out = terminal()
    head = len(indent) + width + 2
    for name, value in shown:
        line = Text(f"{indent}{name.ljust(width)}  ", style="dim")
        said = value if isinstance(value, Text) else text(value)
        for number, part in enumerate(_folded(said, out, head)):
            out.print((line if number == 0 else Text(" " * head)).append_text(part), soft_wrap=True)


def whole(words: str, indent: str = "  ") -> None:
    """Print text of somebody else's, line by line as it is; a terminal gets long lines folded."""
    out = terminal()
    for line in words.splitlines():
        for part in _folded(text(line), out, len(indent)):
            out.print(Text(indent).append_text(part), soft_wrap=True)


def _folded(words: Text, out: Terminal, indent: int) -> Sequence[Text]:
    """Give a line as the lines that it takes behind an indent; a pipe gets it whole."""
    room = out.width - indent
    if out.width >= PIPED_WIDTH or words.cell_len <= room:
        return [words]
    return list(words.wrap(out, max(room, COLUMN_MIN), overflow="fold"))


def heading(words: str) -> None:
    """Print what the next lines are about."""
    terminal().print(Text(f"\n{plain(words)}", style="bold"))


def say(line: Text | str, style: str = "") -> None:
    """Print a line; long ones are folded at words, and keep their indent."""
    out = terminal()
    if isinstance(line, Text):
        out.print(line if line.plain.isprintable() else text(line.plain), soft_wrap=True)
        return
    said = plain(line)
    indent = " " * (len(said) - len(said.lstrip()))
    folded = textwrap.wrap(
        said, out.width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    for part in folded or [""]:
        out.print(Text(part, style=style), soft_wrap=True)


def command(words: str, why: str = "") -> None:
    """Print a command that can be copied, and what it does below it."""
    # Not folded by us: what a terminal folds is copied as one line.
    terminal().print(Text(f"  {plain(words)}", style="bold"), soft_wrap=True)
    if why:
        say(f"      {why}", "dim")


# --- JSON -------------------------------------------------------------------------------------------

_TIMES = frozenset({"at", "now", "lease_until", "oldest_due_at"})


def print_json(value: Any) -> None:
    """Print structs as JSON, times by RFC 3339."""
    data = msgspec.json.decode(msgspec.json.encode(value))
    click.echo(_inert(msgspec.json.format(msgspec.json.encode(_timed(data)), indent=2).decode()))


def json_line(value: Any) -> str:
    """Give a struct as JSON on one line, times by RFC 3339."""
    data = msgspec.json.decode(msgspec.json.encode(value))
    return _inert(msgspec.json.encode(_timed(data)).decode())


def _inert(text: str) -> str:
    """Give JSON in which nothing controls a terminal: it may be printed on one, and U+009B is as good as ESC."""
    if text.isascii() and "\x7f" not in text:
        return text
    return "".join(char if char.isprintable() or char < "\x7f" else json.dumps(char)[1:-1] for char in text)


_USERS = frozenset({"payload", "input", "output", "question", "warning", "rules", "triggers"})
"""Values of users', in which nothing is ours to rewrite."""


def _timed(data: Any) -> Any:
    if isinstance(data, list):
        return [_timed(item) for item in data]
    if not isinstance(data, dict):
        return data
    return {
        key: rfc3339(item)
        if isinstance(item, int) and not isinstance(item, bool) and (key in _TIMES or key.endswith("_at"))
        else item
        if key in _USERS
        else _timed(item)
        for key, item in data.items()
    }


def value(found: Any, chars_max: int) -> str:
    """Give a JSON value on one line, cut to so many characters."""
    encoded = plain(msgspec.json.encode(found).decode())
    return encoded if len(encoded) <= chars_max else f"{encoded[: chars_max - 1]}…"
