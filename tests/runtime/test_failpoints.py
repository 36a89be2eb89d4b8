"""Arming failpoints of a real process: what the variable may say, and which pass triggers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from onceward.core import failpoints as core
from onceward.core.errors import ConfigError
from onceward.runtime.failpoints import VARIABLE, FailpointRaised, arm_from_environment


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    core.arm(None)


def passes_until_raised(monkeypatch: pytest.MonkeyPatch, text: str, details: list[str]) -> int | None:
    """Arm *text* and pass step.after_body with each detail; give which pass raised, from 1."""
    monkeypatch.setenv(VARIABLE, text)
    arm_from_environment()
    for number, detail in enumerate(details, start=1):
        try:
            core.hit("step.after_body", detail)
        except FailpointRaised:
            return number
    return None


@pytest.mark.parametrize(
    ("text", "raised_at"),
    [
        ("step.after_body:raise", 1),
        ("step.after_body:raise:3", 3),
        ("step.after_body@charge card:raise", 2),
        ("step.after_body@charge card:raise:2", 4),
        ("step.after_body@charge:raise", None),
        ("step.before_body:raise", None),
        ("step.before_body:raise,step.after_body@receipt:raise", 3),
        ("step.after_body:raise:3,step.after_body@charge card:raise:1", 2),
    ],
)
def test_the_pass_that_was_named_triggers(
    monkeypatch: pytest.MonkeyPatch, text: str, raised_at: int | None
) -> None:
    details = ["build", "charge card", "receipt", "charge card", "receipt"]

    assert passes_until_raised(monkeypatch, text, details) == raised_at


def test_a_failpoint_triggers_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert passes_until_raised(monkeypatch, "step.after_body:raise:2", ["a", "a"]) == 2

    core.hit("step.after_body", "a")


@pytest.mark.parametrize("text", ["nothing:kill", "step.after_body", "step.after_body:explode", "a@b:kill", "accept.before_reply:kill:x"])  # fmt: skip
def test_what_names_no_failpoint_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(VARIABLE, text)

    with pytest.raises(ConfigError, match="names no failpoint and action"):
        arm_from_environment()
