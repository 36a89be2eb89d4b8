"""Where a test server lives: a temporary directory, a user that is not root, a free port.

PostgreSQL and PgBouncer do not run as root. When we do, they run as ``postgres`` or ``nobody``,
from a directory that this user can reach. A watchdog removes the directory, and ends what runs
from it, when the process that owns the server dies.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from onceward.core.errors import ConfigError, StoreUnavailable
from onceward.testing import watchdog

LOOPBACK = "127.0.0.1"
PROGRAM_SECONDS_MAX = 60
LOG_TAIL_BYTES = 2000
UNPRIVILEGED_USERS = ("postgres", "nobody")
PORT_DRAWS_MAX = 200
PORT_FIRST, PORT_LAST = 15_000, 32_000


class ServerHome:
    """The temporary directory of one server, and the watchdog that removes it.

    Args:
        prefix: of the directory's name.
        owner_pid: the process whose end is also the server's; this one when not given.
    """

    def __init__(self, prefix: str, owner_pid: int | None = None) -> None:
        self.user = unprivileged_user()
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=temporary_root(self.user)))
        if self.user is not None:
            os.chown(self.path, self.user.pw_uid, self.user.pw_gid)
        self.owner_pid = owner_pid or os.getpid()
        subprocess.run(  # noqa: S603
            [sys.executable, "-I", "-S", watchdog.__file__, str(self.owner_pid), str(self.path)], check=True
        )

    def run(self, command: Sequence[str | Path]) -> None:
        """Run a program to its end as the server's user, in the directory.

        Raises:
            StoreUnavailable: it ended with an error; the message has the end of its output.
        """
        output = self.path / "output.log"
        environ = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        # A file, not a pipe: the server inherits the descriptor, and a pipe would never end.
        with output.open("ab") as log:
            try:
                done = subprocess.run(  # noqa: S603
                    [str(part) for part in command],
                    cwd=self.path,
                    env=environ | {"LC_ALL": "C", "TZ": "UTC"},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    timeout=PROGRAM_SECONDS_MAX,
                    user=None if self.user is None else self.user.pw_uid,
                    group=None if self.user is None else self.user.pw_gid,
                    extra_groups=None if self.user is None else [],
                )
            except subprocess.TimeoutExpired as error:
                raise self.failure(command, f"did not end within {PROGRAM_SECONDS_MAX} s") from error
        if done.returncode != 0:
            raise self.failure(command, f"ended with status {done.returncode}")

    def failure(self, command: Sequence[str | Path], what: str) -> StoreUnavailable:
        """Give the error that shows what the program said last."""
        return StoreUnavailable(
            f"{Path(command[0]).name} {what}.",
            means="The test server is not running.",
            todo=f"Its last words:\n{self.last_words()}",
        )

    def last_words(self) -> str:
        """Give the end of every log in the directory."""
        logs = sorted(self.path.glob("*.log"))
        return "\n".join(path.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace") for path in logs)

    def remove(self) -> None:
        """Remove the directory; the watchdog leaves with it."""
        shutil.rmtree(self.path, ignore_errors=True)


def unprivileged_user() -> pwd.struct_passwd | None:
    """Give the user that servers run as, or None when we are not root and need no other."""
    if os.geteuid() != 0:
        return None
    for name in UNPRIVILEGED_USERS:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise ConfigError(
        f"This is root, and none of the users {', '.join(UNPRIVILEGED_USERS)} exists.",
        means="PostgreSQL and PgBouncer refuse to run as root.",
        todo="Create one of these users, or run as another user.",
    )


def temporary_root(user: pwd.struct_passwd | None) -> str:
    """Give a directory for temporary directories that *user* can reach."""
    root = tempfile.gettempdir()
    return root if user is None or others_can_reach(Path(root)) else "/tmp"  # noqa: S108


def others_can_reach(path: Path) -> bool:
    """Tell whether every directory down to *path* is open to users that do not own it."""
    return all(part.stat().st_mode & stat.S_IXOTH for part in [path, *path.parents])


def free_port() -> int:
    """Give a port of the loopback address that nobody listens on now.

    Below the range that the kernel draws outgoing ports from: a client that keeps connecting to
    a stopped server inside that range may be given the server's port, and reach itself.
    """
    for _ in range(PORT_DRAWS_MAX):
        port = PORT_FIRST + secrets.randbelow(PORT_LAST - PORT_FIRST)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
            return port
    raise StoreUnavailable(
        f"No free port in {PORT_DRAWS_MAX} draws between {PORT_FIRST} and {PORT_LAST} on {LOOPBACK}.",
        means="The test server was not started.",
        todo="End what listens there.",
    )
