"""What a crash matrix found: by step, how often what happened, and what would make it safe."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from onceward.testing.kit.advice import PAGE, Advice

WIDTH_MAX = 60
"""A longer effect or moment is cut in the table; `Report.to_json` has it whole."""


@dataclass(frozen=True)
class Finding:
    """One effect that happened more often than it should, or less.

    Attributes:
        step: whose body did it; ``(between steps)``, ``(no run)``, or the workflow for a run itself.
        effect: what.
        times: how often at most, in one variant; at least, where it is less than expected.
        expected: how often when nothing goes wrong.
        moments: in which variants, in order.
        examples: what was seen the time that it happened most.
        advice: the tool.
    """

    step: str
    effect: str
    times: int
    expected: int
    moments: tuple[str, ...]
    examples: tuple[str, ...]
    advice: Advice


@dataclass(frozen=True)
class Outcome:
    """What one variant came to.

    Attributes:
        moment: where the process died, or how the events came.
        ends: the runs, as ``workflow: state``.
        is_safe: everything happened as often as it should, and the runs ended as they should.
    """

    moment: str
    ends: tuple[str, ...]
    is_safe: bool


@dataclass(frozen=True)
class Report:
    """What `onceward.testing.crash_matrix` found.

    Attributes:
        workflow: its name.
        findings: what happened too often, or not at all; empty where all is safe.
        outcomes: one for each variant.
        ends: how the runs end when nothing goes wrong.
        effects: what happens outside then, as ``(step, effect, times)``.
        seed: decides it all.
        unseen: services and tables that the test names and that nothing ever came to.
    """

    workflow: str
    findings: tuple[Finding, ...]
    outcomes: tuple[Outcome, ...]
    ends: tuple[str, ...]
    effects: tuple[tuple[str, str, int], ...]
    seed: int = 0
    unseen: tuple[str, ...] = ()

    @property
    def is_safe(self) -> bool:
        """Say whether something was seen outside, and everything as often as it should."""
        return not self.findings and bool(self.effects)

    def assert_safe(self) -> None:
        """Fail the test with the table, unless all is safe.

        Raises:
            AssertionError: something happened too often; or nothing was seen outside at all, which
                would prove nothing.
        """
        __tracebackhide__ = True  # pytest shows the test's own line
        if not self.is_safe:
            raise AssertionError(f"\n{self}")

    def _never_reached(self) -> str:
        return (
            f"{self.workflow} never came to: {', '.join(self.unseen)}. No crash was tried around what is not reached. "
            "Send what its run waits for, or click the link that it sends; a service for another way of the run "
            "belongs into a test of that way."
        )

    def to_json(self) -> str:
        """Give everything as JSON text."""
        return json.dumps(self.as_dict(), indent=2)

    def as_dict(self) -> dict[str, Any]:
        """Give everything as JSON-native data."""
        return {**asdict(self), "is_safe": self.is_safe}

    def __str__(self) -> str:
        """Give the table that people read."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        deaths = len(self.outcomes)
        if not self.effects and not self.findings:
            yield (
                f"{self.workflow} did nothing outside that was seen, so nothing is proven. Say what there is: "
                "outside.happened(…) in a fake, outside.http.post(…) for a service, outside.table(…) for rows."
            )
        elif not self.findings:
            yield f"{self.workflow} is safe: {deaths} crashes and doubled deliveries, every effect as often as it should."
        if self.findings:
            unsafe = sum(not outcome.is_safe for outcome in self.outcomes)
            if any(one.advice.tool == "first" for one in self.findings):
                yield (
                    f"{self.workflow} does not end as it should with nothing going wrong, so what crashes do is not yet known."
                )
            else:
                is_lost = any(one.times < one.expected for one in self.findings)
                yield (
                    f"{self.workflow} is not safe to run twice: {unsafe} of {deaths} crashes and doubled deliveries "
                    f"did something again{', or not at all' if is_lost else ''}."
                )
            yield ""
            rows = [("step", "effect", "times", "first seen")]
            rows += [
                (one.step, _cut(one.effect), f"{one.times} for {one.expected}", _cut(one.moments[0]))
                for one in self.findings
            ]
            widths = [max(len(row[column]) for row in rows) for column in range(3)]
            for row, finding in zip(rows, [None, *self.findings], strict=True):
                cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
                yield "  ".join(["", *cells, row[3]]).rstrip()
                if finding is not None:
                    yield f"      -> {finding.advice.text}"
                    for example in finding.examples[:2]:
                        yield f"         {example}"
            yield ""
            yield f"Each tool: {PAGE}. The same again: crash_matrix(…, seed={self.seed})."
        if self.unseen:
            yield self._never_reached()
        held = sum(map(_is_held, self.outcomes))
        if held:
            yield f"{held} of them leave the run held, for a person who knows what happened."


def _is_held(outcome: Outcome) -> bool:
    return any(end.endswith(": held") for end in outcome.ends)


def _cut(text: str) -> str:
    return text if len(text) <= WIDTH_MAX else f"{text[: WIDTH_MAX - 1]}…"
