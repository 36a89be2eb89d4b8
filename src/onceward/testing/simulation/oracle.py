"""Judges every commit and every reply: what may be written by whom, and whether replies were true.

It stands outside the engine: it sees what processes asked of the store, the rows before and after,
and the replies that senders and operators got. Bodies are judged in ``ledger``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any

from onceward.core.model import StepRow
from onceward.core.ports import Accept, Accepted, Advance, Batch, BatchResult, Steer
from onceward.core.states import MOVES, TERMINAL, Effect, Move, RunState
from onceward.core.steer import Reply
from onceward.core.takeover import CRASH_LIMIT
from onceward.testing.facts import Row
from onceward.testing.invariants import TABLES as ALL_TABLES
from onceward.testing.invariants import check_rows
from onceward.testing.simulation.mirror import ALL_OF_RUN, Mirror, RunRows

if TYPE_CHECKING:
    from onceward.testing.simulation.process import Process
    from onceward.testing.simulation.world import World


def _reachable() -> dict[str, frozenset[str]]:
    """Give which states one commit from inside can lead to; a move and a claim may share one."""
    direct: dict[RunState, set[RunState]] = {state: {state} for state in RunState}
    for (state, _), target in MOVES.items():
        direct[state].add(target)
    for state in (RunState.QUEUED, RunState.CANCELLING):
        direct[state].add(RunState.HELD)  # a killer, at the takeover
    claims = {state: target for (state, move), target in MOVES.items() if move is Move.CLAIM}
    return {
        state.value: frozenset(
            one.value for target in targets for one in (target, claims.get(target, target))
        )
        for state, targets in direct.items()
    }


REACHABLE = _reachable()
TERMINAL_NAMES = frozenset(state.value for state in TERMINAL)


class _Touched(dict[str, set[str]]):
    """The runs that a commit was about, each with the tables in which it can have changed rows."""

    def add(self, run_id: str, table: str = "") -> None:
        """Note that a run, its place in the queue, and perhaps rows of a table were touched."""
        tables = self.setdefault(run_id, set())
        if table:
            tables.add(table)


class Oracle:
    """The judge of commits and replies.

    Args:
        world: told of violations, asked who lives.
        mirror: the rows.
    """

    def __init__(self, world: World, mirror: Mirror) -> None:
        self.world = world
        self.mirror = mirror
        self.replies: dict[tuple[str, str], dict[str, str]] = {}  # event -> workflow -> run id
        self.new_attempts: set[tuple[str, int, int]] = set()
        self._fence_moves: dict[tuple[str, int], tuple[str, float]] = {}  # run, fence -> what raised it, when
        self._in_line: set[str] = set()  # runs that held a key or waited for one before the commit
        self.lost: dict[str, list[str]] = {}  # run -> causes of its lost holders, since its last checkpoint

    def complain(self, invariant: str, subject: str, sentence: str) -> None:
        """Report a violation."""
        self.world.violated(f"{invariant} {subject}: {sentence}")

    def ended_by(self, run_id: str, fence: int) -> tuple[str, float]:
        """Give what took a run from the holder with this fence, and when."""
        return self._fence_moves.get((run_id, fence + 1), ("nothing", 0.0))

    # --- commits -------------------------------------------------------------------------------------

    def committed(self, process: Process, name: str, subject: Any, result: Any) -> None:
        """Judge a commit that has just happened."""
        if name == "apply":
            self._applied(process, subject[0], subject[1], result)
        elif name == "steer":
            self._steered(subject, result)
        elif name == "replay":
            self._replayed(subject, result)
        elif name == "take_over":
            if result.processes:
                self._taken_over(result.processes)
        elif name == "offer":
            self._refresh(dict.fromkeys(offer.run_id for offer in subject), "offer")
        elif name == "give_back":
            self._refresh(subject, "give_back")
        elif name == "leave":
            owned = [run_id for run_id, rows in self.mirror.runs.items() if _owner(rows) == subject]
            before = {run_id: self.mirror.runs[run_id].run["attempt"] for run_id in owned}
            self.mirror.refresh_processes()
            self._refresh(owned, "leave")
            for run_id, attempt in before.items():
                if self.mirror.runs[run_id].run["attempt"] != attempt:
                    self.complain("I29", run_id, f"a stop of {subject} charged an attempt")
        elif name == "join":
            self.mirror.refresh_processes()

    def _applied(self, process: Process, process_id: str, batch: Batch, result: BatchResult) -> None:
        mirror, touched = self.mirror, _Touched()
        if process_id not in mirror.committers:
            self.complain("I5", process_id, "it was evicted and its batch was accepted")
        seen: set[str] = set()
        for advance, is_held in zip(batch.advances, result.held, strict=True):
            if advance.run_id in seen:
                self.complain("RULINGS 4", advance.run_id, "it has two commits in one batch")
            seen.add(advance.run_id)
            self._judge_fence(process_id, advance, is_held)
            if is_held:
                move = advance.move
                touched.add(advance.run_id, "step" if advance.steps else "")
                if move is not None:
                    touched.add(advance.run_id, "attempt" if move.log is not None else "")
                    if move.wakes_run_id is not None:
                        touched.add(move.wakes_run_id)
                self._note_progress(advance)
                for accept in advance.accepts:
                    for run_id in self._stored(accept).values():
                        touched.add(run_id)
        for accept, accepted in zip(batch.accepts, result.accepted, strict=True):
            stored = self._stored(accept)
            for run_id in stored.values():
                touched.add(run_id)
            if not accepted.is_refused and accepted.runs != stored:
                self.complain("I2", _name(accept), f"was answered {accepted.runs}, stored is {stored}")
        for claimed in result.claimed:
            run_id = claimed.run.run_id
            rows = mirror.runs.get(run_id)
            if rows is not None and _owner(rows) is not None and run_id not in touched:
                self.complain("I5", run_id, f"{process_id} claimed it from {_owner(rows)}")
            touched.add(run_id)
            self._fence_moves[run_id, claimed.run.fence] = ("claim", self.world.loop.time())
        self._refresh(touched, "apply")

    def _judge_fence(self, process_id: str, advance: Advance, is_held: bool) -> None:
        rows = self.mirror.runs.get(advance.run_id)
        if rows is None:
            self.complain("I5", advance.run_id, "a run that does not exist was written to")
            return
        is_right = rows.run["fence"] == advance.fence
        if is_held and not is_right:
            self.complain(
                "I5",
                advance.run_id,
                f"a write with fence {advance.fence} was accepted, the run's is {rows.run['fence']}",
            )
        elif is_right and not is_held:
            self.complain("I5", advance.run_id, f"a write with its fence {advance.fence} was refused")
        if is_held and is_right and _owner(rows) not in (process_id, None):
            self.complain("I5", advance.run_id, f"{process_id} wrote to it, its owner is {_owner(rows)}")

    def _note_progress(self, advance: Advance) -> None:
        if any(step.state != "open" for step in advance.steps):
            self.lost.pop(advance.run_id, None)

    def _stored(self, accept: Accept) -> dict[str, str]:
        event = accept.event
        if self.mirror.refresh_event(event.source, event.id) is None:
            self.complain("I6", _name(accept), "was accepted and is not stored")
        return self.mirror.originals(event.source, event.id)

    def _steered(self, steer: Steer, is_done: bool) -> None:
        if not is_done:
            return
        before = self.mirror.runs[steer.run_id].run
        seen = (steer.expected_state.value, steer.expected_generation, steer.expected_fence)
        if seen != (before["state"], before["generation"], before["fence"]):
            self.complain(
                "I17", steer.run_id, f"{steer.audit.verb} was decided on {seen}, the run was not so"
            )
        self._judge_kept(steer)
        touched = [steer.run_id]
        if steer.move.wakes_run_id is not None:
            touched.append(steer.move.wakes_run_id)
        moved = (steer.run_id, steer.expected_fence + 1)
        self._fence_moves[moved] = (steer.audit.verb, self.world.loop.time())
        if steer.move.crashes == 0:
            self.lost.pop(steer.run_id, None)
        self._refresh(touched, "steer")

    def _judge_kept(self, steer: Steer) -> None:
        """Judge what a restart keeps: nothing but outcomes, as they were saved, and it knew of all of them."""
        known = [
            row
            for row in self.mirror.runs[steer.run_id].step
            if row["generation"] == steer.expected_generation
        ]
        if steer.expected_sum is not None and steer.expected_sum != sum(row["seq"] for row in known):
            self.complain("I19", steer.run_id, "was restarted by a plan that did not know all records")
        if steer.move.generation == steer.expected_generation:
            return  # what is copied there is the record of a step whose outcome was answered
        saved = {(row["seq"], row["name"], row["output"]) for row in known if row["state"] == "done"}
        for copy in steer.copies:
            if (copy.seq, copy.name, copy.output) not in saved or copy.origin is None:
                self.complain("I19", steer.run_id, f"step {copy.name!r} is kept and was not saved so")

    def _replayed(self, accept: Accept, accepted: Accepted) -> None:
        event = accept.event
        self.mirror.refresh_event(event.source, event.id)
        self._refresh(accepted.runs.values(), "replay")

    def _taken_over(self, processes: Collection[str]) -> None:
        touched = []
        for run_id, rows in self.mirror.runs.items():
            owner = _owner(rows)
            if owner in processes:
                touched.append(run_id)
                self.lost.setdefault(run_id, []).append(self.world.cause_of_death(str(owner)))
                moved = (run_id, rows.run["fence"] + 1)
                self._fence_moves[moved] = ("take_over", self.world.loop.time())
        self.mirror.refresh_processes()
        self._refresh(touched, "take_over")

    def _refresh(self, run_ids: Iterable[str], by: str) -> None:
        """Read runs again and judge how they changed."""
        mirror = self.mirror
        touched: dict[str, Collection[str]] = dict.fromkeys(run_ids, ALL_OF_RUN)
        if isinstance(run_ids, _Touched):
            touched.update(run_ids)
        in_line = mirror.in_line()
        for run_id in self._in_line | in_line:
            touched.setdefault(run_id, ALL_OF_RUN)  # the end of one run is the turn of another
        self._in_line = in_line
        for run_id, tables in touched.items():
            known = mirror.runs.get(run_id)
            before = None if known is None else known.run
            owner = None if known is None else _owner(known)
            rows = mirror.refresh_run(run_id, tables)
            if rows is None:
                self.complain("I6", run_id, f"it is gone after {by}")
            elif before is not None:
                self._judge_change(before, owner, rows, by)
        for violation in mirror.check_runs(touched):
            self.world.violated(str(violation))

    def _judge_change(self, before: Row, owner: str | None, rows: RunRows, by: str) -> None:
        after, run_id = rows.run, rows.run["run_id"]
        if by != "steer" and after["state"] not in REACHABLE[before["state"]]:
            self.complain("I9", run_id, f"{by} made it {after['state']}, it was {before['state']}")
        for column in ("workflow", "source", "event_id", "created_at", "replay_id", "parent_run_id", "input"):
            if after[column] != before[column]:
                self.complain("I19", run_id, f"its {column} changed")
        if by == "take_over" and owner is not None and owner not in self.mirror.processes:
            if after["crashes"] != before["crashes"] + 1:
                self.complain("I16", run_id, f"its lost holder {owner} was not counted")
            if after["attempt"] == before["attempt"] and after["state"] != "held":
                self.complain("I15", run_id, f"its lost holder {owner} did not end the attempt")

    # --- replies ---------------------------------------------------------------------------------------

    def replied(self, source: str, event_id: str, runs: dict[str, str]) -> None:
        """Judge a reply that says that an event is stored with these runs."""
        stored = self.mirror.originals(source, event_id)
        name = f"{source} {event_id}"
        if self.mirror.refresh_event(source, event_id) is None:
            self.complain("I6", name, "was answered as stored and is not")
        elif runs != stored:
            self.complain("I2", name, f"was answered with {runs}, stored is {stored}")
        earlier = self.replies.setdefault((source, event_id), runs)
        if earlier != runs:
            self.complain("I2", name, f"was answered with {runs}, before with {earlier}")

    def steered(self, reply: Reply) -> None:
        """Judge an operator's reply."""
        rows = self.mirror.runs.get(reply.run_id)
        if rows is None:
            self.complain("I17", reply.run_id, "was steered and does not exist")
            return
        if reply.effect is Effect.NEW_ATTEMPT:
            key = (reply.run_id, reply.generation, reply.attempt)
            if key in self.new_attempts:
                self.complain("I15", reply.run_id, f"two retries began attempt {reply.attempt}")
            self.new_attempts.add(key)
        run = rows.run
        if (run["generation"], run["attempt"]) < (reply.generation, reply.attempt):
            self.complain("I17", reply.run_id, f"was answered {reply}, it is in attempt {run['attempt']}")
        is_cancel = reply.effect in (Effect.BEGIN_CANCEL, Effect.CANCEL_NOW)
        is_same = run["generation"] == reply.generation
        if is_cancel and is_same and run["state"] not in ("cancelling", "cancelled", "held"):
            self.complain("I17", reply.run_id, f"was answered {reply.text!r} and is {run['state']}")

    # --- the end -----------------------------------------------------------------------------------------

    def judge_everything(self, dump: Callable[..., dict[str, list[Row]]]) -> None:
        """Judge all rows by the rules for every store, and that nothing changed unseen."""
        tables = dump(*ALL_TABLES)
        for violation in check_rows(tables):
            self.world.violated(str(violation))
        for difference in self.mirror.differences(tables):
            self.world.violated(f"I5 {difference}")

    def judge_end(self) -> None:
        """Judge what must be true when nothing goes wrong any more and everything came to rest."""
        for (source, event_id), runs in self.replies.items():
            if self.mirror.originals(source, event_id) != runs:
                self.complain("I6", f"{source} {event_id}", f"was answered with {runs}, which is not stored")
        for run_id, rows in self.mirror.runs.items():
            run = rows.run
            if run["state"] == "held":
                self._judge_held(run_id, run)
            elif not self.rests(run_id):
                self.complain("I8", run_id, f"{run['workflow']} is still {run['state']}: {rows.place}")
        self._judge_emits()
        self.world.hands.judge_sagas()

    def rests(self, run_id: str) -> bool:
        """Say whether a run has ended, or is held, or waits for called runs of which one is held."""
        rows = self.mirror.runs[run_id]
        if rows.run["state"] in TERMINAL_NAMES or rows.run["state"] == "held":
            return True
        if run_id in self._in_line and rows.run["state"] == "queued":
            return self._waits_for_held(run_id)
        if rows.run["state"] not in ("waiting", "cancelling"):
            return False
        generation = rows.run["generation"]
        joined = {row["run_id"]: row["holder_run_id"] for row in self.mirror.joined()}
        called = [
            joined.get(row["child_run_id"], row["child_run_id"])
            for row in rows.step
            if row["kind"] == "call" and row["state"] == "open" and row["generation"] == generation
        ]
        resting = [self.rests(child) for child in called if child in self.mirror.runs]
        states = {self.mirror.runs[child].run["state"] for child in called if child in self.mirror.runs}
        return bool(resting) and all(resting) and states <= {"held", "waiting"}

    def _waits_for_held(self, run_id: str) -> bool:
        """Say whether a run is in line for a key whose holder is held."""
        key = self.mirror.runs[run_id].run["key"]
        workflow = self.mirror.runs[run_id].run["workflow"]
        holders = [
            row["run_id"]
            for row in self.mirror.key_tables()["holder"]
            if (row["workflow"], row["key"]) == (workflow, key)
        ]
        return any(self.mirror.runs[holder].run["state"] == "held" for holder in holders)

    def _judge_held(self, run_id: str, run: Row) -> None:
        reason = run["reason"] or ""
        if reason.startswith("not storable: ") and self.world.counts["commit refused"]:
            return
        if reason.startswith("outcome unknown") and self.world.is_doubtful:
            return
        if not reason.startswith("poison"):
            self.complain("I20", run_id, f"{run['workflow']} is held: {reason}")
        elif len(self.lost.get(run_id, [])) < CRASH_LIMIT:
            self.complain("I16", run_id, f"is held after {self.lost.get(run_id)}")

    def _judge_emits(self) -> None:
        """Every emit inside a body exists once, if and only if the body's step is saved (I10)."""
        made = self.world.emits_by_maker()
        for by, count in made.items():
            run_id, generation, key, _ = by
            rows = self.mirror.runs.get(run_id)
            record = None if rows is None else rows.steps_by_key.get((generation, key))
            if count != 1:
                self.complain("I10", run_id, f"{key} of generation {generation} emitted {count} times")
            if record is None or record["state"] != "done":
                self.complain("I10", run_id, f"{key} of generation {generation} emitted and is not saved")
        for run_id, rows in self.mirror.runs.items():
            for (generation, key), record in rows.steps_by_key.items():
                if key == "announce" and record["state"] == "done" and record["origin"] is None:
                    missing = [n for n in (1, 2, 3) if (run_id, generation, key, n) not in made]
                    if missing:
                        self.complain("I10", run_id, f"emits {missing} of a saved {key} are missing")


def _owner(rows: RunRows) -> str | None:
    owner: str | None = None if rows.place is None else rows.place["process_id"]
    return owner


def _name(accept: Accept) -> str:
    return f"{accept.event.source} {accept.event.id}"


__all__ = ["REACHABLE", "TERMINAL_NAMES", "Oracle", "StepRow"]
