"""A process of the story: started, waited for, killed; never left behind.

Each has a session of its own, so that Ctrl-C reaches the director alone, and a pipe as its standard
input, which closes when the director dies and tells the process to end.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from onceward.core.errors import OncewardError

LOG_TAIL_LINES = 12
FIRST_LINE_SECONDS = 20
STOP_SECONDS = 20


class StoryProcess:
    """A running process.

    Args:
        name: for messages.
        log: the file that its standard error is appended to.
    """

    def __init__(self, name: str, log: Path, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self._log = log
        self._process = process

    @classmethod
    async def start(
        cls, name: str, command: Sequence[str], *, log: Path, env: Mapping[str, str]
    ) -> StoryProcess:
        """Start a command; its standard output can be read as `first_line`."""
        with log.open("ab") as file:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=file,
                env=dict(env),
                start_new_session=True,
            )
        return cls(name, log, process)

    @property
    def status(self) -> int | None:
        """Give the exit status; minus the signal's number when one ended it, None while it runs."""
        return self._process.returncode

    async def first_line(self) -> str:
        """Give the first line that it prints."""
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(FIRST_LINE_SECONDS):
                line = await self._process.stdout.readline()
        except TimeoutError:
            line = b""
        if not line:
            raise self.failure("did not say that it runs")
        return line.decode().strip()

    async def ended(self) -> int:
        """Wait for its end and give the status."""
        return await self._process.wait()

    async def stop(self) -> int:
        """Ask it to stop, wait, and give the status."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(STOP_SECONDS):
            return await self._process.wait()

    async def kill(self) -> None:
        """End it now, whatever it does; does nothing when it has ended."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()

    def failure(self, what: str) -> OncewardError:
        """Give the error that says *what* went wrong, with the end of the log."""
        try:
            tail = "\n".join(self._log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])
        except OSError:
            tail = ""
        return OncewardError(
            f"{self.name} {what}.",
            means="The story cannot go on; nothing can be said about the promises.",
            todo=f"Its last words:\n{tail}" if tail else "It said nothing.",
        )
