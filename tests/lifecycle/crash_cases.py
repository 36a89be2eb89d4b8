"""Which story passes which failpoints, and the cases that follow: generated, so that they can be counted."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import pytest

from onceward.core.failpoints import REGISTRY
from tests.lifecycle.checks import is_campaign
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
    "retrier": COMMON | frozenset(_both("step_start")),
    "parent": COMMON | SLEPT,
    "backoff": COMMON | LOADED | frozenset(_both("sleep")),
    "values": COMMON,
    "emitter": COMMON,
    "awaiter": COMMON | LOADED | frozenset(_both("sleep")),
    "ensured": COMMON,
    "cancelled": COMMON | SLEPT | CANCELLED,
    "queued cancel": COMMON - {"step.after_body"} | CANCELLED,
    "retried": COMMON | STEERED,
    "restarted": COMMON | STEERED,
    "replayed": COMMON | STEERED,
    "late": COMMON | SLEPT,
    "delivered": COMMON | {"accept.before_reply"},
}
"""By story. Failpoints of takeovers, drains, migrations, transactions and pruning have tests of their own."""

ELSEWHERE = frozenset(
    {
        *_both("takeover"),
        *_both("release"),
        "migrate.statement",
        "migrate.before_commit",
        *_both("transaction"),
        *_both("prune"),
        "outbox.before_accept",
        "outbox.after_accept",
        "notice.before_send",
        "notice.after_send",
    }
)

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


COMMITS = frozenset(name for name in REGISTRY if name.endswith("_commit") and "migrate" not in name)
"""Where a reply can be lost."""

REFERENCE = ("steps", "plain", "parallel", "sleeper", "retrier", "parent", "emitter", "cancelled")
"""The stories that are killed and stopped at every failpoint on both stores even in the short tier."""

PASSES = {"short": range(1, 2), "campaign": range(1, 7)}
"""At which passes of a failpoint a process is hit."""


def cases(action: str) -> list[Any]:
    """Give every case of one action with its store: in the campaign all there are, else a fair share.

    The share: on SQLite every kill and every lost reply; the reference workflows killed and stopped
    at every failpoint on both stores; of the rest every fourth.
    """
    tier = "campaign" if is_campaign() else "short"
    found = []
    for scenario, reached in REACHED.items():
        for failpoint in sorted(reached & COMMITS if action == "drop-reply" else reached):
            for nth in PASSES[tier]:
                case = Case(scenario, failpoint, action, nth)
                for store, is_wanted in _wanted(case).items():
                    if is_wanted or tier == "campaign":
                        marks = [pytest.mark.postgres] if store == "postgres" else []
                        found.append(pytest.param(store, case, id=f"{store}-{case}", marks=marks))
    return found


def _wanted(case: Case) -> dict[str, bool]:
    share = zlib.crc32(str(case).encode())
    is_reference = case.scenario in REFERENCE and case.action in ("kill", "pause")
    is_cheap = case.action in ("kill", "drop-reply")
    return {
        "sqlite": is_reference or is_cheap or share % 4 == 0,
        "postgres": is_reference or share % 8 == 0,
    }
