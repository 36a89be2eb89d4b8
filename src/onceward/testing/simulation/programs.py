"""Draws what runs do: how long their bodies take, which fail, which kill their process."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onceward.testing.simulation.world import World

STEPS: dict[str, tuple[str, ...]] = {
    "sequence": ("reserve", "charge", "ship"),
    "naps": ("before", "between", "beside", "after"),
    "drawn": ("invoice", "draw", "pass"),
    "late": ("hurry", "arrive"),
    "fan": ("split", "part[0]", "part[1]", "part[2]", "join"),
    "race": ("left", "right", "after left", "after right"),
    "relay": ("leg[0]", "leg[1]", "leg[2]", "after 1: leg[0]", "after 2: leg[0]"),
    "hurry": ("slow", "after late", "after in time"),
    "nest": ("outer[0]", "inner[0a]", "inner[0b]", "outer[1]", "inner[1a]", "close"),
    "stubborn": ("luck", "plan b", "settle"),
    "patient": ("ask", "answer"),
    "undo": ("book", "pay", "clean up: unbook", "clean up: close"),
    "parent": ("rest",),
    "herald": ("announce", "bow"),
    "turn": ("enter", "leave"),
    "newest": ("begin", "finish"),
    "shares": ("ask", "open", "close"),
    "asked": ("order", "pay", "send"),
    "checked": ("pay",),
    "saga": ("book", "pay", "send", "book (undo)", "pay (undo)"),
    "waiter": ("ask", "thank"),
    "child": ("grow", "leave home"),
    "listener": ("hear",),
}
"""The steps of the reference workflows that have bodies."""

DURATIONS_MS = (0, 0, 0, 1, 5, 5, 20, 60, 150)


def program(dice: random.Random, workflow: str, world: World) -> dict[str, Any]:
    """Draw the payload of one run; see `onceward.testing.workflows.Program`."""
    steps = STEPS[workflow]
    payload: dict[str, Any] = {
        "ms": {"*": dice.choice(DURATIONS_MS)},
        "n": dice.randint(1, 3),
        "nap_ms": dice.choice((1, 30, 100, 400, 900)),
        "limit_ms": dice.choice((5, 20, 60)),
    }
    for step in steps:
        if dice.random() < 0.5:
            payload["ms"][step] = dice.choice(DURATIONS_MS)
    if dice.random() < 0.06:
        payload["ms"][dice.choice(steps)] = dice.randint(2_200, 4_500)
        world.counts["slow body"] += 1
    fail: dict[str, Any] = {}
    if workflow == "stubborn" and dice.random() < 0.7:
        fail["luck"] = dice.choice((["error", 3], ["permanent", 9], ["error", 1]))
        fail["settle"] = dice.choice((["permanent", 1], ["permanent", 2], ["permanent", 5], ["error", 2]))
    elif dice.random() < 0.3:
        for _ in range(dice.randint(1, 2)):
            fail[dice.choice(steps)] = dice.choice(
                (["error", 1], ["error", 2], ["error", 5], ["later", 1], ["later", 2], ["permanent", 1])
            )
    if fail:
        payload["fail"] = fail
        world.counts["failing body"] += 1
    if dice.random() < 0.04:
        payload["poison"] = dice.choice(steps)
    if workflow == "saga":
        payload["ends"] = dice.choice(("well", "badly", "badly once", "badly once"))
    if workflow == "parent":
        payload["child"] = program(dice, "child", world)
        payload["child"].pop("poison", None)
    if workflow == "child":
        payload["naps"] = dice.random() < 0.5
    return payload
