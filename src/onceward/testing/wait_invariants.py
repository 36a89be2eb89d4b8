"""What must be true of waits for events, as far as rows can show it (I12, I13)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onceward.core import awaiting
from onceward.core.model import EventRow, Millis, WaitRow
from onceward.core.states import TERMINAL
from onceward.testing.facts import Facts, Found, Violation

LONG_MS: Millis = 60_000
"""How long an event that ends a wait may be there before the wait takes it, where nothing stands in the way."""


def _each_event_ends_one_wait(facts: Facts) -> Found:
    """Look at the events that waits took: each once in a generation, and none from outside its time."""
    for run_id, steps in facts.steps.items():
        run, taken = facts.runs.get(run_id), set()
        for step in steps:
            if step["kind"] != "wait" or step["state"] != "done" or step["output"] is None:
                continue
            _, event = awaiting.taken_of(step["output"])
            key = (step["generation"], *awaiting.key_of(event))
            if key in taken:
                yield Violation("I12", run_id, f"event {event.id} of {event.source} ended two of its waits")
            taken.add(key)
            began = None if run is None else facts.events.get((run["source"], run["event_id"]))
            if began is not None and event.received_at < began["received_at"]:
                yield Violation("I12", run_id, f"wait {step['name']!r} took an event from before the run")
            if step["wake_at"] is not None and event.received_at > step["wake_at"]:
                yield Violation("I12", run_id, f"wait {step['name']!r} took an event from after its time")


def _waits_end_once(facts: Facts) -> Found:
    """Look whether what a wait is for, and its record, tell the same."""
    rows: dict[str, set[tuple[Any, ...]]] = {}
    for row in facts.tables["wait"]:
        rows.setdefault(row["run_id"], set()).add((row["name"], row["item"], row["ordinal"]))
        run = facts.runs.get(row["run_id"])
        if run is None or run["state"] in TERMINAL or run["generation"] != row["generation"]:
            state = "gone" if run is None else f"{run['state']} in generation {run['generation']}"
            yield Violation("I13", row["run_id"], f"wait {row['name']!r} is open, its run is {state}")
    for run_id, run in facts.runs.items():
        # What a race has lost ends with the run, and its record stays as it was.
        for step in () if run["state"] in TERMINAL else facts.open_waits(run):
            key = (step["name"], step["item"], step["ordinal"])
            # One that a retry opened again, without a try yet, is made anew when the run comes to it.
            if step["kind"] == "wait" and step["tries"] > 0 and key not in rows.get(run_id, ()):
                yield Violation("I12", run_id, f"wait {step['name']!r} is open and nobody would find it")


def _timed_out_waits_waited(facts: Facts) -> Found:
    for step in facts.tables["step"]:
        is_over = step["state"] == "failed" or (step["state"] == "done" and step["output"] is None)
        if step["kind"] == "wait" and is_over and (step["wake_at"] or 0) > step["ended_at"]:
            yield Violation("I13", step["run_id"], f"wait {step['name']!r} timed out before its time")


def _no_wake_up_is_lost(facts: Facts) -> Found:
    """Look for events that have been there for long, and for which a wait still waits."""
    latest = max((row["lease_until"] for row in facts.tables["process"]), default=0)
    latest = max(latest, max((row["received_at"] for row in facts.tables["event"]), default=0))
    waits: dict[tuple[str, str], list[WaitRow]] = {}
    for row in facts.tables["wait"]:
        wait = WaitRow(**{name: row[name] for name in WaitRow.__struct_fields__})
        waits.setdefault((wait.type, wait.subject), []).append(wait)
    if not waits:
        return
    since = {
        (step["run_id"], step["generation"], step["name"], step["item"], step["ordinal"]): step["started_at"]
        for step in facts.tables["step"]
        if step["kind"] == "wait"
    }
    taken = {
        (step["run_id"], step["generation"], *awaiting.key_of(awaiting.taken_of(step["output"])[1]))
        for step in facts.tables["step"]
        if step["kind"] == "wait" and step["state"] == "done" and step["output"] is not None
    }
    for row in facts.tables["event"]:
        near = waits.get((row["type"], awaiting.ANY), []) + waits.get((row["type"], row["subject"] or ""), [])
        if not near or row["received_at"] + LONG_MS > latest:
            continue
        fields = {name: row[name] for name in EventRow.__struct_fields__}
        seen = awaiting.Seen(EventRow(**fields), row["namespace"])
        for wait in near:
            run = facts.runs.get(wait.run_id)
            if run is None or run["state"] not in ("waiting", "sleeping", "running"):
                continue
            is_old = (
                since.get((wait.run_id, wait.generation, wait.name, wait.item, wait.ordinal), latest)
                + LONG_MS
                <= latest
            )
            key = (wait.run_id, wait.generation, row["source"], row["id"])
            if is_old and key not in taken and seen.fits(wait):
                yield Violation(
                    "I12",
                    wait.run_id,
                    f"wait {wait.name!r} did not hear of event {row['id']} of {row['source']}",
                )


WAIT_RULES: tuple[Callable[[Facts], Found], ...] = (
    _each_event_ends_one_wait,
    _waits_end_once,
    _timed_out_waits_waited,
    _no_wake_up_is_lost,
)
