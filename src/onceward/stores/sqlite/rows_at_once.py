"""Many rows by one statement, so that a batch holds Python's lock a few times and not once a row.

The driver gives the lock back around each step of a statement and then waits for whoever took it,
which under load is the event loop. A statement of a hundred rows is one step.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

ROWS_MAX = 64
"""Rows of one statement; more take several. 64 rows of the widest table are 1,600 parameters of the
32,766 that SQLite allows."""

_VALUES = re.compile(r"values\s*(\([^()]*\))")


def portions(count: int) -> Iterator[int]:
    """Give by how many rows at a time *count* rows are written."""
    while count:
        portion = min(1 << count.bit_length() - 1, ROWS_MAX)
        yield portion
        count -= portion


class RowsAtOnce:
    """A statement with one ``values (…)``, for any number of rows.

    The number of rows in a statement is a power of two, so that a few texts serve all batches and stay
    prepared.

    Args:
        sql: with ``?`` for each value of a row, and no other parameters.
    """

    def __init__(self, sql: str) -> None:
        found = _VALUES.search(sql)
        assert found is not None, f"no values (…) in {sql!r}"
        self._before, self._row, self._after = sql[: found.start(1)], found[1], sql[found.end(1) :]
        self._texts: dict[int, str] = {}

    def execute(self, connection: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        """Run it for *rows*, by as few statements as there are."""
        at = 0
        for count in portions(len(rows)):
            values = tuple(chain.from_iterable(rows[at : at + count]))
            connection.execute(self._text(count), values)
            at += count

    def _text(self, count: int) -> str:
        text = self._texts.get(count)
        if text is None:
            text = self._texts[count] = f"{self._before}{', '.join([self._row] * count)}{self._after}"
        return text
