"""A file outside the engine in which every body of a step says that it begins and that it ends.

It is written with one append per line, so it survives a SIGKILL of the writer, and it is the oracle
of every test about bodies that run twice: the store cannot know what it was not told.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from onceward.authoring.current import frame_var


class Line(NamedTuple):
    """What a body noted: milliseconds of the wall clock, process, run, generation, step, what."""

    at_ms: float
    pid: int
    run_id: str
    generation: int
    step: str
    what: str

    @property
    def key(self) -> tuple[str, int, str]:
        return self.run_id, self.generation, self.step


class Ledger:
    """The ledger of one test.

    Args:
        path: made when the first line is written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def note(self, run_id: str, generation: int, step: str, what: str) -> None:
        """Append one line."""
        line = Line(time.time_ns() / 1e6, os.getpid(), run_id, generation, step, what)
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, json.dumps(line).encode() + b"\n")
        finally:
            os.close(descriptor)

    @contextmanager
    def body(self) -> Iterator[None]:
        """Note the beginning and, if it comes to that, the end of the body that runs here."""
        frame = frame_var.get()
        assert frame is not None, "not inside a step's body"
        who = (frame.session.run_id, frame.session.generation, str(frame.key))
        self.note(*who, "start")
        yield
        self.note(*who, "end")

    def lines(self, **where: Any) -> list[Line]:
        """Give the lines that match, oldest first: ``lines(step="charge", what="start")``."""
        if not self.path.exists():
            return []
        found = [Line(*json.loads(text)) for text in self.path.read_text().splitlines()]
        return [line for line in found if all(getattr(line, name) == value for name, value in where.items())]

    def starts(self, step: str, **where: Any) -> int:
        """Give how often the body of *step* began."""
        return len(self.lines(step=step, what="start", **where))
