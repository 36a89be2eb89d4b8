"""Processes forked from this one, so many at a time, each with a bound: what they found comes back as JSON."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WALL_FACTOR = 30
"""How much longer a child may take on the clock than on the processor, for which it may have to wait."""

_PR_SET_PDEATHSIG = 1

Work = Callable[[Path], Any]
"""What a child does, in a folder of its own."""

Then = Callable[[Any, str], None]
"""Told what the child gave and "", or None and what became of it: "time" or its last words."""


@dataclass
class _Child:
    pid: int
    folder: Path
    ends_at: float
    then: Then


@dataclass
class Children:
    """Forks children and waits for them.

    Attributes:
        width: how many there are at a time.
    """

    width: int
    _waiting: deque[tuple[Work, float, Then]] = field(default_factory=deque)
    _running: dict[int, _Child] = field(default_factory=dict)

    def add(self, work: Work, cpu_seconds: float, then: Then) -> None:
        """Have *work* done when there is room, within so many seconds of the processor."""
        self._waiting.append((work, cpu_seconds, then))

    def run(self) -> None:
        """Return when nothing is left to do; `Then` may add more."""
        try:
            while self._waiting or self._running:
                while self._waiting and len(self._running) < self.width:
                    self._start(*self._waiting.popleft())
                ended, _, _ = select.select(list(self._running), [], [], 1.0)
                late = [end for end, child in self._running.items() if child.ends_at < time.monotonic()]
                for end in dict.fromkeys([*ended, *late]):
                    self._reap(end, is_late=end not in ended)
        finally:
            for child in self._running.values():
                os.killpg(child.pid, signal.SIGKILL)

    def _start(self, work: Work, cpu_seconds: float, then: Then) -> None:
        folder = Path(tempfile.mkdtemp(prefix="mutant-"))
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            try:
                _do(work, folder, cpu_seconds)
            finally:
                os._exit(0)
        with contextlib.suppress(PermissionError):  # the child was first, and is past that
            os.setpgid(pid, pid)
        end = os.pidfd_open(pid)
        self._running[end] = _Child(pid, folder, time.monotonic() + WALL_FACTOR * cpu_seconds, then)

    def _reap(self, end: int, *, is_late: bool) -> None:
        child = self._running.pop(end)
        with contextlib.suppress(ProcessLookupError):  # also what it has left behind
            os.killpg(child.pid, signal.SIGKILL)
        _, status = os.waitpid(child.pid, 0)
        os.close(end)
        result = child.folder / "result.json"
        found = json.loads(result.read_text()) if result.exists() else None
        if found is not None:
            became = ""
        elif is_late or (os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL)):
            became = "time"
        else:
            became = (child.folder / "output").read_text(errors="replace")[-2000:] or f"status {status}"
        shutil.rmtree(child.folder, ignore_errors=True)
        child.then(found, became)


def _do(work: Work, folder: Path, cpu_seconds: float) -> None:
    """In a child: do its work, and leave what it gave where the parent looks."""
    os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    seconds = int(cpu_seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    output = os.open(folder / "output", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, to in ((0, nothing), (1, output), (2, output)):
        os.dup2(to, number)
    try:
        found = json.dumps(work(folder))
    except BaseException:
        traceback.print_exc()
        raise
    written = folder / "result"
    written.write_text(found)
    written.rename(folder / "result.json")
