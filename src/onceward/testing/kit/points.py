"""The moments at which a process can die, named for people; recorded in one life, met in others.

What a life passes is a list: failpoints of the engine, effects outside, jumps of time. The same
code passes the same list again, up to where it is killed; where it does not, the test says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from onceward.core import failpoints
from onceward.core.errors import OncewardError, Permanent, ReplyLost
from onceward.testing.kit.life import Life
from onceward.testing.kit.outside import BETWEEN, NOBODY, THREAD, Effect

_KINDS = ("accept", "step_start", "save", "sleep", "end")
_WATCHED = frozenset(
    {
        *(f"{kind}.{side}_commit" for kind in _KINDS for side in ("before", "after")),
        "accept.before_insert",
        "accept.before_reply",
        "step.before_body",
        "step.after_body",
        "transaction.before_commit",
        "transaction.after_commit",
    }
)


How = Literal["kill", "lose", "fail"]
"""What goes wrong at a moment: the process dies, the reply of the store is lost, the step fails for good."""


class Unrepeatable(OncewardError):
    """The same code, given the same, went another way: no test can say what a crash does to it."""

    code = "unrepeatable"
    title = "The workflow goes another way each time"


@dataclass(frozen=True)
class Point:
    """One moment.

    Attributes:
        name: of the failpoint; ``effect`` and ``asleep`` are the kit's own.
        detail: the step, or the effect.
        text: for people.
    """

    name: str
    detail: str
    text: str


class Points:
    """Watches what one life passes, and lets something go wrong at one moment.

    Args:
        life: which.
        at: the number of that moment, None for never.
        expected: what it must pass up to there.
        how: what goes wrong.
    """

    def __init__(
        self, life: Life, at: int | None = None, expected: tuple[Point, ...] = (), *, how: How = "kill"
    ) -> None:
        self.passed: list[Point] = []
        self._life = life
        self._at = at
        self._how = how
        self._expected = expected
        self._bodies: list[str] = []  # steps that ended and are not saved yet
        self._is_news = False  # something was passed since time last jumped
        self.on_pass: Callable[[str, str], None] = lambda _name, _detail: None
        self.went_wrong: Unrepeatable | None = None

    def arm(self) -> None:
        """Watch from now on, until `disarm`."""
        failpoints.arm(self._hit)
        self._life.place.outside.on_effect = self._effect
        self._life.place.outside.check_alive = self._life.check_alive
        self._life.on_quiet = self._asleep

    def disarm(self) -> None:
        """Watch no more."""
        failpoints.arm(None)
        self._life.place.outside.on_effect = lambda _effect: None
        self._life.on_quiet = lambda: None

    def check(self) -> None:
        """Judge the life that is over.

        Raises:
            Unrepeatable: it did not pass what it should have.
        """
        if self.went_wrong is not None:
            raise self.went_wrong
        if self._at is not None and len(self.passed) <= self._at:
            raise _unrepeatable(self._expected[len(self.passed)], None)

    def _hit(self, name: str, detail: str) -> None:
        self._life.check_alive()
        if name not in _WATCHED:
            return
        self.on_pass(name, detail)
        if name == "step.after_body":
            self._bodies.append(detail)
        side = name.partition(".")[2]
        last = self.passed[-1].name.partition(".")[2] if self.passed else ""
        if side in ("before_commit", "after_commit") and side == last:
            return  # several kinds of rows in one commit are one moment
        point = Point(name, detail, self._text(name, detail))
        if name == "save.after_commit":
            self._bodies.clear()
        elif name == "transaction.after_commit":
            self._bodies = [body for body in self._bodies if body != detail]
        self._pass(point)

    def _effect(self, effect: Effect) -> None:
        where = effect.step if effect.step in (BETWEEN, NOBODY, THREAD) else f"in {effect.step}"
        self._pass(Point("effect", f"{effect.step} {effect.name}", f"{where}, right after {effect.name}"))

    def _asleep(self) -> None:
        if not self._is_news or not self._life.open_runs():
            return
        self._is_news = False
        self._pass(Point("asleep", "", "while everything sleeps or waits"), is_news=False)

    def _pass(self, point: Point, *, is_news: bool = True) -> None:
        number = len(self.passed)
        self.passed.append(point)
        self._is_news = self._is_news or is_news
        if self._at is None or number > self._at:
            return
        if number < len(self._expected):
            expected = self._expected[number]
            if (expected.name, expected.detail) != (point.name, point.detail):
                self.went_wrong = _unrepeatable(expected, point)
                self._life.kill()
        if number < self._at:
            return
        if self._how == "kill":
            self._life.kill()
        if self._how == "lose":
            raise ReplyLost("The test lost a reply of the store.")
        raise Permanent("the test lets this step fail")

    def _text(self, name: str, detail: str) -> str:
        bodies = " and ".join(self._bodies)
        return {
            "accept.before_insert": "before the webhook is stored",
            "accept.before_commit": "in the webhook's commit, before it",
            "accept.after_commit": "in the webhook's commit, after it",
            "accept.before_reply": "before the webhook is answered",
            "step.before_body": f"before the body of {detail}",
            "step.after_body": f"between the effect and the save of {detail}",
            "transaction.before_commit": f"before the commit of the transaction {detail}",
            "transaction.after_commit": f"after the commit of the transaction {detail}",
            "step_start.before_commit": "before it is saved that a step begins",
            "step_start.after_commit": "after it was saved that a step begins",
            "save.before_commit": f"in the save of {bodies}, before its commit"
            if bodies
            else "in a save, before its commit",
            "save.after_commit": f"after the save of {bodies}" if bodies else "after a save",
            "sleep.before_commit": "before it falls asleep",
            "sleep.after_commit": "right after it fell asleep",
            "end.before_commit": "in the end of the run, before its commit",
            "end.after_commit": "after the end of the run",
        }[name]


def _unrepeatable(expected: Point, met: Point | None) -> Unrepeatable:
    then = "it was over" if met is None else met.text
    return Unrepeatable(
        f"The workflow went another way the second time. First: {expected.text}. Then: {then}.",
        means="A crash at a moment of the first run would not be the same crash in the second.",
        todo="What decides the way must be the same each time: draw random numbers and the time with "
        "ctx.step.random and ctx.step.now, and let the test's own state begin anew with fresh=….",
    )
