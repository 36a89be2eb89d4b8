"""An outside witness of bodies: a file to which each writes a line as it begins and as it ends.

One ``write`` a line to a file opened for appending, so that a killed process loses none.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple


class Ledger:
    """Writes lines from one process."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def begin(self, body: str) -> None:
        """Say that a body begins."""
        os.write(self._file, f"begin {time.monotonic():.6f} {body}\n".encode())

    def end(self, body: str) -> None:
        """Say that a body has ended."""
        os.write(self._file, f"end {time.monotonic():.6f} {body}\n".encode())


class Told(NamedTuple):
    """What a ledger tells."""

    begins: Counter[str]
    ends: Counter[str]
    times: list[float]  # of the begins, in order

    @property
    def in_flight(self) -> int:
        """Give how many bodies began and have not ended."""
        return sum((self.begins - self.ends).values())

    @property
    def twice(self) -> int:
        """Give how many bodies began more than once."""
        return sum(count > 1 for count in self.begins.values())


def read(path: Path) -> Told:
    """Read a ledger; one that nobody has opened yet is empty."""
    told = Told(Counter(), Counter(), [])
    for line in path.read_text().splitlines() if path.exists() else ():
        what, at, body = line.split(" ", 2)
        if what == "begin":
            told.begins[body] += 1
            told.times.append(float(at))
        else:
            told.ends[body] += 1
    return told
