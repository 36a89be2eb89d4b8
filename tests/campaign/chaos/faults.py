"""Does what may happen to processes and their store, at times and in ways that a seed draws."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import random
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from onceward.testing.servers import PgBouncer, PostgresServer
from onceward.testing.tcp_proxy import TcpProxy
from tests.attack.site import pause
from tests.campaign.chaos.evidence import Fault
from tests.campaign.chaos.fleet import Fleet, Slot

CLOCK_S_MAX = 90
"""How far a process's wall clock is set; senders' signatures hold for 300 s."""

STORE_CLOCK_S_MAX = 4
LOCKED_BY_ANOTHER = """
import sqlite3, sys, threading
connection = sqlite3.connect(sys.argv[1], timeout=30, isolation_level=None)
connection.execute("begin immediate")
threading.Event().wait(float(sys.argv[2]))
connection.execute("rollback")
"""

ON_PROCESSES: Mapping[str, int] = {
    "kill": 6,
    "kill all": 1,
    "stop past the lease": 4,
    "stop within the lease": 2,
    "deploy": 3,
    "rolling deploy": 1,
    "wall clock": 2,
}
ON_STORE: Mapping[str, Mapping[str, int]] = {
    "sqlite": {"lock held by another program": 5},
    "postgres": {
        "restart of the server": 3,
        "lost replies to commits": 4,
        "lost commits": 3,
        "restart of the pooler": 2,
        "cut connections": 3,
        "silence": 2,
        "slow network": 1,
        "server's clock": 1,
    },
}
"""How often each fault happens beside the others."""


@dataclass
class Backend:
    """What a PostgreSQL store stands on."""

    server: PostgresServer
    bouncer: PgBouncer
    near: TcpProxy
    pooled: TcpProxy
    database: str

    @property
    def proxies(self) -> tuple[TcpProxy, TcpProxy]:
        return self.near, self.pooled

    def set_clock(self, seconds: int) -> None:
        """Set the server's clock, as connections find it (tests/attack/test_server_clock.py)."""
        import psycopg

        with psycopg.connect(self.server.dsn(self.database), autocommit=True) as outside:
            outside.execute(b"update faked.shift set seconds = %d" % seconds)


@dataclass
class Faults:
    """A thread that does one thing after the other until it is told to stop, and then mends everything.

    Attributes:
        every_s: the shortest and the longest time between two faults.
        lease_s: of the processes.
        backend: of a PostgreSQL store.
        path: the file of an SQLite store.
    """

    fleet: Fleet
    rng: random.Random
    every_s: tuple[float, float]
    lease_s: float
    clocks: list[Path]
    backend: Backend | None = None
    path: str = ""
    counts: Counter[str] = field(default_factory=Counter)
    found: list[str] = field(default_factory=list)
    is_clock_set: bool = False

    def __post_init__(self) -> None:
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="faults", daemon=True)
        on_store = ON_STORE["sqlite" if self.backend is None else "postgres"]
        self._weights = {**ON_PROCESSES, **on_store}
        self._acts: dict[str, Callable[[], None]] = {
            "kill": self._kill,
            "kill all": self._kill_all,
            "stop past the lease": lambda: self._stop(self.rng.uniform(1.1, 2.5) * self.lease_s),
            "stop within the lease": lambda: self._stop(self.rng.uniform(0.1, 0.8) * self.lease_s),
            "deploy": lambda: self.fleet.drain(self._slot()),
            "rolling deploy": self._roll,
            "wall clock": self._set_wall_clock,
            "lock held by another program": self._lock,
            "restart of the server": self._restart_server,
            "lost replies to commits": lambda: self._proxy().drop_commit_reply(self.rng.randint(1, 5)),
            "lost commits": lambda: self._proxy().cut_before_commit(self.rng.randint(1, 5)),
            "restart of the pooler": self._restart_pooler,
            "cut connections": self._cut,
            "silence": self._silence,
            "slow network": self._slow,
            "server's clock": self._set_store_clock,
        }

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Mend everything that is not mended yet."""
        self._is_over.set()
        self._thread.join()
        for _, _, act in sorted(self._later):
            act()
        for slot in self.fleet.slots:
            self.fleet.go_on(slot)
        if self.backend is not None:
            for proxy in self.backend.proxies:
                proxy.heal()

    def _run(self) -> None:
        try:
            due = time.monotonic() + self.rng.uniform(*self.every_s)
            while not self._is_over.is_set():
                until = min(due, self._later[0][0]) if self._later else due
                if self._is_over.wait(max(0.0, until - time.monotonic())):
                    return
                while self._later and self._later[0][0] <= time.monotonic():
                    heapq.heappop(self._later)[2]()
                if due <= time.monotonic():
                    self._fault()
                    due = time.monotonic() + self.rng.uniform(*self.every_s)
        except Exception as error:  # noqa: BLE001 - a tool whose faults have stopped proves nothing
            self.found.append(f"faults stopped: {error!r}")

    def _fault(self) -> None:
        name = self.rng.choices(list(self._weights), list(self._weights.values()))[0]
        began = time.monotonic_ns()
        self._acts[name]()
        self.counts[name] += 1
        # Those that last say themselves until when; what a lost connection leads to may take some leases.
        self._note(name, began, 0.0)

    def _note(self, name: str, began_ns: int, lasts_s: float) -> None:
        until = time.monotonic_ns() + int(lasts_s * 1e9) + self.fleet.aftermath_ns
        self.fleet.faults.append(Fault(name, began_ns, until))

    def _in(self, seconds: float, act: Callable[[], None]) -> None:
        self._note("lasting", time.monotonic_ns(), seconds)
        heapq.heappush(self._later, (time.monotonic() + seconds, next(self._order), act))

    def _slot(self) -> Slot:
        return self.rng.choice(list(self.fleet.slots))

    def _proxy(self) -> TcpProxy:
        assert self.backend is not None
        return self.rng.choice(self.backend.proxies)

    # --- processes ---------------------------------------------------------------------------------

    def _kill(self) -> None:
        self.fleet.kill(self._slot(), self.rng.choice((0.0, 0.0, 1.0, 3.0)))

    def _kill_all(self) -> None:
        for slot in self.fleet.slots:
            self.fleet.kill(slot, self.rng.uniform(0, 1))

    def _stop(self, seconds: float) -> None:
        slot = self._slot()
        if self.fleet.stop(slot):
            self._in(seconds, lambda: self.fleet.go_on(slot))

    def _roll(self) -> None:
        for place, slot in enumerate(self.fleet.slots):
            self._in(place * self.lease_s / 2, lambda slot=slot: self.fleet.drain(slot))  # type: ignore[misc]

    def _set_wall_clock(self) -> None:
        seconds = self.rng.choice((0, self.rng.randint(-CLOCK_S_MAX, CLOCK_S_MAX)))
        # In place: the processes have mapped it.
        with self.rng.choice(self.clocks).open("r+b") as file:
            file.write(struct.pack("q", seconds * 1_000_000_000))

    # --- stores --------------------------------------------------------------------------------------

    def _lock(self) -> None:
        seconds = self.rng.uniform(0.2, 2.0) * self.lease_s
        stranger = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", LOCKED_BY_ANOTHER, self.path, str(seconds)]
        )
        self._in(
            seconds + 1, lambda: None if stranger.wait(60) == 0 else self.found.append("the stranger failed")
        )

    def _restart_server(self) -> None:
        assert self.backend is not None
        self.backend.server.halt(immediate=True)
        self._is_over.wait(self.rng.choice((0.0, 0.0, 1.0, self.lease_s * 1.5)))
        self.backend.server.start()

    def _restart_pooler(self) -> None:
        assert self.backend is not None
        self.backend.bouncer.stop()
        self._is_over.wait(self.rng.choice((0.0, 0.5)))
        self.backend.bouncer.start()
        self.backend.pooled.upstream = self.backend.bouncer.address

    def _cut(self) -> None:
        self._proxy().cut()

    def _silence(self) -> None:
        proxy = self._proxy()
        proxy.blackhole()
        self._in(self.rng.uniform(0.3, 2.0) * self.lease_s, proxy.heal)

    def _slow(self) -> None:
        proxy = self._proxy()
        proxy.delay(self.rng.uniform(0.005, 0.05))
        self._in(2 * self.lease_s, proxy.heal)

    def _set_store_clock(self) -> None:
        assert self.backend is not None
        self.is_clock_set = True
        self.backend.set_clock(self.rng.randint(-STORE_CLOCK_S_MAX, STORE_CLOCK_S_MAX))
        self._in(3 * self.lease_s, self._reset_store_clock)

    def _reset_store_clock(self) -> None:
        import psycopg

        for _ in range(100):  # it may be away at the moment
            with contextlib.suppress(psycopg.Error):
                assert self.backend is not None
                self.backend.set_clock(0)
                return
            pause(0.2)
