"""Judges every body: it notes, outside the store, which began and ended, and knows which may."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NoReturn, cast

import msgspec

from onceward.authoring.context import Context
from onceward.authoring.current import frame_var, session_var
from onceward.core.takeover import ALONE_FROM, CRASH_LIMIT, SUSPECT_FROM
from onceward.desk import ON_THE_WAY_S
from onceward.runtime.execution import Execution
from onceward.runtime.journal import CONFIRMED_S
from onceward.testing.facts import Row
from onceward.testing.loop import owner_var
from onceward.testing.simulation.oracle import Oracle
from onceward.testing.simulation.process import Killed, Process
from onceward.testing.workflows import Hands

if TYPE_CHECKING:
    from onceward.testing.simulation.world import World

CLEAN_UP = "clean up"
"""How the names of steps begin that may start while a run is being cancelled."""

UNDO = " (undo)"
"""How the names of steps end that may start then, too."""

STALE_SECONDS_MAX = CONFIRMED_S + ON_THE_WAY_S
"""How long after an operator took a run away its old holder may still begin bodies."""


class Ledger(Hands):
    """What the bodies of all simulated processes tell.

    Args:
        world: told of violations.
        oracle: whose mirror shows what is durable.
    """

    def __init__(self, world: World, oracle: Oracle) -> None:
        self._world = world
        self._oracle = oracle
        self._mirror = oracle.mirror
        self._ended: dict[Execution, list[str]] = {}  # steps whose bodies ended well
        self._asked: dict[
            tuple[Execution, str], tuple[str, ...]
        ] = {}  # what had ended when a step was asked for
        self._caught: set[tuple[str, int, str]] = set()
        self._key_of: dict[tuple[str, int, str], str] = {}
        self._keys: dict[str, tuple[str, int, str]] = {}  # idempotency key -> whose
        self._choices: dict[tuple[str, int, str], str] = {}
        self._effects: set[tuple[str, int, str]] = set()  # of who held the run then
        self._truth: set[tuple[str, int, str]] = set()  # of all, also of who had lost it
        self._undone: set[tuple[str, int, str]] = set()
        self.given_up: set[str] = set()  # runs that a person ended as they were
        self.begun = 0
        self.ended = 0

    # --- bodies --------------------------------------------------------------------------------------

    def asks(self, ctx: Context, key: str) -> None:
        """Note what a step may depend on."""
        execution = cast("Execution", session_var.get())
        ended = self._ended.get(execution)
        if ended:
            self._asked[execution, key] = tuple(ended)

    def begin(self, ctx: Context, key: str, max_tries: int) -> None:
        """Judge the start of a body."""
        process = _process()
        frame = frame_var.get()
        assert frame is not None
        execution = cast("Execution", frame.session)
        run_id, generation, key = execution.run_id, execution.generation, str(frame.key)
        self.begun += 1
        self._world.note(process, "body", f"{run_id} {generation} {key} try {frame.try_number}")
        rows = self._mirror.runs.get(run_id)
        if rows is None:
            self._complain("I6", run_id, f"{key} began before its run was stored")
            return
        run, record = rows.run, rows.steps_by_key.get((generation, key))
        if execution.run.fence != run["fence"]:
            self._judge_stale(execution, process, run, key)
            return
        if run["state"] not in ("running", "cancelling"):
            self._complain("I8", run_id, f"{key} began while the run was {run['state']}")
        place = rows.place
        if place is None or place["process_id"] != process.process_id:
            self._complain("I5", run_id, f"{key} began in {process.process_id}, its place is {place}")
        if execution.attempt != run["attempt"] or generation != run["generation"]:
            self._complain(
                "I15",
                run_id,
                f"{key} began in attempt {generation}.{execution.attempt}, stored is "
                f"{run['generation']}.{run['attempt']}",
            )
        if run["state"] == "cancelling" and not key.startswith(CLEAN_UP) and not key.endswith(UNDO):
            self._complain("I17", run_id, f"{key} began while the run was being cancelled")
        self._judge_record(execution, key, record, frame.try_number, max_tries)
        self._judge_earlier(execution, key)
        self._judge_choice(run_id, generation, key)
        whose = (run_id, generation, key)
        if (
            self._keys.setdefault(frame.idempotency_key, whose) != whose
            or ctx.idempotency_key not in self._keys
        ):
            self._complain("RULINGS 12", run_id, f"{key} shares its idempotency key with another step")
        if self._key_of.setdefault(whose, frame.idempotency_key) != frame.idempotency_key:
            self._complain("RULINGS 12", run_id, f"{key} began with another idempotency key than before")
        if execution.run.crashes >= SUSPECT_FROM and process.worker is not None:
            others = [
                other.run_id
                for other in process.worker.executions.values()
                if other is not execution
                and other.run.crashes >= SUSPECT_FROM
                and max(other.run.crashes, execution.run.crashes) >= ALONE_FROM
            ]
            if others:
                self._complain("I16", run_id, f"{key} began beside other suspects: {others}")

    def _judge_stale(self, execution: Execution, process: Process, run: Row, key: str) -> None:
        """Judge a body that begins in a process that has lost the run and may not know it yet."""
        verb, at = self._oracle.ended_by(execution.run_id, execution.run.fence)
        seconds = self._world.loop.time() - at
        if verb in ("take_over", "claim", "nothing"):
            if not self._world.temper.clock_insane:
                self._complain(
                    "F04", execution.run_id, f"{key} began in {process.name}, from which a {verb} took it"
                )
        elif seconds > STALE_SECONDS_MAX and not self._world.was_held_up(process, STALE_SECONDS_MAX):
            self._complain(
                "I17", execution.run_id, f"{key} began in {process.name} {seconds:.3f} s after a {verb}"
            )

    def _judge_record(
        self, execution: Execution, key: str, record: Row | None, try_number: int, max_tries: int
    ) -> None:
        run_id, generation = execution.run_id, execution.generation
        tries = 0 if record is None else record["tries"]
        if record is not None and record["state"] != "open":
            invariant = "I3" if record["state"] == "done" else "RULINGS 19"
            self._complain(invariant, run_id, f"{key} began again, it is saved as {record['state']}")
        elif tries != try_number - 1:
            self._complain("I15", run_id, f"try {try_number} of {key} began, {tries} are saved")
        if try_number > max_tries:
            self._complain("I15", run_id, f"try {try_number} of {key} began, {max_tries} are allowed")
        if (run_id, generation, key) in self._caught:
            self._complain("RULINGS 19", run_id, f"{key} began again, its failure had been caught")

    def _judge_earlier(self, execution: Execution, key: str) -> None:
        """Check that what had ended in this run when the step was asked for is durable now (RULINGS 5).

        What other branches saved since, the step's arguments cannot depend on.
        """
        records = self._mirror.runs[execution.run_id].steps_by_key
        for earlier in self._asked.pop((execution, key), ()):
            record = records.get((execution.generation, earlier))
            if record is None or record["state"] == "open":
                self._complain("RULINGS 5", execution.run_id, f"{key} began before {earlier} was durable")

    def _judge_choice(self, run_id: str, generation: int, key: str) -> None:
        """Check that what followed a race, or a time-out, is the same on every attempt (RULINGS 17)."""
        if key.startswith("after "):
            place = key.partition(":")[0] if ":" in key else ""
            first = self._choices.setdefault((run_id, generation, place), key)
            if first != key:
                self._complain("RULINGS 17", run_id, f"{key} began, before it was {first}")

    def end(self, ctx: Context, key: str, outcome: str) -> None:
        """Note the end of a body."""
        _process()
        frame = frame_var.get()
        assert frame is not None
        self.ended += 1
        if outcome == "ok":
            self._ended.setdefault(cast("Execution", frame.session), []).append(str(frame.key))

    # --- what code is given -----------------------------------------------------------------------------

    def saw(self, ctx: Context, key: str, value: Any) -> None:
        """Judge a value that the workflow's code was given, if its record is durable (I22)."""
        _process()
        session = cast("Execution", session_var.get())
        rows = self._mirror.runs.get(session.run_id)
        record = None if rows is None else rows.steps_by_key.get((session.generation, key))
        if rows is None or record is None or rows.run["fence"] != session.run.fence:
            return
        if record["state"] == "done" and not _is_same(record, value):
            self._complain("I22", session.run_id, f"code saw {value!r} of {key}, saved is {record['output']}")

    def caught(self, ctx: Context, key: str) -> None:
        """Note that a saved failure was caught: it stays as it is in this generation."""
        _process()
        session = cast("Execution", session_var.get())
        rows = self._mirror.runs.get(session.run_id)
        record = None if rows is None else rows.steps_by_key.get((session.generation, key))
        if record is not None and record["state"] == "failed":
            self._caught.add((session.run_id, session.generation, key))

    # --- effects outside ----------------------------------------------------------------------------

    def begins_once(self, ctx: Context, key: str) -> None:
        """Judge the start of a body whose step may have taken effect: that had to be found out first."""
        whose = _whose(key)
        if whose in self._effects:
            self._complain("RULINGS 7", whose[0], f"{key} began again, it had taken effect")

    def effect(self, ctx: Context, key: str) -> None:
        """Note an effect; that of a process that has lost the run is nobody's to find."""
        _process()
        whose, execution = _whose(key), cast("Execution", session_var.get())
        self._truth.add(whose)
        rows = self._mirror.runs.get(execution.run_id)
        if rows is not None and rows.run["fence"] == execution.run.fence:
            self._effects.add(whose)

    def undo(self, ctx: Context, key: str) -> None:
        """Note that an effect is given back."""
        _process()
        self._undone.add(_whose(key))

    def has_effect(self, ctx: Context, key: str) -> bool:
        """Say whether a step took effect."""
        _process()
        return _whose(key) in self._truth

    def truth_about(self, run_id: str, generation: int, step: str) -> bool:
        """Say what a person finds who looks what became of a step; of an undo, he does it himself."""
        key = step.removesuffix(UNDO).removesuffix(" (outcome)")
        if step.endswith(UNDO):
            self._undone.add((run_id, generation, key))
            return True
        return (run_id, generation, key) in self._truth

    def judge_sagas(self) -> None:
        """Judge what is left outside of runs that ended: all of it, or nothing."""
        for run_id, rows in self._mirror.runs.items():
            run = rows.run
            if run["workflow"] != "saga" or run_id in self.given_up or run["crashes"] >= CRASH_LIMIT:
                continue
            for key in ("book", "pay"):
                whose = (run_id, run["generation"], key)
                if run["state"] == "completed" and whose in self._undone:
                    self._complain("RULINGS 20", run_id, f"it is completed and {key} is undone")
                if run["state"] in ("failed", "cancelled") and whose in self._effects - self._undone:
                    self._complain("RULINGS 22", run_id, f"it is {run['state']} and {key} is not undone")

    def die(self, ctx: Context) -> NoReturn:
        """End the process."""
        process = _process()
        process.world.faulted("poison", process, ctx.run_id)
        process.kill(f"poison {ctx.run_id}")
        raise Killed

    def block(self, ms: int) -> None:
        """Let a plain body take its time."""
        _process().plain_seconds += ms / 1000

    def _complain(self, invariant: str, run_id: str, sentence: str) -> None:
        self._oracle.complain(invariant, run_id, sentence)


def _whose(key: str) -> tuple[str, int, str]:
    execution = cast("Execution", session_var.get())
    return execution.run_id, execution.generation, key


def _is_same(record: Row, value: Any) -> bool:
    stored = None if record["output"] is None else msgspec.json.decode(record["output"])
    if record["kind"] == "now" and isinstance(stored, int):
        stored = datetime.fromtimestamp(stored / 1000, UTC).isoformat()
    return bool(stored == value)


def _process() -> Process:
    process = owner_var.get()
    if not isinstance(process, Process) or process.is_dead:
        raise Killed
    return process
