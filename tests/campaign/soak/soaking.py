"""One soak: a served app, what comes in, samples while it does, and what is found."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import signal
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import psycopg

from benchmarks.measure import latencies_ms
from onceward.core.settings import SETTINGS, resolve
from onceward.runtime.clock import wall_ms
from onceward.stores.choose import make_store
from onceward.testing import check_invariants
from tests import starts
from tests.attack.site import APPS, ROOT, Process, Site
from tests.campaign.soak import samples, verdict
from tests.campaign.soak.client import Client
from tests.campaign.soak.load import KINDS, Load, People
from tests.campaign.soak.samples import Sample

APP = "everyday:app"
PATHS = ":".join(str(path) for path in (Path(__file__).parent / "app", APPS, ROOT / "src"))
PASSWORD = "correct horse battery staple"
PEAK_SHARE = 0.7
WAITING_MB_MAX = 300.0
PROBE_EVERY_S = 10.0
CALM_S = 5.0
STOP_S = 60.0
ANSWER_S = 120.0
FAULTS_SHOWN = 10
BULK = "Bulks._run"


@dataclass(frozen=True)
class Plan:
    """How a soak goes.

    Attributes:
        seed: what the load draws from.
        seconds: how long it comes in.
        rate: deliveries a second; 0 takes 70 % of a peak that is measured first.
        peak_deliveries: how many the peak is measured with.
        waiting: runs that wait all the while, and end at its end.
        sample_s: between two samples.
        look_s: between two looks of people, in the middle.
        settle_s: how long runs may take to end when nothing comes in any more.
        rest_s: how long they may take to before a look at rest, and how long that lasts.
        samples_min: either half lasts longer until there are so many.
        leak: a fault that is planted into the app.
        p99_ms: how long a reply in a hundred may take at most, in a soak of 15 minutes or more; 0 judges none.
    """

    seed: int
    seconds: float
    rate: float = 0.0
    peak_deliveries: int = 3_000
    waiting: int = 0
    sample_s: float = 5.0
    look_s: float = 1.0
    settle_s: float = 180.0
    rest_s: float = 25.0
    samples_min: int = 1
    leak: str = ""
    p99_ms: float = 100.0


@dataclass
class Soak:
    """A soak under way.

    Attributes:
        site: the store, the process and the ledger.
        plan: how it goes.
        server_pid: of PostgreSQL.
        say: is told how far it has come.
        taken: the samples.
        violations: what was found.
        figures: what was counted and measured.
    """

    site: Site
    plan: Plan
    server_pid: int | None
    say: Callable[[str], None]
    taken: list[Sample] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    _looks: dict[str, dict[str, Any]] = field(default_factory=dict)
    _probes: int = 0
    _read_bytes: int = 0

    async def run(self) -> None:
        """Go through all of it."""
        self._make_table()
        token = self._command("tokens", "add", "soak", "--role", "admin").splitlines()[-1]
        self._command("users", "add", "ann", "--role", "admin", "--password-stdin", told=PASSWORD)
        process = self.site.serve(APP, PYTHONPATH=PATHS)
        async with self._clients(process.port, token) as (load, people):
            rate = self.plan.rate or PEAK_SHARE * await self._peak(load)
            if self.plan.waiting:
                await self._fill(load, process)
            await self._soak(load, people, process, rate, self.plan.seconds * verdict.WARM_UP_SHARE)
            before, runs = await self._look(load), load.runs
            await self._soak(load, people, process, rate, self.plan.seconds * (1 - verdict.WARM_UP_SHARE))
            await self._release(load)
            await self._end(load, people)
            after = await self._look(load)
            self.figures |= {"deliveries": load.sent, "runs": load.runs, "looks": people.looks}
            self.figures |= {"actions": people.actions, "rate_per_s": round(rate, 1)}
            self._judge_replies(load, people)
        self.figures["left"], told = verdict.leftovers(before, after, load.runs - runs)
        self.violations += told
        self._stop(process)
        self._check_store()
        self.violations += verdict.violations(self.taken)
        self.figures |= verdict.figures(self.taken)

    # --- the parts ----------------------------------------------------------------------------

    async def _peak(self, load: Load) -> float:
        """Give how many deliveries a second come to their ends when they come as fast as they can."""
        quick = [kind for kind, about in KINDS.items() if about.is_quick]
        await load.as_fast_as_it_goes(self.plan.peak_deliveries // 10, quick, clients=16)
        began = time.monotonic()
        await load.as_fast_as_it_goes(self.plan.peak_deliveries, quick, clients=16)
        await self._until(lambda: not self._missing(load), "the ends of all runs of the peak")
        peak = self.plan.peak_deliveries / (time.monotonic() - began)
        self.figures["peak_per_s"] = round(peak, 1)
        self.say(f"peak: {peak:.0f} deliveries a second")
        return peak

    async def _fill(self, load: Load, process: Process) -> None:
        """Have so many runs wait, and see what memory they take."""
        await asyncio.sleep(min(CALM_S, 4 * self.plan.sample_s))
        before = samples.of_processes(process.pid)["pss_mb"]
        numbers = iter(range(self.plan.waiting))

        async def client() -> None:
            for number in numbers:
                if not await load.begin_to_wait(number):
                    self.violations.append(f"waiting run {number} was refused")
                    return

        await asyncio.gather(*(client() for _ in range(16)))
        await asyncio.sleep(min(CALM_S, 4 * self.plan.sample_s))
        took = samples.of_processes(process.pid)["pss_mb"] - before
        self.figures |= {"waiting": self.plan.waiting, "waiting_mb": round(took, 1)}
        self.say(f"{self.plan.waiting} runs wait and take {took:.0f} MB")
        if took > WAITING_MB_MAX:
            self.violations.append(f"{self.plan.waiting} waiting runs took {took:.0f} MB")

    async def _soak(self, load: Load, people: People, process: Process, rate: float, seconds: float) -> None:
        self.say(f"{rate:.1f} deliveries a second for {seconds:.0f} s")
        load.latencies_s.clear()
        samples_min = len(self.taken) + self.plan.samples_min
        beside = [
            asyncio.create_task(people.forever(self.plan.look_s)),
            asyncio.create_task(self._sample(load, process)),
        ]
        until = time.monotonic() + seconds

        def is_over() -> bool:
            return time.monotonic() >= until and len(self.taken) >= samples_min

        coming = asyncio.create_task(load.at_rate(rate, is_over))
        try:
            over, _ = await asyncio.wait([coming, *beside], return_when=asyncio.FIRST_COMPLETED)
            for task in over:
                task.result()
        finally:
            for task in (coming, *beside):
                task.cancel()
            await asyncio.wait([coming, *beside])
        await load.settle()

    async def _sample(self, load: Load, process: Process) -> None:
        probed = 0.0
        while True:
            if time.monotonic() - probed >= min(PROBE_EVERY_S, 4 * self.plan.sample_s):
                probed = time.monotonic()
                self._probes += 1
                load.begin(load.probe(self._probes))
            self._read_ledger(load)
            found = await asyncio.to_thread(self._sampled, process)
            self.taken.append({**found, "runs": float(load.runs)})
            self.say(json.dumps({name: round(value, 1) for name, value in self.taken[-1].items()}))
            await asyncio.sleep(self.plan.sample_s)

    def _sampled(self, process: Process) -> Sample:
        if not process.is_alive():
            raise AssertionError(f"the process has ended:\n{self.site.logs()}")
        found = {"at_s": time.monotonic()}
        found |= samples.of_processes(process.pid) | samples.of_store(self.site.store, self.server_pid)
        if self._looks:
            look = list(self._looks.values())[-1]
            found |= {"tasks": look["tasks"], "objects": look["objects"]}
        return found

    async def _look(self, load: Load) -> dict[str, Any]:
        """Give what the process has in memory, garbage aside, when nearly nothing goes on."""
        with contextlib.suppress(AssertionError):  # what never ends is told at the end
            await self._until(
                lambda: len(self._missing(load)) <= self.plan.waiting, "a rest", self.plan.rest_s
            )
        gives_up_at = time.monotonic() + self.plan.rest_s
        look = await self._probe(load)
        # A bulk action goes on after its reply. One that never ends is told of.
        while BULK in look["waiting"] and time.monotonic() < gives_up_at:
            await asyncio.sleep(0.5)
            look = await self._probe(load)
        return look

    async def _probe(self, load: Load) -> dict[str, Any]:
        self._probes += 1
        event_id = await load.probe(self._probes, types=True)

        def has_looked() -> bool:
            self._read_ledger(load)
            return event_id in self._looks

        await self._until(has_looked, f"the look {event_id}")
        return self._looks[event_id]

    async def _release(self, load: Load) -> None:
        numbers = iter(range(self.plan.waiting))

        async def client() -> None:
            for number in numbers:
                await load.pack(f"evt_waiting_{number}", 0.0)

        await asyncio.gather(*(client() for _ in range(16)))

    async def _end(self, load: Load, people: People) -> None:
        """See everything to its end: each accepted delivery is noted, and no run is left that is not over."""
        deadline = time.monotonic() + self.plan.settle_s
        while True:
            await people.act(is_curious=False)
            live = {state: n for state, n in (await people.counts()).items() if n and state != "failed"}
            missing = self._missing(load)
            if not live and not missing:
                return
            if time.monotonic() > deadline:
                self.violations += [f"{count} runs are still {state}" for state, count in live.items()]
                if missing:
                    some = ", ".join(sorted(missing)[:5])
                    self.violations.append(
                        f"{len(missing)} notes of accepted deliveries are missing: {some} …"
                    )
                return
            await asyncio.sleep(0.2)

    def _judge_replies(self, load: Load, people: People) -> None:
        self._found(load.faults)
        self._found(people.faults)
        self.figures["refused"] = sum(load.statuses.values()) - sum(
            count for words, count in load.statuses.items() if words.rpartition(" ")[2].startswith("2")
        )
        latencies = latencies_ms(list(load.latencies_s)) if load.latencies_s else {}
        self.figures |= {f"reply_{name}": round(value, 1) for name, value in latencies.items()}
        p99 = latencies.get("p99_ms", 0.0)
        if self.plan.seconds >= verdict.JUDGED_LATENCY_S and p99 > self.plan.p99_ms > 0:
            self.violations.append(f"a reply in a hundred took more than {p99:.0f} ms")

    def _stop(self, process: Process) -> None:
        process.signal(signal.SIGTERM)
        code = process.wait(STOP_S)
        if code != 0:
            self.violations.append(f"the process ended with {code}")
        tracebacks = process.text().count("Traceback (most recent call last)")
        if tracebacks:
            self.violations.append(f"there are {tracebacks} tracebacks in the log of the process")

    def _check_store(self) -> None:
        settings = resolve(SETTINGS, {"store": self.site.store}, {})
        store = make_store(settings, now_ms=wall_ms, draw=random.random)
        store.open(migrate=False)
        try:
            self._found([str(violation) for violation in check_invariants(store)])
        finally:
            store.close()

    def _found(self, faults: Sequence[str]) -> None:
        self.violations += faults[:FAULTS_SHOWN]
        if len(faults) > FAULTS_SHOWN:
            self.violations.append(f"… and {len(faults) - FAULTS_SHOWN} more like that")

    # --- helpers ------------------------------------------------------------------------------

    def _command(self, *arguments: str, told: str | None = None) -> str:
        env = self.site.environment("", {"PYTHONPATH": PATHS})
        done = starts.run("-m", "onceward", *arguments, cwd=self.site.home, env=env, stdin=told)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def _make_table(self) -> None:
        statements = ("create table soak_book (booked integer)", "insert into soak_book values (0)")
        connection: Any
        if self.server_pid is None:
            connection = sqlite3.connect(self.site.store.removeprefix("sqlite:///"))
        else:
            connection = psycopg.connect(self.site.store)
        with contextlib.closing(connection):
            for statement in statements:
                connection.execute(statement)
            connection.commit()

    @contextlib.asynccontextmanager
    async def _clients(self, port: int, token: str) -> AsyncIterator[tuple[Load, People]]:
        sender, browser = Client(port), Client(port)
        try:
            form = urlencode({"name": "ann", "password": PASSWORD}).encode()
            headers = {"Content-Type": "application/x-www-form-urlencoded"}
            reply = await browser.ask("POST", "/login", form, headers)
            assert reply.status == 303, reply
            cookie = reply.headers["set-cookie"].partition(";")[0]
            load = Load(sender, self.plan.seed)
            yield load, People(load, browser, token, cookie)
        finally:
            sender.close()
            browser.close()

    def _missing(self, load: Load) -> list[str]:
        self._read_ledger(load)
        return load.missing()

    def _read_ledger(self, load: Load) -> None:
        """Cross off what was noted since the last time."""
        if not self.site.ledger.exists():
            return
        with self.site.ledger.open("rb") as file:
            file.seek(self._read_bytes)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        for line in whole.decode().splitlines():
            event_id, _, what = line.partition(" ")
            if what.startswith("looked "):
                self._looks[event_id] = json.loads(what.partition(" ")[2])
            else:
                load.owe(line, -1)

    async def _until(self, is_so: Callable[[], bool], what: str, within_s: float = ANSWER_S) -> None:
        deadline = time.monotonic() + within_s
        while not is_so():
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {within_s} s: {what}\n{self.site.logs()}")
            await asyncio.sleep(0.05)
