"""Many rows by one statement, so that a batch holds Python's lock a few times and not once a row.

The driver gives the lock back around each step of a statement and then waits for whoever took it,
which under load is the event loop. A statement of a hundred rows is one step.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

ROWS_MAX = 64
"""Rows of one statement; more take several. 64 rows of the widest table are 1,600 parameters of the
32,766 that SQLite allows."""

SHAPES_MAX = 8
"""Sets of columns that are written as ``null``, of one statement: each takes prepared texts of its own."""

_VALUES = re.compile(r"values\s*(\([^()]*\))")

_Row = tuple[Any, ...]


def portions(count: int) -> Iterator[int]:
    """Give by how many rows at a time *count* rows are written."""
    while count:
        portion = min(1 << count.bit_length() - 1, ROWS_MAX)
        yield portion
        count -= portion


class RowsAtOnce:
    """A statement with one ``values (…)``, for any number of rows.

    The number of rows in a statement is a power of two, so that a few texts serve all batches and stay
    prepared. A column that is empty in all of them is no parameter but a ``null`` of the text: the driver
    looks for an adapter of each None, which takes as long as ten numbers do, and most columns are empty.

    Args:
        sql: with ``?`` for each value of a row, and ``?1`` and so on for those that all rows share.
        shared: these; each is bound once, however many rows there are.

    Attributes:
        shapes: the statements for which columns are empty, by their places; few, since each stays prepared.
    """

    def __init__(self, sql: str, *shared: Any) -> None:
        found = _VALUES.search(sql)
        assert found is not None, f"no values (…) in {sql!r}"
        self._before, self._after = sql[: found.start(1)], sql[found.end(1) :]
        self._marks = found[1][1:-1].split(",")
        self._places = [place for place, mark in enumerate(self._marks) if mark.strip() == "?"]
        self._shared = shared
        self.shapes: dict[tuple[int, ...], _Shape] = {}

    def execute(self, connection: sqlite3.Connection, rows: Sequence[_Row]) -> int:
        """Run it for *rows*, by as few statements as there are; give how many rows it wrote."""
        at = written = 0
        for count in portions(len(rows)):
            portion = rows[at : at + count]
            text, values = self._shape(portion).of(portion)
            written += connection.execute(text, self._shared + values).rowcount
            at += count
        return written

    def _shape(self, rows: Sequence[_Row]) -> _Shape:
        """Give what writes the columns that are empty in all *rows* without a parameter."""
        empty = [place for place, value in enumerate(rows[0]) if value is None]
        if len(rows) > 1 and empty:
            columns = list(zip(*rows, strict=True))
            empty = [place for place in empty if columns[place].count(None) == len(rows)]
        key = tuple(empty)
        shape = self.shapes.get(key)
        if shape is None:
            if len(self.shapes) >= SHAPES_MAX:
                key = ()  # all of them are parameters
            shape = self.shapes.get(key) or self._make(key)
            self.shapes[key] = shape
        return shape

    def _make(self, empty: Sequence[int]) -> _Shape:
        marks = self._marks.copy()
        for place in empty:
            marks[self._places[place]] = " null"
        kept = [place for place in range(len(self._places)) if place not in empty]
        return _Shape(self._before, f"({','.join(marks)})", self._after, kept)


class _Shape:
    """The statement for rows that have a value in the same columns at most."""

    def __init__(self, before: str, row: str, after: str, kept: Sequence[int]) -> None:
        self._before, self._row, self._after = before, row, after
        self._texts: dict[int, str] = {}
        # One value alone would be given bare and not in a tuple.
        self._pick: Callable[[_Row], _Row] = (
            itemgetter(*kept) if len(kept) > 1 else lambda row: tuple(row[place] for place in kept)
        )

    def of(self, rows: Sequence[_Row]) -> tuple[str, _Row]:
        """Give the text for so many rows, and its parameters."""
        count = len(rows)
        text = self._texts.get(count)
        if text is None:
            text = self._texts[count] = f"{self._before}{', '.join([self._row] * count)}{self._after}"
        pick = self._pick
        return text, pick(rows[0]) if count == 1 else tuple(chain.from_iterable(map(pick, rows)))
