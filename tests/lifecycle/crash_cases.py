"""Which story passes which failpoints, and the cases that follow: generated, so that they can be counted."""

from __future__ import annotations

from dataclasses import dataclass

from onceward.core.failpoints import REGISTRY
from tests.lifecycle.scenarios import SCENARIOS


def _both(kind: str) -> tuple[str, str]:
    return f"{kind}.before_commit", f"{kind}.after_commit"


COMMON = frozenset(
    {
        "accept.before_insert",
        *_both("accept"),
        *_both("claim"),
        "step.before_body",
        "step.after_body",
        *_both("save"),
        *_both("end"),
    }
)
"""What every story passes."""

LOADED = frozenset({"load.after_claim"})
SLEPT = LOADED | {"heartbeat.before_renew", *_both("sleep")}
STEERED = LOADED | frozenset(_both("steer"))
CANCELLED = LOADED | frozenset(_both("cancel"))

REACHED: dict[str, frozenset[str]] = {
    "steps": COMMON,
    "plain": COMMON,
    "parallel": COMMON,
    "race": COMMON,
    "sleeper": COMMON | SLEPT,
    "retrier": COMMON | {"heartbeat.before_renew", *_both("step_start")},
    "parent": COMMON | SLEPT,
    "backoff": COMMON | SLEPT,
    "values": COMMON,
    "emitter": COMMON,
    "cancelled": COMMON | SLEPT | CANCELLED,
    "queued cancel": COMMON - {"step.after_body"} | CANCELLED,
    "retried": COMMON | STEERED,
    "restarted": COMMON | STEERED,
    "replayed": COMMON | STEERED,
    "late": COMMON | SLEPT,
    "delivered": COMMON | {"accept.before_reply"},
}
"""By story. Failpoints of takeovers, drains and migrations have tests of their own."""

ELSEWHERE = frozenset({*_both("takeover"), *_both("release"), "migrate.statement", "migrate.before_commit"})

assert SCENARIOS.keys() == REACHED.keys()
assert frozenset(REGISTRY) == ELSEWHERE.union(*REACHED.values())


@dataclass(frozen=True)
class Case:
    """One crash: in which story, where, how, at which pass."""

    scenario: str
    failpoint: str
    action: str
    nth: int = 1

    def __str__(self) -> str:
        return f"{self.scenario}-{self.failpoint}-{self.action}-{self.nth}".replace(" ", "_")

    @property
    def armed(self) -> str:
        """Give the text for the environment."""
        return f"{self.failpoint}:{self.action}:{self.nth}"


def cases(action: str, passes: range, *, only: frozenset[str] | None = None) -> list[Case]:
    """Give every case of one action: each story at each failpoint that it passes."""
    return [
        Case(scenario, failpoint, action, nth)
        for scenario, reached in REACHED.items()
        for failpoint in sorted(reached if only is None else reached & only)
        for nth in passes
    ]


COMMITS = frozenset(name for name in REGISTRY if name.endswith("_commit") and "migrate" not in name)
"""Where a reply can be lost."""
