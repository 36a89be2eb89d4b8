"""Tables of a user's database, compared before and after."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from onceward.core.errors import ConfigError

Connect = Callable[[], Any]


class Table:
    """One watched table.

    Args:
        connect: gives a DB-API connection.
        name: as SQL writes it.
        empties: its rows are deleted at each beginning.

    Attributes:
        was_there: it existed at one of the looks.
        has_moved: a row was new or changed at one of them.
    """

    def __init__(self, connect: Connect, name: str, *, empties: bool = False) -> None:
        self.name = name
        self.empties = empties
        self.was_there = self.has_moved = False
        self._connect = connect
        self._rows: Counter[str] = Counter()
        self._first: Counter[str] | None = None
        self._kept: tuple[int, Any] | None = None  # the thread that may use it, a connection

    def empty(self) -> None:
        """Delete its rows, where that is asked for."""
        if not self.empties:
            return
        connection = self._connect()
        try:
            if self._run(connection, f"delete from {self.name}") is not None:  # noqa: S608 - the test's own name
                connection.commit()
        finally:
            connection.close()

    def begin(self) -> None:
        """Begin a variant: what is there now was there before.

        Raises:
            ConfigError: an earlier variant has left rows, which could decide what this one does.
        """
        self.close()
        self._rows = self._read()
        if self._first is None:
            self._first = self._rows
        elif left := self._rows - self._first:
            raise ConfigError(
                f"The table {self.name!r} begins a variant with what an earlier one left, such as {min(left)[:100]}.",
                means="A row that is there already is not written again, so doubles would not be seen.",
                todo=f"Delete its rows: outside.table(connect, {self.name!r}, empty=True), or in fresh=….",
            )

    def forget(self) -> None:
        """Be as before the first variant."""
        self.close()
        self._rows, self._first = Counter(), None
        self.has_moved = False

    def look(self) -> tuple[list[str], bool]:
        """Give the rows that are new or changed since the last look, and whether none was added.

        A table that is missing has no rows.
        """
        rows, before = self._read(), self._rows
        self._rows = rows
        self.has_moved = self.has_moved or rows != before
        return sorted((rows - before).elements()), rows.total() <= before.total()

    def close(self) -> None:
        """Close the connection that is kept from look to look."""
        kept, self._kept = self._kept, None
        if kept is not None:
            kept[1].close()

    def _read(self) -> Counter[str]:
        thread = threading.get_ident()
        if self._kept is None:
            self._kept = thread, self._connect()
        owner, connection = self._kept
        if owner != thread:  # as connections of SQLite ask for it
            with contextlib.closing(self._connect()) as connection:
                return self._rows_on(connection)
        return self._rows_on(connection)

    def _rows_on(self, connection: Any) -> Counter[str]:
        rows = self._run(connection, f"select * from {self.name}")  # noqa: S608 - the test's own name
        connection.rollback()  # or the next look would see what this one saw, and keep others waiting
        if rows is None:
            return Counter()  # the app makes it when it is first used
        self.was_there = True
        return Counter(", ".join(map(repr, row)) for row in rows)

    def _run(self, connection: Any, sql: str) -> list[Any] | None:
        """Give the rows of a statement; None where the table is missing."""
        cursor = connection.cursor()
        try:
            cursor.execute(sql)
        except Exception as error:
            if "no such table" in str(error) or "does not exist" in str(error):
                return None
            raise
        return cursor.fetchall() if cursor.description else []
