"""One store under chaos, from its first process to the verdict.

At first everything runs and faults happen; then the faults stop, everything has to come to rest, and
the judge looks at what was seen from outside (safety first, then liveness).
"""

from __future__ import annotations

import contextlib
import logging
import random
import secrets
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onceward.core.errors import StoreError
from onceward.testing import History, check_invariants
from onceward.testing.servers import PgBouncer, PostgresServer, unique_name
from onceward.testing.tcp_proxy import TcpProxy
from tests.attack.site import Site, pause
from tests.attack.test_server_clock import FAKED
from tests.campaign.chaos.clients import Clients, orders_of
from tests.campaign.chaos.evidence import Evidence
from tests.campaign.chaos.faults import Backend, Faults
from tests.campaign.chaos.fleet import DRAIN_S, LEASE_LOST, Fleet, Slot, clock_file
from tests.campaign.chaos.judge import judge
from tests.campaign.chaos.senders import Senders, types_of

UNENDED = ("queued", "running", "sleeping", "waiting", "backoff", "cancelling", "held")
STUCK_S = 120.0
"""How long nothing may end once the faults have stopped."""

WHOLE_S_MAX = 120.0
LOOK_S = 0.25
BACKLOG_MAX = 150
"""How many runs may be under way before senders wait."""

AFTERMATH_LEASES = 3
POOL_SIZE = 4
SHOWN_MAX = 20


@dataclass(frozen=True)
class Plan:
    """What one world is like.

    Attributes:
        store: ``sqlite`` or ``postgres``.
        seconds: how long there are faults.
        every_s: the shortest and longest time between two of them.
        pause_s: the longest pause of each sender and client.
        faults_min: it lasts longer until there were so many of them, and as many events.
    """

    seed: str
    store: str
    seconds: float
    processes: int = 6
    every_s: tuple[float, float] = (2.0, 20.0)
    lease_s: float = 2.0
    senders: int = 4
    clients: int = 2
    pause_s: float = 0.2
    faults_min: int = 0


@dataclass
class Outcome:
    """What one world came to."""

    violations: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    home: Path | None = None


def play(plan: Plan, tell: Any = lambda _: None) -> Outcome:
    """Let one world happen, and judge it; its folder is kept where something was found."""
    home = Path(tempfile.mkdtemp(prefix="onceward-chaos-"))
    outcome = Outcome(home=home)
    with contextlib.ExitStack() as stack:
        backend = stack.enter_context(_backend()) if plan.store == "postgres" else None
        url = f"sqlite:///{home / 'chaos.db'}" if backend is None else backend.near.dsn(backend.database)
        secret = f"whsec_{secrets.token_hex(12)}"  # the port of a dead server may soon be another program's
        lease = f"{int(plan.lease_s * 1000)}ms"
        env = {"ONCEWARD_LEASE": lease, "ONCEWARD_DRAIN": f"{DRAIN_S}s", "ONCEWARD_TEST_SECRET": secret}
        site = stack.enter_context(Site(url, home, env))
        world = _World(plan, site, backend, secret, outcome, tell)
        with _heard(world.fleet):
            world.play()
    if not outcome.violations:
        shutil.rmtree(home)
        outcome.home = None
    return outcome


class _Ear(logging.Handler):
    """Hears what this process, which steers runs and takes over those of the dead, says of lost leases."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__()
        self.fleet = fleet

    def emit(self, record: logging.LogRecord) -> None:
        if LEASE_LOST in record.getMessage():
            self.fleet.lease_lost()


@contextlib.contextmanager
def _heard(fleet: Fleet) -> Iterator[None]:
    logger, ear = logging.getLogger("onceward"), _Ear(fleet)
    logger.addHandler(ear)
    propagated, logger.propagate = logger.propagate, False
    try:
        yield
    finally:
        logger.removeHandler(ear)
        logger.propagate = propagated


@contextlib.contextmanager
def _backend() -> Iterator[Backend]:
    import psycopg

    with PostgresServer(durable=False) as server:
        database = unique_name("chaos")
        with psycopg.connect(server.create_database(database), autocommit=True) as outside:
            outside.execute(FAKED.encode())
            outside.execute(b"create table faked.works_row (run_id text, generation int)")
            outside.execute(f'alter database "{database}" set search_path = faked, pg_catalog'.encode())
        with (
            PgBouncer(server, pool_size=POOL_SIZE) as bouncer,
            TcpProxy(server) as near,
            TcpProxy(bouncer) as pooled,
        ):
            backend = Backend(server, bouncer, near, pooled, database)
            yield backend
            backend.bouncer.stop()


class _World:
    """The parts of one world, and the order in which they begin and end."""

    def __init__(
        self, plan: Plan, site: Site, backend: Backend | None, secret: str, outcome: Outcome, tell: Any
    ) -> None:
        self.plan, self.site, self.backend, self.outcome, self.tell = plan, site, backend, outcome, tell
        self.rng = random.Random(f"{plan.seed}/rest")
        self.clocks = [clock_file(site.home, number) for number in range(plan.processes)]
        aftermath_ns = int(AFTERMATH_LEASES * plan.lease_s * 1e9)
        self.fleet = Fleet(site, self._slots(), random.Random(f"{plan.seed}/failpoints"), aftermath_ns)
        self.works = site.desk("works")
        self.app = self.works.app
        self.unended: list[Any] = []
        self.history = History()
        self._is_over = threading.Event()
        self.senders = Senders(
            self.fleet,
            secret,
            types_of(plan.store),
            plan.seed,
            lambda: len(self.unended) < BACKLOG_MAX,
            plan.pause_s,
            plan.senders,
        )
        self.clients = Clients(
            self.works,
            self.fleet,
            self.senders,
            self._token(),
            plan.seed,
            site.ledger,
            pause_s=plan.pause_s,
            count=plan.clients,
        )
        self.faults = Faults(
            self.fleet,
            random.Random(f"{plan.seed}/faults"),
            plan.every_s,
            plan.lease_s,
            self.clocks,
            backend,
            site.store.removeprefix("sqlite:///"),
        )

    def _slots(self) -> list[Slot]:
        ways = [self.site.store]
        if self.backend is not None:
            database = self.backend.database
            ways += [self.backend.pooled.dsn(database), self.backend.server.dsn(database)]
        return [
            Slot(
                number,
                "worker" if number % 2 else "serve",
                {
                    "ONCEWARD_STORE": ways[number % len(ways)],
                    "ONCEWARD_TEST_CLOCK": str(clock),
                    "ONCEWARD_CONCURRENCY": str((4, 16, 64)[number % 3]),
                },
            )
            for number, clock in enumerate(self.clocks)
        ]

    def _token(self) -> str:
        maker = self.site.spawn("-m", "onceward", "tokens", "add", "ci", "works:app", "--role", "operator")
        assert maker.wait() == 0, maker.text()
        return maker.text().split()[-1]

    def play(self) -> None:
        """Let it happen."""
        watch = threading.Thread(target=self._watch, name="watch", daemon=True)
        self.fleet.start()
        watch.start()
        self.senders.start()
        self.clients.start()
        self.faults.start()
        for _ in range(4):
            self._is_over.wait(self.plan.seconds / 4)
            self._observe()
        while self._is_too_quiet():
            pause(LOOK_S)
        self.fleet.is_calm = True
        self.faults.stop()
        self.tell("faults have stopped")
        self.senders.stop()
        self.clients.stop(STUCK_S)
        self.tell("nothing new is asked for")
        self._rest()
        self.tell("everything is at rest")
        self._is_over.set()
        watch.join()
        self.fleet.close()
        self.tell("every process has stopped")
        self._judge()

    def _is_too_quiet(self) -> bool:
        """Say whether a slow host has brought less than was asked for; a fault thread that broke brings no more."""
        happened = min(self.faults.counts.total(), len(self.senders.sent))
        return happened < self.plan.faults_min and not self.faults.found

    # --- the time without faults --------------------------------------------------------------------

    def _rest(self) -> None:
        deadline = time.monotonic() + WHOLE_S_MAX
        while not self.fleet.is_whole():
            if time.monotonic() > deadline:
                self._find("not all processes came back when the faults had stopped")
                return
            pause(LOOK_S)
        self.senders.settle(STUCK_S, self.rng)
        for order in orders_of(self.senders.sent):
            self.clients.go(order)
        fewest, since = sys.maxsize, time.monotonic()
        while left := self._left():
            if len(left) < fewest:
                fewest, since = len(left), time.monotonic()
            if time.monotonic() - since > STUCK_S:
                for row in left[:SHOWN_MAX]:
                    self._find(f"stuck: {row}", row.run_id)
                return
            self._help(left, time.monotonic() - since)
            pause(LOOK_S)

    def _left(self) -> list[Any]:
        return [row for state in UNENDED for row in self.app.sync.runs(state=state, limit=1000)]

    def _help(self, left: list[Any], waited_s: float) -> None:
        """Do what people do about runs that wait for them."""
        for row in left:
            if row.state == "held":
                self.outcome.counts["held"] += 1
                if not (row.reason or "").startswith("poison"):
                    self._find(f"run {row.run_id} of {row.workflow} is held: {row.reason}", row.run_id)
                self.app.sync.run(row.run_id).resume()
            elif row.state == "waiting" and row.workflow == "order" and waited_s > 1:
                # A word that came before the run did, or by a clock that was set since, is none for it.
                told = max(
                    (event.received_at for event in self.app.sync.events(type="works.go", subject=row.key)),
                    default=0,
                )
                began = int(self.app.sync.event(row.source, row.event_id).received_at.timestamp() * 1000)
                if told <= began:
                    self.outcome.counts["words said again"] += 1
                    self.clients.go_again(row.key, f"again-{time.monotonic_ns()}")

    # --- looking ----------------------------------------------------------------------------------------

    def _watch(self) -> None:
        told = time.monotonic()
        while not self._is_over.wait(1.0):
            with contextlib.suppress(StoreError, OSError):
                self.unended = self._left()
            if time.monotonic() - told > 15:
                told = time.monotonic()
                self.tell(
                    f"{len(self.senders.sent)} events, {len(self.unended)} runs under way, "
                    f"{sum(self.faults.counts.values())} faults, {dict(self.fleet.counts)}"
                )

    def _observe(self) -> None:
        with contextlib.suppress(StoreError, OSError):
            for violation in self.history.observe(self.app.worker.store):
                self._find(f"history: {violation}", violation.subject)

    def _judge(self) -> None:
        self._observe()
        store = self.app.worker.store
        for violation in check_invariants(store):
            self._find(f"invariant: {violation}", violation.subject)
        tables = store.dump("run", "event", "skipped")
        seen = Evidence(
            sent=self.senders.sent,
            actions=self.clients.actions,
            stops=self.fleet.stops,
            faults=self.fleet.faults,
            runs={row["run_id"]: row for row in tables["run"]},
            events=tables["event"],
            skipped=tables["skipped"],
            rows=self._rows(),
            is_clock_set=self.faults.is_clock_set,
        )
        seen.read_ledger(self.site.notes())
        for part in (self.fleet, self.senders, self.clients, self.faults):
            for text in part.found:
                self._find(text)
        for text in judge(seen):
            self._find(text)
        self._count(seen)
        if self.outcome.violations:
            self._write(seen)

    def _rows(self) -> list[tuple[str, int]]:
        if self.backend is None:
            return []
        import psycopg

        with psycopg.connect(self.backend.server.dsn(self.backend.database)) as outside:
            return list(outside.execute(b"select run_id, generation from faked.works_row"))

    def _count(self, seen: Evidence) -> None:
        begun = Counter(
            (note.run_id, note.generation, note.step) for note in seen.notes if note.what == "begin"
        )
        counts = self.outcome.counts
        counts += Counter(
            {
                "runs": len(seen.runs),
                "events": len(seen.sent),
                "deliveries": self.senders.deliveries,
                "bodies": sum(begun.values()),
                "verbs": len(seen.actions),
                "refused": sum(action.is_refused for action in seen.actions),
                "faults": sum(self.faults.counts.values()),
                "commits lost": sum(proxy.faults_made for proxy in self.backend.proxies)
                if self.backend
                else 0,
            }
        )
        counts += Counter({f"fault: {name}": times for name, times in self.faults.counts.items()})
        counts += Counter({f"process: {name}": times for name, times in self.fleet.counts.items()})
        counts += Counter(f"run: {row['state']}" for row in seen.runs.values())
        self.outcome.counts = counts

    def _find(self, text: str, run_id: str = "") -> None:
        self.outcome.violations.append(text)
        self.tell(f"VIOLATION {text[:2000]}")

    def _write(self, seen: Evidence) -> None:
        """Keep what is known of each run that a violation names."""
        tables = self.app.worker.store.dump("step", "attempt", "audit", "queue", "holder", "waiter", "wait")
        with (self.site.home / "evidence.txt").open("w") as file:
            for text in self.outcome.violations:
                print(text, file=file)
                for run_id in [run_id for run_id in seen.runs if run_id in text][:3]:
                    print(f"  run {run_id}", file=file)
                    for line in seen.about(run_id):
                        print("    ", line, file=file)
                    for table, rows in tables.items():
                        for row in rows:
                            if row.get("run_id") == run_id:
                                print("    ", table, row, file=file)
            for fault in sorted(seen.faults, key=lambda fault: fault.from_ns):
                print(fault, file=file)
