"""Keeps several processes serving one socket; starts another where one dies.

Each is ``onceward serve`` in a process of its own that imports the app itself, so nothing is shared
but the socket. They are told to drain with us, and drain by themselves when we die.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence

from onceward.cli.signals import stop_signals
from onceward.core.errors import ConfigError

RESTART_PAUSE_SECONDS = 1.0
# Beyond the drain itself: closing the store, and the interpreter's own end.
STOP_EXTRA_SECONDS = 15.0
_STDIN = "0"
_WRONG_CONFIGURATION = 2

_log = logging.getLogger("onceward.cli")


def supervise(
    target: str, given: Mapping[str, str | None], count: int, listener: socket.socket, *, drain_ms: int
) -> None:
    """Run *count* processes until a signal comes, and return when all have drained.

    Args:
        target: ``MODULE:APP``.
        given: settings to hand on as options. An instance's name gets the process's number, since
            two processes of one name evict each other.
        count: how many.
        listener: the socket that they share.
        drain_ms: how long one may take to drain.

    Raises:
        ConfigError: a process says that it can never start.
    """
    command = [sys.executable, "-m", "onceward", "serve", target, "--insecure"]
    command += ["--listener-fd", str(listener.fileno()), "--parent-fd", _STDIN]
    commands = [[*command, *_options(given, number)] for number in range(1, count + 1)]
    asyncio.run(_Workers(commands, listener.fileno(), drain_ms / 1000).run())


def _options(given: Mapping[str, str | None], number: int) -> Iterator[str]:
    for name, text in given.items():
        if text is not None:
            yield f"--{name.replace('_', '-')}"
            yield f"{text}-{number}" if name == "instance" else text


class _Workers:
    """The processes.

    Args:
        commands: one for each.
        descriptor: the socket that each inherits.
        drain_seconds: how long one may take to stop.
    """

    def __init__(self, commands: Sequence[Sequence[str]], descriptor: int, drain_seconds: float) -> None:
        self._commands = commands
        self._descriptor = descriptor
        self._drain_seconds = drain_seconds
        self._stopping = asyncio.Event()
        self._live: set[asyncio.subprocess.Process] = set()
        self._is_hopeless = False

    async def run(self) -> None:
        """Start every process and keep it until asked to stop."""
        loop = asyncio.get_running_loop()
        with stop_signals(lambda: loop.call_soon_threadsafe(self._stopping.set)):
            slots = [loop.create_task(self._keep_one(command)) for command in self._commands]
            await self._stopping.wait()
            for process in self._live:
                process.send_signal(signal.SIGTERM)
            _, late = await asyncio.wait(slots, timeout=2 * self._drain_seconds + STOP_EXTRA_SECONDS)
            for process in self._live:
                process.kill()
            await asyncio.gather(*late)
        if self._is_hopeless:
            raise ConfigError(
                "A process cannot start; its own error stands above.",
                means="Starting it again would not help, so all of them were stopped.",
                todo="Correct what it says.",
            )

    async def _keep_one(self, command: Sequence[str]) -> None:
        while not self._stopping.is_set():
            try:
                # A session of its own: Ctrl-C reaches us alone, and we tell each process once.
                process = await asyncio.create_subprocess_exec(
                    *command,
                    stdin=asyncio.subprocess.PIPE,
                    pass_fds=[self._descriptor],
                    start_new_session=True,
                )
            except OSError as error:
                _log.error("a process could not be started, trying again: %s", error)
                await _sleep_unless(self._stopping, RESTART_PAUSE_SECONDS)
                continue
            self._live.add(process)
            try:
                if self._stopping.is_set():
                    process.send_signal(signal.SIGTERM)
                status = await process.wait()
            finally:
                self._live.discard(process)
            if self._stopping.is_set():
                return
            if status == _WRONG_CONFIGURATION:
                self._is_hopeless = True
                self._stopping.set()
                return
            _log.warning("process %d ended with status %d; another one is started", process.pid, status)
            await _sleep_unless(self._stopping, RESTART_PAUSE_SECONDS)


async def _sleep_unless(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
