"""Ends the servers of a process that died, and removes their directory.

Started by ``onceward.testing.servers`` as a program of its own, so that it also works when the
process that owns a server is killed. It must stay free of imports from Onceward: it is run by
path, and it has to start fast. It detaches at once; its starter only waits for that.

It watches one process. When that process is gone, it ends whatever has a pid file in the
server's directory, then removes the directory. When the directory is gone, it leaves.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import time
from pathlib import Path

CHECK_EVERY_SECONDS = 1.0
QUIT_WITHIN_SECONDS = 5.0
PID_FILES = ("data/postmaster.pid", "pgbouncer.pid")


def main(arguments: list[str]) -> int:
    """Detach, wait for the owner's end, clean up.

    Args:
        arguments: the owner's process id and the directory to clean.
    """
    owner_pid, home = int(arguments[0]), Path(arguments[1])
    if os.fork() != 0:
        return 0
    os.setsid()
    os.chdir("/")
    with open(os.devnull, "r+b") as nothing:
        for descriptor in (0, 1, 2):
            os.dup2(nothing.fileno(), descriptor)
    wait_for_end(owner_pid, home)
    clean(home)
    return 0


def wait_for_end(owner_pid: int, home: Path) -> None:
    """Return when the process is gone or the directory is."""
    try:
        # A pid can be given to another process; a descriptor of the process cannot.
        owner = os.pidfd_open(owner_pid)
    except ProcessLookupError:
        return
    except (AttributeError, OSError):  # not Linux, or a kernel before 5.3
        while home.exists() and is_alive(owner_pid):
            time.sleep(CHECK_EVERY_SECONDS)
        return
    while home.exists():
        ended, _, _ = select.select([owner], [], [], CHECK_EVERY_SECONDS)
        if ended:
            return


def clean(home: Path) -> None:
    """End the servers that run from *home*, then remove it."""
    for name in PID_FILES:
        pid = pid_in(home / name)
        if pid is not None and belongs_to(pid, home):
            end(pid)
    shutil.rmtree(home, ignore_errors=True)


def pid_in(path: Path) -> int | None:
    """Give the process id on the first line of a pid file, or None."""
    try:
        return int(path.read_text().split("\n", 1)[0])
    except (OSError, ValueError):
        return None


def belongs_to(pid: int, home: Path) -> bool:
    """Tell whether the process was started with a path under *home*; a pid file can be stale."""
    try:
        return os.fsencode(home) in Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return not Path("/proc/self").exists()  # no procfs: believe the pid file


def end(pid: int) -> None:
    """Ask the process to quit at once, and kill it when it does not."""
    for number in (signal.SIGQUIT, signal.SIGKILL):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + QUIT_WITHIN_SECONDS
        while is_alive(pid) and time.monotonic() < deadline:
            time.sleep(0.02)


def is_alive(pid: int) -> bool:
    """Tell whether the process runs; one that ended and that nobody has reaped does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:  # no procfs, or gone meanwhile
        return not Path("/proc/self").exists()
    return state != "Z"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
