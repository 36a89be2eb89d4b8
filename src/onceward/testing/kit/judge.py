"""Judges what the variants of a crash matrix came to: what happened too often, and which tool helps."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from onceward.core.states import RunState
from onceward.testing.kit.advice import LOST, NOT_STARTED, STUCK, Advice, advice_for, advice_for_end
from onceward.testing.kit.outside import Effect
from onceward.testing.kit.points import Point
from onceward.testing.kit.report import Finding, Outcome, Report

UNDISTURBED = "with nothing going wrong"

SECOND_RUN = "a second run"
OTHER_ORDER = "delivered in the other order"  # may well end otherwise, as after a wait in vain

BY_DESIGN = "OutcomeUnknown"
"""In the error of a run whose step may not run twice, ``max_tries=1``, and so fails where nobody knows."""

Same = Literal["", "new id", "redelivered", "retry", "restart", "replay"]

ON_PURPOSE = frozenset({"restart", "replay"})
"""What an operator does again because he wants to; only keys of the business are the same then."""


@dataclass
class Seen:
    """What one variant came to.

    Attributes:
        effects: what happened outside.
        ends: of each run: workflow, state, error.
        points: the moments that its first life passed.
        moment: where the process died, or how the events came.
        same: why what happens may have been told twice.
        was_steered: an operator did something to a run, and was not refused.
    """

    effects: list[Effect]
    ends: list[tuple[str, str, str]]
    points: tuple[Point, ...]
    moment: str
    same: Same
    was_steered: bool = False


@dataclass(frozen=True)
class _Case:
    """One variant in which something happened too often."""

    moment: str
    same: Same
    effects: list[Effect]
    times: int


def judged(
    workflow: str, reference: Seen, variants: Sequence[Seen], ends: str, asked: Collection[str], seed: int
) -> Report:
    """Give the report.

    Args:
        workflow: the one under test.
        reference: what happens with nothing going wrong.
        variants: what happens else.
        ends: how the workflow's runs must end in the reference.
        asked: what an operator does that must not do anything again, whatever the steps say.
        seed: that decided it all.
    """
    usual = Counter(map(_group, reference.effects))
    usual_ends = Counter(end[:2] for end in reference.ends)
    usual_runs = sum(name == workflow for name, _, _ in reference.ends)
    found: dict[tuple[str, str], list[_Case]] = {}
    lost: dict[tuple[str, str], list[_Case]] = {}
    stuck: dict[str, list[tuple[str, str]]] = {}
    outcomes = []
    for seen in variants:
        moment, same = seen.moment, seen.same
        doubled = _doubled(seen.effects, usual)
        is_on_purpose = same in ON_PURPOSE and same not in asked
        if is_on_purpose:
            doubled = _of_business(doubled, workflow)
        runs = sum(name == workflow for name, _, _ in seen.ends)
        if doubled and same in ("new id", "redelivered") and runs > usual_runs:
            # All of it follows from the one run too many.
            every = [effect for effects in doubled.values() for effect in effects]
            found.setdefault((workflow, SECOND_RUN), []).append(_Case(moment, same, every, runs))
        else:
            for group, effects in doubled.items():
                found.setdefault(group, []).append(_Case(moment, same, effects, len(effects)))
        is_safe = not doubled
        for group, effects in _missing(seen, usual, usual_ends).items():
            is_safe = False
            lost.setdefault(group, []).append(_Case(moment, same, effects, len(effects)))
        may_end_otherwise = (
            is_on_purpose or moment == OTHER_ORDER or (same == "retry" and not seen.was_steered)
        )
        for end, error in [] if may_end_otherwise else _odd_ends(seen, usual_ends):
            is_safe = False
            stuck.setdefault(end, []).append((moment, error))
        outcomes.append(Outcome(moment, tuple(_end(end) for end in seen.ends), is_safe))
    findings = [_finding(group, usual.get(group, usual_runs), cases) for group, cases in found.items()]
    has_ended_well = all(state == ends for name, state, _ in reference.ends if name == workflow)
    if has_ended_well:  # or its end says it already
        findings += [_stuck(end, cases) for end, cases in stuck.items()]
        findings += [_lost(group, usual[group], cases) for group, cases in lost.items()]
    outside = tuple((step, name, count) for (step, name), count in usual.items())
    if not any(name == workflow for name, _, _ in reference.ends):
        findings.insert(0, _never(workflow, "no run", "no event started it", NOT_STARTED))
    for name, state, error in reference.ends:
        if name == workflow and state != ends:
            why = _error(error)
            findings.insert(0, _never(workflow, f"the run is {state}", why, advice_for_end(why)))
    return Report(
        workflow,
        tuple(findings),
        tuple(outcomes),
        tuple(_end(end) for end in reference.ends),
        outside,
        seed,
    )


def _error(text: str) -> str:
    """Give the sentence of a saved error."""
    try:
        told = json.loads(text)
    except ValueError:
        return text
    return f"{told.get('type', '')}: {told.get('message', '')}" if isinstance(told, dict) else text


def _group(effect: Effect) -> tuple[str, str]:
    # Whose rows they are is only guessed where bodies overlap, so rows are counted by table.
    return ("" if effect.kind == "rows" else effect.step), effect.name


def _doubled(effects: list[Effect], usual: Counter[tuple[str, str]]) -> dict[tuple[str, str], list[Effect]]:
    """Give what happened more often than it should, by step and name."""
    groups: dict[tuple[str, str], list[Effect]] = {}
    for effect in effects:
        groups.setdefault(_group(effect), []).append(effect)
    return {
        group: mine
        for group, mine in groups.items()
        # What happens once on another way, as a refund after a time-out, happens no second time.
        if len(mine) > max(1, usual[group]) or any(effect.clash for effect in mine)
    }


def _missing(
    seen: Seen, usual: Counter[tuple[str, str]], usual_ends: Counter[tuple[str, str]]
) -> dict[tuple[str, str], list[Effect]]:
    """Give what happened less often than it should, where the runs ended as if it had."""
    if seen.same not in ("", "redelivered") or Counter(end[:2] for end in seen.ends) != usual_ends:
        return {}
    if seen.moment == OTHER_ORDER:
        return {}
    groups: dict[tuple[str, str], list[Effect]] = {group: [] for group in usual}
    for effect in seen.effects:
        groups.setdefault(_group(effect), []).append(effect)
    return {group: mine for group, mine in groups.items() if len(mine) < usual[group]}


def _of_business(
    doubled: dict[tuple[str, str], list[Effect]], workflow: str
) -> dict[tuple[str, str], list[Effect]]:
    """Give what steps did that say themselves that it is the same in every run about the same thing."""
    return {
        group: effects
        for group, effects in doubled.items()
        if any(effect.of_business == workflow for effect in effects)
    }


def _finding(group: tuple[str, str], expected: int, cases: list[_Case]) -> Finding:
    # What is doubled by a crash says more than what two runs did.
    most = max([case for case in cases if not case.same] or cases, key=lambda case: case.times)
    step = group[0] or Counter(effect.step for effect in most.effects).most_common(1)[0][0]
    return Finding(
        step,
        group[1],
        max(case.times for case in cases),
        expected,
        tuple(case.moment for case in cases),
        tuple(_example(effect) for effect in most.effects),
        advice_for(most.effects, same=most.same if group[1] == SECOND_RUN or most.same in ON_PURPOSE else ""),
    )


def _example(effect: Effect) -> str:
    key = "" if effect.kind == "rows" else f"   key {effect.key}" if effect.key else "   no key"
    return f"{effect.detail}{'' if effect.is_replacing else key}".strip()


def _odd_ends(seen: Seen, usual: Counter[tuple[str, str]]) -> list[tuple[str, str]]:
    """Give the runs that failed and would not have, each with its error."""
    left = Counter(usual)
    odd = []
    for workflow, state, error in seen.ends:
        if left[workflow, state]:
            left[workflow, state] -= 1
        elif state == RunState.FAILED and BY_DESIGN not in error:
            odd.append((workflow, error))
    return odd


def _lost(group: tuple[str, str], expected: int, cases: list[_Case]) -> Finding:
    """Give the finding of what a crash keeps from happening at all."""
    times = min(case.times for case in cases)
    moments = tuple(case.moment for case in cases)
    return Finding(group[0] or "(a step)", group[1], times, expected, moments, (), LOST)


def _stuck(workflow: str, cases: list[tuple[str, str]]) -> Finding:
    return Finding(
        workflow,
        "the run fails",
        1,
        0,
        tuple(moment for moment, _ in cases),
        (_error(cases[0][1])[:200],),
        STUCK,
    )


def _never(workflow: str, what: str, why: str, advice: Advice) -> Finding:
    """Give the finding that not even without a crash the workflow ends as it should."""
    return Finding(workflow, what, 1, 0, (UNDISTURBED,), (why,), advice)


def _end(end: tuple[str, str, str]) -> str:
    return f"{end[0]}: {end[1]}"
