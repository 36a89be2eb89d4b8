"""Tables of a user's database, compared before and after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

Connect = Callable[[], Any]


class Table:
    """One watched table.

    Args:
        connect: gives a DB-API connection of its own for each look.
        name: as SQL writes it.

    Attributes:
        was_there: it existed at one of the looks.
    """

    def __init__(self, connect: Connect, name: str) -> None:
        self.name = name
        self.was_there = False
        self._connect = connect
        self._rows: Counter[str] = Counter()

    def look(self) -> list[str]:
        """Give the rows that are new or changed since the last look; a table that is missing has none."""
        rows = self._read()
        new = rows - self._rows
        self._rows = rows
        return sorted(new.elements())

    def _read(self) -> Counter[str]:
        connection = self._connect()
        try:
            cursor = connection.cursor()
            try:
                cursor.execute(f"select * from {self.name}")  # noqa: S608 - the test's own name
            except Exception as error:
                if "no such table" in str(error) or "does not exist" in str(error):
                    return Counter()  # the app makes it when it is first used
                raise
            self.was_there = True
            return Counter(", ".join(map(repr, row)) for row in cursor.fetchall())
        finally:
            connection.close()
