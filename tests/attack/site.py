"""One store, processes of its own app on it, an outside ledger and a sender of webhooks.

Everything goes through what users have: the command line, HTTP, the library and the environment.
"""

from __future__ import annotations

import http.client
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, NamedTuple, Self

from onceward import App
from onceward.sources import Stripe
from onceward.testing import check_invariants
from tests import starts
from tests.helpers import eventually

ROOT = Path(__file__).parents[2]
APPS = Path(__file__).parent / "apps"
WITHIN_S = 40.0
SECRET = "whsec_attack_attack_attack"

ENDED = ("completed", "failed", "cancelled", "held")


class Reply(NamedTuple):
    """What a sender got: status 0 when there was no reply."""

    status: int
    body: Any

    @property
    def runs(self) -> list[str]:
        return [run for event in self.body["events"] for run in event["runs"]]


class Process:
    """A process of the app; everything that it prints is in its log."""

    def __init__(
        self, argv: Sequence[str], home: Path, env: Mapping[str, str], log: Path, *, is_afresh: bool = False
    ) -> None:
        self.log = log
        with log.open("wb") as out:
            self.popen = starts.start(
                *argv,
                cwd=home,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                is_afresh=is_afresh,
            )
        self.pid = self.popen.pid
        self.port = 0

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def signal(self, number: signal.Signals) -> None:
        if self.popen.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.popen.wait(WITHIN_S)

    def wait(self, within_s: float = WITHIN_S) -> int:
        try:
            return self.popen.wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {within_s} s:\n{self.text()}") from None

    def is_alive(self) -> bool:
        return self.popen.poll() is None

    def wait_stopped(self, within_s: float = WITHIN_S) -> None:
        """Wait until the process is stopped as by SIGSTOP."""

        def state() -> str:
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]

        eventually(lambda: state() in "Tt", within_s, what=f"process {self.pid} stopped:\n{self.text()}")

    def wait_for(self, pattern: str, within_s: float = WITHIN_S) -> str:
        """Give the first match in the log."""

        def look() -> re.Match[str] | None:
            found = re.search(pattern, self.text())
            assert found or self.is_alive(), f"ended with {self.popen.returncode}:\n{self.text()}"
            return found

        found = eventually(look, within_s, what=f"{pattern!r} in\n{self.text()}")
        assert found is not None
        return found.group(0)


@dataclass
class Site:
    """A store and what runs on it.

    Attributes:
        store: the store's URL.
        home: the ledger, the logs and app files of this test.
        env: variables of every process.
    """

    store: str
    home: Path
    env: dict[str, str] = field(default_factory=dict)
    processes: list[Process] = field(default_factory=list)
    apps: list[App] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.env = {
            "ONCEWARD_LEASE": "2s",
            "ONCEWARD_POLL": "100ms",
            "ONCEWARD_LINGER": "50ms",
            "ONCEWARD_TEST_LEDGER": str(self.ledger),
            **self.env,
        }

    @property
    def ledger(self) -> Path:
        return self.home / "ledger"

    def environment(self, failpoint: str, more: Mapping[str, str]) -> dict[str, str]:
        inherited = {name: text for name, text in os.environ.items() if not name.startswith("ONCEWARD_")}
        paths = (str(self.home), str(APPS), str(ROOT / "src"))
        env = {
            **inherited,
            **self.env,
            "PYTHONPATH": os.pathsep.join(paths),
            "ONCEWARD_STORE": self.store,
            **more,
        }
        return env | ({"ONCEWARD_FAILPOINT": failpoint} if failpoint else {})

    def spawn(self, *argv: str, failpoint: str = "", is_afresh: bool = False, **env: str) -> Process:
        """Start a Python process in the site's folder."""
        log = self.home / f"log{len(self.processes)}"
        process = Process(argv, self.home, self.environment(failpoint, env), log, is_afresh=is_afresh)
        self.processes.append(process)
        return process

    def worker(
        self,
        app: str = "shop:app",
        *options: str,
        failpoint: str = "",
        is_afresh: bool = False,
        **env: str,
    ) -> Process:
        """Start ``onceward worker`` and wait until it works."""
        process = self.spawn(
            "-m", "onceward", "worker", app, *options, failpoint=failpoint, is_afresh=is_afresh, **env
        )
        process.wait_for("at once")
        return process

    def serve(
        self,
        app: str = "shop:app",
        *options: str,
        failpoint: str = "",
        is_afresh: bool = False,
        **env: str,
    ) -> Process:
        """Start ``onceward serve`` and wait until it listens."""
        argv = ("-m", "onceward", "serve", app, "--port", "0", *options)
        process = self.spawn(*argv, failpoint=failpoint, is_afresh=is_afresh, **env)
        process.port = int(process.wait_for(r"http://127.0.0.1:\d+").rpartition(":")[2])
        return process

    def load(self, name: str = "shop") -> ModuleType:
        """Import an app file into this process, on the site's store, to start and steer runs."""
        places = [folder / f"{name}.py" for folder in (self.home, APPS)]
        path = next(place for place in places if place.exists())
        spec = importlib.util.spec_from_file_location(f"{name}_{len(self.apps)}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        before = {key: os.environ.get(key) for key in (*self.env, "ONCEWARD_STORE")}
        os.environ.update(self.env, ONCEWARD_STORE=self.store)
        sys.path.insert(0, str(APPS))
        try:
            spec.loader.exec_module(module)
        finally:
            sys.path.remove(str(APPS))
            for key, text in before.items():
                if text is None:
                    del os.environ[key]
                else:
                    os.environ[key] = text
        self.apps.append(module.app)
        return module

    def desk(self, name: str = "shop") -> Any:
        """Give an app file, open in this process, where it runs no workflow."""
        module = self.load(name)
        module.app.sync.open(runs=False)
        return module

    # --- what senders do ------------------------------------------------------------------------

    def deliver(
        self, port: int, event_id: str, order: str, type: str = "charge.succeeded", timeout: float = 20
    ) -> Reply:
        """Send one genuinely signed delivery."""
        event = {"id": event_id, "type": type, "data": {"object": {"order": order}}}
        return self.post(port, json.dumps(event).encode(), timeout=timeout)

    def post(self, port: int, body: bytes, *, path: str = "/hooks/stripe", timeout: float = 20) -> Reply:
        """Send a body with a genuine signature."""
        headers = Stripe(secrets=[SECRET]).sign(body, time.time_ns() // 1_000_000)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
        try:
            connection.request("POST", path, body, dict(headers))
            answer = connection.getresponse()
            return Reply(answer.status, json.loads(answer.read() or b"null"))
        except (OSError, http.client.HTTPException):
            return Reply(0, None)
        finally:
            connection.close()

    def storm(self, ports: Sequence[int], ids: Sequence[str], copies: int) -> dict[str, list[Reply]]:
        """Send each id several times at once, spread over the processes."""
        jobs = [(event_id, ports[copy % len(ports)]) for copy in range(copies) for event_id in ids]
        replies: dict[str, list[Reply]] = {event_id: [] for event_id in ids}
        lock = threading.Lock()

        def send(job: tuple[str, int]) -> None:
            event_id, port = job
            reply = self.deliver(port, event_id, f"order-{event_id}")
            with lock:
                replies[event_id].append(reply)

        with ThreadPoolExecutor(16) as pool:
            list(pool.map(send, jobs))
        return replies

    # --- what is judged -------------------------------------------------------------------------

    def notes(self, what: str = "") -> list[str]:
        """Give the ledger's lines that begin so, oldest first."""
        lines = self.ledger.read_text().splitlines() if self.ledger.exists() else []
        return [line for line in lines if line.startswith(what)]

    def counts(self, what: str = "") -> Counter[str]:
        """Give how often each line is in the ledger."""
        return Counter(self.notes(what))

    def wait_note(self, what: str, within_s: float = WITHIN_S, times: int = 1) -> None:
        """Wait until a line is in the ledger."""
        eventually(
            lambda: self.counts()[what] >= times,
            within_s,
            what=f"{what!r} noted; {self.notes()}\n{self.logs()}",
        )

    def wait_ended(self, app: App, run_id: str, within_s: float = WITHIN_S) -> str:
        """Give the state in which a run ended or is held."""
        handle = app.sync.run(run_id)
        eventually(
            lambda: handle.state() in ENDED,
            within_s,
            what=f"the end of {handle.row()}\n{handle.steps()}\n{self.logs()}",
        )
        return str(handle.state())

    def wait_all(self, app: App, count: int, within_s: float = WITHIN_S) -> Counter[str]:
        """Wait until so many runs ended and give how."""

        def ended() -> bool:
            rows = app.sync.runs(limit=1000)
            return len(rows) >= count and all(row.state in ENDED for row in rows)

        eventually(ended, within_s, what=f"{count} ends; {self.tally(app)}\n{self.logs()}")
        return self.tally(app)

    def tally(self, app: App) -> Counter[str]:
        return Counter(str(row.state) for row in app.sync.runs(limit=1000))

    def check(self, app: App) -> None:
        """Fail when an invariant is broken."""
        assert [str(violation) for violation in check_invariants(app.worker.store)] == [], self.logs()

    def logs(self) -> str:
        return "\n".join(f"--- {process.log.name}\n{process.text()[-6000:]}" for process in self.processes)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.processes:
            process.kill()
        for app in self.apps:
            app.sync.close("0s")


def pause(seconds: float) -> None:
    """Let real time pass, where nothing happens that could be waited for."""
    threading.Event().wait(seconds)


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """Call all at the same moment from threads of their own; an exception is its result."""
    barrier = threading.Barrier(len(calls))

    def one(call: Callable[[], Any]) -> Any:
        barrier.wait()
        try:
            return call()
        except Exception as error:  # noqa: BLE001 - it is what is asked for
            return error

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(one, calls))
