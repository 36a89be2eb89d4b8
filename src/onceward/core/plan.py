"""What a retry, a restart, a replay or an answer would do to each step, told before it is done.

A plan is made of what is stored, so it needs no code: it knows the steps that have a record. It is
a value that any front end can print or send as JSON, and its token says which plan was looked at.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from onceward.core import errors, ids
from onceward.core.choice import NOTHING_KEPT, Choice
from onceward.core.effects import StepEffect, effect_of
from onceward.core.idempotency import business_parts, composed_key
from onceward.core.model import Millis, RunRow, StepKey, StepRow
from onceward.core.shown import listed, shown
from onceward.core.states import RUN_AGAIN, TERMINAL, Effect, RunState, StepState, Verb
from onceward.core.steer import Reply

BODIES = RUN_AGAIN
"""Kinds of steps that run code of the user's, and hand out a key."""

UNDO_MARK = StepKey("undo everything", "", 1)
"""The record that says that the undoing of a run began, and in its error why."""

MAKES_RUNS = {"emit": "emits its event", "start": "starts its run", "call": "calls its run"}

SHOWN_MAX = 10
"""Steps that a message lists."""


class Fate(StrEnum):
    """What becomes of a step."""

    KEPT = "kept"
    RUNS_AGAIN = "runs again"
    REOPENED = "reopened"
    GOES_ON = "goes on"
    STOPS = "stops"


class ChildFate(StrEnum):
    """What becomes of a run that the run made."""

    CANCELLED = "cancelled"
    RETRIED = "retried"
    STAYS = "stays"


class PlannedStep(msgspec.Struct, frozen=True):
    """One step of a plan.

    Attributes:
        step: name, item and number as one text: ``charge[order-7]``.
        name: its name.
        item: which element of a loop.
        ordinal: which use of the name and item.
        kind: of its record: ``run``, ``sleep``, ``call`` and so on.
        state: where its record stands.
        fate: ``kept``; ``runs again`` from its beginning; ``reopened``: its failure ended the attempt,
            it runs again with all its tries; ``goes on``: it had not ended; ``stops``: it had not
            ended, and the run is over.
        effect: ``pure``, ``own_database`` or ``outside``.
        happens_again: what it does would be done again, or may be.
        key: the idempotency key that it handed out, if it is a kind that does.
        keeps_key: it would hand out the same key; None for a step that does not run.
        key_used_at: when its record began: no later than the key was first used.
        is_key_known: whether the receiver still knows the key; None without ``key_memory=``.
        origin: run and generation from which its record was copied.
    """

    step: str
    name: str
    item: str
    ordinal: int
    kind: str
    state: StepState
    fate: Fate
    effect: StepEffect
    happens_again: bool
    key: str | None
    keeps_key: bool | None
    key_used_at: Millis
    is_key_known: bool | None
    origin: str | None


class PlannedChild(msgspec.Struct, frozen=True):
    """A run that the run made and that has not ended, or that would be retried with it.

    Attributes:
        run_id: its id.
        workflow: its workflow.
        state: where it stands.
        fate: ``cancelled``: it was called by a generation that would be over; ``retried``: the call of
            it is reopened; ``stays``: it was started, not called, and goes on as it is.
    """

    run_id: str
    workflow: str
    state: RunState
    fate: ChildFate


class Plan(msgspec.Struct, frozen=True):
    """What a verb would do to a run, step by step, if it were asked for now.

    Attributes:
        run_id: which run.
        workflow: its workflow.
        verb: ``retry``, ``restart``, ``replay`` or ``answer``.
        effect: what the verb does to a run in this state, by the table of states and verbs.
        text: the same for people.
        state: the run's state now.
        generation: the generation that the verb leads to; 1 for the new run of a replay.
        attempt: its attempt.
        choice: what was asked to be kept.
        steps: every step that has a record, in saved order.
        children: what becomes of runs that the run made.
        outside_again: the steps whose effects outside would happen again.
        hides_steps: a step may have begun that has no record yet.
        warnings: what to think of, in sentences.
        needs_consent: a restart demands this plan, or its token; whoever asks for a replay should look at it.
        token: names this plan; another if the run, or what the plan says of it, is another.
    """

    run_id: str
    workflow: str
    verb: Verb
    effect: Effect
    text: str
    state: RunState
    generation: int
    attempt: int
    choice: Choice
    steps: list[PlannedStep]
    children: list[PlannedChild]
    outside_again: list[str]
    hides_steps: bool
    warnings: list[str]
    needs_consent: bool
    token: str = ""

    def __str__(self) -> str:
        """Give the plan as lines for people."""
        lines = [f"{self.verb} of run {self.run_id}: {self.text}"]
        width = max((len(step.step) for step in self.steps), default=0)
        for step in self.steps:
            again = " AGAIN" if step.happens_again and step.effect is StepEffect.OUTSIDE else ""
            lines.append(f"  {step.step:{width}}  {step.fate:10}  {step.effect.replace('_', ' ')}{again}")
        lines += [
            f"  run {one.run_id} of {one.workflow!r} ({one.state}): {one.fate}" for one in self.children
        ]
        lines += [f"  ! {text}" for text in self.warnings]
        return "\n".join(lines)


def may_hide_steps(run: RunRow) -> bool:
    """Say whether a step may have begun that has no record: a body under way has none.

    A run that sleeps, waits or backs off left memory between steps, and one that completed has ended
    them. One that is in memory now, lost its process or was cut off may have one under way.
    """
    if run.started_at is None or run.state is RunState.COMPLETED:
        return False
    if run.crashes or run.state in _CUT_SHORT:
        return True
    return run.state is RunState.FAILED and _is_cut_off(run.error)


_CUT_SHORT = frozenset({RunState.RUNNING, RunState.CANCELLING, RunState.QUEUED, RunState.HELD})


def _is_cut_off(error: str | None) -> bool:
    try:
        return str(msgspec.json.decode(error or "{}").get("type")).endswith("DeadlineExceeded")
    except (msgspec.DecodeError, AttributeError):
        return False


_NO_FATES: Mapping[StepKey, Fate] = {}


def make_plan(
    verb: Verb,
    run: RunRow,
    rows: Sequence[StepRow],
    *,
    reply: Reply,
    reopened: Collection[StepKey],
    kept: Collection[StepKey],
    children: Sequence[RunRow],
    choice: Choice,
    now: Millis,
    namespace: str,
    input_hash: str | None = None,
    warnings: Sequence[str] = (),
    fates: Mapping[StepKey, Fate] = _NO_FATES,
) -> Plan:
    """Give the plan of a verb.

    Args:
        verb: what is asked.
        run: as it is stored.
        rows: the records of its present generation in saved order.
        reply: what the verb would answer.
        reopened: the steps that it opens again, of the same generation.
        kept: the steps that it copies, for a restart or a replay.
        children: the runs that the run made.
        choice: what was asked to be kept.
        now: the store's time.
        namespace: of the store.
        input_hash: of what a replay puts in place of the event's payload.
        warnings: to say first.
        fates: what becomes of steps that an answer is about.
    """
    is_anew = reply.effect in (Effect.NEW_GENERATION, Effect.NEW_RUN)
    business = business_parts(namespace, run.workflow, run.key, run.source, run.event_id)
    if is_anew:
        # What was undone is undone; what the new one undoes are its own steps.
        rows = [row for row in rows if row.kind != "undo"]
    steps = []
    for row in rows:
        fate = fates.get(row.key) or _fate(
            row,
            is_anew=is_anew,
            is_kept=row.key in kept,
            is_reopened=row.key in reopened,
            is_over=reply.state in TERMINAL,
        )
        steps.append(_planned(row, fate, run, business, is_anew=is_anew, now=now))
    made = _children(children, steps, rows, is_restart=reply.effect is Effect.NEW_GENERATION, is_anew=is_anew)
    again = [one.step for one in steps if one.happens_again and one.effect is StepEffect.OUTSIDE]
    is_over = not is_anew and reply.state in TERMINAL
    hides = not is_over and may_hide_steps(run)
    plan = Plan(
        run_id=run.run_id,
        workflow=run.workflow,
        verb=verb,
        effect=reply.effect,
        text=reply.text,
        state=run.state,
        generation=reply.generation,
        attempt=reply.attempt,
        choice=choice,
        steps=steps,
        children=made,
        outside_again=again,
        hides_steps=hides,
        warnings=[
            *warnings,
            *_warnings(steps, made, hides=hides, has_input=input_hash is not None, is_answer=bool(fates)),
        ],
        needs_consent=is_anew and (bool(again) or hides),
    )
    return msgspec.structs.replace(plan, token=_token(plan, run, input_hash))


def _fate(row: StepRow, *, is_anew: bool, is_kept: bool, is_reopened: bool, is_over: bool) -> Fate:
    if is_anew:
        return Fate.KEPT if is_kept else Fate.RUNS_AGAIN
    if row.state is StepState.OPEN:
        return Fate.STOPS if is_over else Fate.GOES_ON
    return Fate.REOPENED if is_reopened else Fate.KEPT


def _planned(
    row: StepRow, fate: Fate, run: RunRow, business: tuple[str, ...], *, is_anew: bool, now: Millis
) -> PlannedStep:
    effect = effect_of(row.kind, row.effect)
    has_key = row.kind in BODIES
    is_business = row.key_scope == "business"
    # A call that is reopened retries its run; the copy of one calls a run of its own.
    calls_anew = fate is Fate.REOPENED and row.kind == "call" and row.origin is not None
    runs = fate is Fate.RUNS_AGAIN or calls_anew or (has_key and fate not in (Fate.KEPT, Fate.STOPS))
    maker = _maker(row, run)
    key = None
    if has_key and (is_business or maker is not None):
        key = composed_key(*(business if is_business else maker or ()), *row.key)
    memory_ms = row.key_memory_ms
    return PlannedStep(
        step=str(row.key),
        name=row.name,
        item=row.item,
        ordinal=row.ordinal,
        kind=row.kind,
        state=row.state,
        fate=fate,
        effect=effect,
        happens_again=runs and effect is not StepEffect.PURE,
        key=key,
        # A copied record's key is that of who made it: the failure of one is reopened under another.
        keeps_key=(is_business or (not is_anew and row.origin is None)) if runs and has_key else None,
        key_used_at=row.started_at,
        is_key_known=None if memory_ms is None else now - row.started_at <= memory_ms,
        origin=row.origin,
    )


def handed_key(row: StepRow, run: RunRow, generation: int, namespace: str) -> str | None:
    """Give the idempotency key that a step handed out; None where its kind has none or nobody can tell.

    Args:
        row: the step's record.
        run: whose it is.
        generation: of which generation.
        namespace: of the store.
    """
    if row.kind not in BODIES or (row.kind == "undo" and row.key == UNDO_MARK):
        return None
    if row.key_scope == "business":
        business = business_parts(namespace, run.workflow, run.key, run.source, run.event_id)
        return composed_key(*business, *row.key)
    maker = (run.run_id, generation) if row.origin is None else _maker(row, run)
    return None if maker is None else composed_key(*maker, *row.key)


def _maker(row: StepRow, run: RunRow) -> tuple[str | int, ...] | None:
    """Give the run and generation whose key a step handed out; None where nobody can tell."""
    if row.origin is None:
        return run.run_id, run.generation
    try:
        run_id, generation = json.loads(row.origin)
    except (ValueError, TypeError):
        return None
    return str(run_id), int(generation)


def _children(
    children: Sequence[RunRow],
    steps: Sequence[PlannedStep],
    rows: Sequence[StepRow],
    *,
    is_restart: bool,
    is_anew: bool,
) -> list[PlannedChild]:
    fates = {row.child_run_id: step.fate for row, step in zip(rows, steps, strict=True) if row.origin is None}
    found = []
    for child in children:
        is_open = child.state not in TERMINAL
        fate = ChildFate.CANCELLED if child.is_called and is_restart else ChildFate.STAYS
        if child.is_called and not is_anew and fates.get(child.run_id) is Fate.REOPENED:
            fate, is_open = ChildFate.RETRIED, True
        if is_open and (is_anew or fate is ChildFate.RETRIED):
            found.append(PlannedChild(child.run_id, child.workflow, child.state, fate))
    return found


def _warnings(
    steps: Sequence[PlannedStep],
    children: Sequence[PlannedChild],
    *,
    hides: bool,
    has_input: bool,
    is_answer: bool,
) -> list[str]:
    found = []
    if hides:
        which = "Another step than those above" if is_answer else "A step"
        found.append(f"{which} may have begun that has no record yet; it would be run again too.")
    kept = [one for one in steps if one.fate is Fate.KEPT]
    again = [one for one in steps if one.fate is Fate.RUNS_AGAIN]
    if kept and again:
        first = steps.index(again[0])
        late = [one.step for one in steps[first:] if one.fate is Fate.KEPT]
        if late:
            found.append(
                f"{listed(late)} would be kept though {again[0].step!r}, saved before, runs again: "
                "what is kept may not fit what comes of it."
            )
    failures = [one.step for one in kept if again and one.state is StepState.FAILED]
    if failures:
        found.append(f"The failure of {listed(failures)} is kept: it is raised again.")
    if has_input and kept:
        found.append("What is kept was made of the old payload.")
    found += [f"{one.step!r} {MAKES_RUNS[one.kind]} again." for one in steps if _makes_again(one)]
    forgotten = [one.step for one in steps if one.keeps_key and one.is_key_known is False]
    if forgotten:
        found.append(
            f"The key of {listed(forgotten)} stays the same, but who got it may have forgotten it by now: "
            "the run would be held before it is sent again."
        )
    stays = [one.run_id for one in children if one.fate is ChildFate.STAYS]
    if stays:
        found.append(f"What was started goes on: run {', '.join(stays[:SHOWN_MAX])}.")
    return found


def _makes_again(step: PlannedStep) -> bool:
    return step.kind in MAKES_RUNS and step.happens_again


# --- tokens -----------------------------------------------------------------------------------------


def _token(plan: Plan, run: RunRow, input_hash: str | None) -> str:
    """Give a text that is another for each other plan, and says of which standing it is."""
    said = ids.content_hash(msgspec.json.encode([plan, input_hash]))[:20]
    return f"{plan.verb}.{run.state}.{run.generation}.{run.fence}.{said}"


def check_acknowledged(given: Plan | str, plan: Plan) -> None:
    """Refuse what is not the plan of what would be done now.

    Args:
        given: the plan that somebody looked at, or its token.
        plan: the plan as it is now.

    Raises:
        StateConflict: the run, or what the plan says of it, has changed; the message says what.
        ConfigError: it is no plan.
    """
    token = given.token if isinstance(given, Plan) else given
    if token == plan.token:
        return
    was, now = _standing(token), _standing(plan.token)
    changes = [f"{name} was {was[name]}, is {now[name]}" for name in now if was[name] != now[name]]
    if isinstance(given, Plan):
        changes += _differences(given, plan)
    if not changes:
        changes = ["what it says of the steps, or what is to be kept, is something else"]
    raise errors.StateConflict(
        f"The plan is not that of what the {plan.verb} of run {plan.run_id} would do now: {'; '.join(changes)}.",
        means="Nothing was changed.",
        todo="Make a new plan, look at it and give that one.",
    )


def _standing(token: object) -> Mapping[str, str]:
    parts = token.split(".") if isinstance(token, str) else []
    if len(parts) != 5 or parts[0] not in list(Verb):
        raise errors.ConfigError(
            f"{shown(token)} is no plan, and no token of one.",
            means="Nothing was done.",
            todo='Pass what run.plan("restart") gave, or its .token.',
        )
    return dict(zip(("verb", "state", "generation", "fence"), parts, strict=False))


def _differences(old: Plan, new: Plan) -> list[str]:
    if old.run_id != new.run_id:
        return [f"it is of run {old.run_id}"]
    found = []
    if old.choice != new.choice:
        found.append("something else is to be kept")
    before, after = ({one.step: one for one in plan.steps} for plan in (old, new))
    for name, wanted in (
        ("saved since", [step for step in after if step not in before]),
        ("gone", [step for step in before if step not in after]),
        ("changed", [step for step in after if step in before and before[step] != after[step]]),
    ):
        if wanted:
            found.append(f"{name}: {listed(wanted)}")
    if old.children != new.children:
        found.append("its called or started runs")
    return found


def detail_of(
    choice: Choice, token: str | None, request_id: str | None, *, replay_of: str | None = None
) -> str | None:
    """Give what the audit keeps of a restart or a replay: JSON text, or None where there is nothing to say."""
    told: dict[str, Any] = {"replay_of": replay_of, "request_id": request_id, "plan": token}
    if choice != NOTHING_KEPT:
        told["choice"] = choice
    told = {name: value for name, value in told.items() if value is not None}
    return msgspec.json.encode(told).decode() if told else None


class _Told(msgspec.Struct):
    request_id: str | None = None
    replay_of: str | None = None
    choice: Choice = NOTHING_KEPT


def replayed_of(detail: str | None) -> str | None:
    """Give the run that a replay is of, as its audit entry keeps it."""
    try:
        return msgspec.json.decode(detail or "{}", type=_Told).replay_of
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None


def told_of(detail: str | None) -> tuple[str | None, Choice]:
    """Give the request and the choice of a restart, as its audit entry keeps them."""
    try:
        told = msgspec.json.decode(detail or "{}", type=_Told)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None, NOTHING_KEPT  # written by hand, or by something else
    return told.request_id, told.choice
