"""What can go wrong, as a table: each kind with its sentence, and how strongly a seed mixes it in."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

KINDS: dict[str, str] = {
    "crash": "a process dies between two callbacks and is started again under a new id",
    "crash at failpoint": "a process dies just before or after a commit, or around a body",
    "pause": "a process stops past its lease and goes on later, a zombie",
    "pause at failpoint": "the same, just after a commit or around a body",
    "reply lost": "a commit happens and its caller never hears of it",
    "request lost": "a commit never reaches the store and its caller cannot know",
    "store away": "a call finds the store unavailable",
    "outage": "every call of a process, or of all, finds the store unavailable for a while",
    "commit refused": "a commit fails for a reason of its own",
    "slow commit": "a commit takes long to reach the store or to be answered",
    "slow read": "a read takes long",
    "clock off": "a process's clock is wrong from its start",
    "clock jump": "a process's clock jumps, in either direction",
    "mute": "a process's lease is not renewed while it works on",
    "stop": "a process is asked to stop in the middle of its work",
    "doubled delivery": "an event is delivered by several processes at once",
    "reordered delivery": "an old event is delivered again",
    "verb": "an operator acts at a random moment",
    "verb twice": "two processes are asked for verbs on one run at once",
    "slow body": "a body takes longer than the lease",
    "failing body": "a body fails: tries used up, for good, or with a wish for later",
    "poison": "a body kills its process whenever it runs",
}
"""Every kind of fault, by the name under which it is counted."""

FAILPOINTS = (
    "accept.before_commit",
    "accept.after_commit",
    "claim.before_commit",
    "claim.after_commit",
    "save.before_commit",
    "save.after_commit",
    "save.after_commit",
    "sleep.before_commit",
    "sleep.after_commit",
    "release.after_commit",
    "cancel.before_commit",
    "cancel.after_commit",
    "steer.before_commit",
    "steer.after_commit",
    "takeover.before_commit",
    "takeover.after_commit",
    "end.before_commit",
    "end.after_commit",
    "accept.before_insert",
    "step.before_body",
    "step.after_body",
    "step.after_body",
    "heartbeat.before_renew",
    "load.after_claim",
)
"""Failpoints that the dice arm; the ones that tell most are named twice."""


@dataclass
class Temper:
    """How unkind one seed's world is. Rates are per call, weights per act.

    Attributes:
        away, request_lost, reply_lost, refused: rates of what happens to single calls of the store.
        slow_commit, slow_read: rates of long delays.
        clock_off_ms: how wrong clocks may be from the start.
        clock_insane: whether clocks may be so wrong that leases look ended while they are not.
        weights: how often each act is drawn.
    """

    away: float = 0.0
    request_lost: float = 0.0
    reply_lost: float = 0.0
    refused: float = 0.0
    slow_commit: float = 0.0
    slow_read: float = 0.0
    clock_off_ms: int = 0
    clock_insane: bool = False
    weights: dict[str, float] = field(default_factory=dict)


ACTS = {
    "new event": 10.0,
    "doubled delivery": 4.0,
    "reordered delivery": 3.0,
    "emit": 1.5,
    "start": 1.5,
    "verb": 6.0,
    "verb twice": 3.0,
    "crash": 1.5,
    "crash at failpoint": 3.0,
    "pause": 1.0,
    "pause at failpoint": 1.0,
    "outage": 0.4,
    "clock jump": 0.7,
    "mute": 0.6,
    "stop": 1.6,
}
"""What the driver of a seed does and how often, before the seed's own mix."""


def temper_of(dice: random.Random) -> Temper:
    """Draw a seed's mix: some kinds often, some never, so that each seed is a different place."""

    def rate(high: float) -> float:
        return dice.choice((0.0, 0.0, high / 4, high))

    weights = {
        act: weight * (1.0 if act == "new event" else dice.choice((0.0, 0.5, 1.0, 1.0, 2.5)))
        for act, weight in ACTS.items()
    }
    is_insane = dice.random() < 0.25
    if not is_insane:
        weights["clock jump"] *= 0.5
    return Temper(
        away=rate(0.02),
        request_lost=rate(0.02),
        reply_lost=rate(0.05),
        refused=rate(0.004),
        slow_commit=rate(0.08),
        slow_read=rate(0.08),
        clock_off_ms=dice.choice((0, 10, 40)),
        clock_insane=is_insane,
        weights=weights,
    )
