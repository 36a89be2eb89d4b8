"""What is found, and the rules by their names: why each exists and what to do instead.

The names are stable: they stand in ``# onceward: allow[…]`` comments and in reports of CI.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, order=True)
class Finding:
    """One place that should be changed, or excused.

    Attributes:
        file: as it was asked for, or as it was found from there.
        line: counted from 1.
        rule: the rule's name.
        message: what is wrong there and what that leads to.
        fix: what to write instead.
    """

    file: str
    line: int
    rule: str
    message: str
    fix: str


@dataclass(frozen=True)
class Unreadable:
    """A path that could not be checked.

    Attributes:
        path: as it was asked for.
        reason: why not, with the line where there is one.
    """

    path: str
    reason: str


@dataclass(frozen=True)
class Report:
    """What a check found.

    Attributes:
        findings: sorted by file and line.
        unreadable: what could not be read; nothing is said about it.
        files: how many files were read.
        workflows: how many workflows were found in them.
        steps: how many functions that are steps.
    """

    findings: tuple[Finding, ...]
    unreadable: tuple[Unreadable, ...]
    files: int
    workflows: int
    steps: int


@dataclass(frozen=True)
class Rule:
    """Why a rule exists and what to do about a finding."""

    why: str
    fix: str


_AGAIN = "it runs again at every attempt, after each crash, sleep and wait"
_STEP = 'Do it in a step: `await ctx.step.run("…", function, …)`, which saves the result.'

RULES: dict[str, Rule] = {
    "time-outside-step": Rule(
        "a later attempt sees another time",
        'Write `await ctx.step.now("…")`, or look at the clock in a step.',
    ),
    "random-outside-step": Rule(
        "a later attempt draws something else",
        'Write `await ctx.step.random("…")` or `ctx.step.uuid("…")`, or draw in a step.',
    ),
    "uuid-outside-step": Rule(
        "a later attempt draws another id", 'Write `await ctx.step.uuid("…")`, which is drawn once.'
    ),
    "environment-outside-step": Rule(
        "a later attempt may run in another process that sees something else",
        "Read it when the module is imported if it never decides what the workflow does, else in a step.",
    ),
    "http-outside-step": Rule(f"{_AGAIN}, and the answer differs", _STEP),
    "database-outside-step": Rule(f"{_AGAIN}, and finds other rows", _STEP),
    "file-outside-step": Rule(f"{_AGAIN}, perhaps on another machine", _STEP),
    "process-outside-step": Rule(_AGAIN, _STEP),
    "network-outside-step": Rule(_AGAIN, _STEP),
    "sleep-outside-step": Rule(
        "it counts in memory only and begins again after a crash", 'Write `await ctx.step.sleep("…", "5m")`.'
    ),
    "emit-outside-step": Rule(
        "it is refused with CallOutsideStep, since it would happen at every attempt",
        'Write `await ctx.step.emit("…", type, payload)`, or call it inside a step\'s body.',
    ),
    "start-outside-step": Rule(
        "it is refused with CallOutsideStep, since it would happen at every attempt",
        'Write `await ctx.step.start("…", workflow, …)` or `ctx.step.call`, or call it inside a step\'s body.',
    ),
    "blocking-call": Rule(
        "it stops the event loop, and with it every run of the process",
        "Put it into a plain `def` function and run that as a step, which has a thread; to wait, use ctx.step.sleep.",
    ),
    "effect-in-finally": Rule(
        "`finally` also runs each time the run is put away for a sleep, a wait or a deploy",
        "Make it a step: one in `finally` does not start while the run is only put away.",
    ),
    "missing-await": Rule(
        "without `await` it does not run, and the workflow goes on", "Write `await` before it."
    ),
    "repeated-step-name": Rule(
        "steps of one name are told apart only by their order, and in parallel not at all",
        "Give each a name of its own, or `item=` with what tells them apart.",
    ),
    "step-inside-step": Rule(
        "it is refused with StepMisuse, since a step is saved whole",
        "Call it from the workflow, or call the plain function in the body.",
    ),
    "step-called-wrong": Rule(
        "it is refused with StepMisuse",
        'Write `await ctx.step.run("…", function, …)`, without `await` in a plain workflow.',
    ),
    "step-name-missing": Rule(
        "it is refused with StepMisuse, since a step is found again by its name",
        'Write `ctx.step.run("name", function, …)`.',
    ),
    "wrong-context": Rule(
        "it is refused when the module is imported, since its verbs would have to be awaited",
        "Write `SyncContext`, or make the workflow `async def`.",
    ),
    "called-not-given": Rule(
        "the function is called before the step begins, so the step cannot run it again or save that it ran",
        'Give the function and its arguments: `ctx.step.run("…", function, argument)`.',
    ),
    "workflow-called": Rule(
        "called as a function it would be no run of its own, and is refused with StepMisuse",
        'Write `await ctx.step.call("…", workflow, …)`, or ctx.step.start not to wait for it.',
    ),
    "unstorable-annotation": Rule(
        "no such value can be stored as JSON and come back",
        "Return plain data, a dataclass, TypedDict, msgspec Struct or pydantic model of what matters.",
    ),
    "unstorable-result": Rule(
        "without an annotation it would come back from JSON as something else, and is refused",
        "Annotate the return type, e.g. `-> tuple[int, str]`.",
    ),
    "swallowed-stop": Rule(
        "it also catches that the run is put to sleep, taken over or cancelled",
        "Catch `Exception`, or end the handler with `raise`.",
    ),
    "set-order": Rule(
        "a set has another order in another process, so the steps come in another order",
        "Go through `sorted(…)`.",
    ),
    "global-state": Rule(
        "another process has another value, and a later attempt changes it again",
        "Keep it in a variable of the workflow, or write it to a database in a step.",
    ),
}


class Findings:
    """Gathers findings, at most one of a rule for a line, unless a comment excuses it."""

    def __init__(self) -> None:
        self._found: dict[tuple[Path, int, str], Finding] = {}

    def add(self, shown: str, path: Path, line: int, rule: str, what: str, fix: str | None = None) -> None:
        """Keep a finding; *what* is the place in words, to which the rule's reason is added."""
        known = RULES[rule]
        finding = Finding(shown, line, rule, f"{what}: {known.why}.", fix or known.fix)
        self._found.setdefault((path, line, rule), finding)

    def __iter__(self) -> Iterator[Finding]:
        """Give them by file and line."""
        return iter(sorted(self._found.values()))
