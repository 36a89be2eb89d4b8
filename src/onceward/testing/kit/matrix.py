"""Runs a workflow once for each moment at which its process can die, and compares what happened outside.

First as it should be: what happens then happens as often as it should. Then once with every sleep
as it is in production, which gives the list of moments; then once for each of them, killed there
and carried to the end by the next process, and once for each commit whose reply is lost; then with
deliveries that come twice or in another order, and with operators who run it again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from onceward.core.errors import StateConflict
from onceward.core.states import RunState
from onceward.testing.kit.given import check_tables, checked, listed
from onceward.testing.kit.homes import Home, home_for
from onceward.testing.kit.judge import OTHER_ORDER, UNDISTURBED, Same, Seen, judged
from onceward.testing.kit.life import Killed, Life, Place, borrowed, silent
from onceward.testing.kit.outside import BETWEEN, Outside, here
from onceward.testing.kit.patches import patched
from onceward.testing.kit.points import How, Point, Points
from onceward.testing.kit.report import Report
from onceward.testing.kit.sends import Sent

if TYPE_CHECKING:
    from onceward.app import App
    from onceward.authoring.workflow import Workflow

LIVES_MAX = 3
"""Lives of one variant: it is killed once."""

COMMITTED = ".after_commit"


@dataclass(frozen=True)
class _Variant:
    """One way in which everything happens.

    Attributes:
        groups: what is sent: each group at once, the next when nothing goes on without it.
        moment: for people.
        same: why what happens may have been told twice.
        stays: runs that sleep or wait stay in memory.
        at: the number of the moment at which something goes wrong, None for never.
        how: what does.
        expected: what is passed up to there.
        verb: what an operator does to the runs of the workflow at the end.
    """

    groups: Sequence[Sequence[Sent]]
    moment: str = UNDISTURBED
    same: Same = ""
    stays: bool = False
    at: int | None = None
    how: How = "kill"
    expected: tuple[Point, ...] = ()
    verb: Literal["", "retry", "restart", "replay"] = ""


@dataclass
class _Matrix:
    """What all variants have in common."""

    app: App
    workflow: Workflow[..., Any]
    outside: Outside
    fresh: Callable[[], object]
    seed: int
    home: Home
    steered: list[str] = field(default_factory=list)  # runs that an operator steered in this variant

    def once(self, variant: _Variant) -> Seen:
        """Run everything once, to its end."""
        place = Place(self.app, self.workflow, self.home, self.outside, seed=self.seed, stays=variant.stays)
        self.app.settings = place.settings
        self.fresh()
        self.outside.forget()
        self.steered.clear()
        left = [list(group) for group in variant.groups]
        first: Points | None = None
        ends: list[tuple[str, str, str]] = []
        is_over = False
        while not is_over and place.lives < LIVES_MAX:
            life = Life(place)
            at = variant.at if first is None else None
            points = Points(life, at, variant.expected, how=variant.how)
            points.on_pass = self._passes
            try:
                is_over = self._live(life, points, left, variant)
                if is_over:
                    ends = [
                        (run.workflow, str(run.state), run.error or run.reason or "") for run in life.runs()
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
        seen = Seen(list(self.outside.effects), ends, tuple(first.passed), variant.moment, variant.same)
        seen.was_steered = bool(self.steered)
        return seen

    def _live(self, life: Life, points: Points, left: list[list[Sent]], variant: _Variant) -> bool:
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
            if variant.verb:
                await self._steer(life, variant.verb)
                await life.settle()

        try:
            life.run(story())
        except Killed:
            return False
        return True

    async def _steer(self, life: Life, verb: str) -> None:
        """Be the operator. What is refused, as the retry of a run that was undone, is not done."""
        for run in life.runs():
            if verb == "retry":
                is_meant = run.state is RunState.FAILED
            else:
                is_meant = run.state is RunState.COMPLETED and run.workflow == self.workflow.name
            if not is_meant:
                continue
            handle = self.app.run(run.run_id)
            with contextlib.suppress(StateConflict):
                if verb == "retry":
                    await handle.retry()
                elif verb == "restart":
                    await handle.restart(acknowledge=True)
                else:
                    await handle.replay()
                self.steered.append(run.run_id)

    def _passes(self, name: str, detail: str) -> None:
        """Look at the tables where a body begins and where it ends."""
        if name == "step.before_body":
            self.outside.look_at_tables(here())
        elif name in ("step.after_body", "transaction.after_commit"):
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
    replay: bool = False,
    store: str | None = None,
    seed: int = 0,
) -> Report:
    """Run a workflow once for each moment at which its process can die, and say what happened twice.

    The app is the user's own, as it is imported; it runs on a store of the test, in virtual time, and
    its own is not touched. What its steps send with httpx, httpx2, requests or aiohttp is answered by
    *outside*; nothing leaves the test. A function that the app calls may note what it does with
    ``outside.happened(…)``, and tables are watched with ``outside.table(…)``.

    A step with ``key_scope="business"`` must not do anything again when an operator restarts or replays
    the run; what other steps do again then is what he wished for.

    Args:
        app: not open.
        workflow: the one under test.
        events: what starts it (`delivery`, `emitted`, `started`); of several each is sent when
            nothing goes on without it.
        outside: what its steps reach.
        again: the same things told under other event ids, as ``paid.under_new_id()``: nothing more may
            happen for them.
        fresh: called before each variant, to let the fakes and the tables of the test begin anew.
        ends: how the workflow's runs must end when nothing goes wrong: ``"failed"`` for a test of what is
            undone then.
        restart: whether an operator's restart must not do anything again, whatever the steps say.
        replay: whether an operator's replay must not, either.
        store: the URL of a PostgreSQL database, in which the test makes a schema of its own and drops it
            again; None for SQLite. Tables of the app's are where it connects to, and begin each variant
            as *fresh* or ``outside.table(…, empty=True)`` leaves them.
        seed: decides every draw.

    Returns:
        What was found; ``report.assert_safe()`` fails the test with a table.

    Raises:
        ConfigError: the app is open, the workflow is not the app's, a delivery is refused, a watched
            table was never there or is not as it was at the beginning, the store is no PostgreSQL
            database, or an event loop runs already.
        StoreUnavailable: the database cannot be reached.
        Unrepeatable: the workflow went another way the second time.
        Unending: a run does not come to an end.
    """
    chosen = checked(app, workflow, events)
    outside = outside or Outside()
    outside.begin()
    in_order = [[sent] for sent in chosen]
    with (
        borrowed(app),
        silent(),
        patched(outside),
        contextlib.closing(outside),
        home_for(store, app.settings.namespace) as home,
    ):
        matrix = _Matrix(app, workflow, outside, fresh, seed, home)
        reference = matrix.once(_Variant(in_order, stays=True))
        asleep = matrix.once(_Variant(in_order))
        variants = _variants(chosen, listed(again), asleep.points, str(ends))
        seen = [asleep, *map(matrix.once, variants)]
    asked = {verb for verb, is_asked in (("restart", restart), ("replay", replay)) if is_asked}
    report = judged(workflow.name, reference, seen, str(ends), asked, seed)
    report = replace(report, unseen=tuple(outside.unseen()))
    if report.is_safe:
        check_tables(outside)
    return report


def _variants(
    chosen: list[Sent], again: list[Sent], points: tuple[Point, ...], ends: str
) -> Iterator[_Variant]:
    """Give everything that can go wrong."""
    in_order = [[sent] for sent in chosen]
    for at, point in enumerate(points):
        # A sender that got no answer sends it again.
        same: Same = "redelivered" if point.name.startswith("accept.") else ""
        yield _Variant(in_order, point.text, same, at=at, expected=points)
    for at, point in enumerate(points):
        if point.name.endswith(COMMITTED):
            moment = f"{point.text}, whose reply is lost"
            yield _Variant(in_order, moment, at=at, how="lose", expected=points)
    yield _Variant([[sent, sent] for sent in chosen], "delivered twice at once", "redelivered")
    doubled = [[sent] for sent in chosen for _ in range(2)]
    yield _Variant(doubled, "delivered twice, one after the other", "redelivered")
    if len(chosen) > 1:
        yield _Variant(in_order[::-1], OTHER_ORDER)
    for sent in again:
        yield _Variant([*in_order, [sent]], "told again under another id", "new id")
        yield _Variant([[*in_order[0], sent], *in_order[1:]], "told under two ids at once", "new id")
    bodies = [at for at, point in enumerate(points) if point.name == "step.before_body"]
    if ends == RunState.FAILED:
        yield _Variant(in_order, "retried by an operator", "retry", verb="retry")
    elif bodies:
        moment = f"{points[bodies[-1]].detail} fails for good, and an operator retries the run"
        yield _Variant(in_order, moment, "retry", at=bodies[-1], how="fail", expected=points, verb="retry")
    yield _Variant(in_order, "restarted by an operator", "restart", verb="restart")
    yield _Variant(in_order, "replayed by an operator", "replay", verb="replay")
