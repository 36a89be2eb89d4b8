"""One store with instances of the app, clients in processes of their own, and what is done to them."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import socket
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from onceward.testing import check_invariants
from onceward.testing.server_home import free_port
from onceward.testing.servers import PostgresAddress, PostgresServer, unique_name
from onceward.testing.tcp_proxy import TcpProxy
from tests.attack.site import Process, Site, pause
from tests.campaign.histories import client as client_module
from tests.campaign.histories.client import Client, Doors, Record
from tests.campaign.histories.workloads import Desk, Script, Seen

HERE = Path(__file__).parent
LEASE_MS = 800
STOPPED_S = LEASE_MS / 1000 * 2.2
SERVERS = 2
CLIENTS = 2
DONE_WITHIN_S = 120.0
NEMESES = ("none", "kill", "stop", "lost", "outage")
"""What is done: nothing; SIGKILL; SIGSTOP past the lease; replies of commits lost; the store away for a while."""

LASTS_MS = {"none": 150, "kill": 500, "stop": 1900, "lost": 400, "outage": 1800}
"""How long the script of a history takes at least, so that the fault lies within it."""

ENVIRONMENT = {
    "ONCEWARD_POLL": "100ms",
    "ONCEWARD_LINGER": "20ms",
    "ONCEWARD_PROMISE_SECRET": "only-for-histories-0123456789-0123456789",
    "ONCEWARD_PUBLIC_URL": "https://histories.example",
}

COMMITS = ("accept", "claim", "save", "sleep", "end", "release", "cancel", "steer")
"""Commits whose replies a SQLite store loses; those of PostgreSQL are lost on the way."""


@dataclass
class Told:
    """A client's process and the line to it."""

    process: Process
    line: TextIO
    connection: socket.socket

    def close(self) -> None:
        for end in (self.line, self.connection):
            with contextlib.suppress(OSError):  # what was written last to a process that was killed
                end.close()


class Cluster:
    """Processes on one store.

    Args:
        kind: ``sqlite`` or ``postgres``.
        nemesis: of `NEMESES`.
        home: an empty folder.
        server: for a database of its own, if that is the kind; one that is to go away must be ours.
        dice: draws when what is done.
        plant: a fault of `ordered.py`, or nothing.
    """

    def __init__(
        self,
        kind: str,
        nemesis: str,
        home: Path,
        server: PostgresServer | PostgresAddress | None,
        dice: random.Random,
        plant: str = "",
    ) -> None:
        self.kind, self.nemesis, self.home, self.dice, self.server = kind, nemesis, home, dice, server
        self.proxy: TcpProxy | None = None
        self.direct = f"sqlite:///{home / 'ordered.db'}"
        if server is not None:
            self.direct = server.create_database(unique_name())
        # A short one renews often; where nobody waits for its end a long one does as well.
        is_waited_for = nemesis in ("stop", "outage") or (nemesis == "kill" and kind == "postgres")
        lease = f"{LEASE_MS}ms" if is_waited_for else "4s"
        self.site = Site(
            self.direct, home, {**ENVIRONMENT, "ONCEWARD_LEASE": lease, "ONCEWARD_TEST_PLANT": plant}
        )
        self.listener = socket.socket(socket.AF_UNIX)
        self.servers: list[Process] = []
        self.clients: list[Told | None] = [None] * CLIENTS
        self.troubles: list[BaseException] = []
        self.histories = 0

    def _start(self) -> None:
        for file in ("ordered.py", "client.py"):
            (self.home / file).symlink_to(HERE / file)
        self.desk_module = self.site.desk("ordered")
        self.token = self._token()
        if self.server is not None and self.nemesis == "lost":
            self.proxy = TcpProxy(self.server).start()
            self.site.store = self.proxy.dsn(self.direct.rpartition("/")[2])
        self.ports = [free_port() for _ in range(SERVERS)]
        self.servers = [self._serve(number) for number in range(SERVERS)]
        self.listener.bind(str(self.home / "line"))
        self.listener.listen()
        self.listener.settimeout(DONE_WITHIN_S)

    def _token(self) -> str:
        argv = ("-m", "onceward", "tokens", "add", "clients", "--role", "operator", "--store", self.direct)
        process = self.site.spawn(*argv)
        assert process.wait() == 0, process.text()
        return process.wait_for(r"owt_\S+")

    def _serve(self, number: int) -> Process:
        options = ("--port", str(self.ports[number]))
        return self.site.serve("ordered:app", *options, failpoint=self._failpoint())

    def _failpoint(self) -> str:
        """Give the commits of a process whose replies are lost."""
        if self.nemesis != "lost" or self.kind != "sqlite":
            return ""
        return ",".join(f"{kind}.after_commit:drop-reply:{self.dice.randint(1, 9)}" for kind in COMMITS)

    def _client(self, number: int) -> Told:
        record = self.home / f"seen-{number}-{len(self.site.processes)}"
        argv = ("client.py", str(self.home / "line"), str(record), f"c{number}.{len(self.site.processes)}")
        process = self.site.spawn(*argv, failpoint=self._failpoint())
        try:
            connection, _ = self.listener.accept()
        except TimeoutError:
            raise AssertionError(f"a client has not come:\n{process.text()}") from None
        connection.settimeout(DONE_WITHIN_S)
        told = Told(process, connection.makefile("rw"), connection)
        assert told.line.readline(), process.text()
        return told

    # --- a history -----------------------------------------------------------------------------

    def desk(self) -> Desk:
        """Give a client that nothing is done to."""
        doors = Doors(self.desk_module, self.ports, self.token)
        name = f"desk{self.histories}"
        self.record = Record(self.home / f"seen-{name}")
        return Desk(Client(doors, self.record, name), self.desk_module.app.sync, self.notes)

    def notes(self) -> list[Seen]:
        """Give the ledger's lines."""
        return [json.loads(line) for line in self.site.notes()]

    def run(self, script: Script) -> None:
        """Have the clients do a script while the nemesis does its own."""
        if self.nemesis == "lost" and self.kind == "sqlite":
            self._renew()
        total_ms = LASTS_MS[self.nemesis]
        for calls in script.lists:
            for call in calls:
                call["pause_ms"] = self.dice.uniform(0, 2 * total_ms / len(calls))
        told = []
        for number in range(CLIENTS):
            client = self.clients[number] or self._client(number)
            self.clients[number] = client
            told.append(client)
        threads = []
        for number, client in enumerate(told):
            path = self.home / f"script-{script.tag}-{number}"
            lists = script.lists[number::CLIENTS]
            asked = {"lists": lists, "ports": self.ports, "token": self.token}
            path.write_text(json.dumps(asked))
            threads.append(threading.Thread(target=self._ask, args=(client, path)))
        done = threading.Event()
        act = threading.Thread(target=self._act, args=(done,))
        for thread in (*threads, act):
            thread.start()
        for thread in threads:
            thread.join()
        done.set()
        act.join()
        if self.troubles:
            raise self.troubles.pop()
        self._heal()

    def _ask(self, client: Told, path: Path) -> None:
        """Have a client do a script; it may be killed meanwhile."""
        try:
            print(path, file=client.line, flush=True)
            client.line.readline()
        except TimeoutError:
            client.process.signal(signal.SIGUSR1)  # it shows where its threads are
            pause(1)
            self.troubles.append(AssertionError(f"a client has not come back:\n{client.process.text()}"))
        except (OSError, ValueError):
            assert not client.process.is_alive(), client.process.text()

    def seen(self) -> list[Seen]:
        """Give what the clients saw in this history: each call with its reply, unless it is lost."""
        self.record.close()
        calls: dict[str, dict[str, Any]] = {}
        for path in sorted(self.home.glob("seen-*")):
            for line in path.read_text().splitlines():
                one = json.loads(line)
                calls.setdefault(one["number"], {}).update(one)
            path.unlink()
        self.histories += 1
        found: list[Seen] = []
        for one in calls.values():
            if "odd" in one:
                raise AssertionError(f"a client was told what nobody should be told: {one}")
            is_look = one["verb"] in client_module.LOOKS
            if "nothing" not in one and ("reply" in one or not is_look):
                found.append(one)
        return found

    def check(self) -> list[str]:
        """Give the broken promises that the rows show."""
        return [str(violation) for violation in check_invariants(self.desk_module.app.worker.store)]

    # --- what is done to them --------------------------------------------------------------------

    def _act(self, done: threading.Event) -> None:
        doing: Callable[[threading.Event], None] = getattr(self, f"_do_{self.nemesis}")
        try:
            doing(done)
        except BaseException as error:  # noqa: BLE001 - it is raised where the history is
            self.troubles.append(error)

    def _do_none(self, done: threading.Event) -> None:
        """Leave them alone."""

    def _do_kill(self, done: threading.Event) -> None:
        """Kill an instance, which is started again, or a client, or one of each."""
        number, client = self.dice.randrange(SERVERS), self.dice.choice(self.clients)
        victims = self.dice.choice(("instance", "client", "both"))
        done.wait(self.dice.uniform(0.02, 0.35))
        if victims != "client":
            self.servers[number].kill()
        if victims != "instance" and client is not None:
            client.process.kill()
        if victims != "client":
            self.servers[number] = self._serve(number)

    def _do_stop(self, done: threading.Event) -> None:
        """Stop an instance, and sometimes a client, for longer than a lease."""
        stopped = [self.dice.choice(self.servers)]
        client = self.dice.choice((*self.clients, None))
        if client is not None:
            stopped.append(client.process)
        done.wait(self.dice.uniform(0.02, 0.2))
        for process in stopped:
            process.signal(signal.SIGSTOP)
        pause(STOPPED_S)
        for process in stopped:
            process.signal(signal.SIGCONT)

    def _do_lost(self, done: threading.Event) -> None:
        """Lose the replies of commits on the way; those of SQLite are lost by failpoints."""
        while self.proxy is not None and not done.wait(self.dice.uniform(0.05, 0.3)):
            self.proxy.drop_commit_reply(1)

    def _do_outage(self, done: threading.Event) -> None:
        """Restart the server as after a crash, or hold the write lock for longer than a lease."""
        done.wait(self.dice.uniform(0.02, 0.3))
        if self.server is not None:
            assert isinstance(self.server, PostgresServer), "others use this server"
            self.server.restart(immediate=True)
            return
        with contextlib.closing(sqlite3.connect(self.home / "ordered.db", timeout=10)) as stranger:
            stranger.isolation_level = None
            stranger.execute("begin immediate")
            pause(STOPPED_S)
            stranger.execute("rollback")

    def _heal(self) -> None:
        if self.proxy is not None:
            self.proxy.heal()
        for process in self.servers:
            assert process.is_alive(), f"an instance ended by itself:\n{process.text()[-4000:]}"
        for number, client in enumerate(self.clients):
            if client is not None and not client.process.is_alive():
                client.close()
                self.clients[number] = None

    def _renew(self) -> None:
        """Start clients and one instance anew, with other commits whose replies are lost."""
        for number, client in enumerate(self.clients):
            if client is not None:
                client.process.kill()
                client.close()
                self.clients[number] = None
        number = self.dice.randrange(SERVERS)
        self.servers[number].kill()
        self.servers[number] = self._serve(number)

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        for client in self.clients:
            if client is not None:
                client.close()
        self.site.__exit__(None, None, None)
        self.listener.close()
        if self.proxy is not None:
            self.proxy.stop()
        if self.server is not None:
            self.server.drop_database(self.direct.rpartition("/")[2])
