"""What must be true of every store at every moment, as far as its rows can show it.

``check_invariants`` asks for all rows of a namespace once and looks for broken promises, which
have the numbers of the contract (I1 to I30). It runs after every operation of a simulation,
at the end of every crash test and in ``onceward doctor``, so it is linear in the rows. What only
time can show (a record that changed, a fence that fell) is in ``onceward.testing.history``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from onceward.core.model import Millis, Skip
from onceward.core.ports import Store
from onceward.core.states import TERMINAL, RunState, StepState
from onceward.core.takeover import COMPANY_FACTOR, CRASH_LIMIT, SUSPECT_FROM
from onceward.testing.facts import Facts, Found
from onceward.testing.facts import Row as Row
from onceward.testing.facts import Tables as Tables
from onceward.testing.facts import Violation as Violation
from onceward.testing.wait_invariants import WAIT_RULES

TABLES = (
    "event",
    "delivery",
    "run",
    "queue",
    "step",
    "attempt",
    "audit",
    "process",
    "committer",
    "version",
    "skipped",
    "holder",
    "waiter",
    "wait",
)

FAR_MS: Millis = 50 * 366 * 86_400_000
"""A run that is due later than this after it was made waits for a wake-up, not for a time."""

OFF_QUEUE = frozenset({*TERMINAL, RunState.HELD})


@dataclass(frozen=True)
class Shape:
    """Which columns a state must have filled, and which it must leave empty."""

    filled: tuple[str, ...] = ()
    empty: tuple[str, ...] = ()


_UNENDED = ("ended_at", "output", "problem_at", "dismissed_at")

COLUMNS: dict[RunState, Shape] = {
    RunState.QUEUED: Shape((), _UNENDED),
    RunState.RUNNING: Shape(("started_at",), _UNENDED),
    RunState.SLEEPING: Shape(("started_at",), _UNENDED),
    RunState.WAITING: Shape(("started_at",), _UNENDED),
    RunState.BACKOFF: Shape(("started_at",), _UNENDED),
    RunState.CANCELLING: Shape((), _UNENDED),
    RunState.HELD: Shape(("reason", "problem_at"), ("ended_at", "output", "dismissed_at")),
    RunState.COMPLETED: Shape(("started_at", "ended_at"), ("error", "problem_at", "dismissed_at")),
    RunState.FAILED: Shape(("ended_at", "error"), ("output",)),
    RunState.CANCELLED: Shape(("ended_at",), ("output", "problem_at", "dismissed_at")),
}
"""The columns of a run by its state (I9)."""

STEP_COLUMNS: dict[StepState, Shape] = {
    StepState.OPEN: Shape((), ("ended_at", "output")),
    StepState.DONE: Shape(("ended_at",), ("error",)),
    StepState.FAILED: Shape(("ended_at", "error"), ()),
    StepState.CANCELLED: Shape(("ended_at",), ("output",)),
    StepState.CUT: Shape(("ended_at",), ("output",)),
}
"""The columns of a record by its state (I4)."""


def check_invariants(store: Store) -> list[Violation]:
    """Give every promise that the store's rows show to be broken; none, if all is well.

    Args:
        store: open; all its rows of the namespace are read, seen at one moment.
    """
    return check_rows(store.dump(*TABLES))


def check_rows(tables: Tables, *, is_pruned: bool | None = None) -> list[Violation]:
    """Give every promise that rows show to be broken; the tables are those of ``TABLES``.

    Args:
        tables: all rows of a namespace, or those of some of its runs.
        is_pruned: whether retention may have taken some of the store's; all rows tell it by themselves.
    """
    facts = Facts(tables, is_pruned=is_pruned)
    found: list[Violation] = []
    for rule in RULES:
        try:
            found.extend(rule(facts))
        except (TypeError, ValueError) as error:
            # A column holds what its type does not allow: somebody edited it by hand (F27).
            found.append(Violation("I9", "", f"rows cannot be compared by {rule.__name__}: {error}"))
    return found


# --- identity ---------------------------------------------------------------------------------------


def _one_row_an_identity(facts: Facts) -> Found:
    yield from _doubled(facts.tables["event"], ("source", "id"), "I1", "is stored twice")
    identity = ("workflow", "source", "event_id", "replay_id")
    yield from _doubled(facts.tables["run"], identity, "I1", "has two runs")


def _doubled(rows: list[Row], columns: tuple[str, ...], invariant: str, what: str) -> Found:
    seen = set()
    for row in rows:
        key = tuple([row[column] for column in columns])
        if key in seen:
            yield Violation(invariant, str(row.get("run_id") or _event_name(row)), f"{key} {what}")
        seen.add(key)


def _event_name(row: Row) -> str:
    return f"{row['source']} {row.get('event_id', row.get('id'))}"


def _every_run_has_its_event(facts: Facts) -> Found:
    for run in facts.tables["run"]:
        if (run["source"], run["event_id"]) not in facts.events:
            yield Violation("I6", run["run_id"], f"its event {_event_name(run)} is missing")


def _every_live_run_has_its_payload(facts: Facts) -> Found:
    """Look whether retention took what a run needs that is not over, or may begin again."""
    for run in facts.tables["run"]:
        event = facts.events.get((run["source"], run["event_id"]))
        is_over = run["state"] in TERMINAL and (run["problem_at"] is None or run["dismissed_at"] is not None)
        if is_over:
            continue
        if run["pruned_at"] is not None:
            yield Violation("I6", run["run_id"], "it is not over, and lost its values")
        if event is not None and event["payload"] is None and run["input"] is None:
            yield Violation(
                "I6", run["run_id"], f"it is not over, and its event {_event_name(run)} lost its payload"
            )


def _deliveries_are_told_apart(facts: Facts) -> Found:
    accepted = set()
    for delivery in facts.tables["delivery"]:
        key = (delivery["source"], delivery["event_id"])
        if key not in facts.events:
            yield Violation("I2", _event_name(delivery), "a delivery's event is missing")
        if delivery["outcome"] == "accepted":
            if key in accepted:
                yield Violation("I2", _event_name(delivery), "two deliveries are said to have brought it")
            accepted.add(key)


def _one_namespace(facts: Facts) -> Found:
    names = {row["namespace"] for rows in facts.tables.values() for row in rows}
    if len(names) > 1:
        yield Violation("I23", "", f"rows of several namespaces are shown: {', '.join(sorted(names))}")


# --- order ------------------------------------------------------------------------------------------


def _skipped_events_have_no_run(facts: Facts) -> Found:
    """Look whether a workflow has a run of an event and a record of why it has none."""
    made = {
        (run["source"], run["event_id"], run["workflow"])
        for run in facts.tables["run"]
        if run["replay_of"] is None
    }
    for row in facts.tables["skipped"]:
        if (row["source"], row["event_id"]) not in facts.events:
            yield Violation("I6", _event_name(row), f"its record for {row['workflow']} has no event")
        if (row["source"], row["event_id"], row["workflow"]) in made:
            yield Violation("I1", _event_name(row), f"{row['workflow']} has a run and a record of why not")
        if row["reason"] == Skip.STALE and not row["version"] <= row["newest"]:
            yield Violation("I1", _event_name(row), f"{row['workflow']} took a newer event for a stale one")


def _newest_versions_are_of_events(facts: Facts) -> Found:
    newest = {(row["workflow"], row["subject"]): row["version"] for row in facts.tables["version"]}
    subjects = {(row["source"], row["id"]): row["subject"] for row in facts.tables["event"]}
    for row in facts.tables["version"]:
        # Where retention takes ids of events, too, the newest version stays.
        if (row["source"], row["event_id"]) not in facts.events and not facts.is_pruned:
            yield Violation("I6", _event_name(row), f"the newest of {row['subject']} has no event")
    for row in facts.tables["skipped"]:
        place = (row["workflow"], subjects.get((row["source"], row["event_id"])))
        if row["newest"] is not None and newest.get(place, "") < row["newest"]:
            yield Violation("I1", _event_name(row), f"the newest version of {place} fell")


def _one_run_holds_a_key(facts: Facts) -> Found:
    for place, holder in facts.holders.items():
        run = facts.runs.get(holder["run_id"])
        if run is None or (run["workflow"], run["key"]) != place:
            yield Violation("I1", holder["run_id"], f"it holds the key {place} and is no run of it")
        elif holder["once"] == "active" and run["state"] in TERMINAL:
            yield Violation("I8", holder["run_id"], f"it is {run['state']} and still holds the key {place}")
        if holder["is_replaced"] and place not in facts.waiters.values():
            yield Violation("I8", holder["run_id"], f"it is to make room for {place} and nobody waits")
    for run_id, place in facts.waiters.items():
        run = facts.runs.get(run_id)
        if run is None or run["state"] != RunState.QUEUED or (run["workflow"], run["key"]) != place:
            yield Violation("I8", run_id, f"it is in line for {place} and is no run that waits")
        elif place not in facts.holders:
            yield Violation("I8", run_id, f"it waits for {place}, which nobody holds")
    for run_id, run in facts.runs.items():
        held = facts.holders.get((run["workflow"], run["key"]))
        if held is None or held["once"] != "active" or run["state"] in TERMINAL:
            continue
        if held["run_id"] != run_id and run_id not in facts.waiters:
            yield Violation("I1", run_id, f"it is {run['state']} while {held['run_id']} holds its key")


# --- records ----------------------------------------------------------------------------------------


def _records_have_their_shape(facts: Facts) -> Found:
    for run_id, steps in facts.steps.items():
        keys, seqs = set(), set()
        for step in steps:
            key = (step["generation"], step["name"], step["item"], step["ordinal"])
            seq = (step["generation"], step["seq"])
            if key in keys:
                yield Violation("I4", run_id, f"step {key} has two records")
            if seq in seqs:
                yield Violation("I4", run_id, f"two records of generation {seq[0]} have number {seq[1]}")
            keys.add(key)
            seqs.add(seq)
            yield from _shape(step, STEP_COLUMNS, "I4", run_id)


def _shape(row: Row, shapes: Mapping[Any, Shape], invariant: str, run_id: str) -> Found:
    state = row["state"]
    shape = shapes.get(state)
    what = f"step {row['name']!r}" if "name" in row else "the run"
    if shape is None:
        yield Violation(invariant, run_id, f"{what} has the state {state!r}, which there is not")
        return
    for column in shape.filled:
        if row[column] is None:
            yield Violation(invariant, run_id, f"{what} is {state} and has no {column}")
    for column in shape.empty:
        if row[column] is not None:
            yield Violation(invariant, run_id, f"{what} is {state} and has {column} {row[column]!r}")


def _records_belong_to_runs(facts: Facts) -> Found:
    for run_id, steps in facts.steps.items():
        run = facts.runs.get(run_id)
        if run is None:
            yield Violation("I4", run_id, "records are kept of a run that does not exist")
            continue
        for step in steps:
            if not 1 <= step["generation"] <= run["generation"]:
                yield Violation(
                    "I19",
                    run_id,
                    f"step {step['name']!r} is of generation {step['generation']}, the run of {run['generation']}",
                )
    for table in ("attempt", "audit", "queue"):
        for row in facts.tables[table]:
            # An entry without a run is about something else, such as a delivery that was redelivered.
            run_id = row["run_id"]
            is_sound = table == "audit" and (run_id == "" or facts.may_be_gone(run_id))
            if run_id not in facts.runs and not is_sound:
                yield Violation("I8", row["run_id"], f"a row of {table} is of a run that does not exist")


def _tries_are_counted(facts: Facts) -> Found:
    for run_id, steps in facts.steps.items():
        run = facts.runs.get(run_id)
        for step in steps:
            name, tries = step["name"], step["tries"]
            if tries < (0 if step["state"] == "open" else 1):
                yield Violation("I15", run_id, f"step {name!r} is {step['state']} after {tries} tries")
            is_present = run is not None and step["generation"] == run["generation"]
            if is_present and step["origin"] is None and not 1 <= step["attempt"] <= run["attempt"]:  # type: ignore[index]
                yield Violation(
                    "I15",
                    run_id,
                    f"step {name!r} is of attempt {step['attempt']}, the run of {run['attempt']}",  # type: ignore[index]
                )


def _sleeps_are_slept_out(facts: Facts) -> Found:
    for step in facts.tables["step"]:
        if step["kind"] != "sleep" or step["state"] != "done":
            continue
        if step["wake_at"] is None or step["ended_at"] < step["wake_at"]:
            yield Violation(
                "I14",
                step["run_id"],
                f"sleep {step['name']!r} ended at {step['ended_at']}, its deadline was {step['wake_at']}",
            )


# --- runs that make events and runs -------------------------------------------------------------------


def _emits_have_their_step(facts: Facts) -> Found:
    names: dict[str, set[tuple[Any, ...]]] = {}
    for run_id, steps in facts.steps.items():
        names[run_id] = {(step["generation"], step["name"], step["item"], step["ordinal"]) for step in steps}
    for event in facts.tables["event"]:
        if not event["source"].startswith("run/"):
            continue
        run_id = event["source"].removeprefix("run/")
        made_by = _step_of(event["id"])
        if made_by is None:
            yield Violation("I10", _event_name(event), "its id does not say which step made it")
        elif run_id not in facts.runs and facts.may_be_gone(run_id):
            continue
        elif made_by not in names.get(run_id, ()):
            yield Violation("I10", _event_name(event), f"run {run_id} has no record of step {made_by}")


def _step_of(event_id: str) -> tuple[Any, ...] | None:
    """Give generation, name, item and ordinal that an event's id begins with (RULINGS 12)."""
    try:
        parts = msgspec.json.decode(event_id)
    except msgspec.DecodeError:
        return None
    if not isinstance(parts, list) or len(parts) not in (4, 5, 6):
        return None
    return tuple(parts[:4])


def _children_have_their_parent(facts: Facts) -> Found:
    calls = {
        (step["run_id"], step["child_run_id"]) for step in facts.tables["step"] if step["kind"] == "call"
    }
    # Where another run held the key of a child there is a record of that in its place.
    known = facts.runs.keys() | {row["run_id"] for row in facts.tables["skipped"]}
    for step in facts.tables["step"]:
        child_run_id = step["child_run_id"]
        if child_run_id is not None and child_run_id not in known and not _has_outlived(facts, step):
            yield Violation(
                "I10",
                step["run_id"],
                f"step {step['name']!r} started run {step['child_run_id']}, which is missing",
            )
    for run in facts.tables["run"]:
        parent_id = run["parent_run_id"]
        if parent_id is None:
            continue
        parent = facts.runs.get(parent_id)
        if parent is None:
            if not (_is_settled(run) and facts.may_be_gone(parent_id)):
                yield Violation("I10", run["run_id"], f"its parent {parent_id} is missing")
        elif not 1 <= (run["parent_generation"] or 0) <= parent["generation"]:
            yield Violation(
                "I10", run["run_id"], f"its parent never had a generation {run['parent_generation']}"
            )
        elif run["is_called"] and (parent_id, run["run_id"]) not in calls:
            yield Violation("I10", run["run_id"], f"no step of {parent_id} called it")


def _has_outlived(facts: Facts, step: Row) -> bool:
    """Say whether retention may have taken the child of a step: its parent was over then."""
    parent = facts.runs.get(step["run_id"])
    was_over = (
        parent is None or parent["state"] in ("completed", "cancelled") or parent["pruned_at"] is not None
    )
    return facts.may_be_gone(step["child_run_id"]) and (was_over or step["run_id"] in facts.steered)


def _is_settled(run: Row) -> bool:
    """Say whether nobody is needed any more for a run to go on."""
    return run["ended_at"] is not None and (run["problem_at"] is None or run["dismissed_at"] is not None)


def _calls_saved_what_the_child_did(facts: Facts) -> Found:
    for step in facts.tables["step"]:
        if step["kind"] != "call" or step["state"] not in ("done", "failed"):
            continue
        child = facts.runs.get(step["child_run_id"])
        if child is None or child["ended_at"] is None or child["run_id"] in facts.steered:
            continue  # an operator may have made it run again since
        is_good = child["state"] == "completed"
        caller = facts.runs.get(step["run_id"])
        has_values = caller is not None and caller["pruned_at"] is None and child["pruned_at"] is None
        is_same = not (is_good and has_values) or child["output"] == step["output"]
        if is_good is not (step["state"] == "done") or not is_same:
            yield Violation(
                "I11",
                step["run_id"],
                f"call {step['name']!r} is {step['state']} with {_short(step['output'])}, "
                f"run {child['run_id']} is {child['state']} with {_short(child['output'])}",
            )


def _short(text: str | None) -> str:
    return "nothing" if text is None else text if len(text) <= 40 else f"{text[:40]}…"


def _replays_are_linked(facts: Facts) -> Found:
    for run in facts.tables["run"]:
        if (run["replay_of"] is None) is not (run["replay_id"] == ""):
            yield Violation(
                "I19", run["run_id"], f"replay of {run['replay_of']} by request {run['replay_id']!r}"
            )
        if run["replay_of"] is None:
            continue
        original = facts.runs.get(run["replay_of"])
        if original is None and facts.may_be_gone(run["replay_of"]):
            continue
        if original is None:
            yield Violation("I19", run["run_id"], f"it replays run {run['replay_of']}, which is missing")
        elif any(original[column] != run[column] for column in ("workflow", "source", "event_id")):
            yield Violation(
                "I19", run["run_id"], f"it replays run {original['run_id']} of another event or workflow"
            )


# --- nobody is stuck ----------------------------------------------------------------------------------


def _runs_have_their_columns(facts: Facts) -> Found:
    audits: dict[str, int] = {}
    for row in facts.tables["audit"]:
        audits[row["run_id"]] = audits.get(row["run_id"], 0) + 1
    for run_id, run in facts.runs.items():
        yield from _shape(run, COLUMNS, "I9", run_id)
        if run["generation"] < 1 or run["attempt"] < 1:
            yield Violation("I9", run_id, f"generation {run['generation']}, attempt {run['attempt']}")
        if audits.get(run_id, 0) < run["generation"] - 1:
            yield Violation(
                "I9",
                run_id,
                f"generation {run['generation']} with {audits.get(run_id, 0)} entries in the audit",
            )


def _fences_are_given(facts: Facts) -> Found:
    for run_id, run in facts.runs.items():
        if run["fence"] < (1 if run["started_at"] is not None else 0):
            yield Violation("I5", run_id, f"it was started and has fence {run['fence']}")
    epochs = {row["process_id"]: row["epoch"] for row in facts.tables["process"]}
    committers = {row["process_id"]: row["epoch"] for row in facts.tables["committer"]}
    for process_id in epochs.keys() | committers.keys():
        if epochs.get(process_id) != committers.get(process_id):
            yield Violation(
                "I5",
                process_id,
                f"the process has epoch {epochs.get(process_id)}, its committer {committers.get(process_id)}",
            )


def _nobody_is_stuck(facts: Facts) -> Found:
    processes = {row["process_id"] for row in facts.tables["process"]}
    for run_id, run in facts.runs.items():
        place = facts.queue.get(run_id)
        if run["state"] in OFF_QUEUE:
            if place is not None:
                yield Violation("I8", run_id, f"it is {run['state']} and still in the queue")
        elif place is None:
            yield Violation("I8", run_id, f"it is {run['state']} and not in the queue")
        else:
            yield from _is_placed(facts, run, place, processes)


def _is_placed(facts: Facts, run: Row, place: Row, processes: set[str]) -> Found:
    run_id, owner = run["run_id"], place["process_id"]
    if place["workflow"] != run["workflow"]:
        yield Violation("I8", run_id, f"it is queued for {place['workflow']!r}, not {run['workflow']!r}")
    if owner is not None:
        if owner not in processes:
            yield Violation("I8", run_id, f"its owner {owner} is not registered")
        if run["fence"] < 1:
            yield Violation("I5", run_id, f"it is owned by {owner} with fence {run['fence']}")
    elif run["state"] == "running":
        yield Violation("I8", run_id, "it is running and nobody owns it")
    elif place["due_at"] - run["created_at"] > FAR_MS:
        yield from _is_waited_for(facts, run)


def _is_waited_for(facts: Facts, run: Row) -> Found:
    """Look at a run that only a wake-up brings back."""
    if run["run_id"] in facts.waiters or facts.open_waits(run):
        return
    waits = list(facts.open_calls(run))
    if not any(child["state"] not in TERMINAL for _, child in waits):
        yield Violation(
            "I8", run["run_id"], f"it is {run['state']} without a time, and no child is under way"
        )
    for step, child in waits:
        # A failed call that is tried again (no tries yet) looks at a child that ended long ago.
        if child["state"] in TERMINAL and step["tries"] > 0:
            yield Violation(
                "I12", run["run_id"], f"called run {child['run_id']} is {child['state']} and woke nobody"
            )


# --- attempts and crashes --------------------------------------------------------------------------------


def _attempts_are_contiguous(facts: Facts) -> Found:
    numbers: dict[tuple[str, int], list[int]] = {}
    for row in facts.tables["attempt"]:
        numbers.setdefault((row["run_id"], row["generation"]), []).append(row["attempt"])
    for (run_id, generation), found in numbers.items():
        run = facts.runs.get(run_id)
        if sorted(found) != list(range(1, len(found) + 1)):
            yield Violation("I15", run_id, f"attempts {sorted(found)} of generation {generation} have gaps")
        if run is not None and generation > run["generation"]:
            yield Violation("I19", run_id, f"an attempt is of generation {generation}, the run is not")
    for run_id, run in facts.runs.items():
        logged = len(numbers.get((run_id, run["generation"]), ()))
        if logged not in (run["attempt"] - 1, run["attempt"]):
            yield Violation("I15", run_id, f"it is in attempt {run['attempt']} and {logged} have ended")


def _crashes_are_bounded(facts: Facts) -> Found:
    for run_id, run in facts.runs.items():
        crashes, state = run["crashes"], run["state"]
        is_held = state in ("held", "cancelling") or state in TERMINAL
        if crashes < 0 or (crashes >= COMPANY_FACTOR * CRASH_LIMIT and not is_held):
            yield Violation("I16", run_id, f"it is {state} after {crashes} lost holders in a row")
        place = facts.queue.get(run_id)
        if place is not None and bool(place["is_suspect"]) is not (crashes >= SUSPECT_FROM):
            yield Violation(
                "I16", run_id, f"it lost {crashes} holders in a row, is_suspect is {place['is_suspect']}"
            )


RULES: tuple[Callable[[Facts], Found], ...] = (
    _one_namespace,
    _skipped_events_have_no_run,
    _newest_versions_are_of_events,
    _one_run_holds_a_key,
    _one_row_an_identity,
    _every_run_has_its_event,
    _every_live_run_has_its_payload,
    _deliveries_are_told_apart,
    _records_have_their_shape,
    _records_belong_to_runs,
    _tries_are_counted,
    _sleeps_are_slept_out,
    *WAIT_RULES,
    _emits_have_their_step,
    _children_have_their_parent,
    _calls_saved_what_the_child_did,
    _replays_are_linked,
    _runs_have_their_columns,
    _fences_are_given,
    _nobody_is_stuck,
    _attempts_are_contiguous,
    _crashes_are_bounded,
)
"""Every rule; each looks at one promise and is linear in the rows."""
