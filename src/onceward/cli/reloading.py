"""Keeps one serving process, and puts another in its place when a file changes.

The socket stays open meanwhile, so that a delivery that comes during a change waits and is not
refused. A process that cannot start says why, and the next change starts another.
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import click
import uvicorn
from uvicorn.supervisors.statreload import StatReload

from onceward.cli.listen import bound
from onceward.cli.logs import configure
from onceward.cli.refusal import Refusal
from onceward.core.errors import OncewardError
from onceward.core.settings import SETTINGS, resolve

LOOK_SECONDS = 0.25
END_SECONDS = 10.0
"""Beyond which a process that was asked to stop is killed; a loop that user code blocks cannot drain."""

DRAIN = "500ms"
"""What waits for a change shall not wait long; what is cut off goes on from its last saved step."""

LEFT_OUT = frozenset({"node_modules", "site-packages", "__pycache__", "venv"})
"""Folders that are not looked into, beside those whose names begin with a dot."""


def serve(target: str, given: Mapping[str, str | None]) -> None:
    """Serve until a signal comes.

    Args:
        target: ``MODULE:APP``.
        given: settings that were given as options, as text.

    Raises:
        ConfigError: a setting cannot be used, or the port not be listened on.
    """
    settings = resolve(SETTINGS, given, os.environ)
    configure(settings.log_level, is_short=True, form=settings.log_format)
    options = {
        **given,
        "host": "127.0.0.1",
        "dashboard": "on",
        "api": "on",
        "drain": given.get("drain") or DRAIN,
    }
    with bound("127.0.0.1", settings.port) as listener:
        # uvicorn's settings are only looked at for where to watch.
        watched = uvicorn.Config(target, log_config=None, reload=True, reload_dirs=[str(Path.cwd())])
        watched.reload_delay = LOOK_SECONDS
        _Reload(watched, target, options, listener).run()


class _Reload(StatReload):
    """uvicorn's reloader, with our process, and without the folders of other people's code."""

    def __init__(
        self, config: uvicorn.Config, app: str, given: Mapping[str, str | None], listener: socket.socket
    ) -> None:
        self._child = functools.partial(_serve_once, app, dict(given))
        super().__init__(config, target=functools.partial(self._child, is_first=True), sockets=[listener])
        self.mtimes = self._times()

    def restart(self) -> None:
        """End the process, and start one with the code as it is now."""
        self._end()
        self.target = functools.partial(self._child, is_first=False)
        seen = self._times()
        super().restart()
        self.mtimes = seen  # from before the process reads the files: a change since then is not missed

    def shutdown(self) -> None:
        """End the process, and everything."""
        self._end()
        super().shutdown()

    def _end(self) -> None:
        self.process.terminate()
        self.process.join(END_SECONDS)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()

    def _times(self) -> dict[Path, float]:
        times = {}
        for path in self.iter_py_files():
            with contextlib.suppress(OSError):
                times[path] = path.stat().st_mtime
        return times

    def iter_py_files(self) -> Iterator[Path]:
        """Give the Python files below the current folder."""
        for folder, folders, names in os.walk(Path.cwd()):
            folders[:] = [name for name in folders if name not in LEFT_OUT and not name.startswith(".")]
            for name in names:
                if name.endswith(".py"):
                    yield Path(folder, name)


def _serve_once(
    app: str, given: dict[str, str | None], *, is_first: bool, sockets: list[socket.socket] | None = None
) -> None:
    """Serve in a process of its own until it is asked to stop."""
    from onceward.cli import receiving
    from onceward.cli.telling import tell_runs

    if hasattr(os, "setsid"):
        os.setsid()  # Ctrl-C reaches the parent alone, which asks us once
    threading.Thread(target=_end_with_parent, name="onceward-parent", daemon=True).start()
    assert sockets, "the reloader hands its socket on"
    try:
        receiving.serve_again(app, given, sockets[0], is_first=is_first, beside=tell_runs)
    except OncewardError as error:
        Refusal(error).show()
        click.echo("Waiting for a change.", err=True)
        sys.exit(1)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        with contextlib.suppress(OSError):
            parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
