"""What is recorded: a shop that is delivered to, asked, steered, pruned, killed, started again and stopped.

Its processes are the product's own commands below strace; the sender and the operator are in this process and
touch no file of the store.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from onceward.sources import Stripe
from tests.campaign.power.disk import Image
from tests.campaign.power.promises import Promise
from tests.campaign.power.trace import CannotRecord, Recorder
from tests.helpers import eventually

ROOT = Path(__file__).parents[3]
APPS = Path(__file__).parent / "apps"
SECRET = "whsec_attack_attack_attack"
WITHIN_S = 90.0
EXPORT = "rows.jsonl"
ENDED = ("completed", "failed", "cancelled", "held")
KINDS = ("paid", "paid", "paid", "nap", "ever", "turn", "turn", "tell", "wait", "ask", "sell")


@dataclass(frozen=True)
class Shape:
    """How large a scene is.

    Attributes:
        rounds: how many lives the shop has; each begins with deliveries and ends with a kill or a stop.
        deliveries: in each life.
        workers: further processes on the same file.
        big: further deliveries in each life, so large that the store copies the log into the file by itself.
    """

    rounds: int = 2
    deliveries: int = 14
    workers: int = 0
    big: int = 0


@dataclass(frozen=True)
class Before:
    """What a scene begins with that goes on after a power loss.

    Attributes:
        image: the disk.
        given: what had been promised.
        token: by which an operator is known.
        count: how many events had been sent.
    """

    image: Image
    given: Sequence[Promise]
    token: str
    count: int


FILLER_BYTES = 900_000


@dataclass
class Scene:
    """One shop and what is done to it, by a seed.

    Args:
        home: an empty folder.
        seed: what is done.
        shape: how much of it.
        before: what was there; an empty folder by default.
    """

    home: Path
    seed: int
    shape: Shape = Shape()
    before: Before | None = None
    runs: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.draws = random.Random(self.seed)
        self.folder = self.home / "disk"
        self.folder.mkdir(parents=True)
        self.logs = self.home / "logs"
        self.logs.mkdir()
        self.recorder = Recorder(self.folder, self.home / "ledger", self.logs)
        self.store = f"sqlite:///{self.recorder.folder / 'shop.db'}"
        self.port = 0
        self.token = "" if self.before is None else self.before.token
        self.count = 0 if self.before is None else self.before.count

    def env(self) -> dict[str, str]:
        inherited = {name: text for name, text in os.environ.items() if not name.startswith("ONCEWARD_")}
        return {
            **inherited,
            "PYTHONPATH": os.pathsep.join((str(APPS), str(ROOT / "src"))),
            "ONCEWARD_STORE": self.store,
            "ONCEWARD_LEASE": "2s",
            "ONCEWARD_POLL": "100ms",
            "ONCEWARD_LINGER": "50ms",
            "ONCEWARD_TEST_LEDGER": str(self.recorder.ledger),
        }

    # --- processes ---------------------------------------------------------------------------------

    def command(self, *argv: str) -> str:
        """Run one command of the product to its end and give what it printed."""
        process, log = self.recorder.start(_onceward(*argv), env=self.env(), cwd=self.home)
        code = process.wait(WITHIN_S)
        if code:
            raise CannotRecord(f"{argv} ended with {code}:\n{log.read_text()}")
        return log.read_text()

    @contextlib.contextmanager
    def shop(self) -> Iterator[list[int]]:
        """Serve, with workers beside, and give the numbers of the processes; they must have ended at the end."""
        serve = _onceward("serve", "power_shop:app", "--port", "0", "--dashboard", "off")
        argv = serve
        if self.shape.workers:
            worker = " ".join(_onceward("worker", "power_shop:app"))
            argv = ["sh", "-c", f"{f'{worker} & ' * self.shape.workers} {' '.join(serve)} & wait"]
        process, log = self.recorder.start(argv, env=self.env(), cwd=self.home)
        try:
            found = eventually(lambda: _port(process, log), WITHIN_S, what="the shop listens")
            assert found is not None
            self.port = found
            yield _python_children(process.pid)
        finally:
            for pid in _python_children(process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait(WITHIN_S)

    # --- what is done --------------------------------------------------------------------------------

    def record(self) -> Recorder:
        """Do it all."""
        if self.before is None:
            made = self.command("tokens", "add", "power", "--role", "admin", "--store", self.store)
            token = re.search(r"owt_\S+", made)
            assert token is not None, made
            self.token = token[0]
        else:
            self.before.image.put(self.folder)
        for number in range(self.shape.rounds):
            with self.shop() as pids:
                self.life()
                is_last = number == self.shape.rounds - 1
                how = signal.SIGTERM if is_last or self.draws.random() < 0.3 else signal.SIGKILL
                if how == signal.SIGTERM and not self.draws.randrange(3):
                    self.settle()
                for pid in pids:
                    os.kill(pid, how)
                eventually(partial(_are_gone, pids), WITHIN_S, what="the shop has ended")
        self.command("export", "--store", self.store, "--out", str(self.recorder.folder / EXPORT))
        return self.recorder

    def life(self) -> None:
        """Deliver, ask and steer at once, as many clients do."""
        kinds = [self.draws.choice(KINDS) for _ in range(self.shape.deliveries)]
        if not self.shape.workers:
            kinds += ["sell"]
        else:
            kinds = [kind for kind in kinds if kind != "sell"]  # refused while several processes use the file
        jobs: list[Callable[[], object]] = [self._delivery(kind) for kind in kinds]
        jobs += [self._delivery("loop"), self._delivery("fail")]
        jobs += [self._delivery("big") for _ in range(self.shape.big)]
        self.draws.shuffle(jobs)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda job: job(), jobs))
            known = [(run, workflow) for run, workflow in self.runs.items()]
            again = [
                self._delivery(kind, number) for number, kind in enumerate(kinds[:2], self.count - len(jobs))
            ]
            emits = [self._emit(f"order-{i}") for i in range(2)]
            looks = [self._look(run) for run, _ in self.draws.sample(known, min(4, len(known)))]
            cancels = [self._act(run, "cancel") for run, workflow in known if workflow == "loops"]
            list(pool.map(lambda job: job(), [*again, *emits, *looks, *cancels]))
            retries = [self._retry(run) for run, workflow in known if workflow == "fails"]
            list(pool.map(lambda job: job(), [*retries, self._prune]))
            list(pool.map(lambda job: job(), [self._look(run) for run, _ in known[-6:]]))

    def settle(self) -> None:
        """Wait until every run ended."""
        for run in self.runs:
            eventually(partial(self.has_ended, run), WITHIN_S, what=f"the end of {run}")

    def has_ended(self, run: str) -> bool:
        return self.state(run) in ENDED

    def state(self, run: str) -> str:
        found = self.ask("GET", f"/api/v1/runs/{run}")
        return str(found["run"]["state"])

    def _delivery(self, kind: str, number: int | None = None) -> Callable[[], object]:
        if number is None:
            number = self.count
            self.count += 1
        order = f"order-{number % 5}"
        filler = {"filler": "x" * FILLER_BYTES} if kind == "big" else {}
        event = {"id": f"evt_{number}", "type": kind, "data": {"object": {"order": order, **filler}}}

        def deliver() -> None:
            body = json.dumps(event).encode()
            headers = dict(Stripe(secrets=[SECRET]).sign(body, time.time_ns() // 1_000_000))
            answer = self._request("POST", "/hooks/stripe", body, headers)
            for found in answer["events"]:
                for run in found["runs"]:
                    self.runs.setdefault(run, f"{kind}s")

        return deliver

    def _emit(self, order: str) -> Callable[[], object]:
        asked = {"type": "shop.packed", "subject": order, "payload": {"order": order}}
        return lambda: self.ask("POST", "/api/v1/events", asked)

    def _look(self, run: str) -> Callable[[], object]:
        return lambda: self.ask("GET", f"/api/v1/runs/{run}")

    def _act(self, run: str, verb: str) -> Callable[[], object]:
        return lambda: self.ask("POST", f"/api/v1/runs/{run}/{verb}", {})

    def _retry(self, run: str) -> Callable[[], object]:
        def retry() -> None:
            if self.state(run) == "failed":
                self.ask("POST", f"/api/v1/runs/{run}/retry", {})

        return retry

    def _prune(self) -> None:
        """Take the values of some runs that are over, so that the others can still be compared."""
        after: str | None = None
        while True:
            asked = {
                "payloads": True,
                "older_than": "50ms",
                "workflow": "told",
                "dry_run": False,
                "after": after,
            }
            found = self.ask("POST", "/api/v1/prune", asked)
            after = found["next"]
            if after is None:
                return

    def ask(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        return self._request(method, path, data, headers)

    def _request(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WITHIN_S)
        try:
            connection.request(method, path, body, {**headers, "Connection": "close"})
            answer = connection.getresponse()
            said = json.loads(answer.read() or b"null")
            assert answer.status < 500, said
            return said
        finally:
            connection.close()


def _onceward(*argv: str) -> list[str]:
    return [sys.executable, "-m", "onceward", *argv]


def _port(process: subprocess.Popen[bytes], log: Path) -> int | None:
    text = log.read_text(errors="replace")
    found = re.search(r"http://127\.0\.0\.1:(\d+)", text)
    if found is None and process.poll() is not None:
        raise CannotRecord(f"strace ended with {process.returncode} before the shop listened:\n{text}")
    return None if found is None else int(found[1])


def _python_children(pid: int) -> list[int]:
    """Give the interpreters below a process."""
    found = []
    for child in _children(pid):
        name = Path(f"/proc/{child}/comm")
        with contextlib.suppress(OSError):
            if name.read_text().startswith("python"):
                found.append(child)
        found += _python_children(child)
    return found


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, task.read_text().split())
    return found


def _are_gone(pids: Sequence[int]) -> bool:
    return not any(map(_is_alive, pids))


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"
