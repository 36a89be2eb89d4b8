"""The world of one seed: processes over one database, a driver that makes trouble, a trace."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
import sqlite3
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

import msgspec

from onceward.core import errors, failpoints
from onceward.core.ports import BatchResult
from onceward.core.takeover import CRASH_LIMIT
from onceward.runtime.failpoints import FailpointRaised
from onceward.stores.rows import TABLES
from onceward.stores.sqlite.store import SqliteStore
from onceward.testing.loop import Deadlock, Spinning, new_loop, owner_var
from onceward.testing.planted import Bug
from onceward.testing.simulation import faults
from onceward.testing.simulation.driver import Driver
from onceward.testing.simulation.ledger import Ledger
from onceward.testing.simulation.mirror import Mirror
from onceward.testing.simulation.oracle import Oracle
from onceward.testing.simulation.process import Killed, Process

OPERATIONS_MIN = 200
"""Operations of one seed at least: what the driver does, and what processes commit."""

TROUBLE_SECONDS = 2.5
TROUBLE_OPERATIONS = 140
"""Virtual time and operations of one time of trouble at least; coming to rest takes more of both."""

REST_SECONDS_MAX = 90.0
"""Virtual time in which everything must come to rest once trouble is over."""

WHOLE_EVERY = 150
"""Operations between two looks at all rows."""

VIOLATIONS_MAX = 10


class Over(Exception):
    """The seed is over: a violation was found and more would only follow from it."""


_image: bytes = b""
_idle: list[sqlite3.Connection] = []

CACHED_STATEMENTS = 512
"""Of one connection: more than worlds ask for, so that each is prepared once and not once a world."""


def fresh_database() -> sqlite3.Connection:
    """Give a migrated database in memory without a row; the schema is made once and copied."""
    global _image
    if _idle:
        return _idle.pop()
    connection = sqlite3.connect(":memory:", isolation_level=None, cached_statements=CACHED_STATEMENTS)
    if not _image:
        store = SqliteStore(":memory:", namespace="default", now_ms=lambda: 0, connection=connection)
        store.open(migrate=True)
        _image = connection.serialize()
    else:
        connection.deserialize(_image)
    return connection


def take_back(connection: sqlite3.Connection) -> None:
    """Empty a database whose schema nobody changed, for the next world.

    It keeps its prepared statements: preparing them is a tenth of the work of a world (measured).
    """
    if connection.in_transaction:
        connection.execute("rollback")
    for table in TABLES:
        connection.execute(f"delete from onceward_{table}")  # noqa: S608
    _idle.append(connection)


class World:
    """Everything of one seed.

    Args:
        seed: decides all of it.
        bug: what to plant into each process, if anything.
        keep_trace: whether the whole trace is kept, to be printed.
        is_keyed: whether events start runs with keys, and no others.
        is_doubtful: whether they start runs with steps of unknown outcome, and no others.
        is_waiting: whether they start runs that wait for events; clocks are nearly right then, since by
            them an event comes before or after the begin of a run.
    """

    def __init__(
        self,
        seed: int,
        *,
        bug: Bug | None = None,
        keep_trace: bool = False,
        is_keyed: bool = False,
        is_doubtful: bool = False,
        is_waiting: bool = False,
    ) -> None:
        self.seed = seed
        self.is_doubtful = is_doubtful
        self.is_keyed = is_keyed
        self.is_waiting = is_waiting
        self.bug = bug
        self.dice = random.Random(f"world {seed}")  # noqa: S311 - repeatable is what it must be
        self.loop = new_loop(seed)
        self.connection = fresh_database()
        self.temper = faults.temper_of(self.dice)
        if is_waiting:
            self.temper.clock_insane = False
            self.temper.weights["clock jump"] = 0.0
            self.temper.weights["crash at failpoint"] = faults.ACTS["crash at failpoint"]
        self.settings: dict[str, Any] = {
            "lease": 2.0,
            "poll": self.dice.choice((0.4, 0.8)),
            "linger": self.dice.choice((0.0, 0.05, 0.2)),
            "concurrency": self.dice.choice((3, 6, 12)),
        }
        self.mirror = Mirror(self.connection, has_keys=is_keyed, has_waits=is_waiting)
        self.oracle = Oracle(self, self.mirror)
        self.hands = Ledger(self, self.oracle)
        self.slots = self.dice.randint(3, 6)
        self.lives = [0] * self.slots
        self.live: dict[int, Process] = {}  # slot -> process that is not dead
        self.all_processes: dict[str, Process] = {}  # id in the store -> process
        self.operations = 0
        self._whole_at = WHOLE_EVERY
        self.counts: dict[str, int] = dict.fromkeys(faults.KINDS, 0)
        self.passed: dict[str, int] = {}
        self.violations: list[str] = []
        self.is_trouble = True  # faults still happen
        self.away_until = 0.0
        self._held_up: dict[str, float] = {}  # process name -> when something last held it up
        self._digest = hashlib.sha256()
        self._keep_trace = keep_trace
        self.trace: list[str] = []
        self._context = copy_context()  # of nobody
        self.driver = Driver(self)

    # --- trace ---------------------------------------------------------------------------------------

    def note(self, process: Process | None, kind: str, text: str = "") -> None:
        """Write a line of the trace."""
        name = "" if process is None else process.name
        line = f"{self.operations} {self.loop.time():.4f} {name} {kind} {text}"
        self._digest.update(line.encode())
        if self._keep_trace:
            self.trace.append(line)

    def operation(self, process: Process | None, kind: str, text: str = "") -> None:
        """Count an operation."""
        self.operations += 1
        self.note(process, kind, text)

    def faulted(self, kind: str, process: Process | None, text: str = "") -> None:
        """Count a fault."""
        self.counts[kind] += 1
        self.operation(process, f"FAULT {kind}:", text)

    def violated(self, sentence: str) -> None:
        """Report a broken promise."""
        self.note(None, "VIOLATION", sentence)
        self.loop.interrupt(Over())
        if len(self.violations) < VIOLATIONS_MAX:
            self.violations.append(f"seed {self.seed} operation {self.operations}: {sentence}")

    @property
    def trace_hash(self) -> str:
        """Give the hash of everything that happened."""
        return self._digest.hexdigest()[:16]

    # --- processes -------------------------------------------------------------------------------------

    def start_process(self, slot: int) -> Process:
        """Start a process in a slot."""
        process = self.live[slot] = Process(self, slot, self.lives[slot])
        self.lives[slot] += 1
        if self.bug is not None and self.bug.store is not None:
            self.bug.store(process)
        self.operation(process, "start")
        process.spawn(process.boot())
        return process

    def booted(self, process: Process) -> None:
        """Hear that a process has made its worker; plant what needs one."""
        if self.bug is not None and self.bug.worker is not None:
            self.bug.worker(process)

    def died(self, process: Process) -> None:
        """Hear that a process is dead; it is started again after a while."""
        self.note(process, "dead", process.death)
        if process.process_id:
            self.all_processes[process.process_id] = process
        self.live.pop(process.slot, None)
        pause = self.dice.choice((0.02, 0.1, 0.5, 1.5)) if self.is_trouble else 0.1
        self.later(pause, self._restart, process.slot)

    def _restart(self, slot: int) -> None:
        if slot not in self.live:
            self.start_process(slot)

    def up(self) -> list[Process]:
        """Give the processes that accept requests."""
        return [process for _, process in sorted(self.live.items()) if process.is_up]

    def pause(self, process: Process, seconds: float) -> None:
        """Stop a process as SIGSTOP does, and let it go on after a while."""
        process.is_paused = True
        self.held_up(process, seconds)
        self.later(seconds, self._resume, process)

    def later(self, seconds: float, callback: Callable[..., Any], *args: Any) -> None:
        """Do something in a while that belongs to no process, and so outlives all."""
        self.loop.call_later(seconds, callback, *args, context=self._context)

    def _resume(self, process: Process) -> None:
        if process.is_paused and not process.is_dead:
            self.note(process, "goes on")
            self.loop.resume(process)

    def held_up(self, process: Process, seconds: float = 0.0) -> None:
        """Note that a fault keeps a process from hearing of things."""
        self._held_up[process.name] = self.loop.time() + seconds

    def was_held_up(self, process: Process, seconds: float) -> bool:
        """Say whether a fault hit a process in the last seconds."""
        return self._held_up.get(process.name, -1e9) > self.loop.time() - seconds

    def cause_of_death(self, process_id: str) -> str:
        """Give why a process is thought dead."""
        process = self.all_processes.get(process_id)
        return "its lease ended" if process is None else process.death

    def poisons(self) -> set[str]:
        """Give the runs that killed a process."""
        return {
            process.death for process in self.all_processes.values() if process.death.startswith("poison")
        }

    # --- dice ------------------------------------------------------------------------------------------

    def dice_clock(self) -> int:
        """Draw how wrong a new process's clock is."""
        if not self.is_trouble:
            return 0
        off = self.temper.clock_off_ms
        drawn = self.dice.randint(-off, off)
        if self.temper.clock_insane and self.dice.random() < 0.3:
            drawn += self.dice.choice((-19_000, -3_000, 3_000, 19_000))
        if drawn:
            self.counts["clock off"] += 1
        return drawn

    def dice_commit(self) -> tuple[float, float]:
        """Draw how long a commit takes to reach the store and to be answered."""
        if self.is_trouble and self.dice.random() < self.temper.slow_commit:
            self.counts["slow commit"] += 1
            return self.dice.uniform(0, 0.6), self.dice.uniform(0, 0.6)
        return self.dice.choice((0.001, 0.002, 0.004)), self.dice.choice((0.0, 0.001))

    def dice_read(self) -> tuple[float, float]:
        """Draw how long a read takes before and after the store is asked."""
        if self.is_trouble and self.dice.random() < self.temper.slow_read:
            self.counts["slow read"] += 1
            return self.dice.uniform(0, 0.3), self.dice.uniform(0, 0.3)
        return 0.0, self.dice.choice((0.0, 0.001))

    # --- the gate -------------------------------------------------------------------------------------

    def before(self, process: Process, name: str, *, is_write: bool) -> None:
        """Let a call of the store pass, or not."""
        if process.is_dead:
            raise Killed
        if not self.is_trouble:
            return
        temper, dice = self.temper, self.dice
        if self.loop.time() < self.away_until or dice.random() < temper.away:
            self.faulted("store away", process, name)
            self.held_up(process)
            raise errors.StoreUnavailable("The simulated store is away.", means="Nothing was written.")
        if is_write and dice.random() < temper.request_lost:
            self.faulted("request lost", process, name)
            self.held_up(process)
            raise errors.ReplyLost("The simulated request was lost.")
        if name == "apply" and dice.random() < temper.refused:
            self.faulted("commit refused", process, name)
            raise errors.StoreError("The simulated store refused the commit.")

    def refused(self, process: Process, name: str, error: BaseException) -> None:
        """Hear that a write raised; nothing of it was written."""
        self.note(process, name, f"raised {type(error).__name__}")

    def committed(self, process: Process, name: str, subject: Any, result: Any) -> None:
        """Hear of a commit at once, before anybody else does."""
        if name == "join":
            self.all_processes[subject] = process
        if name == "heartbeat" or (name == "apply" and not _has_effect(result)):
            self.note(process, name)
        elif name != "take_over" or result.processes:
            self.operation(process, name, _told(name, subject, result))
        self.oracle.committed(process, name, subject, result)
        if self.operations >= self._whole_at:
            self._whole_at = self.operations + WHOLE_EVERY
            self.oracle.judge_everything(process.database.dump)

    def after(self, process: Process, name: str) -> None:
        """Let the caller hear of its commit, or not."""
        action, process.due_action = process.due_action, ""
        if action == "crash":
            process.kill("crashed after a commit")
            raise Killed
        if action == "pause":
            self.pause(process, self.dice.uniform(2.0, 5.0))
        elif action == "drop-reply" or (self.is_trouble and self.dice.random() < self.temper.reply_lost):
            self.faulted("reply lost", process, name)
            self.held_up(process)
            raise errors.ReplyLost("The simulated reply was lost.")

    def passes(self, name: str, _detail: str) -> None:
        """Hear that somebody passes a failpoint, and do there what it is armed with."""
        process = owner_var.get()
        if not isinstance(process, Process) or process.is_dead:
            return
        self.passed[name] = self.passed.get(name, 0) + 1
        action = process.armed.pop(name, "")
        if not action or not self.is_trouble:
            return
        self.faulted(
            "pause at failpoint" if action == "pause" else "crash at failpoint", process, f"{name} {action}"
        )
        if name.endswith(".after_commit"):
            process.due_action = action
        elif action == "crash":
            process.kill(f"crashed at {name}")
            raise Killed
        elif action == "pause":
            self.pause(process, self.dice.uniform(2.0, 5.0))
        elif action == "raise":
            raise FailpointRaised(f"the failpoint {name} raised")

    # --- running ------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Let the seed happen."""
        failpoints.arm(self.passes)
        logger = logging.getLogger("onceward")
        level = logger.level
        logger.setLevel(logging.CRITICAL + 1)  # what is told there is told of every seed
        try:
            self.loop.run_until_complete(self._main())
        except Over:
            pass
        except (Deadlock, Spinning) as error:
            self.violated(f"I8 the loop: {error}")
        finally:
            failpoints.arm(None)
            self._look_for_faults()
            for process in list(self.live.values()):
                process.is_dead = True
            self.loop.close()
            if self.bug is None:
                take_back(self.connection)
            else:
                self.connection.close()  # the bug may be in the schema
            logger.setLevel(level)

    def _look_for_faults(self) -> None:
        if self.violations:
            return
        for owner, context in self.loop.faults:
            name = "nobody" if owner is None else owner.name
            self.violated(f"a callback of {name} raised {context.get('exception')!r}")
        # A branch that nobody awaits any more may end with the first three; the run decides.
        expected = (errors.StepFailed, errors.RunCancelled, Killed, FailpointRaised)
        for error in self.loop.unretrieved():
            if not isinstance(error, expected):
                self.violated(f"a task ended with {error!r} and nobody looked")

    async def _main(self) -> None:
        for slot in range(self.slots):
            self.start_process(slot)
        while not self.violations:
            until = self.loop.time() + TROUBLE_SECONDS
            # The first time most of what a seed has to have, then what is missing.
            operations = max(TROUBLE_OPERATIONS, min(OPERATIONS_MIN, self.operations + 30))
            while self.loop.time() < until or self.operations < operations:
                await asyncio.sleep(self.dice.expovariate(1 / 0.06))
                self.driver.act()
            await self._come_to_rest()
            if self.operations >= OPERATIONS_MIN:
                return
            self.is_trouble = True  # once more

    async def _come_to_rest(self) -> None:
        """Stop every fault; then everything must end, and soon."""
        self.is_trouble = False
        self.note(None, "trouble is over")
        for process in list(self.live.values()):
            process.clock.offset_ms = 0
            process.armed.clear()
            process.is_muted = False
            self._resume(process)
        limit = self.loop.time() + REST_SECONDS_MAX
        while self.loop.time() < limit and not self.violations:
            await asyncio.sleep(0.5)
            self.driver.send_again()
            if self.driver.is_answered and self.is_at_rest():
                break
        if self.violations:
            return
        if not self.driver.is_answered:
            self.violated(f"I7 senders: {len(self.driver.unanswered)} deliveries are still not accepted")
        self.oracle.judge_everything(self._any_database().dump)
        self.oracle.judge_end()

    def is_at_rest(self) -> bool:
        """Say whether every run has ended, or is held, or waits for one that is."""
        return all(self.oracle.rests(run_id) for run_id in self.mirror.runs)

    def _any_database(self) -> SqliteStore:
        return _store_of(self)

    def emits_by_maker(self) -> dict[tuple[str, int, str, int], int]:
        """Count the events that bodies emitted and the runs that they started, by who says he made them."""
        made: dict[tuple[str, int, str, int], int] = {}
        for (payload,) in self.connection.execute(
            "select payload from onceward_event where payload like '%\"by\":%'"
        ):
            told = msgspec.json.decode(payload)
            if "args" in told:
                told = told["args"][0]
            by = told.get("by")
            if by is not None and by[2] == "announce":
                key = (by[0], by[1], by[2], by[3])
                made[key] = made.get(key, 0) + 1
        return made


def _store_of(world: World) -> SqliteStore:
    store = SqliteStore(":memory:", namespace="default", now_ms=lambda: 0, connection=world.connection)
    store.open(migrate=False)
    return store


def _has_effect(result: BatchResult) -> bool:
    return bool(result.held or result.accepted or result.claimed)


def _told(name: str, subject: Any, result: Any) -> str:
    if name == "apply":
        batch = subject[1]
        parts = [
            f"{advance.run_id}{'' if held else ' REFUSED'} f{advance.fence}"
            + "".join(f" {step.name}{step.item}={step.state.value}@{step.seq}" for step in advance.steps)
            + (f" +{len(advance.accepts)}" if advance.accepts else "")
            + (f" -> {advance.move.state.value} due {advance.move.due_at}" if advance.move else "")
            for advance, held in zip(batch.advances, result.held, strict=True)
        ]
        parts += [
            f"accept {accept.event.source} {accept.event.id} {'dup' if accepted.is_duplicate else 'new'}"
            for accept, accepted in zip(batch.accepts, result.accepted, strict=True)
        ]
        parts += [f"claim {claimed.run.run_id} f{claimed.run.fence}" for claimed in result.claimed]
        return "; ".join(parts)
    if name == "steer":
        return f"{subject.audit.verb} {subject.run_id} by {subject.audit.actor} -> {subject.move.state.value} {result}"
    if name == "take_over":
        return f"{result.processes} {result.released} {result.held}"
    return str(subject)


CRASHES_ALLOWED = CRASH_LIMIT
