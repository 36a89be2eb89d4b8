"""A question that a held run asks of a person, with all that is known, and the answers that it takes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import msgspec

from onceward.console.views import StepView

ANSWERS = {
    "retry": "It goes on with another attempt; what is not saved runs again.",
    "happened": "The step took effect. It is saved as done, with the result below.",
    "did_not_happen": "The step took no effect. It is tried again.",
    "fail": "It is given up: the run is failed, and whoever waits for it is told so.",
}
"""Every answer that the dashboard has words for."""

TO_ANY_HOLD = ("retry", "fail")
"""The answers to a run that is held for a reason and asks nothing."""


@dataclass(frozen=True)
class Asked:
    """What is asked about one step.

    Attributes:
        why: why its outcome is not known; empty where that is not told.
        arguments: what it was called with, or all that is told.
        answers: each possible word, and what it does.
    """

    why: str
    arguments: Any
    answers: list[tuple[str, str]]


def asked_of(step: StepView | None) -> Asked:
    """Give what a step asks; without one, the answers to a run that is held for any other reason."""
    told = msgspec.to_builtins(step.question) if step is not None else {"answers": TO_ANY_HOLD}
    if not isinstance(told, dict):
        told = {"why": str(told)}
    possible = told.get("answers") or TO_ANY_HOLD
    words = [str(word) for word in possible] if isinstance(possible, list | tuple) else list(TO_ANY_HOLD)
    known = "arguments" in told
    return Asked(
        why=str(told.get("why") or ""),
        arguments=_read(told["arguments"]) if known else told,
        answers=[(word, ANSWERS.get(word, "")) for word in words],
    )


def _read(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
