"""PostgreSQL and PgBouncer for tests, the benchmarks and the demo: real ones, started on demand.

``PostgresServer`` and ``PgBouncer`` find their program, run it from a temporary directory on a
free port of the loopback address, and leave nothing behind: a watchdog ends them when the
process that owns them dies, however it dies. Both refuse clearly when the program is missing;
a test that needs one fails then, it is not skipped.
"""

from __future__ import annotations

import re
import secrets
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from onceward.core.errors import StoreUnavailable
from onceward.testing import watchdog
from onceward.testing.server_home import LOOPBACK, ServerHome, free_port
from onceward.testing.server_programs import find_pgbouncer, find_postgres, reachable

SUPERUSER = "postgres"
START_SECONDS_MAX = 50  # below what a program may take at all
STOP_SECONDS_MAX = 30
PORT_TRIES_MAX = 5

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
        """Create a database and give its URL.

        Args:
            name: up to 63 letters, digits, underscores and hyphens.
            template: a database to copy; nobody may be connected to it.
        """
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
        """Create a database and give its URL; see `PostgresAddress.create_database`."""
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
        self._pg_ctl("start", "--timeout", str(START_SECONDS_MAX), "--log", str(log), "--options", options)

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


def answers(address: PostgresAddress) -> bool:
    """Tell whether somebody accepts connections there."""
    try:
        socket.create_connection((address.host, address.port), timeout=1).close()
    except OSError:
        return False
    return True
