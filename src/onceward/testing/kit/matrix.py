"""Runs a workflow once for each moment at which its process can die, and compares what happened outside.

First as it should be: what happens then happens as often as it should. Then once with every sleep
as it is in production, which gives the list of moments; then once for each of them, killed there
and carried to the end by the next process; then with deliveries that come twice or in another order.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from onceward.core.states import RunState
from onceward.testing.kit.advice import NOT_STARTED, STUCK, Advice, advice_for, advice_for_end
from onceward.testing.kit.given import check_tables, checked, listed
from onceward.testing.kit.life import Killed, Life, Place, borrowed, folder, silent
from onceward.testing.kit.outside import BETWEEN, Effect, Outside, here
from onceward.testing.kit.patches import patched
from onceward.testing.kit.points import Point, Points
from onceward.testing.kit.report import Finding, Outcome, Report
from onceward.testing.kit.sends import Sent

if TYPE_CHECKING:
    from onceward.app import App
    from onceward.authoring.workflow import Workflow

UNDISTURBED = "with nothing going wrong"

SECOND_RUN = "a second run"
OTHER_ORDER = "delivered in the other order"  # may well end otherwise, as after a wait in vain

BY_DESIGN = "OutcomeUnknown"
"""In the error of a run whose step may not run twice, ``max_tries=1``, and so fails where nobody knows."""

LIVES_MAX = 3
"""Lives of one variant: it is killed once."""

Same = Literal["", "new id", "redelivered", "restart"]


@dataclass(frozen=True)
class _Case:
    """One variant in which something happened too often."""

    moment: str
    same: Same
    effects: list[Effect]
    times: int


@dataclass
class _Seen:
    """What one variant came to."""

    effects: list[Effect]
    ends: list[tuple[str, str, str]]  # workflow, state, error
    points: tuple[Point, ...]


class _Matrix:
    def __init__(
        self,
        app: App,
        workflow: Workflow[..., Any],
        events: Sequence[Sent],
        outside: Outside,
        fresh: Callable[[], object],
        seed: int,
    ) -> None:
        self.app = app
        self.workflow = workflow
        self.events = events
        self.outside = outside
        self.fresh = fresh
        self.seed = seed

    def once(
        self,
        groups: Sequence[Sequence[Sent]],
        *,
        stays: bool = False,
        kill_at: int | None = None,
        expected: tuple[Point, ...] = (),
        restarts: bool = False,
    ) -> _Seen:
        """Run everything once, to its end.

        Args:
            groups: what is sent: each group at once, the next when nothing goes on without it.
            stays: runs that sleep or wait stay in memory.
            kill_at: the number of the moment at which the process dies.
            expected: what is passed up to there.
            restarts: at the end an operator restarts the runs of the workflow.
        """
        with folder() as path:
            place = Place(self.app, self.workflow, Path(path), self.outside, seed=self.seed, stays=stays)
            self.app.settings = place.settings
            self.fresh()
            self.outside.forget()
            left = [list(group) for group in groups]
            first: Points | None = None
            ends: list[tuple[str, str, str]] = []
            is_over = False
            while not is_over and place.lives < LIVES_MAX:
                life = Life(place)
                points = Points(life, kill_at if first is None else None, expected)
                points.on_pass = self._passes
                try:
                    is_over = self._live(life, points, left, restarts=restarts)
                    if is_over:
                        ends = [
                            (run.workflow, str(run.state), run.error or run.reason or "")
                            for run in life.runs()
                        ]
                finally:
                    points.disarm()
                    life.end()
                    self.outside.look_at_tables(BETWEEN)
                first = first or points
                points.check()
            assert first is not None
            if not is_over:
                raise RuntimeError(f"{LIVES_MAX} lives did not end {self.workflow.name}")
            return _Seen(list(self.outside.effects), ends, tuple(first.passed))

    def _live(self, life: Life, points: Points, left: list[list[Sent]], *, restarts: bool) -> bool:
        """Live one life; say whether everything was done in it."""
        points.arm()

        async def story() -> None:
            await life.open()
            while left:
                group = left[0]
                await asyncio.gather(*(sent.send(life) for sent in group))
                left.pop(0)
                await life.quiet()
            await life.settle()
            if restarts:
                for run in life.runs():
                    if run.workflow == self.workflow.name and run.state is RunState.COMPLETED:
                        await self.app.run(run.run_id).restart(acknowledge=True)
                await life.settle()

        try:
            life.run(story())
        except Killed:
            return False
        return True

    def _passes(self, name: str, detail: str) -> None:
        """Look at the tables where a body begins and where it ends."""
        if name == "step.before_body":
            self.outside.look_at_tables(here())
        elif name == "step.after_body":
            self.outside.look_at_tables(detail)


def crash_matrix(
    app: App,
    workflow: Workflow[..., Any],
    events: Sent | Iterable[Sent],
    *,
    outside: Outside | None = None,
    again: Sent | Iterable[Sent] = (),
    fresh: Callable[[], object] = lambda: None,
    ends: RunState | str = RunState.COMPLETED,
    restart: bool = False,
    seed: int = 0,
) -> Report:
    """Run a workflow once for each moment at which its process can die, and say what happened twice.

    The app is the user's own, as it is imported; it runs on a store of the test, in virtual time, and
    its own is not touched. What its steps send with httpx, requests or aiohttp is answered by
    *outside*; nothing leaves the test. A function that the app calls may note what it does with
    ``outside.happened(…)``, and tables are watched with ``outside.table(…)``.

    Args:
        app: not open.
        workflow: the one under test.
        events: what starts it (`delivery`, `emitted`, `started`); of several each is sent when
            nothing goes on without it.
        outside: what its steps reach.
        again: the same things told under other event ids, as ``paid.under_new_id()``: nothing more may
            happen for them.
        fresh: called before each variant, to let the fakes of the test begin anew.
        ends: how the workflow's runs must end when nothing goes wrong: ``"failed"`` for a test of what is
            undone then.
        restart: whether an operator's restart must not do anything again, either.
        seed: decides every draw.

    Returns:
        What was found; ``report.assert_safe()`` fails the test with a table.

    Raises:
        ConfigError: the app is open, the workflow is not the app's, a delivery is refused, a watched
            table was never there, or an event loop runs already.
        Unrepeatable: the workflow went another way the second time.
        Unending: a run does not come to an end.
    """
    chosen = checked(app, workflow, events)
    outside = outside or Outside()
    matrix = _Matrix(app, workflow, chosen, outside, fresh, seed)
    in_order = [[sent] for sent in chosen]
    with borrowed(app), silent(), patched(outside):
        reference = matrix.once(in_order, stays=True)
        asleep = matrix.once(in_order)
        variants: list[tuple[str, Same, _Seen]] = [(UNDISTURBED, "", asleep)]
        for number, point in enumerate(asleep.points):
            seen = matrix.once(in_order, kill_at=number, expected=asleep.points)
            # A sender that got no answer sends it again.
            variants.append((point.text, "redelivered" if point.name.startswith("accept.") else "", seen))
        twice = [[sent, sent] for sent in chosen]
        variants.append(("delivered twice at once", "redelivered", matrix.once(twice)))
        doubled = [[sent] for sent in chosen for _ in range(2)]
        variants.append(("delivered twice, one after the other", "redelivered", matrix.once(doubled)))
        if len(chosen) > 1:
            variants.append((OTHER_ORDER, "", matrix.once(in_order[::-1])))
        for sent in listed(again):
            for how, groups in (
                ("told again under another id", [*in_order, [sent]]),
                ("told under two ids at once", [[*in_order[0], sent], *in_order[1:]]),
            ):
                variants.append((how, "new id", matrix.once(groups)))
        if restart:
            variants.append(("restarted by an operator", "restart", matrix.once(in_order, restarts=True)))
    report = _report(workflow.name, reference, variants, str(ends), seed)
    if report.is_safe:
        check_tables(outside)
    return report


def _report(
    workflow: str, reference: _Seen, variants: Sequence[tuple[str, Same, _Seen]], ends: str, seed: int
) -> Report:
    usual = Counter(map(_group, reference.effects))
    usual_ends = Counter(end[:2] for end in reference.ends)
    usual_runs = sum(name == workflow for name, _, _ in reference.ends)
    found: dict[tuple[str, str], list[_Case]] = {}
    stuck: dict[str, list[tuple[str, str]]] = {}
    outcomes = []
    for moment, same, seen in variants:
        doubled = _doubled(seen.effects, usual)
        runs = sum(name == workflow for name, _, _ in seen.ends)
        if doubled and same in ("new id", "redelivered") and runs > usual_runs:
            # All of it follows from the one run too many.
            every = [effect for effects in doubled.values() for effect in effects]
            found.setdefault((workflow, SECOND_RUN), []).append(_Case(moment, same, every, runs))
        else:
            for group, effects in doubled.items():
                found.setdefault(group, []).append(_Case(moment, same, effects, len(effects)))
        is_safe = not doubled
        for end, error in [] if moment == OTHER_ORDER else _odd_ends(seen, usual_ends):
            is_safe = False
            stuck.setdefault(end, []).append((moment, error))
        outcomes.append(Outcome(moment, tuple(_end(end) for end in seen.ends), is_safe))
    findings = [_finding(group, usual.get(group, usual_runs), cases) for group, cases in found.items()]
    findings += [_stuck(end, cases) for end, cases in stuck.items()]
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
        advice_for(most.effects, same=most.same if group[1] == SECOND_RUN or most.same == "restart" else ""),
    )


def _example(effect: Effect) -> str:
    key = "" if effect.kind == "rows" else f"   key {effect.key}" if effect.key else "   no key"
    return f"{effect.detail}{'' if effect.is_replacing else key}".strip()


def _odd_ends(seen: _Seen, usual: Counter[tuple[str, str]]) -> list[tuple[str, str]]:
    """Give the runs that failed and would not have, each with its error."""
    left = Counter(usual)
    odd = []
    for workflow, state, error in seen.ends:
        if left[workflow, state]:
            left[workflow, state] -= 1
        elif state == RunState.FAILED and BY_DESIGN not in error:
            odd.append((workflow, error))
    return odd


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
