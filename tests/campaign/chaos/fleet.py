"""The processes of an app, started anew whenever they end; whoever ended one by intent says so first."""

from __future__ import annotations

import random
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from onceward.testing import failpoints
from tests.attack.site import Process, Site
from tests.campaign.chaos.evidence import Fault, Stop

APP = "works:app"
LOOK_S = 0.05
DRAIN_S = 2
DRAIN_S_MAX = 30.0
"""How long a process that drains may take before it is killed, which it is not blamed for while its store is away."""

ARMED_SHARE = 0.25
"""Of the processes that are started under chaos, which are armed with a place to die at."""

PASSES_MAX = 60
LETHAL = tuple(
    name
    for name in failpoints()
    if name.partition(".")[0]
    in (
        "accept",
        "claim",
        "save",
        "sleep",
        "release",
        "takeover",
        "end",
        "step",
        "heartbeat",
        "load",
        "transaction",
    )
)
AMBIGUOUS = tuple(
    f"{kind}.after_commit" for kind in ("accept", "claim", "save", "sleep", "release", "takeover", "end")
)
BROKEN = re.compile(r"AssertionError|Traceback \(most recent call last\)|violates check constraint")
LEASE_LOST = "lost its lease"
"""What the log says of it, whoever notices; on a busy host it happens without any fault."""

AWAY = "store_unavailable"
"""How a process that starts without a store ends."""

CUT_OFF = "timeout graceful shutdown exceeded"
"""What the HTTP server says to a request that did not end within the time for draining, and shows where it was."""

READY = {"serve": r"http://127\.0\.0\.1:(\d+)", "worker": r"at once()"}


@dataclass
class Slot:
    """A place for one process after the other.

    Attributes:
        kind: ``serve`` or ``worker``.
        env: its way to the store, and its clock.
        port: where it takes deliveries, 0 while it does not.
        is_to_end: somebody ended it by intent: its end is no news.
        not_before: when it may be started, by the monotonic clock.
        drains_since: when it was asked to drain.
    """

    number: int
    kind: str
    env: Mapping[str, str]
    process: Process | None = None
    port: int = 0
    is_ready: bool = False
    is_armed: bool = False
    is_to_end: bool = False
    not_before: float = 0.0
    drains_since: float = 0.0
    stopped_ns: int = 0
    read_to: int = 0  # bytes of its log


@dataclass
class Fleet:
    """Starts, ends and watches the processes of a site.

    Attributes:
        found: what processes did that they should not.
        counts: ends by kind.
        is_calm: no faults any more: no failpoints, and every start has to succeed.
        aftermath_ns: how long after a process ended its runs may be taken over.
    """

    site: Site
    slots: Sequence[Slot]
    rng: random.Random
    aftermath_ns: int
    found: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    stops: list[Stop] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    is_calm: bool = False

    def __post_init__(self) -> None:
        self._lock = threading.RLock()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="fleet", daemon=True)

    def start(self) -> None:
        """Start them all, and wait until they work."""
        with self._lock:
            for slot in self.slots:
                self._start(slot)
        self._thread.start()

    def is_whole(self) -> bool:
        with self._lock:
            return all(slot.is_ready and slot.process and slot.process.is_alive() for slot in self.slots)

    def ports(self) -> list[int]:
        """Give where deliveries are taken now, as far as is known."""
        return [slot.port for slot in self.slots if slot.port]

    def close(self) -> None:
        """Have them all drain, the last deploy of a store that is whole."""
        self._is_over.set()
        self._thread.join()
        with self._lock:
            for slot in self.slots:
                if slot.process is not None:
                    slot.process.signal(signal.SIGCONT)
                    slot.process.signal(signal.SIGTERM)
            for slot in self.slots:
                if slot.process is not None:
                    code = slot.process.wait()
                    if code != 0:
                        self._blame(
                            slot, slot.process, f"ended with {code} when it was asked to stop at last"
                        )
                    self._read(slot.process)

    # --- what faults ask for ---------------------------------------------------------------------

    def kill(self, slot: Slot, down_s: float) -> None:
        """End a process at once; it comes back after so many seconds."""
        with self._lock:
            if slot.process is not None:
                slot.is_to_end = True
                slot.process.kill()
                self._ended(slot, slot.process, down_s)

    def stop(self, slot: Slot) -> bool:
        """Have a process stand still; say whether it does."""
        with self._lock:
            if slot.process is None or not slot.process.is_alive() or slot.stopped_ns:
                return False
            slot.stopped_ns = time.monotonic_ns()
            slot.process.signal(signal.SIGSTOP)
            return True

    def go_on(self, slot: Slot) -> None:
        """Let it go on."""
        with self._lock:
            if slot.process is not None and slot.stopped_ns:
                self.stops.append(Stop(slot.process.pid, slot.stopped_ns, time.monotonic_ns()))
                slot.stopped_ns = 0
                slot.process.signal(signal.SIGCONT)

    def drain(self, slot: Slot) -> None:
        """Ask a process to stop; it is started anew when it has, as by a deploy."""
        with self._lock:
            if slot.process is not None and slot.is_ready and not slot.drains_since:
                slot.is_to_end = True
                slot.drains_since = time.monotonic()
                slot.process.signal(signal.SIGTERM)

    # --- the watch ----------------------------------------------------------------------------------

    def _watch(self) -> None:
        while not self._is_over.wait(LOOK_S):
            for slot in self.slots:
                with self._lock:
                    self._look(slot)

    def _look(self, slot: Slot) -> None:
        process, now = slot.process, time.monotonic()
        if process is None:
            if now >= slot.not_before:
                self._start(slot)
        elif not process.is_alive():
            self._ended(slot, process, 0.0 if slot.is_ready else 0.5)
        elif not slot.is_ready:
            found = re.search(READY[slot.kind], process.text())
            if found:
                slot.is_ready, slot.port = True, int(found[1] or 0)
        else:
            self._listen(slot, process)
        if process is not None and slot.drains_since and now - slot.drains_since > DRAIN_S_MAX:
            self._cut_off(slot, process)

    def _cut_off(self, slot: Slot, process: Process) -> None:
        """End a process that should have drained by now."""
        if slot.process is process and not slot.stopped_ns:
            self.counts["drains cut off"] += 1
            if self.is_calm:
                self._blame(slot, process, f"did not stop within {DRAIN_S_MAX} s")
            self.kill(slot, 0.0)

    def _listen(self, slot: Slot, process: Process) -> None:
        """Hear from a process's log that a lease was lost, its own or another's."""
        with process.log.open("rb") as log:
            log.seek(slot.read_to)
            said = log.read()
        slot.read_to += len(said)
        if LEASE_LOST.encode() in said:
            self.lease_lost()

    def lease_lost(self) -> None:
        """Note that runs passed from one process to another, lately."""
        self.counts["leases lost"] += 1
        now = time.monotonic_ns()
        self.faults.append(Fault("a lease was lost", now - self.aftermath_ns, now + self.aftermath_ns))

    def _start(self, slot: Slot) -> None:
        failpoint = "" if self.is_calm else self._failpoint()
        slot.is_armed, slot.is_to_end, slot.is_ready, slot.drains_since = bool(failpoint), False, False, 0.0
        slot.read_to = 0
        more = ("--port", "0") if slot.kind == "serve" else ()
        slot.process = self.site.spawn(
            "-m", "onceward", slot.kind, APP, *more, failpoint=failpoint, is_afresh=False, **slot.env
        )
        self.counts["starts"] += 1

    def _failpoint(self) -> str:
        if self.rng.random() > ARMED_SHARE:
            return ""
        nth = self.rng.randint(1, PASSES_MAX)
        if self.rng.random() < 0.3:
            return f"{self.rng.choice(AMBIGUOUS)}:drop-reply:{nth}"
        return f"{self.rng.choice(LETHAL)}:kill:{nth}"

    def _ended(self, slot: Slot, process: Process, down_s: float) -> None:
        code, now = process.popen.returncode, time.monotonic_ns()
        self.faults.append(Fault(f"end {process.pid}", now - self.aftermath_ns, now + self.aftermath_ns))
        if slot.stopped_ns:
            self.stops.append(Stop(process.pid, slot.stopped_ns, now))
            slot.stopped_ns = 0
        if code == -signal.SIGKILL and (slot.is_to_end or slot.is_armed):
            self.counts["killed" if slot.is_to_end else "killed at a failpoint"] += 1
        elif slot.is_to_end and (code == 0 or (code == -signal.SIGTERM and not slot.is_ready)):
            self.counts["drained"] += 1
        elif not slot.is_ready and code > 0 and AWAY in process.text():
            # A pooler says so for some seconds more; one that never comes back is missed at the end.
            self.counts["starts without a store"] += 1
        else:
            self._blame(
                slot, process, f"ended with {code}{' when it was asked to stop' if slot.is_to_end else ''}"
            )
        self._read(process)
        slot.process, slot.port, slot.not_before = None, 0, time.monotonic() + down_s

    def _read(self, process: Process) -> None:
        """Look at a log for what should not be in any."""
        for line in process.text().splitlines():
            is_cut_off = "uvicorn.error" in line and line.endswith(CUT_OFF)
            if BROKEN.search(line) and not is_cut_off:
                self.found.append(f"log {process.log.name} has: {line[:200]} … {line[-800:]}")

    def _blame(self, slot: Slot, process: Process, what: str) -> None:
        self.found.append(
            f"process {process.pid} ({slot.kind} {slot.number}) {what}: {process.text()[-600:]}"
        )


def clock_file(folder: Path, number: int) -> Path:
    """Make the file by which a process's wall clock is set."""
    path = folder / f"clock{number}"
    path.write_bytes(bytes(8))
    return path
